"""Users' tests with nothing but ``respx.mock`` and a session."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest
import respx
from respx.models import AllMockedAssertionError

import agent_runtime.testing
from agent_runtime import AsyncRuntime, Runtime
from tests.testing.conftest import DEBIT, KEYLESS, URL


@respx.mock
def test_respx_and_a_session(backend):
    """respx answers what a session sends."""
    route = respx.post(URL).respond(200, json={"balance": 5})
    with Runtime(backend.url, tools=[DEBIT]) as runtime, runtime.open("orders") as session:
        assert session.call(DEBIT, {"amount": 1}).value == {"balance": 5}
    assert route.call_count == 1


@respx.mock
async def test_respx_and_an_async_session(backend):
    """respx answers what an async session sends."""
    route = respx.post(URL).respond(200, json={"balance": 5})
    async with AsyncRuntime(backend.url, tools=[DEBIT]) as runtime, runtime.open("orders") as session:
        assert (await session.call(DEBIT, {"amount": 1})).value == {"balance": 5}
    assert route.call_count == 1


@pytest.mark.parametrize("tool", [DEBIT, KEYLESS], ids=["keys", "no-keys"])
@respx.mock
def test_forgotten_route_reaches_the_test(backend, tool):
    """A request without a route raises respx's own error out of the call, and leaves the step unknown."""
    with Runtime(backend.url, tools=[tool]) as runtime:
        with pytest.raises(AllMockedAssertionError), runtime.open("orders") as session:
            session.call(tool, {"amount": 1})
        assert [(step.state, step.attempts) for step in runtime.explain("orders")] == [("unknown", 1)]


@pytest.mark.parametrize("tool", [DEBIT, KEYLESS], ids=["keys", "no-keys"])
@respx.mock
async def test_forgotten_route_reaches_the_async_test(backend, tool):
    """The same under asyncio."""
    async with AsyncRuntime(backend.url, tools=[tool]) as runtime:
        with pytest.raises(AllMockedAssertionError):
            async with runtime.open("orders") as session:
                await session.call(tool, {"amount": 1})
        assert [(step.state, step.attempts) for step in await runtime.explain("orders")] == [("unknown", 1)]


@respx.mock
def test_a_bug_in_a_mock_reaches_the_test(backend):
    """A side effect with the wrong parameters raises its TypeError out of the call, and leaves the step unknown."""
    respx.post(URL).mock(side_effect=lambda: None)
    with Runtime(backend.url, tools=[DEBIT]) as runtime:
        with pytest.raises(TypeError), runtime.open("orders") as session:
            session.call(DEBIT, {"amount": 1})
        assert [(step.state, step.attempts) for step in runtime.explain("orders")] == [("unknown", 1)]


@respx.mock
def test_forgotten_route_is_made_good():
    """Once the route is there, the same session goes on under the same key."""
    with Runtime("sqlite:///:memory:", tools=[DEBIT]) as runtime:
        with pytest.raises(AllMockedAssertionError), runtime.open("orders") as session:
            session.call(DEBIT, {"amount": 1})
        respx.post(URL).respond(200, json={"balance": 5})
        with runtime.open("orders") as session:
            assert session.call(DEBIT, {"amount": 1}).value == {"balance": 5}


def test_kit_shows_what_it_does():
    """The examples in the kit's docstrings do what they say."""
    tried = 0
    for module in pkgutil.iter_modules(agent_runtime.testing.__path__, "agent_runtime.testing."):
        result = doctest.testmod(importlib.import_module(module.name))
        assert result.failed == 0, module.name
        tried += result.attempted
    assert tried >= 20
