"""The idempotency contract over TCP, as an agent meets it."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from examples.tool_backend.process import running_backend

pytestmark = pytest.mark.acceptance

ROUNDS = 500
DEBIT = {"account": "acct-7", "amount": 1}


async def _race(urls: tuple[str, str]) -> list[tuple[httpx.Response, httpx.Response]]:
    """Send two requests at once under each of 500 keys, one to each URL."""
    rounds = []
    async with httpx.AsyncClient(trust_env=False) as client:
        for number in range(ROUNDS):
            headers = {"Idempotency-Key": f"race-{number}-{uuid.uuid4()}"}
            pair = (client.post(f"{url}/tools/debit", json=DEBIT, headers=headers) for url in urls)
            rounds.append(tuple(await asyncio.gather(*pair)))
    return rounds


def _assert_one_ran(first: httpx.Response, second: httpx.Response) -> None:
    executed = [a for a in (first, second) if a.status_code == 200 and "Idempotent-Replayed" not in a.headers]
    others = [a for a in (first, second) if a not in executed]
    assert len(executed) == 1
    for other in others:
        if other.status_code == 409:
            assert other.headers["Retry-After"] == "1"
            assert other.json()["type"].endswith("/in-progress")
        else:
            assert (other.status_code, other.content) == (200, executed[0].content)
            assert other.headers["Idempotent-Replayed"] == "true"


def test_simultaneous_requests_have_one_effect(backend):
    """Of two requests at once under one key, one runs the tool; the other is told to wait or gets the same answer."""
    rounds = asyncio.run(_race((backend.url, backend.url)))
    for pair in rounds:
        _assert_one_ran(*pair)
    counts = backend.effect_counts("debit")
    assert len(counts) == ROUNDS
    assert set(counts.values()) == {1}


def test_simultaneous_requests_to_two_processes_have_one_effect(backend):
    """Two server processes over one store keep the promise between them."""
    with running_backend(redis_url=backend.redis_url) as twin:
        rounds = asyncio.run(_race((backend.url, twin.url)))
    for pair in rounds:
        _assert_one_ran(*pair)
    counts = backend.effect_counts("debit")
    assert len(counts) == ROUNDS
    assert set(counts.values()) == {1}


def test_requests_run_in_parallel(agent):
    """Two slow requests under different keys take the time of one."""
    agent.backend.script("debit", "slow", seconds=1, times=2)
    started = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(agent.call, ["parallel-1", "parallel-2"]))
    assert [answer.status_code for answer in answers] == [200, 200]
    assert time.monotonic() - started < 1.9


def test_handler_slower_than_its_claim_has_one_effect(hasty_agent, key):
    """A claim is renewed while its handler runs, so a request after the claim's first end still finds it."""
    hasty_agent.backend.script("debit", "slow", seconds=3)
    slow_answers = []
    slow = threading.Thread(target=lambda: slow_answers.append(hasty_agent.call(key)))
    slow.start()
    statuses = []
    while slow.is_alive():
        slow.join(timeout=0.4)
        statuses.append(hasty_agent.call(key).status_code)
    running = statuses.count(409)
    assert running > 5
    assert statuses == [409] * running + [200] * (len(statuses) - running)
    assert slow_answers[0].status_code == 200
    assert hasty_agent.call(key).content == slow_answers[0].content
    assert hasty_agent.backend.effect_counts() == {key: 1}


@pytest.mark.parametrize(
    ("tool", "args", "status"),
    [
        ("provision-database", {"region": "ap-southeast-1", "storage_gb": 20}, 201),
        ("debit", {"account": "acct-7", "amount": 250}, 200),
        ("send-webhook", {"url": "https://hooks.example.com", "event": "paid", "payload": {"n": [1]}}, 200),
        ("debit", {"account": "acct-7", "amount": 10**12}, 402),
    ],
)
def test_replay_is_identical(agent, key, tool, args, status):
    """A kept answer comes back with the same status, body bytes and content type, and with the replay mark."""
    first = agent.call(key, tool=tool, args=args)
    again = agent.call(key, tool=tool, args=args)
    assert first.status_code == again.status_code == status
    assert first.content == again.content
    assert first.headers["Content-Type"] == again.headers["Content-Type"]
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"


def test_replay_keeps_bytes_that_json_would_change(agent, key):
    """Spacing, escapes and headers of a handler's own answer are replayed untouched."""
    body = '{ "b":1,\n  "a": "\\u00e9", "big": 9007199254740993 }'
    headers = {"Content-Type": "application/vnd.tool+json; v=2", "X-Tool": "seven"}
    agent.backend.script("debit", "status", by="handler", status=207, body=body, headers=headers)
    first = agent.call(key)
    again = agent.call(key)
    for answer in (first, again):
        assert (answer.status_code, answer.content) == (207, body.encode())
        assert answer.headers["Content-Type"] == headers["Content-Type"]
        assert answer.headers["X-Tool"] == "seven"
    assert again.headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("status", [401, 403, 408, 409, 425, 429, 500, 503])
def test_passing_conditions_are_not_kept(agent, key, status):
    """An answer that says "not now" frees the key: the next request runs the tool."""
    agent.backend.script("debit", "status", by="handler", status=status)
    assert agent.call(key).status_code == status
    after = agent.call(key)
    assert after.status_code == 200
    assert "Idempotent-Replayed" not in after.headers
    assert agent.backend.effect_counts() == {key: 1}


@pytest.mark.parametrize("status", [400, 402, 404, 410, 422])
def test_refusals_of_the_handler_are_kept(agent, key, status):
    """A refusal is how the operation ended; the same key gets it again."""
    agent.backend.script("debit", "status", by="handler", status=status, body={"no": True})
    assert agent.call(key).status_code == status
    again = agent.call(key)
    assert (again.status_code, again.json()) == (status, {"no": True})
    assert again.headers["Idempotent-Replayed"] == "true"
    assert agent.backend.effects() == []


def test_failure_before_the_mutation_frees_the_key(agent, key):
    """A handler that failed before it changed anything says so, and the same key runs again."""
    agent.backend.script("debit", "fail_before")
    failed = agent.call(key)
    assert failed.status_code == 500
    assert failed.json()["type"] == "https://agent-runtime.example/problems/not-applied"
    assert agent.get(f"/operations/{key}").status_code == 404
    assert agent.call(key).status_code == 200
    assert agent.backend.effect_counts() == {key: 1}


def test_half_done_mutation_is_kept_as_an_answer(agent, key):
    """A handler that failed after its effect ends the key with ``partly-applied``; it never runs again."""
    agent.backend.script("debit", "fail_half_way")
    failed = agent.call(key)
    again = agent.call(key)
    assert failed.status_code == 500
    assert failed.headers["Content-Type"] == "application/problem+json"
    assert failed.json()["type"] == "https://agent-runtime.example/problems/partly-applied"
    assert failed.json()["effect"] == "possible"
    assert (again.status_code, again.content) == (500, failed.content)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert agent.backend.effect_counts() == {key: 1}
    assert agent.backend.operation(key)["status"] == 500


def test_requests_without_a_usable_key_are_refused(agent):
    """A tool that honours keys demands exactly one that is short, printable and without spaces."""
    assert agent.call(None).json()["type"].endswith("/key-missing")
    for unusable in ("", "with space", "x" * 256):
        answer = agent.call(unusable)
        assert answer.status_code == 400
        assert answer.json()["type"].endswith("/key-malformed")
    assert agent.backend.effects() == []


def test_key_as_structured_field_is_the_same_key(agent, key):
    """A key in double quotes is the key between them."""
    first = agent.call(key)
    assert agent.call(f'"{key}"').content == first.content


def test_unusable_args_claim_nothing(agent, key):
    """Args that the tool cannot take are refused, and the key stays free for better ones."""
    for body in (b"", b"[]", b'{"account":"a","amount":NaN}', b'{"account":"a","amount":1.5}'):
        answer = agent.call(key, body=body)
        assert (answer.status_code, answer.json()["type"].rpartition("/")[2]) == (400, "invalid-args")
    assert agent.call(key).status_code == 200


def test_same_key_with_another_body_is_refused(agent, key):
    """A key that says nothing about its body stands for the first one; order and spacing do not matter."""
    first = agent.call(key, body=b'{"account":"a","amount":1}')
    same = agent.call(key, body=b'{ "amount": 1, "account": "a" }')
    other = agent.call(key, body=b'{"account":"a","amount":2}')
    assert same.content == first.content
    assert other.status_code == 422
    assert other.json()["type"] == "https://agent-runtime.example/problems/key-reused"
    assert len(agent.backend.effects()) == 1


def test_same_key_with_another_body_is_refused_while_running(agent, key):
    """Another body under a running key is an error, not something to wait for."""
    agent.backend.script("debit", "slow", seconds=0.6)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(agent.call, key)
        _wait_for_state(agent, key, "running")
        other = agent.call(key, args={"account": "acct-7", "amount": 999})
        assert other.status_code == 422
        assert running.result().status_code == 200
    assert len(agent.backend.effects()) == 1


def test_composite_key_accepts_the_hash_of_the_bytes_sent(agent, composite):
    """An args hash over the body's own bytes is proof, however the agent wrote its JSON."""
    body = '{"account":"café","amount":1}'.encode()
    key = composite(body)
    assert agent.call(key, body=body).status_code == 200
    assert agent.call(key, body=body).headers["Idempotent-Replayed"] == "true"


def test_composite_key_accepts_the_hash_of_the_sorted_form(agent, composite, canonical_json):
    """An args hash over sorted, compact JSON is proof, whatever the order and spacing of the body."""
    args = {"amount": 1, "account": "café"}
    key = composite(canonical_json(args))
    assert agent.call(key, args=args).status_code == 200


@pytest.mark.parametrize("label", ["step_003", "flights.step_001", "flights.eu.step_012.v2.r1"])
def test_composite_key_labels_may_hold_dots(agent, composite, canonical_json, label):
    """A label is whatever stands between the two colons; the hash behind it is checked."""
    args = {"account": "a", "amount": 1}
    key = composite(canonical_json(args), label)
    assert agent.call(key, args={"account": "a", "amount": 2}).status_code == 422
    assert agent.call(key, args=args).status_code == 200


def test_composite_key_of_another_body_is_refused(agent, composite, canonical_json):
    """A body whose hash is not the one in the key is refused before anything is claimed."""
    key = composite(canonical_json({"account": "a", "amount": 1}))
    answer = agent.call(key, args={"account": "a", "amount": 2})
    assert answer.status_code == 422
    assert answer.json()["type"] == "https://agent-runtime.example/problems/args-hash-mismatch"
    assert agent.backend.operation(key) == {"state": "absent"}


def test_colons_alone_make_no_composite_key(agent):
    """A caller's own key with two colons is not mistaken for one with an args hash."""
    key = f"invoice:2026:{uuid.uuid4()}"
    assert agent.call(key).status_code == 200
    assert agent.call(key, args={"account": "b", "amount": 9}).json()["type"].endswith("/key-reused")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"X-Caller": "ada"}, {"X-Caller": "bob"}),
        ({"Authorization": "Bearer ada-token"}, {"Authorization": "Bearer bob-token"}),
        ({}, {"X-Caller": "bob"}),
    ],
)
def test_keys_belong_to_their_caller(agent, key, one, two):
    """One caller's key says nothing about another's: both run, neither sees the other's answer."""
    first = agent.call(key, headers=one)
    second = agent.call(key, headers=two)
    assert "Idempotent-Replayed" not in second.headers
    assert first.content != second.content
    assert agent.call(key, headers=one).content == first.content
    assert agent.backend.operation(key, headers={"X-Caller": "carol"}) == {"state": "absent"}
    assert len({effect["caller"] for effect in agent.backend.effects(key=key)}) == 2


def test_keys_belong_to_their_tool(agent, key):
    """The same key at two tools is two operations, and a look-up must then name the tool."""
    webhook = {"url": "https://hooks.example.com", "event": "paid"}
    agent.call(key)
    answer = agent.call(key, tool="send-webhook", args=webhook)
    assert "Idempotent-Replayed" not in answer.headers
    assert agent.get(f"/operations/{key}").status_code == 400
    assert agent.backend.operation(key, tool="send-webhook")["body"] == answer.json()


def test_operation_states(agent, composite, canonical_json):
    """The look-up says absent, running, done; it takes an encoded key and starts nothing."""
    args = {"account": "a/b", "amount": 1}
    key = composite(canonical_json(args), "flights.step_001")
    before = agent.get(f"/operations/{key.replace(':', '%3A')}")
    assert (before.status_code, before.json()) == (404, {"state": "absent"})
    agent.backend.script("debit", "slow", seconds=0.6)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(agent.call, key, args=args)
        _wait_for_state(agent, key, "running")
        assert agent.call(key, args=args).status_code == 409
        answer = running.result()
    assert agent.backend.operation(key) == {"state": "done", "status": 200, "body": answer.json()}
    assert agent.backend.effect_counts() == {key: 1}


def test_twin_without_contract_doubles_effects(agent, key):
    """The legacy tool ignores the key: each request is an effect, and no look-up knows of it."""
    assert agent.call(key, tool="legacy-debit").status_code == 200
    assert "Idempotent-Replayed" not in agent.call(key, tool="legacy-debit").headers
    assert agent.call(None, tool="legacy-debit").status_code == 200
    assert agent.backend.effect_counts() == {key: 2, "": 1}
    assert agent.backend.operation(key) == {"state": "absent"}
    assert agent.backend.balance("acct-7") == 100_000_00 - 3 * 250


def _wait_for_state(agent, key: str, state: str) -> None:
    deadline = time.monotonic() + 5
    while agent.backend.operation(key)["state"] != state:
        assert time.monotonic() < deadline, f"{key} never became {state}"
        time.sleep(0.01)
