"""Random programs over positions: whatever a program does and wherever it dies, run again it finds its own steps.

The machine writes a program call by call: by counter or by address, on two branches, of two writes and a read, with
answers that settle and answers that do not. A restart runs it again from its top with a new book, as code does; a crash
ends a call anywhere, and the code comes to the same call again.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_runtime import Tool, ToolContract
from agent_runtime._core.ending import decide
from agent_runtime._core.places import message_of
from agent_runtime._model import SETTLED, State
from tests.core.world import LOST, Clock, Crash, MemoryLedger, World, call_of, json_answer, key_of, make_call

TOOLS = {
    name: Tool(name, url=f"https://tools.test/{name}", contract=ToolContract(kind="read" if name == "r" else "write"))
    for name in ("a", "b", "r")
}
ANSWERS = {
    "ok": json_answer(200, {"ok": True}),
    "lost": LOST,
    "refused": json_answer(400),
    "parked": json_answer(429, None, (("Retry-After", "99"),)),
}
ADDRESSES = ("m1.0", "m1.1", "m2.0", "free text")


@dataclasses.dataclass(frozen=True)
class Ask:
    """One call in the program."""

    tool: str
    amount: int
    branch: str
    at: str | None
    goes_on: bool
    answer: str

    def call(self):
        """Return it as a session prepares it."""
        more = {"branch": self.branch, "at": self.at, "goes_on": self.goes_on}
        return call_of(TOOLS[self.tool], {"amount": self.amount}, **more)


class Programs(RuleBasedStateMachine):
    """A program that grows, dies and starts again over one ledger."""

    def __init__(self):
        super().__init__()
        self.ledger = MemoryLedger(Clock())
        self.effects = Counter()
        self.program = []  # pairs: what was asked, what was delivered
        self.acts = {}  # what stands behind an address
        self.open()

    def open(self):
        """Start a process: another fence, a book of its own."""
        self.ledger.fence += 1
        self.world = World(self.ledger, None)
        self.desk = self.world.desk()

    def make(self, ask, *, crash=None):
        """Make a call; its answer counts as an effect where it is one."""

        def answer(send):
            self.effects[key_of(send)] += ask.tool != "r" and ask.answer in {"ok", "lost"}
            return ANSWERS[ask.answer]

        self.world.answer = answer
        self.world.crash_before = None if crash is None else len(self.world.effects) + crash
        return make_call(self.world, self.desk, ask.call())

    def blocking(self, ask):
        """Return writes of the branch whose end the code was not told, oldest first: the rule, said once more."""
        found = {}
        for step in sorted(self.ledger.steps.values(), key=lambda one: one.seq):
            operation = self.ledger.operations.get(step.operation_id)
            if step.branch != ask.branch or operation is None or operation.id in found:
                continue
            same_message = None not in {ask.at, step.address} and message_of(ask.at) == message_of(step.address)
            pointing = [other for other in self.ledger.steps.values() if other.operation_id == operation.id]
            untold = max(pointing, key=lambda one: one.seq).delivered is not None
            waits = (operation.state not in SETTLED or untold) and operation.kind == "write"
            found[operation.id] = operation if waits and not same_message else None
        return [operation for operation in found.values() if operation is not None]

    @rule(
        tool=st.sampled_from("aabbr"),
        amount=st.sampled_from([1, 2]),
        branch=st.sampled_from(["", "", "x"]),
        at=st.sampled_from([None, None, None, *ADDRESSES]),
        goes_on=st.booleans(),
        answer=st.sampled_from(["ok", "lost", "lost", "refused", "parked"]),
        crash=st.one_of(st.none(), st.none(), st.integers(1, 25)),
    )
    def call(self, tool, amount, branch, at, goes_on, answer, crash):
        """Make the next call of the program; if the process dies in it, start again and come to it once more."""
        ask = Ask(tool, amount, branch, at, goes_on, answer)
        known = at is not None and at in self.acts
        if known:
            ask = dataclasses.replace(self.acts[at], answer=answer)
        if at is not None:
            self.acts[at] = ask
        blocking = self.blocking(ask)
        sends = len(self.world.sends)
        try:
            outcome = self.make(ask, crash=crash)
        except Crash:
            self.restart()
            outcome = self.make(ask)
        else:
            if not known:
                self.check_fresh(ask, outcome, blocking, len(self.world.sends) - sends)
        self.program.append((ask, outcome))

    def check_fresh(self, ask, outcome, blocking, sends):
        """A new position joins an equal unsettled write, is refused by another one, or makes an operation."""
        same = [one for one in blocking if (one.tool, one.args) == (ask.tool, b'{"amount":%d}' % ask.amount)]
        unsettled = [one for one in blocking if one.state not in SETTLED]
        others = [one for one in unsettled if not ask.goes_on or one.tool == ask.tool]
        if same:
            assert outcome.operation_id == same[0].id, "an equal call joins the oldest operation that is unsettled"
        elif others and ask.tool != "r":
            assert (outcome.status, outcome.reason, sends) == ("not_started", "unsettled", 0)
            assert outcome.blocking == others[0].label
            assert self.ledger.steps[outcome.step].kind == "refused"
        else:
            assert outcome.status != "not_started"

    @rule()
    def restart(self):
        """Run the program again from its top: the same labels, and what was delivered is delivered again."""
        self.open()
        made = len(self.ledger.operations)
        fresh = 0
        again = []
        for ask, before in self.program:
            outcome = self.make(ask)
            again.append((ask, outcome))
            fresh += before.operation_id is None and outcome.operation_id is not None
            assert before.operation_id is None or outcome.operation_id == before.operation_id
            if ask.at is None or before.operation_id is not None:
                assert outcome.step == before.step, f"{before.step} was found as {outcome.step}"
            if before.state in SETTLED or (ask.at is None and self.went_on(before, ask.branch)):
                # The message may add what has become of the step since.
                told_before = (before.status, before.value, before.reason)
                assert (outcome.status, outcome.value, outcome.reason) == told_before
        assert len(self.ledger.operations) <= made + fresh, "a replay makes no operation of its own"
        self.program = again

    def went_on(self, before, branch):
        """Whether the program made a call of the branch after it was told an unsettled outcome."""
        steps = [outcome.step for ask, outcome in self.program if ask.branch == branch and outcome.operation_id]
        return before.operation_id is not None and any(step > before.step for step in steps)

    @rule(succeeded=st.booleans())
    def decide(self, succeeded):
        """Let a person settle the oldest unknown operation."""
        unknown = [one for one in self.ledger.operations.values() if one.state is State.UNKNOWN]
        if unknown:
            self.world.crash_before = None
            self.world.run(
                decide("", unknown[0].id, succeeded, {"ok": True} if succeeded else None, "ann", "seen", "none")
            )

    @invariant()
    def every_operation_has_a_label_and_a_key_of_its_own(self):
        """No two operations share a label or a key, no two steps a place, an order or an address."""
        operations, steps = self.ledger.operations.values(), self.ledger.steps.values()
        for values in (
            [one.label for one in operations],
            [one.key for one in operations],
            [(step.branch, step.index) for step in steps],
            [step.seq for step in steps],
            [step.address for step in steps if step.address is not None],
        ):
            assert len(values) == len(set(values))

    @invariant()
    def no_effect_happens_twice(self):
        """A tool that honours no key is asked once for each operation that may have been applied."""
        assert all(count <= 1 for count in self.effects.values())


TestPrograms = Programs.TestCase
TestPrograms.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
