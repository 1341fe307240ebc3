"""What error answers say of themselves."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime._core.problem import Problem, describe_error, read_problem
from agent_runtime._model import Answer, BodyState

PROBLEM = "application/problem+json"


def answer(body, *, status=409, kind=PROBLEM, **more):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status=status, headers=(("Content-Type", kind),), body=raw, **more)


def test_all_members_are_read():
    """Problem details are taken member by member, unknown ones as extensions."""
    body = {
        "type": "https://e.test/t",
        "title": "T",
        "detail": "D",
        "status": 409,
        "instance": "/i",
        "code": "c",
        "x": [1],
    }
    assert read_problem(answer(body)) == Problem(
        status=409,
        type="https://e.test/t",
        title="T",
        detail="D",
        instance="/i",
        code="c",
        extensions={"code": "c", "x": [1]},
    )


def test_P1_no_type_is_about_blank():
    """Problem details without a type mean no more than the status."""
    assert read_problem(answer({"title": "T"})).type == "about:blank"


def test_P2_members_of_a_wrong_type_are_absent():
    """A member of a wrong JSON type is as if it were not there."""
    body = {"type": 5, "title": ["x"], "detail": {}, "status": "409", "instance": None, "code": True}
    assert read_problem(answer(body)) == Problem(status=409, extensions={"code": True})


def test_P3_a_relative_type_is_resolved():
    """A relative type is resolved against the URL that was asked, where it is known."""
    assert read_problem(answer({"type": "/t/x"}), base="https://e.test/a/b").type == "https://e.test/t/x"
    assert read_problem(answer({"type": "/t/x"}, url="https://f.test/a")).type == "https://f.test/t/x"
    assert read_problem(answer({"type": "/t/x"})).type == "/t/x"
    assert read_problem(answer({"type": "http://["}), base="https://e.test/").type == "http://["


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b'{"type": "x',
        b"\xff\xfe\xfd",
        b"[1]",
        b"[" * 100000,
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b" " * 300000 + b'{"title": "T"}',
    ],
)
def test_P4_P6_an_unreadable_body_gives_the_status_only(body):
    """A labelled body that is no JSON, cut, nested too deep or far too long gives the status, and no exception."""
    assert read_problem(answer(body)) == Problem(status=409)


def test_P4_a_cut_body_is_not_read():
    """A body that did not come whole is not read, even where its beginning parses."""
    assert read_problem(answer({"title": "T"}, body_state=BodyState.CUT)) == Problem(status=409)


def test_P5_the_http_status_wins():
    """The body's status is advice; the status line counts."""
    assert read_problem(answer({"status": 422}, status=409)).status == 409


@pytest.mark.parametrize(
    ("body", "code", "detail"),
    [
        ({"error": {"code": "idempotency_key_in_use", "message": "M"}}, "idempotency_key_in_use", "M"),
        ({"error": {"code": 409, "status": "ABORTED", "message": "M"}}, "ABORTED", "M"),
        ({"error": {"code": None, "type": "rate_limit", "message": "M"}}, "rate_limit", "M"),
        ({"type": "error", "error": {"type": "overloaded_error"}}, "overloaded_error", None),
        ({"code": "in_progress", "message": "M"}, "in_progress", "M"),
        ({"code": 20003, "message": "M"}, "20003", "M"),
        ({"error": "invalid_grant", "error_description": "M"}, "invalid_grant", "M"),
        ({"error": {"message": "M"}}, None, "M"),
    ],
)
def test_vendor_codes_are_found(body, code, detail):
    """The vendors' own shapes give a code and a text, whatever the content type says."""
    problem = read_problem(answer(body, kind="text/plain"))
    assert (problem.code, problem.detail, problem.type) == (code, detail, "about:blank")


@pytest.mark.parametrize("body", [{}, {"message": "M"}, {"code": 409}, [1], b"oops"])
def test_a_body_of_no_known_shape_is_no_problem(body):
    """JSON without a problem's or an error's members says nothing."""
    assert read_problem(answer(body, kind="application/json")) is None


def test_a_type_beside_a_code_counts_only_as_a_uri():
    """With a vendor's code and no title, a member "type" is the problem's only if it is a URI."""
    assert read_problem(answer({"type": "urn:x", "code": "c"}, kind="application/json")).type == "urn:x"
    assert read_problem(answer({"type": "x"}, kind="application/json")).type == "x"


def test_a_good_answer_is_no_problem():
    """Below 400 only what is labelled as problem details is read."""
    assert read_problem(answer({"title": "T", "error": "e"}, status=200, kind="application/json")) is None
    assert read_problem(answer({"title": "T"}, status=200)).title == "T"


def test_texts_are_bounded_and_storable():
    """Texts are cut by bytes, lone surrogates are replaced, large extensions left out."""
    problem = read_problem(answer({"detail": "é" * 3000, "title": "a\ud800", "x": "y" * 5000}))
    assert problem.detail == "é" * 1024
    assert problem.title == "a?"
    assert problem.extensions == {}
    assert read_problem(answer({"x": "\ud800"})).extensions == {"x": "?"}


def test_describe_error_is_plain_json():
    """The ledger's description holds status, problem, snippet and the server's request id."""
    seen = Answer(status=502, headers=(("X-Request-Id", "r1"),), body=b"<html>" + b"\xff" * 4000)
    assert describe_error(seen) == {
        "status": 502,
        "problem": None,
        "snippet": "<html>" + "\ufffd" * 2042,
        "body_state": "whole",
        "request_id": "r1",
    }
    described = describe_error(answer({"title": "T"}))
    assert described["problem"]["title"] == "T"
    assert described["request_id"] is None


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
members = st.dictionaries(st.sampled_from(["type", "title", "detail", "status", "error", "code", "x"]), values)


@given(members.map(lambda body: json.dumps(body).encode()) | st.binary(), st.sampled_from([PROBLEM, "text/html"]))
def test_no_body_raises(body, kind):
    """Whatever the body, it is described as JSON that can be stored as UTF-8."""
    json.dumps(describe_error(answer(body, kind=kind)), ensure_ascii=False, allow_nan=False).encode()
