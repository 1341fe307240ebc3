"""A 401 to a GET: one fresh token, then a person; what a person has to bring is said, and no refresh is wasted."""

import base64
import json

import pytest

from agent_runtime import Idempotency, RetryPolicy, Timeouts, ToolContract
from agent_runtime._core.effects import Acquire, NoCredential
from agent_runtime._model import State
from agent_runtime.config import HttpLookup, Member
from tests.core.job_world import ENDS, RUNS, STARTED, call_it, followed, job_tool, left, started, world_of
from tests.core.world import LOST, NOT_SENT, json_answer

CLAIMS = '{"access_token":{"nbf":{"essential":true}}}'
PACKED = base64.b64encode(CLAIMS.encode()).decode()
CHALLENGE = json_answer(
    401, None, (("WWW-Authenticate", f'Bearer realm="", error="insufficient_claims", claims="{PACKED}"'),)
)
REFUSED, ENDED = json_answer(401), json_answer(200, ENDS)
FETCH = json_answer(200, {"status": "succeeded", "result_url": "/r"})
RESULT = json_answer(200, 7)
LOOKUP = HttpLookup(url="/operations/{key}", done=Member(name="state", equals="done"))
LOOKED_UP = job_tool(ToolContract(lookup=LOOKUP))
DONE = json_answer(200, {"state": "done"})


def tokens(world):
    return [dict(one.headers).get("Authorization", "")[-2:] for one in world.polls]


FORBIDDEN = json_answer(
    403, None, (("WWW-Authenticate", f'Basic realm="", Bearer error="insufficient_scope", claims="{PACKED}"'),)
)


def error(world):
    return json.loads(world.row.error)


@pytest.mark.parametrize(
    ("polls", "sent"),
    [
        ([REFUSED, ENDED], ["t1", "t2"]),
        ([FETCH, REFUSED, RESULT], ["t1", "t1", "t2"]),
        ([FETCH, REFUSED, json_answer(503), FETCH, REFUSED, RESULT], ["t1", "t1", "t2", "t2", "t2", "t3"]),
    ],
)
def test_one_fresh_token_is_tried_at_once(polls, sent):
    """For the job's state and for the page of its result alike."""
    world = followed(*polls)
    assert (world.row.state, tokens(world)) == (State.SUCCEEDED, sent)
    assert len(world.sends) == 1


@pytest.mark.parametrize(("polls", "looks"), [([REFUSED], 2), ([FETCH, REFUSED], 3)])
def test_a_second_refusal_waits_for_a_person(polls, looks):
    """The job stands as it stood, is due again later, and the next try goes on."""
    world = world_of(started(), *polls)
    outcome = call_it(world, job_tool())
    assert (outcome.status, len(world.polls), world.token.number) == ("pending", looks, 2)
    assert "refused a fresh token" in outcome.message
    assert error(world)["error"] == "token_required"
    assert world.row.resume_at > world.ledger.clock.now
    world.answer = lambda _: ENDED
    assert call_it(world, job_tool()).status == "succeeded"


@pytest.mark.parametrize(
    ("answers", "state", "sends"),
    [([FORBIDDEN], "ready", 1), ([LOST, FORBIDDEN], "unknown", 2), ([json_answer(403)], "failed", 1)],
)
def test_a_403_waits_for_a_person_where_it_names_claims(answers, state, sends):
    """As a 401 with claims: no refresh, the claims are kept, and only what was surely not applied is ready again."""
    world = world_of(*answers)
    outcome = call_it(world, job_tool())
    assert (outcome.state, len(world.sends), world.token.number) == (state, sends, 1)
    assert outcome.error.get("claims") == (None if state == "failed" else CLAIMS)
    assert outcome.kind == ("auth" if state == "ready" else None)


def test_a_403_of_a_read_waits_as_well():
    """A read goes back to ready, and is done once the proof is there."""
    world = world_of(FORBIDDEN)
    outcome = call_it(world, job_tool(ToolContract(kind="read")))
    assert (outcome.state, outcome.kind, outcome.error["claims"]) == ("ready", "auth", CLAIMS)


@pytest.mark.parametrize("polls", [[FORBIDDEN], [FETCH, FORBIDDEN]])
def test_a_403_that_names_claims_to_a_poll_is_a_persons_matter(polls):
    """The job stands, and what has to be brought is said."""
    world = world_of(started(), *polls)
    outcome = call_it(world, job_tool())
    assert (outcome.state, outcome.error["claims"], len(world.polls)) == ("accepted", CLAIMS, len(polls))


def test_a_403_that_names_claims_to_a_look_up_is_a_persons_matter():
    """The step stays unknown, without further looks."""
    world = world_of(LOST, FORBIDDEN)
    outcome = call_it(world, LOOKED_UP)
    assert (outcome.state, outcome.error["claims"], len(world.polls)) == ("unknown", CLAIMS, 1)


@pytest.mark.parametrize("polls", [[CHALLENGE], [FETCH, CHALLENGE]])
def test_a_challenge_for_claims_is_a_persons_matter_at_once(polls):
    """No refresh, no second request: the same proof would be refused again. The claims stand in the outcome."""
    world = world_of(started(), *polls)
    outcome = call_it(world, job_tool())
    assert (len(world.polls), world.token.number) == (len(polls), 1)
    assert outcome.error["claims"] == CLAIMS
    assert outcome.error["code"] == "insufficient_claims"
    assert "let the user sign in again, with the claims that it names" in outcome.message
    assert (outcome.state, world.row.resume_at > world.ledger.clock.now) == ("accepted", True)


def test_what_was_wanted_is_forgotten_once_it_is_there():
    """A look that is answered leaves nothing of it in the row."""
    world = world_of(started(), CHALLENGE, json_answer(200, RUNS), ENDED)
    assert call_it(world, job_tool()).error is not None
    assert call_it(world, job_tool(), "next").error is None


def test_a_look_up_is_told_apart_in_the_same_way():
    """A fresh token once; claims at once; the step stays unknown, and says what has to be brought."""
    world = world_of(LOST, REFUSED, DONE)
    assert call_it(world, LOOKED_UP).status == "succeeded"
    assert (tokens(world), len(world.waits)) == (["t1", "t2"], 1)  # the wait is that before the first look-up
    world = world_of(LOST, REFUSED)
    assert "the look-up refused a fresh token" in call_it(world, LOOKED_UP).message
    assert len(world.polls) == 2
    world = world_of(LOST, CHALLENGE)
    outcome = call_it(world, LOOKED_UP)
    assert (outcome.status, len(world.polls), world.token.number) == ("unknown", 1, 1)
    assert outcome.error["claims"] == CLAIMS
    assert "let the user sign in again" in outcome.message
    assert [seen.kind for _, seen in world.ledger.evidence].count("lookup") == 1


def test_claims_that_repeat_our_own_token_are_not_kept():
    """A server may echo what it was sent."""
    echo = base64.b64encode(b'{"seen":"Bearer t1"}').decode()
    challenge = json_answer(401, None, (("WWW-Authenticate", f'Bearer error="insufficient_claims", claims="{echo}"'),))
    assert "claims" not in call_it(world_of(started(), challenge), job_tool()).error


@pytest.mark.parametrize("status", [401, 403])
def test_claims_of_the_tool_that_repeat_our_own_token_are_not_kept(status):
    """The step waits all the same; the person finds the error code, and nothing that was sent."""
    echo = base64.b64encode(b'{"seen":"Bearer t1"}').decode()
    challenge = json_answer(
        status, None, (("WWW-Authenticate", f'Bearer error="insufficient_claims", claims="{echo}"'),)
    )
    outcome = call_it(world_of(challenge), job_tool())
    assert (outcome.state, outcome.kind, outcome.error["code"]) == ("ready", "auth", "insufficient_claims")
    assert "claims" not in outcome.error
    assert "Bearer t1" not in repr(outcome)


def scopeless(status=403, error="insufficient_scope"):
    return json_answer(status, {"title": "no"}, (("WWW-Authenticate", f'Bearer error="{error}", scope="write"'),))


@pytest.mark.parametrize(
    ("answer", "granted", "told"),
    [
        (scopeless(), "read", "read"),
        (scopeless(), "", None),
        (scopeless(error="invalid_request"), "read", None),
        (scopeless(status=400), "read", None),
        (json_answer(403), "read", None),
    ],
)
def test_a_403_for_want_of_a_scope_says_what_was_granted(answer, granted, told):
    """Only where the tool says so, and where the authorisation server granted others than were asked for."""
    world = world_of(answer)
    world.token.granted = granted
    outcome = call_it(world, job_tool())
    assert (outcome.state, outcome.error.get("granted_scope")) == ("failed", told)


def test_a_lost_answer_says_nothing_of_scopes():
    """What was granted belongs to the tool's refusal."""
    world = world_of(NOT_SENT, json_answer(200, 1))
    world.token.granted = "read"
    assert call_it(world, job_tool()).ok


@pytest.mark.parametrize(
    ("answers", "within"),
    [
        ([json_answer(200, 1)], [60.0]),
        ([json_answer(503, None, (("Retry-After", "20"),)), json_answer(200, 1)], [60.0, 39.0]),
        ([started(), ENDED], [60.0, 14.0]),
    ],
)
def test_a_token_is_waited_for_within_the_steps_budget(answers, within):
    """What is left of it, for each send; for a look at a job twice its read limit, as for the look itself."""
    contract = ToolContract(idempotency=Idempotency(), timeouts=Timeouts(step=60, read=7), retry=RetryPolicy(base=0.5))
    world = world_of(*answers)
    assert call_it(world, job_tool(contract)).ok
    asked = [effect.within for effect in world.effects if isinstance(effect, Acquire)]
    assert asked == pytest.approx(within, abs=2)


def test_a_streams_want_of_a_person_is_not_the_polls():
    """A result that cannot be fetched yet is asked for again in the same run, as without a stream."""
    tool = job_tool(stream="events")
    start = started(STARTED | {"events": "/v1/events"})
    world = left(tool, start, FETCH, json_answer(503), FETCH, RESULT)
    world.token.say = [NoCredential("required", "sign in")]
    outcome = call_it(world, tool)
    assert (outcome.value, world.closed) == (7, 0)
    assert len(world.polls) == 4


def test_an_allowed_origin_that_wants_credentials_gets_none():
    """There is nothing to renew, and it is said that none are sent there."""
    start = started({"status_url": "https://jobs.test/j"})
    for answer in (REFUSED, CHALLENGE):
        world = world_of(start, answer)
        outcome = call_it(world, job_tool(origins=("https://jobs.test",)))
        assert "where no credentials are sent" in outcome.message
        assert (len(world.polls), world.token.number) == (1, 1)
