"""Ctrl-C at every line of the session layer: a call that is cut short and made again has one effect."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import pytest

from agent_runtime import PlanDiverged
from tests.session.stage import Stage, debit, inspect_stock, provision

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

LAYER = ("/_session/session.py", "/_session/async_session.py", "/_session/shared.py", "/_core/book.py")


class CtrlC:
    """Raises `KeyboardInterrupt` once, the first time that the n-th distinct line of the session layer is executed."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen: set[tuple[CodeType, int]] = set()
        self.where = ""

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        if self.at and not self.where:
            sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._line if frame.f_code.co_filename.endswith(LAYER) else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        line = (frame.f_code, frame.f_lineno)
        if event == "line" and not self.where and line not in self.seen:
            self.seen.add(line)
            if len(self.seen) == self.at:
                self.where = f"{frame.f_code.co_name}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._line


def insists(work: Callable[[], Any]) -> Any:
    """Do some work, and do it again when it was interrupted."""
    with contextlib.suppress(KeyboardInterrupt):
        return work()
    return work()


def effects(stage: Stage) -> dict[bytes, int]:
    """Return how many keys each body was sent under: what a tool that honours keys does for it."""
    return Counter(body for body, _ in {(seen.body, seen.key) for seen in stage.tools.requests})


def plan(session: Any, n: int, ctrl_c: CtrlC) -> None:
    """Make two calls, one after the other."""
    with ctrl_c:
        for x in (1, 2):
            insists(lambda x=x: session.call(provision, {"n": n, "x": x}))


def many(session: Any, n: int, ctrl_c: CtrlC) -> None:
    """Make two calls at once."""
    with ctrl_c:
        insists(lambda: session.call_many([(provision, {"n": n, "x": x}) for x in (1, 2)]))


def awaited(session: Any, n: int, ctrl_c: CtrlC) -> Any:
    """Make two calls by the async face: they are placed when they are made, and what is made is awaited."""

    async def go() -> None:
        for x in (1, 2):
            with ctrl_c:
                made = insists(lambda x=x: session.target.call(provision, {"n": n, "x": x}))
            await made
            made = None  # its end is no part of what is cut short

    return go()


@pytest.mark.parametrize("recorded", [False, True], ids=["fresh", "recorded"])
@pytest.mark.parametrize("work", [plan, many, awaited])
def test_ctrl_c_at_any_line_has_no_second_effect(work: Any, recorded: bool, databases: Any, clock_of_run: Any) -> None:
    """Caught and made again, each call has one key, in this run and in the next, and the next finds it in order."""
    stage = Stage("async" if work is awaited else "sync", databases("sqlite")[1], clock_of_run, "")
    try:
        for n in itertools.count(1):
            name, ctrl_c = f"plan{n}", CtrlC(n)
            for ctrl in (CtrlC(0), ctrl_c) if recorded else (ctrl_c,):
                session = stage.open(name, finish=False)
                done = work(session, n, ctrl)
                if done is not None:
                    stage.run(done)
                session.close()
            with stage.open(name) as again:
                steps = [again.call(provision, {"n": n, "x": x}).step for x in (1, 2)]
            found = effects(stage)
            assert sorted(found.values()) == [1, 1], (ctrl_c.where, found)
            assert steps == sorted(steps), ctrl_c.where
            stage.tools.requests.clear()
            if not ctrl_c.where:
                break
        assert n > 30
    finally:
        stage.close()


def test_ctrl_c_while_a_value_is_recorded_keeps_its_count(stage: Stage) -> None:
    """A value that was interrupted, or that failed, is made again at the same count, and replayed from then on."""

    def interrupted() -> int:
        raise KeyboardInterrupt

    with stage.open(finish=False) as session:
        with pytest.raises(KeyboardInterrupt):
            session.record("clock", interrupted)
        assert session.record("clock", lambda: 1) == 1
    assert stage.open().record("clock", lambda: 2) == 1


# -- after a divergence -----------------------------------------------------------------------------------------------


def test_a_run_that_left_the_plan_writes_nothing_new_on_the_branch(stage: Stage) -> None:
    """What succeeded is not done a second time one position further on; the message says what to do."""
    with stage.open(finish=False) as session:
        session.call(provision, {"gb": 1})
    session = stage.open(finish=False)
    assert session.try_call(debit, {"n": 1}).reason == "diverged"
    strayed = session.try_call(provision, {"gb": 1})
    assert (strayed.status, strayed.reason) == ("not_started", "diverged")
    assert "Open the session anew with the recorded code, or use another branch" in strayed.message
    with pytest.raises(PlanDiverged, match="left what is recorded at step_001"):
        session.call(debit, {"n": 2})
    assert [one.reason for one in session.call_many([(debit, {"n": 3})])] == ["diverged"]
    session.close()
    assert stage.tools.names() == ["provision"]
    assert stage.step_kinds() == [("step_001", "call")]
    assert stage.open().call(provision, {"gb": 1}).source == "ledger"


def test_after_a_divergence_reads_recorded_steps_branches_and_addresses_go_on(stage: Stage) -> None:
    """Only fresh writes by counter are refused, and only on the branch that was left."""
    with stage.open(finish=False) as session:
        session.call(provision, {"gb": 1})
        session.call(provision, {"gb": 2})
    with stage.open(finish=False) as session:
        assert session.try_call(debit, {"n": 1}).reason == "diverged"
        assert session.call(provision, {"gb": 2}).source == "ledger"
        assert session.call(inspect_stock, {}).source == "sent"
        assert session.branch("b").call(debit, {"n": 1}).source == "sent"
        assert session.call(debit, {"n": 2}, at="m.0").source == "sent"
        assert session.try_call(debit, {"n": 3}).reason == "diverged"
    assert Counter(stage.tools.names()) == {"provision": 2, "debit": 2, "stock": 1}
