"""The world in memory with what jobs need: callbacks that are kept, listeners, streams of events."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent_runtime import ToolContract
from agent_runtime._core.desk import Following
from agent_runtime._core.effects import CloseStream, NextEvent, Send, Sleep, Tell
from agent_runtime._core.run import Run
from agent_runtime._model import (
    CallbackEvent,
    EvidenceRecord,
    File,
    Handle,
    NewEvidence,
    OperationRecord,
    RunningJob,
    ServerEvent,
    State,
    WriteOutcome,
)
from agent_runtime.config import PollPolicy
from tests.core.world import (
    KEYED,
    START,
    Clock,
    MemoryLedger,
    World,
    call_of,
    json_answer,
    make_call,
    scripted,
    tool_of,
)

if TYPE_CHECKING:
    from agent_runtime._model import Answer, Write

ORIGIN = "https://tools.test"
JOB_URL = f"{ORIGIN}/v1/jobs/job_7f21c"
STARTED = {
    "status": "processing",
    "job_id": "job_7f21c",
    "message": "It has STARTED and is NOT done. Do not report success.",
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
    "message": "Still at work.",
}
ENDS = {
    "job_id": "job_7f21c",
    "status": "succeeded",
    "done": True,
    "result": {"output_url": "https://cdn.example.com/out/7f21c.mp4", "duration_seconds": 372},
}
PARTLY = {
    "job_id": "job_7f21c",
    "status": "completed_with_errors",
    "done": True,
    "summary": {"processed": 20000, "succeeded": 19860, "failed": 140},
    "errors_url": "/v1/jobs/job_7f21c/errors?limit=50",
    "message": "140 rows failed and were not written.",
}


class Filed(list[tuple[str, NewEvidence]]):
    """What was filed, and the ledger's way to read it."""

    def __call__(self, operation_id: str) -> Future[list[EvidenceRecord]]:
        """Read what was filed for an operation."""
        names = ("kind", "attempt", "status", "headers", "body", "detail", "by")
        found = [seen for identity, seen in self if identity == operation_id]
        given = [{name: getattr(seen, name) for name in names} for seen in found]
        return _done([EvidenceRecord(operation_id=operation_id, at=0.0, **one) for one in given])


class JobLedger(MemoryLedger):
    """Rows of a session with callbacks, notices and what is open."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.evidence = Filed()
        self.events: dict[tuple[str, str], CallbackEvent] = {}
        self.applied: set[tuple[str, str]] = set()
        self.notices: set[tuple[str, str]] = set()

    def write(self, entry: Write) -> WriteOutcome:
        """Apply one entry; what is filed against an end marks it."""
        if isinstance(entry, File) and entry.contradicts:
            row = self.operations[entry.operation_id]
            self.operations[row.id] = replace(row, contradicted=True)
        return super().write(entry)

    def keep_event(self, *, tenant: str, event: CallbackEvent) -> Future[bool]:
        """Keep a callback once; False = its operation has been told."""
        name = event.source, event.event_id
        self.events.setdefault(name, replace(event, tenant=tenant))
        return _done(name not in self.applied)

    def event_applied(self, *, tenant: str, event: CallbackEvent) -> Future[None]:
        """Note that a callback's operation has been told."""
        return _done(self.applied.add((event.source, event.event_id)))

    def operations_of_event(self, *, tenant: str, event: CallbackEvent) -> Future[list[OperationRecord]]:
        """Read the operations of a callback's key or job id."""
        return _done([row for row in self.operations.values() if _about(event, row)])

    def events_of(self, operation_id: str) -> Future[list[CallbackEvent]]:
        """Read the callbacks that an operation has not been told of."""
        row = self.operations[operation_id]
        waiting = [event for name, event in self.events.items() if name not in self.applied]
        return _done([event for event in waiting if _about(event, row)])

    def attention(self, *, tenant: str) -> Future[list[OperationRecord]]:
        """Read what is unknown or contradicted."""
        return _done([row for row in self.operations.values() if row.state is State.UNKNOWN or row.contradicted])

    def jobs(self, *, tenant: str) -> Future[list[RunningJob]]:
        """Read the operations whose jobs run."""
        session = self.loaded().session
        rows = [row for row in self.operations.values() if row.state is State.ACCEPTED]
        return _done([RunningJob(operation=row, session=session) for row in rows])

    def heard(self, operation_ids: list[str]) -> Future[set[tuple[str, str]]]:
        """Read the notices of these operations."""
        return _done({notice for notice in self.notices if notice[0] in operation_ids})

    def note_told(self, operation_id: str) -> Future[None]:
        """Note that the code is told how a job ended."""
        self.operations[operation_id] = replace(self.operations[operation_id], untold=False)
        return _done(None)

    def claim_end(self, operation_id: str) -> Future[bool]:
        """Take the telling of an end; False = it was told, or is being told."""
        taken = not {(operation_id, "ended"), (operation_id, "telling")} & self.notices
        self.notices.add((operation_id, "telling"))
        return _done(taken)

    def note_end(self, operation_id: str) -> Future[None]:
        """Note that an end was heard of."""
        self.notices.add((operation_id, "ended"))
        return _done(None)

    def free_end(self, operation_id: str) -> Future[None]:
        """Give the telling of an end back."""
        self.notices.discard((operation_id, "telling"))
        return _done(None)

    def note_heard(self, operation_id: str, kind: str) -> Future[None]:
        """Note that somebody has heard of a matter."""
        self.notices.add((operation_id, kind))
        return _done(None)


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def _about(event: CallbackEvent, row: OperationRecord) -> bool:
    job_id = json.loads(row.handle or b"{}").get("job_id")
    return event.key == row.key or (job_id is not None and event.job_id == job_id)


@dataclass
class JobWorld(World):
    """A process with streams and listeners.

    Attributes:
        stream: what `NextEvent` gives, one after another: an event, an exception to raise, or seconds that pass before
            the one after it; when it is empty the stream is over.
        closed: streams that were let go.
    """

    stream: list[Any] = field(default_factory=list)
    closed: int = 0

    def perform(self, effect: Any) -> Any:
        """Perform one effect."""
        match effect:
            case Tell():
                effect.listener(effect.seen)
                return None
            case NextEvent():
                return self._next_event()
            case CloseStream():
                self.closed += 1
                return None
        return super().perform(effect)

    def _next_event(self) -> ServerEvent | None:
        while self.stream and isinstance(self.stream[0], float):
            self.ledger.clock.now += self.stream.pop(0)
        if not self.stream:
            return None
        given = self.stream.pop(0)
        if isinstance(given, BaseException):
            raise given
        return ServerEvent(data=given if isinstance(given, str) else json.dumps(given))

    @property
    def row(self) -> OperationRecord:
        """The one operation."""
        (row,) = self.ledger.operations.values()
        return row

    @property
    def handle(self) -> dict[str, Any]:
        """What the one operation's handle holds."""
        return json.loads(self.row.handle)

    @property
    def polls(self) -> list[Send]:
        """The requests that went out without a key."""
        return [one for one in self.effects if isinstance(one, Send) and one not in self.sends]

    @property
    def waits(self) -> list[float]:
        """Seconds of each wait, in order."""
        return [effect.seconds for effect in self.effects if isinstance(effect, Sleep)]


def job_tool(contract: ToolContract = KEYED, **policy: Any) -> Any:
    """Return a tool whose jobs are followed by this policy."""
    return tool_of(replace(contract, polling=PollPolicy(**policy)))


def world_of(*answers: Any, **more: Any) -> JobWorld:
    """Return a world with an empty ledger; the last answer stays."""
    return JobWorld(JobLedger(Clock()), scripted(*answers), **more)


def started(value: Any = STARTED, *, status: int = 202, headers: dict[str, str] | None = None) -> Answer:
    """Return the answer that starts a job."""
    return json_answer(status, value, tuple((headers or {}).items()))


def call_it(world: JobWorld, tool: Any, mode: Any = "wait", **following: Any) -> Any:
    """Call the tool once and return the outcome."""
    return make_call(world, world.desk(), call_of(tool, following=Following(mode, **following)))


def followed(*polls: Any, start: Any = None, tool: Any = None, **more: Any) -> JobWorld:
    """Start a job and follow it over these answers to its polls."""
    world = world_of(started() if start is None else start, *polls, **more)
    call_it(world, job_tool() if tool is None else tool)
    return world


def left(tool: Any, start: Any = None, *polls: Any, **more: Any) -> JobWorld:
    """Start a job and leave it running."""
    world = world_of(started() if start is None else start, *polls, **more)
    call_it(world, tool, "detach")
    assert world.row.state is State.ACCEPTED
    return world


def run_of(world: JobWorld, tool: Any, operation: OperationRecord | None = None, **more: Any) -> Run:
    """Return a new try of a process at an operation, the only one if none is named."""
    return Run(operation=operation or world.row, tool=tool, fence=world.ledger.fence, body_limit=1 << 20, **more)


def rewrite(world: JobWorld, handle: dict[str, Any] | None = None, **columns: Any) -> None:
    """Change the one row behind the process's back."""
    row = world.row
    if handle is not None:
        columns["handle"] = json.dumps(world.handle | handle).encode()
    world.ledger.operations[row.id] = replace(row, **columns, version=row.version + 1)


def callback(value: Any = ENDS, *, event_id: str = "e1", source: str = "default", **about: Any) -> CallbackEvent:
    """Return a verified callback about the sources' job."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    about = about or {"job_id": "job_7f21c"}
    given = {"job_id": None, "key": None, "received_at": START + 100.0, **about}
    return CallbackEvent(source=source, event_id=event_id, body=body, **given)


def handle(protocol: str = "body", **more: Any) -> Handle:
    """Return a handle of the sources' job."""
    given = {"url": JOB_URL, "job_id": "job_7f21c", "started_at": START, **more}
    return Handle(protocol=protocol, **given)
