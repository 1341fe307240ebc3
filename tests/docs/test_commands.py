"""Every command that README and docs show is one that the suite runs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN_BY = {
    "python -m pip install .": "tests/acceptance/test_wheel.py",
    "make demo": "tests/acceptance/test_demo.py",
    "make check": ".ci/run",
    "make test": ".ci/run",
}


def shown_commands() -> set[str]:
    """Return the lines of all shell blocks."""
    blocks = (
        block
        for page in PAGES
        for block in re.findall(r"```(?:bash|sh|console)\n(.*?)```", page.read_text(), re.DOTALL)
    )
    return {line.strip() for block in blocks for line in block.splitlines() if line.strip()}


def test_every_shown_command_is_run_by_the_suite():
    """A command on a page has a test, or the suite's own entry, that runs it."""
    assert shown_commands() <= RUN_BY.keys()
    missing = [path for path in RUN_BY.values() if not (ROOT / path).exists()]
    assert not missing
