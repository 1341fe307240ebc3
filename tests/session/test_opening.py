"""Starting, opening, resuming, ending: who has a session, and what becomes of it."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import (
    AsyncSession,
    ConfigError,
    Idempotency,
    Session,
    StepFailed,
    StepUnknown,
    ToolContract,
    UnsettledStep,
    tool,
)
from agent_runtime.errors import (
    InputChanged,
    LeaseLost,
    SessionBusy,
    SessionClosed,
    SessionExists,
    SessionInherited,
    SessionNotFound,
)
from agent_runtime.ledger import current_owner, open_ledger
from tests.session.stage import WAIT, Blocking, BrokenLedger, Killed, KillSwitch, notify, provision, ship

if TYPE_CHECKING:
    from agent_runtime.ledger import Claim, SqlLedger
    from tests.session.stage import Stage


def _elsewhere(stage: Stage, name: str = "orders", ledger: SqlLedger | None = None) -> Claim:
    """Claim a session as a worker of another machine does."""
    owner = replace(current_owner(uuid.uuid4().hex), host="elsewhere", pid=7, boot_id="other")
    return (ledger or stage.ledger).claim(name=name, tenant=stage.tenant, owner=owner).result(WAIT)


# -- names ----------------------------------------------------------------------------------------------------------


def test_start_makes_a_session_with_a_random_id(stage: Stage) -> None:
    """Without an alias each start is another session; `resume` finds it by its id."""
    first, second = stage.own.start(), stage.own.start()
    assert first.id != second.id
    assert first.alias is None
    first.call(provision, {"gb": 1})
    first.close()
    assert stage.own.resume(first.id).call(provision, {"gb": 1}).source == "ledger"


def test_start_refuses_an_alias_that_stands(stage: Stage) -> None:
    """`SessionExists` names the session; nothing was written."""
    session = stage.own.start("orders")
    with pytest.raises(SessionExists) as caught:
        stage.own.start("orders")
    assert caught.value.session_id == session.id


def test_resume_needs_a_session(stage: Stage) -> None:
    """`SessionNotFound` for an id or alias that is none; nothing is made."""
    for name in ("none-such", str(uuid.uuid4())):
        with pytest.raises(SessionNotFound):
            stage.own.resume(name)
    assert stage.own.sessions() == []


def test_open_starts_and_later_resumes(stage: Stage) -> None:
    """One alias is one session, and opening sends nothing."""
    first = stage.open()
    first.close()
    assert stage.open().id == first.id
    assert stage.tools.requests == []


def test_open_with_another_input_is_refused(stage: Stage) -> None:
    """`InputChanged`: the recorded steps belong to the first input; the same input and none are taken."""
    session = stage.open(input={"order": 1})
    session.close()
    with pytest.raises(InputChanged):
        stage.open(input={"order": 2})
    for same in ({"input": {"order": 1}}, {}):
        again = stage.open(**same)
        assert again.id == session.id
        again.close()


def test_the_classes_own_words_do_the_same(stage: Stage) -> None:
    """`Session.start`, `Session.open` and `Session.resume` are those of the runtime."""
    runtime = stage.own.target if stage.is_async else stage.own
    cls: Any = Blocking(AsyncSession, stage._runner) if stage._runner is not None else Session
    first = cls.start("orders", runtime=runtime, input=1)
    first.close()
    second = cls.open("orders", runtime=runtime, input=1, wait=0)
    second.close()
    assert first.id == second.id == cls.resume("orders", runtime=runtime, wait=0).id


def test_an_opening_serves_await_and_async_with(async_stage: Stage) -> None:
    """`await runtime.open(...)` gives the session, `async with runtime.open(...)` ends it too."""

    async def work() -> None:
        session = await async_stage.own.target.open("orders")
        await session.call(provision, {"gb": 1})
        await session.close()
        async with async_stage.own.target.open("orders") as again:
            assert again.id == session.id

    async_stage.run(work())
    assert async_stage.loaded().session.state == "finished"


# -- who has it -----------------------------------------------------------------------------------------------------


def test_a_session_held_elsewhere_is_busy(stage: Stage) -> None:
    """With ``wait=0`` `SessionBusy` comes at once and says who holds it; nothing was written or sent."""
    stage.open().close()
    claim = _elsewhere(stage)
    with pytest.raises(SessionBusy, match="elsewhere") as caught:
        stage.open(wait=0)
    assert caught.value.session_id == claim.lease.session_id
    assert stage.clock.slept == []


def test_open_waits_for_a_busy_session(stage: Stage) -> None:
    """It looks again until the holder has released it, or ``wait`` seconds are over."""
    stage.open().close()
    claim = _elsewhere(stage)
    with pytest.raises(SessionBusy):
        stage.open(wait=5)
    assert 4.9 <= sum(stage.clock.slept) <= 5.1
    assert claim.lease is not None
    lease = claim.lease
    stage.clock.on_sleep = lambda: stage.ledger.release(lease).result(WAIT)
    assert stage.open(wait=5).call(provision, {"gb": 1}).source == "sent"


def test_an_idle_object_of_this_process_gives_way(stage: Stage) -> None:
    """A notebook cell run again opens the session anew at once; the older object is told that it lost it."""
    older = stage.open()
    older.call(provision, {"gb": 1})
    newer = stage.runtime().open("orders", wait=0)
    assert newer.call(provision, {"gb": 1}).source == "ledger"
    with pytest.raises(LeaseLost):
        older.call(provision, {"gb": 2})
    assert newer.call(provision, {"gb": 2}).step == "step_002"


def test_a_busy_object_of_this_process_does_not_give_way(sync_stage: Stage) -> None:
    """While a call of it is out, another object waits, or gets `SessionBusy`."""
    seen: list[BaseException] = []

    def open_again(request: httpx.Request) -> httpx.Response:
        try:
            sync_stage.open(wait=0)
        except SessionBusy as error:
            seen.append(error)
        return sync_stage.tools.apply("notify", None, request.content)

    sync_stage.tools.script("notify", open_again)
    assert sync_stage.open().call(notify, {"to": "ana"}).source == "sent"
    assert len(seen) == 1


def test_close_releases_and_the_object_is_no_longer_used(stage: Stage) -> None:
    """Another worker has it at once; a call on the closed object is refused; closing twice does nothing."""
    session = stage.open()
    session.close()
    session.close()
    assert _elsewhere(stage).status == "taken"
    with pytest.raises(SessionClosed, match="closed"):
        session.call(provision, {"gb": 1})


def test_a_worker_that_lost_its_session_begins_and_changes_nothing(stage: Stage) -> None:
    """The answer that comes after a take-over is filed as evidence, the row stays, and no new attempt begins."""
    rival = open_ledger(stage.url, clock=stage.clock)
    claims: list[Claim] = []

    def taken_over(request: httpx.Request) -> httpx.Response:
        while not claims or claims[-1].status != "taken":
            stage.clock.advance(40, stalled=True)
            claims.append(_elsewhere(stage, ledger=rival))
        return stage.tools.apply("provision", request.headers["Idempotency-Key"], request.content)

    try:
        session = stage.open()
        stage.tools.script("provision", taken_over)
        with pytest.raises(LeaseLost):
            session.call(provision, {"gb": 1})
        (operation,) = stage.loaded().operations
        assert operation.state == "in_flight"
        late = [seen for seen in stage.ledger.evidence(operation.id).result(WAIT) if seen.kind == "late"]
        assert [seen.status for seen in late] == [200]
        with pytest.raises(LeaseLost):
            session.call(provision, {"gb": 2})
        assert len(stage.tools.requests) == 1
        session.close()
        assert stage.loaded().session.owner is not None
    finally:
        rival.close()


def test_a_forked_child_cannot_use_the_session(sync_stage: Stage) -> None:
    """It raises `SessionInherited` before anything is written or sent; the parent goes on."""
    session = sync_stage.open()
    session.call(provision, {"gb": 1})
    child = os.fork()
    if child == 0:
        code = 1
        try:
            session.call(provision, {"gb": 2})
        except SessionInherited:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert session.call(provision, {"gb": 2}).step == "step_002"


# -- how it ends ----------------------------------------------------------------------------------------------------


def test_a_block_that_ends_normally_finishes_the_session(stage: Stage) -> None:
    """With nothing unsettled it is finished and its lease released."""
    with stage.open() as session:
        session.call(provision, {"gb": 1})
    assert stage.loaded().session.state == "finished"
    assert stage.loaded().session.owner is None


def test_a_block_that_ends_by_an_exception_leaves_the_session_open(stage: Stage) -> None:
    """The exception passes, the lease is released, a resume goes on."""

    def block() -> None:
        with stage.open() as session:
            session.call(provision, {"gb": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert stage.loaded().session.state == "open"
    assert stage.loaded().session.owner is None


def test_a_block_that_ends_with_something_unsettled_leaves_the_session_open(stage: Stage) -> None:
    """What is not known yet is not finished; the lease is released."""
    stage.tools.script("notify", "lost")
    with stage.open() as session:
        assert session.try_call(notify, {"to": "ana"}).status == "unknown"
    assert stage.loaded().session.state == "open"
    assert stage.loaded().session.owner is None


def test_finish_is_refused_while_a_step_is_unsettled(stage: Stage) -> None:
    """`UnsettledStep` names it; the session stays open and usable."""
    stage.tools.script("notify", "lost")
    session = stage.open()
    session.try_call(notify, {"to": "ana"})
    with pytest.raises(UnsettledStep, match="step_001"):
        session.finish()
    assert session.branch("b").call(ship, {"n": 1}).source == "sent"


# -- looking --------------------------------------------------------------------------------------------------------


def test_sessions_are_listed_by_state(stage: Stage) -> None:
    """``state="open"`` are those that a crash may have left."""
    with stage.open("done") as session:
        session.call(provision, {"gb": 1})
    stage.open("left").close()
    assert [one.alias for one in stage.own.sessions(state="open")] == ["left"]
    assert [one.alias for one in stage.own.sessions(state="finished")] == ["done"]
    assert {one.alias for one in stage.own.sessions()} == {"done", "left"}


def test_explain_says_what_a_resume_would_do_without_a_lease(stage: Stage) -> None:
    """It reads a session that is held elsewhere, sends nothing and changes nothing."""
    session = stage.open()
    session.call(provision, {"gb": 1})
    stage.tools.script("notify", "lost")
    session.try_call(notify, {"to": "ana"})
    session.try_call(ship, {"n": 1})
    before = stage.loaded()
    table = stage.runtime().explain("orders")
    told = [(row.step, row.state, row.what_next.partition(":")[0]) for row in table]
    assert told == [
        ("step_001", "succeeded", "deliver from the ledger"),
        ("step_002", "unknown", "stay unknown"),
        ("step_003", "refused", "not started"),
    ]
    assert [row.what_next for row in session.explain()] == [row.what_next for row in table]
    assert str(table).splitlines()[0].split() == ["step", "tool", "state", "reason", "attempts", "what_next"]
    assert replace(before, now=0) == replace(stage.loaded(), now=0)
    with pytest.raises(SessionNotFound):
        stage.own.explain("none-such")


def test_the_report_says_what_this_object_did(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Replayed, resent with a WARNING, settled, failed, still unknown, not reached: by label."""
    session = stage.open()
    session.call(provision, {"n": 1})
    stage.tools.script("provision", *["lost"] * 5)
    assert session.try_call(provision, {"n": 2}).status == "unknown"
    stage.tools.script("notify", "lost")
    session.branch("a").try_call(notify, {"to": "ana"})
    session.branch("b").call(ship, {"n": 1})
    session.close()
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="agent_runtime"):
        again = stage.open()
        again.call(provision, {"n": 1})
        again.call(provision, {"n": 2})
        again.branch("a").try_call(notify, {"to": "ana"})
        stage.tools.script("ship", 422)
        with pytest.raises(StepFailed):
            again.call(ship, {"n": 2})
    report = again.report
    assert (report.replayed, report.resent, report.settled) == (["step_001"], ["step_002"], ["step_002"])
    assert (report.unknown, report.failed, report.sent) == (["a.step_001"], ["step_003"], ["step_003"])
    assert report.not_reached == ["b.step_001"]
    warned = [record.getMessage() for record in caplog.records if "sent again" in record.getMessage()]
    assert len(warned) == 1
    assert "step_002" in warned[0]
    attempts = stage.ledger.attempts(stage.loaded().operations[1].id).result(WAIT)
    assert [attempt.purpose for attempt in attempts] == ["send", *["resend"] * 5]


def test_tenants_do_not_see_each_other(stage: Stage) -> None:
    """Neither by alias nor by id, in no list, and no decision reaches over."""
    session = stage.open()
    stage.tools.script("notify", "lost")
    with pytest.raises(StepUnknown) as caught:
        session.call(notify, {"to": "ana"})
    session.close()
    other = stage.runtime(tenant=uuid.uuid4().hex)
    for name in ("orders", session.id):
        with pytest.raises(SessionNotFound):
            other.resume(name)
        with pytest.raises(SessionNotFound):
            other.explain(name)
    assert other.sessions() == other.attention() == []
    with pytest.raises(ConfigError):
        other.decide(caught.value.operation_id, succeeded=True, by="eve", evidence="none")
    with other.open("orders") as own:
        assert own.id != session.id
    assert stage.states() == ["unknown"]


def test_a_worker_that_died_leaves_what_a_resume_needs(stage: Stage) -> None:
    """Killed while a request was out: the row stays in flight, and the next object settles it under the same key."""
    switch = KillSwitch()

    def die(request: httpx.Request) -> httpx.Response:
        stage.tools.apply("provision", request.headers["Idempotency-Key"], request.content)
        switch.thrown = True
        raise Killed

    stage.tools.script("provision", die)
    session = stage.runtime(ledger=BrokenLedger(stage.ledger, switch)).open("orders")
    with pytest.raises(Killed):
        session.call(provision, {"gb": 1})
    assert stage.states() == ["in_flight"]
    with stage.open() as again:
        result = again.call(provision, {"gb": 1})
        assert again.report.resent == ["step_001"]
    assert result.server_replayed
    assert stage.tools.effects["provision"] == 1


def test_a_busy_async_object_does_not_give_way(async_stage: Stage) -> None:
    """While a call of it is out, another object of the process gets `SessionBusy`; afterwards it is let in."""
    stage = async_stage
    came, go = asyncio.Event(), asyncio.Event()

    class Held(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            came.set()
            await go.wait()
            return stage.tools(request)

    async def work() -> None:
        runtime = stage.runtime(client=httpx.AsyncClient(transport=Held())).target
        session = await runtime.open("orders")
        task = asyncio.create_task(session.call(notify, {"to": "ana"}))
        await came.wait()
        with pytest.raises(SessionBusy):
            await runtime.open("orders", wait=0)
        go.set()
        await task
        again = await runtime.open("orders", wait=0)
        assert (await again.call(notify, {"to": "ana"})).source == "ledger"

    stage.run(work())


def test_values_of_a_function_stand_in_its_steps_branch(sync_stage: Stage) -> None:
    """`record` inside a function tool counts apart from the session's own, so that both replay by themselves."""
    session: Any = None

    @tool(contract=ToolContract(idempotency=Idempotency()))
    def choose(n: int) -> Any:
        return session.record("dice", lambda: n)

    runtime = sync_stage.runtime(choose)
    for _ in range(2):
        session = runtime.open("orders")
        seen = [
            session.record("dice", lambda: 1),
            session.call(choose, {"n": 2}).value,
            session.record("dice", lambda: 3),
        ]
        session.close()
        assert seen == [1, 2, 3]
    branches = [(value.branch, value.index) for value in sync_stage.loaded().values]
    assert sorted(branches) == [("", 1), ("", 2), ("step_001", 1)]
