"""Runtimes: a ledger, tools and credentials; where sessions come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from agent_runtime._core.attention import STALLED_AFTER, Attention, matters, tell
from agent_runtime._core.callbacks import receive
from agent_runtime._core.effects import Effect, Job
from agent_runtime._core.ending import decide
from agent_runtime._drive import AsyncDriver, Driver, World
from agent_runtime._drive.tokens import TokenStore
from agent_runtime._http import AsyncHttpSender, HttpSender
from agent_runtime._model import SessionState
from agent_runtime._oauth import seal_of
from agent_runtime._session.async_session import AsyncSession, Opening
from agent_runtime._session.jobs import JobTable, job_table
from agent_runtime._session.opening import opening
from agent_runtime._session.session import Session
from agent_runtime._session.settings import Settings, check_after_unknown
from agent_runtime._session.shared import check_session_alias, hold, input_digest, table_of
from agent_runtime.config import defaults
from agent_runtime.errors import ConfigError, SessionNotFound
from agent_runtime.ledger import SqlLedger, current_owner, open_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future
    from types import TracebackType

    from agent_runtime._core.effects import Steps
    from agent_runtime._drive import Clock, Probe
    from agent_runtime._model import CallbackEvent, Loaded, OperationRecord, Outcome, RunningJob, SessionRecord
    from agent_runtime._oauth import TokenKey
    from agent_runtime._session.table import StepTable
    from agent_runtime.config import AnyTool, Auth, SubjectToken
    from agent_runtime.ledger import Claim, Ledger, Owner

R = TypeVar("R")

SILENCE = STALLED_AFTER * defaults.POLL_CAP


class _RuntimeBase:
    """What both runtimes hold. Strictly private."""

    _is_async: bool

    def __init__(
        self,
        ledger: str | Ledger = "sqlite:///agent.db",
        *,
        tools: Iterable[AnyTool] = (),
        auth: Auth | None = None,
        client: Any = None,
        tenant: str = "default",
        actor: str | None = None,
        key_secret: bytes | None = None,
        token_key: TokenKey | None = None,
        after_unknown: Literal["block", "continue"] = "block",
        on_attention: Callable[[Attention], Any] | None = None,
        body_limit: int = defaults.BODY_LIMIT,
        lease: float = defaults.LEASE,
        migrate: Literal["auto", "check"] = "auto",
        clock: Clock | None = None,
        random: Callable[[], float] | None = None,
        probe: Probe | None = None,
    ) -> None:
        check_after_unknown(after_unknown)
        if not tenant:
            raise ConfigError("tenant must be a text that is not empty")
        self._own_ledger: SqlLedger | None = None
        if isinstance(ledger, str):
            self._own_ledger = open_ledger(ledger, clock=clock, lease_seconds=lease, migrate=migrate)
            ledger = self._own_ledger
        world = World(ledger=ledger, auth=auth)
        if clock is not None:
            world.clock = clock
        if random is not None:
            world.random = random
        if probe is not None:
            world.probe = probe
        try:
            self._store = TokenStore(seal_of(token_key), tenant)
            self._settings = Settings(
                world=world,
                tokens=self._store,
                is_async=self._is_async,
                tenant=tenant,
                actor=actor,
                key_secret=key_secret,
                body_limit=body_limit,
                on_attention=on_attention,
                after_unknown=after_unknown,
            )
            self._settings.register(tools, stacklevel=3)
            self._make_driver(client)
            self._settings.notify = self.notify
        except BaseException:
            if self._own_ledger is not None:
                self._own_ledger.close()
            raise

    def _make_driver(self, client: Any) -> None:
        raise NotImplementedError

    def notify(self) -> Any:
        """Tell ``on_attention`` of each open matter that nobody has heard of yet."""
        raise NotImplementedError

    def register(self, *tools: AnyTool) -> None:
        """Take more tools; a name stands for one tool."""
        self._settings.register(tools, stacklevel=2)

    @property
    def ledger(self) -> Ledger:
        """The ledger that sessions of this runtime write to."""
        return self._settings.world.ledger

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.ledger!r} tools={sorted(self._settings.tools)}>"

    def _owner(self) -> Owner:
        return current_owner(self._settings.world.new_id())

    def _start(self, alias: str | None, value: Any, actor: str | None) -> Steps[Claim]:
        if alias is not None:
            check_session_alias(alias)
        settings, owner = self._settings, self._owner()
        session_id, digest = settings.world.new_id(), input_digest(value)

        def claim(ledger: Ledger) -> Future[Claim]:
            return ledger.start(
                session_id=session_id,
                alias=alias,
                tenant=settings.tenant,
                actor=actor if actor is not None else settings.actor,
                input_digest=digest,
                owner=owner,
            )

        return opening(claim, name=alias or session_id, tenant=settings.tenant, owner=owner, wait=0.0)

    def _open(self, alias: str, value: Any, wait: float, actor: str | None) -> Steps[Claim]:
        check_session_alias(alias)
        settings, owner = self._settings, self._owner()
        session_id, digest = settings.world.new_id(), input_digest(value)

        def claim(ledger: Ledger) -> Future[Claim]:
            return ledger.open(
                session_id=session_id,
                alias=alias,
                tenant=settings.tenant,
                actor=actor if actor is not None else settings.actor,
                input_digest=digest,
                owner=owner,
            )

        return opening(claim, name=alias, tenant=settings.tenant, owner=owner, wait=wait)

    def _resume(self, name: str, wait: float) -> Steps[Claim]:
        if not isinstance(name, str):
            msg = f"a session is resumed by its id or alias, not by {type(name).__name__}"
            raise ConfigError(msg)
        settings, owner = self._settings, self._owner()

        def claim(ledger: Ledger) -> Future[Claim]:
            return ledger.claim(name=name, tenant=settings.tenant, owner=owner)

        return opening(claim, name=name, tenant=settings.tenant, owner=owner, wait=wait)

    def _read(self, name: str) -> Job[Loaded | None]:
        return Job(lambda ledger: ledger.load(name=name, tenant=self._settings.tenant))

    def _table(self, loaded: Loaded | None, name: str) -> StepTable:
        if loaded is None:
            msg = f"no session {name!r} in this ledger"
            raise SessionNotFound(msg)
        return table_of(loaded, self._settings)

    def _sessions(self, state: SessionState | str | None) -> Job[list[SessionRecord]]:
        wanted = None if state is None else SessionState(state)
        return Job(lambda ledger: ledger.sessions(tenant=self._settings.tenant, state=wanted))

    def _jobs(self) -> Job[list[RunningJob]]:
        return Job(lambda ledger: ledger.jobs(tenant=self._settings.tenant))


def _one(effect: Effect[R]) -> Steps[R]:
    result: R = yield effect
    return result


class Runtime(_RuntimeBase):
    """A ledger, tools and credentials, for blocking code.

    Args:
        ledger: ``sqlite:///agent.db``, ``postgresql://user@host/database``, or an open ledger.
        tools: what may be called; more with `register`.
        auth: credentials of tools that bring none.
        client: the user's own ``httpx.Client``.
        tenant: whose data; sessions of other tenants are not seen.
        actor: on whose behalf, where a session is opened without ``actor=``; kept with the sessions.
        key_secret: deployment secret, at least 16 bytes, that ``uuid`` keys are made with.
        token_key: Fernet key, or the path of a file that holds one, that refresh tokens are kept under; else the
            environment's ``AGENT_RUNTIME_TOKEN_KEY`` or ``AGENT_RUNTIME_TOKEN_KEY_FILE``.
        after_unknown: ``continue`` lets other tools' writes go on past an unsettled step.
        on_attention: hears of each unknown, contradicted, timed-out or stalled step at least once.
        body_limit: longest answer body, in bytes.
        lease: seconds for which a session stays taken after its worker was last heard of.
        migrate: ``auto`` makes and migrates the tables; ``check`` only looks.
        clock, random, probe: inputs, for tests; see `agent_runtime.testing`.

    Raises:
        ConfigError: a setting that cannot work.
        LedgerError: the ledger cannot be used.
    """

    _is_async = False

    def _make_driver(self, client: Any) -> None:
        self._sender = HttpSender(client)
        self._driver = Driver(self._settings.world, self._sender, self._store)
        self._settings.driver = self._driver

    def start(
        self,
        alias: str | None = None,
        *,
        input: Any = None,  # noqa: A002
        actor: str | None = None,
        subject_token: SubjectToken | None = None,
    ) -> Session:
        """Make a new session; raises `SessionExists` if the alias stands. ``actor``, ``subject_token``: as `open`."""
        claim = self._drive(self._start(alias, input, actor))
        return self._session(claim, actor, subject_token)

    def open(
        self,
        alias: str,
        *,
        input: Any = None,  # noqa: A002
        wait: float = defaults.SESSION_WAIT,
        actor: str | None = None,
        subject_token: SubjectToken | None = None,
    ) -> Session:
        """Start the session of this alias, or resume it; claims and loads, sends nothing.

        Args:
            alias: the caller's name for the session.
            input: what it is about; another one under the same alias is refused.
            wait: seconds to wait for another worker that holds it.
            actor: name of whom it acts for; stays the same for its life.
            subject_token: the actor's token, or a function that returns the current one; exchanged, never forwarded.
        """
        claim = self._drive(self._open(alias, input, wait, actor))
        return self._session(claim, actor, subject_token)

    def resume(
        self, name: str, *, wait: float = defaults.SESSION_WAIT, subject_token: SubjectToken | None = None
    ) -> Session:
        """Resume a session by id or alias; claims and loads, sends nothing. ``subject_token``: as `open`."""
        claim = self._drive(self._resume(name, wait))
        return self._session(claim, None, subject_token)

    def sessions(self, *, state: SessionState | str | None = None) -> list[SessionRecord]:
        """List the sessions of this tenant, newest first; ``state="open"`` are those that a crash may have left."""
        return self._drive(_one(self._sessions(state)))

    def attention(self) -> list[Attention]:
        """List what wants a person or new evidence, oldest first: unknown, contradicted, timed-out, stalled steps."""
        return self._drive(matters(self._settings.tenant, silence=SILENCE))

    def notify(self) -> int:
        """Tell ``on_attention`` of each open matter that nobody has heard of yet; return how many those were.

        Sessions do this when they close; call it from time to time where none does. A matter counts as heard once the
        listener has returned.
        """
        listener = self._settings.on_attention
        return 0 if listener is None else self._drive(tell(self._settings.tenant, listener, silence=SILENCE))

    def jobs(self) -> JobTable:
        """List all jobs in flight, oldest first; prints as a table, and ``.for_model()`` tells a model what runs."""
        found: list[RunningJob] = self._drive(_one(self._jobs()))
        return job_table(found)

    def receive(self, event: CallbackEvent) -> str:
        """Take a verified callback about a job: kept under its id first, then applied, once.

        Returns:
            ``applied``, ``kept`` (its step is not known yet), ``seen``, or ``noted`` (its step has ended already).
        """
        return self._drive(receive(self._settings.tenant, event, self._settings.tools))

    def explain(self, name: str) -> StepTable:
        """Return a session's steps with what a resume would do about each; takes no lease, sends nothing."""
        return self._table(self._drive(_one(self._read(name))), name)

    def settle(self, name: str, *, wait: float = defaults.SESSION_WAIT) -> list[Outcome]:
        """Resume a session, settle what is unsettled in it, and release it."""
        session = self.resume(name, wait=wait)
        try:
            return session.settle()
        finally:
            session.close()

    def decide(
        self,
        operation: str,
        *,
        succeeded: bool,
        by: str,
        evidence: str,
        result: Any = None,
        effect: Literal["none", "possible"] = "none",
    ) -> OperationRecord:
        """Say what became of an unknown operation; final.

        Args:
            operation: its id, as `attention` and `StepUnknown` give it.
            succeeded: whether the effect stands.
            by: who says so.
            evidence: what was seen.
            result: of the effect, as plain JSON values; left out, the step's result is ``missing``.
            effect: of a failed one, whether part of it may stand.
        """
        return self._drive(decide(self._settings.tenant, operation, succeeded, result, by, evidence, effect))

    def close(self) -> None:
        """Close connections and, if the runtime opened it, the ledger. Safe to call twice."""
        self._driver.close()
        self._sender.close()
        if self._own_ledger is not None:
            self._own_ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _session(self, claim: Claim, actor: str | None, subject_token: SubjectToken | None) -> Session:
        return Session(hold(self._settings, claim, actor, subject_token))

    def _drive(self, steps: Steps[R]) -> R:
        return self._driver.drive(steps, None)


class AsyncRuntime(_RuntimeBase):
    """A ledger, tools and credentials, for asyncio; the same settings as `Runtime`, ``client`` an AsyncClient."""

    _is_async = True

    def _make_driver(self, client: Any) -> None:
        self._sender = AsyncHttpSender(client)
        self._driver = AsyncDriver(self._settings.world, self._sender, self._store)
        self._settings.async_driver = self._driver

    def start(
        self,
        alias: str | None = None,
        *,
        input: Any = None,  # noqa: A002
        actor: str | None = None,
        subject_token: SubjectToken | None = None,
    ) -> Opening:
        """Make a new session; raises `SessionExists` if the alias stands. ``actor``, ``subject_token``: as `open`."""
        return Opening(self._session(self._start(alias, input, actor), actor, subject_token))

    def open(
        self,
        alias: str,
        *,
        input: Any = None,  # noqa: A002
        wait: float = defaults.SESSION_WAIT,
        actor: str | None = None,
        subject_token: SubjectToken | None = None,
    ) -> Opening:
        """Start the session of this alias, or resume it; claims and loads, sends nothing.

        Args:
            alias: the caller's name for the session.
            input: what it is about; another one under the same alias is refused.
            wait: seconds to wait for another worker that holds it.
            actor: name of whom it acts for; stays the same for its life.
            subject_token: the actor's token, or a function that returns the current one; exchanged, never forwarded.
        """
        return Opening(self._session(self._open(alias, input, wait, actor), actor, subject_token))

    def resume(
        self, name: str, *, wait: float = defaults.SESSION_WAIT, subject_token: SubjectToken | None = None
    ) -> Opening:
        """Resume a session by id or alias; claims and loads, sends nothing. ``subject_token``: as `open`."""
        return Opening(self._session(self._resume(name, wait), None, subject_token))

    async def sessions(self, *, state: SessionState | str | None = None) -> list[SessionRecord]:
        """List the sessions of this tenant, newest first; ``state="open"`` are those that a crash may have left."""
        return await self._drive(_one(self._sessions(state)))

    async def attention(self) -> list[Attention]:
        """List what wants a person or new evidence, oldest first: unknown, contradicted, timed-out, stalled steps."""
        return await self._drive(matters(self._settings.tenant, silence=SILENCE))

    async def notify(self) -> int:
        """Tell ``on_attention`` of each open matter that nobody has heard of yet; return how many those were.

        Sessions do this when they close; call it from time to time where none does. A matter counts as heard once the
        listener has returned.
        """
        listener = self._settings.on_attention
        return 0 if listener is None else await self._drive(tell(self._settings.tenant, listener, silence=SILENCE))

    async def jobs(self) -> JobTable:
        """List all jobs in flight, oldest first; prints as a table, and ``.for_model()`` tells a model what runs."""
        found: list[RunningJob] = await self._drive(_one(self._jobs()))
        return job_table(found)

    async def receive(self, event: CallbackEvent) -> str:
        """Take a verified callback about a job: kept under its id first, then applied, once.

        Returns:
            ``applied``, ``kept`` (its step is not known yet), ``seen``, or ``noted`` (its step has ended already).
        """
        return await self._drive(receive(self._settings.tenant, event, self._settings.tools))

    async def explain(self, name: str) -> StepTable:
        """Return a session's steps with what a resume would do about each; takes no lease, sends nothing."""
        return self._table(await self._drive(_one(self._read(name))), name)

    async def settle(self, name: str, *, wait: float = defaults.SESSION_WAIT) -> list[Outcome]:
        """Resume a session, settle what is unsettled in it, and release it."""
        session = await self.resume(name, wait=wait)
        try:
            return await session.settle()
        finally:
            await session.close()

    async def decide(
        self,
        operation: str,
        *,
        succeeded: bool,
        by: str,
        evidence: str,
        result: Any = None,
        effect: Literal["none", "possible"] = "none",
    ) -> OperationRecord:
        """Say what became of an unknown operation; final.

        Args:
            operation: its id, as `attention` and `StepUnknown` give it.
            succeeded: whether the effect stands.
            by: who says so.
            evidence: what was seen.
            result: of the effect, as plain JSON values; left out, the step's result is ``missing``.
            effect: of a failed one, whether part of it may stand.
        """
        return await self._drive(decide(self._settings.tenant, operation, succeeded, result, by, evidence, effect))

    async def close(self) -> None:
        """Close connections and, if the runtime opened it, the ledger. Safe to call twice."""
        await self._driver.close()
        await self._sender.close()
        if self._own_ledger is not None:
            self._own_ledger.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _session(
        self, steps: Steps[Claim], actor: str | None, subject_token: SubjectToken | None
    ) -> AsyncSession:
        claim = await self._drive(steps)
        return AsyncSession(hold(self._settings, claim, actor, subject_token))

    async def _drive(self, steps: Steps[R]) -> R:
        return await self._driver.drive(steps, None)
