"""The idempotency contract, once for all tools: claim, run or replay, keep or drop.

A handler gets ``begin``, and awaits it just before it changes anything. With that, the contract can tell a failure that
left nothing (the claim is dropped, the same key runs again) from one that may have left something (the answer is kept,
the same key gets it again), also when it was the process that failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from examples.tool_backend.answers import Answer, problem

if TYPE_CHECKING:
    from examples.tool_backend.keys import Operation
    from examples.tool_backend.store import Claim, OperationStore, Record

logger = logging.getLogger(__name__)

Begin = Callable[[], Awaitable[None]]
Handler = Callable[[Begin], Awaitable[Answer]]

# These say "not now" or "not you", never "this is how it ended": kept, they would be replayed for a day.
NEVER_KEPT = frozenset({401, 403, 408, 409, 425, 429})
CLAIM_ROUNDS = 3


class ClaimLost(Exception):
    """The claim ended before anything was changed; somebody else may run the operation now."""


class ScriptedFailure(Exception):
    """A failure that was ordered; it is answered like any other, but not logged."""


class IdempotencyContract:
    """Runs each operation at most once while its answer is kept, whatever clients and processes do."""

    def __init__(self, store: OperationStore, *, claim_seconds: float, retry_after: int) -> None:
        self._store = store
        self._renew_every = claim_seconds / 3
        self._retry_after = str(retry_after)

    async def run(self, operation: Operation, handler: Handler) -> Answer:
        """Return the operation's answer: of the handler, of the store, or that it is in progress."""
        for _ in range(CLAIM_ROUNDS):
            known = self._known(operation, await self._store.look(operation.name))
            if known is not None:
                return known
            claim = await self._store.claim(operation.name, operation.fingerprint)
            if claim is not None:
                async with self._renewed(claim):
                    return await self._run_claimed(operation, claim, handler)
            # Between look and claim another request claimed, and perhaps has ended already: look again.
        return self._in_progress(operation)

    async def state(self, operation: str, key: str) -> dict[str, Any] | None:
        """Return how an operation stands, without claiming or changing anything; None if nothing is known of it."""
        record = await self._store.look(operation)
        answer = record.answer
        if answer is None and record.running:
            return {"state": "running"}
        if answer is None and record.begun:
            answer = partly_applied(key)  # what the next request under this key would be told
        if answer is None:
            return None
        return {"state": "done", "status": answer.status, "body": answer.readable_body()}

    def _known(self, operation: Operation, record: Record) -> Answer | None:
        """Return the answer that the record alone gives, or None if somebody must claim the operation."""
        if record.fingerprint not in (None, operation.fingerprint):
            return problem(422, "key-reused", "This key was used with another body.", key=operation.key)
        if record.answer is not None:
            return record.answer.marked_as_replayed()
        if record.running:
            return self._in_progress(operation)
        return None

    async def _run_claimed(self, operation: Operation, claim: Claim, handler: Handler) -> Answer:
        # Its answer may have been stored, and its claim ended, between our look and our claim.
        record = await self._store.look(operation.name)
        known = self._known(operation, replace(record, running=False))  # the claim that stands is ours
        if known is not None:
            await self._store.drop(claim)
            return known
        if record.begun:
            # The owner died, or was cut off, while it changed things. To run the handler again could double the
            # effect; to say "failed" could hide it. Nobody will ever know more here, so this is the answer.
            answer = partly_applied(operation.key)
            await self._store.complete(claim, answer)
            return answer
        return await self._execute(operation, claim, handler)

    async def _execute(self, operation: Operation, claim: Claim, handler: Handler) -> Answer:
        begun = False

        async def begin() -> None:
            nonlocal begun
            if not await self._store.begin(claim):
                raise ClaimLost(operation.key)
            begun = True

        try:
            answer = await handler(begin)
        except ClaimLost:
            return self._in_progress(operation)
        except Exception as error:
            # Whatever failed: what counts is whether it had begun.
            if not isinstance(error, ScriptedFailure):
                logger.exception("the handler of %s failed", operation.path)
            answer = partly_applied(operation.key) if begun else not_applied()
        except BaseException:
            # Cancelled at shutdown: free the claim. The mark stays if the handler had begun.
            await self._store.drop(claim)
            raise
        await self._end(claim, answer, begun=begun)
        return answer

    async def _end(self, claim: Claim, answer: Answer, *, begun: bool) -> None:
        if not is_kept(answer.status, begun=begun):
            await self._store.drop(claim)
        elif not await self._store.complete(claim, answer):
            # The mark keeps any successor from running it again; this client still gets what is true.
            logger.warning("a claim was lost while its handler ran; the answer is delivered but not kept")

    @asynccontextmanager
    async def _renewed(self, claim: Claim) -> AsyncIterator[None]:
        """Renew the claim while the body runs, however long that takes."""
        renewal = asyncio.create_task(self._keep_renewing(claim))
        try:
            yield
        finally:
            renewal.cancel()
            with suppress(asyncio.CancelledError):
                await renewal

    async def _keep_renewing(self, claim: Claim) -> None:
        while True:
            await asyncio.sleep(self._renew_every)
            with suppress(RedisError):  # two more tries fit into the claim's time
                if not await self._store.renew(claim):
                    return

    def _in_progress(self, operation: Operation) -> Answer:
        detail = "The operation of this key is running: ask again with the same key."
        headers = (("Retry-After", self._retry_after),)
        return problem(409, "in-progress", detail, headers=headers, key=operation.key)


def is_kept(status: int, *, begun: bool) -> bool:
    """Return whether an answer is stored and replayed; else its claim is dropped and the key runs again."""
    if status in NEVER_KEPT:
        return False
    return begun or status < 500


def partly_applied(key: str) -> Answer:
    """Return the answer for a mutation that began and did not end as it should."""
    detail = (
        "The operation began and did not finish: its effect may stand, in whole or in part. "
        "It will not be run again under this key; inspect and correct by hand."
    )
    return problem(500, "partly-applied", detail, effect="possible", key=key)


def not_applied() -> Answer:
    """Return the answer for a failure before anything was changed."""
    detail = "The operation failed before it changed anything; the same key will run it."
    return problem(500, "not-applied", detail, effect="none")
