"""Runtimes: a ledger, tools and credentials; where sessions come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from agent_runtime._core.effects import ask
from agent_runtime._core.ending import decide
from agent_runtime._drive import AsyncDriver, Driver
from agent_runtime._drive.tokens import save_all
from agent_runtime._http import AsyncHttpSender, HttpSender
from agent_runtime._model import SessionState
from agent_runtime._session.async_session import AsyncSession
from agent_runtime._session.hold import hold
from agent_runtime._session.opening import Opening
from agent_runtime._session.runtime_base import RuntimeBase, give_back
from agent_runtime._session.runtime_jobs import AsyncRuntimeJobs, RuntimeJobs
from agent_runtime._session.session import Session
from agent_runtime.config import defaults
from agent_runtime.errors import ConfigError

if TYPE_CHECKING:
    from types import TracebackType

    from agent_runtime._core.effects import Steps
    from agent_runtime._model import OperationRecord, Outcome, SessionRecord
    from agent_runtime._session.table import StepTable
    from agent_runtime.config import SubjectToken
    from agent_runtime.ledger import Claim

R = TypeVar("R")


class Runtime(RuntimeJobs, RuntimeBase):
    """A ledger, tools and credentials, for blocking code.

    Args:
        ledger: ``sqlite:///agent.db``, ``postgresql://user@host/database``, or an open ledger.
        tools: what may be called; more with `register`.
        auth: credentials of tools that bring none.
        client: the user's own ``httpx.Client``.
        tenant: whose data; sessions of other tenants are not seen.
        actor: on whose behalf, where a session is opened without ``actor=``; kept with the sessions.
        key_secret: deployment secret, at least 16 bytes, that ``uuid`` keys are made with.
        token_key: Fernet key, or the path of a file that holds one, that tokens are kept and shared under; else the
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
        finish: bool = True,
    ) -> Session:
        """Make a new session; raises `SessionExists` if the alias stands. The others: as `open`."""
        claim = self._drive(self._start(alias, input, actor))
        return self._session(claim, actor, subject_token, finish=finish)

    def open(
        self,
        alias: str,
        *,
        input: Any = None,  # noqa: A002
        wait: float = defaults.SESSION_WAIT,
        actor: str | None = None,
        subject_token: SubjectToken | None = None,
        finish: bool = True,
    ) -> Session:
        """Start the session of this alias, or resume it; claims and loads, sends nothing.

        Args:
            alias: the caller's name for the session.
            input: what it is about; another one under the same alias is refused.
            wait: seconds to wait for another worker that holds it.
            actor: name of whom it acts for; stays the same for its life.
            subject_token: the actor's token, or a function that returns the current one; exchanged, never forwarded.
            finish: the end of a ``with`` block finishes the session; False = it only releases it, as a chat wants.
        """
        claim = self._drive(self._open(alias, input, wait, actor))
        return self._session(claim, actor, subject_token, finish=finish)

    def resume(
        self,
        name: str,
        *,
        wait: float = defaults.SESSION_WAIT,
        subject_token: SubjectToken | None = None,
        reissue_failed: bool = False,
        finish: bool = True,
    ) -> Session:
        """Resume a session by id or alias; claims and loads, sends nothing.

        Args:
            name: id or alias.
            wait: seconds that a session held by another worker is waited for.
            subject_token: as `open`.
            reissue_failed: a step that failed with effect none is issued again when a call reaches it.
            finish: as `open`.
        """
        claim = self._drive(self._resume(name, wait))
        return self._session(claim, None, subject_token, reissue_failed=reissue_failed, finish=finish)

    def sessions(self, *, state: SessionState | str | None = None) -> list[SessionRecord]:
        """List the sessions of this tenant, newest first; ``state="open"`` are those that a crash may have left."""
        return self._drive(ask(self._sessions(state)))

    def explain(self, name: str) -> StepTable:
        """Return a session's steps with what a resume would do about each; takes no lease, sends nothing."""
        return self._table(self._drive(ask(self._read(name))), name)

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
        """Close connections and, if the runtime opened it, the ledger. Safe to call twice.

        A token request that is out is finished, and no other is begun. Refresh tokens that the ledger could not take
        are written now; of an account whose token it does not take even then, a warning is logged.
        """
        self._settings.closed = True
        self._store.ending = True
        self._driver.close()
        try:
            if self._store.unsaved:
                self._warn_unsaved(self._drive(save_all(self._store)))
        finally:
            self._sender.close()
            if self._own_ledger is not None:
                self._own_ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _session(
        self,
        claim: Claim,
        actor: str | None,
        subject_token: SubjectToken | None,
        *,
        finish: bool,
        reissue_failed: bool = False,
    ) -> Session:
        try:
            made = hold(self._settings, claim, actor, subject_token, finish=finish, reissue_failed=reissue_failed)
            return Session(made)
        except ConfigError:
            self._drive(give_back(claim))
            raise

    def _drive(self, steps: Steps[R]) -> R:
        return self._driver.drive(steps, None)


class AsyncRuntime(AsyncRuntimeJobs, RuntimeBase):
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
        finish: bool = True,
    ) -> Opening:
        """Make a new session; raises `SessionExists` if the alias stands. The others: as `open`."""
        return Opening(self._session(self._start(alias, input, actor), actor, subject_token, finish=finish))

    def open(
        self,
        alias: str,
        *,
        input: Any = None,  # noqa: A002
        wait: float = defaults.SESSION_WAIT,
        actor: str | None = None,
        subject_token: SubjectToken | None = None,
        finish: bool = True,
    ) -> Opening:
        """Start the session of this alias, or resume it; claims and loads, sends nothing.

        Args:
            alias: the caller's name for the session.
            input: what it is about; another one under the same alias is refused.
            wait: seconds to wait for another worker that holds it.
            actor: name of whom it acts for; stays the same for its life.
            subject_token: the actor's token, or a function that returns the current one; exchanged, never forwarded.
            finish: the end of a ``with`` block finishes the session; False = it only releases it, as a chat wants.
        """
        return Opening(self._session(self._open(alias, input, wait, actor), actor, subject_token, finish=finish))

    def resume(
        self,
        name: str,
        *,
        wait: float = defaults.SESSION_WAIT,
        subject_token: SubjectToken | None = None,
        reissue_failed: bool = False,
        finish: bool = True,
    ) -> Opening:
        """Resume a session by id or alias; claims and loads, sends nothing.

        Args:
            name: id or alias.
            wait: seconds that a session held by another worker is waited for.
            subject_token: as `open`.
            reissue_failed: a step that failed with effect none is issued again when a call reaches it.
            finish: as `open`.
        """
        return Opening(
            self._session(self._resume(name, wait), None, subject_token, reissue_failed=reissue_failed, finish=finish)
        )

    async def sessions(self, *, state: SessionState | str | None = None) -> list[SessionRecord]:
        """List the sessions of this tenant, newest first; ``state="open"`` are those that a crash may have left."""
        return await self._drive(ask(self._sessions(state)))

    async def explain(self, name: str) -> StepTable:
        """Return a session's steps with what a resume would do about each; takes no lease, sends nothing."""
        return self._table(await self._drive(ask(self._read(name))), name)

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
        """Close connections and, if the runtime opened it, the ledger. Safe to call twice.

        A token request that is out is finished, and no other is begun. Refresh tokens that the ledger could not take
        are written now; of an account whose token it does not take even then, a warning is logged.
        """
        self._settings.closed = True
        self._store.ending = True
        await self._driver.close()
        try:
            if self._store.unsaved:
                self._warn_unsaved(await self._drive(save_all(self._store)))
        finally:
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
        self,
        steps: Steps[Claim],
        actor: str | None,
        subject_token: SubjectToken | None,
        *,
        finish: bool,
        reissue_failed: bool = False,
    ) -> AsyncSession:
        claim = await self._drive(steps)
        try:
            made = hold(self._settings, claim, actor, subject_token, finish=finish, reissue_failed=reissue_failed)
            return AsyncSession(made)
        except ConfigError:
            await self._drive(give_back(claim))
            raise

    async def _drive(self, steps: Steps[R]) -> R:
        return await self._driver.drive(steps, None)
