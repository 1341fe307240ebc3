"""Jobs that nobody can ask about: said at once and in words that are true, and nothing goes where it may not."""

import json
from dataclasses import replace

import pytest

from agent_runtime import ToolContract
from agent_runtime._core.attention import matters
from agent_runtime._core.explain import what_next
from agent_runtime._core.handles import handle_of
from agent_runtime._core.reach import may_ask
from agent_runtime._model import Answer, BodyState, Handle, Reason, ResultState, State
from agent_runtime.config import HttpLookup, Member, PollPolicy
from agent_runtime.config.jobs import JobAdapter, JobReading, JobStart
from tests.core.job_world import (
    ENDS,
    JOB_URL,
    RUNS,
    STARTED,
    call_it,
    callback,
    followed,
    job_tool,
    left,
    rewrite,
    started,
    world_of,
)
from tests.core.world import LOST, START, Crash, json_answer

TOOL, CALLS_BACK = job_tool(), job_tool(webhook=True)
OTHER = "https://jobs.test"
ALLOWED = job_tool(origins=(OTHER,))
ELSEWHERE = started({"job_id": "job_7f21c", "status_url": f"{OTHER}/j"})
AWAY = Answer(status=302, headers=(("Location", f"{OTHER}/sign-in"),))
ENDED = json_answer(200, ENDS)


def long(value, *, status=200, kind="application/json", cut=None):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Answer(status=status, headers=(("Content-Type", kind),), body=body[:cut], body_state=BodyState.OVERSIZED)


UNREADABLE = long(b'{"log": "' + b"x" * 50)


def kinds(world):
    return [matter.kind for matter in world.run(matters("", silence=120.0))]


WHY = {
    # the start, the polls, what is said of it
    "bare": (started({"job_id": "j"}), [], "neither where to ask about its job nor that it calls back"),
    "body": (ELSEWHERE, [], "not on the tool's origin but on https://jobs.test:443, so nothing was sent there"),
    "location": (started({}, headers={"Location": f"{OTHER}/j"}), [], "not on the tool's origin but on https://jobs"),
    "redirected": (started(), [AWAY], "redirects to https://jobs.test:443, which is not the tool's origin"),
    "unusable": (
        started({}, headers={"Location": "/" + "x" * 70_000}),
        [],
        "cannot be used: it is malformed, too long",
    ),
    "userinfo": (started({"status_url": "https://u:p@tools.test/j"}), [], "cannot be used: it is malformed"),
    "nowhere": (started(), [Answer(status=307, headers=(("Location", "ftp://x/"),))], "a place that cannot be asked"),
    "too-long": (started(), [UNREADABLE], "longer than the body limit"),
}


@pytest.mark.parametrize(("start", "polls", "said"), WHY.values(), ids=WHY)
def test_a_job_that_nobody_can_ask_about_is_a_matter_at_once(start, polls, said):
    """The outcome and the matter say why; the row stays accepted, due for nobody, and no time is spent on it."""
    world = world_of(start, *polls)
    outcome = call_it(world, TOOL)
    assert (outcome.status, outcome.reason, outcome.state) == ("pending", "untracked", "accepted")
    assert said in outcome.message
    assert said in outcome.for_model()["message"]
    assert (world.row.resume_at, len(world.polls), len(world.sends)) == (None, len(polls), 1)
    assert world.ledger.clock.now < START + 60
    (matter,) = world.run(matters("", silence=120.0))
    assert (matter.kind, matter.told()["message"]) == ("untracked", matter.message)
    assert said in matter.message
    assert {one.request.url.split("/")[2] for one in world.polls} <= {"tools.test"}


@pytest.mark.parametrize("start", [started({"job_id": "j"}), ELSEWHERE])
def test_it_is_written_with_the_answer_that_started_the_job(start):
    """A process that dies right after it leaves nobody without word."""
    world = world_of(start)

    def trouble(effect):
        if any(row.state is State.ACCEPTED for row in world.ledger.operations.values()):
            raise Crash

    world.trouble = trouble
    with pytest.raises(Crash):
        call_it(world, TOOL)
    world.trouble = None
    assert (world.row.reason, kinds(world)) == (Reason.UNTRACKED, ["untracked"])


def test_one_that_calls_back_is_no_matter_before_it_is_silent():
    """A callback may still end it, so it is waited for instead, also where the URL cannot be asked."""
    for start in (started({"job_id": "job_7f21c"}), ELSEWHERE):
        world = left(CALLS_BACK, start)
        assert (world.row.reason, kinds(world)) == (None, [])
        world.ledger.clock.now += 121
        assert kinds(world) == ["untracked"]
        world.ledger.keep_event(tenant="", event=callback())
        assert call_it(world, CALLS_BACK).status == "succeeded"
        assert world.polls == []


@pytest.mark.parametrize("answer", [AWAY, UNREADABLE])
def test_a_callback_is_waited_for_where_the_url_turns_out_to_tell_nothing(answer):
    """One look; then only the ledger is looked at, until the bound."""
    world = world_of(started(), answer)
    assert call_it(world, CALLS_BACK).status == "timed_out"
    assert len(world.polls) <= 2
    assert world.ledger.clock.now == START + 600


def test_a_success_without_a_result_ends_a_job_whose_url_nobody_can_ask():
    """That it succeeded is known; what the result is nobody can learn."""
    world = left(CALLS_BACK, ELSEWHERE)
    world.ledger.keep_event(tenant="", event=callback({"job_id": "job_7f21c", "status": "succeeded"}))
    call_it(world, CALLS_BACK)
    assert (world.row.state, world.row.result_state, world.polls) == (State.SUCCEEDED, ResultState.MISSING, [])
    stuck = world_of(started({"job_id": "job_7f21c", "status_url": "/s"}), AWAY)
    call_it(stuck, CALLS_BACK, "once")
    stuck.ledger.keep_event(tenant="", event=callback({"job_id": "job_7f21c", "status": "succeeded"}))
    call_it(stuck, CALLS_BACK)
    assert (stuck.row.state, stuck.row.result_state) == (State.SUCCEEDED, ResultState.MISSING)


def test_a_new_call_looks_again_and_forgets_what_is_over():
    """The redirect is gone, or the origin is allowed by now: the job is followed as any other."""
    world = world_of(started(), AWAY, json_answer(200, RUNS), ENDED)
    call_it(world, TOOL)
    assert call_it(world, TOOL, "next").reason is None
    assert (kinds(world), world.handle.get("obstacle"), world.row.resume_at is None) == ([], None, False)
    assert call_it(world, TOOL).status == "succeeded"
    late = left(TOOL, ELSEWHERE, ENDED)
    assert late.row.reason is Reason.UNTRACKED
    assert call_it(late, ALLOWED).status == "succeeded"
    assert [(one.request.url, one.headers) for one in late.polls] == [(f"{OTHER}/j", ())]


def test_a_second_call_says_the_same_and_writes_nothing():
    """Nothing has changed."""
    world = left(TOOL, ELSEWHERE)
    call_it(world, TOOL)
    version = world.row.version
    assert "not on the tool's origin" in call_it(world, TOOL).message
    assert world.row.version == version


def test_an_allowed_redirect_is_followed_without_credentials():
    """To the origin that the policy names, and back to the tool's with them."""
    world = followed(AWAY, ENDED, tool=ALLOWED)
    assert [(one.request.url, bool(one.headers)) for one in world.polls] == [
        (JOB_URL, True),
        (f"{OTHER}/sign-in", False),
    ]
    assert world.row.state is State.SUCCEEDED
    back = Answer(status=302, headers=(("Location", JOB_URL),))
    world = followed(back, ENDED, start=ELSEWHERE, tool=ALLOWED)
    assert [bool(one.headers) for one in world.polls] == [False, True]


def test_a_redirect_back_needs_the_token():
    """Without one the redirect is all that was seen."""
    back = Answer(status=302, headers=(("Location", JOB_URL),))
    world = left(ALLOWED, ELSEWHERE, back)
    world.token.renews = False
    world.token.principal = "somebody else"
    call_it(world, ALLOWED, "once")
    assert (len(world.polls), world.row.state) == (1, State.ACCEPTED)


def test_a_row_that_moves_meanwhile_is_taken_as_it_is():
    """Somebody wrote its end before it could be noted that it cannot be asked about."""
    world = left(TOOL)

    def answer(send):
        rewrite(world, state=State.SUCCEEDED, result=b"7")
        return AWAY

    world.answer = answer
    assert call_it(world, TOOL).value == 7


def test_a_detached_job_of_an_old_row_is_noted_too():
    """Found by a look-up, or written by a release that knew no reason: the next call that comes to it says so."""
    world = left(TOOL)
    rewrite(world, handle={"url": f"{OTHER}/j"})
    assert call_it(world, TOOL, "detach").reason == "untracked"
    world = left(CALLS_BACK)
    rewrite(world, handle={"url": f"{OTHER}/j"})
    assert call_it(world, CALLS_BACK, "detach").reason is None


TOLD = {
    # protocol of the start, the beginning of the answer, state, result state
    "status": ({}, b'{"job_id": "job_7f21c", "status": "succeeded", "result": {"log": "xx', "succeeded", "unreadable"),
    "done-first": ({}, b'{"done": true, "status": "succeeded", "x": 12', "succeeded", "unreadable"),
    "whole-result": ({}, b'{"status": "succeeded", "result": 7, "log": "xx', "succeeded", "ok"),
    "failed": ({}, b'{"status": "failed", "error": {"code": 1}, "log": "xx', "failed", None),
    "failed-by-a-long-error": ({}, b'{"done": true, "error": {"trace": "xx', "failed", None),
    "partly": ({}, b'{"status": "completed_with_errors", "summary": {"failed": 1}, "rows": [1, ', "succeeded", "ok"),
    "location-result": ({"Location": "/jobs/1"}, b'{"rows": [1, 2', "succeeded", "unreadable"),
    "location-list": ({"Location": "/jobs/1"}, b"[1, 2", "succeeded", "unreadable"),
    "location-bytes": ({"Location": "/jobs/1"}, b"a,b\n1,", "succeeded", "unreadable"),
    "location-status": ({"Location": "/jobs/1"}, b'{"status": "failed", "log": "x', "failed", None),
    "azure": ({"Operation-Location": "/op"}, b'{"status": "Succeeded", "result": [', "succeeded", "unreadable"),
}


@pytest.mark.parametrize(("headers", "beginning", "state", "result_state"), TOLD.values(), ids=TOLD)
def test_an_end_in_front_of_what_is_too_long_counts(headers, beginning, state, result_state):
    """It is asked for once: what is too long once is too long again."""
    world = followed(long(beginning), start=started({} if headers else STARTED, headers=headers))
    assert (world.row.state, world.row.result_state, len(world.polls)) == (state, result_state, 1)
    assert len(world.sends) == 1


UNTOLD = {
    "nothing-yet": ({}, b'{"log": "xx'),
    "a-word-that-is-cut": ({}, b'{"status": "succ'),
    "no-object": ({}, b"[1, 2"),
    "no-member": ({}, b"{7: 1"),
    "no-colon": ({}, b'{"status" "x"'),
    "blanks": ({}, b'  { "a" :'),
    "deep": ({}, b'{"a": ' + b"[" * 200_000),
    "location-202": ({"Location": "/jobs/1"}, b'{"rows": [1, 2'),
    "location-page": ({"Location": "/jobs/1"}, b"<html>"),
    "aip": (None, b'{"name": "operations/7", "response": {"log": "x'),
}


@pytest.mark.parametrize(("headers", "beginning"), UNTOLD.values(), ids=UNTOLD)
def test_a_beginning_that_tells_no_state_is_no_state(headers, beginning):
    """Nothing is guessed from it, and it is not asked for again."""
    start = started({"name": "operations/7", "done": False} if headers is None else STARTED, headers=headers)
    status = 202 if b"rows" in beginning else 200
    kind = "text/html" if beginning == b"<html>" else "application/json"
    world = followed(long(beginning, status=status, kind=kind), start=start)
    assert (world.row.state, world.row.reason, len(world.polls)) == (State.ACCEPTED, Reason.UNTRACKED, 1)


@pytest.mark.parametrize(
    ("beginning", "state"),
    [
        (b'{"properties": {"provisioningState": "Succeeded"}, "log": "x', State.SUCCEEDED),
        (b'{"id": "x", "properties": {"log": "x', State.ACCEPTED),
    ],
)
def test_a_resource_that_is_too_long_tells_its_state_by_its_properties(beginning, state):
    """Without them it tells none: a resource is not there because its page is long."""
    world = left(TOOL, None, long(beginning))
    rewrite(world, handle={"protocol": "resource"})
    call_it(world, TOOL)
    assert world.row.state is state


def test_a_running_job_with_a_long_page_is_looked_at_again():
    """It says that it runs: that is progress, and its hint is kept to."""
    world = followed(long(b'{"status": "processing", "poll_after_seconds": 90, "log": "x'), ENDED)
    assert (world.row.state, len(world.polls)) == (State.SUCCEEDED, 2)
    assert world.waits[1] >= 90
    whole = followed(long(b'{"status": "processing"}'), ENDED)
    assert whole.row.state is State.SUCCEEDED


def test_an_adapters_job_is_not_read_from_a_beginning():
    """The user's code reads whole bodies."""
    reads = JobAdapter(start=lambda _: JobStart(url="/mine"), read=lambda _: JobReading())
    world = followed(long(b'{"status": "succeeded", "log": "x'), start=started(), tool=job_tool(adapter=reads))
    assert (world.row.state, world.row.reason) == (State.ACCEPTED, Reason.UNTRACKED)


@pytest.mark.parametrize("state", [BodyState.OVERSIZED, BodyState.UNDECODABLE])
def test_a_result_that_cannot_be_read_is_unreadable_and_fetched_once(state):
    """The job's own word says that it succeeded."""
    result = Answer(status=200, body=b'{"rows": [', body_state=state)
    world = followed(json_answer(200, {"status": "succeeded", "result_url": "/r"}), result)
    assert (world.row.state, world.row.result_state) == (State.SUCCEEDED, ResultState.UNREADABLE)
    assert (len(world.polls), world.row.result) == (2, b'{"rows": [')


def test_a_result_behind_a_redirect_to_another_origin():
    """Where that is allowed it is fetched without credentials; else the result is missing, and nothing goes there."""
    end = json_answer(200, {"status": "succeeded", "result_url": "/r"})
    world = followed(end, AWAY)
    assert (world.row.state, world.row.result_state, len(world.polls)) == (State.SUCCEEDED, ResultState.MISSING, 2)
    world = followed(end, AWAY, json_answer(200, 7), tool=ALLOWED)
    assert [bool(one.headers) for one in world.polls] == [True, True, False]
    assert world.row.result == b"7"


def test_a_result_on_an_allowed_origin_is_fetched_without_credentials():
    """As the job itself may be asked there."""
    world = followed(
        json_answer(200, {"status": "succeeded", "result_url": f"{OTHER}/r"}), json_answer(200, 7), tool=ALLOWED
    )
    assert [(one.request.url, bool(one.headers)) for one in world.polls] == [(JOB_URL, True), (f"{OTHER}/r", False)]
    assert world.row.result == b"7"


def test_what_a_resume_would_do_about_a_job():
    """Look at it, where that can be done."""
    assert what_next(left(TOOL).row, TOOL, now=START + 60) == "look at its job"
    for start in (started({}), ELSEWHERE):
        assert "cannot be asked about" in what_next(left(TOOL, start).row, TOOL, now=START)


def test_a_look_up_that_finds_a_job_elsewhere_says_so():
    """The stored 202 names another origin."""
    lookup = HttpLookup(
        url="/operations/{key}", done=Member(name="state", equals="done"), status="status", result="body"
    )
    tool = job_tool(ToolContract(lookup=lookup))
    stored = {"state": "done", "status": 202, "body": {"job_id": "j", "status_url": f"{OTHER}/j"}}
    outcome = call_it(world_of(LOST, json_answer(200, stored)), tool)
    assert (outcome.reason, outcome.job_id) == ("untracked", "j")
    assert "not on the tool's origin" in outcome.message


def test_a_handle_is_read_whatever_release_wrote_it():
    """An accepted row without one is bare; members that are not known are passed over."""
    world = left(TOOL)
    assert handle_of(world.row).url == JOB_URL
    rewrite(world, handle={"of a later release": 1})
    assert handle_of(world.row).job_id == "job_7f21c"
    row = replace(world.row, handle=None)
    assert handle_of(row) == Handle(url=None, job_id=None, protocol="bare", started_at=row.updated_at)


def test_an_allowed_origin_may_be_asked_and_no_other():
    """What is no URL at all is nowhere."""
    policy = PollPolicy(origins=(OTHER,))
    assert may_ask(JOB_URL, JOB_URL, policy)
    assert may_ask(f"{OTHER}/s", JOB_URL, policy)
    assert not may_ask("https://jobs.test:8443/s", JOB_URL, policy)
    assert not may_ask("mailto:x", JOB_URL, policy)


def test_a_url_that_an_earlier_release_stored_may_be_too_long():
    """Nothing is sent there, at any restart, and it is said why."""
    world = left(TOOL)
    rewrite(world, handle={"url": JOB_URL + "x" * 70_000})
    outcome = call_it(world, TOOL)
    assert (outcome.reason, world.polls) == ("untracked", [])
    assert "too long" in outcome.message


@pytest.mark.parametrize("place", ["/r" + "x" * 70_000, "ftp://tools.test/r"])
def test_a_result_whose_url_cannot_be_used_is_missing(place):
    """The job succeeded all the same."""
    world = followed(json_answer(200, {"status": "succeeded", "result_url": place}))
    assert (world.row.state, world.row.result_state) == (State.SUCCEEDED, ResultState.MISSING)


def test_an_adapter_that_cannot_read_the_start_is_the_obstacle():
    """The job was started and is not lost; who reads of it learns what to mend."""
    adapter = JobAdapter(start=lambda _: "/jobs/1", read=lambda _: JobReading())
    world = world_of(started({"job_id": "j"}))
    outcome = call_it(world, job_tool(adapter=adapter))
    assert (outcome.status, outcome.reason, outcome.job_id) == ("pending", "untracked", "j")
    assert "JobAdapter.start has to return a JobStart or None, not str" in outcome.message
    assert json.loads(world.row.result) == {"job_id": "j"}, "what the tool answered is kept"


def test_a_place_that_is_too_long_and_asks_to_wait_is_no_result():
    """Of Location the header says "not yet" also where the body was cut."""
    answer = replace(long(b"[1, 2"), headers=(("Retry-After", "5"),))
    world = followed(answer, start=started({}, headers={"Location": "/jobs/1"}))
    assert (world.row.state, world.row.reason) == (State.ACCEPTED, Reason.UNTRACKED)
    running = followed(long(b'{"state": "running", "log": "x'), ENDED, start=started({}, headers={"Location": "/j"}))
    assert (running.row.state, len(running.polls)) == (State.SUCCEEDED, 2)
