"""Faults to order: a script per tool, of which each request to the tool takes the first entry that matches."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from examples.tool_backend.answers import Answer
from examples.tool_backend.contract import ScriptedFailure
from examples.tool_backend.store import PREFIX
from examples.tool_backend.wire import Cut, CutBody, DrippedBody, LostAnswer, WireAnswer

if TYPE_CHECKING:
    from redis.asyncio import Redis

FaultName = Literal[
    "lost_answer",
    "slow",
    "fail_before",
    "fail_half_way",
    "crash",
    "unauthorised_until_refresh",
    "status",
    "drip",
    "cut_body",
]
Moment = Literal["before_effect", "after_effect", "after_stored"]
CRASH_EXIT_STATUS = 70

# Entries are kept as {match, left, spec}; the spec stays a text, because cjson would turn an empty list into {}.
_TAKE = """
for index, text in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  local entry = cjson.decode(text)
  if entry.match == '' or string.find(ARGV[1], entry.match, 1, true) then
    if entry.left > 1 then
      entry.left = entry.left - 1
      redis.call('LSET', KEYS[1], index - 1, cjson.encode(entry))
    else
      redis.call('LREM', KEYS[1], 1, text)
    end
    return entry.spec
  end
end
return false
"""


class Fault(BaseModel):
    """One entry of a script, as ``POST /faults`` takes it; the README has the table.

    Attributes:
        tool: the tool whose requests it is for.
        fault: what goes wrong.
        times: for how many requests.
        match: a part of the key; other requests pass by. Empty: every request.
        seconds: of ``slow``: how long; of ``drip``: between two bytes.
        when: of ``slow`` (default ``before_effect``) and ``crash`` (default ``after_effect``): the moment.
        cut: of ``lost_answer`` and ``cut_body``: an orderly end of the connection, or a reset.
        status: of ``status``: its status, with ``headers`` and ``body`` (a text as it is, anything else as JSON).
        by: of ``status``: a gateway in front of the contract, or the tool's handler, whose answers the contract keeps.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: str
    fault: FaultName
    times: int = Field(default=1, ge=1)
    match: str = ""
    seconds: float = Field(default=1.0, ge=0)
    when: Moment | None = None
    cut: Cut = "close"
    status: int = Field(default=503, ge=200, le=599)
    headers: dict[str, str] = {}
    body: Any = None
    by: Literal["gateway", "handler"] = "gateway"

    async def strike(self, moment: Moment) -> None:
        """Do what this fault does at this moment of an execution; most do nothing at most of them."""
        if self.fault == "slow" and moment == (self.when or "before_effect"):
            await asyncio.sleep(self.seconds)
        elif self.fault == "crash" and moment == (self.when or "after_effect"):
            os._exit(CRASH_EXIT_STATUS)
        elif self.fault == "fail_before" and moment == "before_effect":
            raise ScriptedFailure("ordered to fail before the effect")
        elif self.fault == "fail_half_way" and moment == "after_effect":
            raise ScriptedFailure("ordered to fail half way")

    def scripted_answer(self) -> Answer:
        """Return the answer that a ``status`` fault gives."""
        headers = dict(self.headers)
        if self.body is None:
            body = b""
        elif isinstance(self.body, str):
            body = self.body.encode()
        else:
            body = json.dumps(self.body).encode()
            headers = {"Content-Type": "application/json", **headers}
        return Answer(self.status, body, tuple(headers.items()))

    def deliver(self, answer: Answer) -> WireAnswer:
        """Return the answer as this fault lets it reach the client."""
        if self.fault == "lost_answer":
            return LostAnswer(answer, cut=self.cut)
        if self.fault == "cut_body":
            return CutBody(answer, cut=self.cut)
        if self.fault == "drip":
            return DrippedBody(answer, seconds=self.seconds)
        return WireAnswer(answer)


class FaultScript:
    """The scripts of all tools, in Valkey: a crash does not lose them, several processes share them."""

    def __init__(self, valkey: Redis) -> None:
        self._valkey = valkey
        self._take = valkey.register_script(_TAKE)

    async def add(self, fault: Fault) -> None:
        """Put an entry at the end of its tool's script."""
        entry = {"match": fault.match, "left": fault.times, "spec": fault.model_dump_json(exclude_unset=True)}
        await self._valkey.rpush(_list_of(fault.tool), json.dumps(entry))

    async def take(self, tool: str, key: str) -> Fault | None:
        """Return the first entry that matches, and count it as used."""
        spec = await self._take([_list_of(tool)], [key])
        return Fault.model_validate_json(spec) if spec else None


def _list_of(tool: str) -> str:
    return f"{PREFIX}faults:{tool}"
