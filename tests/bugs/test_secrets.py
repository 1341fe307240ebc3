"""No secret of ours in a log, an error, a repr, a pickle or the ledger (A40)."""

from __future__ import annotations

import pickle
import traceback
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import ApiKey, ClientCredentials, StaticToken, StepError, TokenCallable, Tool
from agent_runtime.errors import AgentRuntimeError, ConfigError
from tests.bugs.harness import Api, breaks, does, dump, keyed, says, tool
from tests.logs import logged

if TYPE_CHECKING:
    from pathlib import Path

    from agent_runtime.testing import VirtualClock

Put = "Callable[..., Target]"
TOKENS = "https://auth.test/token"
WORD = "word-canary-6"  # by name, so that a traceback's source lines do not hold it
SECRET = "client-secret-canary-4"
ISSUED = "issued-canary-3"
KINDS: dict[str, tuple[Any, str]] = {
    "static": (StaticToken(token="static-canary-1", principal="acct-7"), "static-canary-1"),
    "key": (ApiKey(key="key-canary-2"), "key-canary-2"),
    "callable": (TokenCallable(function=lambda: "call-canary-5"), "call-canary-5"),
    "client": (ClientCredentials(token_url=TOKENS, client_id="agent", client_secret=SECRET), ISSUED),
    "post": (
        ClientCredentials(token_url=TOKENS, client_id="agent", client_secret=SECRET, auth_method="client_secret_post"),
        ISSUED,
    ),
}
DAYS = [does(), says(400, {"detail": "no"}), says(500), breaks(httpx.ReadTimeout), says(401), says(302)]


def told(error: BaseException) -> str:
    """Return all that an exception can show: text, repr, pickle, and its chain with causes."""
    chain: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        chain += [str(seen), repr(seen), repr(vars(seen))]
        if isinstance(seen, AgentRuntimeError):
            chain.append(repr(pickle.dumps(seen)) + repr(vars(pickle.loads(pickle.dumps(seen)))))
        seen = seen.__cause__ or seen.__context__
    return "\n".join([*chain, *traceback.format_exception(error)])


@pytest.mark.parametrize("kind", KINDS)
def test_A40_a_whole_run_leaves_no_secret_anywhere(
    api_on_both: Api, target: Put, clock: VirtualClock, tmp_path: Path, kind: str
) -> None:
    """Good and bad days with every kind of credential, all loggers at DEBUG: the secret is in the request alone."""
    auth, secret = KINDS[kind]
    token = {"access_token": ISSUED, "token_type": "Bearer", "expires_in": 3600}
    target(lambda *_: httpx.Response(200, json=token), at=TOKENS)
    there = target(does())
    shown: list[str] = []
    pay = tool(auth=auth)
    with logged() as lines:
        worker = api_on_both.worker(pay, clock=clock)
        with worker.open() as plan:
            for branch, day in plan.each(DAYS):
                there.script = [day]
                try:
                    result: Any = branch.call("pay", {"n": 1})
                except StepError as error:
                    shown.append(told(error))
                    result = error.outcome
                shown += [repr(result), repr(pickle.dumps(result))]
            shown += [repr(one) for one in (worker.runtime, plan.session, pay, auth, plan.report)]
            shown += [str(plan.steps()), repr(plan.steps())]
            rows = [step.operation_id for step in plan.steps()]
            shown += [repr(worker.operation(row)) + repr(worker.evidence(row)) for row in rows]
        held = dump(api_on_both.url, tmp_path)
    assert any(secret in str(request.headers.multi_items()) for request in there.requests)
    assert there.sends >= len(DAYS)
    assert len(lines) > 0
    places = {"log": "\n".join(lines), "shown": "\n".join(shown), "ledger": held.decode("utf-8", "replace")}
    assert {name for name, text in places.items() if "canary" in text} == set()
    assert b"step_001" in held


def test_A40_a_url_with_a_password_is_refused_and_not_repeated() -> None:
    """A tool's URL goes to the ledger, so it may hold no user and password; the refusal does not show them."""
    with pytest.raises(ConfigError) as caught:
        Tool("pay", url=f"https://user:{WORD}@tools.test/pay", contract=keyed())
    assert "canary" not in told(caught.value)


@pytest.mark.parametrize("name", ["Authorization", "Cookie", "Proxy-Authorization"])
def test_A40_a_header_with_a_secret_is_refused_and_not_repeated(name: str) -> None:
    """Plain headers are frozen with the request, so those that carry credentials are refused."""
    with pytest.raises(ConfigError) as caught:
        Tool("pay", url="https://tools.test/pay", contract=keyed(), headers={name: WORD})
    assert "canary" not in told(caught.value)


@pytest.mark.parametrize("token", ["call-canary-8\n", "call-canary-8\u20ac", "call-canary 8\0"])
def test_A40_a_token_that_no_header_can_carry_is_refused_and_not_repeated(api: Api, target: Put, token: str) -> None:
    """An illegal token is told without its text, nothing is sent, and the row stays as it was."""
    there = target(does())
    with logged() as lines, api.worker(tool(auth=TokenCallable(function=lambda: token))).open() as plan:
        with pytest.raises(ConfigError) as caught:
            plan.call("pay", {"n": 1})
        assert plan.states() == {"step_001": "ready"}
    assert "canary" not in told(caught.value) + "\n".join(lines)
    assert there.sends == 0


def test_A40_a_query_of_a_url_stays_out_of_logs_and_errors(api: Api, target: Put) -> None:
    """What stands in a tool's URL is part of the recorded request (a credential belongs into ``auth=``); log lines and
    errors leave it out all the same."""
    there = target(says(500), at="https://tools.test/pay")
    pay = tool(url="https://tools.test/pay?sig=SIGNED-9")
    with logged() as lines, api.worker(pay).open() as plan, pytest.raises(StepError) as caught:
        plan.call("pay", {"n": 1})
    assert there.requests[0].url.query == b"sig=SIGNED-9"
    assert any("tools.test/pay" in line for line in lines)
    assert "SIGNED" not in told(caught.value) + "\n".join(lines)


@pytest.mark.parametrize("status", [400, 500])
def test_A40_a_token_endpoint_that_repeats_the_secret(api: Api, target: Put, tmp_path: Path, status: int) -> None:
    """An error of the token endpoint that echoes what it was sent goes neither to the row nor to the error."""
    echo = {"error": "invalid_client", "error_description": f"bad secret {SECRET}", "sent": SECRET}
    target(says(status, echo), at=TOKENS)
    target(does())
    auth = ClientCredentials(token_url=TOKENS, client_id="agent", client_secret=SECRET)
    with logged() as lines, api.worker(tool(auth=auth)).open() as plan, pytest.raises(StepError) as caught:
        plan.call("pay", {"n": 1})
    held = dump(api.url, tmp_path).decode("utf-8", "replace")
    assert "canary" not in told(caught.value) + "\n".join(lines) + held
