"""What an answer proves, on paths of several requests and several clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from agent_runtime import (
    HttpLookup,
    Idempotency,
    KeyConflict,
    Member,
    RetryPolicy,
    Timeouts,
    TokenCallable,
    ToolContract,
)
from tests.bugs.harness import breaks, does, keyed, loses, says, tool

if TYPE_CHECKING:
    from agent_runtime.testing import VirtualClock
    from tests.bugs.harness import Api, Target

Put = "Callable[..., Target]"

SEE_A = says(303, headers={"Location": "/a"})
TO_B = says(302, headers={"Location": "/b"})


PAGES = [breaks(httpx.ConnectError), breaks(httpx.ReadTimeout), says(404), says(401), says(429), says(500)]


@pytest.mark.parametrize("way", [(SEE_A,), (SEE_A, TO_B), (SEE_A, TO_B, TO_B)])
def test_what_follows_a_303_says_nothing_of_the_write(api: Api, target: Put, clock: VirtualClock, way: tuple) -> None:
    """A write answered by 303 was taken: whatever becomes of the pages after it, the write is neither sent again nor
    reported as failed."""
    there = target(does(), at="https://tools.test/")
    with api.worker(tool(contract=ToolContract()), clock=clock).open() as plan:
        for branch, page in plan.each(PAGES):
            there.script = [*way, page]
            outcome = branch.try_call("pay", {"n": 1})
            assert (outcome.status, outcome.reason) == ("unknown", "redirected")
    assert [request.method for request in there.requests].count("POST") == len(PAGES)


def test_a_stored_half_done_end_is_read_by_a_look_up(api: Api, target: Put, clock: VirtualClock) -> None:
    """A look-up that finds the tool's stored "partly applied" ends the step as failed with an effect that may stand,
    and it is not issued again."""
    stored = {"type": "https://tools.test/problems/partly-applied", "title": "Partly applied", "status": 500}
    lookup = HttpLookup(url="/state/{key}", done=Member(name="state", equals="done"), result="body", status="status")
    target(says(200, {"state": "done", "status": 500, "body": stored}), at="https://tools.test/state/")
    target(says(500))
    with api.worker(tool(contract=keyed(lookup=lookup)), clock=clock).open() as plan:
        outcome = plan.try_call("pay", {"n": 1})
        assert (outcome.status, outcome.effect) == ("failed", "possible")
        with pytest.raises(Exception, match="effect none"):
            plan.reissue("step_001")


def test_no_attempt_begins_after_its_expiry(api: Api, target: Put, clock: VirtualClock) -> None:
    """A wait that the tool asked for may pass ``expires_at``: the call is cancelled then, not sent."""
    there = target(says(429, headers={"Retry-After": "20"}), does())
    with api.worker(tool(), clock=clock).open() as plan:
        outcome = plan.try_call("pay", {"n": 1}, expires_at=clock.wall() + 10)
    assert (outcome.status, outcome.reason) == ("cancelled", "expired")
    assert there.sends == 1


def test_no_attempt_begins_after_its_expiry_on_a_proven_absence(api: Api, target: Put, clock: VirtualClock) -> None:
    """Absence that is proven after ``expires_at`` ends the call as failed with no effect; it is not sent again."""
    lookup = HttpLookup(url="/state/{key}", absence_is_proof=True, settle_after=60)
    target(says(404), at="https://tools.test/state/")
    there = target(breaks(httpx.ReadTimeout))
    contract = keyed(lookup=lookup, retry=RetryPolicy(max_inline_wait=600))
    with api.worker(tool(contract=contract), clock=clock).open() as plan:
        plan.try_call("pay", {"n": 1}, expires_at=clock.wall() + 0.01)
        clock.advance(1000)
        (outcome,) = plan.settle()
    assert (outcome.status, outcome.effect, outcome.reason) == ("failed", "none", "expired")
    assert there.sends == 1


@pytest.mark.parametrize(
    "promise", [Idempotency(in_progress_ttl=30), Idempotency(lifetime=30 / 0.9)], ids=["claim", "lifetime"]
)
def test_a_wait_does_not_carry_a_resend_past_the_claim(
    api: Api, target: Put, clock: VirtualClock, promise: Idempotency
) -> None:
    """A resend that was in order before its wait is not, once the tool may have forgotten the key: it is not sent."""
    there = target(says(503, headers={"Retry-After": "40"}), does())
    with api.worker(tool(contract=ToolContract(idempotency=promise)), clock=clock).open() as plan:
        outcome = plan.try_call("pay", {"n": 1})
    assert outcome.status == "unknown"
    assert there.sends == 1


def test_a_key_bound_to_its_token_is_not_sent_under_the_next(api: Api, target: Put, clock: VirtualClock) -> None:
    """Where keys are bound to tokens, a token that has changed by itself stops a resend."""
    tokens = iter([f"call-canary-{n}" for n in range(4)])
    there = target(loses(), does())
    contract = ToolContract(idempotency=Idempotency(key_bound_to_token=True))
    auth = TokenCallable(function=lambda: next(tokens))
    with api.worker(tool(contract=contract, auth=auth), clock=clock).open() as plan:
        outcome = plan.try_call("pay", {"n": 1})
    assert outcome.status == "unknown"
    assert "token" in outcome.message
    assert there.sends == 1


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"type": "idempotency_error", "message": "same parameters"}},
        {"type": "https://tools.test/problems/key-reused", "title": "Key reused"},
    ],
)
def test_a_400_that_says_the_key_is_in_other_use_is_a_key_conflict(api: Api, target: Put, body: dict) -> None:
    """Vendors that say "key used with another payload" under 400 are believed like those that use 409 or 422."""
    there = target(says(400, body))
    with api.worker(tool()).open() as plan, pytest.raises(KeyConflict):
        plan.call("pay", {"n": 1})
    assert there.sends == 1


def test_a_stored_half_done_end_on_a_first_send_is_anothers(api: Api, target: Put) -> None:
    """A replay mark on the first send is somebody else's answer, whatever it says."""
    body = {"type": "https://tools.test/problems/partly-applied", "title": "Partly applied"}
    target(says(500, body, headers={"Idempotent-Replayed": "true"}))
    with api.worker(tool()).open() as plan:
        outcome = plan.try_call("pay", {"n": 1})
    assert (outcome.status, outcome.reason) == ("unknown", "key_conflict")


def test_an_absence_counts_from_when_it_was_asked(api: Api, target: Put, clock: VirtualClock) -> None:
    """A look-up that was sent before absence counts, and answered after, is none of the two that prove it."""

    def slow(there: Target, request: httpx.Request) -> httpx.Response:
        clock.advance(20)
        return httpx.Response(404)

    lookup = HttpLookup(url="/state/{key}", absence_is_proof=True, settle_after=10)
    looks = target(slow, says(404), at="https://tools.test/state/")
    there = target(breaks(httpx.ReadTimeout), does())
    contract = ToolContract(lookup=lookup, timeouts=Timeouts(attempt=1), retry=RetryPolicy(max_inline_wait=600))
    with api.worker(tool(contract=contract), clock=clock).open() as plan:
        assert plan.call("pay", {"n": 1}).value == {"id": "x"}
    assert looks.sends == 3
    assert there.sends == 2
