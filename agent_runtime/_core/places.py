"""What a call asks for, where it stands, and whether two calls are one; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from agent_runtime._core.handles import handle_of
from agent_runtime._model import SETTLED, State

if TYPE_CHECKING:
    from collections.abc import Hashable

    from agent_runtime._model import OperationRecord, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a call asks for, as far as its place depends on it.

    Attributes:
        target: method and URL of the request without the key; None where they are not known before it is frozen.
        args_hash: of the body as sent; None where fills make it new each time.
        business_key: the caller's own key, or None.
        goes_on: an unsettled operation of another tool does not stand in the way (``after_unknown="continue"``).
    """

    tool: str
    is_read: bool
    fingerprint: str
    args_hash: str | None
    target: tuple[str, str] | None
    branch: str = ""
    at: str | None = None
    business_key: str | None = None
    goes_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a call stands.

    Attributes:
        kind: ``replay`` (deliver what is recorded), ``settle`` (take the recorded operation further), ``new``, ``join``
            (a new position for an operation that stands unsettled), ``refuse`` (record as not started), ``again``
            (deliver the recorded refusal), ``diverged``.
        step: what stands there, if anything does.
        operation: the recorded operation, the one to join, or the one in the way.
        takes_over: a recorded refusal at this position is replaced.
        as_delivered: the unsettled outcome that the code was given here is given again.
        strayed: where the run left what is recorded, for a write that is ``diverged`` because of that; it takes no
            position.
    """

    kind: Literal["replay", "settle", "new", "join", "refuse", "again", "diverged"]
    branch: str
    index: int
    label: str
    seq: int
    step: StepRecord | None = None
    operation: OperationRecord | None = None
    takes_over: bool = False
    as_delivered: bool = False
    strayed: str = ""

    @property
    def is_fresh(self) -> bool:
        """Whether a row is to be written for it."""
        return self.kind in {"new", "join", "refuse"}


@dataclass(slots=True)
class Taken:
    """What one call holds, known before anything is taken: an interruption at any point finds what to give back.

    Attributes:
        place: its place, while it is out.
        label: the label of its place, also after it.
        told: the error that told the code how the call ended.
    """

    place: Place | None = None
    label: str = ""
    told: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a branch stood before a call was placed; ``passed``: labels it came to since, and if it had before."""

    branch: str
    cursor: int
    top: int
    addressed: frozenset[int]
    seq: int
    passed: list[tuple[str, bool]]


@dataclass(slots=True)
class Branch:
    """One branch.

    Attributes:
        steps: its rows by index.
        cursor: how far counter calls have come.
        top: the highest index that was given out.
        addressed: indexes given to calls with an address whose rows are not written yet.
        callers: who has calls by counter out, by the label of the call.
        torn: a position could not be recorded while a later one was given out already.
        cut: the index of the last call by counter that was interrupted.
        strayed: the recorded step at which a call by counter was another one.
    """

    steps: dict[int, StepRecord] = field(default_factory=dict)
    cursor: int = 0
    top: int = 0
    addressed: set[int] = field(default_factory=set)
    callers: dict[str, Hashable] = field(default_factory=dict)
    torn: bool = False
    cut: int | None = None
    strayed: StepRecord | None = None

    def next_index(self) -> int:
        """Return the next index for a counter call: positions that belong to an address are passed over."""
        index = self.cursor + 1
        while index in self.addressed or (index in self.steps and self.steps[index].address is not None):
            index += 1
        return index


def matches(ask: Ask, operation: OperationRecord, step: StepRecord | None = None) -> bool:
    """Whether a call is the recorded one: the same tool, and an equal fingerprint or an equal request."""
    if ask.tool != operation.tool or ask.business_key not in {None, operation.business_key}:
        return False
    if ask.fingerprint == operation.fingerprint or (step is not None and ask.fingerprint == step.fingerprint):
        return True
    return ask.args_hash == operation.args_hash and ask.target == target_of(operation)


def matches_step(ask: Ask, step: StepRecord) -> bool:
    """Whether a call is the refused one."""
    return ask.tool == step.tool and (ask.fingerprint == step.fingerprint or ask.args_hash == step.args_hash)


def stands_in_the_way(ask: Ask, operation: OperationRecord) -> bool:
    """Whether an unsettled operation keeps another write from going out."""
    return operation.state not in SETTLED and (not ask.goes_on or operation.tool == ask.tool)


def is_left(operation: OperationRecord) -> bool:
    """Whether an operation is a job that nobody waits for: it stands in no other call's way, an equal one joins it."""
    return operation.state is State.ACCEPTED and handle_of(operation).detached


def target_of(operation: OperationRecord) -> tuple[str, str] | None:
    """Return method and URL of a recorded request, or None for a function tool."""
    return None if operation.request is None else (operation.request.method, operation.request.url)


def message_of(address: str) -> str:
    """Return the message that an address belongs to: what stands before its last ``.N``."""
    head, dot, tail = address.rpartition(".")
    return head if dot and tail.isdecimal() else address
