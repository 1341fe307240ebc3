"""Slow tools: a 202 with a job, its status, its errors, its stream, its callbacks; how it goes is ordered.

A job's state follows from the clock and from how often it was asked for: nothing runs in the background but callbacks.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Literal

import httpx
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict

from examples.tool_backend.answers import Answer, json_answer, problem
from examples.tool_backend.store import PREFIX
from examples.tool_backend.tools import Call, Tool

if TYPE_CHECKING:
    from redis.asyncio import Redis

End = Literal["succeeded", "completed_with_errors", "failed", "never"]
CALLBACK_SECONDS = 120.0  # a sender that soon gives up loses what a receiver could not take while it started anew
CALLBACK_PAUSE = 0.1
LONGEST_PAUSE = 0.5


class JobScript(BaseModel):
    """How the jobs of a tool go.

    Attributes:
        seconds: how long one takes; ``polls``: it ends at the poll after so many, whatever the clock says.
        end: how it ends.
        poll_after: what an answer asks for, in seconds; None = nothing.
        estimated: what the start says, in seconds; None = nothing.
        link: the status URL comes in the body, as ``Location``, or not at all.
        stream_breaks: the stream ends after so many events, though the job goes on.
        callback_url, secret: where its end is told, signed by Standard Webhooks.
        callback_times: how often that is delivered, under the same id.
        callback_first: it is told before the start is answered.
        thin: the callback tells no result.
    """

    model_config = ConfigDict(extra="forbid")

    tool: str
    seconds: float = 0.2
    polls: int | None = None
    end: End = "succeeded"
    result: dict[str, Any] | None = None
    rows: int = 20_000
    rejected: int = 140
    poll_after: float | None = 0.05
    estimated: float | None = 240
    link: Literal["body", "location", "none"] = "body"
    tick: float = 0.05
    stream_breaks: int | None = None
    callback_url: str | None = None
    secret: str = "whsec_Y2FuYXJ5OiBzaWducyBjYWxsYmFja3M="
    callback_times: int = 1
    callback_first: bool = False
    thin: bool = False


class JobOrder(BaseModel):
    """Arguments of the slow tools: anything."""

    model_config = ConfigDict(extra="allow")


class Jobs:
    """All jobs and how they are ordered to go, in Valkey: a restart loses none."""

    def __init__(self, valkey: Redis) -> None:
        self._valkey = valkey
        self._callbacks: set[asyncio.Task[None]] = set()

    async def order(self, script: JobScript) -> None:
        """Say how the next jobs of a tool go."""
        await self._valkey.set(f"{PREFIX}job-script:{script.tool}", script.model_dump_json())

    async def start(self, tool: str, args: dict[str, Any]) -> tuple[str, JobScript]:
        """Make a job; return its id and how it goes."""
        told = await self._valkey.get(f"{PREFIX}job-script:{tool}")
        script = JobScript.model_validate_json(told) if told else JobScript(tool=tool)
        job_id = f"job_{uuid.uuid4().hex[:8]}"
        entry = {"script": script.model_dump_json(), "args": json.dumps(args), "at": repr(time.time()), "polls": 0}
        await self._valkey.hset(_entry(job_id), mapping=entry)
        if script.callback_url is not None:
            telling = self._tell(job_id, script)
            if script.callback_first:
                await telling
            else:
                task = asyncio.create_task(telling)
                self._callbacks.add(task)
                task.add_done_callback(self._callbacks.discard)
        return job_id, script

    async def status(self, job_id: str, *, counts: bool = True) -> dict[str, Any] | None:
        """Return a job's status body, or None if there is no such job. ``counts``: this is a poll."""
        entry = await self._valkey.hgetall(_entry(job_id))
        if not entry:
            return None
        polls = int(await self._valkey.hincrby(_entry(job_id), "polls", 1)) if counts else int(entry[b"polls"])
        script = JobScript.model_validate_json(entry[b"script"])
        elapsed = time.time() - float(entry[b"at"])
        if b"cancelled" in entry:
            return {"job_id": job_id, "status": "cancelled", "done": True}
        over = polls > script.polls if script.polls is not None else elapsed >= script.seconds
        if script.end != "never" and over:
            return _ended(job_id, script)
        share = polls / (script.polls + 1) if script.polls is not None else elapsed / max(script.seconds, 0.001)
        body = {
            "job_id": job_id,
            "status": "processing",
            "done": False,
            "progress_percent": min(99, round(100 * share)),
            "elapsed_seconds": round(elapsed, 3),
            "message": "Still running. Do not go on to the next step.",
        }
        return body if script.poll_after is None else {**body, "poll_after_seconds": script.poll_after}

    async def polls(self, job_id: str) -> int:
        """Return how often a job was asked for."""
        return int(await self._valkey.hget(_entry(job_id), "polls") or 0)

    async def errors(self, job_id: str, limit: int) -> list[dict[str, Any]]:
        """Return rejected rows, so many at most."""
        entry = await self._valkey.hget(_entry(job_id), "script")
        script = JobScript.model_validate_json(entry)
        first = script.rows * 7 // 10
        return [{"row": first + n, "error": "date is not ISO 8601"} for n in range(min(limit, script.rejected))]

    async def cancel(self, job_id: str) -> None:
        """Stop a job."""
        await self._valkey.hset(_entry(job_id), "cancelled", 1)

    async def events(self, job_id: str) -> AsyncIterator[str]:
        """Yield a job's status as server-sent events until it ends, or the stream is ordered to break."""
        entry = await self._valkey.hget(_entry(job_id), "script")
        script = JobScript.model_validate_json(entry)
        sent = 0
        while script.stream_breaks is None or sent < script.stream_breaks:
            body = await self.status(job_id, counts=False)
            assert body is not None
            yield f"id: {sent}\nevent: progress\ndata: {json.dumps(body)}\n\n"
            sent += 1
            if body["done"]:
                return
            yield ": still here\n\n"
            await asyncio.sleep(script.tick)

    async def _tell(self, job_id: str, script: JobScript) -> None:
        """Tell a job's end: the same event until it was taken, and as often again as is ordered."""
        if not script.callback_first:
            await asyncio.sleep(script.seconds)
        event_id = f"msg_{job_id}"
        data = _ended(job_id, script)
        if script.thin:
            data = {name: value for name, value in data.items() if name not in {"result", "summary"}}
        body = json.dumps({"type": "job.completed", "data": data}).encode()
        taken, pause, last = 0, CALLBACK_PAUSE, time.monotonic() + CALLBACK_SECONDS
        async with httpx.AsyncClient(trust_env=False) as client:
            while time.monotonic() < last:
                headers = {"Content-Type": "application/json", **signed(script.secret, event_id, body)}
                try:
                    answer = await client.post(str(script.callback_url), content=body, headers=headers)
                    taken += answer.is_success
                except httpx.HTTPError:
                    pass
                if taken >= script.callback_times:
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 1.2, LONGEST_PAUSE)


def signed(secret: str, event_id: str, body: bytes) -> dict[str, str]:
    """Return the headers of a callback by Standard Webhooks."""
    stamp = str(int(time.time()))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, b".".join((event_id.encode(), stamp.encode(), body)), hashlib.sha256)
    signature = "v1," + base64.b64encode(digest).decode()
    return {"webhook-id": event_id, "webhook-timestamp": stamp, "webhook-signature": signature}


def _ended(job_id: str, script: JobScript) -> dict[str, Any]:
    body: dict[str, Any] = {"job_id": job_id, "status": script.end, "done": True}
    if script.end == "failed":
        return {**body, "error": {"code": "disk_full", "detail": "no space left for the output"}}
    if script.end == "completed_with_errors":
        summary = {"processed": script.rows, "succeeded": script.rows - script.rejected, "failed": script.rejected}
        message = f"Done. {script.rejected} rows failed and were not written. Review them before reporting success."
        return {**body, "summary": summary, "errors_url": f"/v1/jobs/{job_id}/errors?limit=50", "message": message}
    result = script.result or {"output_url": f"https://cdn.example.com/out/{job_id}.mp4", "duration_seconds": 372}
    return {**body, "result": result}


def _entry(job_id: str) -> str:
    return f"{PREFIX}job:{job_id}"


async def start_job(call: Call[JobOrder]) -> Answer:
    """Start a job and answer 202 at once, in words that a model cannot take for an end."""
    async with call.effect() as effect:
        await call.world.record(effect)
    job_id, script = await call.world.jobs.start(call.tool, call.args)
    url = f"/v1/jobs/{job_id}"
    body: dict[str, Any] = {
        "status": "processing",
        "job_id": job_id,
        "message": "The job has STARTED and is NOT finished. Do not report success.",
        "events_url": f"{url}/events",
    }
    told = {"poll_after_seconds": script.poll_after, "estimated_duration_seconds": script.estimated}
    body |= {name: value for name, value in told.items() if value is not None}
    if script.link == "body":
        body["status_url"] = url
    answer = json_answer(body, status=202)
    if script.link == "location":
        return Answer(answer.status, answer.body, (*answer.headers, ("Location", url)))
    return answer


JOB_TOOLS = (
    Tool("transcode", "/v1/transcode", JobOrder, start_job),
    Tool("report", "/v1/reports", JobOrder, start_job),
    Tool("import", "/v1/imports", JobOrder, start_job),
    Tool("build", "/v1/builds", JobOrder, start_job),
)
STATUS_TOOL = "job-status"


def no_such_job(job_id: str) -> Answer:
    """Return the answer for a job that is not known."""
    return problem(404, "unknown-job", f"There is no job {job_id}.")


def stream_of(events: AsyncIterator[str]) -> StreamingResponse:
    """Return events as a stream."""
    return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
