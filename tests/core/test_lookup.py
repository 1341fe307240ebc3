"""Asking the tool what became of an operation, and reading what it says."""

import dataclasses
import json

import pytest

from agent_runtime import HttpLookup, tool
from agent_runtime._core.lookup import Seen, lookup_request, read_lookup
from agent_runtime._model import Answer, BodyState, Effect, ResultState
from agent_runtime.config import Member
from agent_runtime.errors import ConfigError
from tests.core.world import KEYED, LOST, SESSION, START, fresh, json_answer, make_call, scripted, tool_of
from tests.core.world import call_of as call

FULL = HttpLookup(
    url="/operations/{key}",
    done=Member(name="data.state", equals="done"),
    running=Member(name="data.state", equals="running"),
    absent=Member(name="data.state", equals="absent"),
    result="data.body",
    status="data.status",
)
BARE = HttpLookup(url="/operations/{key}")


def operation(**more):
    world = fresh(scripted(LOST))
    make_call(world, world.desk(), call(tool_of(KEYED), {"amount": 500, "note": "a/b"}))
    (one,) = world.ledger.operations.values()
    return dataclasses.replace(one, **more)


def told(**data):
    return json_answer(200, {"data": data})


def see(answer, lookup=FULL, **more):
    return read_lookup(answer, lookup, tool_of(KEYED, **more), now=START)


@pytest.mark.parametrize(
    ("answer", "lookup", "seen"),
    [
        (told(state="done", status=200, body={"a": 1}), FULL, Seen.DONE),
        (told(state="done", status=402, body={}), FULL, Seen.FAILED),
        (told(state="done", status=202, body={"job_id": "j"}), FULL, Seen.ACCEPTED),
        (told(state="running"), FULL, Seen.RUNNING),
        (told(state="absent"), FULL, Seen.ABSENT),
        (told(state="other"), FULL, Seen.NOTHING),
        (told(state=True), FULL, Seen.NOTHING),
        (told(state="done"), FULL, Seen.NOTHING),
        (told(state="done", status="200"), FULL, Seen.NOTHING),
        (told(state="done", status=True), FULL, Seen.NOTHING),
        (told(state="done", status=303), FULL, Seen.NOTHING),
        (told(state="done", status=99), FULL, Seen.NOTHING),
        (json_answer(200, [1]), FULL, Seen.NOTHING),
        (json_answer(200, {"id": 7}), BARE, Seen.DONE),
        (json_answer(404), BARE, Seen.ABSENT),
        (json_answer(404), FULL, Seen.ABSENT),
        (Answer(status=404, body=b"{", body_state=BodyState.CUT), BARE, Seen.NOTHING),
        (Answer(status=200, body=b"{", body_state=BodyState.CUT), BARE, Seen.NOTHING),
        (Answer(status=200, body=b"{"), FULL, Seen.NOTHING),
        (json_answer(202, {}), BARE, Seen.NOTHING),
        (json_answer(401), BARE, Seen.NOTHING),
        (json_answer(410), BARE, Seen.NOTHING),
        (json_answer(500), BARE, Seen.NOTHING),
    ],
)
def test_a_look_up_says_what_it_was_told_to_be_read_as(answer, lookup, seen):
    """Only what the contract says how to read counts; anything else is no answer."""
    assert see(answer, lookup).seen is seen


def test_the_stored_answer_is_taken_out_of_the_look_up():
    """Body and status of the stored answer are what the members named in the contract hold."""
    sight = see(told(state="done", status=201, body={"a": [1, "é"]}))
    assert (json.loads(sight.body), sight.status, sight.result_state) == ({"a": [1, "é"]}, 201, ResultState.OK)


def test_a_result_that_the_look_up_does_not_hold_is_missing():
    """A look-up of another shape than the tool's result says that it was done, not with what result."""
    assert see(json_answer(200, {"state": "done"}), BARE, result=int).result_state is ResultState.MISSING
    assert see(told(state="done", status=200), result=int).result_state is ResultState.MISSING
    assert see(told(state="done", status=200)).result_state is ResultState.MISSING
    assert see(told(state="done", status=200, body=None)).result_state is ResultState.OK
    assert see(told(state="done", status=200, body="x"), result=int).result_state is ResultState.INVALID


@pytest.mark.parametrize(
    ("status", "body", "effect"),
    [
        (402, {"error": "no funds"}, Effect.NONE),
        (500, {"type": "https://e.test/problems/partly-applied"}, Effect.POSSIBLE),
        (422, {"type": "https://e.test/problems/partly-applied"}, Effect.POSSIBLE),
        (500, {"title": "boom"}, Effect.POSSIBLE),
    ],
)
def test_a_stored_failure_says_what_it_may_have_left(status, body, effect):
    """A half-done mutation that a look-up tells of is as much a possible effect as one that was answered."""
    sight = see(told(state="done", status=status, body=body))
    assert (sight.seen, sight.effect) == (Seen.FAILED, effect)


def test_a_job_that_a_look_up_tells_of_has_its_handle():
    """A stored 202 is a job that runs, not a result."""
    assert see(told(state="done", status=202, body={"job_id": "j7"})).handle.job_id == "j7"


def test_the_wait_that_a_look_up_asks_for_is_kept():
    """A Retry-After beside "running", or beside a failure to look, is kept."""
    after = (("Retry-After", "9"),)
    assert see(json_answer(200, {"data": {"state": "running"}}, after)).wait == 9.0
    assert see(json_answer(503, None, after)).wait == 9.0


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("/o/{session}/{step}", f"https://tools.test/o/{SESSION}/step_001"),
        ("https://other.test/o?x={args.amount}", "https://other.test/o?x=500"),
        ("o/{args.note}", "https://tools.test/tools/o/a%2Fb"),
    ],
)
def test_a_look_ups_url_is_filled_from_the_operation(url, target):
    """Key, session, label and args are filled in, percent-encoded; a path is one on the tool's own origin."""
    request = lookup_request(HttpLookup(url=url), operation())
    assert (request.method, request.url) == ("GET", target)


def test_the_key_is_encoded_as_one_part_of_the_path():
    """Colons of a key do not become anything else on the way."""
    one = operation()
    assert lookup_request(BARE, one).url == "https://tools.test/operations/" + one.key.replace(":", "%3A")


@pytest.mark.parametrize("url", ["/o/{args.missing}", "ftp://tools.test/o"])
def test_a_look_up_that_cannot_be_asked_says_so(url):
    """A URL that needs an arg that is not there, or leads nowhere, is refused by name."""
    with pytest.raises(ConfigError, match="look-up URL"):
        lookup_request(HttpLookup(url=url), operation())


def test_a_function_tools_look_up_needs_an_absolute_url():
    """A function tool has no origin, so a path leads nowhere and an absolute URL is taken as it is."""

    @tool(contract=KEYED)
    def pay(amount: int) -> int:
        return amount

    one = operation(request=None, origin="function:pay")
    assert lookup_request(HttpLookup(url="https://tools.test/o/{args.amount}"), one).url == "https://tools.test/o/500"
    with pytest.raises(ConfigError, match="leads nowhere"):
        lookup_request(BARE, one)


def test_a_stored_202_of_a_function_is_a_job_without_a_place_to_ask():
    """No request of its own says where its URLs would lead, so none is asked; the job's id is kept."""

    @tool(contract=KEYED)
    def debit(amount: int) -> int:
        return amount

    sight = read_lookup(
        told(state="done", status=202, body={"job_id": "j", "status_url": "/j"}), FULL, debit, now=START
    )
    assert (sight.seen, sight.handle.url, sight.handle.job_id) == (Seen.ACCEPTED, None, "j")


def test_half_a_surrogate_pair_in_a_stored_result_raises_nothing():
    """JSON can write it and UTF-8 cannot: the result holds it as the tool wrote it."""
    assert json.loads(see(told(state="done", status=200, body="\ud800")).body) == "\ud800"
