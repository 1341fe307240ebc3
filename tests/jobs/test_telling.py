"""Open matters of jobs: each is told at least once, to a function or by a tool, across crashes."""

from __future__ import annotations

import json

import httpx

from agent_runtime import Runtime
from agent_runtime.webhooks import CallbackEvent
from tests.jobs.job_api import DONE, FAILED, PLAIN_RUNS, JobApi, start, transcode

ARGS = {"source_url": "s3://in/7f21c.mov"}


def test_timed_out_and_stalled_jobs_are_told_of_once(everywhere: JobApi) -> None:
    """`on_attention` hears of each new matter when sessions close, and not again; `attention()` keeps them."""
    api, tool = everywhere, transcode()
    api.starts[0] = start(poll_after_seconds=None)
    api.script(PLAIN_RUNS)
    heard: list[tuple[str, str]] = []
    runtime = api.runtime(tool, on_attention=lambda matter: heard.append((matter.kind, matter.tool)))
    with runtime.open("slow") as session:
        session.try_call(tool, ARGS)
    assert heard == [("timed_out", "transcode")]
    assert runtime.notify() == 0
    session = runtime.open("left")
    session.try_call(tool, ARGS, detach=True)
    session.close()
    api.stage.clock.advance(3600)
    assert runtime.notify() == 1
    assert heard[1:] == [("stalled", "transcode")]
    assert sorted(matter.kind for matter in runtime.attention()) == ["stalled", "timed_out"]


def test_a_matter_is_told_again_until_the_listener_has_returned(everywhere: JobApi) -> None:
    """A listener that dies hears it again, also in another process."""
    api, tool = everywhere, transcode()
    api.script(410)
    calls: list[str] = []

    def dies(matter) -> None:
        calls.append(matter.kind)
        raise RuntimeError("the queue is down")

    with api.runtime(tool, on_attention=dies).open("film") as session:
        session.try_call(tool, ARGS)
    heard: list[str] = []
    runtime = api.runtime(tool, on_attention=lambda matter: heard.append(matter.kind))
    assert (runtime.notify(), heard, calls) == (1, ["unknown"], ["unknown"])


def test_matters_can_be_told_by_a_tool(everywhere: JobApi) -> None:
    """Each in a session of its own, once, under one key however often its answer is lost; not of itself."""
    api, tool, ticket = everywhere, transcode(), transcode("ticket")
    api.script(410)
    made: list[bytes] = []

    def make(request: httpx.Request) -> httpx.Response:
        made.append(request.content)
        return httpx.Response(200, json={"ticket": 7})

    runtime = api.runtime(tool, ticket, on_attention="ticket")
    with runtime.open("film") as session:
        step = session.try_call(tool, ARGS)
        api.starts[0] = make
    assert len(made) == 1
    assert step.operation_id.encode() in made[0]
    assert b'"kind":"unknown"' in made[0]
    assert runtime.notify() == 0
    told = [record for record in runtime.sessions() if record.alias.startswith("attention:")]
    assert [str(record.state) for record in told] == ["finished"]


def test_a_matter_that_a_tool_could_not_take_is_told_again(api: JobApi) -> None:
    """The tool is down at first; later the same step goes on under its key."""
    tool, ticket = transcode(), transcode("ticket")
    api.script(410)
    answers = iter([httpx.Response(429, headers={"Retry-After": "600"})])
    runtime = api.runtime(tool, ticket, on_attention=ticket)
    with runtime.open("film") as session:
        session.try_call(tool, ARGS)
        api.starts[0] = lambda request: next(answers, httpx.Response(200, json={"ticket": 7}))
    api._kept.clear()
    api.stage.clock.advance(700)
    assert runtime.notify() == 1
    keys = {r.headers["Idempotency-Key"] for r, _ in api.seen if r.url.path.endswith("/ticket")}
    assert len(keys) == 1


def test_a_runtime_without_a_listener_tells_nobody() -> None:
    """`notify` returns 0."""
    with Runtime("sqlite://") as runtime:
        assert runtime.notify() == 0


def test_a_job_that_never_ends_is_told_of_though_it_is_looked_at(everywhere: JobApi) -> None:
    """Detached, and looked at each hour by `follow_jobs`: a day after its bound somebody hears of it, once."""
    api, tool = everywhere, transcode()
    api.script(PLAIN_RUNS)
    heard: list[tuple[str, str]] = []
    runtime = api.runtime(tool, on_attention=lambda matter: heard.append((matter.kind, matter.message)))
    with runtime.open("film", finish=False) as session:
        session.try_call(tool, ARGS, detach=True)
    for _ in range(26):
        assert heard == []
        api.stage.clock.advance(3600)
        runtime.follow_jobs()
        if heard:
            break
    api.stage.clock.advance(3600)
    runtime.follow_jobs()
    ((kind, message),) = heard
    assert kind == "overdue"
    assert "still runs, long after it should have ended" in message


def test_a_contradiction_is_told_in_the_words_that_contradict(everywhere: JobApi) -> None:
    """The callback that came against the recorded end, not the one that made it nor one that repeats it."""
    api, tool = everywhere, transcode(webhook=True)
    runtime = api.runtime(tool)
    with runtime.open("film", finish=False) as session:
        session.try_call(tool, ARGS, detach=True)
    for number, told in enumerate((DONE, FAILED, DONE)):
        api.stage.clock.advance(1)
        body = json.dumps(told).encode()
        runtime.receive(CallbackEvent(source="default", event_id=f"e{number}", job_id="job_7f21c", key=None, body=body))
    (matter,) = runtime.attention()
    assert "recorded as succeeded" in matter.message
    assert '"no such codec"' in matter.message
