"""Progress of jobs in the terminal, for runs that somebody watches; needs the extra ``rich``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self

from agent_runtime._model.quoting import quoted
from agent_runtime.errors import ConfigError

if TYPE_CHECKING:
    from types import TracebackType

    from agent_runtime._core.job_progress import JobProgress


LINE = 80


def terminal_progress(console: Any = None) -> TerminalProgress:
    """Return a progress bar to be used as a context manager and given as ``on_progress=``.

    One line for each job; a job whose tool tells no percentage is shown by its estimated time, or as busy. Where the
    output is no terminal nothing is shown.

    Args:
        console: a ``rich.console.Console``; None = one on standard error.

    Raises:
        ConfigError: the extra ``rich`` is not installed.

    >>> with terminal_progress() as bar:
    ...     bar.lines
    {}
    """
    return TerminalProgress(console)


class TerminalProgress:
    """What `terminal_progress` returns.

    Attributes:
        lines: what each job's line says, by step.
    """

    def __init__(self, console: Any = None) -> None:
        try:
            from rich.console import Console  # noqa: PLC0415  an extra that only this needs
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415
        except ImportError:
            raise ConfigError("terminal_progress() needs rich: pip install 'agent-runtime-ledger[rich]'") from None
        self.lines: dict[str, str] = {}
        self._tasks: dict[str, Any] = {}
        self._console = console if console is not None else Console(file=sys.stderr)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[said]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )

    def __call__(self, seen: JobProgress) -> None:
        """Show what a look at a job said."""
        percent = _percent(seen)
        said = quoted(_said(seen), LINE)
        self.lines[seen.step] = said
        if seen.step not in self._tasks:
            description = quoted(f"{seen.step} {seen.tool}", LINE)
            self._tasks[seen.step] = self._progress.add_task(description, total=None, said=said)
        total = None if percent is None else 100.0
        self._progress.update(self._tasks[seen.step], total=total, completed=percent or 0.0, said=said)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def _percent(seen: JobProgress) -> float | None:
    """Return per cent as told, else by the estimated time and never whole; None where nobody knows."""
    if seen.status == "succeeded":
        return 100.0
    if seen.percent is not None or not seen.estimated:
        return seen.percent
    return min(99.0, 100.0 * seen.elapsed / seen.estimated)


def _said(seen: JobProgress) -> str:
    if seen.status != "running":
        return seen.status.replace("_", " ")
    if seen.percent is not None:
        return f"{seen.percent:.0f} %"
    return f"about {seen.estimated:.0f} s in all" if seen.estimated else "running"
