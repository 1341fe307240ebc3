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
