"""The words for what is known: states, reasons, effects. They stand in code, tables, logs and docs alike."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What is known of an operation."""

    READY = "ready"  # authorised and recorded; nothing is out
    IN_FLIGHT = "in_flight"  # a request may be out
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"  # it may have taken effect; evidence is missing
    ACCEPTED = "accepted"  # the tool runs it as a job
    CANCELLED = "cancelled"  # never sent, never will be


SETTLED = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})


class Reason(StrEnum):
    """Why an operation stands where it stands."""

    RETRY_AFTER = "retry_after"  # ready: the tool asked to wait, or no attempt reached it
    APPROVAL = "approval"  # ready: a person has to allow it
    AUTH = "auth"  # ready: new proof of identity is wanted
    BUDGET = "budget"  # ready: attempts or deadline are used up
    LOST_ANSWER = "lost_answer"  # unknown: the request may have arrived, no answer came
    INTERRUPTED = "interrupted"  # unknown: the worker ended while a request was out
    SERVER_ERROR = "server_error"  # unknown: a 5xx that proves nothing
    IN_PROGRESS = "in_progress"  # unknown: the tool says that it still runs
    REDIRECTED = "redirected"  # unknown: answered by a redirect that proves nothing
    REFUSED_LATER = "refused_later"  # unknown: refused, but an earlier attempt may have been applied
    KEY_CONFLICT = "key_conflict"  # the key stands for something else
    EXPIRED = "expired"  # no attempt may begin any more
    EXCEPTION = "exception"  # unknown: a function tool raised
    REFUSED = "refused"  # failed: the tool said no
    STORED = "stored"  # failed: the tool's stored end for this key
    HALF_DONE = "half_done"  # failed: the tool stopped in the middle
    DECIDED = "decided"  # a person said so
    LOOKED_UP = "looked_up"  # a look-up said so
    JOB_ENDED = "job_ended"  # the tool's job ended so
    JOB_UNCLEAR = "job_unclear"  # unknown: the tool's job ended, by a word that is not known
    JOB_GONE = "job_gone"  # unknown: the tool does not know the job any more
    POLL_BOUND = "poll_bound"  # accepted: the time for following the job is over, the job is not
    UNTRACKED = "untracked"  # accepted: nobody can ask about its job, and it calls nobody
    CALLBACK = "callback"  # a webhook said so
    CALLER = "caller"  # cancelled by the caller


ENDS_OF_JOBS = frozenset({Reason.JOB_ENDED, Reason.JOB_UNCLEAR, Reason.JOB_GONE, Reason.CALLBACK})
"""Reasons that say that a job is over, however it ended, or gone: the code has to be told."""


class Effect(StrEnum):
    """Whether a failed operation may have left something behind."""

    NONE = "none"
    POSSIBLE = "possible"


class ResultState(StrEnum):
    """Whether the result of a succeeded operation can be used."""

    OK = "ok"
    INVALID = "invalid"  # the tool's result model refuses it
    MISSING = "missing"  # the effect is known by other evidence, its result is not
    UNREADABLE = "unreadable"  # cut, oversized or undecodable


class SessionState(StrEnum):
    """What is known of a session."""

    OPEN = "open"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class Status(StrEnum):
    """The eight words that a caller or a model reads of a step."""

    SUCCEEDED = "succeeded"
    COMPLETED_WITH_ERRORS = "completed_with_errors"
    FAILED = "failed"
    PENDING = "pending"
    TIMED_OUT = "timed_out"
    UNKNOWN = "unknown"
    NOT_STARTED = "not_started"
    CANCELLED = "cancelled"
