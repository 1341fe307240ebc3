"""No secret reaches a log line."""

import logging
import socket

import pytest

from agent_runtime._http import _quiet

DONE = b"HTTP/1.1 200 OK\r\nSet-Cookie: sid=CANARY\r\nX-Echo: CANARY\r\nContent-Length: 6\r\n\r\nCANARY"
SECRET = (("Authorization", "Bearer CANARY"), ("X-Api-Key", "CANARY"))


@pytest.mark.parametrize("data", [DONE, b"", b"HTTP/1.1 CANARY\r\n\r\n", DONE[:-3]])
def test_A40_nothing_is_logged_of_url_headers_and_bodies(loop, reply, capture, data):
    """With the root logger at DEBUG, no query, token, key, cookie or body is in any record, whatever the end."""
    server = reply(data)
    with capture() as lines:
        result = loop.send(server.url + "/a?token=CANARY", body=b"CANARY", extra=SECRET, own=True)
    assert any("send_request_headers" in line for line in lines)
    assert "CANARY" not in "\n".join(lines)
    assert b"CANARY" in server.requests[0][0]
    assert "CANARY" not in getattr(result, "detail", "")


def test_A40_a_failed_connection_logs_nothing(loop, capture):
    """A connection that fails shows neither URL nor headers, in the log or in what is returned."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with capture() as lines:
        failure = loop.send(f"http://127.0.0.1:{port}/CANARY?token=CANARY", extra=SECRET)
    assert "CANARY" not in "\n".join(lines) + repr(failure)


def test_A40_an_echo_in_an_error_is_taken_out(loop, reply):
    """A server that repeats a token in a broken status line does not get it into the failure's text."""
    failure = loop.send(reply(b"tok-CANARY http://u:CANARY@h/?q=CANARY\r\n\r\n").url, extra=(("X-Key", "tok-CANARY"),))
    assert failure.maybe_sent
    assert failure.detail
    assert "CANARY" not in failure.detail


def test_the_library_still_logs_the_line_without_its_query(loop, reply, capture):
    """httpx's INFO line stays, with scheme, host and path."""
    server = reply(DONE)
    with capture() as lines:
        loop.send(server.url + "/a?token=CANARY")
    assert any(f"{server.url}/a " in line and "200 OK" in line for line in lines)


def test_a_users_own_requests_are_logged_as_before(loop, reply, capture):
    """Outside of our sends nothing is taken out of any record."""
    server = reply(DONE)
    loop.send(server.url)
    with capture() as lines, loop.library.Client(trust_env=False, verify=False) as client:
        client.get(server.url + "/a?mine=1")
    assert any("/a?mine=1" in line for line in lines)
    assert any("X-Echo" in line for line in lines)


def test_filters_are_installed_once():
    """However many senders there are, each logger has one filter of ours."""
    _quiet.install()
    _quiet.install()
    assert logging.getLogger("httpx").filters.count(_quiet._redact) == 1


def test_records_of_other_shapes_pass():
    """Header compression is silent in a send; a record without URLs passes; a broken URL is not shown."""
    with _quiet.quiet():
        hpack = logging.LogRecord("hpack.hpack", logging.DEBUG, "", 0, "Adding %s", ("CANARY",), None)
        assert not _quiet._redact(hpack)
        plain = logging.LogRecord("httpx", logging.DEBUG, "", 0, "load_ssl_context", None, None)
        assert _quiet._redact(plain)
        assert plain.getMessage() == "load_ssl_context"
        broken = logging.LogRecord("httpx", logging.INFO, "", 0, "%s", ("http://[CANARY",), None)
        assert _quiet._redact(broken)
        assert broken.getMessage() == "(URL)"
