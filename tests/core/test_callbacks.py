"""A callback may come early, twice, late, out of order or beside a poll: one change, and nothing lost."""

import json
from dataclasses import replace

import pytest

from agent_runtime import Idempotency, ToolContract
from agent_runtime._core.attention import matters
from agent_runtime._core.callbacks import receive
from agent_runtime._core.effects import Persist
from agent_runtime._model import Advance, Reason, ResultState, SendFailure, SessionState, State, Took, WriteOutcome
from agent_runtime.config import RetryPolicy
from agent_runtime.config.jobs import JobAdapter, JobReading
from tests.core.job_world import (
    ENDS,
    PARTLY,
    RUNS,
    call_it,
    callback,
    job_tool,
    left,
    rewrite,
    started,
    world_of,
)
from tests.core.world import LOST, PLAIN, START, Crash, json_answer

TOOL = job_tool(webhook=True)
BARE = started({"job_id": "job_7f21c"})
FAILED = {"job_id": "job_7f21c", "status": "failed", "error": "full"}
THIN = {"job_id": "job_7f21c", "status": "succeeded"}


def received(world, event=None, *, tool=TOOL, tools=None):
    event = callback() if event is None else event
    return world.run(receive("", event, {tool.name: tool} if tools is None else tools))


def filed(world):
    return [seen for _, seen in world.ledger.evidence if seen.kind == "webhook"]


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (ENDS, State.SUCCEEDED),
        (PARTLY, State.SUCCEEDED),
        (FAILED, State.FAILED),
        ({"type": "job.done", "data": ENDS}, State.SUCCEEDED),
    ],
)
def test_a_callback_ends_its_job(body, state):
    """Read like the answer to a poll, its body or the ``data`` in it; without a fence, whoever holds the session."""
    world = left(TOOL)
    world.ledger.fence += 1
    assert received(world, callback(body)) == "applied"
    assert (world.row.state, world.row.reason, world.polls) == (state, Reason.CALLBACK, [])
    assert world.row.partial is (body is PARTLY)
    assert filed(world)[0].detail == "default:e1"


def test_twice_is_once():
    """The second delivery of an event is seen, and changes nothing."""
    world = left(TOOL)
    received(world)
    row = world.row
    assert received(world) == "seen"
    assert (world.row, len(filed(world))) == (row, 1)


@pytest.mark.parametrize(("body", "contradicted"), [(ENDS, False), (FAILED, True), (RUNS, False)])
def test_late_news_is_filed_and_changes_no_end(body, contradicted):
    """Another end than the recorded one contradicts it; what says that it runs is merely late."""
    world = left(TOOL)
    received(world)
    assert received(world, callback(body, event_id="e2")) == "noted"
    assert (world.row.state, world.row.contradicted) == (State.SUCCEEDED, contradicted)
    assert len(filed(world)) == 2


@pytest.mark.parametrize("body", [RUNS, b"[", b"[1]", b""])
def test_news_that_tells_no_end_is_noted(body):
    """It runs, or nobody can tell: the job is followed as before."""
    world = left(TOOL)
    assert received(world, callback(body)) == "noted"
    assert (world.row.state, len(filed(world))) == (State.ACCEPTED, 1)


def test_a_success_without_its_result_makes_the_job_due_at_once():
    """The result is asked for at the job's own URL."""
    world = left(TOOL, None, json_answer(200, ENDS))
    assert received(world, callback(THIN)) == "noted"
    assert (world.row.state, world.row.resume_at) == (State.ACCEPTED, START + 100)
    call_it(world, TOOL)
    assert json.loads(world.row.result) == ENDS["result"]


def test_a_success_without_a_result_is_an_end_where_nobody_can_be_asked():
    """That it succeeded is all there is."""
    world = left(TOOL, BARE)
    assert received(world, callback(THIN)) == "applied"
    assert (world.row.state, world.row.result_state) == (State.SUCCEEDED, ResultState.OK)


def test_A39_a_callback_before_the_202_is_kept_and_applied_by_the_step():
    """Nobody knows its job yet; the step that learns the job's id finds it."""
    world = world_of(BARE)
    assert received(world) == "kept"
    assert call_it(world, TOOL).status == "succeeded"
    assert world.row.reason is Reason.CALLBACK
    assert received(world) == "seen"


LATER = {
    # what came before the 202, in this order; state, contradicted
    "other-end": ([ENDS, FAILED], State.SUCCEEDED, True),
    "other-end-first": ([FAILED, ENDS], State.FAILED, True),
    "same-end": ([ENDS, ENDS], State.SUCCEEDED, False),
    "part-of-it": ([PARTLY, ENDS], State.SUCCEEDED, False),
    "it-runs": ([RUNS, ENDS, RUNS], State.SUCCEEDED, False),
    "third": ([ENDS, RUNS, FAILED], State.SUCCEEDED, True),
}


@pytest.mark.parametrize(("bodies", "state", "contradicted"), LATER.values(), ids=LATER)
def test_several_callbacks_before_the_202(bodies, state, contradicted):
    """The first end counts, the others are filed beside it: another end contradicts it, as when it comes later."""
    world = world_of(BARE)
    for number, body in enumerate(bodies):
        assert received(world, callback(body, event_id=f"e{number}")) == "kept"
    outcome = call_it(world, TOOL)
    assert (world.row.state, outcome.state, world.row.contradicted) == (state, state, contradicted)
    assert [one.kind for one in world.run(matters("", silence=120.0))] == ["contradicted"] * contradicted
    assert len(filed(world)) == len(bodies)
    assert world.ledger.applied == set(world.ledger.events)


def test_a_crash_between_an_end_and_what_speaks_against_it_loses_nothing():
    """Before each effect of the call: the next process finds the end, and that it is contradicted."""
    for point in range(1, 60):
        world = world_of(BARE)
        received(world, callback(ENDS))
        received(world, callback(FAILED, event_id="e2"))
        world.crash_before = len(world.effects) + point
        try:
            call_it(world, TOOL)
        except Crash:
            world.crash_before = None
            world.ledger.fence += 1
            call_it(world, TOOL)
        else:
            break
        assert (world.row.state, world.row.contradicted) == (State.SUCCEEDED, True)
    assert point > 10


@pytest.mark.parametrize(
    ("status", "body", "contradicted"), [(200, FAILED, True), (200, ENDS, False), (400, ENDS, True)]
)
def test_a_callback_beside_an_answer_that_is_the_end(status, body, contradicted):
    """It comes while the request is out, and nothing is a job: it is filed, not forgotten."""
    world = world_of(None)

    def answer(send):
        assert received(world, callback(body, key=world.row.key)) == "kept"
        return json_answer(status, {})

    world.answer = answer
    call_it(world, TOOL)
    assert (world.row.contradicted, len(filed(world))) == (contradicted, 1)


def test_a_finished_session_files_nothing():
    """It is only read."""
    world = left(TOOL, BARE)
    received(world)
    world.ledger.keep_event(tenant="", event=callback(FAILED, event_id="e2"))
    world.ledger.state = SessionState.FINISHED
    assert call_it(world, TOOL).status == "succeeded"
    assert len(filed(world)) == 1


def test_a_callback_while_the_request_is_out_is_kept():
    """The answer to the request decides first; then the step applies it."""
    world = world_of(None)

    def answer(send):
        assert received(world, callback(key=world.row.key)) == "kept"
        return BARE

    world.answer = answer
    call_it(world, TOOL)
    assert (world.row.state, world.row.reason) == (State.SUCCEEDED, Reason.CALLBACK)


def test_an_event_whose_application_was_cut_off_is_applied_by_the_next_delivery():
    """A crash at any point of receiving loses nothing and doubles nothing."""
    for point in range(1, 20):
        world = left(TOOL)
        world.crash_before = len(world.effects) + point
        try:
            received(world)
        except Crash:
            world.crash_before = None
            received(world)
            assert (world.row.state, world.row.contradicted, len(filed(world))) == (State.SUCCEEDED, False, 1)
        else:
            break
    assert point > 3


@pytest.mark.parametrize(
    ("event", "tools"),
    [
        (callback(source="other"), None),  # a sender that the tool does not believe
        (callback(), {}),  # a tool that is not registered here
        (callback(job_id="job_x"), None),  # a job that nobody knows
    ],
)
def test_what_belongs_to_nobody_here_is_kept(event, tools):
    """Nothing changes; the event stands for whoever knows its job."""
    world = left(TOOL)
    assert received(world, event, tools=tools) == "kept"
    assert (world.row.state, len(world.ledger.events)) == (State.ACCEPTED, 1)


def test_a_tool_that_is_not_called_back_believes_nobody():
    """Its jobs are polled."""
    tool = job_tool()
    world = left(tool)
    assert received(world, tool=tool) == "kept"


def test_a_key_names_one_operation_and_a_shared_job_id_none():
    """Two tools have a job of this id: only the key tells whose end this is."""
    world = left(TOOL)
    other = replace(TOOL, name="credit")
    row = world.row
    world.ledger.operations["other"] = replace(row, id="other", tool="credit", key="k2")
    tools = {"debit": TOOL, "credit": other}
    assert received(world, tools=tools) == "kept"
    assert received(world, callback(event_id="e2", job_id="job_7f21c", key=row.key), tools=tools) == "applied"
    assert world.ledger.operations[row.id].state is State.SUCCEEDED
    assert world.ledger.operations["other"].state is State.ACCEPTED


LOST_KEYED = job_tool(ToolContract(idempotency=Idempotency(), retry=RetryPolicy(attempts=1)), webhook=True)
LOST_PLAIN = job_tool(PLAIN, webhook=True)
ABOUT = {"key": "k", "job_id": None}


@pytest.mark.parametrize(
    ("tool", "body", "said", "state", "result_state"),
    [
        (LOST_KEYED, ENDS, "applied", State.SUCCEEDED, ResultState.OK),
        (LOST_KEYED, FAILED, "applied", State.FAILED, None),
        (LOST_KEYED, THIN, "kept", State.UNKNOWN, None),  # a resend tells the result
        (LOST_PLAIN, THIN, "applied", State.SUCCEEDED, ResultState.MISSING),  # it took effect: that much is known
        (LOST_PLAIN, RUNS, "noted", State.UNKNOWN, None),
    ],
)
def test_a_callback_settles_an_operation_whose_answer_was_lost(tool, body, said, state, result_state):
    """By the key; one that tells less than a resend would is left for it."""
    world = world_of(LOST)
    call_it(world, tool)
    assert world.row.state is State.UNKNOWN
    rewrite(world, key="k")
    assert received(world, callback(body, **ABOUT), tool=tool) == said
    assert world.row.state is state
    assert result_state is None or world.row.result_state is result_state


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (ENDS, State.SUCCEEDED),
        (THIN, State.UNKNOWN),  # left for the resend, whose budget is spent here
        (RUNS, State.UNKNOWN),
    ],
)
def test_a_resume_finds_what_came_for_a_lost_answer(body, state):
    """Before anything is sent again."""
    world = world_of(LOST)
    call_it(world, LOST_KEYED)
    rewrite(world, key="k")
    world.ledger.keep_event(tenant="", event=callback(body, **ABOUT))
    call_it(world, LOST_KEYED)
    assert world.row.state is state
    assert len(world.sends) == (1 if body is ENDS else 2)


def test_an_early_thin_success_makes_its_job_due():
    """The step that has just learned of the job looks at once."""
    world = world_of(started(), json_answer(200, ENDS))
    world.ledger.keep_event(tenant="", event=callback(THIN))
    call_it(world, TOOL)
    assert (world.row.state, world.row.reason, len(world.polls)) == (State.SUCCEEDED, Reason.JOB_ENDED, 1)


def test_news_of_another_sender_is_not_applied_by_the_step():
    """It stays kept; the job is followed by its own URL."""
    world = world_of(started(), json_answer(200, FAILED))
    world.ledger.keep_event(tenant="", event=callback(source="other"))
    call_it(world, TOOL)
    assert (world.row.state, world.row.reason) == (State.FAILED, Reason.JOB_ENDED)


def test_an_event_that_the_step_meets_second_is_filed():
    """Somebody else wrote the end in between."""
    world = left(TOOL)
    world.ledger.keep_event(tenant="", event=callback(FAILED))
    moved = []

    def trouble(effect):
        if isinstance(effect, Persist) and isinstance(effect.entry, Advance) and not moved:
            moved.append(effect)
            rewrite(world, state=State.SUCCEEDED, result=b"7")

    world.trouble = trouble
    assert call_it(world, TOOL).value == 7
    assert world.row.contradicted


def test_an_event_is_applied_by_a_later_look_where_the_row_moved():
    """It had not ended yet: the event stays for the next time."""
    world = left(TOOL, None, json_answer(200, RUNS))
    world.ledger.keep_event(tenant="", event=callback())
    moved = []

    def trouble(effect):
        if isinstance(effect, Persist) and isinstance(effect.entry, Advance) and not moved:
            moved.append(effect)
            rewrite(world)

    world.trouble = trouble
    call_it(world, TOOL)
    assert (world.row.state, world.row.reason) == (State.SUCCEEDED, Reason.CALLBACK)


@pytest.mark.parametrize(
    ("moves", "change", "said"),
    [
        (1, {}, "applied"),
        (1, {"state": State.SUCCEEDED}, "noted"),
        (1, {"state": State.IN_FLIGHT}, "kept"),
        (9, {}, "kept"),
    ],
)
def test_a_row_that_moves_is_looked_at_again(moves, change, said):
    """Some times; an event that did not get through stays for the step."""
    world = left(TOOL)
    count = []

    def trouble(effect):
        if isinstance(effect, Persist) and isinstance(effect.entry, Advance) and len(count) < moves:
            count.append(effect)
            rewrite(world, **change)

    world.trouble = trouble
    assert received(world) == said
    assert (("default", "e1") in world.ledger.applied) is (said != "kept")


def test_a_row_that_is_gone_keeps_its_event():
    """Such as of a session that was deleted meanwhile."""
    world = left(TOOL)
    write = world.ledger.write
    world.ledger.write = lambda entry: (
        WriteOutcome(write_id=entry.write_id, took=Took.STATE_CONFLICT, now=START)
        if isinstance(entry, Advance)
        else write(entry)
    )
    assert received(world) == "kept"


def test_an_adapter_reads_callbacks_and_one_that_raises_tells_no_end():
    """The job's own URL tells it then."""

    def read(answer):
        if answer.body is None:
            raise KeyError
        return JobReading(status="succeeded", result=answer.body["r"], has_result=True)

    tool = job_tool(webhook=True, adapter=JobAdapter(start=lambda _: None, read=read, callback=read))
    world = left(tool)
    assert received(world, callback(b"<xml>"), tool=tool) == "noted"
    assert received(world, callback({"r": 7}, event_id="e2"), tool=tool) == "applied"
    assert world.row.result == b"7"


def test_an_interrupted_request_keeps_what_came():
    """The step stops at once; the next one applies the event."""
    world = world_of(SendFailure(maybe_sent=True, error="KeyboardInterrupt", interrupted=True), BARE)
    call_it(world, LOST_PLAIN)
    rewrite(world, key="k")
    world.ledger.keep_event(tenant="", event=callback(**ABOUT))
    call_it(world, LOST_PLAIN)
    assert (world.row.state, len(world.sends)) == (State.SUCCEEDED, 1)
