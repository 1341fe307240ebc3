"""Runs the code blocks of README and docs: each page in an empty folder, one tool answered by a mock."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx
from sybil import Sybil
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

from tests import leaks

pytest_plugins = ["tests.leaks_plugin"]


def answer(request: httpx.Request) -> httpx.Response:
    """Answer like a tool that honours keys."""
    return httpx.Response(200, json={"ok": True, "key": request.headers["Idempotency-Key"]})


def token(request: httpx.Request) -> httpx.Response:
    """Answer like an authorisation server that wants a second factor."""
    if b"second+factor" in request.content:
        return httpx.Response(200, json={"access_token": "issued-canary-1", "token_type": "Bearer", "expires_in": 300})
    return httpx.Response(400, json={"error": "interaction_required", "claims": '{"access_token":{"acrs":"c1"}}'})


def setup(namespace: dict[str, Any]) -> None:
    """Enter an empty folder, where a page's ledgers go, and mock the tool that the pages begin with."""
    folder = tempfile.TemporaryDirectory()
    router = respx.mock(assert_all_called=False)
    router.post("https://tools.example.com/tools/provision-database").mock(side_effect=answer)
    router.post("https://tools.example.com/order").mock(side_effect=answer)
    router.post("https://login.example.com/tenant/oauth2/v2.0/token").mock(side_effect=token)
    router.route(host="127.0.0.1").pass_through()
    Path(folder.name, "client-key.pem").write_text("-----BEGIN PRIVATE KEY-----")  # what pages with a key begin with
    namespace["_world"] = (folder, router, os.getcwd())
    os.chdir(folder.name)
    router.start()


def teardown(namespace: dict[str, Any]) -> None:
    """Close what the page left open and go back."""
    folder, router, before = namespace["_world"]
    router.stop()
    for value in list(namespace.values()):
        if type(value).__name__ == "Runtime":
            value.close()
    leaks.search_folder(Path(folder.name))
    os.chdir(before)
    folder.cleanup()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md", "examples/*.md", "examples/**/*.md"],
    setup=setup,
    teardown=teardown,
).pytest()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the blocks of a page their own order back: each builds on the ones before."""
    places = [place for place, item in enumerate(items) if isinstance(item, SybilItem)]
    blocks = sorted((items[place] for place in places), key=lambda item: (str(item.path), item.location[1] or 0))
    for place, block in zip(places, blocks, strict=True):
        items[place] = block
