"""Canonical JSON: RFC 8785 with exact integers, and the scheme of json.dumps."""

from __future__ import annotations

import ast
import datetime as dt
import decimal
import enum
import hashlib
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import sys
import uuid
from collections import OrderedDict
from typing import NamedTuple

import pydantic
import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from agent_runtime._core import canonical
from agent_runtime._core.canonical import MAX_DEPTH, MAX_DIGITS, canonical_json, digest, parse_json
from agent_runtime.errors import ArgumentsRefused, ConfigError

VECTORS = json.loads((pathlib.Path(__file__).parent / "vectors" / "jcs_vectors.json").read_text(encoding="utf-8"))
SCHEMES = ["jcs", "python-json"]
BIG = 2.0**53


def by_name(entries):
    return [pytest.param(entry, id=entry["name"]) for entry in entries]


def has_big_whole_float(value):
    if isinstance(value, dict):
        return any(has_big_whole_float(item) for item in value.values())
    if isinstance(value, list):
        return any(has_big_whole_float(item) for item in value)
    return isinstance(value, float) and value.is_integer() and abs(value) > BIG


def double(bits: int) -> float:
    return struct.unpack(">d", bits.to_bytes(8, "big"))[0]


def generated_numbers(count: int):
    """The sequence of the upstream number generator, as the vectors' file describes it."""
    static = [int(text, 16) for text in VECTORS["number_generator_static_u64_hex"]]
    yield from static
    serial = [0x0010000000000000 + index for index in range(2000)]
    yield from serial
    block, made = bytes(32), len(static) + len(serial)
    while made < count:
        block = hashlib.sha256(block).digest()
        for (bits,) in struct.iter_unpack("<Q", block):
            number = double(bits)
            if number != 0.0 and math.isfinite(number):
                yield bits
                made += 1


# RFC 8785 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", by_name(VECTORS["structured"] + VECTORS["extra"]))
def test_the_encoder_writes_the_vectors_of_rfc_8785(vector):
    """The jcs encoder, limits aside, gives the published text for each published value."""
    assert canonical._jcs(json.loads(vector["input"])) == vector["canonical"]
    assert digest(vector["canonical"].encode()) == vector["sha256"]


@pytest.mark.parametrize("vector", by_name(VECTORS["structured"] + VECTORS["extra"]))
def test_published_values_are_written_or_refused_for_a_float_beyond_2_53(vector):
    """A published value is written as published, unless it holds a whole float beyond 2**53, which is refused."""
    value = json.loads(vector["input"])
    if has_big_whole_float(value):
        with pytest.raises(ArgumentsRefused, match=r"2\*\*53"):
            canonical_json(value)
    else:
        assert canonical_json(value) == vector["canonical"].encode()


@pytest.mark.parametrize("vector", VECTORS["numbers"], ids=lambda vector: vector["ieee754_hex"])
def test_numbers_are_written_as_ecmascript_does(vector):
    """Each published bit pattern has the published text or is refused."""
    number = double(int(vector["ieee754_hex"], 16))
    if vector["error"] or has_big_whole_float(number):
        with pytest.raises(ArgumentsRefused):
            canonical_json(number)
    else:
        assert canonical_json(number) == vector["expected"].encode()
    if not vector["error"]:
        assert canonical._jcs(number) == vector["expected"]


@pytest.mark.parametrize("entry", VECTORS["number_generator_hashes"][:3], ids=lambda entry: str(entry["lines"]))
def test_generated_numbers_have_the_published_hash(entry):
    """The first thousand, ten and hundred thousand numbers of the upstream generator hash as published."""
    count = entry["lines"]
    bits = [number for number, _ in zip(generated_numbers(count), range(count), strict=False)]
    lines = "".join(f"{number:x},{canonical._jcs(double(number))}\n" for number in bits).encode()
    assert (len(lines), digest(lines)) == (entry["bytes"], entry["sha256"])


EXACT = {"int-2^53", "int-min"}


def refused_value(entry):
    names = {"Decimal": decimal.Decimal, "datetime": dt.datetime, "float": float}
    source = entry["python"]
    if entry["name"] == "cyclic":
        value: list = []
        value.append(value)
        return value
    try:
        return ast.literal_eval(source)
    except ValueError:
        return eval(source, {"__builtins__": {}}, names)


@pytest.mark.parametrize("entry", by_name(e for e in VECTORS["must_error"] if "python" in e and e["name"] not in EXACT))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_values_that_must_be_errors_are_refused(entry, scheme):
    """What the vectors list as an error is refused in both schemes, integers at 2**53 excepted."""
    with pytest.raises(ArgumentsRefused):
        canonical_json(refused_value(entry), scheme)


@pytest.mark.parametrize("entry", by_name(e for e in VECTORS["must_error"] if "json" in e))
def test_texts_that_must_be_errors_are_refused(entry):
    """What the vectors list as an erroneous text is refused when it is read."""
    with pytest.raises(ArgumentsRefused):
        parse_json(entry["json"])


@pytest.mark.parametrize("entry", by_name(e for e in VECTORS["must_error"] if e["name"] in EXACT))
def test_integers_at_2_53_keep_their_digits(entry):
    """The two entries on integers, where this package goes beyond the RFC, are written in full."""
    number = eval(entry["python"], {"__builtins__": {}})
    assert canonical_json(number) == str(number).encode()


def test_strings_are_written_as_the_reference_does():
    """Every character but the surrogates is written by the standard encoder as by the reference."""
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x11000), 0x1F602, 0x10FFFF]))
    assert canonical_json(every) == rfc8785.dumps(every)


# Equality ------------------------------------------------------------------------------------------------------------

texts = st.text(max_size=8)
numbers = st.one_of(
    st.integers(),
    st.integers(min_value=-4, max_value=4),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda f: not has_big_whole_float(f)),
    st.sampled_from([-0.0, 1.0, 0.5, 1e-4, 1e-5, 1e-7, 2.0**53, -(2.0**53), 0.1, 2**53, 2**53 + 1, 10**22]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=3).map(tuple), st.dictionaries(texts, inner, max_size=4)
    ),
    max_leaves=12,
)


def equal(one, other) -> bool:
    """Whether two JSON values are equal: Python's ==, Booleans told from numbers, tuples taken as lists."""
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(equal(one[name], other[name]) for name in one)
        )
    if isinstance(one, list | tuple):
        return (
            isinstance(other, list | tuple)
            and len(one) == len(other)
            and all(equal(a, b) for a, b in zip(one, other, strict=True))
        )
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def shuffled(value, seed: random.Random):
    if isinstance(value, dict):
        members = [(name, shuffled(item, seed)) for name, item in value.items()]
        seed.shuffle(members)
        return dict(members)
    if isinstance(value, list | tuple):
        return [shuffled(item, seed) for item in value]
    return value


@pytest.mark.parametrize("scheme", SCHEMES)
@given(value=values, seed=st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter(value, seed, scheme):
    """Members in any order, at any level, give the same bytes."""
    assert canonical_json(shuffled(value, seed), scheme) == canonical_json(value, scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(value=values)
def test_reading_and_writing_again_changes_nothing(value, scheme):
    """What was written is read and written again as the same bytes."""
    data = canonical_json(value, scheme)
    assert canonical_json(json.loads(data), scheme) == data
    assert canonical_json(parse_json(data), scheme) == data


@given(value=values)
def test_what_is_written_has_the_value_that_was_given(value):
    """The canonical text stands for a value equal to the one that was given."""
    assert equal(parse_json(canonical_json(value)), value)


@given(one=values, other=values)
@example(one=1, other=1.0)
@example(one=True, other=1)
@example(one=0, other=-0.0)
@example(one=2.0**53, other=2**53)
@example(one=2.0**53, other=2**53 + 1)
@example(one=10**22, other=10**22 + 1)
@example(one={"a": 1}, other={"a": 1, "b": None})
@example(one="1", other=1)
@example(one="\u00e5", other="a\u030a")
@example(one=[1, [2]], other=(1.0, (2.0,)))
def test_bytes_are_equal_exactly_if_values_are(one, other):
    """Equal values have equal bytes, values that differ have bytes that differ."""
    assert (canonical_json(one) == canonical_json(other)) == equal(one, other)


@given(one=numbers, other=numbers)
def test_numbers_have_equal_bytes_exactly_if_they_are_equal(one, other):
    """Ints and floats of one value have one text, and no two numbers share one."""
    assert (canonical_json(one) == canonical_json(other)) == (one == other)


anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters(), max_size=6),
        st.text(st.characters(categories=["Cs", "Lu"]), max_size=3),
        st.binary(max_size=2),
        st.just(uuid.UUID(int=7)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(texts, st.text(st.characters(categories=["Cs", "Co", "So"]), max_size=2)), inner),
        st.dictionaries(st.one_of(texts, st.integers(), st.none()), inner, max_size=2),
        st.frozensets(st.integers(), max_size=2),
    ),
    max_leaves=10,
)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(value=anything)
@example(value={"\ufb33": 1, "\U0001f602": 2})
@example(value={"\ufb33": 1, "\u20ac": 2})
@example(value=1e-5)
@example(value=double(0x3F1A36E2EB1C432D))
@example(value=-1e-4)
@example(value={"a": "\ud800"})
@example(value="\\ud800")
def test_the_fast_path_writes_what_the_careful_path_writes(value, scheme):
    """Where the fast path writes anything, it is what the careful path writes; what is refused it leaves alone."""
    fast = canonical._fast(value, scheme)
    if fast is not None:
        assert fast == canonical._careful(value, scheme)


@given(value=values)
def test_the_jcs_scheme_is_rfc_8785_wherever_the_rfc_is_exact(value):
    """Where the reference takes a value, the bytes are the reference's."""
    try:
        expected = rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        return
    assert canonical_json(value) == expected


@given(value=values)
def test_the_python_scheme_is_json_dumps(value):
    """The second scheme gives what a server gets that hashes json.dumps of the body it has read."""
    data = canonical_json(value, "python-json")
    assert data.decode() == json.dumps(value, sort_keys=True, separators=(",", ":"))
    assert data.decode() == json.dumps(json.loads(data), sort_keys=True, separators=(",", ":"))


def test_a_flat_object_takes_the_fast_path():
    """Ordinary arguments are written by the C encoder."""
    args = {"region": "ap-southeast-1", "storage_gb": 20, "ha": True, "note": None, "price": 19.99, "tags": ["é"]}
    assert canonical._fast(args, "jcs") == canonical_json(args)


# Field cases ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_A01_objects_equal_but_for_member_order_are_one_text(scheme):
    """Members in another order, inner ones too, are the same arguments."""
    one, other = {"b": 2, "a": {"y": 1, "x": 2}}, {"a": {"x": 2, "y": 1}, "b": 2}
    assert canonical_json(one, scheme) == canonical_json(other, scheme) == b'{"a":{"x":2,"y":1},"b":2}'


@pytest.mark.parametrize("scheme", SCHEMES)
def test_A01_lists_in_another_order_are_two_texts(scheme):
    """The order of a list is meaning."""
    assert canonical_json([1, 2], scheme) != canonical_json([2, 1], scheme)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Word(enum.StrEnum):
    YES = "yes"


class Inner(pydantic.BaseModel):
    colour: Colour


class Order(pydantic.BaseModel):
    id: uuid.UUID
    day: dt.date
    at: dt.datetime
    inner: Inner
    retries: int = 3


ORDER = Order(
    id=uuid.UUID("3f2c8a5e-7b1d-4c0f-9a6e-2d4b8c1e5f70"),
    day=dt.date(2026, 3, 1),
    at=dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC),
    inner=Inner(colour=Colour.RED),
)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_A02_a_dumped_model_and_plain_json_are_one_text(scheme):
    """A model's JSON form and the same values typed out are the same arguments."""
    plain = {
        "id": "3f2c8a5e-7b1d-4c0f-9a6e-2d4b8c1e5f70",
        "day": "2026-03-01",
        "at": "2026-03-01T12:00:00Z",
        "inner": {"colour": "red"},
        "retries": 3,
    }
    assert canonical_json(ORDER.model_dump(mode="json"), scheme) == canonical_json(plain, scheme)


def test_A02_a_default_left_out_and_a_default_given_are_one_text():
    """A model dumped in full has its default, given or not."""
    explicit = Order(**{**ORDER.model_dump(), "retries": 3})
    assert explicit.model_fields_set != ORDER.model_fields_set
    assert canonical_json(explicit.model_dump(mode="json")) == canonical_json(ORDER.model_dump(mode="json"))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "value",
    [
        lambda: None,
        ORDER,
        ORDER.id,
        ORDER.day,
        ORDER.at,
        Colour.RED,
        Level.HIGH,
        Word.YES,
        decimal.Decimal("1.10"),
        b"x",
        bytearray(b"x"),
        {1},
        frozenset({1}),
        iter([1]),
        object(),
        1j,
        {"a": 1}.keys(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_A02_values_that_json_does_not_have_are_refused_with_their_place(value, scheme):
    """A value of another type is refused by a typed error that says where it stands and what to do."""
    with pytest.raises(ArgumentsRefused, match=r"^\$\.a\[1\]: .*pass") as caught:
        canonical_json({"a": [0, value]}, scheme)
    assert caught.value.path == "$.a[1]"


SETS = """
from agent_runtime._core.canonical import canonical_json, digest
from agent_runtime.errors import ArgumentsRefused
for scheme in ("jcs", "python-json"):
    for args in ({"tags": {"a", "b", "c"}}, {"n": frozenset({3, 1, 2})}):
        try:
            print(digest(canonical_json(args, scheme)))
        except ArgumentsRefused as error:
            print(error)
    print(digest(canonical_json({"b": 1, "a": {"d": 2, "c": [3]}, "e": "x"}, scheme)))
"""


def test_A04_no_text_depends_on_the_process():
    """Sets are refused with the same words, and other arguments have the same hash, whatever the hash seed is."""
    outputs = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", SETS], env=env, capture_output=True, text=True, check=True)
        outputs.append(run.stdout)
    assert outputs[0] == outputs[1]
    assert outputs[0].count("JSON has no") == 4


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_A05_numbers_that_json_cannot_carry_are_refused(number, scheme):
    """NaN and the infinities are refused, never turned into null."""
    with pytest.raises(ArgumentsRefused, match=r"^\$\.n: JSON has no NaN"):
        canonical_json({"n": number}, scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_A05_integers_keep_all_their_digits(scheme):
    """Integers beyond 53 and 64 bits are written in full, so no two of them share a text."""
    numbers = [2**53, 2**53 + 1, 2**64, 2**200]
    assert [canonical_json(number, scheme) for number in numbers] == [str(number).encode() for number in numbers]


# Refusals and edges --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("number", [1e16, -1e16, 2.0**53 + 2, 1e23, 1.7976931348623157e308])
def test_whole_floats_beyond_2_53_are_refused(number, scheme):
    """A float that stands for several integers is refused, since its text would be another integer's."""
    with pytest.raises(ArgumentsRefused, match=r"beyond 2\*\*53"):
        canonical_json(number, scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", [1, None, True, 1.5, ("a",), Word.YES])
def test_names_that_are_no_text_are_refused(name, scheme):
    """A name that json.dumps would turn into text is refused."""
    with pytest.raises(ArgumentsRefused, match="names are plain text") as caught:
        canonical_json({"a": {name: 1}}, scheme)
    assert caught.value.path == "$.a"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udc00\ud800"])
def test_lone_surrogates_are_refused_in_values_and_names(text, scheme):
    """Half a character is refused wherever it stands."""
    with pytest.raises(ArgumentsRefused, match="lone surrogate"):
        canonical_json({"a": text}, scheme)
    with pytest.raises(ArgumentsRefused, match="lone surrogate"):
        canonical_json({text: 1}, scheme)


def nest(depth, empty):
    value = empty
    for _ in range(depth - 1):
        value = {"a": value} if isinstance(empty, dict) else [value]
    return value


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("empty", [[], {}, ()], ids=["list", "dict", "tuple"])
def test_depth_is_bounded(scheme, empty):
    """The deepest nesting allowed is written, one level more is refused."""
    assert canonical_json(nest(MAX_DEPTH, empty), scheme)
    with pytest.raises(ArgumentsRefused, match="deeper than 64"):
        canonical_json(nest(MAX_DEPTH + 1, empty), scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_cycles_are_refused_at_once(scheme):
    """What contains itself, twice in each level, is refused without walking it all."""
    value: list = []
    value.extend([value, value])
    with pytest.raises(ArgumentsRefused, match="contains itself"):
        canonical_json(value, scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("sign", [1, -1])
def test_integers_are_bounded_by_their_digits(scheme, sign):
    """An integer of 4300 digits is written, one of 4301 is refused by a typed error."""
    number = sign * (10**MAX_DIGITS - 1)
    assert canonical_json({"n": number}, scheme).strip(b'{}"n:-') == b"9" * MAX_DIGITS
    with pytest.raises(ArgumentsRefused, match="more than 4300 digits") as caught:
        canonical_json({"n": sign * 10**MAX_DIGITS}, scheme)
    assert caught.value.path == "$.n"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_process_that_converts_fewer_digits_refuses_by_a_typed_error(scheme):
    """Where Python's own limit was lowered, a long integer is refused and not a ValueError."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        with pytest.raises(ArgumentsRefused, match="set_int_max_str_digits"):
            canonical_json([10**1000], scheme)
    finally:
        sys.set_int_max_str_digits(before)


class Text(str):
    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other

    def __str__(self):
        return "something else"


class Number(int):
    def __repr__(self):
        return "something else"


class Point(NamedTuple):
    x: int
    y: float


class Real(float):
    def __repr__(self):
        return "something else"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_subclasses_count_by_their_plain_value(scheme):
    """A subclass of a JSON type is written as the plain value it holds."""
    value = OrderedDict([("b", Text("t")), ("a", Point(Number(7), Real(1.5)))])
    assert canonical_json(value, scheme) == b'{"a":[7,1.5],"b":"t"}'


def test_two_names_that_are_one_text_are_refused():
    """Two keys that Python tells apart and JSON does not are refused."""
    with pytest.raises(ArgumentsRefused, match="stands twice") as caught:
        canonical_json({Text("a"): 1, Text("a"): 2})
    assert caught.value.path == "$.a"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, "$"),
        ({"a b": [math.nan]}, '$["a b"][0]'),
        ({"": math.nan}, '$[""]'),
        ({"\ud800": 1}, '$["\\ud800"]'),
        ([0, {"b": (1, {"c-d": math.nan})}], "$[1].b[1].c-d"),
    ],
)
def test_the_error_says_where(value, path):
    """A refusal names the place in plain ASCII, as an attribute and in its message."""
    with pytest.raises(ArgumentsRefused) as caught:
        canonical_json(value)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")


def test_refusals_do_not_show_values():
    """The message of a refusal holds the place and the type, never the value."""
    with pytest.raises(ArgumentsRefused) as caught:
        canonical_json({"password": b"hunter2"})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ArgumentsRefused) as caught:
        parse_json(b'{"password": "hunter2 \xff"}')
    assert "hunter2" not in str(caught.value)


def test_an_unknown_scheme_is_a_config_error():
    """A scheme that does not exist is refused with those that do."""
    with pytest.raises(ConfigError, match="jcs, python-json"):
        canonical_json({}, "xml")


def test_arguments_are_not_changed():
    """Writing leaves the value as it was."""
    value = {"b": [1.0, (2, 3)], "a": "\U0001f602"}
    canonical_json(value)
    assert list(value) == ["b", "a"]
    assert value["b"] == [1.0, (2, 3)]


def test_the_digest_is_sha256_in_hexadecimal():
    """The digest of no bytes is the well-known one."""
    assert digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


# Reading -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a":1,"a":2}', 'name "a" stands twice'),
        ('[{"x":{"a":1,"\\u0061":1}}]', 'name "a" stands twice'),
        ("[NaN]", "NaN is no JSON number"),
        ("[Infinity]", "Infinity is no JSON number"),
        ("[-Infinity]", "-Infinity is no JSON number"),
        ("1e400", "no infinity"),
        ("-1e400", "no infinity"),
        ("9007199254740994.0", r"beyond 2\*\*53"),
        ('{"a":"\\ud800"}', r"\$\.a: .*lone surrogate"),
        ('{"\\uDC00":1}', "lone surrogate"),
        ('"\ud800"', "lone surrogate"),
        ("", "not readable as JSON"),
        ("{", "not readable as JSON"),
        ("[1,]", "not readable as JSON"),
        ("1 2", "not readable as JSON"),
        ("\ufeff{}", "not readable as JSON"),
        (b"\xef\xbb\xbf{}", "not readable as JSON"),
        (b'"\xff"', "not readable as JSON: invalid start byte"),
        (b'{\x00"\x00', "not readable as JSON"),
        ("1" * (MAX_DIGITS + 1), "not readable as JSON"),
        ("[" * 65 + "]" * 65, "deeper than 64"),
        ("[" * 200_000, "deeper than 64"),
        ('{"a":' * 65 + "1" + "}" * 65, "deeper than 64"),
        ('["\\"[",' * 65 + "1" + "]" * 65, "deeper than 64"),
        ('"' + '\\"[' * 200_000, "not readable as JSON"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_text_that_could_be_read_in_two_ways_is_refused(text, reason):
    """What is not JSON, or what readers of JSON disagree about, is refused by a typed error."""
    with pytest.raises(ArgumentsRefused, match=reason):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"b":[1,2.5,"x"],"a":null}', {"b": [1, 2.5, "x"], "a": None}),
        (b'"\xc3\xa9"', "é"),
        ('"\\ud83d\\ude02"', "\U0001f602"),
        ("18446744073709551617", 2**64 + 1),
        ("-0.0", -0.0),
        ("[" * 64 + "]" * 64, nest(64, [])),
        ("[" + ",".join(["[]"] * 100) + "]", [[]] * 100),
        ('["' + "[{" * 100 + '"]', ["[{" * 100]),
        ('["\\"' + "[{" * 100 + '\\\\"]', ['"' + "[{" * 100 + "\\"]),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_json_is_read_exactly(text, value):
    """Plain JSON is read with all digits; brackets inside strings are no nesting."""
    assert parse_json(text) == value


def test_a_text_that_is_too_long_is_not_read():
    """A text beyond the limit is refused before anything is done with it."""
    assert parse_json("[1]", max_length=3) == [1]
    with pytest.raises(ArgumentsRefused, match="longer than the limit of 2"):
        parse_json("[1]", max_length=2)


@given(text=st.one_of(st.text(st.characters(), max_size=20), st.binary(max_size=20)))
def test_any_text_is_read_or_refused(text):
    """No text makes the reader fail in another way than by its typed error."""
    try:
        value = parse_json(text)
    except ArgumentsRefused:
        return
    assert equal(parse_json(canonical_json(value)), value)
