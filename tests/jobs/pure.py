"""The core's world in memory, with callbacks, listeners and streams."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from agent_runtime import Idempotency, PollPolicy, ToolContract
from agent_runtime._core.effects import CloseStream, Job, NextEvent, Tell
from agent_runtime._model import CallbackEvent, RunningJob, ServerEvent
from tests.core.world import Clock, MemoryLedger, World, call_of, json_answer, make_call, tool_of

START = {"job_id": "j1", "status_url": "/jobs/1"}


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


@dataclass
class Events:
    """The part of a ledger that knows of jobs and callbacks."""

    rows: dict[str, Any]
    events: dict[tuple[str, str], CallbackEvent] = field(default_factory=dict)
    told: set[tuple[str, str]] = field(default_factory=set)
    notices: set[tuple[str, str]] = field(default_factory=set)

    def keep_event(self, *, tenant: str, event: CallbackEvent) -> Future[bool]:
        self.events.setdefault((event.source, event.event_id), event)
        return done((event.source, event.event_id) not in self.told)

    def event_applied(self, *, tenant: str, event: CallbackEvent) -> Future[None]:
        return done(self.told.add((event.source, event.event_id)))

    def operations_of_event(self, *, tenant: str, event: CallbackEvent) -> Future[list[Any]]:
        return done(list(self.rows.values()))

    def events_of(self, operation_id: str) -> Future[list[CallbackEvent]]:
        return done([one for key, one in self.events.items() if key not in self.told])

    def attention(self, *, tenant: str) -> Future[list[Any]]:
        return done([one for one in self.rows.values() if one.state == "unknown" or one.contradicted])

    def jobs(self, *, tenant: str) -> Future[list[RunningJob]]:
        rows = [one for one in self.rows.values() if one.state == "accepted"]
        return done([RunningJob(operation=one, session=None) for one in rows])

    def heard(self, operation_ids: Any) -> Future[set[tuple[str, str]]]:
        return done(set(self.notices))

    def note_heard(self, operation_id: str, kind: str) -> Future[None]:
        return done(self.notices.add((operation_id, kind)))


@dataclass
class JobWorld(World):
    """A world with jobs; ``stream`` holds what the stream says, None at its end."""

    stream: list[ServerEvent | None] = field(default_factory=list)
    closed: int = 0
    kept: Events | None = None

    def perform(self, effect: Any) -> Any:
        match effect:
            case Job():
                if self.kept is None:
                    self.kept = Events(self.ledger.operations)
                return effect.start(self.kept).result(0)
            case Tell():
                return effect.listener(effect.seen)
            case NextEvent():
                return self.stream.pop(0)
            case CloseStream():
                self.closed += 1
                return None
            case _:
                return super().perform(effect)


def world_of(*answers: Any, start: Any = None, **more: Any) -> JobWorld:
    """Return a world whose tool starts a job and then gives these answers to GETs; the last one stays."""
    left = list(answers)

    def answer(effect: Any) -> Any:
        if effect.request.method == "POST" and any(name == "Idempotency-Key" for name, _ in effect.request.headers):
            return start if start is not None else json_answer(202, START)
        given = left.pop(0) if len(left) > 1 else left[0]
        return given(effect) if callable(given) else given

    return JobWorld(MemoryLedger(Clock()), answer, **more)


def job_tool(**policy: Any) -> Any:
    return tool_of(ToolContract(idempotency=Idempotency(), polling=PollPolicy(**policy)))


def run(world: JobWorld, tool: Any, **following: Any) -> Any:
    """Make one call and return its outcome."""
    return make_call(world, world.desk(), call_of(tool, **following))


def row_of(world: JobWorld) -> Any:
    (row,) = world.ledger.operations.values()
    return row
