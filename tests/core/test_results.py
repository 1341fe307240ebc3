"""From the bytes of a success to a value."""

import datetime as dt
import enum
import json
import uuid

import pytest
from pydantic import BaseModel, ConfigDict

from agent_runtime._core.results import read_result
from agent_runtime._model import BodyState, ResultState
from tests.core.world import KEYED, tool_of


class Colour(enum.Enum):
    RED = "red"


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    when: dt.datetime
    ident: uuid.UUID
    colour: Colour


def read(body, result=None, state=BodyState.WHOLE):
    return read_result(body, state, tool_of(KEYED, result=result))


@pytest.mark.parametrize(
    ("body", "value"),
    [(b'{"a": 1}', {"a": 1}), (b"[]", []), (b"null", None), (b"", None), (b'"x"', "x"), (b" 7 ", 7)],
)
def test_A27_what_parses_as_json_is_json(body, value):
    """Whatever its content type says, JSON is JSON, and an empty body (a 204) is no value."""
    assert (read(body).state, read(body).value) == (ResultState.OK, value)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>sorry</html>",
        b"unsupported model",
        b" " * 4096,
        b'{"id":',
        b'{"x": NaN}',
        b'{"x": -Infinity}',
        b'{"x": 1e999}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"\x00",
    ],
)
def test_A27_what_is_no_json_is_unreadable(body):
    """A page, plain text, blanks, a cut text or a number that is none never passes for a result, and never raises."""
    reading = read(body)
    assert (reading.state, reading.value) == (ResultState.UNREADABLE, None)
    assert "no JSON" in reading.problem


@pytest.mark.parametrize("state", [BodyState.CUT, BodyState.OVERSIZED, BodyState.UNDECODABLE])
def test_A27_a_body_that_is_not_whole_is_unreadable(state):
    """Even if what came happens to parse."""
    reading = read(b"[1]", state=state)
    assert reading.state is ResultState.UNREADABLE
    assert state in reading.problem


def test_a_tool_of_text_or_bytes_takes_the_body_itself():
    """``bytes`` is the body as it came; ``str`` is JSON text if it is some, else the body as text."""
    assert read(b"\xff{", bytes).value == b"\xff{"
    assert read(b"hello", str).value == "hello"
    assert read(b'"hello"', str).value == "hello"
    assert read(b"\xff", str).value == "�"


def test_a_result_is_checked_as_json():
    """Dates, UUIDs and enums are read from their JSON forms also by strict models."""
    body = {"when": "2026-01-02T03:04:05Z", "ident": "8f14e45f-ceea-467f-8c3b-2f1f0d9a7b11", "colour": "red"}
    value = read(json.dumps(body).encode(), Strict).value
    assert (value.when.year, value.colour) == (2026, Colour.RED)


def test_a_result_that_the_model_refuses_is_kept_raw():
    """The value is the plain JSON, and the problem names where it does not fit, without the value."""
    reading = read(b'{"when": "secret"}', Strict)
    assert (reading.state, reading.value) == (ResultState.INVALID, {"when": "secret"})
    assert "ident: Field required" in reading.problem
    assert "secret" not in reading.problem
    assert "result: " in read(b"", int).problem
    assert read(b"", int | None).state is ResultState.OK
