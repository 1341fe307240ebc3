"""Bad input: a typed error that says what to do, before anything is sent, with the ledger as it was."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import AsyncRuntime, ConfigError, HeaderCarrier, Idempotency, LedgerError, Runtime, TokenCallable
from agent_runtime import ToolContract as Contract
from agent_runtime.errors import ArgumentsRefused, UnknownTool
from tests.session.stage import http_tool, notify, provision

if TYPE_CHECKING:
    from pathlib import Path

    from tests.session.stage import Stage


def rows(stage: Stage) -> tuple[int, ...]:
    """Count what the tenant has in the ledger."""
    sessions = stage.ledger.sessions(tenant=stage.tenant, state=None).result(20)
    loaded = [stage.loaded(session.id) for session in sessions]
    return (
        len(sessions),
        *(sum(len(getattr(one, name)) for one in loaded) for name in ("steps", "operations", "values")),
    )


def refused(stage: Stage, session: Any, error: type[Exception], *call: Any, **ways: Any) -> str:
    """Make a call that is refused, and see that it left nothing behind: no row, no request, no used index."""
    before = rows(stage)
    with pytest.raises(error) as caught:
        session.call(*call, **ways)
    assert rows(stage) == before
    assert stage.tools.requests == []
    assert session.try_call(notify, {"to": "ana"}).step == "step_001"
    return str(caught.value)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        2.0**60,
        {1, 2},
        b"bytes",
        decimal.Decimal("1.5"),
        dt.date(2027, 3, 1),
        {1: "name"},
        "\ud800",
        nested(80),
        endless(),
        object(),
    ],
    ids=["nan", "inf", "big-float", "set", "bytes", "decimal", "date", "name", "surrogate", "deep", "cycle", "object"],
)
def test_args_without_a_canonical_form_are_refused(stage: Stage, value: Any) -> None:
    """They would read differently at the other end, or differ from process to process."""
    refused(stage, stage.open(), ArgumentsRefused, provision, {"value": value})


@pytest.mark.parametrize("args", [[1], "text", 5], ids=repr)
def test_args_that_are_no_object_are_refused(stage: Stage, args: Any) -> None:
    """Args are a dict or a pydantic model."""
    assert "dict" in refused(stage, stage.open(), ArgumentsRefused, provision, args)


@pytest.mark.parametrize(
    "tool", ["none-such", http_tool("strange"), http_tool("provision")], ids=["name", "tool", "twin"]
)
def test_an_unknown_tool_is_refused(stage: Stage, tool: Any) -> None:
    """Neither a name nor a tool that was not registered is called, nor another one of a registered name."""
    assert "Register it" in refused(stage, stage.open(), UnknownTool, tool, {"gb": 1})


@pytest.mark.parametrize(
    "ways",
    [
        {"at": ""},
        {"at": "x" * 513},
        {"at": 5},
        {"at": "\ud800"},
        {"key": ""},
        {"key": "x" * 256},
        {"key": "two\nlines"},
        {"key": "ümlaut"},
        {"key": 5},
        {"expires_at": "tomorrow"},
        {"expires_at": math.nan},
        {"expires_at": dt.datetime(2027, 3, 1, tzinfo=dt.UTC)},
        {"after_unknown": "perhaps"},
    ],
    ids=str,
)
def test_what_a_call_cannot_be_given_is_refused(stage: Stage, ways: dict[str, Any]) -> None:
    """Addresses, keys, deadlines and rules are checked before a position is taken."""
    refused(stage, stage.open(), ConfigError, provision, {"gb": 1}, **ways)


def test_a_key_that_the_carrier_cannot_hold_is_refused(stage: Stage) -> None:
    """The tool's own limits count, not only those of the header."""
    carrier = HeaderCarrier(name="X-Request-Id", max_length=64, pattern="[a-z0-9-]+")
    short = http_tool("short", Contract(idempotency=Idempotency(format="uuid", carrier=carrier)))
    runtime = stage.runtime(short, notify)
    refused(stage, runtime.open("one"), ConfigError, short, {"gb": 1}, key="x" * 65)
    stage.tools.requests.clear()
    refused(stage, runtime.open("two"), ConfigError, short, {"gb": 1}, key="ORDER-7")


def test_a_branch_whose_labels_would_be_too_long_is_refused(stage: Stage) -> None:
    """Nested branches end where a key could not hold their labels."""
    session = stage.open()
    deep = session.branch("a" * 60).branch("b" * 60)
    before = rows(stage)
    with pytest.raises(ConfigError):
        deep.call(provision, {"gb": 1})
    assert rows(stage) == before
    assert stage.tools.requests == []


@pytest.mark.parametrize(
    "alias",
    ["", "x" * 513, "6f8a2b0e-0c1d-4e5f-8a9b-0c1d2e3f4a5b", "\ud800", 5, None],
    ids=["empty", "long", "an-id", "surrogate", "number", "none"],
)
def test_an_alias_that_cannot_stand_is_refused(stage: Stage, alias: Any) -> None:
    """It must be text that does not look like a session id."""
    before = rows(stage)
    with pytest.raises(ConfigError):
        stage.open(alias)
    if alias is not None:
        with pytest.raises(ConfigError):
            stage.own.start(alias)
    assert rows(stage) == before


def test_a_session_is_resumed_by_text(stage: Stage) -> None:
    """Another type is a mistake of the caller, not a session that is not found."""
    with pytest.raises(ConfigError):
        stage.own.resume(7)


def test_input_without_a_canonical_form_is_refused(stage: Stage) -> None:
    """A session's input has to be comparable with that of the next opening."""
    before = rows(stage)
    with pytest.raises(ConfigError):
        stage.open(input={"when": math.nan})
    assert rows(stage) == before


@pytest.mark.parametrize("token", ["two\r\nX-Admin: 1", "ümlaut", "", 5], ids=repr)
def test_a_token_that_no_header_can_hold_is_not_sent(stage: Stage, token: Any) -> None:
    """The step waits as ready, nothing was sent, the message shows no token; with a good one the call goes on."""
    tokens = [token]
    auth = TokenCallable(function=lambda: tokens[-1], principal="acct-7")
    session = stage.runtime(auth=auth).open("orders")
    with pytest.raises(ConfigError) as caught:
        session.call(provision, {"gb": 1})
    assert "X-Admin" not in str(caught.value)
    assert stage.tools.requests == []
    assert stage.states() == ["ready"]
    tokens.append("good")
    assert session.call(provision, {"gb": 1}).value["effect"] == 1
    assert stage.tools.requests[0].headers["Authorization"] == "Bearer good"


@pytest.mark.parametrize("runtime", [Runtime, AsyncRuntime])
@pytest.mark.parametrize(
    "content", [b"no database at all", b"SQLite format 3\x00" + b"\xff" * 600], ids=["text", "torn"]
)
def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path, runtime: Any, content: bytes) -> None:
    """A typed error at once; the file stays as it was."""
    path = tmp_path / "agent.db"
    path.write_bytes(content)
    with pytest.raises(LedgerError):
        runtime(f"sqlite:///{path}", tools=[provision])
    assert path.read_bytes() == content


@pytest.mark.parametrize("runtime", [Runtime, AsyncRuntime])
@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("sqlite:////none/such/agent.db", LedgerError),
        ("postgresql://user@127.0.0.1:1/agent", LedgerError),
        ("mysql://user@host/agent", ConfigError),
    ],
)
def test_a_ledger_that_cannot_be_reached_is_refused(runtime: Any, url: str, error: type[Exception]) -> None:
    """A runtime without its ledger is none: it raises when it is made."""
    with pytest.raises(error):
        runtime(url, tools=[provision])


@pytest.mark.parametrize(
    "settings",
    [
        {"tenant": ""},
        {"after_unknown": "perhaps"},
        {"key_secret": b"short"},
        {"auth": "token"},
        {"client": object()},
        {"tools": ["provision"]},
        {"tools": [provision, http_tool("provision")]},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_that_cannot_work_are_refused(stage: Stage, settings: dict[str, Any]) -> None:
    """Each raises `ConfigError` when the runtime is made."""
    with pytest.raises(ConfigError):
        stage.runtime(**settings)


def test_a_client_of_the_other_kind_is_refused(stage: Stage) -> None:
    """A blocking runtime needs a blocking client, an async one an async client."""
    with pytest.raises(ConfigError, match="Client"):
        stage.runtime(client=httpx.Client() if stage.is_async else httpx.AsyncClient())
