"""Steps as plain values, and as a table in text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from agent_runtime._core.book import Book
from agent_runtime._core.explain import what_next
from agent_runtime._model.quoting import cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_runtime._model import Loaded
    from agent_runtime._session.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One step as a reader sees it.

    Attributes:
        step: label; operation_id: None for a step that was recorded as not started.
        state: of its operation, or ``refused``.
        what_next: what a resume would do about it.
    """

    step: str
    tool: str
    state: str
    reason: str | None
    key: str | None
    operation_id: str | None
    attempts: int
    address: str | None
    what_next: str

    COLUMNS: ClassVar[tuple[str, ...]] = ("step", "tool", "state", "reason", "attempts", "what_next")


class StepTable(list[StepView]):
    """A list of steps that prints as a table."""

    def __str__(self) -> str:
        rows = [[_text(getattr(view, name)) for name in StepView.COLUMNS] for view in self]
        return render([*StepView.COLUMNS], rows)


def render(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of text under a header, columns padded to their widest cell; nothing in a cell is obeyed."""
    lines = [list(header), *(list(map(cell, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def step_table(book: Book, settings: Settings) -> StepTable:
    """Return the steps of a book as a table."""
    now = settings.world.ledger.now()
    views = StepTable()
    for step in book.steps():
        operation = book.operation_of(step)
        tool = settings.tools.get(step.tool)
        views.append(
            StepView(
                step=step.label,
                tool=step.tool,
                state="refused" if operation is None else str(operation.state),
                reason=None if operation is None or operation.reason is None else str(operation.reason),
                key=None if operation is None else operation.key,
                operation_id=None if operation is None else operation.id,
                attempts=0 if operation is None else operation.attempts,
                address=step.address,
                what_next=what_next(operation, tool, now=now),
            )
        )
    return views


def table_of(loaded: Loaded, settings: Settings) -> StepTable:
    """Return the steps of a session that was only read."""
    return step_table(Book(loaded), settings)
