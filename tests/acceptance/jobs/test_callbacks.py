"""Callbacks over TCP, taken by another process: before, twice, after the poll, out of order, and killed in between."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from acceptance_kit.transactions import counted_ends

from examples.tool_backend.jobs import signed
from tests.acceptance.jobs.receiver import SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from examples.tool_backend.process import Backend
    from tests.conftest import Backend as Database

pytestmark = pytest.mark.acceptance
ROOT = Path(__file__).parents[3]
ARGS = {"source_url": "s3://in/7f21c.mov"}
Make = "Callable[..., Any]"
HOOKED = {"webhook": "films", "cap": 60.0, "bound": 45.0}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def receiving(
    url: str, server: str, port: int, where: str = "never", framework: str = "starlette"
) -> Iterator[subprocess.Popen[str]]:
    """Run a receiver until the block ends, or it dies."""
    command = [sys.executable, "-m", "tests.acceptance.jobs.receiver", url, server, str(port), where, framework]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == str(port)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def hook(server: Backend, tmp_path: Path) -> Any:
    """Where callbacks go, with the ledger's URL."""
    return f"sqlite:///{tmp_path}/agent.db", free_port()


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}/hooks/films"


def post(port: int, event_id: str, data: dict[str, Any], *, secret: str = SECRET) -> httpx.Response:
    body = json.dumps({"type": "job.changed", "data": data}).encode()
    with httpx.Client(trust_env=False) as client:
        return client.post(url_of(port), content=body, headers=signed(secret, event_id, body))


@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
def test_a_callback_wakes_a_session_that_waits_in_another_process(
    server: Backend, job_tool: Make, runtime_of: Make, backend: Database, framework: str
) -> None:
    """The app is mounted in either framework and served by uvicorn; a signed callback over TCP ends the wait within
    some two seconds, though the next poll would be a minute later."""
    url, port = backend.url, free_port()
    server.order_jobs("transcode", seconds=1, poll_after=None, estimated=None, callback_url=url_of(port))
    tool = job_tool(**HOOKED)
    runtime = runtime_of(tool, url=url)
    with receiving(url, server.url, port, framework=framework):
        began = time.monotonic()
        outcome = runtime.open("film").try_call(tool, ARGS)
        took = time.monotonic() - began
    assert (outcome.status, outcome.reason) == ("succeeded", "callback")
    assert outcome.value["duration_seconds"] == 372
    assert server.polls(outcome.job_id) == 0
    assert took < 5


def test_a_callback_without_a_result_makes_the_step_look(
    server: Backend, job_tool: Make, runtime_of: Make, hook: Any
) -> None:
    """A thin event says that the job is done; the result is asked for at once, at the status URL."""
    url, port = hook
    server.order_jobs("transcode", seconds=0.5, poll_after=None, estimated=None, callback_url=url_of(port), thin=True)
    tool = job_tool(**HOOKED)
    runtime = runtime_of(tool, url=url)
    with receiving(url, server.url, port):
        outcome = runtime.open("film").try_call(tool, ARGS)
    assert outcome.value["duration_seconds"] == 372
    assert server.polls(outcome.job_id) == 1


def test_completed_twice_runs_the_next_step_once(server: Backend, job_tool: Make, runtime_of: Make, hook: Any) -> None:
    """The callback is delivered twice and a poll races it, and later it comes again: one end of each step, counted in
    the database, and the next step has one effect, also when the plan runs again."""
    url, port = hook
    server.order_jobs("transcode", seconds=0.3, poll_after=0.05, callback_url=url_of(port), callback_times=2)
    server.order_jobs("report", polls=0)
    tool, next_tool = job_tool(webhook="films", cap=0.1), job_tool("report")
    runtime = runtime_of(tool, next_tool, url=url)

    def plan() -> Any:
        with runtime.open("film") as session:
            first = session.call(tool, ARGS)
            return first.value, session.call(next_tool, {"of": first.value["output_url"]}).value

    with counted_ends(url) as ends, receiving(url, server.url, port):
        values = plan()
        job_id = values[0]["output_url"].rpartition("/")[2].removesuffix(".mp4")
        done = {"job_id": job_id, "status": "succeeded", "done": True, "result": values[0]}
        said = [post(port, event_id, done).json()["status"] for event_id in (f"msg_{job_id}", f"msg_{job_id}", "other")]
        assert said[0] in {"seen", "noted"}  # the server's own delivery may have lost the race to the poll
        assert said[1:] == ["seen", "noted"]
        assert plan() == values
        assert ends() == {"step_001": 1, "step_002": 1}
    assert len(server.effects("transcode")) == len(server.effects("report")) == 1
    assert runtime.attention() == []


def test_a_callback_before_the_answer_that_names_the_job_is_kept(
    server: Backend, job_tool: Make, runtime_of: Make, hook: Any
) -> None:
    """The event is there before the 202 is: it is kept, and the step ends by it without a poll."""
    url, port = hook
    server.order_jobs(
        "transcode", end="succeeded", callback_url=url_of(port), callback_first=True, poll_after=None, estimated=None
    )
    tool = job_tool(**HOOKED)
    runtime = runtime_of(tool, url=url)
    with receiving(url, server.url, port):
        outcome = runtime.open("film").try_call(tool, ARGS)
    assert (outcome.status, outcome.reason) == ("succeeded", "callback")
    assert server.polls(outcome.job_id) == 0


def test_late_and_out_of_order_callbacks_change_nothing(
    server: Backend, job_tool: Make, runtime_of: Make, hook: Any
) -> None:
    """After the poll stored the end: running, the same end, and the same again; one that says otherwise is shown."""
    url, port = hook
    server.order_jobs("transcode", polls=0)
    tool = job_tool(webhook="films", cap=0.1)
    runtime = runtime_of(tool, url=url)
    session = runtime.open("film")
    outcome = session.try_call(tool, ARGS)
    about = {"job_id": outcome.job_id}
    with receiving(url, server.url, port):
        assert post(port, "e1", about | {"status": "processing", "done": False}).json() == {"status": "noted"}
        for said in ("noted", "seen"):
            assert post(port, "e2", about | {"status": "succeeded", "done": True}).json() == {"status": said}
        assert runtime.attention() == []
        assert post(port, "e3", about | {"status": "failed", "done": True}).json() == {"status": "noted"}
    assert [matter.kind for matter in runtime.attention()] == ["contradicted"]
    assert runtime.resume("film").call(tool, ARGS).value == outcome.value


def test_callbacks_that_nobody_signed_are_refused(server: Backend, job_tool: Make, runtime_of: Make, hook: Any) -> None:
    """Another secret, an old signature, no signature: 401, and the job runs on; GET is 405."""
    url, port = hook
    server.order_jobs("transcode", end="never")
    tool = job_tool(webhook="films")
    runtime = runtime_of(tool, url=url)
    job_id = runtime.open("film").try_call(tool, ARGS, detach=True).job_id
    done = {"job_id": job_id, "status": "succeeded", "done": True}
    with receiving(url, server.url, port), httpx.Client(trust_env=False) as client:
        assert post(port, "e1", done, secret="whsec_b3RoZXIgc2VjcmV0IG9mIG5vIHVzZQ==").status_code == 401
        assert client.post(url_of(port), json=done).status_code == 401
        assert client.get(url_of(port)).status_code == 405
        assert post(port, "e2", {"hello": 1}).json() == {"status": "ignored"}
        assert client.post(url_of(port), content=b"x" * 1_100_000).status_code == 413
    (job,) = runtime.jobs()
    assert job.job_id == job_id


@pytest.mark.parametrize("where", ["keep", "apply", "applied"])
def test_a_receiver_that_is_killed_loses_no_callback(
    server: Backend, job_tool: Make, runtime_of: Make, hook: Any, where: str
) -> None:
    """SIGKILL before the event is kept: the sender tries again at the next receiver. After that: the kept event ends
    the step, whether or not there is another receiver. One completion."""
    url, port = hook
    server.order_jobs("transcode", seconds=0, poll_after=None, estimated=None, link="none", callback_url=url_of(port))
    tool = job_tool(**HOOKED)
    runtime = runtime_of(tool, url=url)
    session = runtime.open("film")
    # Before there is a receiver: so the callback finds the job in the ledger, however slow this machine is.
    assert session.try_call(tool, ARGS, detach=True).status == "pending"
    with receiving(url, server.url, port, where) as receiver:
        assert receiver.wait(10) == -signal.SIGKILL
    with receiving(url, server.url, port) if where == "keep" else nullcontext():
        outcome = session.try_call(tool, ARGS)
    assert (outcome.status, outcome.reason) == ("succeeded", "callback")
    assert len(server.effects("transcode")) == 1
    evidence = runtime.ledger.evidence(outcome.operation_id).result(10)
    # A receiver and a step that apply the same event at once: one of them ends the step, the other files what it saw.
    assert sum(one.kind == "webhook" for one in evidence) <= (2 if where == "keep" else 1)
