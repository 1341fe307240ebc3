"""What an attempt's finding means for its operation: every verdict, before and after an ambiguous attempt."""

import dataclasses

import pytest

from agent_runtime import ToolContract
from agent_runtime._core.classify import Finding, Verdict
from agent_runtime._core.conclude import conclude, evidence_of, interrupted
from agent_runtime._core.states import ALLOWED, check, settled
from agent_runtime._model import (
    SETTLED,
    UNSET,
    Answer,
    Effect,
    Handle,
    Raised,
    Reason,
    ResultState,
    Returned,
    State,
)
from agent_runtime.config.jobs import JobReading
from tests.core.world import KEYED, LOST, NOT_SENT, START, fresh, json_answer, make_call, scripted, tool_of
from tests.core.world import call_of as call

WRITE, READ = tool_of(KEYED), tool_of(ToolContract(kind="read"))
RESULT = {
    Verdict.SUCCESS: json_answer(200, 1),
    Verdict.ACCEPTED: json_answer(202, {"job_id": "j"}),
    Verdict.JOB_ENDED: json_answer(202, {"job_id": "j", "done": True, "result": 1}),
    Verdict.REFUSED: json_answer(400),
    Verdict.NOT_SENT: NOT_SENT,
    Verdict.NOT_APPLIED: json_answer(429),
    Verdict.UNAUTHORISED: json_answer(401),
    Verdict.IN_PROGRESS: json_answer(409),
    Verdict.LOST: LOST,
    Verdict.SERVER_ERROR: json_answer(500),
    Verdict.STORED_END: json_answer(402),
    Verdict.KEY_REUSED: json_answer(422),
    Verdict.HALF_DONE: json_answer(500),
    Verdict.REDIRECTED: Answer(status=302),
}
HANDLE = Handle(url=None, job_id="j", protocol="bare")
JOBS = {Verdict.ACCEPTED, Verdict.JOB_ENDED}
ENDED = JobReading(status="succeeded", result=1, has_result=True)


def in_flight(*, maybe=False, **more):
    world = fresh(scripted(NOT_SENT))
    make_call(world, world.desk(), call(WRITE))
    (operation,) = world.ledger.operations.values()
    return dataclasses.replace(operation, state=State.IN_FLIGHT, maybe_applied=maybe, reason=None, **more)


def concluded(verdict, *, maybe=False, replayed=False, tool=WRITE, resume_at=START, last=False, result=None):
    reading = ENDED if verdict is Verdict.JOB_ENDED else None
    finding = Finding(verdict=verdict, replayed=replayed, handle=HANDLE if verdict in JOBS else None, reading=reading)
    result = RESULT[verdict] if result is None else result
    return conclude(in_flight(maybe=maybe), finding, result, tool, resume_at=resume_at, last=last)


F, U, R, S, A = State.FAILED, State.UNKNOWN, State.READY, State.SUCCEEDED, State.ACCEPTED
NONE, POSSIBLE = Effect.NONE, Effect.POSSIBLE
FIRST = {
    Verdict.SUCCESS: (S, None, UNSET),
    Verdict.ACCEPTED: (A, Reason.UNTRACKED, UNSET),
    Verdict.JOB_ENDED: (S, Reason.JOB_ENDED, UNSET),
    Verdict.REFUSED: (F, Reason.REFUSED, NONE),
    Verdict.NOT_SENT: (R, Reason.RETRY_AFTER, UNSET),
    Verdict.NOT_APPLIED: (R, Reason.RETRY_AFTER, UNSET),
    Verdict.UNAUTHORISED: (R, Reason.AUTH, UNSET),
    Verdict.IN_PROGRESS: (U, Reason.IN_PROGRESS, UNSET),
    Verdict.LOST: (U, Reason.LOST_ANSWER, UNSET),
    Verdict.SERVER_ERROR: (U, Reason.SERVER_ERROR, UNSET),
    Verdict.STORED_END: (F, Reason.STORED, NONE),
    Verdict.KEY_REUSED: (F, Reason.KEY_CONFLICT, NONE),
    Verdict.HALF_DONE: (F, Reason.HALF_DONE, POSSIBLE),
    Verdict.REDIRECTED: (U, Reason.REDIRECTED, UNSET),
}
AFTER_AMBIGUITY = FIRST | {
    Verdict.REFUSED: (U, Reason.REFUSED_LATER, UNSET),
    Verdict.NOT_SENT: (U, Reason.LOST_ANSWER, UNSET),
    Verdict.NOT_APPLIED: (U, Reason.LOST_ANSWER, UNSET),
    Verdict.UNAUTHORISED: (U, Reason.LOST_ANSWER, UNSET),
    Verdict.KEY_REUSED: (U, Reason.KEY_CONFLICT, UNSET),
}
READS = {
    Verdict.SUCCESS: (S, None, UNSET),
    Verdict.ACCEPTED: (A, Reason.UNTRACKED, UNSET),
    Verdict.JOB_ENDED: (S, Reason.JOB_ENDED, UNSET),
    Verdict.REFUSED: (F, Reason.REFUSED, NONE),
    Verdict.NOT_SENT: (R, Reason.RETRY_AFTER, UNSET),
    Verdict.NOT_APPLIED: (R, Reason.RETRY_AFTER, UNSET),
    Verdict.UNAUTHORISED: (R, Reason.AUTH, UNSET),
    Verdict.IN_PROGRESS: (R, Reason.RETRY_AFTER, UNSET),
    Verdict.LOST: (R, Reason.RETRY_AFTER, UNSET),
    Verdict.SERVER_ERROR: (R, Reason.RETRY_AFTER, UNSET),
    Verdict.STORED_END: (F, Reason.STORED, NONE),
    Verdict.KEY_REUSED: (F, Reason.KEY_CONFLICT, NONE),
    Verdict.HALF_DONE: (F, Reason.HALF_DONE, POSSIBLE),
    Verdict.REDIRECTED: (F, Reason.REFUSED, NONE),
}
MARKABLE = {Verdict.SUCCESS, Verdict.ACCEPTED, Verdict.JOB_ENDED, Verdict.STORED_END}


def seen(change):
    return change.state, change.reason, change.effect


def test_the_tables_hold_every_verdict():
    """No verdict is left out of the tables below."""
    assert set(FIRST) == set(AFTER_AMBIGUITY) == set(READS) == set(Verdict)


@pytest.mark.parametrize("verdict", Verdict)
def test_a_first_attempts_finding(verdict):
    """Where no attempt can have been applied before, the answer's own word counts."""
    assert seen(concluded(verdict)) == FIRST[verdict]


@pytest.mark.parametrize("verdict", Verdict)
def test_a_finding_after_an_ambiguous_attempt(verdict):
    """After an ambiguous attempt only a success, a job, a stored end or a half-done mutation closes the operation."""
    assert seen(concluded(verdict, maybe=True)) == AFTER_AMBIGUITY[verdict]


@pytest.mark.parametrize("verdict", sorted(MARKABLE))
def test_a_mark_on_a_new_operation_is_somebody_elses(verdict):
    """A stored answer for an operation that was never sent belongs to another request, and no resend settles it."""
    change = concluded(verdict, replayed=True)
    assert seen(change) == (State.UNKNOWN, Reason.KEY_CONFLICT, UNSET)
    assert change.no_resend is True
    assert change.server_replayed is True


@pytest.mark.parametrize("verdict", sorted(MARKABLE))
def test_a_mark_after_an_ambiguous_attempt_is_its_answer(verdict):
    """After an ambiguous attempt a stored answer is the one that was lost."""
    change = concluded(verdict, maybe=True, replayed=True)
    assert seen(change) == AFTER_AMBIGUITY[verdict]
    assert change.server_replayed is True


@pytest.mark.parametrize("maybe", [False, True])
@pytest.mark.parametrize("verdict", Verdict)
def test_a_read_is_asked_again_or_has_failed(verdict, maybe):
    """A read changes nothing: it is never unknown, whatever came before, and a mark on it is nobody's conflict."""
    assert seen(concluded(verdict, tool=READ, maybe=maybe)) == READS[verdict]
    if verdict in MARKABLE:
        assert seen(concluded(verdict, tool=READ, maybe=maybe, replayed=True)) == READS[verdict]


@pytest.mark.parametrize("verdict", [v for v, row in READS.items() if row[0] is R])
def test_a_read_whose_budget_is_spent_has_failed(verdict):
    """The last attempt of a read that got nothing ends it failed, with no effect; only a token is still waited for."""
    change = concluded(verdict, tool=READ, last=True)
    if verdict is Verdict.UNAUTHORISED:
        assert seen(change) == (R, Reason.AUTH, UNSET)
    else:
        assert seen(change) == (F, Reason.BUDGET, NONE)


@pytest.mark.parametrize("verdict", [Verdict.SERVER_ERROR, Verdict.REDIRECTED])
def test_after_some_answers_no_resend_is_in_order(verdict):
    """A 500 or a redirect may follow the effect on a server that then forgets the key."""
    change = concluded(verdict)
    assert (change.no_resend, change.mark_maybe) == (True, True)


@pytest.mark.parametrize("verdict", [Verdict.LOST, Verdict.IN_PROGRESS])
def test_a_lost_answer_marks_the_operation_and_may_be_resent(verdict):
    """A lost answer, or a running request, may have been applied, and a resend under the key is in order."""
    change = concluded(verdict)
    assert (change.no_resend, change.mark_maybe, change.resume_at) == (UNSET, True, START)


def test_a_functions_exception_has_a_reason_of_its_own():
    """A function's exception is told apart from a lost answer; an HTTP client's is a lost answer."""
    raised = Raised(proof=False, error="ValueError")
    assert concluded(Verdict.SERVER_ERROR, result=raised).reason is Reason.EXCEPTION
    transport = Raised(proof=False, error="ReadTimeout", transport=True)
    assert concluded(Verdict.LOST, result=transport).reason is Reason.LOST_ANSWER


@pytest.mark.parametrize("status", [409, 423])
def test_a_conflict_that_means_done_has_the_effect_and_no_result(status):
    """Where a 409 means "done already", the operation succeeded and its result is missing."""
    tool = tool_of(ToolContract(idempotency=KEYED.idempotency, on_409="replay"))
    change = concluded(Verdict.STORED_END, maybe=True, replayed=True, tool=tool, result=json_answer(status))
    assert (change.state, change.result_state) == (State.SUCCEEDED, ResultState.MISSING)
    refused = concluded(Verdict.STORED_END, maybe=True, replayed=True, tool=tool, result=json_answer(402))
    assert refused.state is State.FAILED


def test_a_worker_that_died_leaves_a_write_unknown_and_a_read_ready():
    """An operation found in flight with nobody behind it may have been applied; a read is asked again."""
    change = interrupted(in_flight(), WRITE)
    assert (change.state, change.reason) == (State.UNKNOWN, Reason.INTERRUPTED)
    assert change.mark_maybe
    assert change.mark_taken_over
    assert interrupted(in_flight(), READ).state is State.READY


def test_evidence_keeps_no_credential_and_not_all_of_a_long_body():
    """Of an answer, headers that can carry secrets are left out and 64 KiB of the body are kept."""
    answer = Answer(status=200, headers=(("Set-Cookie", "s"), ("X-A", "b")), body=b"x" * 70_000)
    kept = evidence_of(answer, 2)
    assert (kept.headers, len(kept.body), kept.attempt, kept.kind) == ((("X-A", "b"),), 65_536, 2, "answer")
    assert evidence_of(Returned(body=b"1"), 1).detail == "returned"
    assert evidence_of(LOST, 1).kind == "no_answer"


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
def test_only_the_table_changes_a_state(before, after):
    """A change that is not in the table is a fault of ours; settled states never change."""
    assert settled(before) is (before in SETTLED)
    if after in ALLOWED[before]:
        assert before not in SETTLED
        check(before, after)
    else:
        with pytest.raises(AssertionError, match="not in the table"):
            check(before, after)
