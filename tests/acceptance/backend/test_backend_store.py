"""Claims and answers in the store, where two owners meet in an order that no timing can be asked for."""

from __future__ import annotations

import pytest

from examples.tool_backend.answers import Answer
from examples.tool_backend.contract import IdempotencyContract
from examples.tool_backend.keys import Operation
from examples.tool_backend.store import OperationStore, connect

pytestmark = [pytest.mark.acceptance, pytest.mark.anyio]

PAPERS = "f" * 64
OPERATION = Operation("ada", "/tools/debit", "key-1", PAPERS)
DONE = Answer(200, b'{"balance": 7}', (("Content-Type", "application/json"),))
LATE = Answer(200, b'{"balance": 6}')


@pytest.fixture
async def valkey(valkey_url):
    """The client behind the store."""
    client = connect(f"{valkey_url}?db=3")
    yield client
    await client.aclose()


async def _lose_claim(valkey) -> None:
    """Let every claim end, as time does to the claim of a paused process."""
    for entry in await valkey.keys("*:claim"):
        await valkey.delete(entry)


async def test_one_claim_at_a_time(store):
    """A second claim is refused while the first stands, and granted when it was dropped."""
    first = await store.claim("op", PAPERS)
    assert await store.claim("op", PAPERS) is None
    assert await store.drop(first)
    assert await store.claim("op", PAPERS) is not None


async def test_a_former_owner_cannot_touch_its_successors_claim(store, valkey):
    """A paused owner whose claim ended can neither renew, begin, complete nor drop what its successor holds."""
    paused = await store.claim("op", PAPERS)
    await _lose_claim(valkey)
    successor = await store.claim("op", PAPERS)

    assert not await store.renew(paused)
    assert not await store.begin(paused)
    assert not await store.complete(paused, LATE)
    assert not await store.drop(paused)

    record = await store.look("op")
    assert record.running
    assert not record.begun
    assert record.answer is None
    assert await store.complete(successor, DONE)


async def test_a_former_owner_cannot_replace_its_successors_answer(store, valkey):
    """A paused owner that comes back after its successor has finished leaves the answer as it is."""
    paused = await store.claim("op", PAPERS)
    await _lose_claim(valkey)
    await store.complete(await store.claim("op", PAPERS), DONE)

    assert not await store.complete(paused, LATE)
    assert (await store.look("op")).answer == DONE


async def test_a_claim_ends_by_itself(valkey):
    """A claim that nobody renews ends, and the answer's own lifetime begins when it is kept."""
    store = OperationStore(valkey, claim_seconds=0.5, result_seconds=100)
    claim = await store.claim("brief", PAPERS)
    assert 0 < await valkey.pttl("tool-backend:{brief}:claim") <= 500
    await store.complete(claim, DONE)
    assert not await valkey.exists("tool-backend:{brief}:claim")
    assert 99_000 < await valkey.pttl("tool-backend:{brief}:answer") <= 100_000


async def test_completing_ends_claim_and_mark(store):
    """After completion only the answer is left, with the fingerprint of its request."""
    claim = await store.claim("op", PAPERS)
    await store.begin(claim)
    assert (await store.look("op")).begun
    await store.complete(claim, DONE)
    record = await store.look("op")
    assert (record.answer, record.running, record.begun, record.fingerprint) == (DONE, False, False, PAPERS)


class _LateStore(OperationStore):
    """A store where another owner claims, finishes and leaves between a request's look and its claim."""

    async def claim(self, operation, fingerprint):
        other = await super().claim(operation, fingerprint)
        await super().complete(other, DONE)
        return await super().claim(operation, fingerprint)


async def test_the_answer_is_looked_up_again_under_the_claim(store, valkey):
    """An answer stored between look-up and claim is replayed; the tool does not run a second time."""
    late = _LateStore(valkey, claim_seconds=60, result_seconds=60)
    contract = IdempotencyContract(late, claim_seconds=60, retry_after=1)

    async def handler(begin):
        pytest.fail("the tool ran twice")

    answer = await contract.run(OPERATION, handler)
    assert answer == DONE.marked_as_replayed()
    assert not (await late.look(OPERATION.name)).running


async def test_a_handler_that_lost_its_claim_changes_nothing(store, valkey):
    """A handler whose claim ended before its mutation is stopped at ``begin``."""
    contract = IdempotencyContract(store, claim_seconds=60, retry_after=1)
    effects = []

    async def handler(begin):
        await _lose_claim(valkey)
        await begin()
        effects.append("effect")
        return DONE

    assert (await contract.run(OPERATION, handler)).status == 409
    assert effects == []


async def test_a_handler_that_lost_its_claim_in_its_mutation_is_not_followed(store, valkey):
    """Where an owner was cut off in its mutation, the next request is told so instead of running it again."""
    contract = IdempotencyContract(store, claim_seconds=60, retry_after=1)
    effects = []

    async def paused(begin):
        await begin()
        effects.append("effect")
        await _lose_claim(valkey)
        effects.append(await contract.run(OPERATION, paused))
        return DONE

    assert await contract.run(OPERATION, paused) == DONE
    assert effects[0] == "effect"
    assert len(effects) == 2
    assert effects[1].readable_body()["type"].endswith("/partly-applied")
    assert (await contract.state(OPERATION.name, OPERATION.key))["status"] == 500
