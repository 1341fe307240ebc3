"""What both runtimes share: settings, and the protocols that open and read sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from agent_runtime._core.effects import Job, ask
from agent_runtime._drive import World
from agent_runtime._drive.tokens import TokenStore
from agent_runtime._model import SessionState
from agent_runtime._model.words import checked_words
from agent_runtime._oauth import seal_of
from agent_runtime._session.hold import check_session_alias, check_text, input_digest
from agent_runtime._session.opening import opening
from agent_runtime._session.settings import Settings, check_after_unknown, check_inputs
from agent_runtime._session.shared import logger
from agent_runtime._session.table import table_of
from agent_runtime.config import defaults
from agent_runtime.config._checks import one_of, seconds, text
from agent_runtime.errors import SessionNotFound
from agent_runtime.ledger import SqlLedger, current_owner, open_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future

    from agent_runtime._core.attention import Attention
    from agent_runtime._core.effects import Steps
    from agent_runtime._drive import Clock, Probe
    from agent_runtime._model import Loaded, RunningJob, SessionRecord
    from agent_runtime._oauth import TokenKey
    from agent_runtime._session.table import StepTable
    from agent_runtime.config import AnyTool, Auth
    from agent_runtime.ledger import Claim, Ledger, Owner


class RuntimeBase:
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
        on_attention: Callable[[Attention], Any] | AnyTool | str | None = None,
        words: Mapping[str, str] | None = None,
        body_limit: int = defaults.BODY_LIMIT,
        lease: float = defaults.LEASE,
        migrate: Literal["auto", "check"] = "auto",
        clock: Clock | None = None,
        random: Callable[[], float] | None = None,
        probe: Probe | None = None,
    ) -> None:
        check_after_unknown(after_unknown)
        text("tenant", tenant)
        check_inputs(ledger, clock, random, probe)
        one_of("migrate", migrate, ("auto", "check"))
        lease = seconds("lease", lease, zero=False)
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
                after_unknown=after_unknown,
                on_attention=on_attention,
                words=checked_words(words),
            )
            self._settings.register(tools, stacklevel=3)
            self._settings.warn_of_memory(stacklevel=2)
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
        self._settings.register(tools, stacklevel=3)

    @property
    def ledger(self) -> Ledger:
        """The ledger that sessions of this runtime write to."""
        return self._settings.world.ledger

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.ledger!r} tools={sorted(self._settings.tools)}>"

    def _warn_unsaved(self, accounts: Iterable[str]) -> None:
        for account in accounts:
            logger.warning(
                "the ledger did not take the newest refresh token of %s, and it is lost with this process: "
                "authorise the account anew and bring its new refresh token in the settings",
                account,
            )

    def _owner(self) -> Owner:
        return current_owner(self._settings.world.new_id())

    def _start(self, alias: str | None, value: Any, actor: str | None) -> Steps[Claim]:
        if alias is not None:
            check_session_alias(alias)
        return self._making(lambda ledger: ledger.start, alias, value, actor, wait=0.0)

    def _open(self, alias: str, value: Any, wait: float, actor: str | None) -> Steps[Claim]:
        check_session_alias(alias)
        return self._making(lambda ledger: ledger.open, alias, value, actor, wait=seconds("wait", wait))

    def _making(
        self,
        how: Callable[[Ledger], Callable[..., Future[Claim]]],
        alias: str | None,
        value: Any,
        actor: str | None,
        *,
        wait: float,
    ) -> Steps[Claim]:
        """Open a session by a method of the ledger that makes it where it is not there."""
        if actor is not None:
            text("actor", actor)
        settings, owner = self._settings, self._owner()
        session_id, digest = settings.world.new_id(), input_digest(value)

        def claim(ledger: Ledger) -> Future[Claim]:
            return how(ledger)(
                session_id=session_id,
                alias=alias,
                tenant=settings.tenant,
                actor=actor if actor is not None else settings.actor,
                input_digest=digest,
                owner=owner,
            )

        return opening(claim, name=alias or session_id, tenant=settings.tenant, owner=owner, wait=wait)

    def _resume(self, name: str, wait: float) -> Steps[Claim]:
        check_text("a session's id or alias", name)
        wait = seconds("wait", wait)
        settings, owner = self._settings, self._owner()

        def claim(ledger: Ledger) -> Future[Claim]:
            return ledger.claim(name=name, tenant=settings.tenant, owner=owner)

        return opening(claim, name=name, tenant=settings.tenant, owner=owner, wait=wait)

    def _read(self, name: str) -> Job[Loaded | None]:
        check_text("a session's id or alias", name)
        return Job(lambda ledger: ledger.load(name=name, tenant=self._settings.tenant))

    def _table(self, loaded: Loaded | None, name: str) -> StepTable:
        if loaded is None:
            msg = f"no session {name!r} in this ledger"
            raise SessionNotFound(msg)
        return table_of(loaded, self._settings)

    def _sessions(self, state: SessionState | str | None) -> Job[list[SessionRecord]]:
        one_of("state", state, (None, *map(str, SessionState)))
        wanted = None if state is None else SessionState(state)
        return Job(lambda ledger: ledger.sessions(tenant=self._settings.tenant, state=wanted))

    def _jobs(self) -> Job[list[RunningJob]]:
        return Job(lambda ledger: ledger.jobs(tenant=self._settings.tenant))


def give_back(claim: Claim) -> Steps[None]:
    """Release the lease of a claim that no session object comes of."""
    lease = claim.lease
    if lease is not None:
        yield from ask(Job(lambda ledger: ledger.release(lease)))
