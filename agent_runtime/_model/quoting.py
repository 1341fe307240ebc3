"""Text of others where people and models read it: on one line, cut, and without what a terminal would obey."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

JOB_ID: Final = 200
URL: Final = 500
CELL: Final = 160
COUNTS: Final = 20
COUNT: Final = 100
"""Longest in characters; of counts, the most members, and the longest of each."""

# Controls, formats (such as those that turn the direction of reading), surrogates, private use, separators of lines.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_TAG: Final = re.compile(r"\\*\[(?=[a-z#/@])", re.IGNORECASE)


def quoted(text: str, most: int) -> str:
    """Return text of others on one line, without control characters, and with at most so many characters."""
    seen = "".join(" " if unicodedata.category(char) in _UNSEEN else char for char in text[: most * 4])
    line = " ".join(seen.split())
    whole = len(line) <= most and len(text) <= most * 4
    return line if whole else line[: most - 1] + "…"


def cell(text: str, most: int = CELL) -> str:
    """Return text of others for a table in a terminal: as `quoted`, and nothing in it is markup for Rich."""
    return _TAG.sub(lambda found: found[0][:-1] * 2 + "\\[", quoted(text, most))


def quoted_json(value: Any, most: int) -> str:
    """Return plain JSON values of others as text, for messages."""
    return quoted(json.dumps(value, ensure_ascii=False, default=str), most)


def quoted_counts(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a tool counted: its numbers as they are, its text quoted, and no more than can be read."""
    return {quoted(str(name), COUNT): _count(value) for name, value in list(counts.items())[:COUNTS]}


def _count(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return quoted(value, COUNT) if isinstance(value, str) else quoted_json(value, COUNT)
