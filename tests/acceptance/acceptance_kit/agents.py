"""The child's side: an agent that works a list of calls, and stops exactly at a boundary of the ledger."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import signal
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import httpx

from agent_runtime import AsyncRuntime, RetryPolicy, Runtime, Timeouts, Tool, ToolContract
from agent_runtime._model import Advance, Reserve
from agent_runtime.config import presets
from agent_runtime.ledger import open_ledger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from agent_runtime import Outcome
    from agent_runtime._model import Write, WriteOutcome
    from agent_runtime.ledger import SqlLedger

Calls = tuple[tuple[str, dict[str, Any]], ...]

PROVISION = ("provision_database", {"region": "ap-southeast-1", "storage_gb": 20})
DEBIT = ("debit", {"account": "acct-7", "amount": 250})
WEBHOOK = ("send_webhook", {"url": "https://ops.example.com/hooks", "event": "database.ready"})
LEGACY_DEBIT = ("legacy_debit", {"account": "acct-7", "amount": 250})

# Plain HTTP: to load certificates would be most of what an agent does in its short life.
PLAIN = {"verify": False, "trust_env": False}


@dataclass(frozen=True, kw_only=True)
class Halt:
    """Where the agent stops, says so, and waits to be told to go on.

    Attributes:
        boundary: ``before_reserve`` or ``answered``, before that is written; ``ready``, ``in_flight`` or ``recorded``,
            after it.
        label: the step it concerns.
        is_stuck: do not block the caller, but let it wait for a write whose answer never comes.
    """

    boundary: str
    label: str
    is_stuck: bool = False


@dataclass(frozen=True, kw_only=True)
class Order:
    """What an agent is to do.

    Attributes:
        session: alias of the session to open, or its id with ``resumes``.
        together: make all calls at once, by ``call_many``.
        on_go: say "ready" and wait for a word before the session is opened.
        lease, wait, read: seconds of the lease, for a busy session, for an answer.
    """

    ledger: str
    server: str
    session: str
    calls: Calls = (PROVISION, DEBIT, WEBHOOK)
    is_async: bool = False
    resumes: bool = False
    together: bool = False
    on_go: bool = False
    halt: Halt | None = None
    lease: float = 30.0
    wait: float = 45.0
    read: float = 30.0


def tools_at(server: str, *, read: float = 30.0, attempts: int = 5, has_lookup: bool = True) -> list[Tool]:
    """Return the tools of the server, with short waits between attempts; the legacy one honours no key."""
    policies = {
        "timeouts": Timeouts(read=read),
        "retry": RetryPolicy(attempts=attempts, base=0.05, cap=0.2),
    }
    known = presets.TOOL_BACKEND
    keyed = ToolContract(idempotency=known.idempotency, lookup=known.lookup if has_lookup else None, **policies)
    return [
        Tool("provision_database", url=f"{server}/tools/provision-database", contract=keyed),
        Tool("debit", url=f"{server}/tools/debit", contract=keyed),
        Tool("send_webhook", url=f"{server}/tools/send-webhook", contract=keyed),
        Tool("legacy_debit", url=f"{server}/legacy/debit", contract=ToolContract(**policies)),
    ]


class HaltingLedger:
    """A ledger that stops the agent before or after one of its writes."""

    def __init__(self, inner: SqlLedger, halt: Halt | None, line: Connection) -> None:
        self._inner = inner
        self._halt = halt
        self._line = line
        self._labels: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, entries: Sequence[Write]) -> Future[list[WriteOutcome]]:
        """Write, unless this is where the agent is to stop."""
        (entry,) = entries
        moments = self._moments(entry)
        if self._halt is not None and moments.before == self._halt:
            self._line.send(("halted", self._halt.boundary))
            if self._halt.is_stuck:
                return Future()
            self._line.recv()
        future = self._inner.write(entries)
        if self._halt is not None and moments.after == self._halt:
            future.result()
            self._line.send(("halted", self._halt.boundary))
            self._line.recv()
        return future

    def _moments(self, entry: Write) -> Moments:
        stuck = self._halt is not None and self._halt.is_stuck
        if isinstance(entry, Reserve):
            self._labels.update({operation.id: operation.label for operation in entry.operations})
            label = entry.steps[0].label
            return Moments(Halt(boundary="before_reserve", label=label), Halt(boundary="ready", label=label))
        if isinstance(entry, Advance):
            label = self._labels.get(entry.operation_id, "")
            if entry.attempt is not None:
                return Moments(None, Halt(boundary="in_flight", label=label))
            if entry.evidence:
                answered = Halt(boundary="answered", label=label, is_stuck=stuck)
                return Moments(answered, Halt(boundary="recorded", label=label))
        return Moments(None, None)


@dataclass(frozen=True)
class Moments:
    """What it would mean to stop before a write, and after it."""

    before: Halt | None
    after: Halt | None


def live(order: Order, line: Connection) -> None:
    """Work an order, and tell over the line what happens; the target of a child process."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    logging.getLogger("agent_runtime").addHandler(logging.NullHandler())
    if order.on_go:
        line.send(("ready", None))
        line.recv()
    try:
        asyncio.run(_work_async(order, line)) if order.is_async else _work(order, line)
    except BaseException as error:
        line.send(("raised", _told(error)))


def _told(error: BaseException) -> dict[str, Any]:
    outcome = getattr(error, "outcome", None)
    told = {"type": type(error).__name__, "message": str(error), "step": getattr(error, "step", None)}
    return {**told, "status": None if outcome is None else str(outcome.status)}


def _work(order: Order, line: Connection) -> None:
    ledger = open_ledger(order.ledger, lease_seconds=order.lease)
    tools = tools_at(order.server, read=order.read)
    halting = HaltingLedger(ledger, order.halt, line)
    with httpx.Client(**PLAIN) as client, Runtime(halting, tools=tools, client=client) as runtime:
        opened = runtime.resume if order.resumes else runtime.open
        with opened(order.session, wait=order.wait) as session:
            line.send(("opened", session.id))
            if order.together:
                for outcome in session.call_many(order.calls):
                    line.send(("step", _outcome(outcome)))
            else:
                for tool, args in order.calls:
                    line.send(("step", asdict(session.call(tool, args))))
            report = asdict(session.report)
    ledger.close()
    line.send(("done", report))


async def _work_async(order: Order, line: Connection) -> None:
    ledger = open_ledger(order.ledger, lease_seconds=order.lease)
    tools = tools_at(order.server, read=order.read)
    halting = HaltingLedger(ledger, order.halt, line)
    async with httpx.AsyncClient(**PLAIN) as client, AsyncRuntime(halting, tools=tools, client=client) as runtime:
        opened = runtime.resume if order.resumes else runtime.open
        async with opened(order.session, wait=order.wait) as session:
            line.send(("opened", session.id))
            if order.together:
                for outcome in await session.call_many(order.calls):
                    line.send(("step", _outcome(outcome)))
            else:
                for tool, args in order.calls:
                    line.send(("step", asdict(await session.call(tool, args))))
            report = asdict(session.report)
    ledger.close()
    line.send(("done", report))


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {"step": outcome.step, "key": outcome.key, "value": outcome.value, "status": str(outcome.status)}
