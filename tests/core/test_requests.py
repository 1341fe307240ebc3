"""From args to the request that is frozen: two digests, and where each arg goes."""

import dataclasses
import datetime as dt
import decimal
import enum
import json
import uuid
from typing import Any

import pytest
from pydantic import BaseModel, Field

from agent_runtime import Idempotency, Tool, ToolContract, tool
from agent_runtime._core.canonical import digest
from agent_runtime._core.requests import freeze, refuse_sets, validate, with_key
from agent_runtime.config import HeaderCarrier
from agent_runtime.errors import ArgumentsRefused, ConfigError
from tests.core.world import KEYED


class Size(enum.Enum):
    SMALL = "s"


class Order(BaseModel):
    region: str
    gb: int = 20
    size: Size = Size.SMALL
    when: dt.date | None = None
    note: str = Field(default="", alias="theNote")


def make(method="POST", url="https://a.test/t", **more):
    return Tool("t", url=url, method=method, contract=more.pop("contract", KEYED), **more)


def frozen(made, args, fills=None):
    return freeze(made, validate(made, args), fills or {})


def test_the_fingerprint_leaves_out_unset_defaults_and_the_hash_does_not():
    """A new default in the next release changes what is sent, and not whether the call is the recorded one."""

    class Before(BaseModel):
        region: str

    class After(BaseModel):
        region: str
        tier: str = "basic"

    old, new = make(args=Before), make(args=After)
    args = {"region": "x"}
    assert validate(old, args).fingerprint == validate(new, args).fingerprint
    assert frozen(old, args).args_hash != frozen(new, args).args_hash
    assert validate(new, args | {"tier": "basic"}).fingerprint != validate(new, args).fingerprint


def test_fills_are_in_the_hash_and_not_in_the_fingerprint():
    """What is made once for an operation is sent, and decides nothing about where the call stands."""
    made = make(fill={"nonce": "uuid"})
    one, two = (frozen(made, {"a": 1}, {"nonce": nonce}) for nonce in ("x", "y"))
    assert one.args_hash != two.args_hash
    assert json.loads(one.request.body) == {"a": 1, "nonce": "x"}


def test_the_body_sent_is_the_canonical_text_that_was_hashed():
    """The server can hash what it received and find the hash of the key."""
    one = frozen(make(), {"b": 1, "a": "é"})
    assert one.request.body == '{"a":"é","b":1}'.encode()
    assert one.args_hash == digest(one.request.body)
    assert one.args == one.hashed == one.request.body


def test_the_scheme_of_the_tools_server_is_used():
    """A server that re-hashes with json.dumps gets that text."""
    contract = ToolContract(idempotency=Idempotency(scheme="python-json"))
    assert frozen(make(contract=contract), {"a": "é"}).request.body == b'{"a":"\\u00e9"}'


def test_args_go_to_path_query_and_body():
    """Names in the URL are filled from args, named ones go to the query, the rest is the body."""
    one = frozen(
        make(url="https://a.test/u/{user}/x", query=("dry", "tags")),
        {"user": "a/b c", "dry": True, "tags": ["x", 2, 1.5], "amount": 5},
    )
    assert one.request.url == "https://a.test/u/a%2Fb%20c/x?dry=true&tags=x&tags=2&tags=1.5"
    assert one.request.body == b'{"amount":5}'
    assert json.loads(one.args) == {"user": "a/b c", "dry": True, "tags": ["x", 2, 1.5], "amount": 5}


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_methods_without_a_body_send_all_args_in_the_url(method):
    """Where there is no body the key is made over all args."""
    one = frozen(make(method, url="https://a.test/u/{user}?v=1"), {"user": "7", "q": "a b"})
    assert (one.request.url, one.request.body) == ("https://a.test/u/7?v=1&q=a%20b", b"")
    assert "Content-Type" not in dict(one.request.headers)
    assert one.args_hash == digest(b'{"q":"a b","user":"7"}')


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_methods_with_a_body_send_one_even_without_args(method):
    """No args are an empty object."""
    one = frozen(make(method), None)
    assert (one.request.method, one.request.body) == (method, b"{}")
    assert dict(one.request.headers)["Content-Type"] == "application/json"


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_a_path_arg_cannot_climb(value):
    """A path arg that would name another resource is refused."""
    with pytest.raises(ArgumentsRefused, match="part of the URL's path"):
        frozen(make(url="https://a.test/u/{user}"), {"user": value})


@pytest.mark.parametrize("value", [None, {"a": 1}, [1], "\ud800"])
def test_a_path_arg_is_text_a_number_or_a_boolean(value):
    """Anything else has no one form in a URL."""
    with pytest.raises(ArgumentsRefused) as caught:
        frozen(make(url="https://a.test/u/{user}"), {} if value is None else {"user": value})
    assert caught.value.path == "$.user"


@pytest.mark.parametrize(
    "args",
    [
        {"a": {1, 2}},
        {"a": frozenset()},
        {"a": b"x"},
        {"a": decimal.Decimal(1)},
        {"a": float("nan")},
        {"a": uuid.UUID(int=1)},
        {"a": dt.date(2026, 1, 1)},
        {1: 2},
        {"a": "\ud800"},
        {"a": 2.0**60},
        [1],
        "text",
    ],
)
def test_args_without_one_canonical_form_are_refused(args):
    """What has no JSON form, or not the same one everywhere, is refused before anything is written."""
    made = make()
    with pytest.raises(ArgumentsRefused):
        frozen(made, args)


def test_models_bring_dates_enums_and_aliases():
    """A pydantic model writes itself as JSON, by alias; a dict is checked by the tool's model."""
    made = make(args=Order)
    args = {"region": "x", "when": dt.date(2026, 1, 2), "theNote": "n"}
    one, two = frozen(made, args), frozen(made, Order(**args))
    assert one == two
    assert json.loads(one.request.body) == {
        "region": "x",
        "gb": 20,
        "size": "s",
        "when": "2026-01-02",
        "theNote": "n",
    }


def test_a_model_may_be_given_to_a_tool_without_one_or_with_another():
    """A model given to an untyped tool is dumped; given to a tool with another model it is checked by that one."""

    class Small(BaseModel):
        region: str

    assert json.loads(frozen(make(), Small(region="x")).args) == {"region": "x"}
    assert validate(make(args=Order), Small(region="x")).given == {"region": "x"}


def test_args_that_the_model_refuses_say_where_and_not_what():
    """The message names the place and holds no value."""
    with pytest.raises(ArgumentsRefused) as caught:
        validate(make(args=Order), {"region": "x", "gb": "secret"})
    assert caught.value.path == "gb"
    assert "secret" not in str(caught.value)
    with pytest.raises(ArgumentsRefused, match="region"):
        validate(make(args=Order), None)


@pytest.mark.parametrize("value", [{"a": {1}}, [{2}], ({3},)])
def test_sets_inside_models_are_refused(value):
    """A set has another order in every process, also inside a model."""

    class Loose(BaseModel):
        value: object

    for given in (Loose(value=value), {"value": value}):
        with pytest.raises(ArgumentsRefused, match="set"):
            validate(make(args=Loose), given)
    with pytest.raises(ArgumentsRefused, match="set"):
        validate(make(), Loose(value=value))


@pytest.mark.parametrize("typed", [True, False])
def test_what_a_model_cannot_write_as_json_is_refused(typed):
    """A member without a JSON form is told as refused args, whichever way the model came."""

    class Loose(BaseModel):
        value: object

    with pytest.raises(ArgumentsRefused, match="cannot be written as JSON"):
        validate(make(args=Loose if typed else None), Loose(value=object()))


def test_the_key_goes_where_its_carrier_has_it():
    """Raw as it is, or as a structured field's quoted string; one that stands is replaced."""
    request = frozen(make(), {}).request
    assert dict(with_key(request, "k").headers)["Idempotency-Key"] == "k"
    quoted = with_key(request, "k", HeaderCarrier(name="X-Key", style="structured"))
    assert dict(quoted.headers)["X-Key"] == '"k"'
    again = with_key(with_key(request, "k1"), "k2")
    assert [value for name, value in again.headers if name == "Idempotency-Key"] == ["k2"]


def test_plain_headers_are_frozen_with_the_request():
    """A tool's own headers go into the row."""
    assert dict(frozen(make(headers={"X-App": "1"}), {}).request.headers)["X-App"] == "1"


def test_an_illegal_url_is_refused_before_anything_is_sent():
    """A URL that cannot go as it stands is refused."""
    with pytest.raises(ConfigError):
        frozen(make(url="https://a.test/\u00e9"), {})


def test_a_function_tool_has_no_request():
    """A function's args are hashed as canonical JSON, defaults included."""

    @tool(contract=KEYED)
    def pay(amount: int, currency: str = "EUR") -> int:
        return amount

    one = frozen(pay, {"amount": 5})
    assert one.request is None
    assert one.args == one.hashed == b'{"amount":5,"currency":"EUR"}'
    assert validate(pay, {"amount": 5}).given == {"amount": 5}


def test_frozen_values_do_not_change():
    """What is frozen cannot be written to."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        frozen(make(), {}).args = b""


def test_a_set_is_refused_also_where_a_list_field_would_take_it():
    """A set that a model would read as a list has another order in every process."""

    class Tagged(BaseModel):
        tags: list[str]

    class Other(BaseModel):
        tags: set[str]

    for given in ({"tags": {"a", "b"}}, Other(tags={"a", "b"})):
        with pytest.raises(ArgumentsRefused, match="set"):
            validate(make(args=Tagged), given)


def test_lists_of_a_model_go_as_they_are():
    """A list has one order everywhere."""

    class Tagged(BaseModel):
        tags: list[str]

    assert frozen(make(args=Tagged), {"tags": ["b", "a"]}).request.body == b'{"tags":["b","a"]}'


def test_args_that_hold_themselves_are_refused():
    """A cycle has no end in JSON, with a model and without."""

    class Loose(BaseModel):
        value: object

    cycle: dict = {}
    cycle["value"] = cycle
    for made in (make(), make(args=Loose)):
        with pytest.raises(ArgumentsRefused):
            validate(made, cycle)


def test_a_fill_that_cannot_stand_in_a_url_is_refused():
    """What a fill brings is checked like an arg."""
    made = make(query=("nonce",), fill={"nonce": "uuid"})
    with pytest.raises(ArgumentsRefused, match="lone surrogate"):
        frozen(made, {}, {"nonce": "\ud800"})


class Inner(BaseModel):
    ids: Any


@dataclasses.dataclass
class Outer:
    ids: Any


@pytest.mark.parametrize("value", [Inner(ids={1}), Outer(ids={1}), [Outer(ids=frozenset())], {"a": Inner(ids=({1},))}])
def test_a_set_inside_a_model_is_refused_too(value):
    """Its order differs in every process; the path tells where it stands."""
    with pytest.raises(ArgumentsRefused, match=r"ids.* is a set"):
        refuse_sets(value, "args", done="Nothing was sent")


def test_what_holds_no_set_passes():
    """Models, dataclasses and their types."""
    refuse_sets([Inner(ids=[1]), Outer(ids=1), Outer], "args", done="")
