"""A page about running again runs again: every block, over the ledger that the first run left behind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/usage.md")
RUNS = 3


def blocks(page: str) -> list[str]:
    """Return the Python blocks of a page, each at its own lines."""
    text = (ROOT / page).read_text()
    return [
        "\n" * text.count("\n", 0, found.start(1)) + found.group(1)
        for found in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    ]


def answer(request: httpx.Request) -> httpx.Response:
    """Answer like a tool that honours keys."""
    return httpx.Response(200, json={"ok": True, "key": request.headers["Idempotency-Key"]})


@pytest.mark.parametrize("page", PAGES)
def test_all_blocks_of_a_page_run_again_over_the_same_ledger(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader runs them in a new process each time: new names, the old files; no effect comes twice."""
    monkeypatch.chdir(tmp_path)
    with respx.mock(assert_all_called=False) as router:
        route = router.post("https://tools.example.com/tools/provision-database").mock(side_effect=answer)
        sent = []
        for _ in range(RUNS):
            names: dict[str, Any] = {"__name__": "page"}
            for block in blocks(page):
                exec(compile(block, page, "exec"), names)
            names["runtime"].close()
            sent.append(route.call_count)
    again = sum(1 for block in blocks(page) if "runtime.start()\nprint" in block)  # a new session each time is new work
    assert [count - sent[0] for count in sent] == [again * run for run in range(RUNS)]
