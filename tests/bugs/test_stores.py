"""The store on a bad day, and public values without it (A41 to A44)."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import AsyncRuntime, NotRecorded, Runtime, ToolContract
from agent_runtime.errors import (
    LedgerCorrupt,
    LedgerError,
    LedgerFull,
    LedgerReadOnly,
    LedgerUnavailable,
)
from agent_runtime.ledger import open_ledger
from tests.bugs.dying import BrokenLedger, advances_to
from tests.bugs.harness import Api, does, says, tables, tool

if TYPE_CHECKING:
    from tests.bugs.harness import Target

Put = "Callable[..., Target]"
PATIENCE = 30
"""Seconds after which a test gives up; none that passes comes near."""
HELD_FOR = 0.3
"""Seconds for which a stranger holds the file's write lock: longer than the busy timeout of one try."""


@pytest.mark.parametrize("name", ["sync", "async"])
def test_A41_writers_of_one_file_wait_for_each_other(name: str, tmp_path: Path, target: Put) -> None:
    """Several runtimes write to one SQLite file while a stranger holds its write lock for a while: no caller sees
    "database is locked", and no row is lost or doubled."""
    url = f"sqlite:///{tmp_path}/agent.db"
    there = target(does())
    workers, steps = 4, 6
    open_ledger(url).close()
    start = threading.Barrier(workers + 1)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        api = Api(name, url)
        try:
            with api.worker(tool()).open(f"plan {number}") as plan:
                start.wait(PATIENCE)
                for n in range(steps):
                    plan.call("pay", {"n": n})
        except BaseException as error:
            errors.append(error)
        finally:
            api.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    start.wait(PATIENCE)
    with closing(sqlite3.connect(tmp_path / "agent.db", timeout=PATIENCE, isolation_level=None)) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        threading.Event().wait(HELD_FOR)
        stranger.execute("ROLLBACK")
    for thread in threads:
        thread.join(PATIENCE)
    assert errors == []
    rows = tables(url, tmp_path)
    counts = [len(rows[f"agent_runtime_{one}"]) for one in ("operations", "steps", "attempts", "evidence")]
    assert counts == [workers * steps] * 4
    assert (there.sends, len(there.effects)) == (workers * steps, workers * steps)


@pytest.mark.parametrize("name", ["sync", "async"])
def test_A42_no_connection_is_held_while_requests_are_out(name: str, postgres_url: str, target: Put) -> None:
    """While ten calls of a batch are out no transaction is open, and every connection may be ended by the server: the
    outcomes are written over new ones, and nothing is sent twice."""
    import psycopg

    mine = "datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    open_then: list[int] = []
    with psycopg.connect(postgres_url, autocommit=True) as admin:

        def kills(there: Target, request: httpx.Request) -> httpx.Response:
            found = admin.execute(f"SELECT count(*) FROM pg_stat_activity WHERE {mine} AND state <> 'idle'").fetchone()
            open_then.append(found[0])
            admin.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {mine}")
            return there.perform(request, 200, {"id": "x"})

        there = target(kills)
        api = Api(name, postgres_url)
        try:
            with api.worker(tool()).open() as plan:
                outcomes = plan.call_many([("pay", {"n": n}) for n in range(10)])
                assert set(plan.states().values()) == {"succeeded"}
        finally:
            api.close()
    assert {one.status for one in outcomes} == {"succeeded"}
    # Async calls run beside each other, so that one may be writing its outcome while the next is out.
    assert name == "async" or open_then == [0] * 10
    assert (there.sends, len(there.effects)) == (10, 10)


def attributes(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}


def test_A43_what_a_caller_holds_needs_no_database(api_on_both: Api, target: Put) -> None:
    """Results, outcomes, steps, sessions and operations are plain values: readable and picklable once the runtime, its
    connections and its event loop's work are gone, also after a claim that met a taken row."""
    target(does(), says(400), says(500))
    worker = api_on_both.worker(tool())
    plan = worker.open()
    done = plan.call("pay", {"n": 1})
    refused = plan.try_call("pay", {"n": 2})
    unknown = plan.try_call("pay", {"n": 3})
    plan.close()
    with worker.resume() as again:
        diverged = again.try_call("pay", {"n": 9})
        replayed = again.call_many([("pay", {"n": 2})])
    sessions, waiting = worker.do("sessions"), worker.do("attention")
    explained, report, steps = worker.do("explain", "plan"), plan.report, plan.steps()
    worker.close()
    values = [done, refused, unknown, diverged, *replayed, *sessions, *waiting, *explained, *steps]
    for value in values:
        assert attributes(pickle.loads(pickle.dumps(value))) == attributes(value)
        assert type(value).__module__.startswith("agent_runtime")
    assert (diverged.status, unknown.status, len(waiting)) == ("not_started", "unknown", 1)
    assert report.unknown == ["step_003"]
    assert str(steps).count("\n") == 3


FAULTS = [LedgerFull, LedgerReadOnly, LedgerUnavailable, LedgerCorrupt]


@pytest.mark.parametrize("where", ["reserve", "in_flight"])
def test_A44_a_store_that_fails_before_the_send(api_on_both: Api, target: Put, where: str) -> None:
    """A full, read-only, damaged or absent store at the write before the send: its own typed error, no request."""
    there = target(does())
    ledger = open_ledger(api_on_both.url)
    broken: list[type[LedgerError]] = []

    def fails(entries: Any) -> Exception | None:
        hit = (
            advances_to(entries, "in_flight")
            if where == "in_flight"
            else any(type(entry).__name__ == "Reserve" for entry in entries)
        )
        return broken[-1]("the store is away") if hit and broken else None

    try:
        worker = api_on_both.worker(tool(), ledger=BrokenLedger(ledger, fails))
        with worker.open() as plan:
            for fault in FAULTS:
                broken.append(fault)
                with pytest.raises(fault):
                    plan.call("pay", {"n": 1})
        assert there.sends == 0
        broken.clear()
        with worker.resume() as plan:
            assert set(plan.states().values()) <= {"ready"}
            assert plan.call("pay", {"n": 1}).step == "step_001"
        worker.close()
    finally:
        ledger.close()
    assert there.sends == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_A44_a_store_that_fails_after_the_answer(api_on_both: Api, target: Put, fault: type[LedgerError]) -> None:
    """The caller gets the tool's answer and is told that it is not recorded; the next worker settles it, one effect."""
    there = target(does())
    ledger = open_ledger(api_on_both.url)

    def fails(entries: Any) -> Exception | None:
        return fault("the store is away") if advances_to(entries, "succeeded") else None

    try:
        worker = api_on_both.worker(tool(), ledger=BrokenLedger(ledger, fails))
        plan = worker.open()
        with pytest.raises(NotRecorded) as caught:
            plan.call("pay", {"n": 1})
        plan.close()
        worker.close()
    finally:
        ledger.close()
    assert (caught.value.answer.status, caught.value.answer.body) == (200, b'{"id":"x"}')
    assert isinstance(caught.value.__cause__, fault)
    with api_on_both.worker(tool()).resume() as plan:
        assert plan.states() == {"step_001": "in_flight"}
        done = plan.call("pay", {"n": 1})
    assert (done.value, done.key) == ({"id": "x"}, caught.value.key)
    assert (there.sends, len(there.effects), len(there.keys)) == (2, 1, 1)


def test_A44_an_unrecorded_answer_of_a_tool_without_keys_stays_unknown(api: Api, target: Put) -> None:
    """Where no key is honoured the next worker finds an unknown step, and sends nothing."""
    there = target(does(), honours=False)
    ledger = open_ledger(api.url)

    def fails(entries: Any) -> Exception | None:
        return LedgerFull("no room") if advances_to(entries, "succeeded") else None

    keyless = tool(contract=ToolContract())
    worker = api.worker(keyless, ledger=BrokenLedger(ledger, fails))
    plan = worker.open()
    with pytest.raises(NotRecorded):
        plan.call("pay", {"n": 1})
    plan.close()
    worker.close()
    ledger.close()
    with api.worker(keyless).resume() as plan:
        assert plan.try_call("pay", {"n": 1}).status == "unknown"
    assert there.sends == 1


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 8000])
def test_A44_a_damaged_file_is_never_taken_for_an_empty_one(api: Api, content: bytes) -> None:
    """A file that is no ledger is told as such, and is left as it was."""
    path = Path(api.url.removeprefix("sqlite:///"))
    path.write_bytes(content)
    with pytest.raises(LedgerError) as caught:
        api.worker(tool(), client=None)
    assert isinstance(caught.value, LedgerCorrupt)
    assert path.read_bytes() == content


def test_A44_one_runtime_in_three_event_loops(tmp_path: Path, target: Put) -> None:
    """An async runtime with a client of its own serves one `asyncio.run` after the other."""
    there = target(does())
    runtime = AsyncRuntime(f"sqlite:///{tmp_path}/agent.db", tools=[tool()])

    async def run(n: int) -> Any:
        async with runtime.open(f"plan {n}") as session:
            return (await session.call("pay", {"n": n})).source

    assert [asyncio.run(run(n)) for n in (1, 2, 1)] == ["sent", "sent", "ledger"]
    asyncio.run(runtime.close())
    assert there.sends == 2


def test_A44_the_blocking_api_inside_a_running_loop(tmp_path: Path, target: Put) -> None:
    """Called from a coroutine, the blocking API blocks it, and works."""
    there = target(does())

    async def run() -> Any:
        with Runtime(f"sqlite:///{tmp_path}/agent.db", tools=[tool()]) as runtime, runtime.open("plan") as session:
            return session.call("pay", {"n": 1}).value

    assert asyncio.run(run()) == {"id": "x"}
    assert there.sends == 1
