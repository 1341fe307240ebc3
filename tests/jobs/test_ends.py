"""Ends of jobs that the code was not told of: `on_end` hears of each, and `jobs()` lists each until it is picked up."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime.testing import VirtualClock
from agent_runtime.webhooks import CallbackEvent
from tests.jobs.job_api import DONE, FAILED, PLAIN_RUNS, RESULT, JobApi, start, transcode

if TYPE_CHECKING:
    from collections.abc import Iterator

ARGS = {"source_url": "s3://in/7f21c.mov"}


def ends(value: dict[str, Any] = DONE, event_id: str = "e1") -> CallbackEvent:
    body = json.dumps(value).encode()
    return CallbackEvent(source="default", event_id=event_id, job_id=value["job_id"], key=None, body=body)


def left(runtime: Any, tool: Any, name: str = "film") -> Any:
    with runtime.open(name, finish=False) as session:
        return session.try_call(tool, ARGS, detach=True)


def heard_of(heard: list[Any]) -> list[tuple[str, str]]:
    return [(outcome.step, str(outcome.status)) for outcome in heard]


def test_on_end_hears_of_an_end_that_a_callback_wrote(everywhere: JobApi) -> None:
    """The next round tells it, once, with the value; nothing is asked for."""
    api, tool, heard = everywhere, transcode(webhook=True), []
    runtime = api.runtime(tool)
    left(runtime, tool)
    assert runtime.receive(ends()) == "applied"
    assert runtime.follow_jobs(on_end=heard.append) == 0
    assert (heard_of(heard), heard[0].value, api.gets) == ([("step_001", "succeeded")], RESULT, [])
    runtime.follow_jobs(on_end=heard.append)
    assert len(heard) == 1


def test_on_end_hears_of_ends_that_another_worker_saw(everywhere: JobApi) -> None:
    """Whoever looked had no `on_end`; the job that is gone is told too."""
    api, tool, heard = everywhere, transcode(), []
    api.starts.append(start(job_id="job_2", status_url="/v1/jobs/job_2"))
    api.pages["/v1/jobs/job_2"] = 410
    runtime = api.runtime(tool)
    left(runtime, tool, "a")
    with runtime.open("b", finish=False) as session:
        session.try_call(tool, ARGS | {"n": 2}, detach=True)
    api.stage.clock.advance(100)
    assert api.runtime(tool).follow_jobs() == 2
    runtime.follow_jobs(on_end=heard.append)
    assert sorted(str(outcome.status) for outcome in heard) == ["succeeded", "unknown"]


def test_an_end_that_comes_after_one_that_was_told_is_told_too(everywhere: JobApi) -> None:
    """A job that is gone is told, and then its callback says how it ended; also while the first is being told."""
    api, tool, heard = everywhere, transcode(webhook=True), []
    api.pages["/v1/jobs/job_7f21c"] = 410
    runtime = api.runtime(tool)
    left(runtime, tool)
    api.stage.clock.advance(100)

    def blocking(outcome: Any) -> None:
        heard.append(outcome)
        if len(heard) == 1:
            assert runtime.receive(ends()) == "applied"

    async def awaiting(outcome: Any) -> None:
        heard.append(outcome)
        if len(heard) == 1:
            assert await runtime.target.receive(ends()) == "applied"

    for _ in range(3):
        runtime.follow_jobs(on_end=awaiting if api.stage.is_async else blocking)
    assert heard_of(heard) == [("step_001", "unknown"), ("step_001", "succeeded")]


def test_an_on_end_that_raises_keeps_no_other_from_being_told(everywhere: JobApi) -> None:
    """What is at work comes to its end before the error comes out."""
    api, tool, heard = everywhere, transcode(), []
    runtime = api.runtime(tool)
    for name in "abc":
        left(runtime, tool, name)
    api.stage.clock.advance(100)

    def raises() -> None:
        if len(heard) == 1:
            raise RuntimeError("the queue is down")

    def blocking(outcome: Any) -> None:
        heard.append(outcome)
        raises()

    async def awaiting(outcome: Any) -> None:
        heard.append(outcome)
        raises()
        for _ in range(200):
            await asyncio.sleep(0)
        told.append(outcome)

    told: list[Any] = heard if not api.stage.is_async else []
    with pytest.raises(RuntimeError, match="queue"):
        runtime.follow_jobs(on_end=awaiting if api.stage.is_async else blocking)
    assert len(heard) == 3
    assert len(told) >= 2


def test_an_end_is_told_again_after_on_end_raised(everywhere: JobApi) -> None:
    """What it raises comes out of `follow_jobs`; the next one tells the same end."""
    api, tool, heard = everywhere, transcode(), []
    runtime = api.runtime(tool)
    left(runtime, tool)
    api.stage.clock.advance(100)

    def raises(outcome: Any) -> None:
        raise RuntimeError("the queue is down")

    with pytest.raises(RuntimeError, match="queue"):
        runtime.follow_jobs(on_end=raises)
    runtime.follow_jobs(on_end=heard.append)
    assert heard_of(heard) == [("step_001", "succeeded")]


def test_another_worker_does_not_tell_what_is_being_told(everywhere: JobApi) -> None:
    """It follows jobs while `on_end` of the first has not returned yet: one telling."""
    api, tool, heard = everywhere, transcode(webhook=True), []
    runtime, other = api.runtime(tool), api.runtime(tool)
    left(runtime, tool)
    runtime.receive(ends())

    def slow(outcome: Any) -> None:
        heard.append(outcome)
        in_a_thread(api, other, heard.append)

    runtime.follow_jobs(on_end=slow)
    other.follow_jobs(on_end=heard.append)
    assert len(heard) == 1


def in_a_thread(api: JobApi, runtime: Any, on_end: Any) -> None:
    """Follow jobs from inside `on_end`: of the async face on a loop of its own."""
    import asyncio
    import threading

    def run() -> None:
        if api.stage.is_async:
            asyncio.run(runtime.target.follow_jobs(on_end=on_end))
        else:
            runtime.follow_jobs(on_end=on_end)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


def test_an_end_that_the_code_was_told_is_not_told_again(everywhere: JobApi) -> None:
    """By the call that waited, by `check`, and by the same call again."""
    api, tool, heard = everywhere, transcode(webhook=True), []
    runtime = api.runtime(tool)
    runtime.open("waits").call(tool, ARGS)
    left(runtime, tool, "checks")
    left(runtime, tool, "calls")
    for job_id in ("job_7f21c",):
        runtime.receive(ends({**DONE, "job_id": job_id}))
    assert runtime.open("checks").check("step_001").value == RESULT
    assert runtime.open("calls").call(tool, ARGS).value == RESULT
    runtime.follow_jobs(on_end=heard.append)
    assert (heard, runtime.jobs()) == ([], [])


def test_an_end_is_not_told_before_the_holder_that_waits_for_it(everywhere: JobApi) -> None:
    """A call waits in a session that is held: its callback's end is the call's to tell."""
    api, tool, heard = everywhere, transcode(webhook=True), []
    runtime, other = api.runtime(tool), api.runtime(tool)
    api.script(PLAIN_RUNS)
    came: list[str] = []

    def while_it_waits() -> None:
        if not came:
            came.append("once")
            receive_in_a_thread(api, other, ends())
            in_a_thread(api, other, heard.append)

    api.stage.clock.on_sleep = while_it_waits
    assert runtime.open("film").call(tool, ARGS).value == RESULT
    assert (came, heard) == (["once"], [])


def receive_in_a_thread(api: JobApi, runtime: Any, event: CallbackEvent) -> None:
    import asyncio
    import threading

    def run() -> None:
        if api.stage.is_async:
            asyncio.run(runtime.target.receive(event))
        else:
            runtime.receive(event)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)


def test_ended_jobs_are_listed_until_they_are_picked_up(everywhere: JobApi) -> None:
    """Beside those that run, in words of their own, also after `on_end` has heard; then no more."""
    api, tool = everywhere, transcode(webhook=True)
    api.starts.append(start(job_id="job_2"))
    runtime = api.runtime(tool)
    left(runtime, tool, "ended")
    api.stage.clock.advance(1)
    with runtime.open("runs", finish=False) as session:
        session.try_call(tool, ARGS | {"n": 2}, detach=True)
    runtime.receive(ends(FAILED))
    runtime.follow_jobs(on_end=lambda outcome: None)
    jobs = runtime.jobs()
    assert [(job.session, job.ended) for job in jobs] == [("ended", True), ("runs", False)]
    said = jobs.for_model()
    assert "1 job(s) were STARTED earlier and are NOT finished" in said["message"]
    assert "1 job(s) started earlier have ENDED, well or not" in said["message"]
    assert "session.check(step)" in said["message"]
    assert [job["status"] for job in said["jobs"]] == ["ended_not_picked_up", "pending"]
    assert "not picked up yet" in str(jobs)
    assert runtime.open("ended").check("step_001").status == "failed"
    assert [job.session for job in runtime.jobs()] == ["runs"]


DIES = """
import os, signal, sys
import httpx
from agent_runtime import Runtime
from agent_runtime.testing import VirtualClock
from tests.jobs.job_api import DONE, START, transcode

def answer(request):
    return httpx.Response(202, json=START) if request.method == "POST" else httpx.Response(200, json=DONE)

clock, tool = VirtualClock(float(sys.argv[2])), transcode()
runtime = Runtime(sys.argv[1], tools=[tool], clock=clock, client=httpx.Client(transport=httpx.MockTransport(answer)))
with runtime.open("film", finish=False) as session:
    session.call(tool, {"a": 1}, detach=True)
clock.advance(100)
runtime.follow_jobs(on_end=lambda outcome: os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.fixture(params=["sqlite", "postgres"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A ledger of this test's own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/agent.db"
    return request.getfixturevalue("postgres_url")


def test_an_end_is_told_again_after_the_process_died_in_on_end(ledger_url: str) -> None:
    """SIGKILL inside `on_end`: for a while nobody tells it, since it may still be heard; then the next worker does."""
    from agent_runtime import Runtime

    began = 1_900_000_000.0
    child = [sys.executable, "-c", DIES, ledger_url, str(began)]
    died = subprocess.run(child, cwd=Path(__file__).parents[2], timeout=60, check=False, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    clock, heard = VirtualClock(began + 150), []
    client = httpx.Client(transport=httpx.MockTransport(lambda request: pytest.fail("nothing is asked")))
    with Runtime(ledger_url, tools=[transcode()], clock=clock, client=client) as runtime:
        runtime.follow_jobs(on_end=heard.append)
        assert heard == []
        clock.advance(60)
        runtime.follow_jobs(on_end=heard.append)
        assert heard_of(heard) == [("step_001", "succeeded")]
        runtime.follow_jobs(on_end=heard.append)
        assert len(heard) == 1
