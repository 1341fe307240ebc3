"""Crashes without a kill: a runtime that dies at a chosen point and leaves the ledger as it then is."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

from agent_runtime._core.effects import Invoke, Job, Persist, Send
from agent_runtime._model import Advance, Reserve, SendFailure, Took
from agent_runtime.errors import ConfigError
from agent_runtime.ledger import Claim, Lease, SqlLedger

if TYPE_CHECKING:
    from concurrent.futures import Future

    from agent_runtime._core.effects import Effect, Steps

R = TypeVar("R")

CrashPoint = Literal["before_reserve", "ready", "in_flight", "sent", "answered", "recorded"]
CRASH_POINTS: Final[tuple[CrashPoint, ...]] = get_args(CrashPoint)
"""All of them, in the order in which a step reaches them."""


class SimulatedCrash(BaseException):
    """A runtime under `crash_at` is dead. No `Exception`, so that no code under test takes it for a failed step."""


def crash_at(point: CrashPoint, n: int = 1) -> Crash:
    """Make a runtime die when it reaches a point for the n-th time; give it as ``Runtime(..., probe=crash_at(...))``.

    ================== ==============================================================
    ``before_reserve`` nothing of the step is written
    ``ready``          its row is written, no attempt has begun
    ``in_flight``      the attempt is written, no byte is sent
    ``sent``           the tool has the request, the runner has seen no answer
    ``answered``       the answer is here (or its loss was seen), and is not written
    ``recorded``       the answer is written, the caller has not been given it
    ================== ==============================================================

    Raises:
        ConfigError: there is no such point, or ``n`` is less than 1.
    """
    if point not in CRASH_POINTS:
        msg = f"no crash point {point!r}; there are {', '.join(CRASH_POINTS)}"
        raise ConfigError(msg)
    if n < 1:
        msg = f"a point is reached for the first time, not for the {n}th"
        raise ConfigError(msg)
    return Crash(point, n)


class Crash:
    """What `crash_at` returns: a probe for one runtime, blocking or async.

    When the point is reached, `SimulatedCrash` is raised out of the call, and out of everything that the runtime is
    asked for afterwards: nothing is written or sent any more, and leases are neither renewed nor released, not by the
    end of a ``with`` block either. Another runtime on the same database takes the session over at once, as from a dead
    process.

    Attributes:
        crashed: whether it has happened; a test that goes on without it has proved nothing.

    >>> import httpx
    >>> from agent_runtime import Idempotency, Runtime, Tool, ToolContract
    >>> from agent_runtime.ledger import open_ledger
    >>> from agent_runtime.testing import ToolMock, mock_transport
    >>> debit = Tool("debit", url="https://tools.example.com/debit", contract=ToolContract(idempotency=Idempotency()))
    >>> tool_api = ToolMock(debit.url, reply={"balance": 5})
    >>> client = httpx.Client(transport=mock_transport(tool_api))
    >>> ledger = open_ledger("sqlite:///:memory:")
    >>> with Runtime(ledger, tools=[debit], client=client, probe=crash_at("sent")) as runtime:
    ...     with runtime.open("orders") as session:
    ...         session.call(debit, {"amount": 1})
    Traceback (most recent call last):
    agent_runtime.testing._crash.SimulatedCrash: this runtime died at 'sent'; open another one to resume its sessions
    >>> with Runtime(ledger, tools=[debit], client=client) as runtime:
    ...     with runtime.open("orders") as session:
    ...         session.call(debit, {"amount": 1}).value
    {'balance': 5}
    >>> tool_api.requests, tool_api.effects
    (2, 1)
    >>> ledger.close()
    >>> client.close()
    """

    def __init__(self, point: CrashPoint, n: int) -> None:
        self.point = point
        self.n = n
        self.crashed = False
        self._reached = 0
        self._lock = threading.Lock()
        self._ledger: SqlLedger | None = None
        self._leases: weakref.WeakSet[Lease] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<Crash at {self.point!r} n={self.n}{' crashed' if self.crashed else ''}>"

    def __call__(self, steps: Steps[R], session_id: str) -> Steps[R]:  # noqa: ARG002  a runtime dies as a whole
        """Pass effects on until the point is reached."""
        course = _Course()
        value: Any = None
        error: BaseException | None = None
        while True:
            self._live()
            try:
                effect = steps.throw(error) if error is not None else steps.send(value)
            except StopIteration as end:
                result: R = end.value
                return result
            self._pass(course.before(effect))
            value, error = None, None
            try:
                value = yield self._seen(effect)
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as thrown:  # noqa: BLE001  it is the protocol's
                error = thrown
                continue
            if isinstance(value, Claim) and value.lease is not None:
                self._leases.add(value.lease)
            self._pass(course.after(effect, value))

    def _live(self) -> None:
        if self.crashed:
            msg = f"this runtime died at {self.point!r}; open another one to resume its sessions"
            raise SimulatedCrash(msg)

    def _pass(self, point: CrashPoint | None) -> None:
        self._live()
        if point != self.point:
            return
        with self._lock:
            self._reached += 1
            if self._reached != self.n:
                return
            self.crashed = True
            for lease in self._leases:
                assert self._ledger is not None
                self._ledger.abandon_lease(lease)
        self._live()

    def _seen(self, effect: Effect[Any]) -> Effect[Any]:
        """Learn which ledger the runtime has, from what it asks of it."""
        if not isinstance(effect, Job):
            return effect
        start = effect.start

        def noted(ledger: SqlLedger) -> Future[Any]:
            self._ledger = ledger
            return start(ledger)

        return Job(noted)


class _Course:
    """How far one protocol is with an attempt."""

    def __init__(self) -> None:
        self._begun = False
        self._ended = False

    def before(self, effect: Effect[Any]) -> CrashPoint | None:
        """Return the point that stands just before an effect."""
        if _reserves(effect):
            return "before_reserve"
        return "answered" if self._ended and _records(effect) else None

    def after(self, effect: Effect[Any], result: Any) -> CrashPoint | None:
        """Return the point that an effect has reached."""
        if isinstance(effect, Send | Invoke) and self._begun:
            self._begun, self._ended = False, True
            return None if isinstance(result, SendFailure) and not result.maybe_sent else "sent"
        if not isinstance(effect, Persist) or result.took is not Took.TOOK:
            return None
        if _reserves(effect):
            return "ready"
        if isinstance(effect.entry, Advance) and effect.entry.attempt is not None:
            self._begun, self._ended = True, False
            return "in_flight"
        if self._ended and _records(effect):
            self._ended = False
            return "recorded"
        return None


def _reserves(effect: Effect[Any]) -> bool:
    return isinstance(effect, Persist) and isinstance(effect.entry, Reserve) and bool(effect.entry.operations)


def _records(effect: Effect[Any]) -> bool:
    return isinstance(effect, Persist) and isinstance(effect.entry, Advance) and effect.entry.attempt is None
