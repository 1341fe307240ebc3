"""A callback may come early, twice, late, out of order or beside a poll: one change, and nothing lost."""

import json
from dataclasses import replace

import pytest

from agent_runtime import Idempotency, ToolContract
from agent_runtime._core.attention import matters
from agent_runtime._core.callbacks import receive
from agent_runtime._core.effects import Persist
from agent_runtime._core.job_news import told
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
    run_of,
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
    assert received(world, tools=tools) == "noted"
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


def twins(world, **handle):
    """Give the world a second job of the same tool and id, somewhere else."""
    row = world.row
    told = json.dumps(world.handle | {"url": "https://tools.test/v1/others/job_7f21c"} | handle).encode()
    world.ledger.operations["twin"] = replace(row, id="twin", key="k2", handle=told)
    return row.id


def states(world):
    return [row.state for row in world.ledger.operations.values()]


def said_why(world):
    return [(identity, "several jobs" in seen.detail, seen.body) for identity, seen in world.ledger.evidence]


def test_an_id_that_several_jobs_of_one_tool_bear_ends_none():
    """Tools number their jobs anew for each customer; beside each job it stands why, without the other's body."""
    world = left(TOOL)
    first = twins(world)
    before = said_why(world)
    assert received(world) == "noted"
    assert states(world) == [State.ACCEPTED, State.ACCEPTED]
    assert said_why(world)[len(before) :] == [(first, True, b""), ("twin", True, b"")]
    assert received(world) == "seen"


@pytest.mark.parametrize(
    "about", [{"status_url": "/v1/others/job_7f21c"}, {"data": ENDS | {"links": {"self": "/v1/others/job_7f21c"}}}]
)
def test_the_status_url_in_an_event_tells_which_job_it_is(about):
    """It agrees with just one, so that one ends."""
    world = left(TOOL)
    twins(world)
    assert received(world, callback(ENDS | about)) == "applied"
    assert states(world) == [State.ACCEPTED, State.SUCCEEDED]


def test_an_event_whose_url_no_job_has_yet_is_kept():
    """The answer that names its job may still be on its way."""
    world = left(TOOL)
    twins(world)
    assert received(world, callback(ENDS | {"status_url": "/v1/third/job_7f21c"})) == "kept"
    assert (states(world), world.ledger.applied) == ([State.ACCEPTED, State.ACCEPTED], set())


FOREIGN = {
    # body beside the end, key: the one job of this id that is known is another
    "status-url": ({"status_url": "/v1/others/job_7f21c"}, None),
    "absolute-url": ({"status_url": "https://tools.test/v1/others/job_7f21c"}, None),
    "other-origin": ({"status_url": "https://other.test/v1/jobs/job_7f21c"}, None),
    "no-usable-url": ({"status_url": "ftp://tools.test/v1/jobs/job_7f21c"}, None),
    "below-data": ({"data": ENDS | {"links": {"status": "/v1/others/job_7f21c"}}}, None),
    "key": ({}, "k-other"),
    "key-though-the-url-fits": ({"status_url": "/v1/jobs/job_7f21c"}, "k-other"),
}


@pytest.mark.parametrize(("about", "key"), FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("state", [State.ACCEPTED, State.SUCCEEDED])
def test_an_event_that_names_another_job_than_the_only_one_of_its_id_is_kept(about, key, state):
    """The 202 of the job that it means may be on its way: it ends nothing, and contradicts no end."""
    world = left(TOOL)
    rewrite(world, state=state)
    event = callback(FAILED | about, key=key, job_id="job_7f21c")
    assert received(world, event) == "kept"
    assert (world.row.state, world.row.contradicted, world.ledger.applied) == (state, False, set())
    assert ["fits no job" in one.detail for one in filed(world)] == [True] * (state is State.ACCEPTED)
    assert all(one.body == b"" for one in filed(world))


@pytest.mark.parametrize(("about", "key"), FOREIGN.values(), ids=FOREIGN)
def test_a_step_is_told_of_no_event_that_names_another_job(about, key):
    """It came before the 202; the poll tells how the step's own job ended, and nothing contradicts that."""
    world = world_of(started(), json_answer(200, ENDS))
    world.ledger.keep_event(tenant="", event=callback(FAILED | about, key=key, job_id="job_7f21c"))
    assert call_it(world, TOOL).status == "succeeded"
    assert (world.row.reason, world.row.contradicted, world.ledger.applied) == (Reason.JOB_ENDED, False, set())


@pytest.mark.parametrize("url", ["/v1/jobs/job_7f21c", "https://tools.test/v1/jobs/job_7f21c#top"])
def test_a_status_url_that_fits_is_compared_as_resolved(url):
    """Relative or absolute, it is the same place."""
    world = left(TOOL)
    assert received(world, callback(ENDS | {"status_url": url})) == "applied"


def test_a_status_url_says_nothing_against_the_only_job_which_has_none():
    """There is nothing to compare; nobody could ask about that job, so that only its callback ends it."""
    world = left(TOOL, BARE)
    assert received(world, callback(ENDS | {"status_url": "/v1/jobs/job_7f21c"})) == "applied"


def test_nothing_is_filed_of_a_sender_that_the_tool_does_not_believe():
    """Not even that its event names another job."""
    world = left(TOOL, None, json_answer(200, ENDS))
    world.ledger.keep_event(tenant="", event=callback(source="other", key="k-other", job_id="job_7f21c"))
    call_it(world, TOOL)
    assert filed(world) == []


def test_jobs_without_a_url_are_told_apart_by_nothing_else():
    """The same id of two jobs that nobody can ask about: neither is ended."""
    world = left(TOOL, BARE)
    twins(world, url=None)
    assert received(world, callback(ENDS | {"status_url": "/v1/jobs/job_7f21c"})) == "kept"
    assert states(world) == [State.ACCEPTED, State.ACCEPTED]


def test_one_job_of_two_operations_ends_both():
    """A tool may answer two equal calls by the same job, at the same URL."""
    world = left(TOOL)
    twins(world, url=world.handle["url"])
    assert received(world) == "applied"
    assert states(world) == [State.SUCCEEDED, State.SUCCEEDED]


def test_an_id_that_an_ended_job_bears_too_is_as_unclear():
    """The event may be its repetition; nothing is written beside what has ended."""
    world = left(TOOL)
    first = twins(world)
    world.ledger.operations["twin"] = replace(world.ledger.operations["twin"], state=State.SUCCEEDED)
    assert received(world) == "noted"
    assert states(world) == [State.ACCEPTED, State.SUCCEEDED]
    assert [identity for identity, why, _ in said_why(world) if why] == [first]


@pytest.mark.parametrize(("url", "ended"), [(None, False), ("/v1/third/1", False), ("/v1/jobs/job_7f21c", True)])
def test_a_step_is_not_told_of_an_event_that_may_be_anothers(url, ended):
    """It came before either job was known; the polls go on, unless the event says which job it means."""
    world = left(TOOL, None, json_answer(200, RUNS))
    world.ledger.keep_event(tenant="", event=callback(ENDS if url is None else ENDS | {"status_url": url}))
    first = twins(world)
    run = run_of(world, TOOL, world.ledger.operations[first])
    assert world.run(told(run)) is ended
    assert world.ledger.operations[first].state is (State.SUCCEEDED if ended else State.ACCEPTED)
    whys = [
        seen.detail for identity, seen in world.ledger.evidence if identity == first and "not applied" in seen.detail
    ]
    assert [url is None, not ended and url is not None] == [
        any(text in why for why in whys) for text in ("several jobs", "fits no job")
    ]
    assert bool(world.ledger.applied) is (url != "/v1/third/1")


def test_a_step_leaves_an_event_alone_that_names_another_one():
    """By its status URL: it is the other's, and is kept for it."""
    world = left(TOOL)
    world.ledger.keep_event(tenant="", event=callback(ENDS | {"status_url": "/v1/others/job_7f21c"}))
    first = twins(world)
    run = run_of(world, TOOL, world.ledger.operations[first])
    assert world.run(told(run)) is False
    assert (states(world), world.ledger.applied) == ([State.ACCEPTED, State.ACCEPTED], set())


def test_an_event_that_names_another_job_than_its_key_is_no_end():
    """Its key is this operation's, its job is not: it is filed, and the job is followed as before."""
    world = left(TOOL)
    about = callback(ENDS | {"job_id": "job_other"}, key=world.row.key, job_id="job_other")
    assert received(world, about) == "noted"
    assert (world.row.state, len(filed(world))) == (State.ACCEPTED, 1)


UNCLEAR = {"job_id": "job_7f21c", "done": True, "status": "archived"}


def test_an_event_whose_word_is_not_known_makes_the_job_due():
    """Its own URL may tell more; a job that nobody can ask about is unknown from then on."""
    world = left(TOOL)
    assert received(world, callback(UNCLEAR)) == "noted"
    assert (world.row.state, world.row.resume_at) == (State.ACCEPTED, START + 100)
    bare = left(TOOL, BARE)
    assert received(bare, callback(UNCLEAR)) == "applied"
    assert (bare.row.state, bare.row.reason) == (State.UNKNOWN, Reason.JOB_UNCLEAR)
    assert received(bare, callback(UNCLEAR, event_id="e2")) == "noted"
    assert received(bare, callback(ENDS, event_id="e3")) == "applied"
    assert bare.row.state is State.SUCCEEDED


def test_an_unclear_event_contradicts_no_end():
    """Nobody knows what it says."""
    world = left(TOOL)
    received(world)
    assert received(world, callback(UNCLEAR, event_id="e2")) == "noted"
    assert not world.row.contradicted


def test_a_step_that_finds_an_unclear_event_is_unknown_too():
    """It came before the answer that started the job."""
    world = left(TOOL, BARE)
    world.ledger.keep_event(tenant="", event=callback(UNCLEAR))
    run = run_of(world, TOOL)
    assert world.run(told(run)) is False
    assert (run.operation.state, run.operation.reason) == (State.UNKNOWN, Reason.JOB_UNCLEAR)


@pytest.mark.parametrize("said", [None, {"status": "succeeded"}])
def test_an_adapter_that_returns_no_reading_of_a_callback_ends_nothing(said):
    """As one that raises."""
    reads = JobAdapter(start=lambda _: None, read=lambda _: JobReading(), callback=lambda _: said)
    tool = job_tool(webhook=True, adapter=reads)
    world = left(tool)
    assert received(world, tool=tool) == "noted"
    assert world.row.state is State.ACCEPTED
