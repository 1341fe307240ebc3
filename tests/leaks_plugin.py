"""A pytest plugin: no credential of a test may be left in what it wrote, logged, or sent to a tool.

Credentials bear a mark (`tests.credentials`). After each test it is looked for in every SQLite file of the test, by
a ``VACUUM INTO`` copy and in the file as it is; in every Postgres database before that is dropped; in log records of
all levels; and in every request of an httpx client but those to authorisation servers. One that is found fails the
test.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import leaks

if TYPE_CHECKING:
    from collections.abc import Iterator

_searched: set[Path] = set()


def pytest_configure() -> None:
    """Begin to look."""
    import httpx  # noqa: F401  it is watched from here on

    leaks.watch_requests()
    root = logging.getLogger()
    root.setLevel(logging.DEBUG)
    root.addHandler(leaks.Records(level=0))


def pytest_runtest_setup() -> None:
    """Look at a library that was imported meanwhile."""
    leaks.watch_requests()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Search what a test left, and fail it for a find."""
    yield
    folder = (getattr(item, "funcargs", None) or {}).get("tmp_path")
    if folder is not None:
        leaks.search_folder(folder)
        _searched.add(folder)
    fail_for_finds()


@pytest.fixture(scope="session", autouse=True)
def _search_what_tests_share(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make a place for what child processes find, and search at the end what belongs to no single test."""
    notes = tmp_path_factory.getbasetemp() / "found_by_children"
    notes.touch()
    os.environ[leaks.CHILDREN] = str(notes)
    yield
    for folder in tmp_path_factory.getbasetemp().iterdir():
        if folder.is_dir() and not folder.is_symlink() and folder not in _searched:
            leaks.search_folder(folder)
    fail_for_finds()


def fail_for_finds() -> None:
    """Raise if a credential was found anywhere since the last look."""
    finds = [*leaks.found, *(f"{line} by a child process" for line in leaks.told_by_children())]
    if finds:
        leaks.found.clear()
        raise AssertionError(f"a credential was found in {', '.join(dict.fromkeys(finds))}")
