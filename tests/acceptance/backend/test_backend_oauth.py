"""Tokens: who gets one, who is let in, whose operations they are."""

from __future__ import annotations

import time

import httpx
import pytest

pytestmark = pytest.mark.acceptance

GRANT = {"grant_type": "client_credentials"}


def _token(agent, **form: str) -> httpx.Response:
    url = f"{agent.backend.url}/oauth/token"
    auth = None if "client_id" in form else ("agent", form.pop("secret", "agent-secret"))
    return httpx.post(url, data={**GRANT, **form}, auth=auth, trust_env=False)


def _bearer(agent) -> dict[str, str]:
    return {"Authorization": f"Bearer {_token(agent).json()['access_token']}"}


def test_token_by_secret_in_header_or_form(guarded_agent):
    """A client may prove itself by client_secret_basic or client_secret_post."""
    basic = _token(guarded_agent)
    post = _token(guarded_agent, client_id="agent", client_secret="agent-secret", scope="tools")
    assert basic.json()["token_type"] == "Bearer"
    assert basic.json()["expires_in"] == 2
    assert basic.headers["Cache-Control"] == "no-store"
    assert post.json()["scope"] == "tools"
    assert basic.json()["access_token"] != post.json()["access_token"]
    assert guarded_agent.backend.tokens_issued() == 2


def test_token_is_refused(guarded_agent):
    """A wrong secret, an unknown client and another grant get OAuth's own errors."""
    wrong = _token(guarded_agent, secret="guess")
    assert (wrong.status_code, wrong.json()) == (401, {"error": "invalid_client"})
    assert wrong.headers["WWW-Authenticate"].startswith("Basic")
    assert _token(guarded_agent, client_id="nobody", client_secret="agent-secret").status_code == 401
    other = _token(guarded_agent, grant_type="password")
    assert (other.status_code, other.json()) == (400, {"error": "unsupported_grant_type"})


def test_missing_and_unknown_tokens_are_challenged(guarded_agent, key):
    """Without a token the challenge names no error; with an unknown one it says invalid_token."""
    missing = guarded_agent.call(key)
    assert (missing.status_code, missing.headers["WWW-Authenticate"]) == (401, 'Bearer realm="tool-backend"')
    unknown = guarded_agent.call(key, headers={"Authorization": "Bearer made-up"})
    assert unknown.status_code == 401
    assert 'error="invalid_token"' in unknown.headers["WWW-Authenticate"]
    assert guarded_agent.get(f"/operations/{key}").status_code == 401
    assert guarded_agent.get("/accounts/a").status_code == 401
    assert guarded_agent.backend.effects() == []


def test_refreshed_token_finds_what_its_predecessor_did(guarded_agent, key):
    """Keys belong to the principal: after expiry and refresh the same key is a replay, not a second effect."""
    old = _bearer(guarded_agent)
    first = guarded_agent.call(key, headers=old)
    assert first.status_code == 200
    deadline = time.monotonic() + 5
    while guarded_agent.call(key, headers=old).status_code != 401:
        assert time.monotonic() < deadline, "the token never expired"
        time.sleep(0.05)
    again = guarded_agent.call(key, headers=_bearer(guarded_agent))
    assert again.content == first.content
    assert again.headers["Idempotent-Replayed"] == "true"
    assert guarded_agent.backend.effect_counts() == {key: 1}


def test_caller_header_does_not_override_the_token(guarded_agent, key):
    """With a token, the header that names a caller is ignored: it proves nothing."""
    first = guarded_agent.call(key, headers=_bearer(guarded_agent))
    again = guarded_agent.call(key, headers={**_bearer(guarded_agent), "X-Caller": "somebody-else"})
    assert again.content == first.content


def test_revoked_token_is_refused_until_refreshed(guarded_agent, key):
    """The fault revokes the request's token; a new one of the same client is accepted."""
    guarded_agent.backend.script("debit", "unauthorised_until_refresh")
    old = _bearer(guarded_agent)
    assert [guarded_agent.call(key, headers=old).status_code for _ in range(2)] == [401, 401]
    assert guarded_agent.call(key, headers=_bearer(guarded_agent)).status_code == 200
