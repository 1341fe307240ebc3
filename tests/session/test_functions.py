"""Function tools: what their end means, and what they can know of their step."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import (
    ConfigError,
    Idempotency,
    Key,
    NotApplied,
    StepFailed,
    StepPending,
    StepUnknown,
    ToolContract,
    current_key,
    current_step,
    tool,
)
from tests.session.stage import PLAIN, BrokenLedger, Killed, KillSwitch, provision

if TYPE_CHECKING:
    from tests.session.stage import Stage

KEYED = ToolContract(idempotency=Idempotency())


def function(stage: Stage, body: Any, *, contract: ToolContract = PLAIN, single_request: bool = False) -> Any:
    """Return a function tool of the stage's face that does what ``body`` does."""
    if stage.is_async:

        @tool(name="pay", contract=contract, single_request=single_request)
        async def pay_async(amount: int, idempotency_key: Key) -> Any:
            return body(amount, idempotency_key)

        return pay_async

    @tool(name="pay", contract=contract, single_request=single_request)
    def pay(amount: int, idempotency_key: Key) -> Any:
        return body(amount, idempotency_key)

    return pay


def test_a_function_is_called_once_and_its_result_replayed(stage: Stage) -> None:
    """It gets typed args and the key; what it returned is delivered as its JSON form reads, live and replayed."""
    calls: list[Any] = []

    def body(amount: int, key: str) -> Any:
        calls.append((amount, key))
        return {"pair": (amount, 1)}

    pay = function(stage, body)
    runtime = stage.runtime(pay)
    for source in ("sent", "ledger"):
        session = runtime.open("orders")
        result = session.call(pay, {"amount": 5})
        assert (result.value, result.source) == ({"pair": [5, 1]}, source)
        session.close()
    assert calls == [(5, result.key)]


def test_the_key_never_shows_in_the_models_schema(stage: Stage) -> None:
    """The model cannot give it, and a call that tries is refused."""
    pay = function(stage, lambda amount, key: None)
    assert set(pay.args_schema()["properties"]) == {"amount"}
    with stage.runtime(pay).open("orders") as session, pytest.raises(ConfigError):
        session.call(pay, {"amount": 1, "idempotency_key": "mine"})


def test_a_function_can_ask_for_its_step(stage: Stage) -> None:
    """`current_key()` and `current_step()` serve code that can take no parameter; outside a step they are None."""
    seen: list[Any] = []

    def body(amount: int, key: str) -> None:
        step = current_step()
        assert step is not None
        seen.append((step.session_id, step.step, step.key, current_key() == key))

    pay = function(stage, body)
    with stage.runtime(pay).open("orders") as session:
        result = session.call(pay, {"amount": 5})
    assert seen == [(session.id, "step_001", result.key, True)]
    assert current_key() is None
    assert current_step() is None


def test_a_plain_function_of_an_async_session_runs_beside_the_loop(async_stage: Stage) -> None:
    """It blocks no other task, and knows its step there too."""
    seen: list[Any] = []

    @tool(contract=PLAIN)
    def pay(amount: int) -> int:
        seen.append((threading.current_thread() is threading.main_thread(), current_key()))
        return amount

    with async_stage.runtime(pay).open("orders") as session:
        result = session.call(pay, {"amount": 5})
    assert seen == [(False, result.key)]


def test_an_async_function_needs_an_async_session(sync_stage: Stage) -> None:
    """A blocking session refuses it before anything is written."""

    @tool(contract=PLAIN)
    async def pay(amount: int) -> int:
        return amount

    with sync_stage.runtime(pay).open("orders") as session, pytest.raises(ConfigError, match="AsyncSession"):
        session.call(pay, {"amount": 5})
    assert sync_stage.loaded().operations == ()


def test_any_exception_leaves_the_step_unknown(stage: Stage) -> None:
    """It does not say whether the effect happened, so the function is not called again."""
    calls: list[int] = []

    def body(amount: int, key: str) -> None:
        calls.append(amount)
        raise RuntimeError("after the effect?")

    pay = function(stage, body)
    session = stage.runtime(pay).open("orders")
    for _ in range(2):
        with pytest.raises(StepUnknown) as caught:
            session.call(pay, {"amount": 5})
        assert caught.value.outcome.reason == "exception"
    assert calls == [5]


def test_a_function_that_says_not_applied_has_failed(stage: Stage) -> None:
    """`NotApplied` without a wait is a refusal: failed, effect none, and it can be issued again."""
    answers: list[Any] = [NotApplied("no funds"), 7]

    def body(amount: int, key: str) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    pay = function(stage, body)
    session = stage.runtime(pay).open("orders")
    with pytest.raises(StepFailed) as caught:
        session.call(pay, {"amount": 5})
    assert caught.value.effect == "none"
    assert session.reissue("step_001").value == 7


@pytest.mark.parametrize(
    "error", [NotApplied("busy", retry_after=2.0), httpx.ConnectError("refused"), httpx.PoolTimeout("full")], ids=repr
)
def test_what_certainly_did_not_happen_is_tried_again(stage: Stage, error: Exception) -> None:
    """`NotApplied` with a wait; of a function that makes one request, an HTTP client's errors of the not-sent kinds."""
    keys: list[str] = []

    def body(amount: int, key: str) -> int:
        keys.append(key)
        if len(keys) == 1:
            raise error
        return amount

    pay = function(stage, body, single_request=True)
    with stage.runtime(pay).open("orders") as session:
        result = session.call(pay, {"amount": 5})
    assert result.attempts == 2
    assert len(set(keys)) == 1
    assert sum(stage.clock.slept) >= (2.0 if isinstance(error, NotApplied) else 0.0)


def test_a_refused_connection_proves_nothing_of_what_the_function_did_before(stage: Stage) -> None:
    """A function that charges and then finds another service down is not called again: the step is unknown."""
    charges: list[int] = []

    def body(amount: int, key: str) -> int:
        charges.append(amount)
        raise httpx.ConnectError("the mailer is down")

    pay = function(stage, body)
    session = stage.runtime(pay).open("orders")
    with pytest.raises(StepUnknown):
        session.call(pay, {"amount": 5})
    assert charges == [5]


def test_an_http_error_that_may_have_been_sent_leaves_it_unknown(stage: Stage) -> None:
    """Unless the function honours the key: then it is called again under it."""
    calls: list[str] = []

    def body(amount: int, key: str) -> int:
        calls.append(key)
        if len(calls) == 1:
            raise httpx.ReadTimeout("lost")
        return amount

    with stage.runtime(pay := function(stage, body)).open("plain") as session, pytest.raises(StepUnknown):
        session.call(pay, {"amount": 5})
    calls.clear()
    with stage.runtime(pay := function(stage, body, contract=KEYED)).open("keyed") as session:
        assert session.call(pay, {"amount": 5}).value == 5
    assert len(calls) == 2
    assert len(set(calls)) == 1


def test_a_pending_error_passes_through(stage: Stage) -> None:
    """What waits inside the function is the caller's to see; the function's step is not counted as done or failed."""

    def body(amount: int, key: str) -> None:
        raise StepPending("waits", kind="approval")

    pay = function(stage, body)
    session = stage.runtime(pay).open("orders")
    with pytest.raises(StepPending, match="waits"):
        session.call(pay, {"amount": 5})
    assert stage.states() == ["unknown"]


def test_calls_inside_a_function_stand_in_its_steps_branch(stage: Stage) -> None:
    """Their labels begin with the step's, they replay with it, and a crash between them has one effect each."""
    session: Any = None
    order: list[str] = []
    switch = KillSwitch()

    def die() -> None:
        if len(order) == 1:
            switch.thrown = True
            raise Killed

    if stage.is_async:

        @tool(name="trip", contract=KEYED)
        async def trip(days: int) -> Any:
            for part in ("a", "b"):
                order.append((await session.target.call(provision, {"part": part})).step)
                die()
            return [(await session.target.branch("x").call(provision, {"part": "c"})).step, days]

    else:

        @tool(name="trip", contract=KEYED)
        def trip(days: int) -> Any:
            for part in ("a", "b"):
                order.append(session.call(provision, {"part": part}).step)
                die()
            return [session.branch("x").call(provision, {"part": "c"}).step, days]

    session = stage.runtime(provision, trip, ledger=BrokenLedger(stage.ledger, switch)).open("orders")
    with pytest.raises(Killed):
        session.call(trip, {"days": 2})
    session = stage.runtime(provision, trip).open("orders")
    result = session.call(trip, {"days": 2})
    assert result.value == ["step_001.x.step_001", 2]
    assert order == ["step_001.step_001", "step_001.step_001", "step_001.step_002"]
    assert stage.tools.effects["provision"] == 3
    assert session.call(provision, {"part": "d"}).step == "step_002"
