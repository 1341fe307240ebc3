"""Steps as plain values, and as a table in text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
        rows = [[_cell(getattr(view, name)) for name in StepView.COLUMNS] for view in self]
        return render([*StepView.COLUMNS], rows)


def render(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of text under a header, columns padded to their widest cell."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
