"""Waits between attempts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime._core.backoff import backoff, wait_before_retry

chance = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(("attempt", "ceiling"), [(1, 0.5), (2, 1), (3, 2), (6, 16), (7, 30), (8, 30), (10**9, 30)])
def test_the_ceiling_doubles_up_to_the_cap(attempt, ceiling):
    """The ceiling grows from the base by the factor and stops at the cap, however late the attempt."""
    assert backoff(attempt, random=1.0) == ceiling
    assert backoff(attempt, random=0.5) == ceiling / 2
    assert backoff(attempt, random=0.0) == 0


def test_other_numbers_are_taken():
    """Base, factor and cap are the policy's, integers too."""
    assert backoff(3, base=1, factor=3, cap=100, random=1.0) == 9
    assert backoff(3, base=1, factor=1, cap=100, random=1.0) == 1
    assert backoff(5000, base=1, factor=3, cap=7, random=1.0) == 7


@given(st.integers(1, 10_000), chance)
def test_R2_full_jitter_stays_within_its_bounds(attempt, random):
    """Without a wait from the server the wait lies between 0 and the ceiling."""
    assert 0 <= wait_before_retry(None, attempt=attempt, random=random) <= 30


@given(st.floats(0, 1e12), st.integers(1, 100), chance)
def test_never_earlier_than_asked(asked, attempt, random):
    """The wait is at least what the server asked, and not more than a tenth or 5 s beyond it and the back-off."""
    wait = wait_before_retry(asked, attempt=attempt, random=random)
    assert asked <= wait <= max(asked, 30) + min(0.1 * asked, 5) + 1e-3


def test_an_absurd_wait_stays_endless():
    """An endless wait stays endless, so that the step is parked."""
    assert wait_before_retry(math.inf, attempt=1, random=0.0) == math.inf
    assert wait_before_retry(math.inf, attempt=1, random=0.9) == math.inf


@pytest.mark.parametrize("asked", [0, -1, -math.inf, math.nan])
def test_a_wait_that_is_none_leaves_the_back_off(asked):
    """Zero, negative and NaN waits (a function tool may name any) leave the back-off alone."""
    assert wait_before_retry(asked, attempt=2, random=0.5) == 0.5
