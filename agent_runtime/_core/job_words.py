"""The words by which tools say how a job stands.

A word that stands in no table, and that the tool's policy does not declare, is not known: nothing is concluded from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent_runtime.config.jobs import JobStatus, compact

if TYPE_CHECKING:
    from agent_runtime.config.jobs import PollPolicy

TABLE: Final[tuple[tuple[JobStatus, str], ...]] = (
    ("succeeded", "succeeded success successful completed complete done finished"),
    (
        "completed_with_errors",
        (
            "completed_with_errors completed_with_failures completed_with_issues succeeded_with_errors "
            "succeeded_with_issues partially_succeeded partially_completed partially_failed partial_success "
            "partial_failure"
        ),
    ),
    (
        "failed",
        (
            "failed failure error errored aborted rejected expired timed_out timeout deadline_exceeded killed "
            "terminated crashed exception fatal fault faulted dead internal_error system_error system_failure "
            "startup_failure boot_fail node_fail out_of_memory"
        ),
    ),
    ("cancelled", "canceled cancelled revoked"),
    (
        "running",
        (
            "accepted aborting acknowledged blocked canceling cancelling created creating deferred delayed deleting "
            "enqueued executing finalizing held in_progress initialized initializing input_required not_started "
            "on_hold ongoing paused pausing pending preparing processing progressing provisioning queued queueing "
            "received requested requires_action resuming retrying runnable running scheduled started starting "
            "stopping submitted suspended throttled underway updating validating waiting working"
        ),
    ),
)
WORDS: Final = {compact(word): status for status, words in TABLE for word in words.split()}
STATES: Final = ("state", "phase", "job_status", "jobStatus", "job_state", "jobState")
"""Members that tell how a job stands as ``status`` does, where their word is known; else they are anybody's."""


def word_of(value: object, policy: PollPolicy) -> JobStatus | None:
    """Return what a word says, in any case and with any separators, or None if it is not known.

    A whole number is known where the policy declares it.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    word = compact(str(value))
    return policy.own_words.get(word) or WORDS.get(word)


def state_of(body: dict[str, Any], policy: PollPolicy) -> JobStatus | None:
    """Return what a body without a ``status`` says by its state or phase, or None if it says nothing known."""
    told = (word_of(body.get(name), policy) for name in STATES)
    return next((word for word in told if word is not None), None)
