"""What a newcomer reads when something goes wrong: each message is true, and names a way that is open."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import httpx
import pytest

from agent_runtime import AsyncRuntime
from agent_runtime.errors import (
    ConfigError,
    SessionClosed,
    SessionExists,
    SessionFinished,
    SessionNotFound,
    StepUnknown,
    UnknownTool,
)
from tests.session.stage import Stage, debit, notify, provision

if TYPE_CHECKING:
    from agent_runtime import Outcome


def refused(outcome: Outcome, tool: str) -> bool:
    """Whether an outcome is that of a call that was refused before it took a position."""
    facts = (outcome.status, outcome.reason, outcome.step, outcome.source, outcome.tool)
    return facts == ("not_started", "refused_input", "", None, tool)


# -- what a model can get wrong --------------------------------------------------------------------


def test_a_tool_name_that_a_model_made_up_comes_back_in_words(stage: Stage) -> None:
    """try_call says which tools there are, takes no position and sends nothing; call raises."""
    with stage.open() as session:
        outcome = session.try_call("pay_everyone", {"cents": 1})
        assert refused(outcome, "pay_everyone")
        assert "provision" in outcome.for_model()["message"]
        with pytest.raises(UnknownTool):
            session.call("pay_everyone", {"cents": 1})
        assert session.call(provision, {"gb": 1}).step == "step_001"
    assert stage.tools.names() == ["provision"]


def test_one_call_of_many_that_is_refused_leaves_the_others_alone(stage: Stage) -> None:
    """Bad args and an unknown name are outcomes in their places; the others take the positions in order."""
    with stage.open() as session:
        calls = [(provision, {"gb": 1}), ("no_such", {}), (debit, {"cents": float("nan")}), (debit, {"cents": 5})]
        first, unknown, bad, last = session.call_many(calls)
    assert (first.step, last.step) == ("step_001", "step_002")
    assert refused(unknown, "no_such")
    assert refused(bad, "debit")
    assert stage.tools.effects == {"provision": 1, "debit": 1}
    assert len(stage.step_kinds()) == 2


def test_many_calls_that_are_all_refused_write_nothing(stage: Stage) -> None:
    """There is an outcome for each, and no row."""
    with stage.open() as session:
        assert [one.status for one in session.call_many([("a", {}), ("b", {})])] == ["not_started"] * 2
    assert stage.step_kinds() == []


def test_what_only_the_caller_can_get_wrong_still_raises(stage: Stage) -> None:
    """An address or a key that cannot work is a fault of the code around the model."""
    with stage.open() as session, pytest.raises(ConfigError):
        session.try_call(provision, {"gb": 1}, at="x" * 600)


# -- sessions ----------------------------------------------------------------------------------------


def test_a_closed_runtime_is_not_called_a_take_over(stage: Stage) -> None:
    """Calls after ``runtime.close()`` get `SessionClosed`, which says what was closed."""
    runtime = stage.runtime()
    session = runtime.open("orders")
    runtime.close()
    with pytest.raises(SessionClosed, match="its runtime was closed"):
        session.call(provision, {"gb": 1})
    assert stage.tools.names() == []


def test_a_block_of_an_owned_ledger_ends_quietly_after_its_runtime_was_closed(stage: Stage) -> None:
    """What the lease's loss would be blamed on is known: the runtime closed the ledger itself."""
    runtime = stage.runtime(ledger="sqlite:///:memory:")
    session = runtime.open("orders")
    runtime.close()
    with pytest.raises(SessionClosed, match="its runtime was closed"):
        session.call(provision, {"gb": 1})


def test_a_session_that_is_not_to_be_finished_takes_the_next_message(stage: Stage) -> None:
    """With ``finish=False`` the end of a block releases the session and leaves it open."""
    for message in ("msg1.0", "msg2.0"):
        with stage.open("chat", finish=False) as session:
            session.call(provision, {"gb": 1}, at=message)
    assert stage.loaded("chat").session.state == "open"
    assert stage.tools.effects == {"provision": 2}


def test_a_finished_session_names_the_way_of_a_chat(stage: Stage) -> None:
    """A call of the next message in a finished session is told about ``finish=False``."""
    with stage.open("chat") as session:
        session.call(provision, {"gb": 1}, at="msg1.0")
    with stage.open("chat") as session, pytest.raises(SessionFinished, match="finish=False"):
        session.call(provision, {"gb": 1}, at="msg2.0")


def test_messages_advise_calls_that_work_as_they_are_written(stage: Stage) -> None:
    """Sessions are opened and resumed by the runtime, which the messages name."""
    runtime = stage.own
    with pytest.raises(SessionNotFound, match=r"runtime\.open\(alias\)"):
        runtime.resume("nowhere")
    session = runtime.start("orders")
    session.close()
    with pytest.raises(SessionExists, match=r"runtime\.open\('orders'\)"):
        runtime.start("orders")
    with pytest.raises(SessionClosed, match=rf"runtime\.resume\('{session.id}'\)"):
        session.call(provision, {"gb": 1})


def test_a_session_that_was_not_awaited_says_so(async_stage: Stage) -> None:
    """What ``open`` of an `AsyncRuntime` returns names ``await`` where a session's method is asked of it."""

    async def forget() -> None:
        async with AsyncRuntime(async_stage.ledger, tenant=async_stage.tenant) as runtime:
            opening = runtime.open("orders")
            with pytest.raises(AttributeError, match=r"no 'call': session = await runtime\.open"):
                opening.call(provision)
            await (await opening).close()

    asyncio.run(forget())


# -- unknown, and settled since ------------------------------------------------------------------------


def test_a_replay_of_an_unknown_step_tells_what_became_of_it(stage: Stage) -> None:
    """The code gets the outcome that it went on with; words and error add how the step ended, and ask for nothing."""
    stage.tools.script("notify", "lost")
    session = stage.open()
    first = session.try_call(notify, {"to": "ana"})
    session.call(provision, {"gb": 1}, after_unknown="continue")
    session.close()
    assert first.since is None
    stage.own.decide(first.operation_id, succeeded=True, by="dana", evidence="seen in the outbox")
    session = stage.open()
    again = session.try_call(notify, {"to": "ana"})
    session.close()
    assert (again.status, again.since, again.message) == ("unknown", "succeeded", first.message)
    said = again.for_model()["message"]
    assert "since then it has ended: it is succeeded" in said
    assert "has to be settled first" not in said
    session = stage.open()
    with pytest.raises(StepUnknown, match="There is nothing to decide") as caught:
        session.call(notify, {"to": "ana"})
    assert "runtime.decide(" not in str(caught.value)
    session.close()


def test_the_report_names_an_unknown_operation_once(stage: Stage) -> None:
    """A second position that joins the operation adds nothing, and its end takes it off the list."""
    stage.tools.script("notify", "lost")
    session = stage.open()
    first = session.try_call(notify, {"to": "ana"})
    session.try_call(notify, {"to": "ana"})
    assert session.report.unknown == ["step_001"]
    stage.own.decide(first.operation_id, succeeded=True, by="dana", evidence="seen in the outbox")
    session.try_call(notify, {"to": "ana"})
    assert session.report.unknown == []
    session.close()


def test_the_error_of_a_refused_connection_names_the_host(stage: Stage) -> None:
    """Nothing is put into the tool's mouth that our side of the connection saw."""
    stage.tools.script("provision", *["down"] * 20)
    session = stage.open()
    outcome = session.try_call(provision, {"gb": 1})
    session.close()
    assert outcome.error["seen_by"] == "transport"
    assert "No connection could be made to https://tools.example.com" in outcome.for_model()["transport_error"]


def test_a_resend_is_logged_as_a_warning(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """One line of the logger ``agent_runtime`` names session and step."""
    stage.tools.script("provision", httpx.Response(503))
    with caplog.at_level(logging.WARNING, logger="agent_runtime"), stage.open() as session:
        session.call(provision, {"gb": 1})
    assert [record.getMessage() for record in caplog.records] == [
        f"session {session.id}: step step_001 was sent again under the same key"
    ]
