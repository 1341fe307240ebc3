"""The page of defaults says what the table says."""

from __future__ import annotations

import re
from pathlib import Path

from agent_runtime.config import defaults

PAGE = Path(__file__).parents[2] / "docs" / "defaults.md"


def test_the_page_of_defaults_shows_each_value_of_the_table():
    """Every default stands on the page, with the value that is in force."""
    shown = dict(re.findall(r"^\| `([A-Z_]+)` \| (\S+) \|", PAGE.read_text(), re.MULTILINE))
    in_force = {name: value for name, value in vars(defaults).items() if name.isupper()}
    assert shown.keys() == in_force.keys()
    assert {name: float(value) for name, value in shown.items()} == {
        name: float(value) for name, value in in_force.items()
    }


def test_each_default_is_in_force():
    """No value of the table is only shown: each one is read where it counts."""
    package = PAGE.parents[1] / "agent_runtime"
    code = "\n".join(path.read_text() for path in package.rglob("*.py"))
    names = [name for name in vars(defaults) if name.isupper()]
    assert [name for name in names if f"defaults.{name}" not in code] == []
