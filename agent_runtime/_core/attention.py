"""What somebody has to look at, and the protocol of telling so: each matter at least once, across crashes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_runtime._core.effects import Job, Now, Tell, ask
from agent_runtime._core.handles import handle_of
from agent_runtime._core.reach import obstacle_of
from agent_runtime._model import OperationRecord, Reason, State
from agent_runtime._model.words import sentences, why_of
from agent_runtime.config import defaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime._core.effects import Steps

STALLED_AFTER = 2.0
"""A job counts as stalled once it is silent for so many times the longest wait between looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One matter that wants a person, or new evidence.

    Attributes:
        kind: ``unknown``, ``contradicted``, ``timed_out`` (a job past its bound), ``stalled`` (nobody looks at a job
            that is due) or ``untracked`` (a job that nobody can look at).
        operation: as the ledger has it.
    """

    kind: str
    operation: OperationRecord

    @property
    def id(self) -> str:
        """The operation's id, as ``runtime.decide`` takes it."""
        return self.operation.id

    @property
    def state(self) -> State:
        """What is known of the operation."""
        return self.operation.state

    @property
    def reason(self) -> Reason | None:
        """Why it stands there."""
        return self.operation.reason

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self.operation.tool

    @property
    def label(self) -> str:
        """The label of the operation."""
        return self.operation.label

    @property
    def session_id(self) -> str:
        """The session that it belongs to."""
        return self.operation.session_id

    @property
    def message(self) -> str:
        """Why it stands there, in English."""
        operation = self.operation
        unclear = operation.reason is Reason.JOB_UNCLEAR
        obstacle = obstacle_of(operation) if self.kind == "untracked" or unclear else None
        return sentences(None, why_of(operation.state, operation.reason, operation.effect, obstacle=obstacle))

    def told(self) -> dict[str, Any]:
        """Return the matter as plain JSON values, such as a tool takes as its args."""
        handle = handle_of(self.operation) if self.operation.handle else None
        return {
            "kind": self.kind,
            "operation_id": self.id,
            "session_id": self.session_id,
            "step": self.label,
            "tool": self.tool,
            "state": str(self.operation.state),
            "message": self.message,
            "job_id": handle.job_id if handle is not None else None,
            "status_url": handle.url if handle is not None else None,
            "started_at": handle.started_at if handle is not None else self.operation.created_at,
        }


def kind_of(operation: OperationRecord, *, now: float, silence: float) -> str | None:
    """Return why an operation wants attention, or None.

    Args:
        operation: as the ledger has it.
        now: UTC epoch seconds.
        silence: seconds behind its next look after which an accepted operation counts as stalled.
    """
    if operation.contradicted:
        return "contradicted"
    if operation.state is State.UNKNOWN:
        return "unknown"
    if operation.state is not State.ACCEPTED:
        return None
    if operation.reason is Reason.POLL_BOUND:
        return "timed_out"
    if operation.reason is Reason.UNTRACKED:
        return "untracked"
    handle = handle_of(operation)
    if operation.resume_at is None and (handle.url is None or handle.obstacle is not None):
        # A callback may still end it; one that has not come by then is not coming soon.
        return "untracked" if now - handle.started_at > silence else None
    due = operation.resume_at if operation.resume_at is not None else operation.updated_at
    if handle.detached:  # somebody comes back for it: not before it can have ended
        due = max(due, handle.started_at + max(handle.estimated or 0.0, defaults.POLL_BOUND))
    return "stalled" if now - due > silence else None


def matters(tenant: str, *, silence: float) -> Steps[list[Attention]]:
    """Read all open matters, oldest first."""
    now = yield from ask(Now())
    open_ones = yield from ask(Job(lambda ledger: ledger.attention(tenant=tenant)))
    running = yield from ask(Job(lambda ledger: ledger.jobs(tenant=tenant)))
    found = []
    jobs = [one.operation for one in running]
    for operation in sorted([*open_ones, *jobs], key=lambda one: (one.created_at, one.id)):
        kind = kind_of(operation, now=now, silence=silence)
        if kind is not None:
            found.append(Attention(kind=kind, operation=operation))
    return found


def tell(tenant: str, listener: Callable[[Attention], Any], *, silence: float, teller: str | None = None) -> Steps[int]:
    """Tell a listener of each matter that nobody has heard of yet; return how many.

    A matter counts as heard once the listener has returned: one that dies or raises in it hears it again. ``teller``:
    name of the tool that tells; its own matters are not told by it.
    """
    found: list[Attention] = yield from matters(tenant, silence=silence)
    found = [matter for matter in found if matter.tool != teller]
    if not found:
        return 0
    ids = [matter.operation.id for matter in found]
    heard: set[tuple[str, str]] = yield from ask(Job(lambda ledger: ledger.heard(ids)))
    fresh = [matter for matter in found if (matter.operation.id, matter.kind) not in heard]
    for matter in fresh:
        yield from ask(Tell(listener, matter))
        yield from ask(_note(matter))
    return len(fresh)


def _note(matter: Attention) -> Job[None]:
    identity, kind = matter.operation.id, matter.kind
    return Job(lambda ledger: ledger.note_heard(identity, kind))
