"""An agent in a process of its own: calls a slow tool, then the next one; stops where it is told to, to be killed."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acceptance_kit.agents import HaltingLedger

from agent_runtime import AsyncRuntime, Idempotency, PollPolicy, RetryPolicy, Runtime, Tool, ToolContract
from agent_runtime.ledger import open_ledger
from tests.session.stage import Blocking

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from acceptance_kit.agents import Halt

    from agent_runtime._core.attention import Attention

FILM = {"source_url": "s3://in/7f21c.mov"}
PRICE = {"account": "acct-7", "amount": 250}


@dataclass(frozen=True, kw_only=True)
class JobOrder:
    """What the agent is to do.

    Attributes:
        polling: settings of the slow tool's `PollPolicy`.
        detach: leave the job to itself, and end.
        halt: where it stops at a write of its ledger.
        hears: who hears of open matters: a ``function``, a registered ``tool``, or nobody.
        heard: a file to which the function adds a line for each matter that it hears of.
        stops_to_listen: the function does not return.
    """

    ledger: str
    server: str
    is_async: bool = False
    polling: dict[str, Any] = field(default_factory=dict)
    detach: bool = False
    halt: Halt | None = None
    hears: str = ""
    heard: str = ""
    stops_to_listen: bool = False


def tools_at(order: JobOrder) -> tuple[Any, Any, Any]:
    """Return the slow tool, the one whose step comes after it, and the one that matters can be told by."""
    waits = {"first": 0.05, "cap": 0.1, "bound": 30.0}
    retry = RetryPolicy(base=0.05, cap=0.2)
    quick = ToolContract(idempotency=Idempotency(), polling=PollPolicy(**waits), retry=retry)
    slow = ToolContract(idempotency=Idempotency(), polling=PollPolicy(**{**waits, **order.polling}), retry=retry)
    return (
        Tool("transcode", url=f"{order.server}/v1/transcode", contract=slow),
        Tool("debit", url=f"{order.server}/tools/debit", contract=quick),
        Tool("tell", url=f"{order.server}/v1/reports", contract=quick),
    )


def live(order: JobOrder, line: Connection) -> None:
    """Work an order, and tell over the line what happens; the target of a child process."""
    logging.getLogger("agent_runtime").addHandler(logging.NullHandler())
    try:
        with ExitStack() as stack:
            _work(order, line, stack)
    except BaseException as error:
        line.send(("raised", repr(error)))
        raise


def _work(order: JobOrder, line: Connection, stack: ExitStack) -> None:
    ledger = open_ledger(order.ledger)
    stack.callback(ledger.close)
    halting = HaltingLedger(ledger, order.halt, line)
    slow, after, tell = tools_at(order)
    listeners = {"": None, "tool": tell, "function": _listener(order, line)}
    settings = {"tools": [slow, after, tell], "on_attention": listeners[order.hears]}
    if order.is_async:
        runner = stack.enter_context(asyncio.Runner())
        runtime: Any = Blocking(AsyncRuntime(halting, **settings), runner)
    else:
        runtime = Runtime(halting, **settings)
    stack.callback(runtime.close)
    with runtime.open("film") as session:
        line.send(("opened", session.id))
        outcome = session.try_call(slow, FILM, detach=order.detach)
        line.send(("step", _told(outcome)))
        if outcome.ok:
            line.send(("step", _told(session.try_call(after, PRICE))))
        report = asdict(session.report)
    line.send(("done", report))


def _told(outcome: Any) -> dict[str, Any]:
    about = ("status", "reason", "job_id", "status_url", "step", "key", "source", "value")
    return {name: getattr(outcome, name) for name in about}


def _listener(order: JobOrder, line: Connection) -> Callable[[Attention], None]:
    def listen(matter: Attention) -> None:
        with Path(order.heard).open("a") as file:
            file.write(f"{matter.kind}\n")
        if order.stops_to_listen:
            line.send(("halted", "listening"))
            line.recv()

    return listen
