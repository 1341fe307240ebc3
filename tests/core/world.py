"""A world in memory for the core: a ledger that keeps the contract's checks, a tool's server, time that is turned.

`World.run` drives a protocol and can end the process before any effect, or after it took hold. What survives is the
ledger and the server; a fresh `World.resume` raises the fence, as a claim does.
"""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent_runtime import Idempotency, Tool, ToolContract
from agent_runtime._core.book import Book
from agent_runtime._core.calls import run_call
from agent_runtime._core.desk import Call, Desk
from agent_runtime._core.effects import (
    Acquire,
    Credential,
    Invoke,
    Job,
    LeaseHeld,
    Load,
    NewId,
    NoCredential,
    Now,
    Persist,
    Random,
    Send,
    Sleep,
)
from agent_runtime._core.requests import freeze, validate
from agent_runtime._core.states import ALLOWED
from agent_runtime._model import (
    ENDS_OF_JOBS,
    SETTLED,
    UNSET,
    Advance,
    Answer,
    Deliver,
    EndSession,
    File,
    Loaded,
    NewEvidence,
    OperationRecord,
    PutValue,
    Reserve,
    SendFailure,
    SessionRecord,
    SessionState,
    State,
    StepRecord,
    Took,
    ValueRecord,
    WriteOutcome,
)
from agent_runtime.config import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime._core.effects import Effect
    from agent_runtime._core.places import Place
    from agent_runtime._model import Change, NewAttempt, NewOperation, NewStep, Write
    from agent_runtime.config import AnyTool

SESSION = "8f14e45f-ceea-467f-8c3b-2f1f0d9a7b11"
START = 1_800_000_000.0
URL = "https://tools.test/tools/debit"
SEEN_BY_CHANGE = (
    *("state", "reason", "effect", "result_state", "partial", "contradicted", "no_resend", "server_replayed"),
    *("resume_at", "result", "result_status", "error", "handle"),
)


class Crash(BaseException):
    """The process is gone."""


@dataclass
class Clock:
    """Seconds since the epoch; stands still until it is turned."""

    now: float = START


class MemoryLedger:
    """One session's rows, with the fence, version and uniqueness checks of the ledger's contract.

    Attributes:
        changes: each change of a state, in order, as pairs; `check` holds them to the table.
        log: what was written and sent, in order; the world adds the sends.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.fence = 1
        self.state = SessionState.OPEN
        self.operations: dict[str, OperationRecord] = {}
        self.began: dict[str, float] = {}
        self.steps: dict[str, StepRecord] = {}
        self.values: dict[tuple[str, str, int], bytes] = {}
        self.evidence: list[tuple[str, NewEvidence]] = []
        self.log: list[tuple[Any, ...]] = []

    def loaded(self) -> Loaded:
        """Read everything, as a claim does."""
        session = SessionRecord(
            id=SESSION,
            alias=None,
            tenant="",
            actor=None,
            state=self.state,
            input_digest=None,
            fence=self.fence,
            created_at=START,
        )
        values = tuple(
            ValueRecord(session_id=SESSION, branch=branch, name=name, index=index, value=value)
            for (branch, name, index), value in self.values.items()
        )
        return Loaded(
            session=session,
            steps=tuple(self.steps.values()),
            operations=tuple(self.operations.values()),
            values=values,
            now=self.clock.now,
        )

    def load(self, *, name: str, tenant: str) -> Future[Loaded | None]:
        """Read the session without a lease, for its tenant only."""
        future: Future[Loaded | None] = Future()
        future.set_result(self.loaded() if (name, tenant) == (SESSION, "") else None)
        return future

    def write(self, entry: Write) -> WriteOutcome:
        """Apply one entry, or say why it does not take."""
        if not isinstance(entry, File) and entry.fence not in {None, self.fence}:
            return self._outcome(entry, Took.FENCE_LOST)
        match entry:
            case Reserve():
                return self._reserve(entry)
            case Advance():
                return self._advance(entry)
            case Deliver():
                step = self.steps[entry.label]
                kept = {"delivered": entry.delivered, "delivered_seq": entry.delivered_seq}
                self.steps[entry.label] = replace(step, **kept)
            case PutValue():
                name = (entry.branch, entry.name, entry.index)
                if self.values.setdefault(name, entry.value) != entry.value:
                    return self._outcome(entry, Took.STATE_CONFLICT)
            case File():
                self.evidence.append((entry.operation_id, entry.evidence))
            case EndSession():
                if any(operation.state not in SETTLED for operation in self.operations.values()):
                    return self._outcome(entry, Took.STATE_CONFLICT)
                self.state = entry.state
        return self._outcome(entry, Took.TOOK)

    def _outcome(self, entry: Write, took: Took, **more: Any) -> WriteOutcome:
        return WriteOutcome(write_id=entry.write_id, took=took, now=self.clock.now, **more)

    def _reserve(self, entry: Reserve) -> WriteOutcome:
        if self.state is not SessionState.OPEN:
            return self._outcome(entry, Took.STATE_CONFLICT)
        if any(not self._free(step) for step in entry.steps):
            return self._outcome(entry, Took.POSITION_TAKEN)
        for new in entry.operations:
            holder = next((one for one in self.operations.values() if one.key == new.key), None)
            if holder is not None:
                return self._outcome(entry, Took.KEY_IN_USE, operation=holder)
        made = tuple(self._operation(new) for new in entry.operations)
        self.operations |= {operation.id: operation for operation in made}
        for step in entry.steps:
            self.steps[step.label] = step_row(step)
        return self._outcome(entry, Took.TOOK, operations=made)

    def _free(self, new: NewStep) -> bool:
        for step in self.steps.values():
            here = (step.branch, step.index) == (new.branch, new.index)
            if here and new.takes_over:
                continue
            if here or step.label == new.label or step.seq == new.seq:
                return False
            if new.address is not None and step.address == new.address:
                return False
        return True

    def _operation(self, new: NewOperation) -> OperationRecord:
        given = {name: getattr(new, name) for name in new.__dataclass_fields__}
        now = self.clock.now
        return OperationRecord(
            **given, session_id=SESSION, state=State.READY, version=1, created_at=now, updated_at=now
        )

    def _advance(self, entry: Advance) -> WriteOutcome:
        before = self.operations[entry.operation_id]
        if before.version != entry.expect_version or before.state in SETTLED:
            return self._outcome(entry, Took.STATE_CONFLICT, operation=before)
        after = self.changed(before, entry.change, entry.attempt)
        assert after.state in ALLOWED[before.state], f"{before.state} -> {after.state} is not in the table"
        self.operations[before.id] = after
        self.evidence += [(before.id, seen) for seen in entry.evidence]
        self.log.append(("state", before.id, before.state, after.state))
        return self._outcome(entry, Took.TOOK, operation=after)

    def changed(self, before: OperationRecord, change: Change, attempt: NewAttempt | None) -> OperationRecord:
        """Return a row after a change, as the ledger's contract says."""
        now = self.clock.now
        new: dict[str, Any] = {name: value for name in SEEN_BY_CHANGE if (value := getattr(change, name)) is not UNSET}
        if change.reason in ENDS_OF_JOBS:
            new["untold"] = True
        last, first_maybe, absences, since = (
            before.last_deadline,
            before.first_maybe_at,
            before.absences,
            before.absent_since,
        )
        if attempt is not None:
            self.began[before.id] = now
            last = max(now + attempt.deadline, last or 0.0)
            new["attempts"] = attempt.number
        if change.mark_sent and before.first_sent_at is None:
            new["first_sent_at"] = now
        if change.clear_maybe:
            new["maybe_applied"], first_maybe = False, None
        if change.mark_maybe:
            new["maybe_applied"] = True
            first_maybe = first_maybe if first_maybe is not None else self.began.get(before.id, now)
        if change.mark_taken_over:
            last = max(now, last or 0.0)
        if change.clear_absent or change.clear_maybe:
            absences, since = 0, None
        if change.mark_absent:
            absences, since = absences + 1, now if since is None else since
        return replace(
            before,
            **new,
            version=before.version + 1,
            updated_at=now,
            last_deadline=last,
            first_maybe_at=first_maybe,
            absences=absences,
            absent_since=since,
        )


def step_row(step: NewStep) -> StepRecord:
    """Return the row that a taken position is kept as."""
    given = {name: getattr(step, name) for name in step.__dataclass_fields__ if name != "takes_over"}
    return StepRecord(session_id=SESSION, **given)


@dataclass
class Token:
    """Hands out credentials: the same token until it is refused, then the next; or what `say` says."""

    number: int = 1
    say: list[NoCredential] = field(default_factory=list)
    renews: bool = True
    principal: str = "none"
    value: str | None = None
    granted: str = ""

    def acquire(self, effect: Acquire) -> Credential | NoCredential:
        """Return a token that was not refused, if there is one."""
        if self.say:
            return self.say.pop(0)
        if effect.rejected == f"t{self.number}" and self.renews:
            self.number += 1
        token = self.value or f"t{self.number}"
        return Credential((("Authorization", f"Bearer {token}"),), self.principal, token, self.granted)


@dataclass
class World:
    """One process: performs effects on a ledger and a server that outlive it.

    Attributes:
        answer: what comes back for a `Send` or `Invoke`; the effect of the tool happens in it.
        crash_before, crash_after: number of the effect, from 1, before which or after which the process is gone.
        effects: what was performed, in order.
        lease: whether the lease stands by the local deadline.
        slow: seconds that each send takes.
        trouble: asked before each effect; what it raises is what the effect raises.
    """

    ledger: MemoryLedger
    answer: Callable[[Any], Any]
    token: Token = field(default_factory=Token)
    crash_before: int | None = None
    crash_after: int | None = None
    effects: list[Effect[Any]] = field(default_factory=list)
    lease: bool = True
    slow: float = 0.0
    random: float = 0.5
    ids: int = 0
    trouble: Callable[[Effect[Any]], None] | None = None

    def run(self, steps: Any) -> Any:
        """Drive a protocol to its end, or to the crash."""
        value, error = None, None
        while True:
            try:
                effect = steps.throw(error) if error is not None else steps.send(value)
            except StopIteration as end:
                return end.value
            if len(self.effects) + 1 == self.crash_before:
                raise Crash
            self.effects.append(effect)
            value, error = None, None
            try:
                value = self.perform(effect)
            except Exception as failure:
                error = failure
            if len(self.effects) == self.crash_after:
                raise Crash

    def perform(self, effect: Effect[Any]) -> Any:
        """Perform one effect."""
        if self.trouble is not None:
            self.trouble(effect)
        match effect:
            case Now():
                return self.ledger.clock.now
            case Random():
                return self.random
            case NewId():
                self.ids += 1
                return f"{self.ledger.fence}-{self.ids}"
            case Persist():
                return self.ledger.write(effect.entry)
            case Load():
                return self.ledger.operations.get(effect.operation_id)
            case Acquire():
                return self.token.acquire(effect)
            case Job():
                return effect.start(self.ledger).result()
            case LeaseHeld():
                return self.lease
            case Sleep():
                self.ledger.clock.now += effect.seconds
                return None
            case Send() | Invoke():
                self.ledger.log.append(("send", effect))
                self.ledger.clock.now += self.slow
                return self.answer(effect)
        raise AssertionError(effect)

    @property
    def sends(self) -> list[Send]:
        """The requests that went out under a key."""
        return [one for one in self.effects if isinstance(one, Send) and key_of(one) is not None]

    def desk(self) -> Desk:
        """Open the session: everything is read from the ledger, under its fence of now."""
        return Desk(
            book=Book(self.ledger.loaded()),
            session_id=SESSION,
            fence=self.ledger.fence,
            body_limit=1 << 20,
            secret=None,
        )


def key_of(send: Send) -> str | None:
    """Return the key that a request carries, or None."""
    return next((value for name, value in send.request.headers if name == "Idempotency-Key"), None)


def call_of(tool: AnyTool, args: Any = None, **more: Any) -> Call:
    """Return a call as a session prepares it."""
    validated = validate(tool, {"amount": 500} if args is None else args)
    return Call(tool=tool, validated=validated, frozen=freeze(tool, validated, {}), principal="none", **more)


def make_call(world: World, desk: Desk, call: Call) -> Any:
    """Place a call and take it to its outcome, as a session does."""
    place = desk.book.place(call.ask())
    try:
        return world.run(run_call(desk, call, place))
    finally:
        leave(desk, call, place)


def leave(desk: Desk, call: Call, place: Place) -> None:
    """Note that a call is over, as a session does."""
    step = desk.book.step(place.label)
    recorded = step is not None and step is not place.step
    if place.kind in {"new", "join", "refuse"} and not recorded and place.label not in desk.keyed:
        desk.book.give_back(place)
    desk.book.ended(place.label)


def json_answer(status: int, value: Any = None, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """Return a whole answer with a JSON body."""
    body = b"" if value is None else json.dumps(value, separators=(",", ":")).encode()
    return Answer(status=status, headers=(("Content-Type", "application/json"), *headers), body=body)


LOST = SendFailure(maybe_sent=True, error="ReadTimeout")
NOT_SENT = SendFailure(maybe_sent=False, error="ConnectError")
MARK = (("Idempotent-Replayed", "true"),)
KEYED = ToolContract(idempotency=Idempotency())
PLAIN = ToolContract()


def tool_of(contract: ToolContract = KEYED, **more: Any) -> Any:
    """Return a tool of the tests' server."""
    return Tool("debit", url=URL, contract=contract, **more)


def fresh(answer: Callable[[Any], Any], **more: Any) -> World:
    """Return a world with an empty ledger."""
    return World(MemoryLedger(Clock()), answer, **more)


def scripted(*results: Any) -> Callable[[Any], Any]:
    """Return answers one after another; the last one stays."""
    left = list(results)

    def answer(effect: Any) -> Any:
        given = left.pop(0) if len(left) > 1 else left[0]
        return given(effect) if callable(given) else given

    return answer


ONCE = RetryPolicy(attempts=1)
