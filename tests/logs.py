"""What is logged while something runs."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def logged() -> Iterator[list[str]]:
    """Collect everything that is logged anywhere, at every level, with its arguments and exceptions."""

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.name} {record.getMessage()} {record.args!r} {logging.Formatter().format(record)}")

    lines: list[str] = []
    root, keep = logging.getLogger(), Keep(level=0)
    before = root.level
    root.addHandler(keep)
    root.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        root.setLevel(before)
        root.removeHandler(keep)
