"""Tokens that end on the way, and 401 without end, for the client credentials grant (A30, A31, A33)."""

from __future__ import annotations

import asyncio
import threading
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import AsyncRuntime, ClientCredentials, StepPending, ToolContract
from tests.bugs.harness import Api, Target, does, says, tool
from tests.credentials import CLIENT_SECRET

if TYPE_CHECKING:
    from pathlib import Path

    from agent_runtime.testing import VirtualClock

Put = "Callable[..., Target]"
PATIENCE = 20
"""Seconds after which a test gives up; none that passes comes near."""
TOKENS = "https://auth.test/token"
AUTH = ClientCredentials(token_url=TOKENS, client_id="agent", client_secret=CLIENT_SECRET)


def issues(lifetime: float, clock: VirtualClock | None = None, skew: float = 0.0) -> Any:
    """Issue tokens that are counted; the server's clock may go wrong by ``skew`` seconds."""

    def step(target: Target, request: httpx.Request) -> httpx.Response:
        headers = {} if clock is None else {"Date": formatdate(clock.wall() + skew, usegmt=True)}
        token = {"access_token": f"issued-canary-{target.sends}", "token_type": "Bearer", "expires_in": lifetime}
        return httpx.Response(200, json=token, headers=headers)

    return step


def tokens_of(target: Target) -> list[str]:
    return [request.headers["Authorization"].removeprefix("Bearer ") for request in target.requests]


def only(*valid: str) -> Any:
    """Perform the effect for these tokens, say 401 to any other."""

    def step(target: Target, request: httpx.Request) -> httpx.Response:
        if request.headers["Authorization"].removeprefix("Bearer ") in valid:
            return target.perform(request, 200, {"id": "x"})
        return httpx.Response(401, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})

    return step


@pytest.mark.parametrize("name", ["sync", "async"])
def test_A30_many_that_need_a_token_ask_once(name: str, tmp_path: Path, target: Put) -> None:
    """Calls that meet an empty or a refused token at the same time make one token request for all.

    Refresh tokens and tokens kept for other processes come later; here it is one provider in one process.
    """
    asked = target(issues(3600), at=TOKENS)
    there = target(does())
    pay = tool(auth=AUTH)
    if name == "async":

        async def run() -> None:
            client = httpx.AsyncClient(trust_env=False, verify=False)
            runtime = AsyncRuntime(f"sqlite:///{tmp_path}/a.db", tools=[pay], client=client)
            async with client, runtime, runtime.open("plan") as session:
                branches = [session.branch(f"b{n}") for n in range(20)]
                await asyncio.gather(*(branch.call("pay", {"n": 1}) for branch in branches))

        asyncio.run(run())
    else:
        api = Api("sync", f"sqlite:///{tmp_path}/a.db")
        with api.worker(pay).open() as plan:
            start = threading.Barrier(8)

            def call(branch: Any) -> None:
                start.wait(PATIENCE)
                branch.call("pay", {"n": 1})

            threads = [threading.Thread(target=call, args=(plan.branch(f"b{n}"),)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
        api.close()
    assert asked.sends == 1
    assert set(tokens_of(there)) == {"issued-canary-1"}
    assert len(there.effects) == (20 if name == "async" else 8)


def test_A30_a_second_loop_of_one_runtime_waits_for_its_own_token(tmp_path: Path, target: Put) -> None:
    """Calls wait for one token in one event loop after the other: the lock of a loop that is gone holds nobody."""

    async def run(runtime: AsyncRuntime, alias: str) -> None:
        async with runtime.open(alias) as session:
            branches = [session.branch(f"b{n}") for n in range(4)]
            await asyncio.gather(*(branch.call("pay", {"n": 1}) for branch in branches))

    there = target(does())
    asked = target(issues(0), at=TOKENS)
    runtime = AsyncRuntime(f"sqlite:///{tmp_path}/a.db", tools=[tool(auth=AUTH)])
    for n in range(8):
        asyncio.run(run(runtime, f"plan {n}"))
    asyncio.run(runtime.close())
    assert len(there.effects) == 32
    assert asked.sends >= 8


@pytest.mark.parametrize("left", [0.1, 5])
@pytest.mark.parametrize("skew", [-30, 0, 30])
def test_A31_a_token_about_to_end_is_replaced_before_the_send(
    api: Api, target: Put, clock: VirtualClock, left: float, skew: float
) -> None:
    """A token with little time left is not risked, whatever the issuer's clock says; no 401 comes of it."""
    asked = target(issues(600, clock, skew), at=TOKENS)
    there = target(does())
    with api.worker(tool(auth=AUTH), clock=clock).open() as plan:
        plan.call("pay", {"n": 1})
        clock.advance(600 - left)
        plan.call("pay", {"n": 2})
    assert (asked.sends, tokens_of(there)) == (2, ["issued-canary-1", "issued-canary-2"])


def test_A31_a_token_that_ends_in_a_wait_is_replaced_before_the_next_attempt(
    api: Api, target: Put, clock: VirtualClock
) -> None:
    """A Retry-After longer than the token's life: the second attempt carries a fresh one, under the same key."""
    asked = target(issues(40), at=TOKENS)
    there = target(says(429, headers={"Retry-After": "50"}), does())
    with api.worker(tool(auth=AUTH), clock=clock).open() as plan:
        plan.call("pay", {"n": 1})
    assert (asked.sends, tokens_of(there)) == (2, ["issued-canary-1", "issued-canary-2"])
    assert (len(there.keys), len(there.bodies)) == (1, 1)


def test_A31_a_token_that_is_fresh_is_used_again(api: Api, target: Put, clock: VirtualClock) -> None:
    """Within its life a token serves every call; even one that lives shortly is not asked for anew each time."""
    asked = target(issues(8), at=TOKENS)
    there = target(does())
    with api.worker(tool(auth=AUTH), clock=clock).open() as plan:
        for n in range(3):
            plan.call("pay", {"n": n})
            clock.advance(1)
    assert (asked.sends, tokens_of(there)) == (1, ["issued-canary-1", "issued-canary-1", "issued-canary-1"])


@pytest.mark.parametrize("contract", [None, ToolContract()], ids=["keyed", "keyless"])
def test_A33_a_401_is_answered_by_one_fresh_token(api: Api, target: Put, contract: ToolContract | None) -> None:
    """A token that the tool no longer takes is replaced once; the same key and bytes go out again."""
    asked = target(issues(3600), at=TOKENS)
    there = target(only("issued-canary-2"))
    with api.worker(tool(auth=AUTH, contract=contract)).open() as plan:
        plan.call("pay", {"n": 1})
    assert (asked.sends, tokens_of(there), len(there.keys), len(there.bodies)) == (
        2,
        ["issued-canary-1", "issued-canary-2"],
        1,
        1,
    )


def test_A33_a_tool_that_always_says_401(api_on_both: Api, target: Put) -> None:
    """One forced refresh, two requests, then a typed word that a person is wanted; the row says "not performed"."""
    asked = target(issues(3600), at=TOKENS)
    there = target(only())
    with api_on_both.worker(tool(auth=AUTH)).open() as plan:
        with pytest.raises(StepPending) as caught:
            plan.call("pay", {"n": 1})
        assert (caught.value.kind, caught.value.outcome.state) == ("auth", "ready")
    assert (asked.sends, there.sends) == (2, 2)
    there.script = [does()]
    with api_on_both.worker(tool(auth=AUTH)).resume() as plan:
        assert plan.call("pay", {"n": 1}).key in there.keys
    assert len(there.keys) == 1


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_client", "unauthorized_client"])
def test_A33_a_token_endpoint_that_says_no_is_asked_once(api: Api, target: Put, error: str) -> None:
    """401, and the refresh is refused: no second refresh, no resend, a person is wanted; nothing was performed."""
    asked = target(issues(3600), says(400, {"error": error}), at=TOKENS)
    there = target(only())
    with api.worker(tool(auth=AUTH)).open() as plan:
        outcome = plan.try_call("pay", {"n": 1})
    assert (outcome.status, outcome.kind, outcome.state) == ("pending", "auth", "ready")
    assert error in str(outcome.error) + outcome.message
    assert (asked.sends, there.sends) == (2, 1)


def test_A33_a_token_endpoint_that_is_away_is_asked_again(api: Api, target: Put, clock: VirtualClock) -> None:
    """503 from the token endpoint passes: it is waited out within the budget, as long as it asks to wait."""
    asked = target(says(503, headers={"Retry-After": "7"}), issues(3600), at=TOKENS)
    there = target(does())
    with api.worker(tool(auth=AUTH), clock=clock).open() as plan:
        plan.call("pay", {"n": 1})
    assert (asked.sends, there.sends) == (2, 1)
    assert sum(clock.slept) >= 7


@pytest.mark.parametrize("value", ["1", "99999999999", "9" * 400])
def test_A33_a_token_endpoint_that_stays_away_leaves_the_step_ready(
    api: Api, target: Put, clock: VirtualClock, value: str
) -> None:
    """Nothing was sent to the tool, so the step is pending, never unknown, until a moment that a clock can have."""
    target(says(503, headers={"Retry-After": value}), at=TOKENS)
    there = target(does())
    with api.worker(tool(auth=AUTH), clock=clock).open() as plan:
        outcome = plan.try_call("pay", {"n": 1})
        assert (outcome.status, outcome.state) == ("pending", "ready")
        assert outcome.resume_at < clock.wall() + 1e9
    assert there.sends == 0


def test_A33_a_refused_resend_for_want_of_a_token_stays_unknown(api: Api, target: Put, clock: VirtualClock) -> None:
    """After a lost answer, a 401 that no refresh mends proves nothing about the first request."""
    target(issues(3600), at=TOKENS)
    there = target(says(503), only())
    with api.worker(tool(auth=AUTH), clock=clock).open() as plan:
        outcome = plan.try_call("pay", {"n": 1})
    assert (outcome.status, outcome.state) == ("unknown", "unknown")
    assert there.sends == 3
