"""The caller's own key, deadlines of the caller, and results with errors in them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from agent_runtime import KeyConflict, PartialResult, StepUnknown, Tool, UnsettledStep
from agent_runtime._model import Advance, Change, ResultState, State
from agent_runtime.errors import StepCancelled
from tests.session.stage import PLAIN, WAIT, notify, provision, ship

if TYPE_CHECKING:
    from tests.session.stage import Stage

ANA = {"to": "ana"}


def test_a_key_settled_elsewhere_gives_the_recorded_result(stage: Stage) -> None:
    """Another session with the same key, tool and args gets the recorded result; nothing is sent."""
    with stage.open("one") as session:
        first = session.call(notify, ANA, key="order-7")
    assert first.key == "order-7"
    with stage.open("two") as session:
        second = session.call(notify, ANA, key="order-7")
    assert (second.value, second.key, second.source) == (first.value, "order-7", "ledger")
    assert len(stage.tools.requests) == 1


def test_a_key_unsettled_elsewhere_names_its_session(stage: Stage) -> None:
    """While it is not known what became of it, a second session's call is not started and says where to look."""
    one = stage.open("one")
    stage.tools.script("notify", "lost")
    with pytest.raises(StepUnknown):
        one.call(notify, ANA, key="order-7")
    two = stage.open("two")
    with pytest.raises(UnsettledStep) as caught:
        two.call(notify, ANA, key="order-7")
    assert (caught.value.blocking, caught.value.blocking_session) == ("step_001", one.id)
    assert one.id in str(caught.value)
    assert two.try_call(notify, ANA, key="order-7").reason == "unsettled"
    assert len(stage.tools.requests) == 1


@pytest.mark.parametrize("call", [("notify", {"to": "bob"}), ("ship", ANA)], ids=["args", "tool"])
def test_a_key_used_for_another_call_conflicts(stage: Stage, call: tuple[str, dict[str, str]]) -> None:
    """A key stands for one tool and one set of args at a target; nothing is sent under it for others."""
    with stage.open("one") as session:
        session.call(notify, ANA, key="order-7")
    two = stage.open("two")
    with pytest.raises(KeyConflict) as caught:
        two.call(*call, key="order-7")
    assert caught.value.key == "order-7"
    assert two.try_call(*call, key="order-7").reason == "key_conflict"
    assert len(stage.tools.requests) == 1
    assert stage.loaded("two").operations == ()


def test_keys_of_other_tenants_and_targets_are_others(stage: Stage) -> None:
    """One key at two targets, or of two tenants, stands for two effects."""
    elsewhere = Tool("notify", url="https://other.example.com/tools/notify", contract=PLAIN)
    with stage.open("one") as session:
        session.call(notify, ANA, key="order-7")
    with stage.runtime(elsewhere).open("two") as session:
        assert session.call(elsewhere, ANA, key="order-7").source == "sent"
    with stage.runtime(tenant=uuid.uuid4().hex).open("one") as session:
        assert session.call(notify, ANA, key="order-7").source == "sent"
    assert stage.tools.effects["notify"] == 3


def test_a_call_with_an_own_key_replays_by_position(stage: Stage) -> None:
    """The session that made the operation resumes it like any step, and a call without the key finds it as well."""
    session = stage.open()
    session.call(notify, ANA, key="order-7")
    session.call(ship, {"n": 1})
    session.close()
    again = stage.open()
    assert again.call(notify, ANA).key == "order-7"
    assert again.call(ship, {"n": 1}).source == "ledger"


def test_no_attempt_begins_after_the_callers_deadline(stage: Stage) -> None:
    """A call that has expired is recorded as cancelled; nothing was sent, and it stays so."""
    session = stage.open()
    with pytest.raises(StepCancelled):
        session.call(provision, {"gb": 1}, expires_at=stage.clock.wall() - 1)
    assert session.try_call(ship, {"n": 1}).status == "succeeded"
    session.close()
    assert stage.open().try_call(provision, {"gb": 1}).status == "cancelled"
    assert "provision" not in stage.tools.names()


def test_the_callers_deadline_ends_the_tries(stage: Stage) -> None:
    """A tool that asks to wait past it gets no further attempt."""
    stage.tools.script("provision", 503, 429, 429)
    stage.tools.script("notify", 429, 429)
    session = stage.open()
    deadline = stage.clock.wall() + 0.2
    assert session.try_call(notify, ANA, expires_at=deadline).status == "cancelled"
    assert session.branch("b").try_call(provision, {"gb": 1}, expires_at=deadline).status == "cancelled"
    assert stage.tools.names() == ["notify"]


def test_a_result_with_errors_is_raised_unless_it_is_allowed(stage: Stage) -> None:
    """`PartialResult` holds what was done; ``allow_partial=True`` returns it, marked as partial."""
    session = stage.open()
    stage.tools.script("notify", "lost")
    with pytest.raises(StepUnknown) as caught:
        session.call(notify, ANA)
    row = stage.ledger.operation(caught.value.operation_id).result(WAIT)
    assert row is not None
    done = Change(state=State.SUCCEEDED, partial=True, result=b'{"done":2}', result_state=ResultState.OK)
    entry = Advance(
        write_id=uuid.uuid4().hex,
        session_id=session.id,
        fence=None,
        operation_id=row.id,
        expect_version=row.version,
        change=done,
    )
    assert stage.ledger.write([entry]).result(WAIT)[0].took == "took"
    with pytest.raises(PartialResult) as partial:
        session.call(notify, ANA)
    assert partial.value.outcome.value == {"done": 2}
    session.close()
    again = stage.open()
    assert again.try_call(notify, ANA).status == "unknown"
    result = again.call(notify, ANA, allow_partial=True)
    assert (result.value, result.partial) == ({"done": 2}, True)
