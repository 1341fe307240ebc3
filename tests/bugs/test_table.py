"""The page of faults from the field tells of tests that exist, and of every test that is named by a case."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "bug-cases.md"


def defined(under: Path) -> set[str]:
    return {
        name
        for path in under.rglob("test_*.py")
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }


def test_each_test_that_the_page_names_exists() -> None:
    """A renamed test is renamed on the page as well."""
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    assert named - defined(ROOT / "tests") == set()


def test_the_page_names_each_test_of_a_case() -> None:
    """A new test of a bug case stands on the page."""
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    folders = ROOT / "tests" / "bugs", ROOT / "tests" / "jobs"
    cases = {name for folder in folders for name in defined(folder) if name.startswith("test_A")}
    assert cases - named == set()


def test_the_page_holds_all_44_cases() -> None:
    """Each fault has its row, once and in order."""
    rows = re.findall(r"^\| \[(A\d\d)\]", PAGE.read_text(), re.MULTILINE)
    assert rows == [f"A{number:02}" for number in range(1, 45)]
