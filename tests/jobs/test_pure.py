"""The protocols of jobs in memory: each branch that only a bad moment reaches."""

from __future__ import annotations

import dataclasses

import pytest

from agent_runtime._core.attention import Attention, kind_of, tell
from agent_runtime._core.callbacks import receive
from agent_runtime._core.desk import Following
from agent_runtime._core.effects import Credential, NextEvent, NoCredential, Sleep
from agent_runtime._core.handles import handle_of
from agent_runtime._core.job_requests import cancel, errors_of
from agent_runtime._core.job_rounds import look_at
from agent_runtime._core.job_stream import listen
from agent_runtime._core.run import Run
from agent_runtime._core.tokens import Subject
from agent_runtime._model import Answer, BodyState, CallbackEvent, SendFailure, ServerEvent, State, Took, WriteOutcome
from agent_runtime.errors import ConfigError, StepFailed, TokenUnavailable
from tests.core.world import json_answer
from tests.jobs.job_api import DONE, FAILED, PLAIN_RUNS, body
from tests.jobs.pure import START, job_tool, row_of, run, world_of

RUNS, ENDS = json_answer(200, PLAIN_RUNS), json_answer(200, DONE)
INTERRUPTED = SendFailure(maybe_sent=True, error="KeyboardInterrupt", interrupted=True)
DETACH = Following("detach")


def event(value, event_id="e1", *, source="default"):
    return CallbackEvent(source=source, event_id=event_id, job_id="j1", key=None, body=body(value))


def said(value, **more):
    return ServerEvent(data=value if isinstance(value, str) else body(value).decode(), **more)


def test_an_interrupted_poll_leaves_the_job_accepted():
    """Nothing is concluded from it."""
    world = world_of(INTERRUPTED)
    run(world, job_tool())
    assert row_of(world).state is State.ACCEPTED


def test_an_interrupted_fetch_of_a_result_does_so_too():
    """The job ended, its result was on the way: the next try looks again."""
    world = world_of(json_answer(200, {"status": "succeeded", "result_url": "/r"}), INTERRUPTED)
    run(world, job_tool())
    assert row_of(world).state is State.ACCEPTED


def test_a_poll_without_a_token_is_made_later():
    """Unavailable: tried again; required: pending, with the reason, and due again later."""
    world = world_of(ENDS)
    world.token.say = []
    outcome = run(world, job_tool(), following=DETACH)
    assert outcome.status == "pending"
    world.token.say = [NoCredential("unavailable", "down")]
    assert run(world, job_tool(), at="x").status == "succeeded"
    world = world_of(ENDS)
    run(world, job_tool(), following=DETACH)
    world.token.say = [NoCredential("required", "sign in")]
    outcome = run(world, job_tool())
    assert outcome.status == "pending"
    assert "sign in" in outcome.message
    assert row_of(world).resume_at > world.ledger.clock.now


def test_a_cut_answer_to_a_poll_says_nothing():
    """It is looked at again."""
    cut = Answer(status=200, body=b'{"status":"succ', body_state=BodyState.CUT)
    assert run(world_of(cut, ENDS), job_tool()).status == "succeeded"


def test_a_running_job_may_name_a_new_place():
    """On its own origin it is asked there; another origin's is passed over."""
    asked = []

    def answers(location):
        def answer(effect):
            asked.append(effect.request.url)
            return json_answer(202, PLAIN_RUNS, (("Location", location),)) if len(asked) == 1 else ENDS

        return answer

    run(world_of(answers("/jobs/2")), job_tool())
    assert asked[1].endswith("/jobs/2")
    asked.clear()
    run(world_of(answers("https://evil.test/j")), job_tool())
    assert asked[1] == asked[0]


def test_what_a_stream_says_counts_and_its_end_does_not():
    """Noise is passed over, progress told, an end ends; a stream that ends leaves the rest to polls."""
    start = json_answer(202, {"job_id": "j1", "status_url": "/jobs/1", "ev": "/jobs/1/ev"})
    heard = []
    events = [said(""), said("no json"), said(PLAIN_RUNS | {"progress_percent": 9}), said(DONE)]
    world = world_of(RUNS, start=start, stream=events)
    outcome = run(world, job_tool(stream="ev"), following=Following("wait", heard.append))
    assert (outcome.status, world.closed) == ("succeeded", 1)
    assert 9 in [one.percent for one in heard]
    assert heard[-1].done
    world = world_of(ENDS, start=start, stream=[None])
    assert run(world, job_tool(stream="ev")).status == "succeeded"
    thin = world_of(ENDS, start=start, stream=[said({"status": "succeeded"})])
    assert run(thin, job_tool(stream="ev")).value is not None


def test_a_stream_that_raises_is_closed():
    """What a listener raises goes to the caller, and the connection is let go."""
    start = json_answer(202, {"job_id": "j1", "status_url": "/jobs/1", "ev": "/jobs/1/ev"})

    def listener(seen):
        if seen.percent is not None:
            raise RuntimeError("dies")

    world = world_of(ENDS, start=start, stream=[said(PLAIN_RUNS | {"progress_percent": 9})])
    with pytest.raises(RuntimeError, match="dies"):
        run(world, job_tool(stream="ev"), following=Following("wait", listener))
    assert world.closed == 1


def test_a_stream_needs_a_token_too():
    """Without one the polls go on."""
    start = json_answer(202, {"job_id": "j1", "status_url": "/jobs/1", "ev": "/jobs/1/ev"})
    world = world_of(ENDS, start=start)
    tool = job_tool(stream="ev")
    run(world, tool, following=DETACH)
    world.token.say = [NoCredential("unavailable", "down")]
    assert run(world, tool).status == "succeeded"


def test_a_callback_meets_every_state():
    """Unknown to everybody, running, thin, an end, and after that."""
    world = world_of(ENDS)
    tool = job_tool(webhook=True)
    tools = {tool.name: tool}

    def take(one, known=tools):
        return world.run(receive("t", one, known))

    assert take(event(DONE, "e0")) == "kept"
    run(world, tool, following=DETACH)
    assert row_of(world).state is State.SUCCEEDED  # the early event ended it
    assert take(event(FAILED, "e9")) == "noted"
    world = world_of(ENDS)
    run(world, tool, following=DETACH)
    assert take(event(DONE, "e1"), {}) == "kept"
    assert take(event(PLAIN_RUNS, "e2")) == "noted"
    assert take(event({"status": "succeeded"}, "e3")) == "noted"
    assert row_of(world).state is State.ACCEPTED
    assert take(event(DONE, "e4")) == "applied"
    assert take(event(DONE, "e4")) == "seen"
    assert take(event("no object", "e5")) == "noted"


def test_errors_and_cancel_want_a_token_and_an_answer():
    """Without them nothing is changed, and the error says what happened."""
    part = {"status": "completed_with_errors", "done": True, "summary": {"failed": 1}, "errors_url": "/e"}
    world = world_of(json_answer(200, part), SendFailure(maybe_sent=True, error="ReadTimeout"))
    tool = job_tool(cancel="POST/cancel")
    run(world, tool)
    desk = world.desk()
    with pytest.raises(StepFailed, match="ReadTimeout"):
        world.run(errors_of(desk, tool, row_of(world), "step_001", 5))
    world.token.say = [NoCredential("required", "sign in")]
    with pytest.raises(TokenUnavailable, match="sign in"):
        world.run(errors_of(desk, tool, row_of(world), "step_001", 5))
    world.token.say = [NoCredential("unavailable", "down")]
    with pytest.raises(TokenUnavailable, match="cannot serve now"):
        world.run(errors_of(desk, tool, dataclasses.replace(row_of(world)), "step_001", 5))
    with pytest.raises(ConfigError):
        world.run(cancel(desk, tool, row_of(world), "step_001"))


def test_a_lost_answer_to_a_request_to_stop_is_filed():
    """The job's own state says what became of it."""
    world = world_of(SendFailure(maybe_sent=True, error="ReadTimeout"))
    tool = job_tool(cancel="POST/cancel")
    run(world, tool, following=DETACH)
    world.run(cancel(world.desk(), tool, row_of(world), "step_001"))
    assert world.ledger.evidence[-1][1].detail == "cancel asked: ReadTimeout"


def test_whoever_comes_second_leaves_a_job_alone():
    """A follower whose row has moved since does not look."""
    world = world_of(RUNS)
    tool = job_tool()
    run(world, tool, following=DETACH)
    stale = row_of(world)
    seen = world.run(look_at(stale, tool, Subject(), 1 << 20))
    assert seen.state is State.ACCEPTED
    assert world.run(look_at(stale, tool, Subject(), 1 << 20)) is None


def test_what_wants_attention_and_when():
    """By state, reason, and how long nobody has looked."""
    world = world_of(RUNS)
    run(world, job_tool(), following=DETACH)
    row = row_of(world)
    now = world.ledger.clock.now

    def kind(later, **changed):
        return kind_of(dataclasses.replace(row, **changed), now=now + later, silence=120)

    assert kind(0) is None
    assert kind(3600) == "stalled"
    assert kind(3600, resume_at=None) == "stalled"
    assert kind(0, state=State.SUCCEEDED) is None
    assert kind(0, state=State.SUCCEEDED, contradicted=True) == "contradicted"
    matter = Attention(kind="stalled", operation=row)
    assert (matter.state, matter.reason, matter.label) == (State.ACCEPTED, None, "step_001")
    assert matter.told()["job_id"] == "j1"
    assert Attention(kind="unknown", operation=dataclasses.replace(row, handle=None)).told()["job_id"] is None
    heard = []
    assert world.run(tell("t", heard.append, silence=120)) == 0
    world.ledger.clock.now += 3600
    assert world.run(tell("t", heard.append, silence=120)) == 1
    assert world.run(tell("t", heard.append, silence=120)) == 0


def test_an_event_that_came_early_meets_each_state_of_its_step():
    """Kept while the request was out: running is noted, thin makes the job due, one that tells less waits."""
    tool = job_tool(webhook=True)
    tools = {tool.name: tool}
    world = world_of(ENDS)
    world.run(receive("t", event(PLAIN_RUNS, "e1"), tools))
    world.run(receive("t", event({"status": "succeeded"}, "e2"), tools))
    outcome = run(world, tool)
    assert (outcome.status, outcome.reason) == ("succeeded", "job_ended")
    assert world.kept.told == {("default", "e1"), ("default", "e2")}
    world = world_of(RUNS)
    world.run(receive("t", event(DONE, "e1", source="other"), tools))
    assert run(world, tool).status == "timed_out"


def test_a_job_without_a_url_waits_for_its_callback_until_the_bound():
    """Nothing is asked; `once` does not wait."""
    start = json_answer(202, {"job_id": "j1"})
    world = world_of(RUNS, start=start)
    tool = job_tool(webhook=True)
    assert run(world, tool, following=Following("once")).status == "pending"
    world = world_of(RUNS, start=start)
    assert run(world, tool).status == "timed_out"
    assert all(send.request.method == "POST" for send in world.effects if hasattr(send, "request"))
    assert run(world_of(RUNS, start=json_answer(202)), job_tool()).status == "pending"


def test_urls_of_other_origins_are_left_alone():
    """The row is due no more; another try says the same."""
    start = json_answer(202, None, (("Location", "https://evil.test/j"),))
    world = world_of(RUNS, start=start)
    assert "not on the tool's origin" in run(world, job_tool()).message
    assert row_of(world).resume_at is None
    bare = world_of(ENDS, start=json_answer(202, None, (("Location", "https://ok.test/j"),)))
    assert run(bare, job_tool(origins=("https://ok.test",))).status == "succeeded"


def test_a_401_without_a_token_ends_the_try():
    """There is nothing to refresh."""
    world = world_of(json_answer(401), json_answer(401))
    outcome = run(world, job_tool(origins=("https://ok.test",)))
    assert outcome.status == "pending"
    assert "refused a fresh token" in outcome.message


def test_polls_that_meet_trouble_go_on():
    """No connection, 404 in the first half minute, 410 at last."""
    world = world_of(SendFailure(maybe_sent=False, error="ConnectError"), json_answer(404), json_answer(410))
    outcome = run(world, job_tool())
    assert (outcome.status, outcome.reason) == ("unknown", "job_gone")


def test_a_result_that_is_elsewhere():
    """Fetched; tried again on a 503; missing on a 404 or on another origin; of a PUT it is the resource."""
    there = json_answer(200, {"status": "succeeded", "result_url": "/r"})
    assert run(world_of(there, json_answer(503), there, json_answer(200, 7)), job_tool()).value == 7
    assert run(world_of(there, json_answer(404)), job_tool()).result_state == "missing"
    away = json_answer(200, {"status": "succeeded", "result_url": "https://evil.test/r"})
    assert run(world_of(away), job_tool()).result_state == "missing"
    cut = Answer(status=200, body=b"{", body_state=BodyState.CUT)
    assert run(world_of(there, cut, there, json_answer(200, 7)), job_tool()).value == 7


def test_an_adapter_that_raises_loses_no_poll():
    """The next look is read again."""
    from agent_runtime.config import JobAdapter, JobReading, JobStart

    seen = []

    def read(one):
        seen.append(one)
        if len(seen) < 3:
            raise KeyError("x")
        return JobReading(status="failed", error={"code": 1})

    adapter = JobAdapter(start=lambda one: JobStart(url="/jobs/1", job_id="a"), read=read)
    assert run(world_of(RUNS), job_tool(adapter=adapter)).error["error"] == {"code": 1}
    assert len(seen) == 3


# -- the moments in which something else comes first ------------------------------------------------------------------


def test_an_event_with_a_key_ends_the_operation_of_that_key():
    """Also while a job id would be unclear."""
    world = world_of(RUNS)
    tool = job_tool(webhook=True)
    run(world, tool, following=DETACH)
    keyed = dataclasses.replace(event(DONE), key=row_of(world).key)
    assert world.run(receive("t", keyed, {tool.name: tool})) == "applied"


def test_an_event_meets_a_request_that_is_out():
    """It is kept; the step applies it once it gets there."""
    tool = job_tool(webhook=True)
    told = []

    def start(effect):
        told.append(world.run(receive("t", event(DONE), {tool.name: tool})))
        return json_answer(202, START)

    world = world_of(ENDS)
    world.answer = start
    outcome = run(world, tool)
    assert (told, outcome.status, outcome.reason) == (["kept"], "succeeded", "callback")


@pytest.mark.parametrize("moves", [1, 9])
def test_an_event_is_applied_to_a_row_that_moves(moves):
    """It is tried again on the row as it then is, a few times; then it stays kept."""
    world = world_of(RUNS)
    tool = job_tool(webhook=True)
    run(world, tool, following=DETACH)
    left = [moves]
    write = world.ledger.write

    def moving(entry):
        if left[0]:
            left[0] -= 1
            row = row_of(world)
            world.ledger.operations[row.id] = dataclasses.replace(row, version=row.version + 1)
        return write(entry)

    world.ledger.write = moving
    wanted = "applied" if moves == 1 else "kept"
    assert world.run(receive("t", event(DONE), {tool.name: tool})) == wanted


def test_an_event_of_an_operation_that_is_gone_is_kept():
    """Its session was deleted between the two reads."""
    world = world_of(RUNS)
    tool = job_tool(webhook=True)
    run(world, tool, following=DETACH)
    world.ledger.write = lambda entry: WriteOutcome(write_id=entry.write_id, took=Took.STATE_CONFLICT, now=0.0)
    assert world.run(receive("t", event(DONE), {tool.name: tool})) == "kept"


def test_a_body_that_is_no_json_tells_no_end():
    """It is filed."""
    world = world_of(RUNS)
    tool = job_tool(webhook=True)
    run(world, tool, following=DETACH)
    raw = dataclasses.replace(event(DONE), body=b"{")
    assert world.run(receive("t", raw, {tool.name: tool})) == "noted"


@pytest.mark.parametrize("end", [DONE, FAILED])
def test_a_poll_and_a_callback_see_ends(end):
    """The callback is first: the poll's end is filed beside it, and contradicts it if it is another one."""
    tool = job_tool(webhook=True)

    def poll(effect):
        world.run(receive("t", event(DONE), {tool.name: tool}))
        return json_answer(200, end)

    world = world_of(poll)
    assert run(world, tool).status == "succeeded"
    assert [seen.kind for _, seen in world.ledger.evidence][-1] == "poll"


def test_a_callback_ends_a_wait():
    """The row is looked at every two seconds."""
    tool = job_tool(webhook=True)
    world = world_of(RUNS)
    slept = []

    def perform(effect, plain=world.perform):
        if isinstance(effect, Sleep):
            slept.append(effect.seconds)
            if len(slept) == 2:
                world.run(receive("t", event(DONE), {tool.name: tool}))
        return plain(effect)

    world.perform = perform
    heard = []
    assert run(world, tool, following=Following("wait", heard.append)).reason == "callback"
    assert slept == [2.0, 2.0]
    assert heard[-1].status == "succeeded"


def test_a_failure_by_callback_is_told_too():
    """As the last word of progress."""
    tool = job_tool(webhook=True)
    world = world_of(RUNS)
    world.run(receive("t", event(FAILED), {tool.name: tool}))
    heard = []
    assert run(world, tool, following=Following("wait", heard.append)).status == "failed"
    assert heard[-1].status == "failed"


def test_errors_and_cancels_as_they_should_be():
    """Fetched with the limit; a step that was never sent is cancelled at once; DELETE and POST."""
    part = {"status": "completed_with_errors", "done": True, "summary": {"failed": 1}, "errors_url": "/e"}
    tool = job_tool()
    world = world_of(json_answer(200, part), json_answer(200, [1]))
    run(world, tool)
    assert world.run(errors_of(world.desk(), tool, row_of(world), "step_001", 5)) == [1]
    text = world_of(json_answer(200, part), Answer(status=200, body=b"row 3"))
    run(text, tool)
    assert text.run(errors_of(text.desk(), tool, row_of(text), "step_001", 5)) == "row 3"
    plain = world_of(ENDS)
    run(plain, tool)
    with pytest.raises(ConfigError):
        plain.run(errors_of(plain.desk(), tool, row_of(plain), "step_001", 5))
    waiting = world_of(ENDS, start=json_answer(429, None, (("Retry-After", "3600"),)))
    run(waiting, tool)
    assert waiting.run(cancel(waiting.desk(), tool, row_of(waiting), "step_001")).state is State.CANCELLED
    for how, method in (("DELETE", "DELETE"), ("POST:cancel", "POST")):
        asked = world_of(json_answer(202, {}))
        stops = job_tool(cancel=how)
        run(asked, stops, following=DETACH)
        asked.run(cancel(asked.desk(), stops, row_of(asked), "step_001"))
        assert [one.request.method for one in asked.effects if hasattr(one, "request")][-1] == method


def test_a_long_stream_is_noted_now_and_then():
    """Every five seconds; where the row has moved, whoever moved it is heard."""
    start = json_answer(202, {"job_id": "j1", "status_url": "/jobs/1", "ev": "/jobs/1/ev"})
    tool = job_tool(stream="ev")
    for moves in (False, True):
        world = world_of(ENDS, start=start, stream=[said(PLAIN_RUNS), said(PLAIN_RUNS), None])

        def perform(effect, plain=world.perform, here=world, moving=moves):
            if isinstance(effect, NextEvent):
                here.ledger.clock.now += 6
                if moving:
                    row = row_of(here)
                    here.ledger.operations[row.id] = dataclasses.replace(row, version=row.version + 1)
            return plain(effect)

        world.perform = perform
        assert run(world, tool).status == "succeeded"


def test_a_stream_whose_end_somebody_else_wrote():
    """The same end, filed; and an adapter that cannot read events leaves the job to its polls."""
    from agent_runtime.config import JobAdapter, JobReading, JobStart

    start = json_answer(202, {"job_id": "j1", "status_url": "/jobs/1", "ev": "/jobs/1/ev"})
    tool = job_tool(stream="ev", webhook=True)
    world = world_of(ENDS, start=start, stream=[said(DONE)])

    def perform(effect, plain=world.perform):
        if isinstance(effect, NextEvent):
            world.run(receive("t", event(DONE), {tool.name: tool}))
        return plain(effect)

    world.perform = perform
    assert run(world, tool).reason == "callback"

    def read(one):
        if "job_id" in one.body:
            raise KeyError("x")
        return JobReading(status="succeeded", result=1, has_result=True)

    adapted = job_tool(stream="ev", adapter=JobAdapter(start=lambda one: JobStart(url="/jobs/1"), read=read))
    world = world_of(json_answer(200, {}), start=start, stream=[said(DONE), None])
    assert run(world, adapted).value == 1


def test_a_stream_that_nobody_drives_any_more_asks_for_nothing():
    """As after a crash: the protocol is dropped, and nothing is yielded on the way out."""
    start = json_answer(202, {"job_id": "j1", "status_url": "/jobs/1", "ev": "/jobs/1/ev"})
    world = world_of(ENDS, start=start, stream=[None])
    tool = job_tool(stream="ev")
    run(world, tool, following=DETACH)
    made = listen(run_of(world, tool), handle_of(row_of(world)), Credential(), 10.0)
    while not isinstance(made.send(None if made.gi_frame.f_lasti < 1 else 0.0), NextEvent):
        pass
    made.close()


def run_of(world, tool):
    return Run(operation=row_of(world), tool=tool, fence=world.ledger.fence, body_limit=1 << 20)


def test_an_untracked_job_is_no_matter_at_first():
    """A callback may still end it."""
    world = world_of(RUNS, start=json_answer(202))
    run(world, job_tool())
    row, now = row_of(world), world.ledger.clock.now
    assert kind_of(row, now=now, silence=120) is None
    assert kind_of(row, now=now + 121, silence=120) == "untracked"
    timed = world_of(RUNS)
    run(timed, job_tool())
    assert kind_of(row_of(timed), now=now, silence=120) == "timed_out"
    gone = world_of(json_answer(410))
    run(gone, job_tool())
    assert kind_of(row_of(gone), now=now, silence=120) == "unknown"
