"""The receiver of the page about long-running tools takes a callback at the URL that the page names."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import httpx

from agent_runtime.webhooks import sign
from tests.docs.test_pages_run_again import blocks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PAGE = "docs/long-running.md"
BODY = json.dumps({"job_id": "job_7f21c", "status": "succeeded"}).encode()


def test_the_receiver_of_the_page_takes_a_callback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks up to the receiver's run, and a signed POST to the URL as it stands there is answered 200."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(PAGE):
        if "terminal_progress" not in block:
            exec(compile(block, PAGE, "exec"), names)
        if "app" in names:
            break
    now = int(time.time())
    signature = sign(names["verify"].secret, event_id="e1", timestamp=now, body=BODY)
    headers = {"webhook-id": "e1", "webhook-timestamp": str(now), "webhook-signature": signature}

    async def post() -> httpx.Response:
        transport = httpx.ASGITransport(names["app"])
        async with httpx.AsyncClient(transport=transport, base_url="https://agent.example.com") as client:
            return await client.post("/hooks/films", content=BODY, headers=headers)

    assert asyncio.run(post()).status_code == 200
    names["runtime"].close()
