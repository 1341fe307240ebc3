"""Requests that no status line came back for."""

import asyncio
import socket
import threading
import time
from contextlib import suppress

import pytest

from agent_runtime._http import AsyncHttpSender, HttpSender
from agent_runtime._http._deadline import DeadlineExceeded, guard, until
from agent_runtime._http._exchange import Exchange
from agent_runtime._model import BodyState, Request, SendFailure

OK = b"HTTP/1.1 200 OK\r\n"
URL = "http://tool.test/a?token=CANARY"


def raising(loop, exc):
    def handler(request):
        raise exc

    return loop.client(handler)


@pytest.mark.parametrize("name", ["ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "ProxyError"])
def test_A20_not_sent(loop, name):
    """Errors from before the first byte are certainly not sent."""
    failure = loop.send(URL, client=raising(loop, getattr(loop.library, name)("x")))
    assert (failure.maybe_sent, failure.error) == (False, name)


@pytest.mark.parametrize(
    "name",
    [
        "WriteTimeout",
        "WriteError",
        "ReadTimeout",
        "ReadError",
        "CloseError",
        "RemoteProtocolError",
        "LocalProtocolError",
        "NetworkError",
        "TransportError",
        "DecodingError",
        "TooManyRedirects",
        "InvalidURL",
    ],
)
def test_A20_maybe_sent(loop, name):
    """All other errors of the library may have been sent."""
    failure = loop.send(URL, client=raising(loop, getattr(loop.library, name)("x")))
    assert (failure.maybe_sent, failure.error) == (True, name)


@pytest.mark.parametrize("exc", [RuntimeError("CANARY"), OSError("CANARY"), TimeoutError("CANARY")])
def test_A20_an_unknown_exception_may_have_been_sent(loop, exc):
    """What comes from elsewhere (a hook, a transport of the user's) may have been sent; its text is not kept."""
    failure = loop.send(URL, client=raising(loop, exc))
    assert failure == SendFailure(maybe_sent=True, error=type(exc).__name__)


def test_A20_nobody_listens(loop):
    """A refused connection is certainly not sent."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    failure = loop.send(f"http://127.0.0.1:{port}/")
    assert (failure.maybe_sent, failure.error) == (False, "ConnectError")


@pytest.mark.parametrize(
    "data",
    [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000],
)
def test_A20_no_status_line(loop, reply, data):
    """A connection that ends, or talks nonsense, before its status line is complete may have been sent."""
    failure = loop.send(reply(data).url)
    assert failure.maybe_sent
    assert failure.error in {"RemoteProtocolError", "ReadError"}


def test_A20_a_reset_connection(loop, serve):
    """A reset after the request was read may have been sent."""

    def script(server, conn):
        server.read_request(conn)
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    failure = loop.send(serve(script).url)
    assert (failure.maybe_sent, failure.error) == (True, "ReadError")


def test_A20_a_reset_while_the_body_goes_out(loop, serve):
    """A reset in the middle of a long body may have been sent."""

    def script(server, conn):
        conn.recv(1000)
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    failure = loop.send(serve(script).url, body=b"x" * 20_000_000)
    assert failure.maybe_sent


def test_an_early_answer_to_a_long_body_is_an_answer(loop, serve):
    """A server that refuses before it read the whole body is heard."""

    def script(server, conn):
        conn.recv(1000)
        conn.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        conn.shutdown(socket.SHUT_WR)
        server.wait_for_close(conn)

    assert loop.send(serve(script).url, body=b"x" * 1_000_000).status == 413


def test_A20_silence_ends_by_the_read_timeout(loop, serve):
    """A server that reads and says nothing ends the send by the read timeout, and the connection is closed."""

    def script(server, conn):
        server.read_request(conn)
        server.wait_for_close(conn)

    server = serve(script)
    failure = loop.send(server.url, read=0.1)
    assert (failure.maybe_sent, failure.error) == (True, "ReadTimeout")
    assert server.client_left.wait(5)


def test_a_refused_tls_handshake_is_not_sent(loop, serve):
    """A server that does not speak TLS gets nothing of the request."""

    def script(server, conn):
        conn.recv(1000)
        conn.sendall(b"HTTP/1.1 400 Bad\r\n\r\n")

    failure = loop.send(serve(script).url.replace("http:", "https:"))
    assert (failure.maybe_sent, failure.error) == (False, "ConnectError")


def test_a_proxy_that_refuses_the_tunnel_is_not_sent(loop, serve):
    """A proxy's refusal of the tunnel is not the tool's answer: certainly not sent."""

    def script(server, conn):
        server.read_request(conn)
        conn.sendall(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n")

    server = serve(script)
    failure = loop.send("https://tool.test/", client=loop.client(proxy=server.url))
    assert server.requests[0][0].startswith(b"CONNECT tool.test:443")
    assert (failure.maybe_sent, failure.error) == (False, "ProxyError")


def test_A29_a_proxy_that_never_opens_the_tunnel(loop, serve):
    """The deadline during a proxy's CONNECT ends as not sent: the request itself was not begun."""

    def script(server, conn):
        server.read_request(conn)
        server.drip(conn, OK * 1000)

    client = loop.client(proxy=serve(script).url)
    failure = loop.send("https://tool.test/", client=client, deadline=0.15)
    assert failure == SendFailure(maybe_sent=False, error="DeadlineExceeded")


# Bytes that a server drips one by one, each well within the read timeout.
DRIPS = {
    "status line": b"HTTP/1.1 200 OK" + b"x" * 1000,
    "headers": OK + b"X-Slow: " + b"x" * 1000,
    "informational": b"HTTP/1.1 103 Early\r\n\r\n" * 100,
}


@pytest.mark.parametrize("drip", DRIPS)
def test_A29_headers_that_drip_end_at_the_deadline(loop, serve, drip):
    """A server that sends its head byte by byte, each in time, is left at the deadline, and the connection closed."""

    def script(server, conn):
        server.read_request(conn)
        server.drip(conn, DRIPS[drip])

    server = serve(script)
    began = time.monotonic()
    failure = loop.send(server.url, read=1, deadline=0.15)
    assert failure == SendFailure(maybe_sent=True, error="DeadlineExceeded")
    assert 0.1 <= time.monotonic() - began < 1
    assert server.client_left.wait(5)


@pytest.mark.parametrize("users", [False, True])
def test_A29_a_body_that_drips_ends_at_the_deadline(loop, serve, users):
    """A body that drips is left at the deadline: the answer was seen, its body is cut, the connection closed."""

    def script(server, conn):
        server.read_request(conn)
        conn.sendall(OK + b"Content-Length: 1000\r\n\r\n")
        server.drip(conn, b"x" * 1000)

    server = serve(script)
    began = time.monotonic()
    answer = loop.send(server.url, read=1, deadline=0.15, own=not users)
    assert 0.1 <= time.monotonic() - began < 1
    assert (answer.status, answer.body_state) == (200, BodyState.CUT)
    assert 1 <= len(answer.body) < 1000
    assert server.client_left.wait(5)


def test_A29_a_drip_on_a_used_connection(loop, serve):
    """The deadline holds on a pooled connection too; the whole drip would last 20 s."""

    def script(server, conn):
        server.read_request(conn)
        conn.sendall(OK + b"Content-Length: 0\r\n\r\n")
        server.read_request(conn)
        server.drip(conn, DRIPS["headers"])

    server = serve(script)
    request = Request(method="POST", url=server.url)
    began = time.monotonic()
    first, second = loop.send("", request, request, read=1, deadline=0.5, own=True)
    assert first.status == 200
    assert second == SendFailure(maybe_sent=True, error="DeadlineExceeded")
    assert time.monotonic() - began < 5
    assert server.connections == 1


def test_A29_a_receiver_that_takes_the_body_by_drips(loop, serve):
    """A server that reads a long body slowly is left at the deadline."""

    def script(server, conn):
        while not server.stop.wait(0.02):
            if not conn.recv(100):
                server.client_left.set()
                return

    server = serve(script)
    failure = loop.send(server.url, body=b"x" * 20_000_000, read=1, deadline=0.5)
    assert failure == SendFailure(maybe_sent=True, error="DeadlineExceeded")


def test_A29_a_drip_of_a_mock_transport(loop):
    """A stream that is no socket is left at the deadline between two chunks."""
    release = threading.Event()

    class Drip(loop.library.SyncByteStream, loop.library.AsyncByteStream):
        def __iter__(self):
            while not release.wait(0.02):
                yield b"x"

        async def __aiter__(self):
            while True:
                await asyncio.sleep(0.02)
                yield b"x"

    client = loop.client(lambda request: loop.library.Response(200, stream=Drip()))
    answer = loop.send(URL, client=client, deadline=0.2)
    assert (answer.status, answer.body_state) == (200, BodyState.CUT)
    assert answer.body


def test_a_connection_from_before_is_guarded_from_its_first_answer_on(serve):
    """A connection that the user's client opened by itself is guarded while its body is read."""
    import httpx

    def script(server, conn):
        server.read_request(conn)
        conn.sendall(OK + b"Content-Length: 0\r\n\r\n")
        server.read_request(conn)
        conn.sendall(OK + b"Content-Length: 1000\r\n\r\n")
        server.drip(conn, b"x" * 1000)

    server = serve(script)
    with httpx.Client(trust_env=False) as client:
        client.get(server.url)
        answer = HttpSender(client).send(
            Request(method="POST", url=server.url), connect=5, read=5, deadline=0.3, body_limit=10_000
        )
    assert answer.body_state is BodyState.CUT


def test_a_wait_for_the_pool_is_not_sent(serve):
    """A request that finds no free connection in the user's pool is certainly not sent."""
    import httpx

    def script(server, conn):
        server.read_request(conn)
        conn.sendall(OK + b"Content-Length: 10\r\n\r\n")
        server.wait_for_close(conn)

    server = serve(script)
    with (
        httpx.Client(trust_env=False, limits=httpx.Limits(max_connections=1)) as client,
        client.stream("GET", server.url),
    ):
        failure = HttpSender(client).send(
            Request(method="POST", url=server.url), connect=5, read=5, deadline=0.2, body_limit=10
        )
    assert (failure.maybe_sent, failure.error) == (False, "PoolTimeout")
    assert len(server.requests) == 1


@pytest.mark.parametrize("deadline", [0, -1])
def test_a_deadline_that_has_passed_sends_nothing(loop, serve, deadline):
    """With no time left nothing connects: certainly not sent."""
    server = serve(lambda server, conn: None)
    assert loop.send(server.url, deadline=deadline) == SendFailure(maybe_sent=False, error="DeadlineExceeded")
    assert server.connections == 0


def test_a_users_own_request_on_a_guarded_connection(serve):
    """Outside of our sends a guarded connection has no deadline, and the user's own timeouts hold."""
    import httpx

    def script(server, conn):
        for _ in range(2):
            server.read_request(conn)
            conn.sendall(OK + b"Content-Length: 2\r\n\r\n{}")

    server = serve(script)
    with httpx.Client(trust_env=False, verify=False) as client:
        HttpSender(client).send(Request(method="POST", url=server.url), connect=5, read=5, deadline=5, body_limit=10)
        assert client.post(server.url, timeout=None).json() == {}
    assert server.connections == 1


def test_streams_that_cannot_be_guarded_are_left_alone():
    """A stream of a fixed layout, or none at all, is passed over; a guarded one is not wrapped again."""

    class Fixed:
        __slots__ = ("sock",)

        def read(self, max_bytes, timeout=None):
            return b""

    class Open:
        def read(self, max_bytes, timeout=None):
            return timeout

    fixed, opened = Fixed(), Open()
    for stream in (None, fixed, opened, opened):
        guard(stream)
    assert type(fixed) is Fixed
    assert type(opened).__mro__[1] is Open
    assert opened.read(1, timeout=None) is None
    with until(time.monotonic() + 100):
        assert 99 < opened.read(1, timeout=None) <= 100
        assert opened.read(1, timeout=2) == 2
    with until(time.monotonic() - 1), pytest.raises(DeadlineExceeded):
        opened.read(1)


def test_a_closed_client_is_told(loop):
    """A user's client that is closed sends nothing, and cannot be told from worse: it may have been sent."""
    client = loop.client(lambda request: None)
    asyncio.run(client.aclose()) if loop.is_async else client.close()
    assert loop.send(URL, client=client).error == "RuntimeError"


# What httpcore reports of a connection, fed to the exchange as no server here can bring it about.


@pytest.fixture
def exchange():
    return Exchange(Request(method="POST", url="http://tool.test/"), extra_headers=(), deadline=5, body_limit=100)


class Message:
    def __init__(self, method):
        self.method = method


def started(exchange, method=b"POST", protocol="http11"):
    exchange.on_event(f"{protocol}.send_request_headers.started", {"request": Message(method)})


def test_A20_bytes_that_went_out_outrank_a_connect_error(exchange):
    """A transport that sent, lost the answer, retried and then could not connect has perhaps sent."""
    import httpx

    started(exchange)
    exchange.on_event("http11.send_request_headers.complete", {"return_value": None})
    assert exchange.failed(httpx.ConnectError("x")).maybe_sent


def test_A20_a_protocol_error_before_the_first_byte(exchange):
    """Headers that h11 refused were never written."""
    import httpx

    started(exchange)
    exchange.on_event("http11.send_request_headers.failed", {"exception": httpx.LocalProtocolError("x")})
    assert not exchange.failed(httpx.LocalProtocolError("x")).maybe_sent


def test_A20_a_protocol_error_after_the_first_byte(exchange):
    """A protocol error of our side while the answer is awaited (HTTP/2) may have been sent."""
    import httpx

    started(exchange, protocol="http2")
    exchange.on_event("http2.send_request_headers.complete", {"return_value": None})
    assert exchange.failed(httpx.LocalProtocolError("x")).maybe_sent


def test_A20_a_write_that_failed_may_have_been_sent(exchange):
    """Headers whose write failed may have gone out in part."""
    import httpx

    started(exchange)
    exchange.on_event("http11.send_request_headers.failed", {"exception": httpx.WriteError("x")})
    assert exchange.failed(httpx.ConnectError("x")).maybe_sent


def test_A29_a_deadline_while_connecting_is_not_sent():
    """A deadline that httpcore reports no byte before, only a connection being made, is certainly not sent."""
    exchange = Exchange(Request(method="POST", url="http://tool.test/"), extra_headers=(), deadline=0, body_limit=1)
    assert exchange.failed(TimeoutError()).maybe_sent
    exchange.on_event("connection.connect_tcp.started", {})
    assert exchange.failed(TimeoutError()) == SendFailure(maybe_sent=False, error="DeadlineExceeded")
    started(exchange)
    exchange.on_event("http11.send_request_headers.failed", {"exception": TimeoutError()})
    assert exchange.failed(TimeoutError()) == SendFailure(maybe_sent=True, error="DeadlineExceeded")


def test_short_header_values_are_not_taken_out_of_texts(exchange):
    """Only values that could be secrets are taken out of an error's text."""
    import httpx

    exchange = Exchange(
        Request(method="POST", url="http://tool.test/", headers=(("A", "no"), ("B", "Basic CANARY"))),
        extra_headers=(),
        deadline=5,
        body_limit=1,
    )
    assert exchange.failed(httpx.ReadError("no, CANARY")).detail == "no, (value)"


@pytest.mark.parametrize("value", [(b"HTTP/1.1", 409, b"Busy", [(b"A", b"1")]), (409, [(b"A", b"1")])])
def test_a_head_that_httpcore_saw_is_an_answer(exchange, value):
    """Whatever is raised after the head was read, over HTTP/1.1 or HTTP/2, it is an answer."""
    started(exchange)
    exchange.on_event("http11.receive_response_headers.complete", {"return_value": value})
    answer = exchange.failed(ValueError("x"))
    assert (answer.status, answer.headers, answer.body_state) == (409, (("A", "1"),), BodyState.CUT)


def test_a_proxys_head_is_no_answer(exchange):
    """What a proxy answers to CONNECT says nothing of the tool."""
    started(exchange, method=b"CONNECT")
    exchange.on_event("http11.send_request_headers.complete", {"return_value": None})
    exchange.on_event("http11.receive_response_headers.complete", {"return_value": (b"", 200, b"", [])})
    exchange.on_event("http11.something.new", {})
    assert isinstance(exchange.failed(ValueError("x")), SendFailure)


def test_a_report_of_another_shape_is_ignored(exchange):
    """A report that a later httpcore may shape otherwise gives no answer."""
    started(exchange)
    exchange.on_event("http11.receive_response_headers.complete", {"return_value": "new"})
    assert isinstance(exchange.failed(ValueError("x")), SendFailure)


# Interruptions


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_A21_an_interruption_passes_and_closes_the_connection(serve, kind):
    """An interruption during a blocking send leaves as it is, at once, and closes the connection."""

    def script(server, conn):
        server.read_request(conn)
        server.wait_for_close(conn)

    server = serve(script)

    import httpx

    class Transport(httpx.HTTPTransport):
        def handle_request(self, request):
            inner = request.extensions["trace"]

            def trace(name, info):
                inner(name, info)
                if name == "http11.receive_response_headers.started":
                    raise kind

            request.extensions["trace"] = trace
            return super().handle_request(request)

    with httpx.Client(transport=Transport(), trust_env=False) as client, pytest.raises(kind):
        HttpSender(client).send(Request(method="POST", url=server.url), connect=5, read=5, deadline=5, body_limit=10)
    assert server.client_left.wait(5)
    assert len(server.requests) == 1


@pytest.mark.parametrize("data", [b"", OK + b"Content-Length: 10\r\n\r\nabc"])
def test_A21_a_cancelled_send_passes_and_closes_the_connection(serve, data):
    """Cancellation during an async send, or its body, leaves as CancelledError and closes the connection."""
    reached = threading.Event()

    def script(server, conn):
        server.read_request(conn)
        conn.sendall(data)
        reached.set()
        server.wait_for_close(conn)

    server = serve(script)

    async def main():
        sender = AsyncHttpSender()
        task = asyncio.ensure_future(
            sender.send(Request(method="POST", url=server.url), connect=5, read=5, deadline=5, body_limit=10)
        )
        await asyncio.get_running_loop().run_in_executor(None, reached.wait)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        closed = await asyncio.get_running_loop().run_in_executor(None, server.client_left.wait, 5)
        await sender.close()
        return closed

    assert asyncio.run(main())
