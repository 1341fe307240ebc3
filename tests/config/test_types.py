"""Settings of a wrong type are refused when they are built: by name, with what to write, without showing values."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from agent_runtime import (
    ApiKey,
    ClientCredentials,
    ConfigError,
    HeaderCarrier,
    HttpLookup,
    Idempotency,
    Key,
    Member,
    OnBehalfOf,
    PollPolicy,
    PrivateKey,
    RefreshToken,
    ReplayMark,
    RetryPolicy,
    StaticToken,
    Timeouts,
    TokenCallable,
    TokenExchange,
    Tool,
    ToolContract,
    tool,
)
from agent_runtime.config import JobAdapter

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "https://tools.example.com/debit"


class Args(BaseModel):
    a: int


def text() -> str:
    return "text"


async def later() -> str:
    return "later"


CLIENT = {"client_id": "c", "token_url": "https://login.example.com/token", "client_secret": "client-secret-canary"}

WRONG: list[tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = [
    (ToolContract, {}, {"kind": 1}),
    (ToolContract, {}, {"idempotency": True}),
    (ToolContract, {}, {"idempotency": Idempotency}),
    (ToolContract, {}, {"lookup": "/operations/{key}"}),
    (ToolContract, {}, {"on_409": True}),
    (ToolContract, {}, {"on_5xx": None}),
    (ToolContract, {}, {"in_progress_codes": "running"}),
    (ToolContract, {}, {"in_progress_codes": (5,)}),
    (ToolContract, {}, {"key_reused_codes": "reused"}),
    (ToolContract, {}, {"half_done_codes": {"half"}}),
    (ToolContract, {}, {"stored_failures": 402}),
    (ToolContract, {}, {"stored_failures": ("402",)}),
    (ToolContract, {}, {"stored_failures": (True,)}),
    (ToolContract, {}, {"stored_failures": (200,)}),
    (ToolContract, {}, {"timeouts": 5}),
    (ToolContract, {}, {"retry": 3}),
    (ToolContract, {}, {"polling": 60}),
    (ToolContract, {}, {"version": 2}),
    (Idempotency, {}, {"format": "sha1"}),
    (Idempotency, {}, {"format": None}),
    (Idempotency, {}, {"carrier": "X-Key"}),
    (Idempotency, {}, {"carrier": None}),
    (Idempotency, {}, {"scheme": ["jcs"]}),
    (Idempotency, {}, {"lifetime": "24h"}),
    (Idempotency, {}, {"lifetime": None}),
    (Idempotency, {}, {"in_progress_ttl": "30"}),
    (Idempotency, {}, {"max_execution": True}),
    (Idempotency, {}, {"replay_marks": "x"}),
    (Idempotency, {}, {"replay_marks": ("X-Cache",)}),
    (Idempotency, {}, {"replay_marks": ReplayMark(header="X-Cache")}),
    (Idempotency, {}, {"key_bound_to_token": "no"}),
    (HeaderCarrier, {}, {"name": 5}),
    (HeaderCarrier, {}, {"style": "quoted"}),
    (HeaderCarrier, {}, {"max_length": "255"}),
    (HeaderCarrier, {}, {"max_length": 0}),
    (HeaderCarrier, {}, {"pattern": 5}),
    (ReplayMark, {"header": "X-Cache"}, {"header": 5}),
    (ReplayMark, {"header": "X-Cache"}, {"value": True}),
    (Member, {"name": "state", "equals": "done"}, {"name": 5}),
    (Member, {"name": "state", "equals": "done"}, {"name": ""}),
    (Member, {"name": "state", "equals": "done"}, {"equals": None}),
    (Member, {"name": "state", "equals": "done"}, {"equals": 1.5}),
    (HttpLookup, {"url": "/o"}, {"url": 5}),
    (HttpLookup, {"url": "/o"}, {"url": ""}),
    (HttpLookup, {"url": "/o"}, {"done": "state"}),
    (HttpLookup, {"url": "/o"}, {"running": ("state", "running")}),
    (HttpLookup, {"url": "/o"}, {"absent": True}),
    (HttpLookup, {"url": "/o"}, {"result": 5}),
    (HttpLookup, {"url": "/o"}, {"status": Member(name="status", equals=1)}),
    (HttpLookup, {"url": "/o", "settle_after": 5}, {"absence_is_proof": "yes"}),
    (HttpLookup, {"url": "/o"}, {"settle_after": "5"}),
    (HttpLookup, {"url": "/o"}, {"confirm": "/other"}),
    (Timeouts, {}, {"connect": "5"}),
    (Timeouts, {}, {"read": None}),
    (Timeouts, {}, {"attempt": True}),
    (Timeouts, {}, {"step": timedelta}),
    (RetryPolicy, {}, {"attempts": 2.5}),
    (RetryPolicy, {}, {"base": "1"}),
    (RetryPolicy, {}, {"factor": timedelta(1)}),
    (RetryPolicy, {}, {"cap": None}),
    (RetryPolicy, {}, {"max_inline_wait": [60]}),
    (PollPolicy, {}, {"first": "5"}),
    (PollPolicy, {}, {"factor": "2"}),
    (PollPolicy, {}, {"cap": None}),
    (PollPolicy, {}, {"bound": "10m"}),
    (PollPolicy, {}, {"not_found_grace": None}),
    (PollPolicy, {}, {"on_200": "yes"}),
    (PollPolicy, {}, {"adapter": text}),
    (PollPolicy, {}, {"origins": "https://x"}),
    (PollPolicy, {}, {"origins": (5,)}),
    (PollPolicy, {}, {"failed_effect": None}),
    (PollPolicy, {}, {"cancel": "PUT"}),
    (PollPolicy, {}, {"webhook": 5}),
    (PollPolicy, {}, {"stream": True}),
    (JobAdapter, {"start": text, "read": text}, {"start": "start"}),
    (JobAdapter, {"start": text, "read": text}, {"read": None}),
    (JobAdapter, {"start": text, "read": text}, {"callback": 5}),
    (StaticToken, {"token": "t"}, {"token": 5}),
    (StaticToken, {"token": "t"}, {"principal": None}),
    (ApiKey, {"key": "k"}, {"key": b"k"}),
    (ApiKey, {"key": "k"}, {"header": 5}),
    (ApiKey, {"key": "k"}, {"principal": 5}),
    (TokenCallable, {"function": text}, {"function": "token"}),
    (TokenCallable, {"function": text}, {"principal": 5}),
    (PrivateKey, {"key": "{}"}, {"key": b"{}"}),
    (PrivateKey, {"key": "{}"}, {"algorithm": None}),
    (PrivateKey, {"key": "{}"}, {"lifetime": "60"}),
    (ClientCredentials, CLIENT, {"client_id": 5}),
    (ClientCredentials, CLIENT, {"token_url": 5}),
    (ClientCredentials, CLIENT, {"issuer": 5}),
    (ClientCredentials, CLIENT, {"client_secret": b"client-secret-canary"}),
    (ClientCredentials, CLIENT, {"private_key": "-----BEGIN"}),
    (ClientCredentials, CLIENT, {"auth_method": "basic"}),
    (ClientCredentials, CLIENT, {"scope": ["a"]}),
    (ClientCredentials, CLIENT, {"audience": 5}),
    (ClientCredentials, CLIENT, {"resource": 5}),
    (RefreshToken, {**CLIENT, "account": "a", "refresh_token": "refresh-canary-0"}, {"account": 5}),
    (RefreshToken, {**CLIENT, "account": "a", "refresh_token": "refresh-canary-0"}, {"refresh_token": 5}),
    (RefreshToken, {**CLIENT, "account": "a", "refresh_token": "refresh-canary-0"}, {"rotates": "no"}),
    (TokenExchange, CLIENT, {"subject": "alice"}),
    (TokenExchange, CLIENT, {"actor_token": "call-canary"}),
    (OnBehalfOf, CLIENT, {"scope": 5}),
]


def told(value: Any) -> str:
    """Return a test's id, which must not hold an address."""
    return getattr(value, "__name__", "") or re.sub(r" at 0x[0-9a-f]+", "", str(value))


@pytest.mark.parametrize(("made", "right", "wrong"), WRONG, ids=told)
def test_a_setting_of_a_wrong_type_is_refused(made: Callable[..., Any], right: dict[str, Any], wrong: Any) -> None:
    """The message names the class and the setting; the same settings without the wrong one are taken."""
    (name,) = wrong
    made(**right)
    with pytest.raises(ConfigError) as caught:
        made(**{**right, **wrong})
    assert name in str(caught.value)
    assert made.__name__ in str(caught.value)
    assert "canary" not in str(caught.value)


WRONG_OF_TOOL: list[dict[str, Any]] = [
    {"url": 5},
    {"method": 5},
    {"method": "FETCH"},
    {"args": {"a": int}},
    {"args": Args(a=1)},
    {"args": dict},
    {"result": object()},
    {"result": {"a": int}},
    {"result": "Order"},
    {"contract": Idempotency()},
    {"contract": ToolContract},
    {"contract": {"kind": "read"}},
    {"auth": "Bearer static-canary"},
    {"auth": StaticToken},
    {"scope": ["a"]},
    {"audience": 5},
    {"query": "region"},
    {"query": (5,)},
    {"fill": "now"},
    {"fill": {"a": "yesterday"}},
    {"fill": {5: "now"}},
    {"fill": {"a": later}},
    {"headers": ["x"]},
    {"headers": {"X-Plain": 5}},
    {"headers": {5: "x"}},
    {"principal": 5},
    {"sensitive": "no"},
    {"description": None},
]


@pytest.mark.parametrize("wrong", WRONG_OF_TOOL, ids=told)
def test_a_tool_of_wrong_types_is_refused(wrong: dict[str, Any]) -> None:
    """The message names the tool's setting, or the header of it that cannot be sent."""
    with pytest.raises(ConfigError) as caught:
        Tool("debit", **{"url": URL, **wrong})
    (name,) = wrong
    assert name.rstrip("s") in str(caught.value)


@pytest.mark.parametrize("name", [5, None, text], ids=told)
def test_a_tools_name_is_text(name: Any) -> None:
    """Another type is refused like a name that cannot stand."""
    with pytest.raises(ConfigError, match="name is text"):
        Tool(name, url=URL)


@pytest.mark.parametrize(
    "wrong",
    [{"name": 5}, {"contract": Idempotency()}, {"description": 5}, {"sensitive": "no"}, {"principal": 5}],
    ids=told,
)
def test_a_function_tool_of_wrong_settings_is_refused(wrong: dict[str, Any]) -> None:
    """The decorator checks what it is given."""
    with pytest.raises(ConfigError):
        tool(**wrong)(text)


@pytest.mark.parametrize("given", ["pay", 5, Args], ids=told)
def test_a_function_tool_is_made_of_a_function(given: Any) -> None:
    """``@tool("pay")`` takes the name for the function, and says where a name goes."""
    with pytest.raises(ConfigError, match=r"@tool\(name="):
        tool(given)


def test_annotations_that_cannot_be_checked_are_refused() -> None:
    """A result or a parameter that pydantic knows nothing of would fail after the effect."""

    class Strange:
        pass

    def gives(key: Key) -> Any:
        return key

    gives.__annotations__["return"] = Strange

    def takes(a: Any) -> None:
        return a

    takes.__annotations__["a"] = Strange
    with pytest.raises(ConfigError, match=r"'gives'.*Strange"):
        tool(gives)
    with pytest.raises(ConfigError, match=r"'takes'.*Strange"):
        tool(takes)


def test_the_message_says_what_to_write_instead() -> None:
    """What was given is told by its type, what is wanted by an example."""
    for make, told in [
        (lambda: ToolContract(lookup="/o/s3cret"), "takes HttpLookup or None, not str; write lookup=HttpLookup(url="),  # type: ignore[arg-type]
        (lambda: ToolContract(idempotency=Idempotency), "not the class Idempotency; write idempotency=Idempotency()"),  # type: ignore[arg-type]
        (lambda: Tool("debit", url=URL, query="s3cret"), "tool 'debit': query takes a tuple"),  # type: ignore[arg-type]
        (lambda: Tool("debit", url=URL, fill={"a": "b"}), "fill['a'] takes 'now', 'uuid' or a function, not 'b'"),  # type: ignore[dict-item]
        (lambda: Idempotency(replay_marks=(5,)), "replay_marks[0] takes ReplayMark, not int; write replay_marks=(Rep"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(ConfigError) as caught:
            make()
        assert told in str(caught.value)
        assert "s3cret" not in str(caught.value)


def test_a_list_is_taken_for_a_tuple() -> None:
    """What is frozen holds tuples, also where a list was given."""
    assert ToolContract(in_progress_codes=["running"]).in_progress_codes == ("running",)  # type: ignore[arg-type]
    assert PollPolicy(origins=["https://x"]).origins == ("https://x",)  # type: ignore[arg-type]
    assert Tool("debit", url=URL, query=["region"]).query == ("region",)  # type: ignore[arg-type]


def test_all_right_types_are_taken() -> None:
    """Numbers and timedeltas are durations, a subclass is what it is of, a function fills."""
    assert Timeouts(connect=1, read=timedelta(seconds=2)).read == 2.0
    assert HttpLookup(url="/o", confirm=HttpLookup(url="/p")).confirm is not None
    assert Tool("debit", url=URL, args=Args, result=list[Args], fill={"a": text, "b": "uuid"}).fill["a"] is text
    assert PollPolicy(webhook="billing").source == "billing"
