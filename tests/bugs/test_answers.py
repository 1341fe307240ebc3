"""Statuses, bodies, redirects, drips: what an answer is taken for (A26 to A29)."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from agent_runtime import ResultInvalid, RetryPolicy, StepFailed, Timeouts, Tool, ToolContract
from tests.bugs.harness import does, keyed, says, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_runtime.testing import VirtualClock
    from tests.bugs.harness import Api

Put = "Callable[..., Target]"
PATIENCE = 20
"""Seconds after which a test gives up; none that passes comes near."""


@pytest.mark.parametrize("contract", [keyed(), ToolContract()], ids=["keyed", "keyless"])
def test_A26_a_refusal_is_one_request_and_keeps_what_was_said(api: Api, target: Put, contract: ToolContract) -> None:
    """A client error on a first send: failed, effect none, status and body kept."""
    statuses = [400, 403, 404, 405, 410, 412, 415, 422, 451]
    there = target(*(says(status, {"detail": "no such account"}) for status in statuses))
    with api.worker(tool(contract=contract)).open() as plan:
        for status in statuses:
            with pytest.raises(StepFailed, match="no such account") as caught:
                plan.call("pay", {"n": 1})
            outcome = caught.value.outcome
            assert (outcome.effect, outcome.http_status, outcome.error["status"]) == ("none", status, status)
    assert there.sends == len(there.keys) == len(statuses)


@pytest.mark.parametrize("contract", [keyed(), ToolContract()], ids=["keyed", "keyless"])
def test_A26_not_applied_is_tried_again(api: Api, target: Put, clock: VirtualClock, contract: ToolContract) -> None:
    """Statuses that say "not applied" are tried again under the same key, also where no key is honoured."""
    there = target(does())
    with api.worker(tool(contract=contract), clock=clock).open() as plan:
        for count, status in enumerate([408, 421, 425, 429], 1):
            there.script = [says(status), does()]
            plan.call("pay", {"n": 1})
            assert (there.sends, len(there.keys), len(there.effects)) == (2 * count, count, count), status


@pytest.mark.parametrize("status", [502, 503, 504])
def test_A26_a_gateways_error_is_a_lost_answer(api: Api, target: Put, clock: VirtualClock, status: int) -> None:
    """With keys honoured such a request is sent again under its key; to the end of the budget it stays unknown."""
    there = target(says(status), does())
    with api.worker(tool(), clock=clock).open() as plan:
        plan.call("pay", {"n": 1})
        there.script = [says(status)]
        outcome = plan.try_call("pay", {"n": 2})
    assert (outcome.status, outcome.reason) == ("unknown", "lost_answer")
    assert (there.sends, len(there.keys)) == (2 + RetryPolicy().attempts, 2)


SERVER_ERRORS = [(keyed(), [500, 501, 505, 599]), (ToolContract(), [500, 501, 502, 503, 504])]


@pytest.mark.parametrize(("contract", "statuses"), SERVER_ERRORS, ids=["keyed", "keyless"])
def test_A26_a_server_error_proves_nothing(
    api: Api, target: Put, clock: VirtualClock, contract: ToolContract, statuses: list[int]
) -> None:
    """Unknown after one request; without keys that is so for every 5xx. The public reports count 501 among refusals;
    nothing that a server says with a 5xx proves that it did nothing, so here it is unknown like a 500."""
    there = target(*(says(status) for status in statuses))
    with api.worker(tool(contract=contract), clock=clock).open() as plan:
        for branch, status in plan.each(statuses):
            outcome = branch.try_call("pay", {"n": 1})
            assert (outcome.status, outcome.reason) == ("unknown", "server_error"), status
    assert there.sends == len(statuses)


def test_A26_a_declared_not_applied_is_tried_again_and_never_unknown(
    api: Api, target: Put, clock: VirtualClock
) -> None:
    """Where the contract says that its 500 means "not performed", the step waits as ready once the budget is spent."""
    there = target(says(500))
    with api.worker(tool(contract=keyed(on_5xx="not_applied")), clock=clock).open() as plan:
        outcome = plan.try_call("pay", {"n": 1})
        assert (outcome.status, outcome.state) == ("pending", "ready")
        assert (there.sends, len(there.keys)) == (RetryPolicy().attempts, 1)
        there.script = [does()]
        clock.advance(60)
        assert plan.call("pay", {"n": 1}).key == outcome.key


HTML = b"<!doctype html><title>Bad gateway</title>"


NO_JSON = [
    HTML,
    b"unsupported model",
    b" " * 4096,
    b'{"id":',
    b'{"id": NaN}',
    b'{"id": 1e999}',
    b"\xff\xfe{}",
    b"[" * 3000,
]


@pytest.mark.parametrize("kind", ["application/json", "text/html"])
def test_A27_a_success_without_the_promised_json(api: Api, target: Put, kind: str) -> None:
    """The tool took it, its body is no JSON: succeeded with an unreadable result, never sent again, raw bytes kept."""
    there = target(*(says(200, content=body, headers={"Content-Type": kind}) for body in NO_JSON))
    for source in ("sent", "ledger"):
        with api.worker(tool()).open() as plan:
            for body in NO_JSON:
                with pytest.raises(ResultInvalid) as caught:
                    plan.call("pay", {"n": 1})
                outcome = caught.value.outcome
                assert (outcome.status, outcome.result_state, outcome.http_status) == ("succeeded", "unreadable", 200)
                assert (caught.value.raw, outcome.value, outcome.source) == (body, None, source)
    assert there.sends == len(NO_JSON)


JSON = [
    (204, b"", "application/json", None),
    (200, b"", "application/json", None),
    (200, b'{"id":"x"}', "text/plain", {"id": "x"}),
    (200, b'{"id":"x"}', "text/html", {"id": "x"}),
    (201, b"null", "", None),
    (200, b' {"big": 18446744073709551617} ', "application/json", {"big": 2**64 + 1}),
]


def test_A27_content_types_are_hints(api: Api, target: Put) -> None:
    """What parses as JSON is JSON, no body is None; the replayed value is the live one."""
    there = target(*(says(status, content=body, headers={"Content-Type": kind}) for status, body, kind, _ in JSON))
    for source in ("sent", "ledger"):
        with api.worker(tool()).open() as plan:
            results = [plan.call("pay", {"n": 1}) for _ in JSON]
        assert [(one.value, one.source) for one in results] == [(value, source) for *_, value in JSON]
    assert there.sends == len(JSON)


def test_A27_a_body_beyond_the_limit(api: Api, target: Put) -> None:
    """A success larger than the limit is a success whose result is unreadable; its beginning is kept."""
    there = target(says(200, content=json.dumps({"id": "x" * 5000}).encode()))
    with api.worker(tool(), body_limit=1000).open() as plan, pytest.raises(ResultInvalid) as caught:
        plan.call("pay", {"n": 1})
    assert caught.value.result_state == "unreadable"
    assert len(caught.value.raw) == 1000
    assert there.sends == 1


def test_A27_a_gateways_page_acts_like_its_status(api: Api, target: Put, clock: VirtualClock) -> None:
    """A 502 with an HTML page is a 502, and the page's beginning is kept where nothing better comes."""
    there = target(says(502, content=HTML), does())
    with api.worker(tool(), clock=clock).open() as plan:
        plan.call("pay", {"n": 1})
        there.script = [says(502, content=HTML)]
        outcome = plan.try_call("pay", {"n": 2})
    assert outcome.status == "unknown"
    assert outcome.error["snippet"] == HTML.decode()


@pytest.mark.parametrize("status", [301, 302])
def test_A28_a_write_is_never_turned_into_a_get(api: Api, target: Put, status: int) -> None:
    """301 and 302 are not followed for a write: unknown, and the page is not asked for."""
    page = target(says(200, {"page": True}), at="https://tools.test/page")
    there = target(says(status, headers={"Location": "/page"}))
    with api.worker(tool()).open() as plan:
        outcome = plan.try_call("pay", {"n": 1})
    assert (outcome.status, outcome.reason) == ("unknown", "redirected")
    assert (there.sends, page.sends) == (1, 0)


def test_A28_a_303_gives_its_result_by_get(api: Api, target: Put) -> None:
    """The page of a 303 is the result; it is asked for by GET, without body and key."""
    page = target(says(200, {"id": "x"}), at="https://tools.test/page")
    there = target(says(303, headers={"Location": "/page"}))
    with api.worker(tool()).open() as plan:
        assert plan.call("pay", {"n": 1}).value == {"id": "x"}
    (got,) = page.requests
    assert (got.method, got.content, "Idempotency-Key" in got.headers) == ("GET", b"", False)
    assert there.sends == 1


@pytest.mark.parametrize("status", [307, 308])
def test_A28_a_307_keeps_method_body_and_key(api: Api, target: Put, status: int) -> None:
    """On the same host 307 and 308 are followed with everything as it was."""
    moved = target(does(), at="https://tools.test/moved")
    there = target(says(status, headers={"Location": "/moved"}))
    with api.worker(tool()).open() as plan:
        plan.call("pay", {"n": 1})
    assert {(one.method, one.content) for one in there.requests + moved.requests} == {("POST", b'{"n":1}')}
    assert (there.keys, moved.sends) == (moved.keys, 1)


ELSEWHERE = ["https://evil.test/", "//evil.test/", "http://tools.test/pay", "https://tools.test:8443/"]


@pytest.mark.parametrize("status", [302, 303, 307, 308])
def test_A28_another_host_is_not_followed(api: Api, target: Put, status: int) -> None:
    """A redirect to another origin gets nothing at all; no route of this test would take it."""
    there = target(*(says(status, headers={"Location": to}) for to in ELSEWHERE))
    with api.worker(tool()).open() as plan:
        for branch, to in plan.each(ELSEWHERE):
            assert branch.try_call("pay", {"n": 1}).status == "unknown", to
    assert there.sends == len(ELSEWHERE)


@pytest.mark.parametrize("status", [303, 307])
def test_A28_a_loop_ends(api: Api, target: Put, status: int) -> None:
    """A redirect to itself is given up after a few turns, and is unknown."""
    there = target(says(status, headers={"Location": "/pay"}))
    with api.worker(tool()).open() as plan:
        assert plan.try_call("pay", {"n": 1}).status == "unknown"
    assert there.sends <= 6


@contextmanager
def raw(script: Callable[[socket.socket, threading.Event], None]) -> Iterator[tuple[str, threading.Event]]:
    """Serve one connection by a function of its socket; give the URL and an event set once the client has left."""
    listener = socket.create_server(("127.0.0.1", 0))
    left, over = threading.Event(), threading.Event()

    def serve() -> None:
        conn, _ = listener.accept()
        with conn:
            conn.settimeout(PATIENCE)
            conn.recv(65536)
            try:
                script(conn, over)
                left.set() if conn.recv(65536) == b"" else None
            except OSError:
                left.set()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/pay", left
    finally:
        over.set()
        thread.join(PATIENCE)
        listener.close()


def drip(head: bytes) -> Callable[[socket.socket, threading.Event], None]:
    """Send the head at once, then a byte now and then without end."""

    def script(conn: socket.socket, over: threading.Event) -> None:
        conn.sendall(head)
        while not over.wait(0.02):
            conn.sendall(b"x")

    return script


def test_A29_a_drip_ends_with_the_deadline(api: Api) -> None:
    """A body that comes byte by byte outlives no deadline. Its 2xx was seen, so the step succeeded with a result that
    is unreadable, rather than unknown; the connection is closed."""
    with raw(drip(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")) as (url, left):
        contract = keyed(timeouts=Timeouts(read=1, attempt=0.4))
        began = time.monotonic()
        with api.worker(Tool("pay", url=url, contract=contract)).open() as plan:
            outcome = plan.try_call("pay", {"n": 1})
        took = time.monotonic() - began
        assert left.wait(PATIENCE)
    assert (outcome.status, outcome.result_state) == ("succeeded", "unreadable")
    assert took < 5


def test_A29_a_drip_of_headers_is_unknown(api: Api) -> None:
    """Headers that never end tell nothing: unknown after the deadline, in bounded time."""
    with raw(drip(b"HTTP/1.1 200 OK\r\nX-Slow: ")) as (url, left):
        contract = ToolContract(timeouts=Timeouts(read=1, attempt=0.4))
        began = time.monotonic()
        with api.worker(Tool("pay", url=url, contract=contract)).open() as plan:
            outcome = plan.try_call("pay", {"n": 1})
        took = time.monotonic() - began
        assert left.wait(PATIENCE)
    assert (outcome.status, outcome.reason) == ("unknown", "lost_answer")
    assert took < 5


def test_A27_a_connection_that_breaks_in_the_body(api: Api) -> None:
    """A 200 whose body ends before its length is a success with an unreadable result, never a clean one."""

    def script(conn: socket.socket, over: threading.Event) -> None:
        conn.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"id":"x"}')
        conn.shutdown(socket.SHUT_WR)

    with raw(script) as (url, _), api.worker(Tool("pay", url=url, contract=keyed())).open() as plan:
        outcome = plan.try_call("pay", {"n": 1})
    assert (outcome.status, outcome.result_state, outcome.raw) == ("succeeded", "unreadable", b'{"id":"x"}')
