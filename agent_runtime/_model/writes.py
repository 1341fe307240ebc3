"""What may be written to the ledger: one entry changes one session's rows, all of it or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent_runtime._model.http import Headers, Request
    from agent_runtime._model.records import (
        EvidenceKind,
        OperationRecord,
        StepKind,
    )
    from agent_runtime._model.states import Effect, Reason, ResultState, SessionState, State


class Unset(Enum):
    """Stands for a column that a change leaves alone."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOperation:
    """An operation to be made in state ``ready``."""

    id: str
    label: str
    tool: str
    kind: str
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
    origin: str
    business_key: str | None = None
    expires_at: float | None = None
    reissue_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStep:
    """A position to be taken; ``takes_over`` replaces a ``refused`` one that stands there.

    ``operation_id`` is None exactly for kind ``refused``. ``address`` goes to the table of claims.
    """

    label: str
    branch: str
    index: int
    seq: int
    kind: StepKind
    tool: str
    fingerprint: str
    args_hash: str
    operation_id: str | None
    address: str | None = None
    takes_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAttempt:
    """The attempt that begins with this write. ``deadline``: seconds from now until it cannot be arriving any more."""

    number: int
    purpose: str
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvidence:
    """Something seen; filed with the write that draws the conclusion, or alone (`File`)."""

    kind: EvidenceKind
    attempt: int = 0
    status: int | None = None
    headers: Headers = ()
    body: bytes = b""
    detail: str = ""
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """New values of an operation's columns; what is UNSET stays.

    Attributes:
        mark_sent: set ``first_sent_at`` to now if it is null.
        mark_maybe: set ``maybe_applied``, and ``first_maybe_at`` to the start of the last attempt if it is null.
        mark_absent: count one absence more, and set ``absent_since`` to now if it is null.
        clear_absent: forget the absences.
        mark_taken_over: nobody stands behind the attempt any more: ``last_deadline`` is now, or later if it was.
        clear_maybe: every attempt is proven not applied: unset ``maybe_applied``, ``first_maybe_at``, the absences.
    """

    state: State | Unset = UNSET
    reason: Reason | None | Unset = UNSET
    effect: Effect | None | Unset = UNSET
    result_state: ResultState | None | Unset = UNSET
    partial: bool | Unset = UNSET
    contradicted: bool | Unset = UNSET
    no_resend: bool | Unset = UNSET
    server_replayed: bool | Unset = UNSET
    resume_at: float | None | Unset = UNSET
    result: bytes | None | Unset = UNSET
    result_status: int | None | Unset = UNSET
    error: bytes | None | Unset = UNSET
    handle: bytes | None | Unset = UNSET
    mark_sent: bool = False
    mark_maybe: bool = False
    mark_absent: bool = False
    clear_absent: bool = False
    clear_maybe: bool = False
    mark_taken_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Make operations (state ``ready``) and take positions, all in one; fenced."""

    write_id: str
    session_id: str
    fence: int
    operations: tuple[NewOperation, ...]
    steps: tuple[NewStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """Change one operation if it still has the version that was seen.

    ``fence`` is None where no lease is needed: a person's decision, a callback, a look at a job that nobody holds. An
    operation that is settled is never changed; what speaks against its end is filed (`File`).
    """

    write_id: str
    session_id: str
    fence: int | None
    operation_id: str
    expect_version: int
    change: Change
    attempt: NewAttempt | None = None
    evidence: tuple[NewEvidence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """Note on a step the unsettled outcome that the code was given, or with None that it was given the end; fenced."""

    write_id: str
    session_id: str
    fence: int
    label: str
    delivered: bytes | None
    delivered_seq: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PutValue:
    """Keep a value of ``session.record``; the first one kept stays; fenced."""

    write_id: str
    session_id: str
    fence: int
    branch: str
    name: str
    index: int
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """Keep late evidence: append-only and unfenced, so that a worker that lost its lease can still say what it saw.

    If ``contradicts`` is set and the operation is settled, it is marked ``contradicted``.
    """

    write_id: str
    session_id: str
    operation_id: str
    evidence: NewEvidence
    contradicts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSession:
    """Finish or cancel a session; fenced. Refused (`STATE_CONFLICT`) while an operation of it is unsettled."""

    write_id: str
    session_id: str
    fence: int
    state: SessionState


Write = Reserve | Advance | Deliver | PutValue | File | EndSession


class Took(StrEnum):
    """What became of a write."""

    TOOK = "took"
    FENCE_LOST = "fence_lost"  # another owner holds the session, or it is gone
    STATE_CONFLICT = "state_conflict"  # the row is not as it was seen
    POSITION_TAKEN = "position_taken"  # label, branch and index, seq or address stand already
    KEY_IN_USE = "key_in_use"  # key or business key stands already
    REFUSED = "refused"  # the database cannot hold this entry; ``error`` says why


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome:
    """What became of one write, told apart by reading back in the same transaction.

    Attributes:
        now: the database's clock in that transaction (UTC epoch seconds).
        operation: `Advance` and `File`: the row as it stands now. `KEY_IN_USE`: the row that holds the key.
        operations: `Reserve` that took: the new rows, in order.
        error: why the database cannot hold the entry.
    """

    write_id: str
    took: Took
    now: float
    operation: OperationRecord | None = None
    operations: tuple[OperationRecord, ...] = ()
    error: str = ""
