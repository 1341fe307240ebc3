"""Every point at which a worker can die, in every script of a tool's bad days: no effect twice, nothing lost.

Each run kills the process before one of its effects (a write, a request, a wait ...), or right after a write or a
request took hold, resumes under the next fence, kills that one too, and at last lets a third come to its end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from agent_runtime import HttpLookup, Idempotency, ToolContract
from agent_runtime._core.effects import Acquire, Persist, Send, Sleep
from agent_runtime._model import Effect, State
from agent_runtime.config import Member, RetryPolicy
from tests.core.tool_server import Server
from tests.core.world import Clock, Crash, MemoryLedger, Token, World, call_of, make_call, tool_of

CLAIM = 30.0


def _lookup(**more):
    return HttpLookup(
        url="/operations/{key}",
        done=Member(name="state", equals="done"),
        running=Member(name="state", equals="running"),
        absent=Member(name="state", equals="absent"),
        result="body",
        status="status",
        **more,
    )


def _contract(**more):
    # Long waits: a bad day is over after few requests, so that all crash points can be tried.
    return ToolContract(retry=RetryPolicy(attempts=3, base=10.0), **more)


LOOKUP = _lookup()
PROOF = _lookup(absence_is_proof=True, settle_after=5.0)
CONTRACTS = {
    "keyed": _contract(idempotency=Idempotency()),
    "keyed_lookup": _contract(idempotency=Idempotency(), lookup=LOOKUP),
    "claim": _contract(idempotency=Idempotency(in_progress_ttl=CLAIM)),
    "claim_lookup": _contract(idempotency=Idempotency(in_progress_ttl=CLAIM), lookup=LOOKUP),
    "claim_proof": _contract(idempotency=Idempotency(in_progress_ttl=CLAIM), lookup=PROOF),
    "slow_handler": _contract(idempotency=Idempotency(in_progress_ttl=CLAIM, max_execution=2 * CLAIM), lookup=LOOKUP),
    "token_bound": _contract(idempotency=Idempotency(key_bound_to_token=True), lookup=LOOKUP),
    "stored_5xx": _contract(idempotency=Idempotency(), on_5xx="stored"),
    "plain": _contract(),
    "plain_lookup": _contract(lookup=LOOKUP),
    "plain_proof": _contract(lookup=PROOF),
}
TOOLS = {name: tool_of(contract) for name, contract in CONTRACTS.items()}
CALLS = {name: call_of(tool) for name, tool in TOOLS.items()}

COMMON = (
    "ok",
    "lost",
    "lost_before",
    "connect",
    "busy",
    "busy_long",
    "refuse",
    "unauthorised",
    "unauthorised unauthorised",
    "fails_before",
    "gateway_before",
    "gateway_after",
    "half_way",
    "half_way_lost",
    "see_other",
    "moved",
    "job",
    "cut",
    "busy lost",
    "connect lost_before",
    "lost_before refuse",
    "lost_before unauthorised",
    "lost_before unauthorised unauthorised",
    "lost_before busy_long",
    "lost_before gateway_before",
    "lost_before connect lost",
    "unauthorised lost",
)
KEYED_ONLY = ("slow", "lost_before slow", "job_lost")
SCRIPTS = {
    "keyed": (*COMMON, *KEYED_ONLY, "fails_after", "lost_before fails_after"),
    "keyed_lookup": (*COMMON, *KEYED_ONLY, "fails_after", "lost_before fails_after"),
    "claim": (*COMMON, *KEYED_ONLY, "dies", "fails_after"),
    "claim_lookup": (*COMMON, *KEYED_ONLY, "dies", "fails_after"),
    "claim_proof": (*COMMON, *KEYED_ONLY),
    "slow_handler": (*COMMON, *KEYED_ONLY, "dies"),
    "token_bound": (*COMMON, *KEYED_ONLY),
    "stored_5xx": COMMON,
    "plain": (*COMMON, "fails_after"),
    "plain_lookup": (*COMMON, "fails_after", "job_lost"),
    "plain_proof": (*COMMON, "job_lost"),
}


@dataclass
class Story:
    """One server and one ledger, and the processes that die over them."""

    name: str
    script: str
    pause: float
    server: Server = field(init=False)
    ledger: MemoryLedger = field(init=False)
    worlds: list[World] = field(default_factory=list)

    def __post_init__(self) -> None:
        clock = Clock()
        keyed = CONTRACTS[self.name].honours_keys
        self.server = Server(clock, self.script.split(), honours=keyed, claim=CLAIM if keyed else None)
        self.ledger = MemoryLedger(clock)

    def process(self, before: int | None = None, after: int | None = None):
        """Start a process that makes the call; return its outcome, or None if it died."""
        if self.worlds:
            self.ledger.fence += 1
            self.ledger.clock.now += self.pause
        world = World(self.ledger, self.server, token=Token(renews=True), crash_before=before, crash_after=after)
        self.worlds.append(world)
        try:
            return make_call(world, world.desk(), CALLS[self.name])
        except Crash:
            return None
        finally:
            self.check()

    @property
    def ran(self) -> int:
        """Processes in this story."""
        return len(self.worlds)

    @property
    def deceived(self) -> bool:
        """Whether the server had the effect, kept nothing of it, and the worker died without having seen the answer.

        Against a server that honours keys only as long as it does not fail, nobody can do anything then.
        """
        in_flight = any(one.state is State.IN_FLIGHT for one in self.ledger.operations.values())
        return self.server.unlike_its_word and in_flight and CONTRACTS[self.name].honours_keys

    def to_the_end(self):
        """Resume until nothing more can become known, and return the operation."""
        for _ in range(5):
            outcome = self.process()
            if outcome.done:
                break
            self.ledger.clock.now += 400.0
        (operation,) = self.ledger.operations.values()
        return operation

    def check(self) -> None:
        """Hold what has to be true at every moment."""
        for key, count in self.server.effects.items():
            assert count <= 1, f"{count} effects of {key}"
        assert len(set(self.server.requests)) <= 1, "another key or other bytes"
        self._check_order()
        for operation in self.ledger.operations.values():
            if self.server.effects[operation.key]:
                known = operation.state in {State.SUCCEEDED, State.ACCEPTED, State.IN_FLIGHT, State.UNKNOWN}
                half = operation.state is State.FAILED and operation.effect is Effect.POSSIBLE
                assert known or half, f"the effect stands, and the ledger says {operation.state} {operation.effect}"
            elif operation.state is State.SUCCEEDED:
                pytest.fail("the ledger says succeeded, and no effect stands")

    def _check_order(self) -> None:
        """`in_flight` is the last write before the first byte, and what became of it the first one after."""
        state, sent_in_flight = None, 0
        for kind, *rest in self.ledger.log:
            if kind == "state":
                state, sent_in_flight = rest[2], 0
            elif any(name == "Idempotency-Key" for name, _ in rest[0].request.headers):
                assert state is State.IN_FLIGHT, f"a request went out in state {state}"
                sent_in_flight += 1
                assert sent_in_flight == 1 or rest[0].request.url.endswith("/v2"), "two requests of one attempt"


def points(world: World, kinds: tuple[type, ...]) -> list[tuple[int | None, int | None]]:
    """Return the crash points of a run that came to its end: before each effect of a kind, after writes and sends."""
    before = [(n, None) for n, effect in enumerate(world.effects, 1) if isinstance(effect, kinds)]
    return before + [(None, n) for n, effect in enumerate(world.effects, 1) if isinstance(effect, Persist | Send)]


SEEN_OUTSIDE = (Persist, Send, Acquire, Sleep)
"""A crash between two of these is the same as one before the second."""


TWICE = ("ok", "lost", "lost_before", "lost_before refuse", "half_way_lost", "gateway_after", "slow", "dies")
"""Scripts in which the second worker may die anywhere too."""


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_crash_anywhere_doubles_nothing_and_loses_nothing(name):
    """Whatever a worker dies before, the effect happens at most once and is not lost."""
    pauses = (1.0, 2 * CLAIM) if CONTRACTS[name].lookup is not None else (1.0,)
    runs = 0
    for script in SCRIPTS[name]:
        whole = Story(name, script, 1.0)
        whole.process()
        kinds = (object,) if name in {"keyed", "plain"} else SEEN_OUTSIDE
        for first in points(whole.worlds[0], kinds):
            runs += sum(_story(name, script, pause, first).ran for pause in pauses)
    assert runs >= 700, f"{runs} runs are not all crash points"


@pytest.mark.parametrize("name", CONTRACTS)
def test_two_crashes_anywhere_double_nothing_and_lose_nothing(name):
    """Whatever a worker dies before, and the worker that resumes it too, the effect happens at most once."""
    runs = 0
    for script in set(TWICE) & set(SCRIPTS[name]):
        whole = Story(name, script, 1.0)
        whole.process()
        for first in points(whole.worlds[0], SEEN_OUTSIDE):
            probe = _story(name, script, 2 * CLAIM, first)
            for second in points(probe.worlds[1], SEEN_OUTSIDE):
                runs += _story(name, script, 2 * CLAIM, first, second).ran
    assert runs >= 700, f"{runs} runs are not all crash points"


def _story(name, script, pause, *crashes):
    """Tell one story: processes that die at given points, then one that comes to its end."""
    story = Story(name, script, pause)
    for crash in crashes:
        story.process(*crash)
        if story.deceived:
            return story
    story.operation = story.to_the_end()
    return story
