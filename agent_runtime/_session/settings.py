"""What a runtime holds: tools by name, credentials, limits."""

from __future__ import annotations

import datetime as dt
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_runtime._drive.tokens import rotating_account
from agent_runtime._http import streams_are_available
from agent_runtime._model.key_formats import check_secret, check_sensitive
from agent_runtime.config import FunctionTool, HttpTool, defaults, warn_without_contract
from agent_runtime.config._checks import count, function, shown, text
from agent_runtime.config.auth import check_auth
from agent_runtime.errors import ConfigError, UnknownTool

if TYPE_CHECKING:
    from agent_runtime._core.attention import Attention
    from agent_runtime._drive import AsyncDriver, Driver, World
    from agent_runtime._drive.tokens import TokenStore
    from agent_runtime.config import AnyTool, Auth, HttpTool


@dataclass(kw_only=True)
class Settings:
    """What sessions of one runtime share. Strictly private."""

    world: World
    tokens: TokenStore
    is_async: bool
    tenant: str = "default"
    actor: str | None = None
    key_secret: bytes | None = field(default=None, repr=False)
    body_limit: int = defaults.BODY_LIMIT
    after_unknown: str = "block"
    on_attention: Callable[[Attention], Any] | AnyTool | str | None = None
    telling: threading.Lock = field(default_factory=threading.Lock)
    words: Mapping[str, str] | None = None
    tools: dict[str, AnyTool] = field(default_factory=dict)
    closed: bool = False
    notify: Callable[[], Any] = field(init=False)
    driver: Driver = field(init=False)
    async_driver: AsyncDriver = field(init=False)

    def __post_init__(self) -> None:
        check_after_unknown(self.after_unknown)
        text("tenant", self.tenant)
        if self.actor is not None:
            text("actor", self.actor)
        count("body_limit", self.body_limit)
        if self.on_attention is not None and not isinstance(self.on_attention, str | HttpTool):
            function("on_attention", self.on_attention)
        if self.key_secret is not None:
            if not isinstance(self.key_secret, bytes):
                msg = f"key_secret must be bytes, not {shown(self.key_secret)}"
                raise ConfigError(msg)
            check_secret(self.key_secret)
        check_auth("", self.world.auth)
        self.tokens.check(None, self.world.auth)

    def register(self, tools: Iterable[AnyTool], *, stacklevel: int) -> None:
        """Take tools by name, all or none; a name stands for one tool."""
        if isinstance(tools, str | Mapping | HttpTool | FunctionTool) or not isinstance(tools, Iterable):
            msg = f"tools must be a list of tools, such as tools=[debit], not {shown(tools)}"
            raise ConfigError(msg)
        taken = dict(self.tools)
        for tool in tools:
            self._check(tool, taken)
            taken[tool.name] = tool
        for tool in taken.values():
            if tool.name not in self.tools:
                warn_without_contract(tool, stacklevel=stacklevel + 1)
        self.tools.update(taken)

    def warn_of_memory(self, *, stacklevel: int) -> None:
        """Warn once of an account whose refresh tokens rotate in a ledger that ends with its process."""
        if not getattr(self.world.ledger, "in_memory", False):
            return
        account = next(filter(None, map(rotating_account, (self.world.auth, *self._auths()))), None)
        if account is not None:
            warnings.warn(
                f"the refresh tokens of account {account!r} rotate, and this ledger is in memory: the newest one ends "
                "with this process, and the one in the settings is used up by then. Use a ledger that stays, such as "
                "sqlite:///agent.db",
                UserWarning,
                stacklevel=stacklevel + 1,
            )

    def _auths(self) -> Iterable[Auth | None]:
        return (tool.auth for tool in self.tools.values() if isinstance(tool, HttpTool))

    def _check(self, tool: AnyTool, taken: Mapping[str, AnyTool]) -> None:
        if not isinstance(tool, HttpTool | FunctionTool):
            msg = f"{shown(tool)} is no tool; make one with Tool(...) or @tool"
            raise ConfigError(msg)
        if taken.get(tool.name, tool) is not tool:
            msg = f"two tools are named {tool.name!r}; names stand in keys and in the ledger, so each needs its own"
            raise ConfigError(msg)
        if tool.sensitive:
            check_sensitive("uuid", self.key_secret)
        self.tokens.check(tool, self.world.auth)
        if tool.contract.polling.stream is not None and not streams_are_available():
            msg = f"tool {tool.name!r} has PollPolicy(stream=): pip install 'agent-runtime-ledger[sse]'"
            raise ConfigError(msg)

    def tool(self, tool: AnyTool | str) -> AnyTool:
        """Return a registered tool by itself or by name, or raise `UnknownTool`."""
        name = tool if isinstance(tool, str) else getattr(tool, "name", repr(tool))
        known = self.tools.get(name)
        if known is None or (not isinstance(tool, str) and known is not tool):
            names = ", ".join(sorted(self.tools)) or "none"
            msg = (
                f"tool {name!r} is not registered with this runtime (there are: {names}). Nothing was sent. Register it"
            )
            raise UnknownTool(msg)
        return known

    def fills(self, tool: HttpTool) -> dict[str, Any]:
        """Return values that must be fresh but stable, made now."""
        made: dict[str, Any] = {}
        for name, fill in tool.fill.items():
            if fill == "now":
                moment = dt.datetime.fromtimestamp(self.world.ledger.now(), dt.UTC)
                made[name] = moment.isoformat().replace("+00:00", "Z")
            elif fill == "uuid":
                made[name] = self.world.new_id()
            else:
                made[name] = fill()
        return made


def check_inputs(ledger: object, clock: object, random: object, probe: object) -> None:
    """Raise `ConfigError` unless the inputs of a runtime can serve as what they stand for; None is the usual one."""
    if isinstance(ledger, type) or not (isinstance(ledger, str) or hasattr(ledger, "claim")):
        msg = f"ledger must be a URL such as 'sqlite:///agent.db', or an open ledger, not {shown(ledger)}"
        raise ConfigError(msg)
    if clock is not None:
        missing = [name for name in ("wall", "boottime", "sleep", "sleep_async") if not hasattr(clock, name)]
        if missing or isinstance(clock, type):
            lacks = f", which has no {', '.join(missing)}" if missing else ""
            msg = f"clock must be a clock such as agent_runtime.testing.VirtualClock(), not {shown(clock)}{lacks}"
            raise ConfigError(msg)
    for name, value in (("random", random), ("probe", probe)):
        if value is not None:
            function(name, value)


def check_after_unknown(value: object) -> None:
    """Raise `ConfigError` unless the value is one that ``after_unknown=`` takes."""
    if value not in {"block", "continue"}:
        msg = f"after_unknown must be 'block' or 'continue', not {value!r}"
        raise ConfigError(msg)
