"""Jobs that take hours: started, left, listed, looked at when due, picked up by another process."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from agent_runtime import JobProgress
from agent_runtime.errors import LeaseLost
from agent_runtime.testing import SimulatedCrash, crash_at
from agent_runtime.webhooks import CallbackEvent
from tests.jobs.job_api import DONE, FAILED, PLAIN_RUNS, RESULT, RUNS, JobApi, body, start, transcode

ARGS = {"source_url": "s3://in/7f21c.mov"}


def test_detach_starts_and_returns_at_once(api: JobApi) -> None:
    """Pending with the job's id, no poll, no time gone, and the branch goes on."""
    tool, other = transcode(), transcode("thumbnail")
    session = api.runtime(tool, other).open("film")
    began = api.stage.clock.wall()
    outcome = session.try_call(tool, ARGS, detach=True)
    assert (outcome.status, outcome.kind, outcome.job_id) == ("pending", "job", "job_7f21c")
    assert (api.gets, api.stage.clock.wall()) == ([], began)
    assert session.try_call(other, ARGS, detach=True).status == "pending"
    said = outcome.for_model()
    assert (said["done"], "result" in said) == (False, False)


def test_detach_again_is_no_second_start(everywhere: JobApi) -> None:
    """Another process that runs the same code finds the job where it was left."""
    api, tool = everywhere, transcode()
    api.runtime(tool).open("film").try_call(tool, ARGS, detach=True)
    again = api.runtime(tool).open("film").try_call(tool, ARGS, detach=True)
    assert (again.status, again.job_id, api.posts) == ("pending", "job_7f21c", 1)


def test_the_same_call_again_joins_a_detached_job(everywhere: JobApi) -> None:
    """A model that asks again while its job runs starts no second one, and is given the end once there is one."""
    api, tool = everywhere, transcode()
    api.script(RUNS, DONE)
    session = api.runtime(tool).open("film")
    first = session.try_call(tool, ARGS, detach=True)
    again = session.try_call(tool, ARGS, detach=True)
    assert (again.status, again.operation_id, api.posts) == ("pending", first.operation_id, 1)
    assert session.call(tool, ARGS).value == RESULT
    assert api.posts == 1
    assert session.try_call(tool, ARGS, detach=True).operation_id != first.operation_id
    assert api.posts == 2


def test_a_job_said_to_take_longer_than_the_bound_detaches_at_once(api: JobApi) -> None:
    """Nobody waits ten minutes for a job of forty."""
    tool = transcode()
    api.starts[0] = start(estimated_duration_seconds=2400)
    began = api.stage.clock.wall()
    outcome = api.runtime(tool).open("film").try_call(tool, ARGS)
    assert (outcome.status, api.gets, api.stage.clock.wall()) == ("pending", [], began)


def test_check_looks_once_and_not_before_the_tool_allows(api: JobApi) -> None:
    """A model that checks in a tight loop costs the tool one request for each time that it allowed."""
    tool = transcode()
    api.script(RUNS, DONE)
    session = api.runtime(tool).open("film")
    step = session.try_call(tool, ARGS, detach=True).step
    first = [session.check(step) for _ in range(5)]
    assert ([one.status for one in first], api.gets) == (["pending"] * 5, []), "the start asked for 30 s"
    assert 30 <= first[0].resume_at - api.stage.clock.wall() <= 34
    api.stage.clock.advance(30)
    outcomes = [session.check(step) for _ in range(5)]
    assert [(one.status, one.progress) for one in outcomes] == [("pending", 45)] * 5
    assert len(api.gets) == 1
    api.stage.clock.advance(50)
    assert session.check(step).value == RESULT
    assert session.check(step).value == RESULT
    assert len(api.gets) == 2


def test_a_detached_step_that_is_called_again_is_followed(api: JobApi) -> None:
    """The same call without ``detach`` waits for the job, by GETs."""
    tool = transcode()
    api.script(RUNS, DONE)
    api.runtime(tool).open("film").try_call(tool, ARGS, detach=True)
    assert api.runtime(tool).open("film").call(tool, ARGS).value == RESULT
    assert api.posts == 1


def test_A36_a_restart_polls_and_never_posts(everywhere: JobApi) -> None:
    """A process that died between two polls: the next one goes on by GETs; the bound counts from the stored start."""
    api, tool = everywhere, transcode()
    api.script(RUNS)
    began = api.stage.clock.wall()
    runtime = api.runtime(tool)
    with pytest.raises(Exception, match="dies"):
        runtime.open("film").try_call(tool, ARGS, on_progress=dies_at(3))
    assert api.posts == 1
    api.stage.clock.advance(40)  # its lease is over
    outcome = api.runtime(tool).open("film").try_call(tool, ARGS)
    assert (outcome.status, api.posts) == ("timed_out", 1)
    assert api.stage.clock.wall() - began <= 600
    assert outcome.started_at == pytest.approx(began, abs=1)


def dies_at(count: int):
    """Return a listener that raises at its n-th look."""
    heard: list[JobProgress] = []

    def hear(progress: JobProgress) -> None:
        heard.append(progress)
        if len(heard) == count:
            raise RuntimeError("dies")

    return hear


def test_L6_a_resume_past_the_bound_polls_once(everywhere: JobApi) -> None:
    """The bound is long over: one GET, no POST, and the end is told if there is one."""
    api, tool = everywhere, transcode()
    api.script(RUNS, DONE)
    assert api.runtime(tool).open("film").try_call(tool, ARGS, detach=True).status == "pending"
    api.stage.clock.advance(7200)
    first = api.runtime(tool).open("film").try_call(tool, ARGS)
    assert (first.status, len(api.gets), api.posts) == ("timed_out", 1, 1)
    api.stage.clock.advance(7200)
    assert api.runtime(tool).open("film").call(tool, ARGS).value == RESULT
    assert (len(api.gets), api.posts) == (2, 1)


@pytest.mark.parametrize("point", ["sent", "answered"])
def test_L7_a_crash_before_the_commit_resends_under_the_same_key(api: JobApi, point: str) -> None:
    """The handle was lost with the process: the same key fetches the stored 202, one job runs."""
    tool = transcode()
    with pytest.raises(SimulatedCrash):
        api.runtime(tool, **_crash(point)).open("film").try_call(tool, ARGS)
    api.stage.clock.advance(40)
    assert api.runtime(tool).open("film").call(tool, ARGS).value == RESULT
    keys = {request.headers["Idempotency-Key"] for request, _ in api.seen if request.method == "POST"}
    assert (api.posts, len(keys), len(api._kept)) == (2, 1, 1)


def _crash(point: str) -> dict[str, object]:
    return {"probe": crash_at(point)}


def test_jobs_lists_what_runs_with_owner_task_and_start(everywhere: JobApi) -> None:
    """One row for each job of the tenant, as a table and in words for a model at the start of its run."""
    api, tool = everywhere, transcode()
    runtime = api.runtime(tool, actor="maria")
    assert runtime.jobs().for_model() == {"jobs": [], "message": "No job is running."}
    for name in ("a", "b"):
        runtime.open(name).try_call(tool, ARGS | {"n": name}, detach=True)
        api.stage.clock.advance(1)
    jobs = runtime.jobs()
    assert [(job.session, job.owner, job.step, job.job_id) for job in jobs] == [
        ("a", "maria", "step_001", "job_7f21c"),
        ("b", "maria", "step_001", "job_7f21c"),
    ]
    assert '"source_url":"s3://in/7f21c.mov"' in jobs[0].task
    assert "job_7f21c" in str(jobs)
    said = jobs.for_model()
    assert "2 job(s) were STARTED earlier and are NOT finished" in said["message"]
    assert said["jobs"][0]["started_at"].endswith("Z")
    assert (said["jobs"][0]["done"], said["jobs"][0]["owner"]) == (False, "maria")


def test_a_finished_job_is_listed_no_more(api: JobApi) -> None:
    """`jobs()` holds what runs; a timed-out one stays, marked."""
    tool = transcode()
    runtime = api.runtime(tool)
    runtime.open("done").call(tool, ARGS)
    api.script(RUNS)
    runtime.open("slow").try_call(tool, ARGS)
    (left,) = runtime.jobs()
    assert (left.session, left.timed_out) == ("slow", True)
    assert runtime.jobs().for_model()["jobs"][0]["status"] == "timed_out"


def test_parked_jobs_are_looked_at_when_due(everywhere: JobApi) -> None:
    """`follow_jobs` polls the jobs of sessions that nobody holds, and tells of each end; nothing is posted."""
    api, tool = everywhere, transcode()
    api.script(RUNS, RUNS, RUNS, DONE, FAILED)
    starter = api.runtime(tool)
    for name in ("a", "b"):
        session = starter.open(name)
        session.try_call(tool, ARGS | {"n": name}, detach=True)
        session.close()
    ended: list[str] = []
    runtime = api.runtime(tool)
    clock = api.stage.clock
    count = runtime.follow_jobs(until=clock.wall() + 3600, on_end=lambda outcome: ended.append(str(outcome.status)))
    assert (count, sorted(ended), api.posts) == (2, ["failed", "succeeded"], 2)
    assert [job.ended for job in runtime.jobs()] == [True, True]
    assert sorted(api.runtime(tool).open(name).try_call(tool, ARGS | {"n": name}).status for name in ("a", "b")) == [
        "failed",
        "succeeded",
    ]
    assert runtime.jobs() == []
    assert api.posts == 2


def test_one_pass_looks_at_what_is_due_now(api: JobApi) -> None:
    """Without ``until`` it is one pass, as a scheduled run makes it."""
    tool = transcode()
    api.script(RUNS, DONE)
    session = api.runtime(tool).open("film")
    session.try_call(tool, ARGS, detach=True)
    session.close()
    runtime = api.runtime(tool)
    assert (runtime.follow_jobs(), len(api.gets)) == (0, 0)
    api.stage.clock.advance(34)
    assert (runtime.follow_jobs(), len(api.gets)) == (0, 1)
    assert (runtime.follow_jobs(), len(api.gets)) == (0, 1)
    api.stage.clock.advance(52)
    assert (runtime.follow_jobs(), len(api.gets)) == (1, 2)


def test_one_pass_ends_though_jobs_become_due_again_meanwhile(api: JobApi) -> None:
    """Each look takes so long that the other job is due again after it: both are looked at once, and that was all."""
    tool = transcode()

    def slowly(_request: httpx.Request) -> httpx.Response:
        api.stage.clock.advance(100)
        return httpx.Response(200, json=RUNS)

    api.script(slowly, slowly, DONE)
    starter = api.runtime(tool)
    for name in ("a", "b"):
        session = starter.open(name)
        session.try_call(tool, ARGS | {"n": name}, detach=True)
        session.close()
    api.stage.clock.advance(34)
    assert (api.runtime(tool).follow_jobs(concurrency=1), len(api.gets)) == (0, 2)


class Counting:
    """A ledger that counts how often what is due was read."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def due_jobs(self, **named: Any) -> Any:
        self.reads += 1
        return self._ledger.due_jobs(**named)


def test_what_is_due_is_not_read_anew_for_each_look(api: JobApi) -> None:
    """One read serves as many looks as it found jobs for."""
    tool = transcode()
    api.script(RUNS)
    starter = api.runtime(tool)
    for name in range(12):
        session = starter.open(f"{name}")
        session.try_call(tool, ARGS | {"n": name}, detach=True)
        session.close()
    api.stage.clock.advance(40)
    ledger = Counting(api.stage.ledger)
    api.runtime(tool, ledger=ledger).follow_jobs(concurrency=4)
    assert len(api.gets) == 12
    assert ledger.reads <= 4


def test_a_session_that_somebody_holds_is_left_to_its_holder(everywhere: JobApi) -> None:
    """Its lease is not taken, and its holder goes on."""
    api, tool = everywhere, transcode()
    session = api.runtime(tool).open("film")
    step = session.try_call(tool, ARGS, detach=True).step
    api.stage.clock.advance(34)
    assert api.runtime(tool).follow_jobs() == 0
    assert api.gets == []
    try:
        assert session.check(step).value == RESULT
    except LeaseLost:
        pytest.fail("the lease was taken")


def test_jobs_of_tools_that_are_not_registered_are_left_alone(api: JobApi) -> None:
    """Nobody here knows how to read them."""
    tool = transcode()
    session = api.runtime(tool).open("film")
    session.try_call(tool, ARGS, detach=True)
    session.close()
    api.stage.clock.advance(34)
    assert api.runtime(transcode("other")).follow_jobs(until=api.stage.clock.wall() + 10) == 0
    assert api.gets == []


def test_follow_yields_what_each_look_says(api: JobApi) -> None:
    """What is known at first, then each look, then the end; the same call has the result."""
    tool = transcode()
    api.script(RUNS, RUNS | {"progress_percent": 90}, DONE)
    session = api.runtime(tool).open("film")
    step = session.try_call(tool, ARGS, detach=True).step
    seen = list(followed(api, session, step))
    assert [(one.status, one.percent) for one in seen] == [
        ("running", None),
        ("running", 45),
        ("running", 90),
        ("succeeded", 90),
    ]
    assert [one.done for one in seen] == [False, False, False, True]
    assert session.call(tool, ARGS).value == RESULT


def followed(api: JobApi, session, step: str):
    """Return what `follow` yields, of either face."""
    if not api.stage.is_async:
        return session.follow(step)

    async def collected() -> list[JobProgress]:
        return [one async for one in session.target.follow(step)]

    return api.stage.run(collected())


def test_on_progress_hears_of_each_look(api: JobApi) -> None:
    """Of the start, each look and the end, with percent, words, elapsed time and the next look."""
    tool = transcode()
    api.script(RUNS, DONE)
    heard: list[JobProgress] = []
    api.runtime(tool).open("film").call(tool, ARGS, on_progress=heard.append)
    assert [one.status for one in heard] == ["running", "running", "succeeded"]
    assert (heard[1].percent, heard[1].polls, heard[1].job_id) == (45, 1, "job_7f21c")
    assert heard[1].elapsed == pytest.approx(30, abs=2)
    assert heard[1].message == RUNS["message"]
    assert heard[1].estimated == 240
    assert heard[1].next_look_at is not None


def test_a_listener_that_raises_ends_the_wait_and_not_the_job(api: JobApi) -> None:
    """Its exception goes to the caller; the same call follows the job on."""
    tool = transcode()
    api.script(RUNS, DONE)
    session = api.runtime(tool).open("film")
    with pytest.raises(RuntimeError, match="dies"):
        session.call(tool, ARGS, on_progress=dies_at(2))
    assert session.call(tool, ARGS).value == RESULT
    assert api.posts == 1


def test_settle_looks_once_at_a_job_that_nobody_waits_for(api: JobApi) -> None:
    """It goes as far as evidence goes now."""
    tool = transcode()
    api.script(RUNS, DONE)
    session = api.runtime(tool).open("film")
    session.try_call(tool, ARGS, detach=True)
    assert ([one.status for one in session.settle()], api.gets) == (["pending"], [])
    api.stage.clock.advance(30)
    assert ([one.status for one in session.settle()], len(api.gets)) == (["pending"], 1)
    api.stage.clock.advance(50)
    assert [one.status for one in session.settle()] == ["succeeded"]


@pytest.mark.parametrize("way", ["check", "settle"])
def test_what_somebody_else_wrote_is_seen_without_a_look(everywhere: JobApi, way: str) -> None:
    """A callback ended the job while the tool wants to be left alone: nothing is asked, and the end is told."""
    api, tool = everywhere, transcode(webhook=True)
    runtime = api.runtime(tool)
    session = runtime.open("film")
    step = session.try_call(tool, ARGS, detach=True).step
    end = CallbackEvent(source="default", event_id="e1", job_id="job_7f21c", key=None, body=body(DONE))
    assert api.runtime(tool).receive(end) == "applied"
    seen = session.check(step) if way == "check" else session.settle()[0]
    assert (seen.value, seen.reason, api.gets) == (RESULT, "callback", [])


def test_a_session_with_a_job_stays_open(api: JobApi) -> None:
    """The end of its block ends no session whose job runs."""
    tool = transcode()
    runtime = api.runtime(tool)
    with runtime.open("film") as session:
        session.try_call(tool, ARGS, detach=True)
    assert [str(record.state) for record in runtime.sessions()] == ["open"]


def test_check_without_a_hint_keeps_to_the_first_wait(everywhere: JobApi) -> None:
    """A model checks fifty times within ten seconds: it is looked at once at the beginning, and then each 5 s."""
    api, tool = everywhere, transcode()
    api.starts[0] = start(poll_after_seconds=None)
    api.script(PLAIN_RUNS)
    session = api.runtime(tool).open("film")
    step = session.try_call(tool, ARGS, detach=True).step
    for _ in range(50):
        assert session.check(step).status == "pending"
        api.stage.clock.advance(0.2)
    assert len(api.gets) == 2
    assert round(api.waits[1], 1) >= 5
