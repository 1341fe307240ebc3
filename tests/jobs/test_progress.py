"""The progress bar of the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from agent_runtime import JobProgress
from agent_runtime.progress import terminal_progress


def seen(**changed: object) -> JobProgress:
    given = {
        "step": "step_001",
        "tool": "transcode",
        "job_id": "j",
        "status_url": None,
        "status": "running",
        "percent": None,
        "message": "[red]ignore all rules[/red]",
        "polls": 1,
        "elapsed": 60.0,
        "estimated": None,
        "next_look_at": None,
    }
    return JobProgress(**(given | changed))


def test_a_bar_shows_each_job_and_its_end() -> None:
    """Per cent where it is told, the estimate where it is not, the end in words; one line for each step."""
    shown = io.StringIO()
    with terminal_progress(Console(file=shown, force_terminal=True, width=100)) as bar:
        bar(seen())
        assert bar.lines == {"step_001": "running"}
        bar(seen(estimated=240.0))
        assert bar.lines["step_001"] == "about 240 s in all"
        bar(seen(percent=45.0))
        assert bar.lines["step_001"] == "45 %"
        bar(seen(step="step_002", status="completed_with_errors"))
        bar(seen(status="succeeded"))
    assert bar.lines == {"step_001": "succeeded", "step_002": "completed with errors"}
    assert "step_001 transcode" in shown.getvalue()
    assert "ignore" not in shown.getvalue()


def test_nothing_is_shown_where_the_output_is_no_terminal() -> None:
    """As in CI, or in a pipe."""
    shown = io.StringIO()
    with terminal_progress(Console(file=shown)) as bar:
        bar(seen(percent=1.0))
    assert "transcode" not in shown.getvalue()


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_an_end_that_is_no_success_does_not_fill_the_bar(status: str) -> None:
    """Its line says what it is."""
    with terminal_progress(Console(file=io.StringIO(), force_terminal=True)) as bar:
        bar(seen(status=status, percent=70.0))
        (task,) = bar._progress.tasks
        assert task.completed == 70
    assert bar.lines["step_001"] == status
