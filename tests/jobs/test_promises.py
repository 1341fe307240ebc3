"""What holds while a job is followed, whatever its tool does: fresh tokens, no second worker, no connection held."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from agent_runtime import Runtime, TokenCallable, webhooks
from agent_runtime.testing import SimulatedCrash
from agent_runtime.webhooks import StandardWebhook, sign
from tests.jobs.job_api import DONE, PLAIN_RUNS, RESULT, RUNS, JobApi, body, start, transcode
from tests.session.conftest import _stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.session.stage import Clock

ARGS = {"source_url": "s3://in/7f21c.mov"}


@pytest.fixture(params=["sync", "async"])
def on_postgres(request: pytest.FixtureRequest, databases: Any, clock_of_run: Clock) -> Iterator[JobApi]:
    """The tool's side of a stage of either face, over Postgres."""
    for made in _stage(request.param, "postgres", databases, clock_of_run):
        yield JobApi(made)


def test_each_look_goes_out_under_the_token_of_its_moment(api: JobApi) -> None:
    """A token is asked for before every request, the fetch of a result too; none is used beyond its time."""
    tool = transcode()
    api.script(RUNS, RUNS, {"status": "succeeded", "result_url": "/films/1"})
    api.pages["/films/1"] = {"film": 1}
    runtime = api.runtime(
        tool, auth=TokenCallable(function=lambda: f"at {int(api.stage.clock.wall())} #{len(api.seen)}")
    )
    assert runtime.open("film").call(tool, ARGS).value == {"film": 1}
    assert [request.headers["Authorization"] for request, _ in api.seen] == [
        f"Bearer at {int(at)} #{number}" for number, (_, at) in enumerate(api.seen)
    ]


def test_the_job_is_recorded_in_the_transaction_of_its_202(everywhere: JobApi) -> None:
    """By one write: whoever reads the row finds it with the job's id, URL and start, or still in flight."""
    api, tool = everywhere, transcode()
    written: list[Any] = []
    ledger = api.stage.ledger

    class Watching:
        def __getattr__(self, name: str) -> Any:
            return getattr(ledger, name)

        def write(self, entries: Any) -> Any:
            written.extend(entries)
            return ledger.write(entries)

    runtime = api.runtime(tool, ledger=Watching())
    outcome = runtime.open("film").try_call(tool, ARGS, detach=True)
    accepts = [entry for entry in written if str(getattr(getattr(entry, "change", None), "state", "")) == "accepted"]
    assert [one.evidence[0].status for one in accepts if one.evidence] == [202]
    first = accepts[0].change.handle
    assert (b"job_7f21c" in first, b"/v1/jobs/job_7f21c" in first, b"started_at" in first) == (True, True, True)
    assert outcome.started_at == pytest.approx(api.stage.clock.wall(), abs=1)


def test_A17_a_job_that_is_waited_for_is_left_to_its_worker(everywhere: JobApi) -> None:
    """Ten minutes of polls, a lease of half a minute: whoever looks for jobs or sessions meanwhile finds them held."""
    api, tool = everywhere, transcode()
    api.script(PLAIN_RUNS)
    others: list[httpx.Request] = []

    def other(request: httpx.Request) -> httpx.Response:
        others.append(request)
        return httpx.Response(200, json=DONE)

    stage = api.stage
    ended: list[int] = []
    client = httpx.Client(transport=httpx.MockTransport(other))
    given = {"tools": [tool], "tenant": stage.tenant, "clock": stage.clock, "client": client}
    with Runtime(stage.ledger, **given) as second:

        def looks() -> None:
            thread = threading.Thread(target=lambda: ended.append(second.follow_jobs()))
            thread.start()
            thread.join(20)

        stage.clock.on_sleep = looks
        assert api.runtime(tool).open("film").try_call(tool, ARGS).status == "timed_out"
    assert (others, set(ended), len(ended) > 9) == ([], {0}, True)


def test_A42_no_connection_is_held_while_a_job_is_polled_or_waited_for(on_postgres: JobApi) -> None:
    """In each request and each wait: no transaction is open, and a connection that the server ends is replaced."""
    import psycopg

    api, tool = on_postgres, transcode()
    host = api.stage.url.partition("?host=")[2]
    name = api.stage.url.partition("@/")[2].partition("?")[0]
    mine = "datname = %s AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    seen: list[int] = []
    with psycopg.connect(f"host={host} user=postgres dbname=postgres", autocommit=True) as admin:

        def looks(request: Any = None) -> None:
            found = admin.execute(f"SELECT count(*) FROM pg_stat_activity WHERE {mine} AND state <> 'idle'", [name])
            seen.append(found.fetchone()[0])
            admin.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {mine}", [name])

        polls = iter([RUNS, 503, DONE])

        def polled(request: httpx.Request) -> Any:
            looks()
            return next(polls)

        api.script(polled)
        api.stage.clock.on_sleep = looks
        assert api.runtime(tool).open("film").call(tool, ARGS).value == RESULT
    assert (api.posts, len(api.gets)) == (1, 3)
    assert seen == [0] * 6


def test_a_killed_look_leaves_the_job_to_the_next_process(everywhere: JobApi) -> None:
    """A36: the process dies in a poll; the next one goes on by GETs, counting from the stored start."""
    api, tool = everywhere, transcode()

    def dies(request: httpx.Request) -> httpx.Response:
        raise SimulatedCrash("in a poll")

    api.script(RUNS, dies, DONE)
    began = api.stage.clock.wall()
    with pytest.raises(SimulatedCrash):
        api.runtime(tool).open("film").call(tool, ARGS)
    api.stage.clock.advance(40)
    outcome = api.runtime(tool).open("film").try_call(tool, ARGS)
    assert (outcome.value, api.posts) == (RESULT, 1)
    assert outcome.started_at == pytest.approx(began, abs=1)


def test_callbacks_mount_in_starlette(api: JobApi) -> None:
    """As in FastAPI; the raw bytes are what was signed, so a blank that is added refuses them."""
    import asyncio

    tool, secret = transcode(webhook=True), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    api.starts[0] = start()
    runtime = api.runtime(tool)
    session = runtime.open("film")
    session.try_call(tool, ARGS, detach=True)
    given = {"tools": [tool], "tenant": api.stage.tenant, "clock": api.stage.clock}
    receiver = Runtime(api.stage.ledger, **given)
    app = Starlette(routes=[Mount("/hooks", webhooks.app(receiver, verify=StandardWebhook(secret)))])
    signed = body(DONE)
    stamp = int(api.stage.clock.wall())
    headers = {
        "webhook-id": "e1",
        "webhook-timestamp": str(stamp),
        "webhook-signature": sign(secret, event_id="e1", timestamp=stamp, body=signed),
    }

    async def send(content: bytes) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://hooks") as client:
            return await client.post("/hooks/", content=content, headers=headers)

    assert asyncio.run(send(signed + b" ")).status_code == 401
    assert asyncio.run(send(signed)).json() == {"status": "applied"}
    assert session.check("step_001").value == RESULT
    receiver.close()
