"""A tool with jobs, scripted: the source's bodies, its bad days, and what it saw."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import httpx

from agent_runtime import Idempotency, PollPolicy, Tool, ToolContract

if TYPE_CHECKING:
    from tests.session.stage import Stage

ORIGIN = "https://tools.example.com"
START = {
    "status": "processing",
    "job_id": "job_7f21c",
    "message": "Transcoding has STARTED and is NOT finished.",
    "poll_after_seconds": 30,
    "estimated_duration_seconds": 240,
    "status_url": "/v1/jobs/job_7f21c",
}
RUNS = {
    "job_id": "job_7f21c",
    "status": "processing",
    "done": False,
    "progress_percent": 45,
    "poll_after_seconds": 45,
    "message": "Still running. Do not go on to the next step.",
}
PLAIN_RUNS = {"job_id": "job_7f21c", "status": "processing", "done": False}
RESULT = {"output_url": "https://cdn.example.com/out/7f21c.mp4", "duration_seconds": 372}
DONE = {"job_id": "job_7f21c", "status": "succeeded", "done": True, "result": RESULT}
ERROR = {"code": "codec", "detail": "no such codec"}
FAILED = {"job_id": "job_7f21c", "status": "failed", "done": True, "error": ERROR}
PARTIAL = {
    "job_id": "job_7f21c",
    "status": "completed_with_errors",
    "done": True,
    "summary": {"processed": 20000, "succeeded": 19860, "failed": 140},
    "errors_url": "/v1/jobs/job_7f21c/errors?limit=50",
    "message": "The import is done. 140 rows failed and were not written.",
}
DOWN = httpx.ConnectError("refused")
CUT = httpx.ReadError("cut")


def start(**changed: Any) -> dict[str, Any]:
    """Return the start's body with members changed; None takes one out."""
    return {name: value for name, value in (START | changed).items() if value is not None}


def transcode(name: str = "transcode", **policy: Any) -> Any:
    """Return the tool that starts jobs."""
    contract = ToolContract(idempotency=Idempotency(), polling=PollPolicy(**policy))
    return Tool(name, url=f"{ORIGIN}/v1/{name}", contract=contract)


def answer_of(entry: Any, status: int = 200) -> httpx.Response:
    """Return a scripted entry as an answer; an error is raised."""
    if isinstance(entry, Exception):
        raise entry
    if isinstance(entry, httpx.Response) and not entry.is_stream_consumed:
        return entry  # it is read as it comes, by one request
    if isinstance(entry, httpx.Response):
        return httpx.Response(entry.status_code, headers=entry.headers, content=entry.content)
    return httpx.Response(entry) if isinstance(entry, int) else httpx.Response(status, json=entry)


class JobApi:
    """The tool: its starts and polls are scripted, the last entry of a script stays.

    Attributes:
        starts, polls: scripts; a dict is a body, a number a status, an error is raised, a function is called.
        pages: answers to GETs of other paths.
        seen: all requests with the clock's time.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.starts: deque[Any] = deque([START])
        self.polls: deque[Any] = deque([DONE])
        self.pages: dict[str, Any] = {}
        self.seen: list[tuple[httpx.Request, float]] = []
        self._kept: dict[str, httpx.Response] = {}
        self.by_path: defaultdict[str, int] = defaultdict(int)

    def script(self, *polls: Any) -> None:
        """Say what the polls answer."""
        self.polls = deque(polls)

    @property
    def posts(self) -> int:
        """How many requests wanted an effect."""
        return sum(request.method == "POST" for request, _ in self.seen)

    @property
    def gets(self) -> list[tuple[httpx.Request, float]]:
        """The GETs with their times."""
        return [(request, at) for request, at in self.seen if request.method == "GET"]

    @property
    def waits(self) -> list[float]:
        """Seconds between the requests."""
        times = [at for _, at in self.seen]
        return [round(later - before, 3) for before, later in itertools.pairwise(times)]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append((request, self.stage.clock.wall()))
        self.by_path[request.url.path] += 1
        if request.method == "POST" and "Idempotency-Key" in request.headers:
            key = request.headers["Idempotency-Key"]
            if key not in self._kept:
                entry = self._next(self.starts)
                self._kept[key] = answer_of(entry(request) if callable(entry) else entry, 202)
            return answer_of(self._kept[key])
        page = self.pages.get(request.url.path)
        entry = page if page is not None else self._next(self.polls)
        return answer_of(entry(request) if callable(entry) else entry)

    def _next(self, script: deque[Any]) -> Any:
        return script.popleft() if len(script) > 1 else script[0]

    def runtime(self, *tools: Any, **settings: Any) -> Any:
        """Make a runtime of the stage's face whose requests come here."""
        client = httpx.AsyncClient if self.stage.is_async else httpx.Client
        return self.stage.runtime(*tools, client=client(transport=httpx.MockTransport(self)), **settings)


def body(value: Any) -> bytes:
    """Return JSON bytes."""
    return json.dumps(value).encode()
