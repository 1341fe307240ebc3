"""What somebody has to look at, and the protocol of telling so: each matter at least once, across crashes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.effects import Job, Now, Tell, ask
from agent_runtime._core.handles import handle_of
from agent_runtime._core.reach import obstacle_of
from agent_runtime._model import EvidenceRecord, OperationRecord, Reason, State
from agent_runtime._model.quoting import quoted
from agent_runtime._model.words import sentences, why_of
from agent_runtime.config import defaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime._core.effects import Steps

QUOTE: Final = 300
NO_BOUNDS: Final[Mapping[str, float]] = MappingProxyType({})
STALLED_AFTER = 2.0
"""A job counts as stalled once it is silent for so many times the longest wait between looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One matter that wants a person, or new evidence.

    Attributes:
        kind: ``unknown``, ``contradicted``, ``timed_out`` (a job past its bound), ``stalled`` (nobody looks at a job
            that is due), ``overdue`` (it is looked at, and runs a day longer than it should) or ``untracked`` (a job
            that nobody can look at).
        operation: as the ledger has it.
        against: of a contradicted one, what speaks against its end.
    """

    kind: str
    operation: OperationRecord
    against: EvidenceRecord | None = None

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
        said = why_of(operation.state, operation.reason, operation.effect, obstacle=obstacle)
        if self.kind in {"stalled", "overdue"}:
            said = (*said, (self.kind, ()))
        if self.against is not None:
            fills = (("state", str(operation.state)), ("said", _quoted(self.against)))
            said = (*said, ("contradicted", fills))
        return sentences(None, said)

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


def _quoted(seen: EvidenceRecord) -> str:
    """Return what was seen: who said it, and its words on one line."""
    status = "" if seen.status is None else f" HTTP {seen.status}"
    words = quoted(seen.body.decode("utf-8", "replace") or seen.detail, QUOTE)
    return f"{seen.kind}{status}: {words}"


def kind_of(
    operation: OperationRecord, *, now: float, silence: float, bound: float = defaults.POLL_BOUND
) -> str | None:
    """Return why an operation wants attention, or None.

    Args:
        operation: as the ledger has it.
        now: UTC epoch seconds.
        silence: seconds behind its next look after which an accepted operation counts as stalled.
        bound: seconds after its start for which its tool's jobs are followed.
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
    if handle.detached:  # somebody comes back for it, and is left some time for that
        due = max(due, handle.started_at + defaults.POLL_BOUND)
    if now - due > silence:
        return "stalled"
    # What a tool says of itself is believed within reason: it could say a thousand years.
    expected = max(bound, min(handle.estimated or 0.0, defaults.LONGEST_ESTIMATE))
    return "overdue" if now - handle.started_at > expected + defaults.REMIND_AFTER else None


def matters(tenant: str, *, silence: float, bounds: Mapping[str, float] = NO_BOUNDS) -> Steps[list[Attention]]:
    """Read all open matters, oldest first; ``bounds``: seconds for which jobs are followed, by the tool's name."""
    now = yield from ask(Now())
    open_ones = yield from ask(Job(lambda ledger: ledger.attention(tenant=tenant)))
    running = yield from ask(Job(lambda ledger: ledger.jobs(tenant=tenant)))
    found = []
    jobs = [one.operation for one in running]
    for operation in sorted([*open_ones, *jobs], key=lambda one: (one.created_at, one.id)):
        bound = bounds.get(operation.tool, defaults.POLL_BOUND)
        kind = kind_of(operation, now=now, silence=silence, bound=bound)
        against = (yield from _against(operation)) if kind == "contradicted" else None
        if kind is not None:
            found.append(Attention(kind=kind, operation=operation, against=against))
    return found


def _against(operation: OperationRecord) -> Steps[EvidenceRecord | None]:
    """Read what contradicts an end: it was filed in the write that marked its row, the last one."""
    identity = operation.id
    filed: list[EvidenceRecord] = yield from ask(Job(lambda ledger: ledger.evidence(identity)))
    marked = [seen for seen in filed if seen.at == operation.updated_at]
    return next(reversed(marked or filed), None)


def tell(
    tenant: str,
    listener: Callable[[Attention], Any],
    *,
    silence: float,
    teller: str | None = None,
    bounds: Mapping[str, float] = NO_BOUNDS,
) -> Steps[int]:
    """Tell a listener of each matter that nobody has heard of yet; return how many.

    A matter counts as heard once the listener has returned: one that dies or raises in it hears it again. ``teller``:
    name of the tool that tells; its own matters are not told by it.
    """
    found: list[Attention] = yield from matters(tenant, silence=silence, bounds=bounds)
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
