"""Answers whose status line was seen, however their bodies came."""

import asyncio
import gzip
import json
import zlib

import pytest
import respx

from agent_runtime._http import AsyncHttpSender, HttpSender
from agent_runtime._http._body import Body
from agent_runtime._model import Answer, BodyState, Request

OK = b"HTTP/1.1 200 OK\r\n"
TEXT = b'{"rows": "' + b"0123456789" * 50 + b'"}'


def framed(body, *lines, length=None):
    head = b"".join(line + b"\r\n" for line in lines)
    return OK + head + b"Content-Length: %d\r\n\r\n" % (len(body) if length is None else length) + body


def chunked(*chunks, end=b"0\r\n\r\n"):
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return OK + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + body + end


def test_a_whole_answer(loop, reply):
    """Status, headers in order and bytes come back as they were sent."""
    server = reply(
        b"HTTP/1.1 201 Made\r\nX-A: 1\r\nx-a: 2\r\nX-B: caf\xc3\xa9\r\nContent-Length: 7\r\n\r\n" + b'{"a":1}'
    )
    answer = loop.send(server.url, own=True)
    assert answer == Answer(status=201, headers=answer.headers, body=b'{"a":1}')
    assert answer.header_list("x-a") == ["1", "2"]
    assert answer.header("X-B").encode("latin-1").decode() == "café"


@pytest.mark.parametrize(
    ("data", "state", "body"),
    [
        (framed(TEXT, length=len(TEXT) + 1), BodyState.CUT, TEXT),
        (framed(b"", length=10), BodyState.CUT, b""),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc", BodyState.CUT, b"abc"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", BodyState.CUT, b"abc"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n", BodyState.CUT, b"abc"),
        (OK + b"\r\nabc", BodyState.WHOLE, b"abc"),
        (framed(b"abc") + b"surplus", BodyState.WHOLE, b"abc"),
        (b"HTTP/1.1 204 None\r\n\r\n", BodyState.WHOLE, b""),
        (b"HTTP/1.1 103 Hints\r\n\r\n" + framed(b"abc"), BodyState.WHOLE, b"abc"),
    ],
)
def test_A27_a_body_that_is_cut_is_told(loop, reply, data, state, body):
    """Fewer bytes than promised leave an answer whose body is cut, with what came."""
    answer = loop.send(reply(data).url)
    assert (answer.body_state, answer.body) == (state, body)
    assert answer.status in {200, 204}


BOMB = gzip.compress(b"\0" * 20_000_000)
GZIP = gzip.compress(TEXT, mtime=0)


@pytest.mark.parametrize(
    ("data", "state", "body"),
    [
        (framed(GZIP, b"Content-Encoding: gzip"), BodyState.WHOLE, TEXT),
        (framed(GZIP, b"Content-Encoding: X-GZip"), BodyState.WHOLE, TEXT),
        (framed(GZIP + gzip.compress(b"more"), b"Content-Encoding: gzip"), BodyState.WHOLE, TEXT + b"more"),
        (framed(GZIP + b"\0\0\0", b"Content-Encoding: gzip"), BodyState.WHOLE, TEXT),
        (chunked(*(GZIP[i : i + 1] for i in range(len(GZIP)))), BodyState.WHOLE, TEXT),
        (chunked(GZIP + b"\x1f", b"\x8b" + gzip.compress(b"more")[2:]), BodyState.WHOLE, TEXT + b"more"),
        (framed(zlib.compress(TEXT), b"Content-Encoding: deflate"), BodyState.WHOLE, TEXT),
        (framed(zlib.compress(TEXT)[2:-4], b"Content-Encoding: deflate"), BodyState.WHOLE, TEXT),
        (framed(TEXT, b"Content-Encoding: identity"), BodyState.WHOLE, TEXT),
        (framed(b"", b"Content-Encoding: gzip"), BodyState.WHOLE, b""),
        (b"HTTP/1.1 204 None\r\nContent-Encoding: gzip\r\n\r\n", BodyState.WHOLE, b""),
        (framed(GZIP[:-8], b"Content-Encoding: gzip"), BodyState.CUT, TEXT),
        (chunked(GZIP[:-8]), BodyState.CUT, TEXT),
        (framed(GZIP + b"\x1f", b"Content-Encoding: gzip"), BodyState.CUT, TEXT),
        (OK + b"Content-Encoding: gzip\r\n\r\n" + GZIP[:-1], BodyState.CUT, TEXT),
        (OK + b"Content-Encoding: gzip\r\n\r\n", BodyState.CUT, b""),
        (framed(TEXT, b"Content-Encoding: gzip"), BodyState.UNDECODABLE, TEXT),
        (framed(GZIP + b"junk", b"Content-Encoding: gzip"), BodyState.UNDECODABLE, TEXT),
        (framed(TEXT, b"Content-Encoding: br"), BodyState.UNDECODABLE, TEXT),
        (framed(TEXT, b"Content-Encoding: gzip, gzip"), BodyState.UNDECODABLE, TEXT),
    ],
)
def test_A27_compressed_bodies(loop, reply, data, state, body):
    """A compressed body is decoded here, and one without its end is cut, which httpx would not tell."""
    answer = loop.send(reply(data).url)
    assert (answer.body_state, answer.body) == (state, body)


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (b"", BodyState.CUT),
        (b"12", BodyState.CUT),
        (b'{"a": 12', BodyState.CUT),
        (b'{"a": 12}\n', BodyState.WHOLE),
        (b"true", BodyState.WHOLE),
        (b'"text"', BodyState.WHOLE),
    ],
)
def test_a_body_that_ends_with_its_connection_has_to_show_its_own_end(loop, reply, body, state):
    """Without a length or chunks, a close is the end and a cut alike; JSON but for numbers tells which it was."""
    server = reply(OK + b"Content-Type: application/json\r\n\r\n" + body)
    assert loop.send(server.url, own=True).body_state is state


def test_A27_gzip_cut_in_the_middle(loop, reply):
    """A gzip stream cut in the middle, by a proxy that then ends its chunks properly, is cut."""
    answer = loop.send(reply(chunked(GZIP[: len(GZIP) // 2])).url)
    assert answer.body_state is BodyState.CUT
    assert TEXT.startswith(answer.body)


@pytest.mark.parametrize("size", [999, 1000, 1001])
def test_P6_the_body_limit(loop, reply, size):
    """A body of exactly the limit is whole; a longer one is oversized and kept up to the limit."""
    answer = loop.send(reply(framed(b"x" * size)).url, body_limit=1000)
    assert answer.body_state is (BodyState.OVERSIZED if size > 1000 else BodyState.WHOLE)
    assert answer.body == b"x" * min(size, 1000)


def test_a_decompression_bomb_is_bounded(loop, reply):
    """A small body that would inflate to 20 MB is inflated to the limit and no further."""
    answer = loop.send(reply(framed(BOMB, b"Content-Encoding: gzip")).url, body_limit=5000)
    assert (answer.body_state, len(answer.body)) == (BodyState.OVERSIZED, 5000)


def test_empty_gzip_members_without_end_are_bounded(loop, reply):
    """Members that inflate to nothing do not get past the limit either."""
    answer = loop.send(reply(framed(gzip.compress(b"") * 1000, b"Content-Encoding: gzip")).url, body_limit=100)
    assert (answer.body_state, answer.body) == (BodyState.OVERSIZED, b"")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", [b"/next", b"https://evil.test/", b"http://[", b"ftp://x/", b"http://h:bad/"])
def test_A28_redirects_are_answers(loop, reply, status, location):
    """A redirect is never followed, and one that httpx cannot read is an answer all the same, not a lost one."""
    data = b"HTTP/1.1 %d Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (status, location)
    client = loop.client(follow_redirects=True)
    server = reply(data)
    answer = loop.send(server.url, client=client)
    assert (answer.status, answer.header("location")) == (status, location.decode())
    assert len(server.requests) == 1


@pytest.mark.parametrize("read", [False, True])
def test_a_hook_that_raises_for_a_status_hides_no_answer(loop, reply, read):
    """A user's response hook that raises does not turn an answer into a lost one."""

    def hook(response):
        response.raise_for_status()

    async def async_hook(response):
        if read:
            await response.aread()
        response.raise_for_status()

    client = loop.client(event_hooks={"response": [async_hook if loop.is_async else hook]})
    answer = loop.send(reply(b"HTTP/1.1 409 Busy\r\nRetry-After: 3\r\nContent-Length: 2\r\n\r\n{}").url, client=client)
    assert (answer.status, answer.header("retry-after"), answer.body_state) == (409, "3", BodyState.CUT)


def test_a_hook_that_raises_on_a_mocked_answer(loop):
    """Where no connection was watched, the answer is taken from the hook's own error."""

    def hook(response):
        response.raise_for_status()

    async def async_hook(response):
        response.raise_for_status()

    client = loop.client(
        lambda request: loop.library.Response(409, headers={"Retry-After": "3"}),
        event_hooks={"response": [async_hook if loop.is_async else hook]},
    )
    answer = loop.send("http://tool.test/", client=client)
    assert (answer.status, answer.header("retry-after"), answer.body_state) == (409, "3", BodyState.CUT)


def test_the_first_word_on_a_body_stands():
    """A body that was oversized is not called cut because its connection was closed for that."""
    body = Body(Answer(status=200), method="POST", limit=1)
    assert not body.feed(b"xx")
    body.cut()
    assert body.state is BodyState.OVERSIZED


def test_a_hook_that_read_the_body(loop, reply):
    """A body that a user's hook has read already is taken from there, within the limit."""

    def hook(response):
        response.read()

    async def async_hook(response):
        await response.aread()

    client = loop.client(event_hooks={"response": [async_hook if loop.is_async else hook]})
    answer = loop.send(reply(framed(b"abcdef")).url, client=client, body_limit=4)
    assert (answer.body, answer.body_state) == (b"abcd", BodyState.OVERSIZED)


def test_mocked_answers(loop):
    """An answer of a mock transport is read as any other."""
    client = loop.client(lambda request: loop.library.Response(200, json={"a": 1}))
    assert json.loads(loop.send("http://tool.test/", client=client).body) == {"a": 1}


@respx.mock
def test_respx_answers_and_unmatched_routes():
    """respx is served, and its complaint about an unmatched route reaches the test that forgot it."""
    respx.post("http://tool.test/a").respond(200, json={"a": 1})
    limits = {"connect": 1, "read": 1, "deadline": 1, "body_limit": 100}
    sender = HttpSender()
    assert sender.send(Request(method="POST", url="http://tool.test/a"), **limits).status == 200
    lost = Request(method="POST", url="http://tool.test/b")
    with pytest.raises(AssertionError):
        sender.send(lost, **limits)
    sender.close()
    with pytest.raises(AssertionError):
        asyncio.run(AsyncHttpSender().send(lost, **limits))


def test_a_head_request_has_no_body(loop, reply):
    """A HEAD answer that names a length and an encoding has no body and is whole."""
    answer = loop.send(reply(OK + b"Content-Encoding: gzip\r\nContent-Length: 99\r\n\r\n").url, method="HEAD", body=b"")
    assert (answer.body, answer.body_state) == (b"", BodyState.WHOLE)
