"""The demo as its users run it: a command, its last line, its exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo import judge

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).resolve().parents[2]


def run_demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the demo in an environment that holds nothing but a folder for temporary files, and what hides a library."""
    command = [sys.executable, "-m", "examples.demo", *options]
    hidden = {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
    environment = {"PATH": os.defpath, "TMPDIR": str(folder), **hidden}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_the_demo_ends_with_one_effect_for_each_step(tmp_path: Path) -> None:
    """A runner killed while a request is out and started again leaves one effect for each of its six steps."""
    demo = run_demo(tmp_path)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stdout.splitlines()[-1] == "demo: 6 steps, 6 effects, 0 duplicates, 0 lost"
    assert "in_flight" in demo.stdout
    assert "sent again under its key: the server gives its stored answer" in demo.stdout
    assert demo.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_the_demo_fails_where_a_second_runner_forgets_the_first(tmp_path: Path) -> None:
    """A second runner under another session name doubles effects, and the demo's exit status says so."""
    demo = run_demo(tmp_path, "--forget")
    assert demo.returncode == 1, demo.stdout + demo.stderr
    assert demo.stdout.splitlines()[-1] == "demo: 6 steps, 10 effects, 4 duplicates, 0 lost"


@pytest.mark.parametrize(
    ("keys", "effects", "told"),
    [
        (["a", "b"], ["a", "b"], "2 steps, 2 effects, 0 duplicates, 0 lost"),
        (["a", "b"], ["a", "b", "b"], "2 steps, 3 effects, 1 duplicates, 0 lost"),
        (["a", "b"], ["a", "b", "c"], "2 steps, 3 effects, 1 duplicates, 0 lost"),
        (["a", "b"], ["a"], "2 steps, 1 effects, 0 duplicates, 1 lost"),
        (["a"], ["a", "b"], "2 steps, 2 effects, 1 duplicates, 1 lost"),
        (["a", "b"], ["a", "a"], "2 steps, 2 effects, 1 duplicates, 1 lost"),
    ],
)
def test_the_verdict_counts_duplicates_and_losses(keys: list[str], effects: list[str], told: str) -> None:
    """Only a plan whose every recorded step has exactly one effect under its key is called good."""
    verdict = judge(2, keys, effects)
    assert str(verdict) == f"demo: {told}"
    assert verdict.good is (told == "2 steps, 2 effects, 0 duplicates, 0 lost")
