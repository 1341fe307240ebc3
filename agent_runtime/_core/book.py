"""A session's rows in memory, and the rules of positions: where a call stands, and what stands there already.

Counter calls are numbered per branch from 1, at the moment of the call. Calls with an address are numbered in the order
of reservation, and found again by their address. The book does no I/O; its owner holds a lock around each call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from agent_runtime._core.places import (
    Ask,
    Branch,
    Mark,
    Place,
    is_left,
    matches,
    matches_step,
    message_of,
    stands_in_the_way,
)
from agent_runtime._model import SETTLED, OperationRecord, StepRecord, ValueRecord
from agent_runtime._model.naming import make_label

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from agent_runtime._model import Loaded


class Book:
    """The rows of one session and the rules of its positions. Strictly private."""

    def __init__(self, loaded: Loaded) -> None:
        self.session = loaded.session
        self.operations: dict[str, OperationRecord] = {operation.id: operation for operation in loaded.operations}
        self.values: dict[tuple[str, str, int], ValueRecord] = {
            (value.branch, value.name, value.index): value for value in loaded.values
        }
        self.value_counts: dict[tuple[str, str], int] = {}
        self._branches: dict[str, Branch] = {}
        self._addresses: dict[str, StepRecord] = {}
        self._labels: dict[str, StepRecord] = {}
        self._out: dict[str, str] = {}
        self._passed: list[tuple[str, bool]] = []
        self._seq = 0
        self._untold: set[str] = set()
        self.reached: set[str] = set()
        for step in loaded.steps:
            self.put(step)

    # -- reading ------------------------------------------------------------------------------------------------

    @property
    def seq(self) -> int:
        """The highest sequence number that was given out."""
        return self._seq

    def steps(self) -> list[StepRecord]:
        """Return all steps in the order of reservation."""
        return sorted(self._labels.values(), key=lambda step: step.seq)

    def step(self, label: str) -> StepRecord | None:
        """Return the step with a label, or None."""
        return self._labels.get(label)

    def operation_of(self, step: StepRecord) -> OperationRecord | None:
        """Return the operation that a step points to, or None for a refused one."""
        return None if step.operation_id is None else self.operations[step.operation_id]

    def unsettled(self) -> list[OperationRecord]:
        """Return all operations that are not settled, oldest first."""
        return [operation for operation in self.operations.values() if operation.state not in SETTLED]

    def went_on(self, step: StepRecord) -> bool:
        """Whether the code went on after a step: a later position of its branch was taken after it was delivered.

        Calls that were already out beside it, and recorded refusals, do not count.
        """
        since = step.delivered_seq if step.delivered_seq is not None else step.seq
        branch = self._branch(step.branch)
        return any(
            other.index > step.index and other.seq > since and other.kind == "call" for other in branch.steps.values()
        )

    # -- placing ------------------------------------------------------------------------------------------------

    def is_crossed(self, branch: str, caller: Hashable) -> bool:
        """Whether a call by counter would cross another call that is out on a branch.

        That is one by counter of another task or thread, or one with an address whose row is not written yet: if it
        never was, a replay would count otherwise.
        """
        here = self._branch(branch)
        return bool(here.addressed) or any(other != caller for other in list(here.callers.values()))

    def place(self, ask: Ask) -> Place:
        """Find where a call stands and take the position; whatever stands there already is not changed."""
        step = self._addresses.get(ask.at) if ask.at is not None else None
        if step is not None:  # it stands where it stood, whichever branch asks for it
            ask = replace(ask, branch=step.branch)
        branch = self._branch(ask.branch)
        if step is not None:
            index = step.index
        elif ask.at is not None:
            index = branch.top + 1
            branch.addressed.add(index)
        else:
            index, step = self._next(ask, branch)
        place = self._existing(ask, step) if step is not None else None
        if place is None:
            place = self._fresh(ask, index, step)
        if ask.at is None:
            if branch.strayed is not None and not ask.is_read and place.is_fresh:
                self._seq -= place.seq == self._seq
                where, other = branch.strayed.label, self.operation_of(branch.strayed)
                return replace(place, kind="diverged", operation=other, strayed=where)
            if place.kind == "diverged":
                branch.strayed = branch.strayed or step
            branch.cursor = index
        branch.top = max(branch.top, index)
        self._reach(place.label)
        if place.operation is not None and place.kind in {"settle", "join"}:
            self._out[place.label] = place.operation.id
        return place

    def mark(self, branch: str) -> Mark:
        """Return where a branch stands, before a call is placed on it."""
        here, self._passed = self._branch(branch), []
        return Mark(branch, here.cursor, here.top, frozenset(here.addressed), self._seq, self._passed)

    def rewind(self, mark: Mark) -> None:
        """Undo the placing of a call, wherever it was interrupted; what rows say by now stands."""
        branch = self._branch(mark.branch)
        branch.cursor = mark.cursor
        branch.addressed &= mark.addressed
        branch.top = max(mark.top, *list(branch.steps), 0)
        self._seq = max(mark.seq, *[step.seq for step in list(self._labels.values())], 0)
        for label, before in mark.passed:
            self.leave(mark.branch, label)
            self.ended(label)
            if not before:
                self.reached.discard(label)

    def _reach(self, label: str) -> None:
        self._passed.append((label, label in self.reached))
        self.reached.add(label)

    def _next(self, ask: Ask, branch: Branch) -> tuple[int, StepRecord | None]:
        """Return the index of the next counter call, and what stands there.

        A call that was interrupted told the code nothing, so the code may have called again, and that position joined
        the first one's operation. Where the first call ends settled in this run, the code does not ask again: the
        second position is passed over.
        """
        while True:
            index = branch.next_index()
            step = branch.steps.get(index)
            if step is None:
                return index, None
            if not self._is_spent(branch, step):
                return self._made_again(ask, branch, step)
            self._reach(step.label)
            branch.cursor = index

    def _made_again(self, ask: Ask, branch: Branch, step: StepRecord) -> tuple[int, StepRecord]:
        """Return the next step, or the one before it: it was interrupted, and its call is made again in its place."""
        before = branch.steps.get(branch.cursor) if branch.cut == branch.cursor else None
        if before is None or self._fits(ask, step) or not self._fits(ask, before):
            return step.index, step
        self._passed.append((before.label, True))
        self.reached.discard(before.label)
        return before.index, before

    def _fits(self, ask: Ask, step: StepRecord) -> bool:
        operation = self.operation_of(step)
        return matches_step(ask, step) if operation is None else matches(ask, operation, step)

    def _is_spent(self, branch: Branch, step: StepRecord) -> bool:
        operation = self.operation_of(step)
        return (
            operation is not None
            and operation.state in SETTLED
            and any(
                other.operation_id == operation.id
                and other.index < step.index
                and other.label in self.reached
                and other.address is None  # an address is asked again and told the end where it stands
                and (other.delivered is None or not self.went_on(other))
                for other in branch.steps.values()
            )
        )

    def _existing(self, ask: Ask, step: StepRecord) -> Place | None:
        """Return how a recorded position serves a call; None = it is a refusal that the call takes over."""
        operation = self.operation_of(step)
        if operation is None:
            asked = ask.at is not None and step.label in self.reached  # as below: an address is asked anew
            if matches_step(ask, step) and not asked and self.went_on(step):
                return self._at(step, "again", self._in_the_way(ask, step))
            return None
        if not matches(ask, operation, step):
            return self._at(step, "diverged", operation)
        # An address that this object has asked for before is asked anew: the code wants to know how it stands now.
        if step.delivered is not None and step.label not in self.reached and self.went_on(step):
            return self._at(step, "replay", operation, as_delivered=True)
        return self._at(step, "replay" if operation.state in SETTLED else "settle", operation)

    def _at(
        self,
        step: StepRecord,
        kind: Literal["replay", "settle", "again", "diverged"],
        operation: OperationRecord | None,
        *,
        as_delivered: bool = False,
    ) -> Place:
        return Place(
            kind=kind,
            branch=step.branch,
            index=step.index,
            label=step.label,
            seq=step.seq,
            step=step,
            operation=operation,
            as_delivered=as_delivered,
        )

    def _fresh(self, ask: Ask, index: int, refused: StepRecord | None) -> Place:
        self._seq += 1
        waiting = list(self._blocking(ask, refused))
        same = next((one for one in waiting if matches(ask, one)), None)
        in_the_way = next((one for one in waiting if stands_in_the_way(ask, one) and not is_left(one)), None)
        kind: Literal["join", "refuse", "new"] = "new"
        operation = None
        if same is not None:
            kind, operation = "join", same
        elif in_the_way is not None and not ask.is_read:
            kind, operation = "refuse", in_the_way
        return Place(
            kind=kind,
            branch=ask.branch,
            index=index,
            label=make_label(ask.branch, index),
            seq=self._seq,
            step=refused,
            operation=operation,
            takes_over=refused is not None,
        )

    def is_torn(self, place: Place) -> bool:
        """Whether a fresh position would not be found again, because one before it could not be recorded."""
        return self._branch(place.branch).torn and place.is_fresh

    def give_back(self, place: Place) -> None:
        """Take back a position none of whose rows was written, so that the next call stands where a replay finds it.

        If a later one was given out meanwhile the branch is torn: nothing fresh is placed on it. May be done twice.
        """
        branch = self._branch(place.branch)
        self.reached.discard(place.label)
        self._seq -= place.seq == self._seq
        branch.top -= branch.top == place.index and place.index not in branch.steps
        if place.index in branch.addressed:
            branch.addressed.discard(place.index)
        elif branch.cursor == place.index:
            branch.cursor = place.index - 1
        elif branch.cursor > place.index:
            branch.torn = True

    def place_again(self, ask: Ask, place: Place) -> Place:
        """Place a call anew that was to be refused, because what stood in its way is settled now."""
        self._seq -= place.seq == self._seq
        again = self._fresh(replace(ask, branch=place.branch), place.index, place.step)
        if again.operation is not None and again.kind == "join":
            self._out[again.label] = again.operation.id
        return again

    def _in_the_way(self, ask: Ask, step: StepRecord) -> OperationRecord | None:
        return next((one for one in self._blocking(ask, step) if one.state not in SETTLED and not is_left(one)), None)

    def _blocking(self, ask: Ask, here: StepRecord | None) -> Iterator[OperationRecord]:
        """Yield operations of the branch whose calls are over and of which the code knows no end yet, oldest first.

        One that was settled meanwhile is among them, for an equal call: the code was told last that it is unsettled,
        so it is asking for that one and not for a second effect. Not those that a call is still out for, not those of
        the same address message, and not reads: a read that waits changes nothing, so nothing has
        to wait for it.
        """
        seen: set[str] = set()
        for step in sorted(self._branch(ask.branch).steps.values(), key=lambda one: one.seq):
            operation = self.operation_of(step)
            if operation is None or operation.id in seen or (here is not None and step.label == here.label):
                continue
            seen.add(operation.id)
            if operation.kind == "read" or operation.id in list(self._out.values()):
                continue
            if operation.state in SETTLED and not self._is_untold(operation, ask.branch):
                continue
            if ask.at is not None and step.address is not None and message_of(ask.at) == message_of(step.address):
                continue
            yield operation

    def _is_untold(self, operation: OperationRecord, branch: str) -> bool:
        """Whether the last that the code was told of an operation is that it is unsettled, or nothing."""
        pointing = [step for step in self._branch(branch).steps.values() if step.operation_id == operation.id]
        return operation.id in self._untold or max(pointing, key=lambda step: step.seq).delivered is not None

    # -- keeping up -----------------------------------------------------------------------------------------------

    def put(self, step: StepRecord) -> None:
        """Keep a step row: a new one, or one that has changed; whole, also where it is cut short."""
        try:
            self._put(step)
        except BaseException:
            self._put(step)
            raise

    def _put(self, step: StepRecord) -> None:
        branch = self._branch(step.branch)
        branch.steps[step.index] = step
        branch.addressed.discard(step.index)
        branch.top = max(branch.top, step.index)
        self._labels[step.label] = step
        if step.address is not None:
            self._addresses[step.address] = step
        self._seq = max(self._seq, step.seq)

    def update(self, operation: OperationRecord) -> None:
        """Keep an operation row as it stands now."""
        known = self.operations.get(operation.id)
        if known is None or known.version <= operation.version:
            self.operations[operation.id] = operation

    def told(self, operation: OperationRecord) -> None:
        """Note that the code is told how an operation ended, or that it is not settled."""
        if operation.state in SETTLED:
            self._untold.discard(operation.id)
        else:
            self._untold.add(operation.id)

    def not_told(self, label: str) -> None:
        """Note that a call at a step was interrupted: the code does not know what became of it."""
        step = self._labels.get(label)
        if step is not None and step.address is None:
            self._branch(step.branch).cut = step.index
        if step is not None and step.operation_id is not None:
            self._untold.add(step.operation_id)

    def began(self, operation_id: str, label: str) -> None:
        """Note that the call at a label is out for an operation that was just made."""
        self._out[label] = operation_id

    def ended(self, label: str) -> None:
        """Note that the call at a label is over; doing it again changes nothing."""
        self._out.pop(label, None)

    def enter(self, branch: str, caller: Hashable, label: str) -> None:
        """Note that a caller has a call by counter out."""
        self._branch(branch).callers[label] = caller

    def leave(self, branch: str, label: str) -> None:
        """Note that a call by counter is over."""
        self._branch(branch).callers.pop(label, None)

    def next_value(self, branch: str, name: str) -> int:
        """Return the count of the next value of a name in a branch, from 1."""
        count = self.value_counts.get((branch, name), 0) + 1
        self.value_counts[branch, name] = count
        return count

    def rewind_value(self, branch: str, name: str, count: int) -> None:
        """Take back the count of a value that the code was not given."""
        if self.value_counts.get((branch, name), 0) == count + 1:
            self.value_counts[branch, name] = count

    @property
    def busy(self) -> bool:
        """Whether a call is out anywhere."""
        return bool(self._out) or any(branch.callers for branch in self._branches.values())

    def not_reached(self) -> list[str]:
        """Return the labels of recorded steps that this object's calls have not come to."""
        return [step.label for step in self.steps() if step.label not in self.reached]

    def _branch(self, name: str) -> Branch:
        return self._branches.setdefault(name, Branch())
