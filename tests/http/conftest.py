"""A raw server on loopback, and one way to send through all four kinds of client."""

import asyncio
import importlib
import socket
import threading
from contextlib import contextmanager

import pytest

from agent_runtime._http import AsyncHttpSender, HttpSender
from agent_runtime._model import Request

# Time in which a test's server gives up waiting for a client; no test comes near it.
PATIENCE = 10


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class RawServer:
    """Answers each connection by a script: a function of the socket, run in a thread."""

    def __init__(self, script):
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests = []
        self.connections = 0
        self.client_left = threading.Event()
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while not self.stop.is_set():
            try:
                conn, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            conn.settimeout(PATIENCE)
            with conn:
                try:
                    self._script(self, conn)
                except (OSError, EOFError):
                    self.client_left.set()

    def read_request(self, conn):
        """Read one whole request and keep its bytes."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more(conn)
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
        )
        while len(body) < length:
            body += self._more(conn)
        self.requests.append((head, body))

    def _more(self, conn):
        data = conn.recv(65536)
        if not data:
            raise EOFError
        return data

    def drip(self, conn, data, every=0.02):
        """Send one byte at a time until the client leaves or the data ends."""
        for byte in data:
            if self.stop.wait(every):
                return
            conn.sendall(bytes([byte]))

    def wait_for_close(self, conn):
        """Wait until the client has closed its side."""
        while conn.recv(65536):
            pass
        self.client_left.set()

    def close(self):
        self.stop.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)


@pytest.fixture
def serve():
    """Start a raw server with a script; it ends with the test."""
    servers = []

    def start(script):
        server = RawServer(script)
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def reply(serve):
    """Start a server that reads each request and answers with fixed bytes, closing the connection after each."""

    def start(data):
        def script(server, conn):
            server.read_request(conn)
            conn.sendall(data)

        return serve(script)

    return start


class Loop:
    """Sends through one kind of client: blocking or async, of httpx or httpx2, our own or the user's."""

    def __init__(self, name):
        self.name = name
        self.is_async = "async" in name
        self.library = importlib.import_module("httpx2" if "httpx2" in name else "httpx")

    def client(self, handler=None, **settings):
        """Make a user's client, over a mock transport if there is a handler."""
        if handler is not None:
            settings["transport"] = self.library.MockTransport(handler)
        # Loading certificates takes most of a test's time, and no server here has one.
        settings = {"trust_env": False, "verify": False} | settings
        return (self.library.AsyncClient if self.is_async else self.library.Client)(**settings)

    def send(self, url, *requests, client=None, own=False, method="POST", body=b"{}", headers=(), extra=(), **limits):
        """Send one request (or several, over one sender) and return the result, or the list of them."""
        wanted = requests or (Request(method=method, url=url, body=body, headers=headers),)
        limits = {"connect": 5, "read": 5, "deadline": 5, "body_limit": 1_000_000, "extra_headers": extra} | limits
        if client is None and not (own and self.library.__name__ == "httpx"):
            client = self.client()
        results = (
            asyncio.run(self._async(client, wanted, limits)) if self.is_async else self._sync(client, wanted, limits)
        )
        return results if requests else results[0]

    def _sync(self, client, wanted, limits):
        sender = HttpSender(client)
        try:
            return [sender.send(request, **limits) for request in wanted]
        finally:
            sender.close()
            if client is not None:
                client.close()

    async def _async(self, client, wanted, limits):
        sender = AsyncHttpSender(client)
        try:
            return [await sender.send(request, **limits) for request in wanted]
        finally:
            await sender.close()
            if client is not None:
                await client.aclose()


@pytest.fixture(
    params=[
        "sync",
        "async",
        *(pytest.param(name, marks=pytest.mark.httpx2) for name in ("sync-httpx2", "async-httpx2")),
    ]
)
def loop(request):
    """Each kind of client in turn."""
    return Loop(request.param)


@pytest.fixture
def capture():
    """Collect everything that is logged, at every level and from every logger."""
    import logging

    class Keep(logging.Handler):
        def __init__(self):
            super().__init__(level=0)
            self.lines = []

        def emit(self, record):
            self.lines.append(f"{record.name} {record.getMessage()} {record.args!r} {record.exc_info}")

    @contextmanager
    def capturing():
        root, keep = logging.getLogger(), Keep()
        before = root.level
        root.addHandler(keep)
        root.setLevel(logging.DEBUG)
        try:
            yield keep.lines
        finally:
            root.setLevel(before)
            root.removeHandler(keep)

    return capturing
