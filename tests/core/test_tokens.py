"""How long a token may be sent, whose turn a refresh is, and what a lost answer to one means."""

import dataclasses

import pytest

from agent_runtime._core.tokens import (
    IN_DOUBT,
    AccessToken,
    KeptAccess,
    KeptTokens,
    Refresh,
    Stop,
    Use,
    Wait,
    judge,
    judge_shared,
    may_have_rotated,
    of_no_use,
    pruned,
    seed_digest,
    token_id,
)
from agent_runtime._model import Answer, BodyState
from agent_runtime._model.tokens import TokenRecord
from tests.core.world import LOST, NOT_SENT, json_answer

NOW = 1_000_000.0
ROW = TokenRecord(
    id="i", name="p", version=1, sealed=b"x", seeds=("s",), holder=None, held_until=None, doubts=0, problem=None
)
GOOD, STALE = (
    KeptAccess(value="a", sent_at=NOW - 10, expires_at=NOW + 3600),
    KeptAccess(value="b", sent_at=0, expires_at=9),
)
KEPT = KeptTokens(refresh="r", access={"w": GOOD})
OLD = KeptTokens(refresh="r", access={"w": STALE})
BEGUN = KeptTokens(refresh="new", before="r")
AHEAD_A_MOMENT = KeptTokens(refresh="r", access={"w": KeptAccess(value="c", sent_at=NOW + 5, expires_at=NOW + 3600)})
FUTURE = KeptTokens(refresh="r", access={"w": KeptAccess(value="d", sent_at=NOW + 6, expires_at=NOW + 3600)})
BEGIN, AGAIN, BACK, IN_15_S = Refresh(begins=True), Refresh(), Refresh(returns=True), Refresh(within=15.0)
GRACE = {"grace": 30.0}


@pytest.mark.parametrize(
    ("lifetime", "leeway"),
    [(3600.0, 60.0), (300.0, 30.0), (20.0, 5.0), (6.0, 3.0)],
)
def test_a_token_is_stale_a_little_early(lifetime, leeway):
    """By a tenth of its life, between 5 s and 60 s, and by half of it at most."""
    token = AccessToken(value="secret", issued_at=NOW, expires_at=NOW + lifetime)
    assert token.fresh(NOW + lifetime - leeway - 0.01)
    assert not token.fresh(NOW + lifetime - leeway)
    assert not token.once


def test_a_token_of_no_lifetime_is_good_for_one_request():
    """It is never fresh again."""
    token = AccessToken(value="secret", issued_at=NOW, expires_at=NOW)
    assert token.once
    assert not token.fresh(NOW)


def test_a_token_is_told_from_others_without_being_shown():
    """Its repr hides it; the same secret has the same id, a lone surrogate included."""
    token = AccessToken(value="secret", issued_at=NOW, expires_at=NOW + 9)
    assert "secret" not in repr(token)
    assert token.header() == ("Authorization", "Bearer secret")
    assert token.id == token_id("secret") != token_id("other")
    assert seed_digest("\ud800") != seed_digest("secret")


JUDGED = {
    # row, what it seals, what differs; what is to be done
    "never-used": (None, None, {}, BEGIN),
    "nothing-kept": (ROW, None, {}, BEGIN),
    "another-seed": (ROW, KEPT, {"seed": "new"}, BEGIN),
    "good": (ROW, KEPT, {}, Use(GOOD)),
    "asked-for-something-else": (ROW, KEPT, {"wanted": "other"}, AGAIN),
    "stale": (ROW, OLD, {}, AGAIN),
    "refused-by-a-tool": (ROW, KEPT, {"rejected": token_id("a")}, AGAIN),
    "another-was-refused": (ROW, KEPT, {"rejected": token_id("z")}, Use(GOOD)),
    "good-while-another-refreshes": ({"holder": "you", "held_until": NOW + 9}, KEPT, {}, Use(GOOD)),
    "asked-for-a-moment-ahead": (ROW, AHEAD_A_MOMENT, {}, Use(AHEAD_A_MOMENT.access["w"])),
    "asked-for-in-the-future": (ROW, FUTURE, {}, AGAIN),
    "another-refreshes": ({"holder": "you", "held_until": NOW + 9}, OLD, {}, Wait(9.0)),
    "another-begins": ({"holder": "you", "held_until": NOW + 9}, OLD, {"seed": "new"}, Wait(9.0)),
    "another-whose-time-is-over": ({"holder": "you", "held_until": NOW + 9}, OLD, {"ended": "you"}, IN_DOUBT),
    "my-own-hold": ({"holder": "me", "held_until": NOW + 9}, OLD, {}, AGAIN),
    "problem": ({"problem": "invalid_grant"}, OLD, {}, "invalid_grant"),
    "a-new-seed-heals-a-problem": ({"problem": "invalid_grant"}, OLD, {"seed": "new"}, BEGIN),
    "holder-ended-in-doubt": ({"holder": "you", "held_until": NOW}, OLD, {}, IN_DOUBT),
    "holder-without-a-time": ({"holder": "you"}, OLD, {}, IN_DOUBT),
    "holder-ended-in-grace": (
        {"holder": "you", "held_until": NOW, "tried_at": NOW - 45},
        OLD,
        {"grace": 60.0},
        IN_15_S,
    ),
    "holder-ended-past-grace": ({"holder": "you", "held_until": NOW, "tried_at": NOW - 45}, OLD, GRACE, IN_DOUBT),
    "one-doubt": ({"doubts": 1, "tried_at": NOW}, OLD, {}, IN_DOUBT),
    "one-doubt-in-grace": ({"doubts": 1, "tried_at": NOW - 15}, OLD, GRACE, IN_15_S),
    "one-doubt-past-grace": ({"doubts": 1, "tried_at": NOW - 30}, OLD, GRACE, IN_DOUBT),
    "one-doubt-of-unknown-age": ({"doubts": 1}, OLD, GRACE, IN_DOUBT),
    "one-doubt-of-the-future": ({"doubts": 1, "tried_at": NOW + 1}, OLD, GRACE, IN_DOUBT),
    "two-doubts-in-grace": ({"doubts": 2, "tried_at": NOW}, OLD, GRACE, IN_DOUBT),
    "doubt-at-a-beginning": ({"doubts": 1, "tried_at": NOW}, BEGUN, {}, BACK),
    "doubt-at-a-beginning-in-grace": ({"doubts": 1, "tried_at": NOW - 15}, BEGUN, GRACE, IN_15_S),
    "two-doubts-at-a-beginning": ({"doubts": 2, "tried_at": NOW}, BEGUN, GRACE, BACK),
    "holder-ended-at-a-beginning": ({"holder": "you", "held_until": NOW}, BEGUN, {}, BACK),
}


@pytest.mark.parametrize(("row", "kept", "given", "wanted"), JUDGED.values(), ids=JUDGED)
def test_whose_turn_a_refresh_is(row, kept, given, wanted):
    """One worker refreshes at a time; a refresh that may have used the token up is not made again without grace."""
    record = dataclasses.replace(ROW, **row) if isinstance(row, dict) else row
    asked = {"now": NOW, "seed": "s", "wanted": "w", "rejected": None, "grace": 0.0, "holder": "me"} | given
    found = judge(record, kept, **asked)
    if isinstance(wanted, str):
        assert isinstance(found, Stop)
        assert wanted in found.why
    else:
        assert found == wanted


SHARED = {
    # row, what it seals, what differs; what is to be done
    "never-used": (None, None, {}, Refresh()),
    "nothing-kept": (ROW, None, {}, Refresh()),
    "good": (ROW, KEPT, {}, Use(GOOD)),
    "stale": (ROW, OLD, {}, Refresh()),
    "refused-by-a-tool": (ROW, KEPT, {"rejected": token_id("a")}, Refresh()),
    "good-while-another-asks": ({"holder": "you", "held_until": NOW + 9}, KEPT, {}, Use(GOOD)),
    "another-asks": ({"holder": "you", "held_until": NOW + 9}, OLD, {}, Wait(9.0)),
    "another-asks-for-the-first-time": ({"holder": "you", "held_until": NOW + 9}, None, {}, Wait(9.0)),
    "asked-for-in-the-future": (ROW, FUTURE, {}, Refresh()),
    "another-whose-time-is-over": ({"holder": "you", "held_until": NOW + 9}, OLD, {"ended": "you"}, Refresh()),
    "my-own-hold": ({"holder": "me", "held_until": NOW + 9}, OLD, {}, Refresh()),
    "holder-ended": ({"holder": "you", "held_until": NOW}, OLD, {}, Refresh()),
    "holder-without-a-time": ({"holder": "you"}, OLD, {}, Refresh()),
    "doubts-do-not-matter": ({"doubts": 9}, OLD, {}, Refresh()),
}


@pytest.mark.parametrize(("row", "kept", "given", "wanted"), SHARED.values(), ids=SHARED)
def test_whose_turn_a_shared_token_is(row, kept, given, wanted):
    """One worker asks at a time; one that ended is replaced, since asking twice does no harm."""
    record = dataclasses.replace(ROW, **row) if isinstance(row, dict) else row
    asked = {"now": NOW, "wanted": "w", "rejected": None, "holder": "me"} | given
    assert judge_shared(record, kept, **asked) == wanted


def test_stale_access_tokens_are_not_kept():
    """The others are, for workers that come later."""
    assert pruned({"w": GOOD, "x": STALE}, NOW) == {"w": GOOD}


@pytest.mark.parametrize(
    ("reply", "may"),
    [
        (LOST, True),
        (NOT_SENT, False),
        (json_answer(200, {}), True),
        (Answer(status=200, body_state=BodyState.CUT), True),
        (json_answer(302), False),
        (json_answer(400), False),
        (Answer(status=400, body_state=BodyState.CUT), False),
        (json_answer(429), False),
        (json_answer(408), False),
        (Answer(status=503), True),
        (json_answer(503, {"message": "upstream connect error"}), True),
        (json_answer(503, {"error": "temporarily_unavailable"}), False),
        (Answer(status=503, headers=(("Retry-After", "2"),)), False),
        (json_answer(500), True),
        (json_answer(502), True),
        (json_answer(504), True),
    ],
)
def test_a_refresh_without_a_usable_reply_may_have_used_the_token_up(reply, may):
    """A refusal and a deliberate "not now" have not; what was lost, cut, or ended in the middle may have."""
    assert may_have_rotated(reply) is may


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({}, False),
        ({"problem": "invalid_grant"}, True),
        ({"doubts": 1}, True),
        ({"holder": "other", "held_until": 99.0}, True),
        ({"holder": "other", "held_until": 101.0}, None),
        ({"holder": "other", "held_until": 101.0, "problem": "invalid_grant"}, None),
    ],
)
def test_a_row_that_moved_on_is_judged(row, wanted):
    """A refusal, a doubt and a holder that ended make it useless; while somebody is at it, nobody knows."""
    assert of_no_use(dataclasses.replace(ROW, **{"holder": None, "held_until": None} | row), now=100.0) is wanted


def test_of_a_row_that_is_gone_nothing_is_known():
    """It may be made anew, so what a server gave is not settled."""
    assert of_no_use(None, now=100.0) is None
