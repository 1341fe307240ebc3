"""What a protocol can ask for: one small value for each kind of I/O, and what comes back.

A protocol is a generator. It yields an effect and is sent its result; `ask` gives the result its type. If the effect
raised, the exception is thrown into the generator where it asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from agent_runtime._core.tokens import Subject
from agent_runtime._model import (
    Answer,
    Headers,
    OperationRecord,
    Raised,
    Request,
    Returned,
    SendFailure,
    ServerEvent,
    Write,
    WriteOutcome,
)
from agent_runtime.config import FunctionTool, HttpTool
from agent_runtime.config.auth import Secretive

T = TypeVar("T")
R = TypeVar("R")


class Effect(Generic[T]):
    """Something that a driver does for a protocol; ``T`` is what it sends back."""

    __slots__ = ()


Steps = Generator[Effect[Any], Any, R]
"""A protocol that returns ``R``."""


def ask(effect: Effect[T]) -> Steps[T]:
    """Yield one effect and return its result with its type."""
    result: T = yield effect
    return result


@dataclass(frozen=True, slots=True)
class Now(Effect[float]):
    """The database's clock: UTC epoch seconds."""


@dataclass(frozen=True, slots=True)
class Random(Effect[float]):
    """A random number in [0, 1)."""


@dataclass(frozen=True, slots=True)
class NewId(Effect[str]):
    """A fresh random UUID, lower-case with hyphens."""


@dataclass(frozen=True, slots=True)
class Persist(Effect[WriteOutcome]):
    """Write one entry to the ledger; raises a `LedgerError` if nothing could be written."""

    entry: Write


@dataclass(frozen=True, slots=True)
class Load(Effect[OperationRecord | None]):
    """Read one operation as the ledger has it now."""

    operation_id: str


@dataclass(frozen=True, slots=True)
class Job(Effect[T]):
    """Anything else that the ledger does: ``start`` hands it in and returns its future."""

    start: Callable[[Any], Future[T]]


@dataclass(frozen=True, slots=True)
class Credential(Secretive):
    """Proof of identity for one send.

    Attributes:
        headers: secret headers, added to the frozen request.
        principal: the identity; must be the operation's own.
        token_id: tells tokens apart without showing them; empty where there is none.
        granted: the scopes that the authorisation server granted, where it named others than were asked for.
        renewal: what a person does where it will not do and nobody can sign in anew for it; empty where a user can.
    """

    headers: Headers = field(default=(), repr=False)
    principal: str = ""
    token_id: str = ""
    granted: str = ""
    renewal: str = ""


@dataclass(frozen=True, slots=True)
class NoCredential:
    """Why there is no token: ``required`` and ``refused`` need a person, ``unavailable`` may pass by itself.

    Attributes:
        message: what is the matter and what the user must do.
        retry_after: seconds, where a server named a wait.
        error: the error code of the server or of the tool's challenge, or None.
        claims: what the new proof must hold, as JSON text, to be handed to the sign-in.
        description: what the authorisation server says for people.
    """

    kind: Literal["required", "refused", "unavailable"]
    message: str
    retry_after: float | None = None
    error: str | None = None
    claims: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Acquire(Effect[Credential | NoCredential]):
    """Get a fresh credential for a tool.

    ``principal`` is the identity that the operation is recorded for: where the settings have another one, that one
    comes back without a token, and none is asked for. ``rejected`` is the token id that the tool has just refused;
    ``subject`` is on whose behalf the session calls. ``within``: seconds that the caller can wait for a token request.
    """

    tool: HttpTool | FunctionTool
    principal: str
    rejected: str | None = None
    subject: Subject | None = None
    within: float = math.inf


@dataclass(frozen=True, slots=True)
class Boottime(Effect[float]):
    """The clock that never jumps: seconds since boot, sleep of the machine included."""


@dataclass(frozen=True, slots=True)
class Obtain(Effect[str]):
    """Call a user's own function for a token; raises what it raises."""

    function: Callable[[], Any]
    whose: str


@dataclass(frozen=True, slots=True)
class Share(Effect["tuple[T | NoCredential, bool]"], Generic[T]):
    """Run a protocol once for all who ask under the same key meanwhile; the flag tells who began it.

    It is shielded: a caller that is interrupted, or has waited ``until`` (boot-time clock) and gets a `NoCredential`,
    stops waiting, and the protocol goes on to its end.
    """

    key: Hashable
    start: Callable[[], Steps[T]]
    until: float = math.inf


@dataclass(frozen=True, slots=True)
class LeaseHeld(Effect[bool]):
    """Whether the lease still stands by the local deadline; asked just before the first byte."""


@dataclass(frozen=True, slots=True)
class Send(Secretive, Effect[Answer | SendFailure]):
    """Send a frozen request with secret headers added. Seconds, bytes."""

    request: Request
    headers: Headers = field(repr=False)
    connect: float
    read: float
    deadline: float
    body_limit: int


@dataclass(slots=True, eq=False, kw_only=True)
class EventStream(Secretive):
    """A stream of server-sent events; opened by the first `NextEvent`. Seconds, bytes.

    Attributes:
        idle: longest silence.
        seconds: for which it is read at all.
        live: the driver's own.
        problem: why it is over, once it is.
    """

    request: Request
    headers: Headers = field(repr=False)
    connect: float
    idle: float
    seconds: float
    body_limit: int
    live: Any = field(default=None, repr=False)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class NextEvent(Effect[ServerEvent | None]):
    """Wait for a stream's next event; None = it is over, and `EventStream.problem` says why."""

    stream: EventStream


@dataclass(frozen=True, slots=True)
class CloseStream(Effect[None]):
    """Let go of a stream."""

    stream: EventStream


@dataclass(frozen=True, slots=True)
class Invoke(Effect[Returned | Raised]):
    """Call a function tool with canonical args and the key."""

    tool: FunctionTool
    args: bytes
    key: str
    label: str


@dataclass(frozen=True, slots=True)
class Tell(Effect[None]):
    """Call a function of the user's with what was seen; what it returns is ignored, or awaited first."""

    listener: Callable[[Any], Any]
    seen: Any


@dataclass(frozen=True, slots=True)
class Sleep(Effect[None]):
    """Wait so many seconds."""

    seconds: float
