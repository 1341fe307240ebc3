"""What becomes of a callback in the ledger, on both stores: kept, applied once, by whom it is believed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import JobProgress
from agent_runtime.config import JobAdapter, JobReading, JobStart
from agent_runtime.webhooks import CallbackEvent
from tests.jobs.job_api import CUT, DONE, FAILED, PLAIN_RUNS, RESULT, RUNS, JobApi, body, start, transcode

if TYPE_CHECKING:
    from collections.abc import Callable

ARGS = {"source_url": "s3://in/7f21c.mov"}


def event(value: Any, event_id: str = "e1", *, source: str = "default", job_id: str | None = "job_7f21c", key=None):
    return CallbackEvent(source=source, event_id=event_id, job_id=job_id, key=key, body=body(value))


def test_A39_a_callback_before_the_202_is_kept_and_applied(everywhere: JobApi) -> None:
    """It comes while the POST is out: the step ends by it, without a poll."""
    api, tool = everywhere, transcode(webhook=True)
    receiver = api.runtime(tool)
    said: list[str] = []

    def answers(request: httpx.Request) -> httpx.Response:
        said.append(deliver(api, receiver, event({"data": DONE})))
        return httpx.Response(202, json=start())

    api.starts[0] = answers
    outcome = api.runtime(tool).open("film").try_call(tool, ARGS)
    assert (said, outcome.status, outcome.reason, outcome.value) == (["kept"], "succeeded", "callback", RESULT)
    assert api.gets == []


@pytest.mark.parametrize("ends", [(DONE, FAILED), (FAILED, DONE)], ids=["failed after", "failed before"])
def test_A39_two_callbacks_before_the_202_that_contradict_each_other(everywhere: JobApi, ends: tuple[Any, Any]) -> None:
    """The first is the end, the second stands in `attention()` as if it had come after it, and is told of once."""
    api, tool = everywhere, transcode(webhook=True)
    receiver = api.runtime(tool)

    def answers(request: httpx.Request) -> httpx.Response:
        for number, one in enumerate(ends):
            assert deliver(api, receiver, event(one, f"e{number}")) == "kept"
            api.stage.clock.advance(1)
        return httpx.Response(202, json=start())

    api.starts[0] = answers
    heard: list[str] = []
    runtime = api.runtime(tool, on_attention=lambda matter: heard.append(matter.kind))
    with runtime.open("film") as session:
        outcome = session.try_call(tool, ARGS)
    assert (outcome.status, outcome.reason) == (ends[0]["status"], "callback")
    (matter,) = runtime.attention()
    assert (matter.kind, heard) == ("contradicted", ["contradicted"])
    assert (receiver.receive(event(ends[1], "e1")), api.gets) == ("seen", [])


def test_a_callback_that_contradicts_the_answer_itself_is_not_forgotten(everywhere: JobApi) -> None:
    """The tool calls back "failed" while it answers 200: the answer stands, and somebody hears of it."""
    api, tool = everywhere, transcode(webhook=True)
    receiver = api.runtime(tool)

    def answers(request: httpx.Request) -> httpx.Response:
        key = request.headers["Idempotency-Key"]
        assert deliver(api, receiver, event(FAILED, job_id=None, key=key)) == "kept"
        return httpx.Response(200, json={"film": 1})

    api.starts[0] = answers
    runtime = api.runtime(tool)
    assert runtime.open("film").call(tool, ARGS).value == {"film": 1}
    assert [matter.kind for matter in runtime.attention()] == ["contradicted"]


def deliver(api: JobApi, runtime: Any, one: CallbackEvent) -> str:
    """Deliver an event from inside a request: of the async face on a loop of its own."""
    if not api.stage.is_async:
        return runtime.receive(one)
    import asyncio
    import threading

    told: list[str] = []
    thread = threading.Thread(target=lambda: told.append(asyncio.run(runtime.target.receive(one))))
    thread.start()
    thread.join(20)
    return told[0]


def test_A39_twice_and_late_make_one_change(everywhere: JobApi) -> None:
    """The same event again, running after succeeded, and the same end after the poll stored it."""
    api, tool = everywhere, transcode(webhook=True)
    runtime = api.runtime(tool)
    outcome = runtime.open("film").try_call(tool, ARGS, detach=True)
    assert runtime.receive(event(DONE)) == "applied"
    version = row(api, outcome).version
    assert runtime.receive(event(DONE)) == "seen"
    assert runtime.receive(event(RUNS, "e2")) == "noted"
    assert runtime.receive(event(DONE, "e3")) == "noted"
    assert row(api, outcome).version == version
    assert runtime.attention() == []
    assert runtime.receive(event(FAILED, "e4")) == "noted"
    assert [matter.kind for matter in runtime.attention()] == ["contradicted"]
    assert row(api, outcome).state == "succeeded"


def row(api: JobApi, outcome: Any) -> Any:
    return api.stage.ledger.operation(outcome.operation_id).result(20)


def test_a_poll_that_loses_the_race_files_what_it_saw(everywhere: JobApi) -> None:
    """The callback says succeeded while the poll is out that says failed: one end stands, the other contradicts it."""
    api, tool = everywhere, transcode(webhook=True)
    receiver = api.runtime(tool)

    def answers(request: httpx.Request) -> httpx.Response:
        deliver(api, receiver, event(DONE))
        return httpx.Response(200, json=FAILED)

    api.script(answers)
    outcome = api.runtime(tool).open("film").try_call(tool, ARGS)
    assert (outcome.status, outcome.value) == ("succeeded", RESULT)
    assert [matter.kind for matter in receiver.attention()] == ["contradicted"]


def test_a_waiting_step_looks_at_the_ledger_every_two_seconds(api: JobApi) -> None:
    """The callback comes while the next poll is a minute away; progress tells the end."""
    tool = transcode(webhook=True)
    api.starts[0] = start(poll_after_seconds=None)
    receiver = api.runtime(tool)
    heard: list[JobProgress] = []
    sleeps: list[int] = []

    def on_sleep() -> None:
        sleeps.append(1)
        if len(sleeps) == 3:
            deliver(api, receiver, event(DONE))

    api.stage.clock.on_sleep = on_sleep
    outcome = api.runtime(tool).open("film").try_call(tool, ARGS, on_progress=heard.append)
    assert (outcome.status, api.gets, len(sleeps)) == ("succeeded", [], 3)
    assert [one.status for one in heard] == ["running", "succeeded"]


@pytest.mark.parametrize("link", ["/v1/jobs/job_7f21c", None], ids=["with a status URL", "without one"])
def test_a_step_that_waits_for_a_callback_is_polled_slowly(api: JobApi, link: str | None) -> None:
    """At the cap, though the tool asks for less; one that cannot be polled waits until the bound."""
    tool = transcode(webhook=True)
    api.starts[0] = start(status_url=link, poll_after_seconds=2)
    api.script(PLAIN_RUNS | {"poll_after_seconds": 3})
    outcome = api.runtime(tool).open("film").try_call(tool, ARGS)
    assert outcome.status == "timed_out"
    assert min([60, *api.waits]) >= 60
    assert bool(api.gets) is (link is not None)


def test_another_sender_is_not_believed(everywhere: JobApi) -> None:
    """An event of a source that the tool does not name is kept and ends nothing; so for tools that name none."""
    api, tool, deaf = everywhere, transcode(webhook="films"), transcode("deaf")
    runtime = api.runtime(tool, deaf)
    session = runtime.open("film")
    session.try_call(tool, ARGS, detach=True)
    api.starts[0] = start(job_id="job_2", status_url="/v1/jobs/job_2")
    session.try_call(deaf, ARGS, detach=True)
    assert runtime.receive(event(DONE, source="other")) == "kept"
    assert runtime.receive(event(DONE, "e2", source="films", job_id="job_2")) == "kept"
    assert len(runtime.jobs()) == 2
    assert runtime.receive(event(DONE, "e3", source="films")) == "applied"


def test_a_job_id_that_two_tools_have_names_none(everywhere: JobApi) -> None:
    """Nothing is ended by it, nor when the step is followed; the key names its operation without doubt."""
    api, one, two = everywhere, transcode("one", webhook=True), transcode("two", webhook=True)
    runtime = api.runtime(one, two)
    session = runtime.open("film")
    first = session.try_call(one, ARGS, detach=True)
    session.try_call(two, ARGS, detach=True)
    assert runtime.receive(event(DONE)) == "noted"
    assert session.check(first.step).reason != "callback"
    api.script(RUNS)
    assert runtime.receive(event(FAILED, "e2", key=first.key)) in {"applied", "noted"}
    assert [job.tool for job in runtime.jobs() if not job.ended] == ["two"]


def test_a_callback_settles_an_operation_whose_answer_was_lost(everywhere: JobApi) -> None:
    """A tool without keys: the event under the key proves the effect; without a result, that is missing."""
    from agent_runtime import PollPolicy, Tool, ToolContract

    api = everywhere
    tool = Tool("transcode", url=transcode().url, contract=ToolContract(polling=PollPolicy(webhook=True)))
    api.starts[0] = CUT
    runtime = api.runtime(tool)
    outcome = runtime.open("film").try_call(tool, ARGS)
    assert outcome.status == "unknown"
    assert runtime.receive(event({"status": "succeeded"}, job_id=None, key=outcome.key)) == "applied"
    assert (row(api, outcome).state, row(api, outcome).result_state) == ("succeeded", "missing")


def test_a_callback_that_tells_less_than_a_resend_is_left_for_it(everywhere: JobApi) -> None:
    """A tool that honours keys is asked again: its answer brings the result."""
    api, tool = everywhere, transcode(webhook=True)
    api.starts.clear()
    api.starts.extend([CUT, CUT, CUT, CUT, CUT, {"film": 1}])
    runtime = api.runtime(tool)
    session = runtime.open("film")
    outcome = session.try_call(tool, ARGS)
    assert outcome.status == "unknown"
    assert runtime.receive(event({"status": "succeeded"}, job_id=None, key=outcome.key)) == "kept"
    api.starts.clear()
    api.starts.append(httpx.Response(200, json={"film": 1}))
    assert session.call(tool, ARGS).value == {"film": 1}


def adapter(callback: Callable[..., JobReading] | None) -> JobAdapter:
    return JobAdapter(
        start=lambda one: JobStart(url="/x/1", job_id="x1") if one.status == 202 else None,
        read=lambda one: JobReading(status="succeeded", result=one.body["v"], has_result=True),
        callback=callback,
    )


def test_an_adapter_reads_starts_polls_and_callbacks(api: JobApi) -> None:
    """A callback that it cannot read ends nothing, a poll that it cannot read is made again."""
    tool = transcode(webhook=True, adapter=adapter(lambda one: one.body["end"]))
    api.script({"w": 1}, {"v": 5})
    runtime = api.runtime(tool)
    session = runtime.open("film")
    step = session.try_call(tool, ARGS, detach=True)
    assert (step.job_id, step.status_url) == ("x1", "https://tools.example.com/x/1")
    assert runtime.receive(event({"no": "end"}, job_id="x1")) == "noted"
    assert session.call(tool, ARGS).value == 5
    assert len(api.gets) == 2


def test_an_adapters_callback_ends_a_job(api: JobApi) -> None:
    """What it returns is the job's end."""
    told = JobReading(status="failed", error={"code": 9})
    tool = transcode(webhook=True, adapter=adapter(lambda one: told))
    runtime = api.runtime(tool)
    session = runtime.open("film")
    session.try_call(tool, ARGS, detach=True)
    assert runtime.receive(event({"whatever": 1}, job_id="x1")) == "applied"
    assert session.try_call(tool, ARGS).error["error"] == {"code": 9}


def numbered(api: JobApi, *paths: str) -> None:
    """Let the tool number its jobs anew for each customer: all have the id 1."""
    answers = iter([httpx.Response(202, json={"job_id": "1", "status_url": path}) for path in paths])
    api.starts.clear()
    api.starts.append(lambda request: next(answers))


def test_one_event_does_not_end_two_customers_jobs(everywhere: JobApi) -> None:
    """Their jobs have one id and different URLs: none is ended by the id, each is by its own URL, and polls go on."""
    api, tool = everywhere, transcode(webhook=True)
    numbered(api, "/customers/a/jobs/1", "/customers/b/jobs/1")
    runtime = api.runtime(tool)
    first, second = (
        runtime.open(name, finish=False).try_call(tool, {"customer": name}, detach=True) for name in ("a", "b")
    )
    end = {"job_id": "1", "status": "succeeded", "result": "of a"}
    assert runtime.receive(event(end, job_id="1")) == "noted"
    assert [job.step for job in runtime.jobs()] == [first.step, second.step]
    why = [seen.detail for seen in api.stage.ledger.evidence(second.operation_id).result(20) if seen.kind == "webhook"]
    assert [("several jobs have its job id" in one) for one in why] == [True]
    told = event(end | {"status_url": "/customers/a/jobs/1"}, "e2", job_id="1")
    assert runtime.receive(told) == "applied"
    assert (row(api, first).state, row(api, second).state) == ("succeeded", "accepted")
    api.script({"status": "succeeded", "result": "of b"})
    assert runtime.open("b", finish=False).call(tool, {"customer": "b"}).value == "of b"


def test_an_event_that_was_kept_ends_neither_of_two_jobs(everywhere: JobApi) -> None:
    """Whoever kept it died before it was applied: a step that reads it later is as careful."""
    api, tool = everywhere, transcode(webhook=True)
    numbered(api, "/customers/a/jobs/1", "/customers/b/jobs/1")
    runtime = api.runtime(tool)
    for name in ("a", "b"):
        runtime.open(name, finish=False).try_call(tool, {"customer": name}, detach=True)
    api.stage.ledger.keep_event(tenant="", event=event({"job_id": "1", "status": "failed"}, job_id="1")).result(20)
    api.script({"status": "succeeded", "result": "of b"})
    assert runtime.open("b", finish=False).call(tool, {"customer": "b"}).value == "of b"
    assert runtime.attention() == []
