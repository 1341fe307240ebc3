"""What exceptions of HTTP clients prove."""

import importlib

import httpx
import pytest

from agent_runtime._core.transport_errors import transport_error_kind

NOT_SENT = ["ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol"]
MAYBE_SENT = ["ReadError", "ReadTimeout", "WriteError", "WriteTimeout", "RemoteProtocolError", "LocalProtocolError"]


@pytest.mark.parametrize("name", ["httpx", pytest.param("httpx2", marks=pytest.mark.httpx2), "httpcore"])
def test_A20_every_class_is_known_in_each_library(name):
    """Connect and pool errors were certainly not sent; all others may have been, by class name alone."""
    library = importlib.import_module(name)
    assert {transport_error_kind(getattr(library, error)("x")) for error in NOT_SENT} == {"not_sent"}
    assert {transport_error_kind(getattr(library, error)("x")) for error in MAYBE_SENT} == {"maybe_sent"}


def test_A20_every_httpx_error_has_a_kind():
    """Every exception that httpx exports is classed, and only the named ones as not sent."""
    exported = [getattr(httpx, name) for name in httpx.__all__]
    errors = [cls for cls in exported if isinstance(cls, type) and issubclass(cls, Exception)]
    not_sent = {cls.__name__ for cls in errors if transport_error_kind(cls.__new__(cls)) == "not_sent"}
    assert not_sent == {*NOT_SENT, "InvalidURL"}
    assert all(transport_error_kind(cls.__new__(cls)) is not None for cls in errors)


def test_a_users_subclass_counts_as_its_base():
    """A class that a user derived is known by its base."""

    class MyConnectError(httpx.ConnectError):
        pass

    assert transport_error_kind(MyConnectError("x")) == "not_sent"


def test_an_unknown_class_of_these_libraries_may_have_been_sent():
    """An error class nobody has met yet may have been sent."""
    new = type("QuicError", (httpx.TransportError,), {"__module__": "httpx3"})
    assert transport_error_kind(new("x")) == "maybe_sent"


def test_an_illegal_header_was_not_sent():
    """h11 refuses an illegal header before it writes; its other protocol errors come at any time."""
    assert transport_error_kind(httpx.LocalProtocolError("Illegal header value b'x\\n'")) == "not_sent"
    assert transport_error_kind(httpx.LocalProtocolError("Too little data for declared Content-Length")) == "maybe_sent"


@pytest.mark.parametrize("exc", [ConnectionError("x"), ValueError("x"), KeyboardInterrupt(), OSError("x")])
def test_other_exceptions_say_nothing(exc):
    """What comes from elsewhere proves nothing."""
    assert transport_error_kind(exc) is None
