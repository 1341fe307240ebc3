"""Source 004's fourth scenario in virtual time: the end comes twice, and the next step runs once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import Tool, ToolContract
from tests.jobs.job_api import DONE, ORIGIN, RESULT, RUNS, transcode
from tests.jobs.test_receiving import deliver, event

if TYPE_CHECKING:
    from tests.jobs.job_api import JobApi

ARGS = {"source_url": "s3://in/7f21c.mov"}


def the_plan(api: JobApi, *tools: Any) -> list[Any]:
    """Run a plan of a job and the step after it, as a program does each time that it is started."""
    film, publish = tools
    with api.runtime(*tools).open("film") as session:
        first = session.call(film, ARGS)
        return [first, session.call(publish, {"of": first.value["output_url"]})]


def check(api: JobApi, steps: list[Any]) -> None:
    """One start of each, one end of each, the same values; so also when the plan runs again."""
    starts = [request.url.path for request, _ in api.seen if request.method == "POST"]
    assert starts == ["/v1/film", "/v1/publish"]
    assert [one.value for one in steps] == [RESULT, {"published": True}]


@pytest.mark.parametrize("first", ["webhook", "poll"])
def test_a_webhook_that_is_tried_again_races_a_poll(everywhere: JobApi, first: str) -> None:
    """While the poll that sees the end is out the webhook tells it, and tells it again; or it comes after the poll."""
    api = everywhere
    film, publish = transcode("film", webhook=True), transcode("publish")
    receiver = api.runtime(film, publish)
    said: list[str] = []

    def tell(times: int) -> None:
        said.extend(deliver(api, receiver, event(DONE, "msg_1")) for _ in range(times))

    def races(request: httpx.Request) -> httpx.Response:
        if first == "webhook":
            tell(2)
        return httpx.Response(200, json=DONE)

    published = {"job_id": "job_p", "status": "succeeded", "done": True, "result": {"published": True}}
    api.starts.append({"job_id": "job_p", "status": "processing", "status_url": "/v1/published"})
    api.pages["/v1/published"] = published
    api.script(RUNS, races)
    steps = the_plan(api, film, publish)
    tell(1)
    assert said == (["applied", "seen", "seen"] if first == "webhook" else ["noted"])
    check(api, steps)
    before = api.stage.loaded("film").operations
    tell(1)
    assert said[-1] == "seen"
    check(api, the_plan(api, film, publish))
    assert api.stage.loaded("film").operations == before
    assert receiver.attention() == []


def test_each_callback_wakes_the_agent_and_the_next_step_runs_once(everywhere: JobApi) -> None:
    """The receiver runs the plan whenever a callback comes, and what the next tool is asked is counted: once."""
    api = everywhere
    film = transcode("film", webhook=True)
    publish = Tool("publish", url=f"{ORIGIN}/v1/publish", contract=ToolContract())
    api.starts.append(httpx.Response(200, json={"published": True}))
    receiver = api.runtime(film, publish)
    with receiver.open("film", finish=False) as session:
        session.try_call(film, ARGS, detach=True)
    said = []
    for event_id in ("msg_1", "msg_1", "msg_2", "msg_1"):
        said.append(receiver.receive(event(DONE, event_id)))
        check(api, the_plan(api, film, publish))
    assert said == ["applied", "seen", "noted", "seen"]
