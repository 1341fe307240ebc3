"""Rows of the ledger as plain values: nothing in them does I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from agent_runtime._model.http import Headers, Request
    from agent_runtime._model.states import Effect, Reason, ResultState, SessionState, State


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """One session. Times are UTC epoch seconds by the database's clock."""

    id: str
    alias: str | None
    tenant: str
    actor: str | None
    state: SessionState
    input_digest: str | None
    fence: int
    created_at: float
    ended_at: float | None = None
    owner: str | None = None
    lease_until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRecord:
    """One intended effect of one tool with one set of args. Times are UTC epoch seconds by the database's clock.

    Attributes:
        args: the caller's args as canonical JSON; ``fingerprint`` is over them, ``args_hash`` over the body as sent.
        request: frozen request, or None for a function tool.
        maybe_applied: an attempt that is closed may have taken effect, or the tool said that one runs.
        no_resend: an answer came after which a resend could double the effect; only look-ups and people settle it.
        first_sent_at: when the first attempt began; the key's age counts from here.
        first_maybe_at: when the first attempt that may have reached the tool began.
        last_deadline: when the last attempt could at the latest still have been arriving.
        absences, absent_since: look-ups in a row that found nothing, and when the first of them was.
        result: body bytes of the end, ``result_status`` its HTTP status; error: JSON of what went wrong.
        handle: JSON of what is needed to follow a job.
        untold: its job has ended, or is gone, and the code was not told so yet.
        version: grows with each write; a write names the version it saw.
    """

    id: str
    session_id: str
    label: str
    tool: str
    kind: Literal["read", "write"]
    args: bytes
    fingerprint: str
    args_hash: str
    scheme: str
    key: str
    key_format: str
    carrier: str
    key_lifetime: float
    request: Request | None
    principal: str
    contract_version: str
    state: State
    version: int
    created_at: float
    updated_at: float
    reason: Reason | None = None
    effect: Effect | None = None
    result_state: ResultState | None = None
    partial: bool = False
    contradicted: bool = False
    attempts: int = 0
    maybe_applied: bool = False
    no_resend: bool = False
    server_replayed: bool = False
    first_sent_at: float | None = None
    first_maybe_at: float | None = None
    last_deadline: float | None = None
    absences: int = 0
    absent_since: float | None = None
    resume_at: float | None = None
    expires_at: float | None = None
    result: bytes | None = None
    result_status: int | None = None
    error: bytes | None = None
    handle: bytes | None = None
    untold: bool = False
    business_key: str | None = None
    origin: str = ""
    reissue_of: str | None = None


StepKind = Literal["call", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """A position with its operation.

    Attributes:
        seq: order of reservation in the session, from 1.
        kind: ``refused`` = recorded as not started, points to no operation.
        delivered: JSON of the unsettled outcome that the code was given here, or None.
        delivered_seq: the highest ``seq`` of the session when it was given; the code went on after it if a later
            position of the branch has a higher one.
        address: external position given with ``at=``, if any.
    """

    session_id: str
    label: str
    branch: str
    index: int
    seq: int
    kind: StepKind
    tool: str
    fingerprint: str
    args_hash: str
    operation_id: str | None = None
    delivered: bytes | None = None
    delivered_seq: int | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRecord:
    """A value that the code took from ``session.record``: JSON text by branch, name and count."""

    session_id: str
    branch: str
    name: str
    index: int
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One request for an operation; append-only."""

    operation_id: str
    number: int
    fence: int
    started_at: float
    purpose: Literal["send", "resend", "invoke"] = "send"


EvidenceKind = Literal["answer", "no_answer", "lookup", "poll", "decision", "late", "webhook"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRecord:
    """Something that was seen about an operation; append-only. ``attempt`` is 0 where it belongs to none."""

    operation_id: str
    kind: EvidenceKind
    at: float
    attempt: int = 0
    status: int | None = None
    headers: Headers = ()
    body: bytes = b""
    detail: str = ""
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """An operation with a job, with its session; the job runs, or has ended and the code was not told yet."""

    operation: OperationRecord
    session: SessionRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """All of one session, read in one transaction. ``now`` is the database's clock (UTC epoch seconds)."""

    session: SessionRecord
    steps: tuple[StepRecord, ...]
    operations: tuple[OperationRecord, ...]
    values: tuple[ValueRecord, ...]
    now: float
