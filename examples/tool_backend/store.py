"""Claims, marks and answers in Valkey: who may run an operation, whether it began, how it ended.

Three entries an operation, all of them with an end:

* ``claim``   ``<owner token>:<fingerprint>``, set if absent, short-lived, renewed by its owner;
* ``begun``   the fingerprint, set by the owner just before it changes anything;
* ``answer``  the fingerprint and the answer, set by the owner when it has finished.

A claim may be renewed, marked, completed or dropped only by the owner whose token stands in it. Otherwise a process
that was paused for longer than its claim would delete its successor's claim or write over its answer.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from examples.tool_backend.answers import Answer

PREFIX = "tool-backend:"

_RENEW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""

_BEGIN = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
return 1
"""

_COMPLETE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
return redis.call('DEL', KEYS[1], KEYS[2])
"""

_DROP = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""


def connect(url: str) -> Redis:
    """Return a client that sends each command once.

    By default the client repeats a command whose answer was lost. Repeated, ``SET NX`` finds its own claim and calls it
    somebody else's, and ``RPUSH`` records an effect twice.
    """
    return Redis.from_url(url, retry=Retry(NoBackoff(), 0))


@dataclass(frozen=True)
class Claim:
    """The right to run one operation, for as long as the store holds exactly this value."""

    operation: str
    fingerprint: str
    owner: str

    @property
    def value(self) -> bytes:
        """What the store holds while the claim stands."""
        return f"{self.owner}:{self.fingerprint}".encode()


@dataclass(frozen=True)
class Record:
    """What is known of an operation at one instant.

    Attributes:
        answer: the answer kept for it, if it has ended.
        running: whether a claim stands.
        begun: whether an owner began to change something and has not recorded an end.
        fingerprint: of the request that the above belongs to; None if nothing is known.
    """

    answer: Answer | None = None
    running: bool = False
    begun: bool = False
    fingerprint: str | None = None


class OperationStore:
    """Claims, marks and answers of all operations."""

    def __init__(self, valkey: Redis, *, claim_seconds: float, result_seconds: float) -> None:
        self._valkey = valkey
        self._claim_ms = round(claim_seconds * 1000)
        self._result_ms = round(result_seconds * 1000)
        self._renew = valkey.register_script(_RENEW)
        self._begin = valkey.register_script(_BEGIN)
        self._complete = valkey.register_script(_COMPLETE)
        self._drop = valkey.register_script(_DROP)

    async def look(self, operation: str) -> Record:
        """Return what is known of the operation, read in one step."""
        claim, begun, ended = await self._valkey.mget(_entries(operation))
        if ended is not None:
            fingerprint, _, packed = ended.partition(b"\n")
            return Record(Answer.unpack(packed), claim is not None, begun=False, fingerprint=fingerprint.decode())
        if begun is not None:
            return Record(None, claim is not None, begun=True, fingerprint=begun.decode())
        if claim is not None:
            return Record(None, running=True, fingerprint=claim.partition(b":")[2].decode())
        return Record()

    async def claim(self, operation: str, fingerprint: str) -> Claim | None:
        """Return a new claim, or None if another one stands."""
        claim = Claim(operation, fingerprint, secrets.token_hex(16))
        taken = await self._valkey.set(_entries(operation)[0], claim.value, nx=True, px=self._claim_ms)
        return claim if taken else None

    async def renew(self, claim: Claim) -> bool:
        """Let the claim's time begin anew; False if it is no longer the owner's."""
        return bool(await self._renew(_entries(claim.operation), [claim.value, self._claim_ms]))

    async def begin(self, claim: Claim) -> bool:
        """Record that the owner is about to change something; False if the claim is no longer its own."""
        args = [claim.value, self._claim_ms, claim.fingerprint, self._result_ms]
        return bool(await self._begin(_entries(claim.operation), args))

    async def complete(self, claim: Claim, answer: Answer) -> bool:
        """Keep the answer and end the claim in one step; False if the claim is no longer the owner's."""
        ended = claim.fingerprint.encode() + b"\n" + answer.pack()
        return bool(await self._complete(_entries(claim.operation), [claim.value, ended, self._result_ms]))

    async def drop(self, claim: Claim) -> bool:
        """End the claim and keep nothing; False if it is no longer the owner's."""
        return bool(await self._drop(_entries(claim.operation), [claim.value]))


def _entries(operation: str) -> list[str]:
    # The braces put the three names into one slot of a cluster: scripts and MGET need that.
    return [f"{PREFIX}{{{operation}}}:{entry}" for entry in ("claim", "begun", "answer")]
