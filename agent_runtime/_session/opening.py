"""The protocol of opening: claim, give an idle object of this process its leave, wait for a busy one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from agent_runtime._core.effects import Job, Now, Sleep, ask
from agent_runtime._session.hold import HELD
from agent_runtime.errors import InputChanged, SessionBusy, SessionExists, SessionNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from concurrent.futures import Future
    from types import TracebackType

    from agent_runtime._core.effects import Steps
    from agent_runtime._session.async_session import AsyncSession
    from agent_runtime.ledger import Claim, Ledger, Owner

LOOK_AGAIN = 0.5
"""Seconds between two looks at a busy session."""


def opening(
    claim: Callable[[Ledger], Future[Claim]], *, name: str, tenant: str, owner: Owner, wait: float
) -> Steps[Claim]:
    """Claim a session; a busy one is waited for up to ``wait`` seconds.

    Raises:
        SessionBusy, SessionNotFound, SessionExists, InputChanged: nothing was written.
        LedgerError: the ledger cannot be used.
    """
    begun = yield from ask(Now())
    while True:
        got = yield from ask(Job(claim))
        if got.status == "busy":
            got = yield from _from_idle(got, tenant, owner)
        if got.status != "busy":
            return _granted(got, name)
        now = yield from ask(Now())
        left = begun + wait - now
        if left <= 0:
            raise _busy(got, name, now)
        lease_left = (got.lease_until or now) - now
        yield from ask(Sleep(max(0.01, min(LOOK_AGAIN, left, max(lease_left, 0.05)))))


def _from_idle(busy: Claim, tenant: str, owner: Owner) -> Steps[Claim]:
    """Take over from a Session object of this same process that has no call out, as in a notebook cell run again."""
    holder = HELD.get(busy.holder.token) if busy.holder is not None else None
    if holder is None or holder.busy or busy.session is None:
        return busy
    token = holder.token
    identity = busy.session.id

    def claim(ledger: Ledger) -> Future[Claim]:
        return ledger.claim(name=identity, tenant=tenant, owner=owner, replaces=token)

    got = yield from ask(Job(claim))
    if got.status == "taken" and holder.lease is not None:
        holder.lease.lost = True
    return got


def _granted(got: Claim, name: str) -> Claim:
    if got.status == "taken":
        return got
    ids: dict[str, Any] = {"session_id": got.session.id if got.session is not None else None}
    if got.status == "missing":
        msg = f"no session {name!r} in this ledger. Nothing was written. runtime.open(alias) makes one"
        raise SessionNotFound(msg, **ids)
    if got.status == "exists":
        msg = f"a session with alias {name!r} exists. Nothing was written. runtime.open({name!r}) takes it up"
        raise SessionExists(msg, **ids)
    msg = f"session {name!r} was opened with another input. Nothing was written. Use another alias, or the first input"
    raise InputChanged(msg, **ids)


def _busy(got: Claim, name: str, now: float) -> SessionBusy:
    until = f"; its lease ends in {got.lease_until - now:.1f} s unless it is renewed" if got.lease_until else ""
    by = f" (process {got.holder.pid} on {got.holder.host})" if got.holder is not None else ""
    msg = f"session {name!r} is held by another worker{by}{until}. Nothing was written or sent. Wait longer with wait="
    return SessionBusy(msg, session_id=got.session.id if got.session is not None else None)


class Opening:
    """What ``start``, ``open`` and ``resume`` of an `AsyncRuntime` return: serves ``await`` and ``async with``."""

    def __init__(self, opened: Coroutine[Any, Any, AsyncSession]) -> None:
        self._opened = opened
        self._session: AsyncSession | None = None

    def __await__(self) -> Generator[Any, Any, AsyncSession]:
        return self._opened.__await__()

    async def __aenter__(self) -> AsyncSession:
        self._session = await self._opened
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.__aexit__(kind, error, trace)

    def __getattr__(self, name: str) -> NoReturn:
        msg = (
            f"the session is not open yet, so it has no {name!r}: session = await runtime.open(...), or "
            "async with runtime.open(...) as session"
        )
        raise AttributeError(msg, name=name, obj=self)
