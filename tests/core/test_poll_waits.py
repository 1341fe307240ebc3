"""When a job is looked at next: waits, hints, the bound, and what a follower does with its turn."""

import pytest

from agent_runtime._core.poll_waits import A_LITTLE, Step, Turn, end_of, first_wait, is_too_long, next_wait, turn_of
from agent_runtime.config import PollPolicy
from tests.core.job_world import RUNS, followed, handle, job_tool, left, started
from tests.core.world import START, json_answer

PLAIN, CALLS_BACK = PollPolicy(), PollPolicy(webhook=True)
BOUND = START + 600.0


@pytest.mark.parametrize(
    ("policy", "hint", "seconds"),
    [
        (PLAIN, None, 5.0),
        (PLAIN, 30.0, 30.0),
        (PLAIN, 90.0, 90.0),  # above the cap too
        (PLAIN, 0.01, 0.2),
        (CALLS_BACK, None, 60.0),
        (CALLS_BACK, 5.0, 60.0),  # a callback will come, so it is asked slowly
        (CALLS_BACK, 90.0, 90.0),
    ],
)
def test_the_first_look_comes_when_the_tool_says_or_after_five_seconds(policy, hint, seconds):
    """Never earlier than asked, and a little later."""
    wait = seconds if hint is None else seconds + A_LITTLE
    assert first_wait(handle(poll_after=hint), policy, 0.0) == pytest.approx(wait)


@pytest.mark.parametrize(
    ("policy", "seen", "hint", "plain"),
    [
        (PLAIN, {"wait": 10.0}, None, 15.0),
        (PLAIN, {"poll_after": 30.0}, None, 45.0),
        (PLAIN, {}, None, 7.5),
        (PLAIN, {"wait": 50.0}, None, 60.0),
        (PLAIN, {"wait": 200.0}, None, 60.0),
        (PLAIN, {"wait": 10.0}, 90.0, 90.0),
        (PLAIN, {"wait": 10.0}, 2.0, 2.0),
        (PollPolicy(first=0), {}, None, 0.3),
        (CALLS_BACK, {"wait": 10.0}, None, 60.0),
        (CALLS_BACK, {"wait": 10.0}, 2.0, 60.0),
    ],
)
def test_waits_grow_by_half_up_to_the_cap_unless_the_tool_says(policy, seen, hint, plain):
    """A hint is the least wait, above the cap too; without one the last wait grows."""
    wait, grown = next_wait(handle(**seen), policy, hint, 0.0)
    assert grown == pytest.approx(plain)
    assert wait == pytest.approx(plain if hint is None else plain + A_LITTLE)


@pytest.mark.parametrize("random", [0.0, 0.5, 0.999])
def test_jitter_only_lengthens_a_wait_and_by_a_tenth_at_most(random):
    """So that many jobs do not ask at once, and none too early; the growth does not carry it on."""
    wait, plain = next_wait(handle(), PLAIN, 8.0, random)
    assert plain + A_LITTLE <= wait <= plain * 1.1 + A_LITTLE
    assert plain == 8.0


def test_a_job_said_to_take_longer_than_the_bound_is_too_long():
    """An estimate of just the bound is waited for."""
    assert is_too_long(handle(estimated=601.0), PLAIN)
    assert not is_too_long(handle(estimated=600.0), PLAIN)
    assert not is_too_long(handle(), PLAIN)


def test_the_bound_counts_from_the_stored_start():
    """Patience reaches beyond it, and never shortens it."""
    assert end_of(handle(), PLAIN, 0.0) == BOUND
    assert end_of(handle(), PLAIN, BOUND + 5) == BOUND + 5
    assert end_of(handle(), PLAIN, START + 5) == BOUND


LOOK, PAUSE, TIME_OUT = Turn(Step.LOOK), Turn(Step.PAUSE), Turn(Step.TIME_OUT)
NOW = START + 100.0
TURNS = {
    # what differs from: a job that is due now, waited for, not looked at yet; what is done
    "due": ({}, LOOK),
    "not-yet": ({"due": NOW + 9}, Turn(Step.WAIT, NOW + 9)),
    "due-beyond-the-bound": ({"due": BOUND + 1}, TIME_OUT),
    "due-beyond-the-bound-with-callback": ({"due": BOUND + 1, "policy": CALLS_BACK}, Turn(Step.WAIT, BOUND)),
    "once": ({"mode": "once", "due": NOW + 9}, LOOK),
    "once-too-early": ({"mode": "once", "not_before": NOW + 1}, PAUSE),
    "once-no-more-early": ({"mode": "once", "not_before": NOW}, LOOK),
    "once-is-enough": ({"mode": "once", "looks": 1}, PAUSE),
    "next": ({"mode": "next", "due": NOW + 9}, Turn(Step.WAIT, NOW + 9)),
    "next-was-had": ({"mode": "next", "looks": 1}, PAUSE),
    "too-long-to-wait": ({"estimated": 7200.0, "due": NOW + 9}, PAUSE),
    "too-long-but-due": ({"estimated": 7200.0}, LOOK),
    "too-long-and-looked-at": ({"estimated": 7200.0, "looks": 1}, PAUSE),
    "too-long-but-with-patience": (
        {"estimated": 7200.0, "due": NOW + 9, "patience": NOW + 99},
        Turn(Step.WAIT, NOW + 9),
    ),
    "past-the-bound-looks-once": ({"now": BOUND, "due": BOUND + 9}, LOOK),
    "past-the-bound-and-looked-at": ({"now": BOUND, "due": BOUND + 9, "looks": 1}, TIME_OUT),
    "past-the-bound-and-due": ({"now": BOUND, "due": BOUND, "looks": 1}, LOOK),
    "past-the-bound-not-too-early": ({"now": BOUND, "not_before": BOUND + 60}, Turn(Step.WAIT, BOUND + 60)),
    "past-the-bound-far-too-early": ({"now": BOUND, "not_before": BOUND + 61}, TIME_OUT),
    "patience-is-another-bound": ({"now": BOUND, "due": BOUND + 9, "patience": BOUND + 10}, Turn(Step.WAIT, BOUND + 9)),
}


@pytest.mark.parametrize(("given", "wanted"), TURNS.values(), ids=TURNS)
def test_what_a_follower_does_next(given, wanted):
    """Look, wait, pause or stop waiting: by who waits for what, the bound, and what the tool asked for."""
    seen = {name: given[name] for name in ("not_before", "estimated") if name in given}
    asked = {"policy": PLAIN, "mode": "wait", "due": NOW, "looks": 0, "now": NOW, "patience": 0.0} | {
        name: value for name, value in given.items() if name not in seen
    }
    assert turn_of(handle(**seen), *asked.values()) == wanted


def test_without_hints_the_distances_grow_to_the_cap_and_end_at_the_bound():
    """5, then each half as long again, up to 60; the last look is at the bound, and the job stays accepted."""
    bare = {"status": "processing", "status_url": "/s"}
    world = followed(json_answer(200, {"status": "processing"}), start=started(bare), random=0.0)
    assert world.waits[:8] == pytest.approx([5.0, 7.5, 11.25, 16.875, 25.3125, 37.96875, 56.953125, 60.0])
    assert max(world.waits) <= 60.0
    assert world.ledger.clock.now == pytest.approx(BOUND)


def test_a_hint_in_any_answer_is_kept_to():
    """30 s before the first look, as the start said, then 45, as the looks say."""
    world = followed(json_answer(200, RUNS), random=0.0)
    assert world.waits == pytest.approx([30.0 + A_LITTLE] + [45.0 + A_LITTLE] * 12)


def test_an_estimate_beyond_the_bound_is_not_waited_for():
    """The call returns, the job goes on and counts as detached."""
    long = started({"status_url": "/s", "estimated_duration_seconds": 7200})
    world = followed(json_answer(200, RUNS), start=long)
    assert (world.waits, world.polls, world.handle["detached"]) == ([], [], True)
    assert left(job_tool()).waits == []


@pytest.mark.parametrize(
    ("more", "now", "step"),
    [
        ({}, 0.0, Step.LOOK),
        ({"looked_at": START}, 4.9, Step.PAUSE),
        ({"looked_at": START}, 5.0, Step.LOOK),
        ({"looked_at": START, "not_before": START + 0.2}, 0.3, Step.LOOK),
    ],
)
def test_a_look_that_nobody_asked_to_put_off_keeps_to_the_first_wait(more, now, step):
    """Unless nothing was ever looked at, or the tool itself asked for less."""
    turn = turn_of(handle(**more), PollPolicy(), "once", START, 0, START + now, 0.0)
    assert turn.step is step
