"""How long is waited, asked of a turned clock (A22 to A25)."""

from __future__ import annotations

import math
from email.utils import formatdate
from typing import TYPE_CHECKING

import pytest

from agent_runtime import RetryPolicy, StepPending, Timeouts, ToolContract
from tests.bugs.harness import NOW, does, keyed, loses, says, tool

if TYPE_CHECKING:
    from agent_runtime.testing import VirtualClock
    from tests.bugs.harness import Api

Put = "Callable[..., Target]"
FIRST_BACKOFF = 0.5


def date(ahead: float) -> str:
    return formatdate(NOW + ahead, usegmt=True)


FORMS = [
    ("2", 2.0),
    ("0.503", 0.503),
    (" 3 ", 3.0),
    (date(5), 5.0),
    ("5, 7", 0.0),
    (date(-60), 0.0),
    ("1m0s", 0.0),
    ("", 0.0),
    (None, 0.0),
]


@pytest.mark.parametrize("random", [0.0, 0.999])
def test_A22_every_wait_is_at_least_what_was_asked(api: Api, target: Put, clock: VirtualClock, random: float) -> None:
    """Each form of Retry-After is waited for in full, whatever the jitter; what cannot be read is plain backoff."""
    there = target(does())
    with api.worker(tool(), clock=clock, random=lambda: random).open() as plan:
        for branch, (value, asked) in plan.each(FORMS):
            base = clock.wall()
            told = date(base - NOW + asked) if value == date(5) else value
            there.script = [says(429, headers={} if told is None else {"Retry-After": told}), does()]
            branch.call("pay", {"n": 1})
            waited = clock.wall() - base
            assert asked - 1 * (value == date(5)) <= waited <= max(asked, FIRST_BACKOFF) + 0.1 * asked + 1e-6, value
    assert (there.sends, len(there.keys)) == (2 * len(FORMS), len(FORMS))


def test_A22_of_several_lines_the_longest_counts(api: Api, target: Put, clock: VirtualClock) -> None:
    """Two Retry-After lines are two values, and the longer one is waited for."""
    target(says(429, headers=[("Retry-After", "2"), ("Retry-After", "9")]), does())
    with api.worker(tool(), clock=clock).open() as plan:
        plan.call("pay", {"n": 1})
    assert 9 <= sum(clock.slept) < 10


NO_NUMBERS = ["-1", "nan", "inf", "1e999", "Fri, 31 Dec 99999 23:59:59 GMT", "+5", "1_0", "٣"]


@pytest.mark.parametrize("status", [429, 503])
def test_A23_numbers_that_are_none_are_plain_backoff(api: Api, target: Put, clock: VirtualClock, status: int) -> None:
    """Negative, not-a-number and made-up values neither crash, hang nor use up the retry."""
    there = target(does())
    with api.worker(tool(), clock=clock).open() as plan:
        for branch, value in plan.each(NO_NUMBERS):
            clock.slept.clear()
            there.script = [says(status, headers=[(b"Retry-After", value.encode())]), does()]
            branch.call("pay", {"n": 1})
            assert 0 <= sum(clock.slept) <= FIRST_BACKOFF, value
    assert there.sends == 2 * len(NO_NUMBERS)


ENDLESS = ["9999999999", "9" * 310, "9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT"]


@pytest.mark.parametrize(("status", "word"), [(429, "pending"), (503, "unknown")])
def test_A23_waits_without_end_park_the_step(
    api_on_both: Api, target: Put, clock: VirtualClock, status: int, word: str
) -> None:
    """Absurdly long waits are never slept: the step waits in the ledger until a moment that a clock can have."""
    there = target(does())
    with api_on_both.worker(tool(), clock=clock).open() as plan:
        for branch, value in plan.each(ENDLESS):
            there.script = [says(status, headers={"Retry-After": value})]
            outcome = branch.try_call("pay", {"n": 1})
            assert outcome.status == word, value
            assert math.isfinite(outcome.resume_at), value
            assert outcome.resume_at > clock.wall() + 1e8, value
        assert len(str(plan.steps()).splitlines()) == 1 + len(ENDLESS)
    assert (clock.slept, there.sends) == ([], len(ENDLESS))


def test_A24_a_wait_beyond_the_budget_parks_the_step(api_on_both: Api, target: Put, clock: VirtualClock) -> None:
    """An hour is neither slept nor cut short: the error carries it, nothing is sent before it is over, here or by
    another worker, and then the same key goes out."""
    there = target(says(429, headers={"Retry-After": "3600"}), does())
    with api_on_both.worker(tool(), clock=clock).open() as plan:
        with pytest.raises(StepPending) as caught:
            plan.call("pay", {"n": 1})
        assert (caught.value.kind, caught.value.outcome.state) == ("parked", "ready")
        assert caught.value.resume_at >= clock.wall() + 3600
    clock.advance(3500)
    with api_on_both.worker(tool(), clock=clock).resume() as plan:
        assert plan.try_call("pay", {"n": 1}).status == "pending"
    assert (clock.slept, there.sends) == ([], 1)
    clock.advance(500)
    with api_on_both.worker(tool(), clock=clock).resume() as plan:
        done = plan.call("pay", {"n": 1})
    assert (there.sends, there.keys) == (2, {done.key})


def test_A24_a_wait_beyond_the_steps_deadline_parks_as_well(api: Api, target: Put, clock: VirtualClock) -> None:
    """A wait that is short enough to be slept and ends after the step's own deadline is not begun."""
    there = target(says(429, headers={"Retry-After": "30"}), does())
    contract = keyed(timeouts=Timeouts(step=20), retry=RetryPolicy(max_inline_wait=60))
    with api.worker(tool(contract=contract), clock=clock).open() as plan:
        outcome = plan.try_call("pay", {"n": 1})
    assert (outcome.status, outcome.kind) == ("pending", "parked")
    assert (clock.slept, there.sends) == ([], 1)


@pytest.mark.parametrize("headers", [{"Retry-After": "1"}, {}], ids=["retry-after", "bare"])
def test_A25_our_own_first_attempt_still_runs(api: Api, target: Put, clock: VirtualClock, headers: dict) -> None:
    """After a timeout, 409 says that the first request runs: waited for under the same key until its result comes."""
    busy = says(409, headers=headers)
    there = target(loses(), busy, busy, says(201, {"id": "x"}))
    with api.worker(tool(), clock=clock).open() as plan:
        done = plan.call("pay", {"n": 1})
    assert done.value == {"id": "x"}
    assert (there.sends, len(there.keys), len(there.bodies)) == (4, 1, 1)
    assert len(clock.slept) == 3
    assert not headers or min(clock.slept[1:]) >= 1


@pytest.mark.parametrize("first", [loses(), says(409)], ids=["after-a-timeout", "at-once"])
@pytest.mark.parametrize("status", [409, 423])
def test_A25_in_progress_until_the_budget_ends_is_unknown(
    api: Api, target: Put, clock: VirtualClock, first: object, status: int
) -> None:
    """ "In progress" uses up the deadline, not the attempts, and its end is unknown, never failed."""
    there = target(first, says(status, headers={"Retry-After": "20"}))
    with api.worker(tool(), clock=clock).open() as plan:
        outcome = plan.try_call("pay", {"n": 1})
    assert (outcome.status, outcome.reason) == ("unknown", "in_progress")
    assert there.sends > RetryPolicy().attempts
    assert 240 < sum(clock.slept) <= 300


def test_A25_a_409_without_keys_is_a_refusal(api: Api, target: Put) -> None:
    """A tool that honours no key speaks of the thing, not of our request: refused, nothing took effect."""
    there = target(says(409, {"detail": "name taken"}))
    with api.worker(tool(contract=ToolContract())).open() as plan:
        outcome = plan.try_call("pay", {"n": 1})
    assert (outcome.status, outcome.effect, there.sends) == ("failed", "none", 1)
