"""The seam between the ledger and what uses it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from agent_runtime._model import (
        AttemptRecord,
        CallbackEvent,
        EvidenceRecord,
        Loaded,
        OperationRecord,
        RunningJob,
        SessionRecord,
        SessionState,
        Write,
        WriteOutcome,
    )
    from agent_runtime._model.tokens import TokenHold, TokenRecord
    from agent_runtime.ledger._events import DueJobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who holds a lease: a Session object in a process of a boot of a machine.

    ``token`` is random and unique for each Session object. ``boot_id`` and ``pid_namespace`` are empty where the system
    does not tell them; then nobody takes over before the lease ends.
    """

    token: str
    host: str
    pid: int
    boot_id: str
    pid_namespace: str
    process_started: str = ""  # start time of the process as the system tells it: a pid can be used again


@dataclass(slots=True, weakref_slot=True, eq=False)
class Lease:
    """A lease as its holder sees it; the ledger thread renews it while this object lives.

    Attributes:
        good_until: by the boot-time clock (seconds): taken before the renewal was sent, plus lease, less margin.
            Checked just before the first byte of an attempt.
        lost: another owner has the session, or the lease was released.
    """

    session_id: str
    fence: int
    owner: Owner
    good_until: float
    lost: bool = field(default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What became of a claim.

    ``taken``: ``lease`` and ``loaded`` are set. ``busy``: ``lease_until`` says when the holder's lease ends by the
    database's clock, ``now`` what that clock reads, ``session`` whose it is. ``missing``: no such session.
    ``exists``: `start` met a taken alias. ``input_changed``: the alias stands with another input digest. A finished or
    cancelled session is ``taken`` with ``lease`` None: it replays read-only.
    """

    status: Literal["taken", "busy", "missing", "exists", "input_changed"]
    now: float
    lease: Lease | None = None
    loaded: Loaded | None = None
    session: SessionRecord | None = None
    lease_until: float | None = None
    holder: Owner | None = None
    created: bool = False


class Ledger(Protocol):
    """What the runtime needs of a ledger. All methods but `now` and `close` hand work to the ledger thread."""

    def now(self) -> float:
        """Return the database's clock (UTC epoch seconds), reckoned on from the last answer of the database."""
        ...

    def write(self, entries: Sequence[Write]) -> Future[list[WriteOutcome]]:
        """Write entries in one transaction; each takes or not by itself, in order. One entry per row per call.

        An entry given again under its write id takes once and is answered ``TOOK``, with the rows as they stand now.
        The future cannot be cancelled; it raises `LedgerError` where nothing of the call took, and `CommitUnknown`
        where that is not known.
        """
        ...

    def start(
        self,
        *,
        session_id: str,
        alias: str | None,
        tenant: str,
        actor: str | None,
        input_digest: str | None,
        owner: Owner,
    ) -> Future[Claim]:
        """Make a session and take its lease: ``taken``, or ``exists`` if the alias stands."""
        ...

    def open(
        self, *, session_id: str, alias: str, tenant: str, actor: str | None, input_digest: str | None, owner: Owner
    ) -> Future[Claim]:
        """Make the session of this alias or claim it, in one transaction; ``input_digest`` None asks for no input."""
        ...

    def claim(self, *, name: str, tenant: str, owner: Owner, replaces: str | None = None) -> Future[Claim]:
        """Claim a session by id or alias: raise the fence, then read everything.

        ``replaces``: owner token of a Session object of this same process whose lease may be taken over at once.
        """
        ...

    def release(self, lease: Lease) -> Future[None]:
        """Give the lease back; does nothing if another owner has it."""
        ...

    def load(self, *, name: str, tenant: str) -> Future[Loaded | None]:
        """Read a session by id or alias without a lease."""
        ...

    def sessions(self, *, tenant: str, state: SessionState | None) -> Future[list[SessionRecord]]:
        """List sessions, newest first."""
        ...

    def operation(self, operation_id: str) -> Future[OperationRecord | None]:
        """Read one operation."""
        ...

    def by_business_key(self, *, tenant: str, origin: str, key: str) -> Future[OperationRecord | None]:
        """Read the operation that holds a caller's own key."""
        ...

    def attention(self, *, tenant: str) -> Future[list[OperationRecord]]:
        """List operations that are unknown or contradicted, oldest first."""
        ...

    def attempts(self, operation_id: str) -> Future[list[AttemptRecord]]:
        """List the attempts of an operation."""
        ...

    def evidence(self, operation_id: str) -> Future[list[EvidenceRecord]]:
        """List what was seen about an operation, in the order of filing."""
        ...

    def token(self, ident: str) -> Future[TokenRecord | None]:
        """Read a token's row."""
        ...

    def hold_token(
        self,
        ident: str,
        *,
        name: str,
        holder: str,
        seconds: float,
        seed: str | None = None,
        expires: bool = False,
        ended: str | None = None,
    ) -> Future[TokenHold]:
        """Take a token's row for a request of so many seconds, making it if need be; read what stands then."""
        ...

    def keep_token(
        self,
        ident: str,
        *,
        holder: str,
        version: int,
        sealed: bytes,
        seeds: tuple[str, ...] = (),
        release: bool = True,
        expires_at: float | None = None,
    ) -> Future[int | None]:
        """Keep new tokens in a row that still has this version; return the new one, or None if nothing was written."""
        ...

    def free_token(self, ident: str, *, holder: str, doubt: bool = False, problem: str | None = None) -> Future[None]:
        """Give a token's row back without a new token, and say what the refresh left behind."""
        ...

    def jobs(self, *, tenant: str) -> Future[list[RunningJob]]:
        """List operations whose jobs run, oldest first, each with its session."""
        ...

    def due_jobs(self, *, tenant: str, tools: Sequence[str], limit: int) -> Future[DueJobs]:
        """Read which jobs of these tools are due, of sessions that nobody holds, the longest due first."""
        ...

    def untold(self, *, tenant: str) -> Future[list[RunningJob]]:
        """List operations whose jobs have ended and whose code was not told so yet, oldest first."""
        ...

    def ends_to_tell(self, *, tenant: str, tools: Sequence[str], limit: int) -> Future[list[OperationRecord]]:
        """Read ended jobs that neither the code nor ``on_end`` has heard of, nor hears of right now."""
        ...

    def claim_end(self, operation_id: str) -> Future[bool]:
        """Take the telling of a job's end for a while; False = it was told, or somebody else tells it now."""
        ...

    def note_end(self, operation_id: str) -> Future[None]:
        """Note that ``on_end`` has heard of the end whose telling was claimed, unless it ended anew meanwhile."""
        ...

    def free_end(self, operation_id: str) -> Future[None]:
        """Give the telling of a job's end back: it was not told."""
        ...

    def note_told(self, operation_id: str) -> Future[None]:
        """Note that the code is told how a job ended."""
        ...

    def keep_event(self, *, tenant: str, event: CallbackEvent) -> Future[bool]:
        """Keep a callback; False = it stands already, and its operation has been told."""
        ...

    def event_applied(self, *, tenant: str, event: CallbackEvent) -> Future[None]:
        """Note that a callback's operation has been told."""
        ...

    def operations_of_event(self, *, tenant: str, event: CallbackEvent) -> Future[list[OperationRecord]]:
        """Read the operations that a callback is about."""
        ...

    def events_of(self, operation_id: str) -> Future[list[CallbackEvent]]:
        """Read the callbacks that an operation has not been told of yet, in the order they came."""
        ...

    def heard(self, operation_ids: Sequence[str]) -> Future[set[tuple[str, str]]]:
        """Read which open matters somebody has heard of: pairs of operation id and kind."""
        ...

    def note_heard(self, operation_id: str, kind: str) -> Future[None]:
        """Note that somebody has heard of an open matter."""
        ...

    def close(self) -> None:
        """Release all leases, end the ledger thread and close the connections. Safe to call twice."""
        ...
