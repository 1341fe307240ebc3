"""The benchmark of many jobs runs, and says when a bound is broken; how late polls are is asserted there, not here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bench_jobs import MOST_KB, MOST_LATE, MOST_THREADS, broken

pytestmark = pytest.mark.acceptance
ROOT = Path(__file__).parents[3]
JOBS = 30
KEPT = {"jobs": 1000, "late_most_s": 0.5, "early": 0, "threads": 17, "memory_kb": 60_000, "memory_kb_later": 100}


def test_few_jobs_take_few_threads_and_little_memory() -> None:
    """Each way, over TCP: every job is polled, none too early, without a thread or much memory for each."""
    command = [sys.executable, "-m", "benchmarks.bench_jobs", str(JOBS), "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    bare, *ways = [json.loads(line) for line in done.stdout.splitlines()]
    assert (bare["way"], bare["jobs"]) == ("floor", JOBS)
    assert [one["way"] for one in ways] == ["waiting sessions", "follow_jobs, async", "follow_jobs, blocking"], done
    for one in ways:
        assert (one["jobs"], one["early"]) == (JOBS, 0)
        assert one["polls"] >= JOBS
        assert set(one["broken"]) <= {"late_most_s"}
    assert [one["threads"] < JOBS for one in ways] == [True, True, True]
    assert done.returncode == any(one["broken"] for one in ways)


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("late_most_s", MOST_LATE + 0.001),
        ("early", 1),
        ("threads", MOST_THREADS + 1),
        ("memory_kb", MOST_KB[0] + MOST_KB[1] * 1000 + 1),
        ("memory_kb_later", 15_001),
    ],
)
def test_each_bound_can_be_broken(figure: str, value: float) -> None:
    """And nothing is broken by figures that keep to all of them; lateness counts from the floor."""
    assert broken(KEPT, 0.0) == []
    assert broken(KEPT | {figure: value}, 0.0) == [figure]
    assert broken(KEPT | {"late_most_s": MOST_LATE + 0.001}, 0.1) == []
