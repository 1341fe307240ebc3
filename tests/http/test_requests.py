"""What goes out, byte for byte."""

import threading

import pytest

from agent_runtime._http import AsyncHttpSender, HttpSender
from agent_runtime._model import Request
from agent_runtime.errors import ConfigError

DONE = b"HTTP/1.1 200 OK\r\nSet-Cookie: sid=CANARY; Path=/\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"


def test_headers_body_and_target_go_out_as_frozen(loop, reply):
    """The request's own bytes go out: target, header lines in order and body, however the user set up the client."""
    server = reply(DONE)
    client = loop.client(
        headers={"X-Default": "1", "Content-Type": "text/plain"},
        params={"q": "1"},
        base_url="http://elsewhere.test/base",
        cookies={"c": "1"},
        auth=("user", "pw"),
        timeout=0.000001,
    )
    headers = (("Content-Type", "application/json"), ("Idempotency-Key", "k1"), ("X-Two", "a"), ("x-two", "b"))
    body = b'{"a":"\xc3\xa9"}'
    extra = (("Authorization", "Bearer t"), ("X-TWO", "c"))
    loop.send(server.url + "/a/../b?x='1'&y=%2f", client=client, headers=headers, body=body, extra=extra)
    head, sent = server.requests[0]
    assert sent == body
    assert head.split(b"\r\n") == [
        b"POST /a/../b?x='1'&y=%2f HTTP/1.1",
        b"Host: " + server.url[7:].encode(),
        b"Content-Type: application/json",
        b"Idempotency-Key: k1",
        b"Authorization: Bearer t",
        b"X-TWO: c",
        b"User-Agent: agent-runtime",
        b"Accept-Encoding: identity",
        b"Content-Length: 10",
    ]


def test_frozen_user_agent_and_encoding_stay(loop, reply):
    """Headers that the request names are not overwritten by ours."""
    server = reply(DONE)
    loop.send(server.url, method="GET", body=b"", headers=(("user-agent", "me"), ("accept-encoding", "gzip")))
    head = server.requests[0][0].split(b"\r\n")
    assert head[0] == b"GET / HTTP/1.1"
    assert head[2:] == [b"user-agent: me", b"accept-encoding: gzip"]


@pytest.mark.parametrize("target", ["", "?a=1", "/", "/a//b?", "/a%2Fb;c=d/~e?f=g+h%20i|", '/{"a"}'])
def test_targets_are_not_tidied_up(loop, reply, target):
    """Path and query go out as they stand, also where httpx would change them."""
    server = reply(DONE)
    loop.send(server.url + target)
    expected = target if target.startswith("/") else "/" + target
    assert server.requests[0][0].split(b"\r\n")[0] == f"POST {expected} HTTP/1.1".encode()


@pytest.mark.parametrize("own", [False, True])
def test_cookies_do_not_travel(loop, reply, own):
    """A cookie that one answer sets is not sent with the next request, over the user's client or ours."""
    server = reply(DONE)
    request = Request(method="POST", url=server.url)
    loop.send("", request, request, own=own)
    assert len(server.requests) == 2
    assert b"CANARY" not in server.requests[1][0]


def test_our_own_client_keeps_no_cookies(reply):
    """The client made here does not even keep them."""
    sender = HttpSender()
    server = reply(DONE)
    sender.send(Request(method="POST", url=server.url), connect=5, read=5, deadline=5, body_limit=10)
    assert len(sender._own.get().cookies.jar) == 0
    sender.close()


@pytest.mark.parametrize("value", ["Bearer CANARY\n", "CANARY\r\nX: y", "CANARY\0", "CANARYé"])
def test_A40_an_illegal_token_is_refused_before_anything_is_sent(loop, serve, value):
    """A token that no header can carry is refused, nothing connects, and no text of the error holds it."""
    server = serve(lambda server, conn: None)
    with pytest.raises(ConfigError) as caught:
        loop.send(server.url, extra=(("Authorization", value),))
    assert server.connections == 0
    assert "CANARY" not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize(
    "url", ["http://user:CANARY@127.0.0.1/", "http://127.0.0.1/a b", "ftp://127.0.0.1/", "/a", "http://1.2.3.999/"]
)
def test_a_url_that_cannot_go_out_as_it_stands_is_refused(loop, url):
    """A URL with a password, blanks or another scheme is refused, and not shown."""
    with pytest.raises(ConfigError) as caught:
        loop.send(url)
    assert "CANARY" not in str(caught.value)


def test_connect_is_refused(loop):
    """CONNECT is for proxies; it would be taken for one's tunnel."""
    with pytest.raises(ConfigError, match="tunnel"):
        loop.send("http://tool.test/", method="connect")


def test_a_client_of_the_wrong_kind_is_refused(loop):
    """A blocking sender takes no async client, nor the other way round, nor something else."""
    wrong = HttpSender if loop.is_async else AsyncHttpSender
    with pytest.raises(ConfigError, match="Client"):
        wrong(loop.client(lambda request: None))
    with pytest.raises(ConfigError, match="str"):
        HttpSender("http://tool.test")


def test_connections_are_used_again(loop, serve):
    """Several requests go over one connection."""

    def script(server, conn):
        while True:
            server.read_request(conn)
            conn.sendall(DONE.replace(b"close", b"keep-alive"))

    server = serve(script)
    request = Request(method="POST", url=server.url)
    assert [answer.status for answer in loop.send("", request, request, request)] == [200, 200, 200]
    assert server.connections == 1


def test_an_async_sender_serves_several_event_loops(reply):
    """One sender serves one event loop after another."""
    import asyncio

    server = reply(DONE)
    sender = AsyncHttpSender()

    async def once():
        answer = await sender.send(Request(method="GET", url=server.url), connect=5, read=5, deadline=5, body_limit=10)
        await sender.close()
        await sender.close()
        return answer.status

    assert [asyncio.run(once()), asyncio.run(once())] == [200, 200]


def test_threads_share_one_client(serve):
    """Threads that begin at once make one client."""
    sender = HttpSender()
    found = []
    threads = [threading.Thread(target=lambda: found.append(sender._own.get())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
    sender.close()
    sender.close()


def test_a_forked_child_gets_its_own_client(monkeypatch):
    """After a fork the child does not use its parent's sockets."""
    sender = HttpSender()
    parents = sender._own.get()
    monkeypatch.setattr("os.getpid", lambda: -1)
    childs = sender._own.get()
    assert childs is not parents
    sender.close()
    parents.close()
