"""Rows about jobs: which run, what callbacks said of them, and what open matters somebody has heard of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import and_, delete, false, func, literal_column, or_, select, update

from agent_runtime._core.telling import ENDED
from agent_runtime._model import CallbackEvent, RunningJob
from agent_runtime._model.naming import bounded_id
from agent_runtime.ledger import _schema as t
from agent_runtime.ledger._rows import operation_record, session_record
from agent_runtime.ledger._statements import insert
from agent_runtime.ledger._store import begin_write, read_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from sqlalchemy import ColumnElement, Connection, RowMapping

    from agent_runtime._model import OperationRecord
    from agent_runtime.ledger._runner import Runner
    from agent_runtime.ledger._store import Store

T = TypeVar("T")

TELLING: Final = "telling"
"""Kind of the notice that somebody tells a job's end right now."""
TELLING_LASTS: Final = 90.0
"""Seconds after which an end that somebody began to tell is told again."""


def job_id_of(handle: bytes | None) -> str | None:
    """Return what the job id that a handle names is looked up by, where there is one."""
    try:
        told = json.loads(handle or b"null")
    except (ValueError, RecursionError):
        return None
    job_id = told.get("job_id") if isinstance(told, dict) else None
    return bounded_id(job_id) if isinstance(job_id, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DueJobs:
    """Which jobs are to be looked at.

    Attributes:
        jobs: of sessions that nobody holds, the longest due first, each with its session's actor.
        running: jobs in all, held ones too; next_at: when the next of the others is due, or None.
        now: by the database's clock (UTC epoch seconds), as all moments here.
    """

    jobs: tuple[tuple[OperationRecord, str | None], ...]
    running: int
    next_at: float | None
    now: float


class EventRows:
    """The part of a ledger that knows of jobs and their callbacks. Strictly private."""

    _runner: Runner

    def _submit(self, work: Callable[[Connection], T], *, write: bool) -> Future[T]:
        raise NotImplementedError

    def jobs(self, *, tenant: str) -> Future[list[RunningJob]]:
        """List operations whose jobs run, oldest first, each with its session."""
        return self._submit(lambda conn: _with_sessions(conn, tenant, _RUNS), write=False)

    def due_jobs(self, *, tenant: str, tools: Sequence[str], limit: int) -> Future[DueJobs]:
        """Read which jobs are to be looked at now, the longest due first."""
        store = self._runner.store
        return self._submit(lambda conn: _due(conn, tenant, tools, limit, read_clock(conn, store)), write=False)

    def untold(self, *, tenant: str) -> Future[list[RunningJob]]:
        """List operations whose jobs have ended and whose code was not told so yet, oldest first."""
        return self._submit(lambda conn: _with_sessions(conn, tenant, _UNTOLD), write=False)

    def ends_to_tell(self, *, tenant: str, tools: Sequence[str], limit: int) -> Future[list[OperationRecord]]:
        """Read ended jobs that neither the code nor ``on_end`` has heard of, nor hears of right now."""
        store = self._runner.store
        return self._submit(lambda conn: _ends(conn, tenant, tools, limit, read_clock(conn, store)), write=False)

    def claim_end(self, operation_id: str) -> Future[bool]:
        """Take the telling of a job's end for a while; False = it was told, or somebody else tells it now."""
        store = self._runner.store
        return self._submit(lambda conn: _claim_end(conn, operation_id, begin_write(conn, store)), write=True)

    def note_end(self, operation_id: str) -> Future[None]:
        """Note that ``on_end`` has heard of the end whose telling was claimed, unless it ended anew meanwhile."""
        store = self._runner.store
        return self._submit(lambda conn: _note_end(conn, operation_id, store), write=True)

    def free_end(self, operation_id: str) -> Future[None]:
        """Give the telling of a job's end back: it was not told."""
        return self._submit(lambda conn: _free_end(conn, operation_id, self._runner.store), write=True)

    def note_told(self, operation_id: str) -> Future[None]:
        """Note that the code is told how a job ended."""
        return self._submit(lambda conn: _note_told(conn, operation_id, self._runner.store), write=True)

    def keep_event(self, *, tenant: str, event: CallbackEvent) -> Future[bool]:
        """Keep a callback; False = it stands already, and its operation has been told."""
        store = self._runner.store
        return self._submit(lambda conn: _keep(conn, tenant, event, begin_write(conn, store)), write=True)

    def event_applied(self, *, tenant: str, event: CallbackEvent) -> Future[None]:
        """Note that a callback's operation has been told."""
        store = self._runner.store
        return self._submit(lambda conn: _applied(conn, tenant, event, begin_write(conn, store)), write=True)

    def operations_of_event(self, *, tenant: str, event: CallbackEvent) -> Future[list[OperationRecord]]:
        """Read the operations that a callback is about."""
        return self._submit(lambda conn: _operations_of(conn, tenant, event), write=False)

    def events_of(self, operation_id: str) -> Future[list[CallbackEvent]]:
        """Read the callbacks that an operation has not been told of yet, in the order they came."""
        return self._submit(lambda conn: _events_of(conn, operation_id), write=False)

    def heard(self, operation_ids: Sequence[str]) -> Future[set[tuple[str, str]]]:
        """Read which open matters somebody has heard of: pairs of operation id and kind."""
        return self._submit(lambda conn: _heard(conn, operation_ids), write=False)

    def note_heard(self, operation_id: str, kind: str) -> Future[None]:
        """Note that somebody has heard of an open matter."""
        store = self._runner.store
        row = {"operation_id": operation_id, "kind": kind}
        return self._submit(lambda conn: _note(conn, row | {"heard_at": begin_write(conn, store)}), write=True)


# Literal text, word for word that of the partial index: a bound value could not use it.
_RUNS: ColumnElement[bool] = literal_column(f"{t.operations.name}.state = 'accepted'")


_UNTOLD: ColumnElement[bool] = literal_column(f"{t.operations.name}.untold")


def _with_sessions(conn: Connection, tenant: str, which: ColumnElement[bool]) -> list[RunningJob]:
    row = t.operations.c
    where = and_(row.tenant == tenant, which)
    statement = select(t.operations).where(where).order_by(row.created_at, row.id)
    operations = list(map(operation_record, conn.execute(statement).mappings()))
    wanted = select(t.sessions).where(t.sessions.c.id.in_(select(row.session_id).where(where)))
    sessions = {one["id"]: session_record(one) for one in conn.execute(wanted).mappings()}
    # A session that was deleted between the two reads has no job that anybody could follow.
    return [
        RunningJob(operation=one, session=sessions[one.session_id]) for one in operations if one.session_id in sessions
    ]


def _due(conn: Connection, tenant: str, tools: Sequence[str], limit: int, now: float) -> DueJobs:
    row, session = t.operations.c, t.sessions.c
    joined = t.operations.join(t.sessions, session.id == row.session_id)
    free = or_(session.lease_until.is_(None), session.lease_until <= now)
    ours = and_(row.tenant == tenant, _RUNS, row.tool.in_(tools), row.resume_at.is_not(None), session.state == "open")
    due = select(t.operations, session.actor).select_from(joined).where(ours, free, row.resume_at <= now)
    found = conn.execute(due.order_by(row.resume_at).limit(limit)).mappings()
    jobs = tuple((operation_record(one), one["actor"]) for one in found)
    ahead = select(func.min(row.resume_at)).select_from(joined).where(ours, row.resume_at > now)
    running = conn.execute(select(func.count()).select_from(joined).where(ours)).scalar_one()
    return DueJobs(jobs=jobs, running=running, next_at=conn.execute(ahead).scalar(), now=now)


def _ends(conn: Connection, tenant: str, tools: Sequence[str], limit: int, now: float) -> list[OperationRecord]:
    row, session, step, notice = t.operations.c, t.sessions.c, t.steps.c, t.notices.c
    joined = t.operations.join(t.sessions, session.id == row.session_id)
    here = and_(step.session_id == row.session_id, step.operation_id == row.id, step.delivered.is_not(None))
    # A holder to whose code nothing was said yet still waits for the job, and tells it.
    left = or_(session.lease_until.is_(None), session.lease_until <= now, select(step.label).where(here).exists())
    telling = and_(notice.kind == TELLING, notice.heard_at > now - TELLING_LASTS)
    heard = select(notice.kind).where(notice.operation_id == row.id, or_(notice.kind == ENDED, telling)).exists()
    wanted = and_(row.tenant == tenant, _UNTOLD, row.tool.in_(tools), left, ~heard)
    statement = select(t.operations).select_from(joined).where(wanted).order_by(row.updated_at).limit(limit)
    return list(map(operation_record, conn.execute(statement).mappings()))


def _claim_end(conn: Connection, operation_id: str, now: float) -> bool:
    notice = t.notices.c
    told = select(notice.kind).where(notice.operation_id == operation_id, notice.kind == ENDED)
    if conn.execute(told).first() is not None:
        return False
    row = {"operation_id": operation_id, "kind": TELLING, "heard_at": now}
    taken = insert(conn.dialect.name, t.notices).values(row)
    taken = taken.on_conflict_do_update(
        index_elements=["operation_id", "kind"], set_={"heard_at": now}, where=notice.heard_at <= now - TELLING_LASTS
    )
    return conn.execute(taken.returning(notice.kind)).first() is not None


def _note_end(conn: Connection, operation_id: str, store: Store) -> None:
    now = begin_write(conn, store)
    notice = t.notices.c
    claim = select(notice.kind).where(notice.operation_id == operation_id, notice.kind == TELLING)
    if store.row_locks:
        claim = claim.with_for_update()
    if conn.execute(claim).first() is not None:
        _note(conn, {"operation_id": operation_id, "kind": ENDED, "heard_at": now})


def forget_told_end(conn: Connection, operation_id: str) -> None:
    """Let an end be told that comes after one that was: a job that was gone may end by its callback."""
    conn.execute(
        delete(t.notices).where(t.notices.c.operation_id == operation_id, t.notices.c.kind.in_((ENDED, TELLING)))
    )


def _free_end(conn: Connection, operation_id: str, store: Store) -> None:
    begin_write(conn, store)
    notice = t.notices.c
    conn.execute(delete(t.notices).where(notice.operation_id == operation_id, notice.kind == TELLING))


def _note_told(conn: Connection, operation_id: str, store: Store) -> None:
    begin_write(conn, store)
    conn.execute(update(t.operations).where(t.operations.c.id == operation_id).values(untold=false()))


def _keep(conn: Connection, tenant: str, event: CallbackEvent, now: float) -> bool:
    row = {
        "tenant": tenant,
        "source": event.source,
        "event_id": bounded_id(event.event_id),
        "job_id": None if event.job_id is None else bounded_id(event.job_id),
        "key": None if event.key is None else bounded_id(event.key),
        "body": event.body,
        "received_at": now,
    }
    conn.execute(insert(conn.dialect.name, t.events).values(row).on_conflict_do_nothing())
    return conn.execute(select(t.events.c.applied_at).where(_same(tenant, event))).scalar() is None


def _same(tenant: str, event: CallbackEvent) -> ColumnElement[bool]:
    column = t.events.c
    return and_(column.tenant == tenant, column.source == event.source, column.event_id == bounded_id(event.event_id))


def _applied(conn: Connection, tenant: str, event: CallbackEvent, now: float) -> None:
    conn.execute(update(t.events).where(_same(tenant, event)).values(applied_at=now))


def _operations_of(conn: Connection, tenant: str, event: CallbackEvent) -> list[OperationRecord]:
    column = t.operations.c
    about = [column.job_id == bounded_id(event.job_id)] if event.job_id is not None else []
    about += [column.key == bounded_id(event.key)] if event.key is not None else []
    statement = select(t.operations).where(column.tenant == tenant, or_(*about)).order_by(column.created_at)
    return list(map(operation_record, conn.execute(statement).mappings()))


def _events_of(conn: Connection, operation_id: str) -> list[CallbackEvent]:
    operation, event = t.operations.c, t.events.c
    about = or_(event.job_id == operation.job_id, event.key == operation.key)
    joined = t.events.join(t.operations, and_(event.tenant == operation.tenant, about))
    others = t.operations.alias()
    # A job id that jobs of several tools have names none of them; the key does.
    another = select(others.c.id).where(
        others.c.tenant == operation.tenant, others.c.job_id == operation.job_id, others.c.tool != operation.tool
    )
    clear = or_(event.key == operation.key, ~another.exists())
    where = and_(operation.id == operation_id, event.applied_at.is_(None), clear)
    statement = select(t.events).select_from(joined).where(where).order_by(event.received_at, event.event_id)
    return list(map(_event, conn.execute(statement).mappings()))


def _event(row: RowMapping) -> CallbackEvent:
    return CallbackEvent(
        source=row["source"],
        event_id=row["event_id"],
        job_id=row["job_id"],
        key=row["key"],
        body=bytes(row["body"]),
        received_at=row["received_at"],
        tenant=row["tenant"],
    )


def _heard(conn: Connection, operation_ids: Sequence[str]) -> set[tuple[str, str]]:
    statement = select(t.notices.c.operation_id, t.notices.c.kind).where(t.notices.c.operation_id.in_(operation_ids))
    return {(row.operation_id, row.kind) for row in conn.execute(statement)}


def _note(conn: Connection, row: Mapping[str, Any]) -> None:
    conn.execute(insert(conn.dialect.name, t.notices).values(row).on_conflict_do_nothing())
