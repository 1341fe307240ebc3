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
