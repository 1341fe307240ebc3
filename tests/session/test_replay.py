"""What a resume delivers: what the first run delivered, without a request."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pydantic import BaseModel

from agent_runtime import LedgerError, PlanDiverged, StepFailed
from agent_runtime.errors import ArgumentsRefused, SessionFinished
from tests.session.stage import BrokenLedger, Stage, http_tool, inspect_stock, notify, provision

if TYPE_CHECKING:
    from collections.abc import Callable


class Receipt(BaseModel):
    number: int
    day: dt.date
    note: str | None = None


class Order(BaseModel):
    gb: int


class LaterOrder(Order):
    tier: str = "standard"


def _answer(value: Any) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(200, content=value if isinstance(value, bytes) else json.dumps(value).encode())


def test_a_recorded_step_returns_at_once_without_a_request(stage: Stage) -> None:
    """A second run of the same code gets the same results from the ledger, and says so."""

    def plan() -> list[Any]:
        session = stage.open()
        results = [session.call(provision, {"gb": 1}), session.call(notify, {"to": "ana"})]
        session.close()
        return results

    first, again = plan(), plan()
    assert [result.source for result in first] == ["sent", "sent"]
    assert [result.source for result in again] == ["ledger", "ledger"]
    assert [(one.value, one.key, one.step) for one in first] == [(one.value, one.key, one.step) for one in again]
    assert len(stage.tools.requests) == 2


@pytest.mark.parametrize(
    ("result", "body"),
    [
        (None, {"n": 2**70, "f": 0.1, "none": None, "list": [True, "é"]}),
        (None, b""),
        (None, None),
        (Receipt, {"number": 7, "day": "2027-03-01"}),
        (list[dt.datetime], ["2027-03-01T10:00:00Z"]),
        (bytes, b"\x00\xff"),
        (str, b"plain text"),
    ],
    ids=["big-int", "empty", "null", "model", "dates", "bytes", "text"],
)
def test_live_and_replayed_values_are_equal_and_of_one_type(stage: Stage, result: Any, body: Any) -> None:
    """Both are read from the bytes that were recorded."""
    tool = http_tool("typed", result=result)
    stage.tools.script("typed", _answer(body))
    runtime = stage.runtime(tool)

    def value() -> Any:
        session = runtime.open("orders")
        got = session.call(tool, {"n": 1}).value
        session.close()
        return got

    live, replayed = value(), value()
    assert live == replayed
    assert type(live) is type(replayed)
    assert len(stage.tools.requests) == 1


def test_a_new_default_in_the_next_release_does_not_diverge(stage: Stage) -> None:
    """The fingerprint is over what the caller gave, so an open session replays under a model with one default more."""
    before, after = http_tool("grow", args=Order), http_tool("grow", args=LaterOrder)
    session = stage.runtime(before).open("orders")
    key = session.call(before, {"gb": 1}).key
    session.close()
    again = stage.runtime(after).open("orders").call(after, {"gb": 1})
    assert (again.source, again.key) == ("ledger", key)
    assert len(stage.tools.requests) == 1


def test_a_caller_who_writes_the_default_out_matches_by_the_body(stage: Stage) -> None:
    """Equal bytes are the same call, though one caller left the default out and the other gave it."""
    tool = http_tool("grow", args=LaterOrder)
    runtime = stage.runtime(tool)
    session = runtime.open("orders")
    session.call(tool, {"gb": 1})
    session.close()
    assert runtime.open("orders").call(tool, {"gb": 1, "tier": "standard"}).source == "ledger"


@pytest.mark.parametrize("call", [("provision", {"gb": 2}), ("debit", {"gb": 1})], ids=["args", "tool"])
def test_A08a_another_call_at_a_recorded_position_diverges(stage: Stage, call: tuple[str, Any]) -> None:
    """Other args or another tool raise `PlanDiverged`: nothing is sent, and the recorded result is not returned."""
    session = stage.open()
    session.call("provision", {"gb": 1})
    session.close()
    again = stage.open()
    with pytest.raises(PlanDiverged) as caught:
        again.call(*call)
    assert caught.value.step == "step_001"
    assert caught.value.outcome.status == "not_started"
    assert len(stage.tools.requests) == 1


def test_A10_an_equal_call_at_another_position_is_a_wish_of_its_own(stage: Stage) -> None:
    """Two equal calls that both succeed are two effects, live and on a resume."""
    for _ in range(2):
        session = stage.open()
        for _ in range(2):
            session.call(notify, {"to": "1", "text": "hi"})
        session.close()
    assert stage.tools.effects["notify"] == 2


def test_a_failure_is_replayed_as_a_failure(stage: Stage) -> None:
    """A refusal that was recorded is raised again without a request, with the same words."""
    stage.tools.script("provision", 422)
    messages = []
    for _ in range(2):
        session = stage.open()
        with pytest.raises(StepFailed) as caught:
            session.call(provision, {"gb": 1})
        messages.append(str(caught.value))
        session.close()
    assert messages[0] == messages[1]
    assert len(stage.tools.requests) == 1


def test_a_value_is_made_once_and_replayed(stage: Stage) -> None:
    """`record` keeps what its function returned, counted by name; a resume gets the same values without calling it."""
    made = iter(range(100))

    def plan() -> list[Any]:
        session = stage.open()
        got = [session.record("dice", lambda: next(made)) for _ in range(3)]
        got += [session.branch("b").record("dice", lambda: next(made)), session.record("other", lambda: next(made))]
        session.close()
        return got

    assert plan() == plan() == [0, 1, 2, 3, 4]


def test_a_value_is_delivered_as_its_json_form_reads(stage: Stage) -> None:
    """Live and replayed values are equal, so a date is its text from the beginning."""
    for _ in range(2):
        session = stage.open()
        assert session.record("day", lambda: {"day": dt.date(2027, 3, 1), "pair": (1, 2)}) == {
            "day": "2027-03-01",
            "pair": [1, 2],
        }
        session.close()


def test_a_value_without_a_json_form_is_refused(stage: Stage) -> None:
    """What could not be replayed is not kept."""
    with stage.open() as session, pytest.raises(ArgumentsRefused):
        session.record("thing", object)
    assert stage.loaded().values == ()


def test_an_async_session_records_what_is_awaited(async_stage: Stage) -> None:
    """The function may be a coroutine function."""

    async def decide() -> str:
        return "left"

    for _ in range(2):
        session = async_stage.open()
        assert session.record("way", decide) == "left"
        session.close()


def test_a_finished_session_replays_and_takes_no_new_call(stage: Stage) -> None:
    """Its recorded steps and values are delivered; a call behind them raises `SessionFinished`, nothing is sent."""
    with stage.open() as session:
        session.call(provision, {"gb": 1})
        session.record("n", lambda: 1)
    again = stage.open()
    assert again.call(provision, {"gb": 1}).source == "ledger"
    assert again.record("n", lambda: 2) == 1
    with pytest.raises(SessionFinished):
        again.call(provision, {"gb": 1})
    with pytest.raises(SessionFinished):
        again.call_many([(provision, {"gb": 1})])
    with pytest.raises(SessionFinished):
        again.record("n", lambda: 2)
    with pytest.raises(SessionFinished):
        again.reissue("step_001")
    assert len(stage.tools.requests) == 1
    again.finish()  # it is finished already: nothing is left to do
    again.close()


def test_a_finished_session_tells_a_changed_plan_as_such(stage: Stage) -> None:
    """Other args at a recorded position are `PlanDiverged` there too."""
    with stage.open() as session:
        session.call(provision, {"gb": 1})
    with pytest.raises(PlanDiverged):
        stage.open().call(provision, {"gb": 2})


def test_a_position_that_could_not_be_recorded_is_taken_by_the_next_try(stage: Stage) -> None:
    """After a ledger error the code calls again; a resume finds the call where the code asks first: one effect."""
    refuse = [LedgerError("no room")]
    broken = BrokenLedger(stage.ledger, lambda _: refuse.pop() if refuse else None)
    session = stage.runtime(ledger=broken).open("orders")
    with pytest.raises(LedgerError):
        session.call(provision, {"gb": 1})
    assert session.call(provision, {"gb": 1}).step == "step_001"
    session.close()
    assert stage.open().call(provision, {"gb": 1}).source == "ledger"
    assert stage.tools.effects["provision"] == 1


def test_a_read_is_replayed_like_any_step(stage: Stage) -> None:
    """What a tool read is part of what the code went by, so a resume gets the recorded answer."""
    for _ in range(2):
        session = stage.open()
        assert session.call(inspect_stock, {"item": "a"}).value["effect"] == 1
        session.close()


def test_the_report_says_what_was_not_reached(stage: Stage) -> None:
    """Recorded steps that this run's code never came to are listed by label."""
    session = stage.open()
    session.call(provision, {"gb": 1})
    session.call(provision, {"gb": 2})
    session.close()
    again = stage.open()
    again.call(provision, {"gb": 1})
    assert again.report.replayed == ["step_001"]
    assert again.report.not_reached == ["step_002"]
