"""A server may echo what it was sent: our own credentials are taken out of its answers."""

from agent_runtime._core.effects import Credential
from agent_runtime._core.scrub import repeats, scrubbed
from agent_runtime._model import Answer

BEARER = Credential((("Authorization", "Bearer tok-123456"),), "p", "t")


def test_a_token_is_taken_out_of_body_and_headers():
    """Wherever the token stands, with its scheme or without, a mark stands instead."""
    answer = Answer(status=400, headers=(("X-Echo", "Bearer tok-123456"),), body=b'{"you sent": "tok-123456"}')
    clean = scrubbed(answer, BEARER)
    assert clean.headers == (("X-Echo", "[credential]"),)
    assert clean.body == b'{"you sent": "[credential]"}'


def test_an_answer_without_the_token_is_left_as_it_is():
    """Nothing is copied where nothing is found."""
    answer = Answer(status=200, body=b'{"a": 1}')
    assert scrubbed(answer, BEARER) is answer
    assert scrubbed(answer, Credential()) is answer


def test_a_secret_of_a_few_letters_is_not_looked_for():
    """It would be found in innocent text."""
    answer = Answer(status=200, body=b'{"k": "abc"}')
    assert scrubbed(answer, Credential((("X-Key", "abc"),), "p", "t")) is answer


def test_claims_that_repeat_the_token_are_known():
    """What was decoded from a challenge is looked through as well."""
    assert repeats('{"t":"Bearer tok-123456"}', BEARER)
    assert not repeats('{"acrs":"c1"}', BEARER)
    assert not repeats(None, BEARER)
