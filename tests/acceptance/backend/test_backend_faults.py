"""Each fault that can be ordered does what its name says, to the requests it was ordered for."""

from __future__ import annotations

import time

import httpx
import pytest

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize(("cut", "error"), [("close", httpx.RemoteProtocolError), ("reset", httpx.ReadError)])
def test_lost_answer(agent, key, cut, error):
    """The effect happens and its answer is kept, but the connection ends without a byte."""
    agent.backend.script("debit", "lost_answer", cut=cut)
    with pytest.raises(error):
        agent.call(key)
    assert agent.backend.operation(key)["state"] == "done"
    assert agent.call(key).headers["Idempotent-Replayed"] == "true"
    assert agent.backend.effect_counts() == {key: 1}


def test_lost_answer_of_the_twin(agent, key):
    """At the legacy tool a lost answer and a repeated request are two effects."""
    agent.backend.script("legacy-debit", "lost_answer")
    with pytest.raises(httpx.RemoteProtocolError):
        agent.call(key, tool="legacy-debit")
    assert agent.call(key, tool="legacy-debit").status_code == 200
    assert agent.backend.effect_counts() == {key: 2}


@pytest.mark.parametrize("when", ["before_effect", "after_effect", "after_stored"])
def test_slow(agent, key, when):
    """A slow tool outlasts the client's patience, and its effect happens all the same."""
    agent.backend.script("debit", "slow", seconds=1, when=when)
    with pytest.raises(httpx.ReadTimeout):
        agent.call(key, timeout=0.4)
    effects = len(agent.backend.effects())
    assert effects == (0 if when == "before_effect" else 1)
    deadline = time.monotonic() + 5
    while agent.backend.operation(key)["state"] != "done":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert agent.backend.effect_counts() == {key: 1}


def test_crash_before_the_effect(hasty_agent, key):
    """A process that dies before its effect leaves a claim that ends; then the key runs."""
    backend = hasty_agent.backend
    backend.script("debit", "crash", when="before_effect")
    with pytest.raises(httpx.RemoteProtocolError):
        hasty_agent.call(key)
    assert backend.wait_until_dead() == 70
    backend.restart()
    assert backend.effects() == []
    _wait_while_running(backend, key)
    assert backend.operation(key) == {"state": "absent"}
    assert hasty_agent.call(key).status_code == 200
    assert backend.effect_counts() == {key: 1}


def test_crash_after_the_effect(hasty_agent, key):
    """A process that dies between effect and record leaves ``partly-applied``; nothing runs the tool again."""
    backend = hasty_agent.backend
    backend.script("debit", "crash")
    url = backend.url
    with pytest.raises(httpx.RemoteProtocolError):
        hasty_agent.call(key)
    backend.wait_until_dead()
    backend.restart()
    assert backend.url == url
    _wait_while_running(backend, key)
    looked_up = backend.operation(key)
    answer = hasty_agent.call(key)
    assert (answer.status_code, answer.json()["effect"]) == (500, "possible")
    assert looked_up == {"state": "done", "status": 500, "body": answer.json()}
    assert hasty_agent.call(key).headers["Idempotent-Replayed"] == "true"
    assert backend.effect_counts() == {key: 1}


def test_crash_after_the_answer_was_kept(hasty_agent, key):
    """A process that dies once the answer is kept has only lost it on the way: a replay delivers it."""
    backend = hasty_agent.backend
    backend.script("debit", "crash", when="after_stored")
    with pytest.raises(httpx.RemoteProtocolError):
        hasty_agent.call(key)
    backend.wait_until_dead()
    backend.restart()
    assert hasty_agent.call(key).headers["Idempotent-Replayed"] == "true"
    assert backend.effect_counts() == {key: 1}


def test_script_outlives_a_crash(hasty_agent, key):
    """What is left of a script is still in force after the process died."""
    backend = hasty_agent.backend
    backend.script("debit", "crash", when="before_effect")
    backend.script("debit", "status", status=429, headers={"Retry-After": "7"})
    with pytest.raises(httpx.RemoteProtocolError):
        hasty_agent.call(key)
    backend.wait_until_dead()
    backend.restart()
    answer = hasty_agent.call(key)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")


def test_unauthorised_until_refresh(agent, key):
    """A credential is refused until another one comes, with the challenge that asks for a refresh."""
    agent.backend.script("debit", "unauthorised_until_refresh")
    old, new = {"Authorization": "Bearer old"}, {"Authorization": "Bearer new"}
    for _ in range(2):
        answer = agent.call(key, headers=old)
        assert answer.status_code == 401
        assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]
    assert agent.call(key, headers=new).status_code == 200
    assert agent.backend.effect_counts() == {key: 1}


def test_status_of_a_gateway(agent, key):
    """Any status, headers and body can be answered in front of the contract; nothing runs, nothing is kept."""
    html = "<html>busy</html>"
    agent.backend.script("debit", "status", status=503, headers={"Content-Type": "text/html"}, body=html, times=2)
    for _ in range(2):
        answer = agent.call(key)
        assert (answer.status_code, answer.text, answer.headers["Content-Type"]) == (503, html, "text/html")
    assert agent.backend.operation(key) == {"state": "absent"}
    assert agent.call(key).status_code == 200


def test_drip(agent, key):
    """Headers come at once, the body byte by byte; a client with a short read timeout per byte gets it all."""
    agent.backend.script("debit", "drip", seconds=0.01)
    url = f"{agent.backend.url}/tools/debit"
    started = time.monotonic()
    with httpx.stream(
        "POST", url, json={"account": "a", "amount": 1}, headers={"Idempotency-Key": key}, trust_env=False
    ) as answer:
        headers_after = time.monotonic() - started
        body = answer.read()
    whole_after = time.monotonic() - started
    assert whole_after > 0.01 * len(body)
    assert headers_after < whole_after / 2
    assert agent.call(key, args={"account": "a", "amount": 1}).content == body


@pytest.mark.parametrize("cut", ["close", "reset"])
def test_cut_body(agent, key, cut):
    """Headers and half of the body come, then the connection ends; the whole answer can be fetched by key."""
    agent.backend.script("debit", "cut_body", cut=cut)
    url = f"{agent.backend.url}/tools/debit"
    received = b""
    with (  # noqa: PT012 - the status is part of what must have arrived
        pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)),
        httpx.stream(
            "POST", url, json={"account": "a", "amount": 1}, headers={"Idempotency-Key": key}, trust_env=False
        ) as answer,
    ):
        assert answer.status_code == 200
        for part in answer.iter_raw():
            received += part
    whole = agent.call(key, args={"account": "a", "amount": 1})
    assert whole.headers["Idempotent-Replayed"] == "true"
    assert 0 < len(received) < len(whole.content)
    assert whole.content.startswith(received)
    assert agent.backend.effect_counts() == {key: 1}


def test_faults_of_the_read_tool(agent):
    """The tool that only reads can fail, too."""
    agent.backend.script("get-account", "status", status=502)
    agent.backend.script("get-account", "lost_answer")
    assert agent.get("/accounts/a").status_code == 502
    with pytest.raises(httpx.RemoteProtocolError):
        agent.get("/accounts/a")
    assert agent.get("/accounts/a").json() == {"account": "a", "balance": 100_000_00}


def test_script_is_used_in_order_by_the_requests_it_matches(agent):
    """Each request takes the first entry of its tool that matches its key, so many times as ordered."""
    agent.backend.script("debit", "status", status=500, match="red", times=2)
    agent.backend.script("debit", "status", status=502)
    agent.backend.script("debit", "status", status=504, match="red")
    statuses = [agent.call(key).status_code for key in ("blue-1", "blue-2", "red-1", "red-2", "red-3", "red-4")]
    assert statuses == [502, 200, 500, 500, 504, 200]


def test_unknown_faults_are_refused(agent):
    """A misspelt tool, fault or option is an error at once, not a fault that never comes."""
    for entry in ({"tool": "debits"}, {"fault": "crush"}, {"second": 1}):
        with pytest.raises(ValueError, match="refused"):
            agent.backend.script(**{"tool": "debit", "fault": "slow", **entry})


def _wait_while_running(backend, key: str) -> None:
    deadline = time.monotonic() + 5
    while backend.operation(key)["state"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.02)
