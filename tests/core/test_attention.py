"""What somebody has to look at, and that each matter is told at least once, across crashes."""

import json
from dataclasses import replace

import pytest

from agent_runtime._core.attention import Attention, kind_of, matters, tell
from agent_runtime._model import NewEvidence, Reason, State
from tests.core.job_world import JOB_URL, call_it, job_tool, left, rewrite, world_of
from tests.core.world import LOST, PLAIN, START, Crash

SILENCE = 120.0
DAY = 86_400.0
LATE = START + 365 * DAY
TOOL = job_tool()


def job(handle=None, **columns):
    world = left(TOOL)
    rewrite(world, handle={"detached": False} | (handle or {}), **{"resume_at": START + 30} | columns)
    return world


KINDS = {
    # handle, columns, seconds after the start, kind
    "contradicted": ({}, {"state": State.SUCCEEDED, "contradicted": True}, 0, "contradicted"),
    "unknown": ({}, {"state": State.UNKNOWN}, 0, "unknown"),
    "contradicted-before-unknown": ({}, {"state": State.UNKNOWN, "contradicted": True}, 0, "contradicted"),
    "succeeded": ({}, {"state": State.SUCCEEDED}, 9999, None),
    "ready": ({}, {"state": State.READY}, 9999, None),
    "timed-out": ({}, {"reason": Reason.POLL_BOUND}, 0, "timed_out"),
    "untracked-at-once": ({}, {"reason": Reason.UNTRACKED, "resume_at": None}, 0, "untracked"),
    "untracked": ({"url": None}, {"resume_at": None}, 121, "untracked"),
    "untracked-a-callback-may-come": ({"url": None}, {"resume_at": None}, 120, None),
    "not-due": ({}, {}, 30, None),
    "a-little-late": ({}, {}, 150, None),
    "stalled": ({}, {}, 151, "stalled"),
    "left-alone": ({}, {"resume_at": None, "updated_at": START + 5}, 126, "stalled"),
    "detached": ({"detached": True, "estimated": None}, {}, 700, None),
    "detached-and-over": ({"detached": True, "estimated": None}, {}, 721, "stalled"),
    "detached-said-to-be-long": ({"detached": True, "estimated": 1e12}, {}, 720, None),
    "detached-said-to-be-long-and-left": ({"detached": True, "estimated": 1e12}, {}, 721, "stalled"),
    "looked-at-for-long": ({"estimated": None}, {"resume_at": LATE}, 600 + DAY, None),
    "looked-at-for-too-long": ({"estimated": None}, {"resume_at": LATE}, 601 + DAY, "overdue"),
    "detached-looked-at-for-too-long": (
        {"detached": True, "estimated": 10.0},
        {"resume_at": LATE},
        601 + DAY,
        "overdue",
    ),
    "said-to-be-long": ({"estimated": 7200.0}, {"resume_at": LATE}, 7200 + DAY, None),
    "longer-than-said": ({"estimated": 7200.0}, {"resume_at": LATE}, 7201 + DAY, "overdue"),
    "said-to-be-endless": ({"estimated": 1e12}, {"resume_at": LATE}, 8 * DAY, None),
    "longer-than-endless": ({"estimated": 1e12}, {"resume_at": LATE}, 8 * DAY + 1, "overdue"),
}


@pytest.mark.parametrize(("handle", "columns", "after", "kind"), KINDS.values(), ids=KINDS)
def test_what_wants_attention(handle, columns, after, kind):
    """Doubt and contradiction at once; a job when it is past its bound, nobody looks at it, or nobody can."""
    assert kind_of(job(handle, **columns).row, now=START + after, silence=SILENCE) == kind


def test_a_tool_s_own_bound_counts():
    """A job that may take three days is not overdue after one."""
    row = job({"estimated": None}, resume_at=LATE).row
    assert kind_of(row, now=START + 3 * DAY, silence=SILENCE, bound=3 * DAY) is None
    assert kind_of(row, now=START + 4 * DAY + 1, silence=SILENCE, bound=3 * DAY) == "overdue"


def test_a_matter_of_a_silent_job_says_why():
    """Nobody looked, or it runs too long."""
    row = job().row
    assert "nobody looked" in Attention(kind="stalled", operation=row).message
    assert "still runs" in Attention(kind="overdue", operation=row).message


def test_a_contradiction_says_what_speaks_against_what():
    """What is recorded, and the words against it: quoted on one line, cut."""
    world = job(state=State.SUCCEEDED, contradicted=True, reason=Reason.JOB_ENDED)
    said = json.dumps({"status": "failed", "error": "line\n" + "x" * 400}).encode()
    world.ledger.evidence.append((world.row.id, NewEvidence(kind="webhook", body=said)))
    (matter,) = world.run(matters("", silence=SILENCE))
    assert (
        'recorded as succeeded, and this contradicts that (untrusted, cut): webhook: {"status": "failed"'
        in matter.message
    )
    assert matter.message.endswith("…")
    assert len(matter.message) < 450
    assert matter.told()["message"] == matter.message


@pytest.mark.parametrize(("seen", "said"), [({"status": 500, "detail": "late"}, "poll HTTP 500: late"), (None, None)])
def test_a_contradiction_without_a_body_is_told_by_its_kind(seen, said):
    """The status, or the note of whoever filed it; one of which nothing is left says only what is recorded."""
    world = job(state=State.SUCCEEDED, contradicted=True)
    world.ledger.evidence[:] = [] if seen is None else [(world.row.id, NewEvidence(kind="poll", **seen))]
    (matter,) = world.run(matters("", silence=SILENCE))
    assert (said in matter.message) if said is not None else (matter.against is None)


def test_a_matter_is_told_as_plain_json():
    """What a tool takes as its args: which step, which job, since when."""
    world = job()
    told = Attention(kind="stalled", operation=world.row).told()
    assert json.loads(json.dumps(told)) == told
    assert (told["step"], told["tool"], told["state"]) == ("step_001", "debit", "accepted")
    assert (told["job_id"], told["status_url"], told["started_at"]) == ("job_7f21c", JOB_URL, START)


def test_a_matter_without_a_job_has_no_id_of_one():
    """It began when its operation was recorded."""
    world = world_of(LOST)
    call_it(world, job_tool(PLAIN))
    (matter,) = world.run(matters("", silence=SILENCE))
    told = matter.told()
    assert (matter.kind, matter.session_id, matter.id) == ("unknown", world.row.session_id, world.row.id)
    assert (matter.label, matter.state, matter.reason) == ("step_001", State.UNKNOWN, Reason.LOST_ANSWER)
    assert (told["job_id"], told["status_url"], told["started_at"]) == (None, None, world.row.created_at)


def two_matters():
    world = job()
    row = world.row
    world.ledger.clock.now = START + 1000
    older = row.created_at - 1
    world.ledger.operations["a"] = replace(row, id="a", tool="pager", state=State.UNKNOWN, created_at=older)
    return world


def test_all_open_matters_are_listed_oldest_first():
    """Those in doubt and those of jobs; what needs nobody is left out."""
    world = two_matters()
    assert [one.kind for one in world.run(matters("", silence=SILENCE))] == ["unknown", "stalled"]
    assert [one.kind for one in world.run(matters("", silence=9999.0))] == ["unknown"]


def test_each_matter_is_told_once():
    """Until it becomes another one."""
    world, heard = two_matters(), []
    assert world.run(tell("", heard.append, silence=SILENCE)) == 2
    assert world.run(tell("", heard.append, silence=SILENCE)) == 0
    job_id = next(one for one in world.ledger.operations if one != "a")
    world.ledger.operations[job_id] = replace(world.ledger.operations[job_id], reason=Reason.POLL_BOUND)
    assert world.run(tell("", heard.append, silence=SILENCE)) == 1
    assert [one.kind for one in heard] == ["unknown", "stalled", "timed_out"]


def test_nothing_to_tell_asks_for_no_notices():
    """A ledger without matters is read, and that is all."""
    world = left(TOOL)
    assert world.run(tell("", pytest.fail, silence=SILENCE)) == 0


def test_a_tool_does_not_tell_its_own_matters():
    """Or its being down would be told by itself, for ever."""
    world, heard = two_matters(), []
    assert world.run(tell("", heard.append, silence=SILENCE, teller="pager")) == 1
    assert [one.tool for one in heard] == ["debit"]


def test_a_listener_that_raises_hears_it_again():
    """A matter counts as heard once the listener has returned."""
    world = two_matters()

    def raising(matter):
        raise KeyError(matter.kind)

    with pytest.raises(KeyError):
        world.run(tell("", raising, silence=SILENCE))
    assert world.run(tell("", lambda _: None, silence=SILENCE)) == 2


def test_a_crash_while_telling_loses_no_matter():
    """Before each effect: the next process tells what was not noted as heard."""
    for point in range(1, 30):
        world, heard = two_matters(), []
        world.crash_before = len(world.effects) + point
        try:
            world.run(tell("", heard.append, silence=SILENCE))
        except Crash:
            world.crash_before = None
            world.run(tell("", heard.append, silence=SILENCE))
            assert {one.kind for one in heard} == {"unknown", "stalled"}
        else:
            break
    assert point > 5
