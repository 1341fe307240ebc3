"""Crashes, duplicate workers and late holders, in one process: a ledger that dies, two runtimes (A12 to A18)."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import StepUnknown, ToolContract, UnsettledStep
from agent_runtime.errors import LeaseLost, SessionBusy, SessionFinished
from agent_runtime.ledger import open_ledger
from tests.bugs.dying import DyingLedger, Killed
from tests.bugs.harness import Api, does, says, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_runtime.testing import VirtualClock
    from tests.bugs.harness import Plan, Target, Worker

Put = "Callable[..., Target]"
PATIENCE = 20
"""Seconds after which a test gives up; none that passes comes near."""


@pytest.fixture
def dying(api_on_both: Api) -> Iterator[Callable[..., Worker]]:
    """Open a runtime whose ledger dies with it at a chosen write."""
    ledgers: list[Any] = []

    def open_one(*tools: Any, state: str, after: bool) -> Worker:
        ledgers.append(open_ledger(api_on_both.url))
        return api_on_both.worker(*tools, ledger=DyingLedger(ledgers[-1], state, after=after))

    yield open_one
    for ledger in ledgers:
        ledger.close()


POINTS = [
    pytest.param("in_flight", False, "ready", 1, id="recorded-not-begun"),
    pytest.param("in_flight", True, "in_flight", 1, id="begun-not-sent"),
    pytest.param("succeeded", False, "in_flight", 2, id="answered-not-recorded"),
    pytest.param("succeeded", True, "succeeded", 1, id="recorded-not-told"),
]


@pytest.mark.parametrize(("state", "after", "found", "sends"), POINTS)
def test_A12_each_point_of_a_crash_has_one_effect(
    api_on_both: Api, target: Put, dying: Any, state: str, after: bool, found: str, sends: int
) -> None:
    """A worker that ends at any point leaves a row that says what is known; the next one settles it with one effect."""
    there = target(does())
    with pytest.raises(Killed):
        dying(tool(), state=state, after=after).open().call("pay", {"n": 1})
    with api_on_both.worker(tool()).resume() as plan:
        assert plan.states() == {"step_001": found}
        assert plan.call("pay", {"n": 1}).value == {"id": "x"}
    assert (there.sends, len(there.effects), len(there.keys)) == (sends, 1, 1)


def test_A12_a_tool_that_honours_no_key_is_not_sent_again(api_on_both: Api, target: Put, dying: Any) -> None:
    """After a crash with the answer out, such a step is an explicit unknown until a person decides."""
    there = target(does(), honours=False)
    keyless = tool(contract=ToolContract())
    with pytest.raises(Killed):
        dying(keyless, state="succeeded", after=False).open().call("pay", {"n": 1})
    worker = api_on_both.worker(keyless)
    with worker.resume() as plan:
        with pytest.raises(StepUnknown) as caught:
            plan.call("pay", {"n": 1})
        named = {"succeeded": True, "result": {"id": "seen"}, "by": "ana", "evidence": "account statement"}
        worker.do("decide", caught.value.operation_id, **named)
    with worker.resume() as plan:
        assert [one.status for one in plan.settle()] == []
    assert (there.sends, len(there.effects)) == (1, 1)


def test_A13_finished_siblings_do_not_run_again(api_on_both: Api, target: Put, clock: VirtualClock) -> None:
    """One of three calls of a batch has to wait; on the resume it alone is sent, and the others give their results.

    Approval itself comes later; what waits here is a tool that asks for a later time.
    """
    tools = [tool(name, url=f"https://tools.test/{name}") for name in "abc"]
    there = {name: target(does({"of": name}), at=f"https://tools.test/{name}") for name in "ac"}
    there["b"] = target(says(429, headers={"Retry-After": "3600"}), does({"of": "b"}), at="https://tools.test/b")
    calls = [(name, {"n": 1}) for name in "abc"]
    with api_on_both.worker(*tools, clock=clock).open() as plan:
        assert [one.status for one in plan.call_many(calls)] == ["succeeded", "pending", "succeeded"]
    clock.advance(4000)
    with api_on_both.worker(*tools, clock=clock).resume() as plan:
        assert [one.value for one in plan.call_many(calls)] == [{"of": name} for name in "abc"]
    assert {name: one.sends for name, one in there.items()} == {"a": 1, "b": 2, "c": 1}
    assert [len(one.effects) for one in there.values()] == [1, 1, 1]


FLAKY = """
CREATE SEQUENCE faults;
CREATE FUNCTION fail_twice() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
  IF NEW.state = 'succeeded' THEN
    n := nextval('faults');  -- not undone by the rollback
    IF n = 1 THEN RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001'; END IF;
    IF n = 2 THEN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END IF;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER fail_twice BEFORE UPDATE ON agent_runtime_operations FOR EACH ROW EXECUTE FUNCTION fail_twice();
"""


@pytest.mark.parametrize("name", ["sync", "async"])
def test_A14_passing_trouble_of_the_store_is_never_a_steps_outcome(name: str, postgres_url: str, target: Put) -> None:
    """A serialization failure, then a deadlock, at the write of the outcome: that transaction alone is tried again."""
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(FLAKY)
        there = target(does())
        api = Api(name, postgres_url)
        try:
            with api.worker(tool()).open() as plan:
                done = plan.call("pay", {"n": 1})
                assert plan.states() == {"step_001": "succeeded"}
        finally:
            api.close()
        tried = admin.execute("SELECT last_value FROM faults").fetchone()
    assert (done.source, there.sends, tried) == ("sent", 1, (3,))


def test_A14_a_commit_whose_answer_is_lost_is_found_to_have_taken(api_on_both: Api, target: Put) -> None:
    """Every COMMIT of the step loses its answer once: what took is read back, and the tool is asked once."""
    lost = [False]

    def lose() -> None:
        lost[0] = not lost[0]
        if lost[0]:
            raise ConnectionError("the answer to COMMIT is lost")

    there = target(does())
    ledger = open_ledger(api_on_both.url, after_commit=lose)
    try:
        worker = api_on_both.worker(tool(), ledger=ledger)
        with worker.open() as plan:
            assert plan.call("pay", {"n": 1}).value == {"id": "x"}
            assert plan.states() == {"step_001": "succeeded"}
        worker.close()
    finally:
        ledger.close()
    assert there.sends == 1


def test_A15_a_call_without_a_result_does_not_brick_the_session(api_on_both: Api, target: Put, dying: Any) -> None:
    """After a hard end the session opens: what is done reads, what was out is an explicit unknown, and once that is
    decided the plan goes on."""
    free, wire = tool("free", url="https://tools.test/free"), tool("wire", contract=ToolContract())
    target(does({"free": True}), at="https://tools.test/free")
    there = target(does(), honours=False)
    plan = dying(free, wire, state="unknown", after=False).open()
    plan.call("free", {"n": 1})
    there.script = [lambda *_: (_ for _ in ()).throw(httpx.ReadTimeout("lost"))]
    with pytest.raises(Killed):
        plan.call("wire", {"n": 1})
    there.script = [does()]
    worker = api_on_both.worker(free, wire)
    with worker.resume() as plan:
        assert plan.states() == {"step_001": "succeeded", "step_002": "in_flight"}
        assert plan.call("free", {"n": 1}).value == {"free": True}
        outcome = plan.try_call("wire", {"n": 1})
        assert (outcome.status, outcome.reason, outcome.done) == ("unknown", "interrupted", False)
        with pytest.raises(UnsettledStep):
            plan.call("free", {"n": 2})
        worker.do("decide", outcome.operation_id, succeeded=False, by="ana", evidence="nothing on the statement")
        assert plan.call("free", {"n": 2}).value == {"free": True}
    assert there.sends == 1


@pytest.mark.parametrize("name", ["sync", "async"])
def test_A16_a_live_run_is_not_adopted(name: str, backend: Any, target: Put) -> None:
    """While a call is out, whoever resumes the session is told that it is busy, and sends nothing."""
    asked, go = threading.Event(), threading.Event()

    def slow(there: Target, request: httpx.Request) -> httpx.Response:
        asked.set()
        assert go.wait(PATIENCE)
        return there.perform(request, 200, {"id": "x"})

    there = target(slow)
    first, second = Api(name, backend.url), Api("sync", backend.url)
    results: list[Any] = []

    def run() -> None:
        with first.worker(tool()).open() as plan:
            results.append(plan.call("pay", {"n": 1}).value)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert asked.wait(PATIENCE)
        with pytest.raises(SessionBusy, match="another worker"):
            second.worker(tool()).resume(wait=0)
    finally:
        go.set()
        thread.join(PATIENCE)
        second.close()
        first.close()
    assert results == [{"id": "x"}]
    assert there.sends == 1


@pytest.mark.parametrize("name", ["sync", "async"])
def test_A16_two_that_resume_at_once_send_each_step_once(name: str, backend: Any, target: Put) -> None:
    """Two workers race for a plan with four steps left: each step is sent once, at least one worker ends the plan, and
    whoever lost is told by a typed error and sends nothing after it."""
    there = target(does())
    maker = Api("sync", backend.url)
    maker.worker(tool()).open().close()
    maker.close()
    start = threading.Barrier(2)
    ends: list[Any] = []

    def run() -> None:
        api = Api(name, backend.url)
        worker = api.worker(tool())
        start.wait(PATIENCE)
        try:
            with worker.resume(wait=0) as plan:
                for n in range(4):
                    plan.call("pay", {"n": n})
            ends.append("ended")
        except (SessionBusy, LeaseLost, SessionFinished) as error:
            ends.append(type(error))
        finally:
            api.close()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(ends) == 2
    assert "ended" in ends
    assert (len(there.keys), len(there.effects), there.sends) == (4, 4, 4)


def take_over(other: Worker, clock: VirtualClock) -> Plan:
    """Resume once the holder's lease has run out; its ledger thread may still be awake for one renewal."""
    for _ in range(4):
        clock.advance(31, stalled=True)
        with contextlib.suppress(SessionBusy):
            return other.resume(wait=0)
    raise AssertionError("a holder that stalls renews its lease again and again")


def test_A18_a_holder_that_comes_late_changes_nothing(api_on_both: Api, target: Put, clock: VirtualClock) -> None:
    """A stalls past its lease with its request out, B takes over and ends the step; A wakes with its answer: it is
    told that it lost the lease, its answer is filed, and neither B's row nor B's lease is touched."""
    successor = Api("sync", api_on_both.url)
    other = successor.worker(tool(), clock=clock, lease=30.0)
    taken: list[Any] = []

    def stalls(there: Target, request: httpx.Request) -> httpx.Response:
        answer = there.perform(request, 200, {"id": "x"})
        taken.append(take_over(other, clock))
        taken.append(taken[0].call("pay", {"n": 1}))
        return answer

    there = target(stalls, does())
    late = api_on_both.worker(tool(), clock=clock, lease=30.0)
    held = late.open()
    try:
        with pytest.raises(LeaseLost):
            held.call("pay", {"n": 1})
        with pytest.raises(LeaseLost):
            held.call("pay", {"n": 2})
        held.close()
        successors, done = taken
        row = other.operation(successors.steps()[0].operation_id)
        assert (done.server_replayed, row.state, row.contradicted) == (True, "succeeded", False)
        assert [one.kind for one in other.evidence(row.id)].count("late") == 1
        assert successors.call("pay", {"n": 2}).source == "sent"
    finally:
        successor.close()
    assert (there.sends, len(there.effects)) == (3, 2)
