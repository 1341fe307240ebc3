"""A LangGraph agent whose process dies after its tools took effect: as it is, and with its tool calls in a session.

    python -m examples.langgraph_agent        (needs the extra: pip install "agent-runtime-ledger[langgraph]")

LangGraph keeps the conversation in its checkpoints. What it cannot keep is what a tool did between two of them: after a
crash it runs the calls of the last message again, and each of them may act twice. Look at `Ledgered`, the whole of the
mend: a middleware that hands each call to a session instead, under an address made of what LangGraph keeps the same in
a resumed run: superstep, node, and the place of the call in the message. Ids of calls and messages would not do; where
the model is asked again, they change.

The model asks for two tools in one message (LangGraph runs them in two threads) and for a third in the next. When both
of the first two have taken effect, the process dies, and a new one resumes the thread. This is done twice, without the
middleware and with it, and the effects are counted at the tool server.
"""

import json
import multiprocessing
import os
import tempfile
import threading
import uuid
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import httpx
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.sqlite import SqliteSaver

from agent_runtime import AsyncSession, Outcome, Runtime, Session, Tool
from agent_runtime.config import HttpTool, presets
from examples.tool_backend.process import running_backend

say = partial(print, flush=True)

# -- the session around LangGraph's tool calls ------------------------------------------------------------------------


class Ledgered(AgentMiddleware):
    """Sends an agent's tool calls through a session. Goes last in ``middleware=``, next to the tools.

    Tools that the session does not know (reads, a tool that calls ``interrupt()``) run as they would without it, and so
    do the exceptions by which LangGraph controls its run. A sub-agent needs a session of its own, or a branch.
    """

    def __init__(self, session: Session | AsyncSession, tools: list[HttpTool]) -> None:
        super().__init__()
        self.session = session
        self.known = {tool.name for tool in tools}

    def wrap_tool_call(self, request, handler):
        """Serve ``invoke``."""
        call = request.tool_call
        if call["name"] not in self.known:
            return handler(request)
        return in_words(call, self.session.try_call(call["name"], call["args"], at=address(request)))

    async def awrap_tool_call(self, request, handler):
        """Serve ``ainvoke``; the session is an `AsyncSession` then."""
        call = request.tool_call
        if call["name"] not in self.known:
            return await handler(request)
        return in_words(call, await self.session.try_call(call["name"], call["args"], at=address(request)))


def address(request) -> str:
    """Return where a call stands, in what stays the same in a resumed run: superstep, node, index in the message."""
    asking = next(message for message in reversed(request.state["messages"]) if isinstance(message, AIMessage))
    index = [call["id"] for call in asking.tool_calls].index(request.tool_call["id"])
    metadata = request.runtime.config["metadata"]
    return f"s{metadata['langgraph_step']}.{metadata['langgraph_node']}.{index}"


def in_words(call, outcome: Outcome) -> ToolMessage:
    """Tell the model what is known. To raise instead would stop the calls beside this one, or invite a repeat."""
    return ToolMessage(
        json.dumps(outcome.for_model()),
        tool_call_id=call["id"],
        name=call["name"],
        status="success" if outcome.ok else "error",
        artifact={"step": outcome.step, "key": outcome.key, "attempts": outcome.attempts},
    )


# -- an agent as anybody writes it ------------------------------------------------------------------------------------

SCRIPT = [
    [
        ("provision_database", {"region": "ap-southeast-1", "storage_gb": 20}),
        ("debit", {"account": "team-7", "amount": 4_900}),
    ],
    [("send_webhook", {"url": "https://team-7.example", "event": "ready"})],
    [],
]
WANTED = sum(map(len, SCRIPT))
REQUEST = {"messages": [("user", "A database for team-7, please: pay for it and tell them.")]}
THREAD = {"configurable": {"thread_id": "team-7"}}


class ScriptedModel(BaseChatModel):
    """Stands for a model: its n-th message is the n-th of the script, with new call ids each time it is asked."""

    def _generate(self, messages, *_args: Any, **_kwargs: Any) -> ChatResult:
        asks = SCRIPT[sum(isinstance(message, AIMessage) for message in messages)]
        calls = [{"name": name, "args": args, "id": f"call_{uuid.uuid4().hex}"} for name, args in asks]
        message = AIMessage("" if calls else "Done.", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def bind_tools(self, *_args: Any, **_kwargs: Any) -> "ScriptedModel":
        """Take note of nothing: the script knows the tools."""
        return self

    @property
    def _llm_type(self) -> str:
        return "scripted"


def tools(url: str) -> list[HttpTool]:
    return [
        Tool("provision_database", url=f"{url}/tools/provision-database", contract=presets.TOOL_BACKEND),
        Tool("debit", url=f"{url}/tools/debit", contract=presets.TOOL_BACKEND),
        Tool("send_webhook", url=f"{url}/tools/send-webhook", contract=presets.TOOL_BACKEND),
    ]


def as_langchain(tool: HttpTool, client: httpx.Client) -> StructuredTool:
    """Show a tool to the model. Its body is what runs without the session: a request with a key made on the spot."""

    def post(**args: Any) -> str:
        return client.post(tool.url, json=args, headers={"Idempotency-Key": str(uuid.uuid4())}).text

    return StructuredTool.from_function(
        post, name=tool.name, description=tool.description or tool.name, args_schema=tool.args_schema()
    )


def converse(file: str, url: str, client: httpx.Client, middleware: list[AgentMiddleware]) -> list:
    """Start the thread, or resume it where its checkpoints left it; return the messages once the agent is done."""
    with SqliteSaver.from_conn_string(file) as checkpoints:
        agent = create_agent(
            ScriptedModel(),
            tools=[as_langchain(tool, client) for tool in tools(url)],
            middleware=middleware,
            checkpointer=checkpoints,
        )
        interrupted = agent.get_state(THREAD).next
        return agent.invoke(None if interrupted else REQUEST, THREAD)["messages"]


def as_it_is(folder: str, url: str, dies: bool) -> None:
    with http_client(dies=dies) as client:
        converse(f"{folder}/plain.db", url, client, [])


def with_a_session(folder: str, url: str, dies: bool) -> None:
    with (
        http_client(dies=dies) as client,
        Runtime(f"sqlite:///{folder}/agent.db", tools=tools(url), client=client) as runtime,
        # The end of the block must not finish the session, as its own `with` would: a thread may get further messages.
        closing(runtime.open(THREAD["configurable"]["thread_id"])) as session,
    ):
        messages = converse(f"{folder}/ledgered.db", url, client, [Ledgered(session, tools(url))])
        for message in messages:
            if isinstance(message, ToolMessage):
                step, attempts = message.artifact["step"], message.artifact["attempts"]
                say(f"  {step}  {message.name}: {message.status}, sent {attempts}x")


# -- the crash, twice -------------------------------------------------------------------------------------------------


def http_client(*, dies: bool) -> httpx.Client:
    """Return an HTTP client; one that dies ends its own process once two answers have arrived, before it uses them."""
    both = threading.Barrier(2)

    def on_answer(_response: httpx.Response) -> None:
        if dies:
            both.wait(timeout=30)
            os._exit(1)

    return httpx.Client(event_hooks={"response": [on_answer]}, trust_env=False)


def in_a_process(target: Callable[..., None], *args: object) -> int | None:
    process = multiprocessing.get_context("spawn").Process(target=target, args=args)
    process.start()
    process.join()
    return process.exitcode


def main() -> None:
    os.environ["LANGSMITH_TRACING"] = "false"  # nothing leaves this machine
    duplicates = []
    for way in (as_it_is, with_a_session):
        with tempfile.TemporaryDirectory() as folder, running_backend() as backend:
            say(f"{way.__name__}:")
            assert in_a_process(way, folder, backend.url, True) == 1
            say(f"  died after {len(backend.effects())} effects; a new process resumes the thread")
            assert in_a_process(way, folder, backend.url, False) == 0
            happened = len(backend.effects())
            say(f"  {WANTED} effects wanted, {happened} happened")
            duplicates.append(happened - WANTED)
    say(f"langgraph_agent: {duplicates[0]} duplicates as it is, {duplicates[1]} with a session")


if __name__ == "__main__":
    main()
