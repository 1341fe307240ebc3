"""The tools, and the world that they change.

Each effect is appended to a list and never looked up there: an effect that happens twice shows twice.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, Field, ValidationError

from examples.tool_backend.answers import Answer, json_answer, problem
from examples.tool_backend.keys import Refused
from examples.tool_backend.store import PREFIX

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from examples.tool_backend.contract import Begin
    from examples.tool_backend.faults import Fault
    from examples.tool_backend.jobs import Jobs

_EFFECTS = f"{PREFIX}effects"
_SPENT = f"{PREFIX}spent"

# Check, spend and record in one step: two debits at once must not both find the same money.
_DEBIT = """
local spent = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
local left = tonumber(ARGV[3]) - spent - tonumber(ARGV[2])
if left < 0 then return false end
redis.call('HINCRBY', KEYS[1], ARGV[1], ARGV[2])
redis.call('RPUSH', KEYS[2], ARGV[4])
return left
"""


class World:
    """Everything that tools change: the list of effects, what accounts have spent, jobs."""

    jobs: Jobs

    def __init__(self, valkey: Redis, *, opening_balance: int) -> None:
        self._valkey = valkey
        self._opening_balance = opening_balance
        self._debit = valkey.register_script(_DEBIT)

    async def record(self, effect: dict[str, Any]) -> None:
        """Append one effect."""
        await self._valkey.rpush(_EFFECTS, json.dumps(effect))

    async def debit(self, account: str, amount: int, effect: dict[str, Any]) -> int | None:
        """Take the amount and append the effect; return the new balance, or None if there is not enough."""
        args = [account, amount, self._opening_balance, json.dumps(effect)]
        return await self._debit([_SPENT, _EFFECTS], args)

    async def balance(self, account: str) -> int:
        """Return what the account holds."""
        return self._opening_balance - int(await self._valkey.hget(_SPENT, account) or 0)

    async def effects(self) -> list[dict[str, Any]]:
        """Return all effects, oldest first."""
        return [json.loads(effect) for effect in await self._valkey.lrange(_EFFECTS, 0, -1)]


class DatabaseOrder(BaseModel):
    """Arguments of ``provision-database``."""

    region: Annotated[str, Field(min_length=1)]
    storage_gb: Annotated[int, Field(ge=1, le=65536)] = 20


class Debit(BaseModel):
    """Arguments of ``debit``; the amount is in cents."""

    account: Annotated[str, Field(min_length=1)]
    amount: Annotated[int, Field(ge=1, le=10**12, strict=True)]


class Webhook(BaseModel):
    """Arguments of ``send-webhook``."""

    url: Annotated[str, Field(min_length=1)]
    event: Annotated[str, Field(min_length=1)]
    payload: Any = None


Order = TypeVar("Order", bound=BaseModel)


@dataclass(frozen=True)
class Call(Generic[Order]):
    """One execution of a tool's handler."""

    tool: str
    caller: str
    key: str | None
    args: dict[str, Any]
    order: Order
    world: World
    fault: Fault | None
    begin: Begin

    @asynccontextmanager
    async def effect(self) -> AsyncIterator[dict[str, Any]]:
        """Enclose the mutation and nothing else; yields the effect to be recorded."""
        if self.fault is not None:
            await self.fault.strike("before_effect")
        await self.begin()
        yield {
            "tool": self.tool,
            "key": self.key,
            "caller": self.caller,
            "args": self.args,
            "effect_id": uuid.uuid4().hex,
        }
        if self.fault is not None:
            await self.fault.strike("after_effect")


async def provision_database(call: Call[DatabaseOrder]) -> Answer:
    """Make a database instance; each execution makes another one."""
    async with call.effect() as effect:
        await call.world.record(effect)
    instance = {"instance_id": f"db-{effect['effect_id']}", "status": "ready", "region": call.order.region}
    return json_answer({**instance, "allocated_storage": call.order.storage_gb}, status=201)


async def debit(call: Call[Debit]) -> Answer:
    """Take money from an account, or say that there is not enough."""
    account, amount = call.order.account, call.order.amount
    async with call.effect() as effect:
        balance = await call.world.debit(account, amount, effect)
    if balance is None:
        return problem(402, "insufficient-funds", f"Account {account} does not hold {amount} cents.")
    return json_answer({"account": account, "balance": balance, "debit_id": effect["effect_id"]})


async def send_webhook(call: Call[Webhook]) -> Answer:
    """Deliver an event; here the delivery is its entry in the list of effects."""
    async with call.effect() as effect:
        await call.world.record(effect)
    return json_answer({"delivery_id": f"dlv-{effect['effect_id']}", "event": call.order.event})


@dataclass(frozen=True)
class Tool:
    """A tool: its name, where it is, what it takes and does, whether it honours keys."""

    name: str
    path: str
    order: type[BaseModel]
    handler: Callable[[Call[Any]], Awaitable[Answer]]
    honours_keys: bool = True

    def check(self, args: dict[str, Any]) -> BaseModel:
        """Return the args as the tool's order, or refuse them before anything is claimed."""
        try:
            return self.order.model_validate(args)
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
            raise Refused(problem(400, "invalid-args", faults)) from error


TOOLS = (
    Tool("provision-database", "/tools/provision-database", DatabaseOrder, provision_database),
    Tool("debit", "/tools/debit", Debit, debit),
    Tool("send-webhook", "/tools/send-webhook", Webhook, send_webhook),
    Tool("legacy-debit", "/legacy/debit", Debit, debit, honours_keys=False),
)
READ_TOOL = "get-account"
