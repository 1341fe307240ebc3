"""Ids of jobs and events that no database likes: they are stored, found again, and never refused for ever."""

from __future__ import annotations

import json
import random
import string

import httpx
import pytest

from agent_runtime.webhooks import CallbackEvent
from tests.jobs.job_api import DONE, RESULT, JobApi, start, transcode

ARGS = {"source_url": "s3://in/7f21c.mov"}
LONG = "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=5000))
IDS = {"long": LONG, "NUL": "a\0b", "surrogate": "job \ud800", "like a digest": "sha256:" + "0" * 64}
every_id = pytest.mark.parametrize("job_id", IDS.values(), ids=IDS)


def accepted(job_id: str) -> httpx.Response:
    text = json.dumps(start(job_id=job_id))
    return httpx.Response(202, content=text, headers={"Content-Type": "application/json"})


def ends(job_id: str | None, event_id: str = "e1", key: str | None = None) -> CallbackEvent:
    told = json.dumps({**DONE, "job_id": job_id}).encode()
    return CallbackEvent(source="default", event_id=event_id, job_id=job_id, key=key, body=told)


@every_id
def test_a_job_with_any_id_is_recorded_and_its_callback_finds_it(everywhere: JobApi, job_id: str) -> None:
    """The 202 is written whole, its id told as it came, and the callback that names it ends the step, once."""
    api, tool = everywhere, transcode(webhook=True)
    api.starts[0] = accepted(job_id)
    runtime = api.runtime(tool)
    session = runtime.open("film")
    outcome = session.try_call(tool, ARGS, detach=True)
    assert (outcome.status, outcome.job_id) == ("pending", job_id)
    assert runtime.receive(ends(job_id + "x")) == "kept"
    assert runtime.receive(ends(job_id, "e2")) == "applied"
    assert runtime.receive(ends(job_id, "e2")) == "seen"
    assert (session.check("step_001").value, api.posts) == (RESULT, 1)


@every_id
def test_a_callback_with_any_id_before_the_202_is_kept_for_its_step(everywhere: JobApi, job_id: str) -> None:
    """It waits under its id, and the step ends by it without a poll; the event's own id may be as odd."""
    api, tool = everywhere, transcode(webhook=True)
    runtime = api.runtime(tool)
    assert runtime.receive(ends(job_id, event_id=job_id)) == "kept"
    api.starts[0] = accepted(job_id)
    assert runtime.open("film").try_call(tool, ARGS).reason == "callback"
    assert runtime.receive(ends(job_id, event_id=job_id)) == "seen"
    assert api.gets == []


def test_a_key_that_cannot_be_one_names_nothing(everywhere: JobApi) -> None:
    """It is kept like any event about a step that is not known."""
    runtime = everywhere.runtime(transcode(webhook=True))
    for number, key in enumerate(IDS.values()):
        assert runtime.receive(ends(None, f"e{number}", key=key)) == "kept"
