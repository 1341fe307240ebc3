"""An authorisation server that repeats what it was sent, in whatever form, gives no secret away."""

from __future__ import annotations

import base64
import json

import pytest

from agent_runtime import ClientCredentials
from agent_runtime._core.effects import NoCredential
from agent_runtime._drive.tokens.fetch import Reply, read
from agent_runtime._model import Answer
from agent_runtime._oauth.requests import Grant

SECRET = "s3cret-canary-of-the-client"
SUBJECT = "eyJhbGciOi.SUBJECT-canary-" + "x1" * 200
GRANT = Grant(
    auth=ClientCredentials(token_url="https://id.example.com/token", client_id="agent", client_secret=SECRET),
    subject=SUBJECT,
)
BASIC = base64.b64encode(f"agent:{SECRET}".encode()).decode()


def told(body: dict[str, str], status: int = 400) -> NoCredential:
    answer = Answer(status=status, headers=(("Content-Type", "application/json"),), body=json.dumps(body).encode())
    read_back = read(GRANT, Reply(result=answer, sent_at=0.0, sent_on=0.0))
    assert isinstance(read_back, NoCredential)
    return read_back


@pytest.mark.parametrize("echo", [BASIC, SECRET, SUBJECT, SUBJECT[:40], "p" * 300 + SUBJECT])
def test_a_description_that_repeats_a_secret_is_cut(echo: str) -> None:
    """Whole, in base64, cut off or behind much text: no part of a secret is told."""
    problem = told({"error": "invalid_grant", "error_description": f"bad: {echo}"})
    text = repr(problem)
    assert "canary" not in text
    assert BASIC not in text
    assert SUBJECT[:30] not in text


def test_a_plain_description_is_told() -> None:
    """What a person can use is kept."""
    problem = told({"error": "invalid_grant", "error_description": "AADSTS50076: sign in again"})
    assert problem.description == "AADSTS50076: sign in again"


def test_claims_that_repeat_a_secret_are_not_told() -> None:
    """Claims are of use only whole, so they are left out."""
    problem = told({"error": "interaction_required", "claims": '{"x":"' + SUBJECT + '"}'})
    assert problem.claims is None


def test_what_was_sent_is_no_token() -> None:
    """A server that hands the subject's own token back is refused: it would go to a tool."""
    problem = told({"access_token": SUBJECT, "token_type": "Bearer", "expires_in": "300"}, status=200)
    assert "gave client 'agent' back what it was sent" in problem.message


@pytest.mark.parametrize(
    "code",
    [
        f"unknown refresh token {SUBJECT[:20]}",
        "unknown word",
        SECRET,
        SECRET.upper(),
        "bad." + SECRET[3:12],
        "ref-" + "Q7" * 12,
        "x" * 65,
        "\n",
    ],
)
@pytest.mark.parametrize("status", [200, 400, 401])
def test_an_error_code_that_is_no_plain_word_is_not_told(code: str, status: int) -> None:
    """A server may say anything under "error", what it was sent too: neither message nor code shows it."""
    problem = told({"error": code, "access_token": "issued-1", "token_type": "Bearer"}, status)
    assert problem.error is None
    assert code not in repr(problem)
    assert f"(HTTP {status}, an error code that is not shown)" in problem.message


def test_an_error_code_with_claims_still_wants_a_person() -> None:
    """A code that is not told hides no wish for new proof."""
    problem = told({"error": SECRET, "claims": '{"a":1}'})
    assert (problem.kind, problem.claims, problem.error) == ("required", '{"a":1}', None)
    assert "canary" not in repr(problem)


def test_a_servers_own_plain_code_is_told() -> None:
    """A code that no standard has is of use where it is a plain word; one of the standard's is told in any case."""
    assert told({"error": "AADSTS50076"}).error == "AADSTS50076"
    part = "invalid_grant".removeprefix("invalid_")
    short = Grant(auth=ClientCredentials(token_url="https://id.example.com/token", client_id="a", client_secret=part))
    answer = Answer(status=400, body=b'{"error": "invalid_grant"}')
    assert getattr(read(short, Reply(result=answer, sent_at=0.0, sent_on=0.0)), "error", None) == "invalid_grant"


def test_a_refresh_token_is_no_access_token() -> None:
    """A reply whose access token is its own refresh token is refused: it would go to a tool."""
    problem = told({"access_token": "one-canary", "refresh_token": "one-canary"}, status=200)
    assert (problem.kind, "refresh token as access token" in problem.message) == ("refused", True)


def test_a_refresh_token_that_cannot_be_sent_is_refused() -> None:
    """A lone surrogate has no encoding: the next refresh would break on it. It is not shown."""
    problem = told({"access_token": "issued-1", "refresh_token": "renewed-\ud800-canary"}, status=200)
    assert (problem.kind, "no request can carry" in problem.message) == ("refused", True)
    assert "canary" not in repr(problem)


@pytest.mark.parametrize("status", [200, 400])
def test_githubs_bad_refresh_token_wants_a_new_authorisation(status: int) -> None:
    """Its word for a grant that is dead comes under 200 too."""
    problem = told({"error": "bad_refresh_token", "error_description": "incorrect or expired"}, status)
    assert (problem.kind, problem.error) == ("required", "invalid_grant")
    assert "bad_refresh_token" in problem.message
