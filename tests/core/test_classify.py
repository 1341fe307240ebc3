"""What one answer, or none, says about its own attempt."""

import pytest

from agent_runtime import Idempotency, ToolContract
from agent_runtime._core.classify import Verdict, classify, effect_of_end
from agent_runtime._model import Answer, BodyState, Effect, Raised, ResultState, Returned, SendFailure
from agent_runtime.config import ReplayMark
from tests.core.world import KEYED, PLAIN, START, json_answer, tool_of

PROBLEM = (("Content-Type", "application/problem+json"),)


def verdict(answer, contract=KEYED, **more):
    return classify(answer, tool_of(contract, **more), now=START).verdict


def keyed(**more):
    return ToolContract(idempotency=Idempotency(**more.pop("keys", {})), **more)


BOTH = {
    200: Verdict.SUCCESS,
    201: Verdict.SUCCESS,
    202: Verdict.ACCEPTED,
    204: Verdict.SUCCESS,
    300: Verdict.REDIRECTED,
    302: Verdict.REDIRECTED,
    304: Verdict.REDIRECTED,
    400: Verdict.REFUSED,
    401: Verdict.UNAUTHORISED,
    402: Verdict.REFUSED,
    403: Verdict.REFUSED,
    404: Verdict.REFUSED,
    408: Verdict.NOT_APPLIED,
    410: Verdict.REFUSED,
    412: Verdict.REFUSED,
    417: Verdict.REFUSED,
    421: Verdict.NOT_APPLIED,
    422: Verdict.REFUSED,
    425: Verdict.NOT_APPLIED,
    429: Verdict.NOT_APPLIED,
    500: Verdict.SERVER_ERROR,
    501: Verdict.SERVER_ERROR,
    507: Verdict.SERVER_ERROR,
}
DIFFER = {  # status: with keys, without
    409: (Verdict.IN_PROGRESS, Verdict.REFUSED),
    423: (Verdict.IN_PROGRESS, Verdict.REFUSED),
    502: (Verdict.LOST, Verdict.SERVER_ERROR),
    503: (Verdict.LOST, Verdict.SERVER_ERROR),
    504: (Verdict.LOST, Verdict.SERVER_ERROR),
}


@pytest.mark.parametrize(
    ("status", "with_keys", "without"),
    [(status, told, told) for status, told in BOTH.items()] + [(status, *told) for status, told in DIFFER.items()],
)
def test_a_status_says_what_its_table_row_says(status, with_keys, without):
    """Each status has one meaning for tools that honour keys and one for those that do not."""
    assert verdict(json_answer(status)) is with_keys
    assert verdict(json_answer(status), PLAIN) is without


@pytest.mark.parametrize("status", [401, 403, 409, 422, 429, 500, 503])
def test_a_marked_failure_is_the_stored_end(status):
    """A replay mark makes any failure the stored end of the key."""
    for header in ("Idempotent-Replayed", "idempotency-replayed", "Idempotent-Replay"):
        for value in ("true", "True", "?1", "1"):
            assert verdict(json_answer(status, None, ((header, value),))) is Verdict.STORED_END


@pytest.mark.parametrize("value", ["false", "?0", "0", "", "no"])
def test_a_mark_is_read_by_its_value(value):
    """A mark that says "false" is none."""
    answer = json_answer(409, None, (("Idempotent-Replayed", value),))
    assert classify(answer, tool_of(), now=START).replayed is False
    assert verdict(answer) is Verdict.IN_PROGRESS


def test_a_declared_mark_counts_beside_the_standard_ones():
    """A tool's own mark counts by its declared value, whatever the case; without keys only the standard ones do."""
    contract = keyed(keys={"replay_marks": (ReplayMark(header="X-Cache-Lookup", value="HIT"),)})
    hit, miss = (json_answer(200, {}, (("x-cache-lookup", value),)) for value in ("hit", "MISS"))
    assert classify(hit, tool_of(contract), now=START).replayed
    assert not classify(miss, tool_of(contract), now=START).replayed
    assert not classify(hit, tool_of(PLAIN), now=START).replayed
    assert classify(json_answer(200, {}, (("Idempotent-Replayed", "true"),)), tool_of(PLAIN), now=START).replayed


@pytest.mark.parametrize(
    ("on_409", "contract", "told"),
    [
        ("in_progress", PLAIN, Verdict.IN_PROGRESS),
        ("conflict", KEYED, Verdict.REFUSED),
        ("replay", KEYED, Verdict.STORED_END),
        ("replay", PLAIN, Verdict.STORED_END),
    ],
)
def test_on_409_says_what_a_bare_conflict_means(on_409, contract, told):
    """A contract's ``on_409`` outweighs what the tool's keys would say, for 409 and 423."""
    declared = ToolContract(idempotency=contract.idempotency, on_409=on_409)
    assert verdict(json_answer(409), declared) is told
    assert verdict(json_answer(423), declared) is told


def test_a_conflict_that_means_done_counts_as_a_replay_mark():
    """A 409 declared to mean "done already" is a stored answer, so on a first send it is somebody else's."""
    contract = keyed(on_409="replay")
    assert classify(json_answer(409), tool_of(contract), now=START).replayed


@pytest.mark.parametrize("code", ["in-progress", "idempotency_key_in_use", "https://e.test/problems/in-progress"])
def test_a_problem_that_says_in_progress_outweighs_on_409(code):
    """A body that names a running request is believed before the contract's rule for bare conflicts."""
    answer = json_answer(409, {"type": code, "code": code}, PROBLEM)
    assert verdict(answer, keyed(on_409="conflict")) is Verdict.IN_PROGRESS
    assert verdict(answer, PLAIN) is Verdict.IN_PROGRESS
    assert verdict(json_answer(409, {"code": "mine"}), keyed(in_progress_codes=("mine",), on_409="conflict")) is (
        Verdict.IN_PROGRESS
    )


@pytest.mark.parametrize("status", [400, 409, 417, 422])
def test_a_reused_key_is_told_by_its_problem(status):
    """An answer means a key used with another payload where type, last part of it, or code says so."""
    for body in (
        {"type": "https://e.test/problems/key-reused"},
        {"type": "urn:problem:key-reused"},
        {"error": {"code": "idempotency_key_reused"}},
        {"code": "mine"},
    ):
        assert verdict(json_answer(status, body), keyed(key_reused_codes=("mine",))) is Verdict.KEY_REUSED
    assert verdict(json_answer(403, {"code": "idempotency_key_reused"})) is Verdict.REFUSED


def test_a_half_done_mutation_is_told_by_its_problem():
    """A half-done mutation is one whatever the status and marks are."""
    body = {"type": "https://e.test/problems/partly-applied"}
    for status in (409, 422, 500):
        assert verdict(json_answer(status, body)) is Verdict.HALF_DONE
    assert verdict(json_answer(500, body, (("Idempotent-Replayed", "true"),))) is Verdict.HALF_DONE
    assert verdict(json_answer(500, {"code": "mine"}), keyed(half_done_codes=("mine",))) is Verdict.HALF_DONE


@pytest.mark.parametrize(
    ("rule", "told"),
    [("unknown", Verdict.SERVER_ERROR), ("not_applied", Verdict.NOT_APPLIED), ("stored", Verdict.LOST)],
)
def test_on_5xx_says_what_a_500_means(rule, told):
    """A 500 follows ``on_5xx``; what a gateway says never does."""
    contract = keyed(on_5xx=rule)
    assert verdict(json_answer(500), contract) is told
    assert verdict(json_answer(503), contract) is Verdict.LOST


def test_a_gateways_error_is_no_word_of_a_tool_without_keys():
    """``on_5xx="not_applied"`` is the tool's promise: a 502 or 504 comes from somebody else."""
    contract = ToolContract(on_5xx="not_applied")
    assert verdict(json_answer(500), contract) is Verdict.NOT_APPLIED
    for status in (502, 503, 504):
        assert verdict(json_answer(status), contract) is Verdict.SERVER_ERROR


def test_declared_stored_failures_are_ends_without_a_mark():
    """A status that the contract declares stored is the end of the key wherever it comes."""
    assert verdict(json_answer(402), keyed(stored_failures=(402,))) is Verdict.STORED_END


@pytest.mark.parametrize("state", [BodyState.CUT, BodyState.OVERSIZED, BodyState.UNDECODABLE])
def test_a_success_without_its_whole_body_is_unreadable(state):
    """The status says that it was done, the body cannot be used."""
    found = classify(Answer(status=200, body=b'{"id":', body_state=state), tool_of(), now=START)
    assert (found.verdict, found.result_state) == (Verdict.SUCCESS, ResultState.UNREADABLE)


def test_a_cut_problem_says_no_more_than_its_status():
    """Of an error whose body was cut only the status is believed."""
    body = b'{"type": "https://e.test/problems/key-reused"}'
    cut = Answer(status=422, headers=PROBLEM, body=body, body_state=BodyState.CUT)
    assert verdict(cut) is Verdict.REFUSED


def test_retry_after_is_read_into_the_wait():
    """A Retry-After comes with the finding; one of a success has no meaning but for a job."""
    headers = (("Retry-After", "7"),)
    for status in (409, 429, 503):
        assert classify(json_answer(status, None, headers), tool_of(), now=START).wait == 7.0
    assert classify(json_answer(202, None, headers), tool_of(), now=START).handle.poll_after == 7.0
    assert classify(json_answer(200, None, headers), tool_of(), now=START).wait is None


def test_failures_to_send_are_told_by_what_is_certain():
    """Not sent is certain, anything else is lost."""
    assert verdict(SendFailure(maybe_sent=False, error="ConnectError")) is Verdict.NOT_SENT
    assert verdict(SendFailure(maybe_sent=True, error="Whatever")) is Verdict.LOST


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (Raised(proof=True, error="NotApplied"), Verdict.REFUSED),
        (Raised(proof=True, error="NotApplied", retry_after=3.0), Verdict.NOT_APPLIED),
        (Raised(proof=True, error="ConnectError", transport=True), Verdict.NOT_SENT),
        (Raised(proof=False, error="ReadTimeout", transport=True), Verdict.LOST),
        (Raised(proof=False, error="KeyboardInterrupt", interrupted=True), Verdict.LOST),
        (Raised(proof=False, error="ValueError"), Verdict.SERVER_ERROR),
    ],
)
def test_a_functions_exception_is_ambiguous_unless_it_says_otherwise(raised, told):
    """An exception proves nothing unless it is declared, or an HTTP client's error of the not-sent kinds."""
    assert verdict(raised) is told


def test_what_a_function_returns_is_read_as_a_result():
    """A function's return value is a success, whose text may still be unreadable."""
    assert classify(Returned(body=b"1"), tool_of(), now=START).result_state is ResultState.OK
    assert classify(Returned(body=b"<x>"), tool_of(), now=START).result_state is ResultState.UNREADABLE


@pytest.mark.parametrize(
    ("answer", "contract", "effect"),
    [
        (json_answer(402), KEYED, Effect.NONE),
        (json_answer(500), KEYED, Effect.POSSIBLE),
        (json_answer(500), keyed(on_5xx="not_applied"), Effect.NONE),
        (json_answer(422, {"type": "urn:x:partly-applied"}), keyed(on_5xx="not_applied"), Effect.POSSIBLE),
    ],
)
def test_a_stored_end_leaves_behind_what_its_status_and_problem_say(answer, contract, effect):
    """A refusal leaves nothing; a half-done mutation may, and so may a server error unless the contract says not."""
    assert effect_of_end(answer, contract) is effect


def test_a_part_that_nobody_asked_for_is_no_result():
    """A 206: the effect is certain, what came cannot be used."""
    finding = classify(json_answer(206, {"a": 1}), tool_of(KEYED), now=START)
    assert (finding.verdict, finding.result_state) == (Verdict.SUCCESS, ResultState.UNREADABLE)
