"""Bad input: a typed error that says what to do, before anything is sent, with the ledger as it was."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import decimal
import inspect
import math
import pathlib
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import (
    AsyncRuntime,
    AsyncSession,
    ConfigError,
    HeaderCarrier,
    Idempotency,
    LedgerError,
    Runtime,
    Session,
    StaticToken,
    TokenCallable,
    Tool,
)
from agent_runtime import ToolContract as Contract
from agent_runtime.config import HttpTool
from agent_runtime.errors import ArgumentsRefused, UnknownTool
from agent_runtime.testing import VirtualClock
from tests.credentials import CALLED, SUBJECT
from tests.session.stage import ORIGIN, http_tool, notify, provision

if TYPE_CHECKING:
    from pathlib import Path

    from tests.session.stage import Stage


def told(value: Any) -> str:
    """Return a test's id, which must not hold an address."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


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


@pytest.mark.parametrize("args", [[1], "text", 5], ids=told)
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
    ids=told,
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


@pytest.mark.parametrize("token", ["call-canary\r\nX-Admin: 1", "call-canary-ü", "", 5], ids=told)
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
    tokens.append(CALLED)
    assert session.call(provision, {"gb": 1}).value["effect"] == 1
    assert stage.tools.requests[0].headers["Authorization"] == f"Bearer {CALLED}"


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
        {"tools": "provision"},
        {"tools": provision},
        {"tools": {"provision": provision}},
        {"tools": [HttpTool]},
        {"tools": None},
        {"tenant": 5},
        {"tenant": "a\0b"},
        {"actor": ""},
        {"actor": 5},
        {"auth": StaticToken},
        {"key_secret": "a text that is long enough"},
        {"on_attention": 5},
        {"body_limit": -1},
        {"body_limit": 0},
        {"body_limit": "1 MB"},
        {"lease": 0},
        {"lease": -5},
        {"lease": "30"},
        {"lease": math.nan},
        {"migrate": "never"},
        {"clock": 5},
        {"clock": lambda: 0.0},
        {"clock": VirtualClock},
        {"random": 0.5},
        {"probe": "probe"},
        {"ledger": 5},
        {"ledger": pathlib.Path("agent.db")},
    ],
    ids=told,
)
def test_settings_that_cannot_work_are_refused(stage: Stage, settings: dict[str, Any]) -> None:
    """Each raises `ConfigError` when the runtime is made."""
    with pytest.raises(ConfigError):
        stage.runtime(**settings)


def test_a_client_of_the_other_kind_is_refused(stage: Stage) -> None:
    """A blocking runtime needs a blocking client, an async one an async client."""
    with pytest.raises(ConfigError, match="Client"):
        stage.runtime(client=httpx.Client() if stage.is_async else httpx.AsyncClient())


@pytest.mark.parametrize(("args", "words"), [({}, "arg 'id' is missing"), ({"id": None}, "not None")], ids=told)
def test_what_keeps_an_arg_out_of_the_path_is_told(stage: Stage, args: dict[str, Any], words: str) -> None:
    """One that is not there is missing; one of another type is told by it."""
    cancel = Tool("cancel", url=f"{ORIGIN}/orders/{{id}}", method="DELETE", contract=Contract())
    session = stage.runtime(cancel, notify).open("orders")
    assert words in refused(stage, session, ArgumentsRefused, cancel, args)


def test_who_hears_of_progress_is_a_function(stage: Stage) -> None:
    """It would be called only once a job runs."""
    assert "on_progress" in refused(stage, stage.open(), ConfigError, provision, {"gb": 1}, on_progress="print")


@dataclasses.dataclass
class Bag:
    """What a function could return by mistake."""

    items: set[int]


@pytest.mark.parametrize("value", [{1}, [{"a": frozenset({1})}], Bag({1}), object(), "\ud800"], ids=told)
def test_a_value_without_a_canonical_form_is_not_kept(stage: Stage, value: Any) -> None:
    """`record` refuses a set like args do: its order is another one in every process."""
    session = stage.open()
    with pytest.raises(ArgumentsRefused, match="Nothing was kept"):
        session.record("ids", lambda: value)
    assert stage.loaded().values == ()
    assert session.call(notify, {"to": "ana"}).value["effect"] == 1


def unknown(stage: Stage) -> str:
    stage.tools.script("notify", "lost")
    return str(stage.open().try_call(notify, {"to": "ana"}).operation_id)


@pytest.mark.parametrize(
    "said",
    [
        {"succeeded": "no"},
        {"succeeded": 1},
        {"succeeded": None},
        {"by": ""},
        {"by": " "},
        {"by": None},
        {"by": "a\0b"},
        {"evidence": ""},
        {"evidence": "\ud800"},
        {"evidence": 7},
        {"succeeded": False, "effect": "perhaps"},
        {"succeeded": False, "effect": None},
        {"succeeded": True, "effect": "possible"},
        {"succeeded": True, "effect": "perhaps"},
        {"succeeded": False, "result": {"n": 1}},
        {"result": object()},
        {"result": {1, 2}},
        {"result": {"ids": [frozenset({1})]}},
        {"result": math.nan},
        {"result": {"text": "\ud800"}},
        {"result": endless()},
        {"operation": 7},
    ],
    ids=told,
)
def test_what_is_no_decision_is_refused(stage: Stage, said: dict[str, Any]) -> None:
    """A decision is final, so nothing of it is guessed: the operation stays unknown, and can be decided rightly."""
    operation = unknown(stage)
    before = stage.loaded()
    right = {"operation": operation, "succeeded": True, "by": "ana", "evidence": "mail 7"}
    with pytest.raises(ConfigError):
        stage.own.decide(**{**right, **said})
    assert stage.loaded() == before
    assert stage.own.decide(**right).state == "succeeded"


@pytest.mark.parametrize("state", ["opne", 5, ""], ids=told)
def test_a_state_that_sessions_do_not_have_is_refused(stage: Stage, state: Any) -> None:
    """The message lists those that there are."""
    with pytest.raises(ConfigError, match="'open'"):
        stage.own.sessions(state=state)


@pytest.mark.parametrize("wait", ["5", -1, math.nan, None, True], ids=told)
def test_a_wait_that_is_no_time_is_refused(stage: Stage, wait: Any) -> None:
    """Before anything is claimed, in all that take one."""
    stage.open("there").close()
    before = rows(stage)
    for way in (stage.own.open, stage.own.resume, stage.own.settle):
        with pytest.raises(ConfigError, match="wait"):
            way("there", wait=wait)
    assert rows(stage) == before


@pytest.mark.parametrize("ways", [{"concurrency": 0}, {"concurrency": "4"}, {"until": "noon"}], ids=told)
def test_bounds_of_following_jobs_are_numbers(stage: Stage, ways: dict[str, Any]) -> None:
    """A wrong one is refused before any job is looked at."""
    (name,) = ways
    with pytest.raises(ConfigError, match=name):
        stage.own.follow_jobs(**ways)


@pytest.mark.parametrize("limit", [0, -1, "5", None], ids=told)
def test_a_limit_is_a_whole_number(stage: Stage, limit: Any) -> None:
    """It is checked before the step is looked for."""
    with pytest.raises(ConfigError, match="limit"):
        stage.open().errors("step_001", limit=limit)


def test_a_second_effect_is_wanted_by_true_alone(stage: Stage) -> None:
    """A text like "no" is not taken for a yes."""
    operation = unknown(stage)
    stage.own.decide(operation, succeeded=False, by="ana", evidence="half of it", effect="possible")
    session = stage.own.resume("orders")
    before = rows(stage)
    with pytest.raises(ConfigError, match="effect_possible"):
        session.reissue("step_001", effect_possible="no")
    session.close()
    with pytest.raises(ConfigError, match="reissue_failed"):
        stage.own.resume("orders", reissue_failed="no")
    stage.own.resume("orders")
    assert rows(stage) == before
    assert len(stage.tools.requests) == 1


@pytest.mark.parametrize("name", [7, None], ids=told)
def test_a_session_is_read_by_text(stage: Stage, name: Any) -> None:
    """As it is resumed."""
    for way in (stage.own.explain, stage.own.settle):
        with pytest.raises(ConfigError):
            way(name)


@pytest.mark.parametrize("tools", [(HttpTool,), ("provision",), (notify, 5), (notify, http_tool("notify"))], ids=told)
def test_what_is_registered_is_a_tool(stage: Stage, tools: Any) -> None:
    """A class or a name is refused, and nothing of the call is registered."""
    runtime = stage.runtime(provision)
    with pytest.raises(ConfigError):
        runtime.register(*tools)
    with pytest.raises(UnknownTool):
        runtime.open("orders").call("notify", {"to": "ana"})
    runtime.register(notify)


@pytest.mark.parametrize("runtime", [Runtime, AsyncRuntime])
def test_the_warning_about_a_missing_contract_points_at_the_caller(tmp_path: Path, runtime: Any) -> None:
    """Both where a runtime is made with a tool and where one is registered."""
    bare = [Tool(name, url=f"{ORIGIN}/{name}") for name in ("first", "second")]
    with pytest.warns(UserWarning, match="no contract") as made_with:
        made = runtime(f"sqlite:///{tmp_path}/agent.db", tools=bare[:1])
    with pytest.warns(UserWarning, match="no contract") as registered:
        made.register(bare[1])
    assert [one.filename for one in (*made_with, *registered)] == [__file__, __file__]
    closing = made.close()
    if closing is not None:
        asyncio.run(closing)


@pytest.mark.parametrize("actor", ["", 5, "\0"], ids=told)
def test_an_actor_is_named_by_text(stage: Stage, actor: Any) -> None:
    """It is part of the session's row."""
    before = rows(stage)
    for way in (stage.own.open, stage.own.start):
        with pytest.raises(ConfigError, match="actor"):
            way("orders", actor=actor)
    assert rows(stage) == before


def test_the_class_methods_take_what_the_runtimes_take() -> None:
    """Whoever opens by the class says for whom, with the same words."""
    for session, runtime in ((Session, Runtime), (AsyncSession, AsyncRuntime)):
        for name in ("start", "open", "resume"):
            taken = inspect.signature(getattr(session, name)).parameters
            assert {one for one in taken if one != "runtime"} == {
                one for one in inspect.signature(getattr(runtime, name)).parameters if one != "self"
            }


def test_the_class_methods_bring_the_actor(stage: Stage) -> None:
    """The session acts for the one who was named, and the token is that one's."""
    face = AsyncSession if stage.is_async else Session
    runtime = getattr(stage.own, "target", stage.own)
    named = {"runtime": runtime, "actor": "ana", "subject_token": SUBJECT}

    async def opened(opening: Any) -> Any:
        return await opening

    def take(opening: Any) -> Any:
        return stage.run(opened(opening)) if stage.is_async else opening

    for made in (take(face.open("one", **named)), take(face.start("two", **named))):
        assert (made._hold.desk.subject.name, made._hold.desk.subject.token) == ("ana", SUBJECT)
    again = take(face.resume("one", runtime=runtime, subject_token="subject-canary-2"))
    assert (again._hold.desk.subject.name, again._hold.desk.subject.token) == ("ana", "subject-canary-2")
