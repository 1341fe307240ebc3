"""Keys, labels and names: the derivation, its golden vectors, and what is refused before any key exists."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import os
import re
import subprocess
import sys
import uuid
from importlib.resources import files
from itertools import combinations

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime._core.canonical import canonical_json, parse_json
from agent_runtime._core.keys import derive_key, derive_key_from_canonical, structured_field_string
from agent_runtime._model.key_formats import KEY_FORMATS, check_format, check_key, check_secret, check_sensitive
from agent_runtime._model.naming import (
    MAX_LABEL,
    check_address,
    check_alias,
    check_label,
    check_name,
    check_session_id,
    make_label,
    reissue_label,
    revised_label,
    undo_label,
)
from agent_runtime.errors import ArgumentsRefused, ConfigError
from agent_runtime.vectors import load
from tests.core.vectors import make_key_vectors

SESSION = "3f2c8a5e-7b1d-4c0f-9a6e-2d4b8c1e5f70"
SECRET = bytes(range(32))
FORMATS = ["composite", "sha256", "uuid"]
VECTORS = load()


def key(args=None, **changes):
    given_ = {"session_id": SESSION, "step": "step_003", "tool": "pay", "args": {"n": 1} if args is None else args}
    return derive_key(**{**given_, **changes})


# Golden vectors ------------------------------------------------------------------------------------------------------


def test_the_vectors_are_what_the_code_derives():
    """The shipped file is, byte for byte, what the derivation gives today."""
    shipped = files("agent_runtime.vectors").joinpath("keys.json").read_text(encoding="ascii")
    assert shipped == make_key_vectors.text()
    assert json.loads(shipped) == VECTORS


def independent_key(vector) -> str:
    """Derive a vector's key from its canonical text with nothing of the package's code."""
    session, step, tool, canonical = (vector[name] for name in ("session", "step", "tool", "canonical"))
    if vector["format"] == "composite":
        return f"{session}:{step}:{hashlib.sha256(canonical.encode()).hexdigest()}"
    if vector["format"] == "sha256":
        return hashlib.sha256(f"{session}:{step}:{tool}:{canonical}".encode()).hexdigest()
    document = f'{{"args":{canonical},"session":"{session}","step":"{step}","tool":"{tool}","v":1}}'.encode()
    if vector["secret_hex"]:
        raw = bytearray(hmac.new(bytes.fromhex(vector["secret_hex"]), document, hashlib.sha256).digest()[:16])
    else:
        raw = bytearray(hashlib.sha256(document).digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join([text[:8], text[8:12], text[12:16], text[16:20], text[20:]])


@pytest.mark.parametrize(
    "vector", VECTORS["keys"], ids=lambda v: f"{v['format']}-{v['scheme']}-{v['step']}-{v['args']}"
)
def test_the_vectors_follow_from_the_description(vector):
    """Each key follows from the described algorithm written anew, with the standard library alone."""
    assert independent_key(vector) == vector["key"]
    if vector["scheme"] == "python-json":
        body = json.loads(vector["canonical"])
        assert json.dumps(body, sort_keys=True, separators=(",", ":")) == vector["canonical"]


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda v: v["why"])
def test_the_refused_vectors_are_refused(vector):
    """What the vectors list as no arguments is refused when it is read."""
    with pytest.raises(ArgumentsRefused):
        parse_json(vector["args_text"])


# Derivation ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("scheme", ["jcs", "python-json"])
def test_canonical_bytes_give_the_same_key_as_the_arguments(form, scheme):
    """The form that takes canonical bytes derives the key that the arguments give."""
    args = {"b": "é\U0001f602", "a": [1, 2.5]}
    assert derive_key_from_canonical(
        session_id=SESSION, step="step_003", tool="pay", canonical=canonical_json(args, scheme), format=form
    ) == key(args, format=form, scheme=scheme)


@pytest.mark.parametrize("form", FORMATS)
def test_each_part_of_the_identity_changes_the_key(form):
    """Another session, label or arguments give another key; another tool does where the format has the tool."""
    keys = [
        key(format=form),
        key(format=form, session_id=SESSION.replace("3", "4")),
        key(format=form, step="step_004"),
        key(format=form, step="step_003.v2"),
        key(format=form, step="step_003.r1"),
        key({"n": 2}, format=form),
        key({"n": "1"}, format=form),
        key({"n": True}, format=form),
        key({"n": 1, "m": None}, format=form),
    ]
    if form != "composite":
        keys.append(key(format=form, tool="refund"))
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("form", FORMATS)
def test_equal_arguments_give_one_key(form):
    """Order of members and the spelling of a number do not change the key."""
    spellings = ['{"a":1000,"b":2}', '{"b":2,"a":1e3}', '{"b":2.0,"a":1000.0}']
    assert len({key(parse_json(text), format=form) for text in spellings}) == 1


def test_a_composite_key_is_session_label_and_args_hash():
    """The composite key reads as source servers split it: three parts, the last the hash of the canonical text."""
    args = {"storage_gb": 20, "region": "ap-southeast-1"}
    hashed = hashlib.sha256(b'{"region":"ap-southeast-1","storage_gb":20}').hexdigest()
    assert key(args) == f"{SESSION}:step_003:{hashed}"


def test_a_server_that_hashes_json_dumps_finds_its_hash_in_the_key():
    """In the python-json scheme the last part is the hash a server makes of the body it has read."""
    args = {"name": "Ayşe", "price": 1.0, "tiny": 1e-7}
    body = canonical_json(args, "python-json")
    at_the_server = json.dumps(json.loads(body), sort_keys=True, separators=(",", ":")).encode()
    assert key(args, scheme="python-json").split(":")[2] == hashlib.sha256(at_the_server).hexdigest()


@given(args=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.integers(), max_size=5))
def test_a_uuid_key_has_the_shape_of_version_4(args):
    """Each uuid key passes checks for version and variant, in lower case."""
    derived = key(args, format="uuid")
    assert uuid.UUID(derived).version == 4
    assert uuid.UUID(derived).variant == uuid.RFC_4122
    assert str(uuid.UUID(derived)) == derived


def test_a_uuid_key_is_cut_from_the_whole_document_in_the_tools_scheme():
    """The hashed document is one JSON document, written in the scheme of the arguments."""
    args = {"t": "é"}
    for scheme in ("jcs", "python-json"):
        document = {"v": 1, "session": SESSION, "step": "step_003", "tool": "pay", "args": args}
        raw = hashlib.sha256(canonical_json(document, scheme)).digest()
        assert key(args, format="uuid", scheme=scheme) == str(uuid.UUID(bytes=raw[:16], version=4))


def test_the_secret_changes_uuid_keys_only():
    """A deployment secret goes into uuid keys; the other formats, which servers recompute, do not use it."""
    assert key(format="uuid", secret=SECRET) != key(format="uuid")
    assert key(format="uuid", secret=SECRET) != key(format="uuid", secret=SECRET[::-1])
    assert key(format="composite", secret=SECRET) == key(format="composite")
    assert key(format="sha256", secret=SECRET) == key(format="sha256")


def test_a_short_secret_is_refused_and_not_shown():
    """A secret that could be found by trying is refused, by a message that does not hold it."""
    with pytest.raises(ConfigError, match="at least 16") as caught:
        key(format="uuid", secret=b"hunter2")
    assert "hunter2" not in str(caught.value)


def test_an_unknown_format_is_refused():
    """A format that does not exist is refused with those that do."""
    with pytest.raises(ConfigError, match="composite, sha256, uuid"):
        key(format="ulid")


@pytest.mark.parametrize(
    "changes",
    [
        {"session_id": SESSION.upper()},
        {"session_id": SESSION.replace("-", "")},
        {"session_id": f"{SESSION}\n"},
        {"step": "3"},
        {"step": "step_3"},
        {"tool": "a:b"},
    ],
    ids=repr,
)
def test_parts_that_could_make_a_key_ambiguous_are_refused(changes):
    """Ids, labels and names outside of their grammar make no key."""
    with pytest.raises(ConfigError):
        key(**changes)


# Field cases ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_A01_member_order_does_not_change_the_key_and_list_order_does(form):
    """The same object in another order has the same key; a list in another order has not."""
    assert key({"b": 2, "a": {"y": 1, "x": 2}}, format=form) == key({"a": {"x": 2, "y": 1}, "b": 2}, format=form)
    assert key([1, 2], format=form) != key([2, 1], format=form)


class Booking(pydantic.BaseModel):
    id: uuid.UUID
    day: dt.date


def test_A02_a_dumped_model_has_the_key_of_its_plain_json():
    """A model's JSON form and the same values as plain JSON have one key."""
    model = Booking(id=uuid.UUID(SESSION), day=dt.date(2026, 3, 1))
    assert key(model.model_dump(mode="json")) == key({"day": "2026-03-01", "id": SESSION})


@pytest.mark.parametrize("form", FORMATS)
def test_A02_what_cannot_be_written_makes_no_key(form):
    """A lambda, or a date outside of a model, is refused by a typed error."""
    for value in (lambda: None, dt.date(2026, 3, 1)):
        with pytest.raises(ArgumentsRefused):
            key({"a": value}, format=form)


KEYS_OF_ONE_PROCESS = """
from agent_runtime._core.keys import derive_key
from agent_runtime.errors import ArgumentsRefused
for form in ("composite", "sha256", "uuid"):
    for args in ({"b": 1, "a": {"d": "x", "c": [3]}}, {"tags": {"a", "b", "c"}}, {"n": frozenset({3, 1, 2})}):
        try:
            print(derive_key(session_id="%s", step="step_001", tool="t", args=args, format=form))
        except ArgumentsRefused as error:
            print(error)
"""


def test_A04_no_key_depends_on_the_process():
    """Keys and refusals are the same under any hash seed."""
    outputs = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        code = KEYS_OF_ONE_PROCESS % SESSION
        run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        outputs.add(run.stdout)
    (output,) = outputs
    assert output.count("JSON has no") == 6
    assert len(output.splitlines()) == 9


@pytest.mark.parametrize("form", FORMATS)
def test_A05_large_integers_have_keys_of_their_own(form):
    """Integers beyond 53 and 64 bits never share a key."""
    numbers = [2**53, 2**53 + 1, 2**64, 2**200]
    assert len({key({"n": number}, format=form) for number in numbers}) == 4


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_A05_numbers_that_json_cannot_carry_make_no_key(form, number):
    """NaN and the infinities are refused."""
    with pytest.raises(ArgumentsRefused):
        key({"n": number}, format=form)


# Labels --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("branch", "index", "label"),
    [
        ("", 1, "step_001"),
        ("", 999, "step_999"),
        ("", 1000, "step_1000"),
        ("flights", 1, "flights.step_001"),
        ("a.b-c_D", 12, "a.b-c_D.step_012"),
        ("step_003", 1, "step_003.step_001"),
        ("flights.step_003.v2.r1", 2, "flights.step_003.v2.r1.step_002"),
        ("step_003.inner", 1, "step_003.inner.step_001"),
    ],
)
def test_labels_name_branch_and_index(branch, index, label):
    """A label is the branch, a dot, and the index with three digits at least."""
    assert make_label(branch, index) == label


@pytest.mark.parametrize(
    ("branch", "index"), [("", 0), ("", -1), ("a:b", 1), ("a b", 1), (".", 1), ("a.", 1), ("é", 1), ("a\n", 1)]
)
def test_no_label_is_made_of_other_characters_or_below_one(branch, index):
    """An index below 1 or a branch outside of the grammar makes no label."""
    with pytest.raises(ConfigError):
        make_label(branch, index)


def test_labels_end_at_their_limit():
    """The longest label is made; one character more is refused by a message that says what to do."""
    branch = "b" * (MAX_LABEL - len(".step_001"))
    assert len(make_label(branch, 1)) == MAX_LABEL
    with pytest.raises(ConfigError, match="shorter names"):
        make_label(branch + "b", 1)


@pytest.mark.parametrize(
    "label",
    [
        "step_001",
        "step_1000",
        "a.step_001.v2",
        "step_001.v10.r1",
        "step_001.r12",
        "step_001.undo",
        "step_001.v2.r1.undo.r3",
        "step_001.undo.step_001",
    ],
)
def test_labels_are_known_by_their_grammar(label):
    """What the functions of this module make is a label."""
    check_label(label)


@pytest.mark.parametrize(
    "label",
    [
        "",
        "step",
        "step_1",
        "step_000",
        "step_0100",
        "step_001.v1",
        "step_001.v02",
        "step_001.r0",
        "step_001.r1.v2",
        "step_001.undo.undo",
        "step_001.flights",
        "flights",
        "flights:step_001",
        ".step_001",
        "step_001\n",
        "STEP_001",
        "step_\u0661\u0661\u0661",
    ],
)
def test_other_text_is_no_label(label):
    """Text outside of the grammar is refused."""
    with pytest.raises(ConfigError, match="no label"):
        check_label(label)


def test_endings_mark_revision_reissue_and_undo():
    """Each further use of a position has an ending of its own."""
    assert revised_label("flights.step_003", 2) == "flights.step_003.v2"
    assert revised_label("step_003.v2.r1", 3) == "step_003.v3"
    assert revised_label("step_003.v2.step_001.r1", 2) == "step_003.v2.step_001.v2"
    assert reissue_label("step_003", 1) == "step_003.r1"
    assert reissue_label("step_003.v2.r1", 2) == "step_003.v2.r2"
    assert reissue_label("step_003.r1.undo", 1) == "step_003.r1.undo.r1"
    assert undo_label("step_003.v2.r1") == "step_003.v2.r1.undo"


@pytest.mark.parametrize(
    "make",
    [
        lambda: revised_label("step_003", 1),
        lambda: reissue_label("step_003", 0),
        lambda: undo_label("step_003.undo"),
        lambda: revised_label("three", 2),
        lambda: reissue_label("three", 1),
        lambda: undo_label("three"),
    ],
)
def test_endings_that_would_say_nothing_are_refused(make):
    """Revisions count from 2, re-issues from 1, an undo is not undone."""
    with pytest.raises(ConfigError):
        make()


NAMES = ["a", "b", "a.b", "v", "step_", "step_a", "undone", "r", "x1"]


def test_no_two_positions_share_a_label():
    """Branches, steps inside of steps and endings never meet in one label."""
    main = [make_label("", 1), *(make_label(name, 1) for name in NAMES)]
    ended = [end for label in main for end in (revised_label(label, 2), reissue_label(label, 1), undo_label(label))]
    inner = [make_label(label, 1) for label in main + ended]
    named = [make_label(f"{label}.{name}", 1) for label in main + ended for name in NAMES]
    labels = main + ended + inner + named
    assert len(set(labels)) == len(labels)


@given(one=st.from_regex(r"[a-z0-9_.]{1,12}", fullmatch=True), other=st.from_regex(r"[a-z0-9_.]{1,12}", fullmatch=True))
def test_names_of_branches_never_look_like_labels(one, other):
    """A branch's name that is accepted holds no part that a label's own parts could be."""
    try:
        check_name("branch", one)
        check_name("branch", other)
    except ConfigError:
        return
    assert (make_label(one, 1) == make_label(other, 1)) == (one == other)
    for part in one.split("."):
        assert not re.fullmatch(r"step_\d+|v\d+|r\d+|undo", part)


# Names, aliases, addresses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["branch", "tool"])
@pytest.mark.parametrize(
    "name", ["a", "A-b_9", "a.b.c", "step_", "step_1a", "x" * 64, "step_by_step", "vv2", "undo-it"]
)
def test_names_of_the_grammar_are_taken(kind, name):
    """Letters, digits, dash and underscore in parts joined by dots are a name."""
    check_name(kind, name)


@pytest.mark.parametrize("kind", ["branch", "tool"])
@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a b",
        "a:b",
        "a/b",
        "é",
        "a\n",
        "x" * 65,
        "step_1",
        "step_001",
        "a.step_1",
        "step_1.a",
        "a.v2",
        "a.r1",
        "a.undo",
        "a.v2.b",
    ],
)
def test_names_outside_of_the_grammar_are_refused(kind, name):
    """Other characters, empty parts, over 64 characters and reserved parts are refused, naming the kind."""
    with pytest.raises(ConfigError, match=kind):
        check_name(kind, name)


@pytest.mark.parametrize("name", ["undo", "v2", "r1", "undo.file"])
def test_a_tool_may_be_called_what_a_branch_may_not(name):
    """Endings are reserved where something stands before them; in a branch that is always possible."""
    check_name("tool", name)
    with pytest.raises(ConfigError, match="reserved"):
        check_name("branch", name)


@pytest.mark.parametrize("text", ["orders-db", "Bestellung 7 für Ayşe", "a" * 512, "é" * 256, SESSION[:-1], "msg7.0"])
def test_aliases_and_addresses_are_any_text(text):
    """Any text up to 512 bytes is taken."""
    check_alias(text)
    check_address(text)


@pytest.mark.parametrize("text", ["", "a" * 513, "é" * 257, "a\0b", "\ud800"], ids=repr)
def test_texts_that_cannot_be_stored_are_refused(text):
    """Nothing, more than 512 bytes, NUL and half characters are refused."""
    with pytest.raises(ConfigError, match="alias"):
        check_alias(text)
    with pytest.raises(ConfigError, match="address"):
        check_address(text)


@pytest.mark.parametrize("text", [SESSION, SESSION.upper(), f" {SESSION}\n"])
def test_an_alias_that_looks_like_a_session_id_is_refused(text):
    """A UUID in any case is no alias; as an address it is."""
    with pytest.raises(ConfigError, match="looks like a session id"):
        check_alias(text)
    check_address(text)


def test_session_ids_are_uuids_in_lower_case():
    """An id of another shape is refused."""
    check_session_id(SESSION)
    with pytest.raises(ConfigError, match="UUID in lower case"):
        check_session_id(SESSION.upper())


# Carriers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a", "order 7", SESSION, '"quoted"', "~!"])
def test_keys_of_visible_ascii_are_taken(text):
    """Visible characters, with spaces inside, are a key."""
    check_key(text, max_length=255)


@pytest.mark.parametrize("text", ["", " a", "a ", " ", "a\tb", "a\r\nX: y", "a\0", "a\x7f", "é", "\ud800"], ids=repr)
def test_keys_that_change_on_the_way_are_refused(text):
    """What a header drops, strips or splits at is no key."""
    with pytest.raises(ConfigError, match="visible ASCII"):
        check_key(text, max_length=255)


def test_keys_are_bound_by_their_carrier():
    """Length and pattern of the carrier hold for the whole key."""
    check_key("abc", max_length=3, pattern="[a-c]+")
    with pytest.raises(ConfigError, match="takes 2"):
        check_key("abc", max_length=2)
    with pytest.raises(ConfigError, match="does not match"):
        check_key("abcd", max_length=9, pattern="[a-c]+")
    with pytest.raises(ConfigError, match="no regular expression"):
        check_key("abc", max_length=9, pattern="[")


@pytest.mark.parametrize("form", FORMATS)
def test_the_description_of_a_format_holds_for_its_keys(form):
    """The shortest and the longest key have the lengths that the format states, and only characters of its samples."""
    longest = "b" * (MAX_LABEL - len(".step_001")) + ".step_001"
    keys = [key(format=form, step="step_001"), key(format=form, step=longest), *KEY_FORMATS[form].samples]
    assert len(keys[0]) == KEY_FORMATS[form].shortest
    assert len(keys[1]) == KEY_FORMATS[form].longest
    assert set(keys[0] + keys[1]) <= set("".join(KEY_FORMATS[form].samples))
    for sample in keys:
        check_key(sample, max_length=KEY_FORMATS[form].longest)
        assert len(sample) >= KEY_FORMATS[form].shortest


def test_samples_hold_each_character_of_a_label():
    """The samples of the composite format show all that a label can hold, so that a pattern is tried on all of it."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    shown = set("".join(KEY_FORMATS["composite"].samples))
    assert shown == set(letters + letters.upper() + "0123456789_-.:")
    for sample in KEY_FORMATS["composite"].samples:
        check_label(sample.split(":")[1])


@pytest.mark.parametrize(
    ("form", "max_length", "pattern"),
    [
        ("composite", 255, None),
        ("composite", 255, r"[^:]+:[^:]+:[0-9a-f]{64}"),
        ("sha256", 64, r"[A-Za-z0-9_-]+"),
        ("uuid", 36, r"[0-9a-f-]{36}"),
    ],
)
def test_a_format_that_fits_its_carrier_is_taken(form, max_length, pattern):
    """A format whose longest key fits and whose samples match is taken."""
    check_format(form, max_length=max_length, pattern=pattern)


@pytest.mark.parametrize(
    ("form", "max_length", "pattern", "fitting"),
    [
        ("composite", 128, None, "sha256, uuid"),
        ("composite", 255, "[A-Za-z0-9-]+", "sha256, uuid"),
        ("composite", 255, r"[0-9a-f-]+:step_\d+:[0-9a-f]+", "none"),
        ("sha256", 63, None, "uuid"),
        ("uuid", 32, None, "none"),
        ("uuid", 64, "[0-9a-f]+", "sha256"),
    ],
)
def test_a_format_that_does_not_fit_is_refused_with_those_that_do(form, max_length, pattern, fitting):
    """A format of which any key could be too long or of other characters is refused, naming what fits."""
    with pytest.raises(ConfigError, match=f"fitting: {fitting}"):
        check_format(form, max_length=max_length, pattern=pattern)


def test_an_unknown_format_is_refused_for_any_carrier():
    """A format that does not exist fits nothing."""
    with pytest.raises(ConfigError, match="no key format"):
        check_format("ulid", max_length=255)


def test_a_sensitive_tool_needs_uuid_and_secret():
    """Only a uuid key under a secret of some length hides the arguments."""
    check_sensitive("uuid", SECRET)
    check_secret(SECRET[:16])
    for form, secret in [("composite", SECRET), ("sha256", SECRET), ("uuid", None), ("uuid", b""), ("uuid", b"x" * 15)]:
        with pytest.raises(ConfigError):
            check_sensitive(form, secret)


@pytest.mark.parametrize(
    ("text", "field"), [("abc", '"abc"'), ('a"b', r'"a\"b"'), ("a\\b", r'"a\\b"'), ('\\"', r'"\\\""'), ("", '""')]
)
def test_structured_fields_are_quoted_and_escaped(text, field):
    """Quote and backslash are escaped, all else stands as it is."""
    assert structured_field_string(text) == field


@pytest.mark.parametrize("text", ["é", "a\n", "\x7f", "\x1f"], ids=repr)
def test_structured_fields_hold_visible_ascii_only(text):
    """A character that the field cannot hold is refused."""
    with pytest.raises(ConfigError, match="0x20 to 0x7E"):
        structured_field_string(text)


@given(
    texts=st.lists(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=6), min_size=2, max_size=4)
)
def test_structured_fields_tell_keys_apart(texts):
    """Two keys never share a field."""
    for one, other in combinations(texts, 2):
        assert (structured_field_string(one) == structured_field_string(other)) == (one == other)
