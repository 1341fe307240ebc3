"""A server may echo what it was sent: our own credentials are taken out of its answers."""

import html
import json
from urllib.parse import quote, quote_plus

import pytest

from agent_runtime._core.effects import Credential
from agent_runtime._core.scrub import repeats, scrubbed, scrubbed_text
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


ODD = 'ya29/ab+c=d_e-f.g~h!i&j<k\\l"m:nSECRET'
ODD_BEARER = Credential((("Authorization", f"Bearer {ODD}"),), "p", "t")


def dotnet(text):
    """Escape as .NET's and PHP's JSON writers do."""
    for char in '+&<"/=':
        text = text.replace(char, f"\\u{ord(char):04X}")
    return text


FORMS = {
    "as it is": lambda text: text,
    "in JSON": lambda text: json.dumps({"echo": text}),
    "JSON with slashes escaped": lambda text: json.dumps({"echo": text}).replace("/", "\\/"),
    "JSON with codes": lambda text: json.dumps({"echo": dotnet(text).replace("\\l", "\\\\l")}),
    "JSON with small codes": lambda text: dotnet(text).lower().replace("secret", "SECRET").replace("\\\\u", "\\u"),
    "JSON in JSON": lambda text: json.dumps({"echo": json.dumps({"echo": text}).replace("/", "\\/")}),
    "in a URL": lambda text: "https://tools.test/?t=" + quote(text, safe=""),
    "in a URL, small": lambda text: "t=" + quote(text, safe="").replace("%2B", "%2b").replace("%3D", "%3d"),
    "in a form": quote_plus,
    "in a page": html.escape,
    "in a page by numbers": lambda text: "".join(one if one.isalnum() else f"&#{ord(one)};" for one in text),
    "in a page by hexadecimals": lambda text: "".join(one if one.isalnum() else f"&#X0{ord(one):x};" for one in text),
    "in a page by names": lambda text: html.escape(text).replace("+", "&plus;").replace("/", "&sol;"),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("secret", [ODD, f"Bearer {ODD}"], ids=["token", "header"])
def test_a_token_is_known_however_it_is_encoded(form, secret):
    """JSON writers, URLs, forms and pages each have their own spelling; letters and digits stand in all of them."""
    said = f"<{form(secret)}>"
    clean = scrubbed(Answer(status=200, headers=(("X-Echo", said),), body=said.encode()), ODD_BEARER)
    assert b"SECRET" not in clean.body
    assert b"ya29" not in clean.body
    assert clean.headers == (("X-Echo", clean.body.decode()),)
    assert scrubbed_text(said, ODD_BEARER) == clean.body.decode()
    assert repeats(said, ODD_BEARER)


def test_what_stands_around_a_token_is_left():
    """JSON stays JSON, and bytes that are no text stay what they are."""
    answer = Answer(status=200, body=json.dumps({"a": ODD, "b": "c:\\d"}).encode() + b"\xff\x00")
    body = scrubbed(answer, ODD_BEARER).body
    assert body == b'{"a": "[credential]", "b": "c:\\\\d"}\xff\x00'


@pytest.mark.parametrize("near", [ODD.replace("+", "-"), ODD.lower(), ODD[:-1]])
def test_another_text_is_no_token(near):
    """Only encodings of the very same characters count."""
    assert not repeats(near, ODD_BEARER)
