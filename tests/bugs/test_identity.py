"""Keys and positions: what makes two calls one step, and what must not (A02 to A11)."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from enum import Enum
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pydantic import BaseModel

from agent_runtime import AsyncRuntime, KeyConflict, PlanDiverged, StepFailed, TokenCallable, Tool
from agent_runtime.errors import ArgumentsRefused
from tests.bugs.harness import does, keyed, says, tables, tool

if TYPE_CHECKING:
    from pathlib import Path

    from agent_runtime.testing import VirtualClock
    from tests.bugs.harness import Api, Target

Put = "Callable[..., Target]"


class Plan(Enum):
    SMALL = "small"


class Owner(BaseModel):
    name: str


class Order(BaseModel):
    id: uuid.UUID
    day: dt.date
    at: dt.datetime
    plan: Plan
    owner: Owner
    note: str = "none"


RICH = Order(
    id=uuid.UUID("8f14e45f-ceea-467f-8c3b-2f1f0d9a7b11"),
    day=dt.date(2026, 1, 2),
    at=dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    plan=Plan.SMALL,
    owner=Owner(name="Ana"),
)
PLAIN = {
    "id": "8f14e45f-ceea-467f-8c3b-2f1f0d9a7b11",
    "day": "2026-01-02",
    "at": "2026-01-02T03:04:05Z",
    "plan": "small",
    "owner": {"name": "Ana"},
}


@pytest.mark.parametrize("again", [PLAIN, {**PLAIN, "note": "none"}, RICH], ids=["plain", "default", "model"])
def test_A02_a_model_and_its_plain_json_are_one_call(api: Api, target: Put, again: Any) -> None:
    """A step made with a model is found again by the same values as plain JSON, a default left out or told."""
    there = target(does())
    with api.worker(tool(args=Order)).open() as plan:
        first = plan.call("pay", RICH)
    with api.worker(tool(args=Order)).open() as plan:
        second = plan.call("pay", again)
    assert (second.key, second.source) == (first.key, "ledger")
    assert there.sends == 1


@pytest.mark.parametrize("args", [{"f": lambda: 1}, {"f": object()}, {"n": {1, 2}}, {"n": float("nan")}])
def test_A02_what_json_cannot_carry_is_refused_before_a_row(
    api: Api, target: Put, tmp_path: Path, args: dict[str, Any]
) -> None:
    """Args that nothing can serialise raise a typed error: no row, no request, and no position is used up."""
    there = target(does())
    with api.worker(tool()).open() as plan:
        with pytest.raises(ArgumentsRefused):
            plan.call("pay", args)
        held = tables(api.url, tmp_path)
        assert (held["agent_runtime_operations"], held["agent_runtime_steps"]) == ([], [])
        assert plan.call("pay", {"n": 1}).step == "step_001"
    assert there.sends == 1


def test_A03_args_changed_during_the_call_change_nothing(api: Api, target: Put, clock: VirtualClock) -> None:
    """A hook that appends to the args while the first attempt is out leaves key, bytes and row as they were."""
    args: dict[str, Any] = {"items": [1]}

    def meddles(there: Target, request: httpx.Request) -> httpx.Response:
        args["items"].append(2)
        return httpx.Response(503)

    there = target(meddles, does())
    with api.worker(tool(), clock=clock).open() as plan:
        plan.call("pay", args)
        assert plan.states() == {"step_001": "succeeded"}
    assert (there.sends, there.bodies, len(there.keys)) == (2, {b'{"items":[1]}'}, 1)
    with api.worker(tool(), clock=clock).open() as plan:
        assert plan.call("pay", {"items": [1]}).source == "ledger"


def test_A06_one_key_over_all_attempts(api_on_both: Api, target: Put, clock: VirtualClock) -> None:
    """Attempts of one process, and of the next one that resumes, carry the key that stands in the ledger."""
    there = target(says(503), says(503), says(503, headers={"Retry-After": "3600"}), does())
    with api_on_both.worker(tool(), clock=clock).open() as plan:
        first = plan.try_call("pay", {"n": 1})
    assert (first.status, there.sends) == ("unknown", 3)
    clock.advance(4000)
    with api_on_both.worker(tool(), clock=clock).resume() as plan:
        done = plan.call("pay", {"n": 1})
    assert there.keys == {first.key} == {done.key}
    assert (there.sends, len(there.effects)) == (4, 1)


def test_A07_nothing_that_lives_shortly_is_in_the_key(api: Api, target: Put, clock: VirtualClock) -> None:
    """Another token, another time and another process between two attempts: one key, made from the call alone."""
    tokens = iter(["call-canary-1", "call-canary-2", "call-canary-3"])
    auth = TokenCallable(function=lambda: next(tokens), principal="acct-7")
    there = target(says(401), says(429, headers={"Retry-After": "600"}), does())
    with api.worker(tool(auth=auth), clock=clock).open() as plan:
        plan.try_call("pay", {"n": 1})
    clock.advance(86_000)
    with api.worker(tool(auth=auth), clock=clock).open() as plan:
        done = plan.call("pay", {"n": 1})
        session = plan.id
    sent = [request.headers["Authorization"] for request in there.requests]
    assert sent == ["Bearer call-canary-1", "Bearer call-canary-2", "Bearer call-canary-3"]
    assert there.keys == {done.key}
    assert len(there.bodies) == 1
    assert done.key.startswith(f"{session}:step_001:")


def test_A08_other_args_at_a_recorded_step_are_refused(api: Api, target: Put) -> None:
    """Args Y at a step that is done with args X: a typed error, nothing sent, and X's result is not given for Y."""
    there = target(does())
    with api.worker(tool()).open() as plan:
        plan.call("pay", {"n": 1})
    with api.worker(tool()).open() as plan:
        with pytest.raises(PlanDiverged) as caught:
            plan.call("pay", {"n": 2})
        assert caught.value.outcome.value is None
    assert there.sends == 1


@pytest.mark.parametrize("code", ["key-reused", "idempotency_key_reused", "mine"])
def test_A08_a_key_that_the_tool_knows_with_another_payload(api: Api, target: Put, code: str) -> None:
    """The tool's own mismatch answer is an error of its own kind: one request, no retry, no fresh key."""
    there = target(says(422, {"type": f"https://tools.test/problems/{code}", "title": "Key reused"}))
    contract = keyed(key_reused_codes=("mine",))
    with api.worker(tool(contract=contract)).open() as plan:
        with pytest.raises(KeyConflict) as caught:
            plan.call("pay", {"n": 1})
        assert plan.states() == {"step_001": "failed"}
    assert caught.value.key in there.keys
    assert there.sends == 1


def test_A08_a_plain_422_is_a_refusal_and_no_key_conflict(api: Api, target: Put) -> None:
    """A 422 that speaks of the args is told apart from one that speaks of the key."""
    target(says(422, {"detail": "amount is negative"}))
    with api.worker(tool()).open() as plan, pytest.raises(StepFailed, match="amount is negative"):
        plan.call("pay", {"n": 1})


def test_A09_positions_are_those_of_the_calls_not_of_their_ends(api_on_both: Api, target: Put) -> None:
    """Calls of one batch keep their positions whatever their latencies are; a resume gives each tool its own result."""
    names = ("a", "b", "c")
    tools = [tool(name, url=f"https://tools.test/{name}") for name in names]
    there = {name: target(does({"of": name}), at=f"https://tools.test/{name}") for name in names}
    with api_on_both.worker(*tools).open() as plan:
        first = plan.call_many([(name, {"n": 1}) for name in names])
    with api_on_both.worker(*tools).open() as plan:
        second = plan.call_many([(name, {"n": 1}) for name in names])
    assert [(one.step, one.value) for one in first] == [(one.step, one.value) for one in second]
    assert [one.value["of"] for one in second] == list(names)
    assert [one.sends for one in there.values()] == [1, 1, 1]


def test_A09_gathered_calls_are_numbered_when_they_are_made(tmp_path: Path) -> None:
    """`asyncio.gather` over calls that end in the reverse order, and over calls that start in another order."""
    seen: list[str] = []
    gates: dict[str, asyncio.Event] = {}

    async def answer(request: httpx.Request) -> httpx.Response:
        name = request.url.path[1:]
        seen.append(name)
        if len(seen) == 3:
            gates["c"].set()
        await gates[name].wait()
        gates.get({"c": "b", "b": "a"}.get(name, ""), asyncio.Event()).set()
        return httpx.Response(200, json={"of": name})

    async def run() -> list[tuple[str, Any]]:
        client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        gates.update({name: asyncio.Event() for name in "abc"})
        tools = [tool(name, url=f"https://tools.test/{name}") for name in "abc"]
        runtime = AsyncRuntime(f"sqlite:///{tmp_path}/agent.db", tools=tools, client=client)
        async with client, runtime, runtime.open("plan") as session:
            results = await asyncio.gather(*(session.call(name, {"n": 1}) for name in "abc"))
            await session.close()
            return [(one.step, one.value["of"]) for one in results]

    expected = [("step_001", "a"), ("step_002", "b"), ("step_003", "c")]
    assert asyncio.run(run()) == expected
    assert asyncio.run(run()) == expected
    assert sorted(seen) == ["a", "b", "c"]


def test_A10_a_wanted_repeat_is_a_step_of_its_own(api: Api, target: Put) -> None:
    """Two steps with the same tool and args have two keys and two effects."""
    there = target(does())
    with api.worker(tool("send_sms")).open() as plan:
        for _ in range(2):
            plan.call("send_sms", {"to": "1", "text": "hi"})
            plan.call("send_sms", {"to": "2", "text": "hi"})
    assert (there.sends, len(there.keys), len(there.effects)) == (4, 4, 4)


def test_A10_equal_calls_of_one_batch_are_two_effects(api: Api, target: Put) -> None:
    """Equal calls side by side are as much two effects as equal calls one after the other."""
    there = target(does())
    with api.worker(tool("send_sms")).open() as plan:
        plan.call_many([("send_sms", {"to": "1"}), ("send_sms", {"to": "1"})])
    assert len(there.effects) == 2


def test_A11_a_models_own_call_id_is_no_identity(api: Api, target: Put) -> None:
    """The model's id for a call stands in no arg and no key: the same call under a new id is the recorded step.

    It is passed nowhere: the position is the counter's, or an address that the caller derives from the message.
    """
    there = target(does())
    with api.worker(tool()).open() as plan:
        first = plan.call("pay", {"n": 1}, at="msg1.0")
    with api.worker(tool()).open() as plan:
        again = plan.call("pay", {"n": 1}, at="msg1.0")
    assert (again.key, again.source) == (first.key, "ledger")
    assert "msg1" not in first.key
    assert there.sends == 1


def test_A11_the_same_address_with_another_call_is_refused(api: Api, target: Put) -> None:
    """An address that is met again with other args never gives the recorded result."""
    there = target(does())
    with api.worker(tool()).open() as plan:
        plan.call("pay", {"n": 1}, at="msg1.0")
        with pytest.raises(PlanDiverged):
            plan.call("pay", {"n": 2}, at="msg1.0")
    assert there.sends == 1


def test_A01_members_in_another_order_are_the_same_call(api: Api, target: Put) -> None:
    """Over the whole path: permuted members replay, a permuted list is another call."""
    there = target(does())
    with api.worker(tool()).open() as plan:
        plan.call("pay", {"b": 2, "a": {"y": 1, "x": [1, 2]}})
    with api.worker(tool()).open() as plan:
        assert plan.call("pay", {"a": {"x": [1, 2], "y": 1}, "b": 2}).source == "ledger"
    with api.worker(tool()).open() as plan, pytest.raises(PlanDiverged):
        plan.call("pay", {"a": {"x": [2, 1], "y": 1}, "b": 2})
    assert there.sends == 1


def test_A05_integers_keep_their_digits_on_the_wire(api: Api, target: Put) -> None:
    """Integers beyond 64 bits go out digit for digit, each under a key of its own."""
    there = target(does())
    numbers = [2**53, 2**53 + 1, 2**64, 2**200]
    with api.worker(Tool("pay", url="https://tools.test/pay", contract=keyed())).open() as plan:
        for number in numbers:
            plan.call("pay", {"n": number})
    assert [request.content for request in there.requests] == [b'{"n":%d}' % number for number in numbers]
    assert len(there.keys) == 4
