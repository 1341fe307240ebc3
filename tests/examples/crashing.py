"""Agents of the examples in processes that die at a chosen point; both libraries are loaded once and forked from.

A point is ``request:2`` (before the second request leaves), ``answer:2`` (when the second answer has arrived),
``recorded:2`` (after the ledger's first commit that follows it) or empty (live on).
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import threading
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt

from agent_runtime import AsyncRuntime, Runtime
from agent_runtime.ledger import open_ledger
from examples import chat_loop, langgraph_agent

if TYPE_CHECKING:
    from collections.abc import Callable

DIED = 9
ENDS_WITHIN = 40
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["examples.langgraph_agent", "langgraph.checkpoint.sqlite.aio"])


def in_a_process(target: Callable[..., None], *args: Any) -> int | None:
    """Run a function in a process of its own; return its exit code."""
    process = _context.Process(target=target, args=args)
    process.start()
    process.join(ENDS_WITHIN)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode


class Crash:
    """Ends the process at its point."""

    def __init__(self, point: str) -> None:
        self._moment, _, number = point.partition(":")
        self._number = int(number or 0)
        self._lock = threading.Lock()
        self._seen = {"request": 0, "answer": 0}

    def _note(self, moment: str) -> None:
        with self._lock:
            self._seen[moment] += 1
            if moment == self._moment and self._seen[moment] == self._number:
                os._exit(DIED)

    def after_commit(self) -> None:
        if self._moment == "recorded" and self._seen["answer"] >= self._number:
            os._exit(DIED)

    def client(self) -> httpx.Client:
        hooks = {"request": [lambda _: self._note("request")], "response": [lambda _: self._note("answer")]}
        return httpx.Client(event_hooks=hooks, trust_env=False)

    def async_client(self) -> httpx.AsyncClient:
        async def on_request(_: httpx.Request) -> None:
            self._note("request")

        async def on_answer(_: httpx.Response) -> None:
            self._note("answer")

        return httpx.AsyncClient(event_hooks={"request": [on_request], "response": [on_answer]}, trust_env=False)


def chat(folder: str, url: str, point: str) -> None:
    """Run the chat loop; its last words go to ``words.txt``."""
    crash, file = Crash(point), Path(folder, "messages.json")
    if not file.exists():
        file.write_text(json.dumps([{"role": "user", "content": "go"}]))
    with (
        closing(open_ledger(f"sqlite:///{folder}/agent.db", after_commit=crash.after_commit)) as ledger,
        crash.client() as client,
        Runtime(ledger, tools=chat_loop.tools(url), client=client) as runtime,
        closing(runtime.open("chat")) as session,
    ):
        Path(folder, "words.txt").write_text(chat_loop.chat(session, file))


def graph(folder: str, url: str, point: str) -> None:
    """Run the example's agent by ``invoke``; what its tools said goes to ``said.json``."""
    crash, tools = Crash(point), langgraph_agent.tools(url)
    with (
        closing(open_ledger(f"sqlite:///{folder}/agent.db", after_commit=crash.after_commit)) as ledger,
        crash.client() as client,
        Runtime(ledger, tools=tools, client=client) as runtime,
        closing(runtime.open("thread")) as session,
    ):
        middleware = [langgraph_agent.Ledgered(session, tools)]
        _keep(folder, langgraph_agent.converse(f"{folder}/graph.db", url, client, middleware))


def async_graph(folder: str, url: str, point: str) -> None:
    """Run the example's agent by ``ainvoke``; what its tools said goes to ``said.json``."""
    asyncio.run(_async_graph(folder, url, Crash(point)))


async def _async_graph(folder: str, url: str, crash: Crash) -> None:
    tools = langgraph_agent.tools(url)
    async with AsyncExitStack() as stack:
        ledger = stack.enter_context(
            closing(open_ledger(f"sqlite:///{folder}/agent.db", after_commit=crash.after_commit))
        )
        client = await stack.enter_async_context(crash.async_client())
        runtime = await stack.enter_async_context(AsyncRuntime(ledger, tools=tools, client=client))
        session = await runtime.open("thread")
        stack.push_async_callback(session.close)
        saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(f"{folder}/graph.db"))
        agent = create_agent(
            langgraph_agent.ScriptedModel(),
            tools=[langgraph_agent.as_langchain(tool, httpx.Client()) for tool in tools],
            middleware=[langgraph_agent.Ledgered(session, tools)],
            checkpointer=saver,
        )
        state = await agent.aget_state(langgraph_agent.THREAD)
        given = None if state.next else langgraph_agent.REQUEST
        _keep(folder, (await agent.ainvoke(given, langgraph_agent.THREAD))["messages"])


def asking_a_person(folder: str, url: str, _point: str) -> None:
    """Run an agent one of whose tools, unknown to the session, interrupts the graph; resume it with an answer."""

    @tool
    def send_webhook(url: str, event: str) -> str:
        """Ask a person whether to send."""
        return f"a person said {interrupt(f'{event} to {url}?')}"

    tools = langgraph_agent.tools(url)[:2]
    with (
        Runtime(f"sqlite:///{folder}/agent.db", tools=tools) as runtime,
        closing(runtime.open("thread")) as session,
        httpx.Client() as client,
        SqliteSaver.from_conn_string(f"{folder}/graph.db") as checkpoints,
    ):
        agent = create_agent(
            langgraph_agent.ScriptedModel(),
            tools=[*(langgraph_agent.as_langchain(tool, client) for tool in tools), send_webhook],
            middleware=[langgraph_agent.Ledgered(session, tools)],
            checkpointer=checkpoints,
        )
        agent.invoke(langgraph_agent.REQUEST, langgraph_agent.THREAD)
        assert agent.get_state(langgraph_agent.THREAD).interrupts
        _keep(folder, agent.invoke(Command(resume="no"), langgraph_agent.THREAD)["messages"])


def _keep(folder: str, messages: list[Any]) -> None:
    assert messages[-1].content == "Done."
    said = [[message.name, message.status, message.content] for message in messages if message.type == "tool"]
    Path(folder, "said.json").write_text(json.dumps(said))
