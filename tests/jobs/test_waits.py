"""When a job is looked at: the decision, for each kind of following."""

from __future__ import annotations

import pytest

from agent_runtime import PollPolicy
from agent_runtime._core.poll_waits import Step, first_wait, next_wait, turn_of
from agent_runtime._model import Handle

T = 1000.0


def handle(**more):
    return Handle(url="u", job_id="j", protocol="body", started_at=T, **more)


def turn(mode="wait", due=T, looks=0, now=T, patience=0.0, policy=None, **more):
    made = turn_of(handle(**more), policy or PollPolicy(), mode, due, looks, now, patience)
    return (made.step, made.until) if made.step is Step.WAIT else made.step


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"due": T + 5}, (Step.WAIT, T + 5)),
        ({}, Step.LOOK),
        ({"mode": "next", "looks": 1}, Step.PAUSE),
        ({"mode": "next"}, Step.LOOK),
        ({"mode": "once"}, Step.LOOK),
        ({"mode": "once", "looks": 1}, Step.PAUSE),
        ({"mode": "once", "not_before": T + 1}, Step.PAUSE),
        ({"mode": "once", "not_before": T}, Step.LOOK),
        ({"estimated": 2400.0}, Step.LOOK),
        ({"estimated": 2400.0, "looks": 1}, Step.PAUSE),
        ({"estimated": 2400.0, "due": T + 1}, Step.PAUSE),
        ({"estimated": 2400.0, "due": T + 1, "patience": T + 60}, (Step.WAIT, T + 1)),
        ({"now": T + 600, "due": T + 700, "looks": 1}, Step.TIME_OUT),
        ({"now": T + 600, "due": T + 600, "looks": 1}, Step.LOOK),
        ({"now": T + 900, "due": T + 700}, Step.LOOK),
        ({"now": T + 900, "not_before": T + 930, "due": T + 931}, (Step.WAIT, T + 930)),
        ({"now": T + 900, "not_before": T + 990, "due": T + 991}, Step.TIME_OUT),
        ({"due": T + 601, "not_before": T + 601}, Step.TIME_OUT),
        ({"due": T + 601, "policy": PollPolicy(webhook=True)}, (Step.WAIT, T + 600)),
    ],
)
def test_the_next_turn(given, wanted):
    """Look, wait, pause or time out, by what the tool asked for, the bound and who waits."""
    assert turn(**given) == wanted


def test_the_first_wait():
    """The tool's hint, or 5 s; slowly where a callback is waited for; never in a tight loop."""
    assert first_wait(handle(poll_after=30.0), PollPolicy(), 0.0) == 30.2
    assert first_wait(handle(), PollPolicy(), 0.0) == 5
    assert first_wait(handle(), PollPolicy(webhook=True), 0.0) == 60
    assert first_wait(handle(poll_after=3.0), PollPolicy(webhook="s"), 0.0) == 60.2
    assert first_wait(handle(poll_after=0.01), PollPolicy(), 0.0) == 0.4


def test_the_next_wait():
    """A hint counts above the cap; without one it grows from the last, up to the cap; jitter only adds."""
    assert next_wait(handle(wait=30.0), PollPolicy(), 90.0, 0.0) == (90.2, 90)
    assert next_wait(handle(wait=30.0), PollPolicy(), None, 0.0) == (45, 45)
    assert next_wait(handle(wait=50.0), PollPolicy(), None, 0.0) == (60, 60)
    assert next_wait(handle(wait=1.0), PollPolicy(webhook=True), None, 0.0) == (60, 60)
    assert next_wait(handle(wait=40.0), PollPolicy(), None, 1.0) == (65, 60)
