"""An outcome in words for a model: what happened, what did not, what to do next.

A pending outcome never holds a result. The tool's own text is quoted, cut and marked as untrusted. Every sentence
stands in `ENGLISH` under a name, and can be replaced or translated: ``Runtime(words={"pending.happened": ...})``.
"""

from __future__ import annotations

import json
import string
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._model.quoting import JOB_ID, URL, quoted, quoted_counts, quoted_json
from agent_runtime._model.states import Effect, Reason, ResultState, State, Status
from agent_runtime.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_runtime._model.outcome import Outcome

PREVIEW: Final = 4096
QUOTE: Final = 500

SAYS: Final[dict[Status, tuple[str, str]]] = {
    Status.SUCCEEDED: ("The call succeeded.", "Go on with the result."),
    Status.COMPLETED_WITH_ERRORS: (
        "The call is done, and PART of it failed.",
        "Read the counts and errors before you report anything; do not report full success.",
    ),
    Status.FAILED: ("The call FAILED.", "Do not report success. Correct the arguments or choose another way."),
    Status.PENDING: (
        "The call is NOT finished.",
        (
            "Do not report success and do not call it again under other words. Nobody waits for it here any more: "
            "session.check(step) goes on with it; a job's end is also seen by whoever runs runtime.follow_jobs() or "
            "takes its callback."
        ),
    ),
    Status.TIMED_OUT: (
        "The job was started and is NOT finished; waiting for it has ended, the job has not.",
        "Do not report success or failure, and do not start it again. Check the job later by its id.",
    ),
    Status.UNKNOWN: (
        "It is NOT KNOWN whether the call took effect.",
        "Do not report success or failure and do not call it again in another form; it has to be settled first.",
    ),
    Status.NOT_STARTED: ("The call was NOT started; nothing was sent.", "Do not report success."),
    Status.CANCELLED: ("The call was cancelled.", "Nothing took effect; go on without it."),
}

NOT_STARTED: Final = {
    "unsettled": (
        "Do not ask for it again in other words. The earlier call has to be settled first; report that it is open."
    ),
    "diverged": "Go by what stands there. If this call is wanted besides, ask for it in a new message.",
    "refused_input": "Correct the arguments or the name, and call it again.",
    "key_conflict": "Do not report success; a person has to look at the key.",
}
"""Advice for a call that was not started, by reason."""

BECAUSE: Final = {
    Reason.LOST_ANSWER: "The request may have arrived and no usable answer came.",
    Reason.INTERRUPTED: "The worker ended while the request was out.",
    Reason.SERVER_ERROR: "The tool answered with a server error, which proves nothing about the effect.",
    Reason.IN_PROGRESS: "The tool says that a request under this key is still running.",
    Reason.REDIRECTED: "The tool answered with a redirect that proves nothing about the effect.",
    Reason.REFUSED_LATER: "A later attempt was refused, which proves nothing about the earlier one.",
    Reason.KEY_CONFLICT: "The tool's answer belongs to another request under this key.",
    Reason.EXCEPTION: "The function raised an exception that does not say whether its effect happened.",
    Reason.RETRY_AFTER: "No attempt was applied, and the tool cannot take it now.",
    Reason.AUTH: "No attempt was applied; new proof of identity is wanted.",
    Reason.APPROVAL: "Nothing was sent; a person has to approve it.",
    Reason.REFUSED: "The tool refused it.",
    Reason.STORED: "This is the tool's stored end for the key; the way on is session.reissue().",
    Reason.HALF_DONE: "The tool stopped in the middle and says that part of it is done.",
    Reason.EXPIRED: "Its expires_at passed before an attempt took effect.",
    Reason.BUDGET: "Its attempts are used up; it changes nothing, so nothing was changed.",
    Reason.DECIDED: "A person decided so.",
    Reason.LOOKED_UP: "A look-up at the tool says so.",
    Reason.CALLER: "The caller cancelled it.",
    Reason.JOB_ENDED: "The tool's job ended so.",
    Reason.JOB_UNCLEAR: "The tool says that its job has ended, and not in a word that is known, so nobody knows how.",
    Reason.JOB_GONE: "The tool does not know the job any more.",
    Reason.POLL_BOUND: "The time for following its job is over; the job itself is not.",
    Reason.UNTRACKED: "Nobody can learn from the tool how its job goes.",
    Reason.CALLBACK: "The tool said so in a callback.",
}
"""Why an operation stands where it stands."""

OTHER: Final = {
    "effect.none": "Nothing took effect.",
    "effect.possible": "Part of it may have taken effect.",
    "because.stored_error": (
        "This is the tool's stored end for the key, a server error that proves nothing about the effect."
    ),
    "accepted": "The tool accepted it and works on it.",
    "unusable": "The result cannot be used: {problem}.",
    "stays": "It is not sent again now: {why}.",
    "job_stays": "Nobody looks at its job now: {why}.",
    "untracked.bare": (
        "The tool said neither where to ask about its job nor that it calls back. Somebody has to look at what it was "
        "to bring about, and decide it."
    ),
    "untracked.elsewhere": (
        "Its status URL is not on the tool's origin but on {origin}, so nothing was sent there. "
        "PollPolicy(origins=...) allows it to be asked there, without credentials."
    ),
    "untracked.redirected": (
        "Its status URL redirects to {origin}, which is not the tool's origin: that was not followed, and nothing was "
        "sent there. PollPolicy(origins=...) allows it to be asked there, without credentials."
    ),
    "untracked.too_long": (
        "What its status URL answers is longer than the body limit, so nobody could read how its job stands. "
        "Runtime(body_limit=...) sets the limit."
    ),
    "untracked.unusable": (
        "What it gave as status URL cannot be used: it is malformed, too long, or of another kind than http and https, "
        "so nothing was sent there."
    ),
    "untracked.adapter": (
        "The tool's JobAdapter could not read the answer that started its job ({problem}), so nobody knows where to "
        "ask."
    ),
    "unclear.word": "Its word is {word}; PollPolicy(words=...) can say what that means.",
    "unclear.no_word": "The tool's own words stand in the error.",
    "stalled": "It was due to be looked at, and nobody looked.",
    "overdue": (
        "Its job still runs, long after it should have ended. Somebody has to look whether it goes on at all, and "
        "decide it or cancel it."
    ),
    "contradicted": "It is recorded as {state}, and this contradicts that (untrusted, cut): {said}",
    "since_settled": "That was so when the code went on; since then it has ended: it is {state}.",
    "since.advice": "Go by how it ended, and do not call it again for this.",
    "transport.no_connection": "No connection could be made to {target} ({error}).",
    "transport.not_sent": "The request could not be sent to {target} ({error}).",
    "transport.no_answer": "No usable answer came from {target} ({error}).",
    "scope.granted": "The token that was sent was granted other scopes than were asked for: {scopes}.",
    "diverged": "The ledger has another call here: {tool} with other arguments.",
    "strayed": (
        "This run left what is recorded at {step} ({tool}), so nothing new is written on this branch: it could be done "
        "a second time. Open the session anew with the recorded code, or use another branch."
    ),
    "unsettled": "{blocking} is not settled yet, so nothing else is written on this branch.",
    "result_unusable.happened": "The call took effect, but its result is {state} and cannot be used.",
    "result_unusable.advice": "Do not call it again: it took effect. Work without the result or ask a person.",
    "errors.advice": "session.errors(step) fetches what failed.",
    "jobs.none": "No job is running.",
    "jobs.some": (
        "{count} job(s) were STARTED earlier and are NOT finished. Do not start them again and do not report them as "
        "done; check them by their step."
    ),
    "jobs.ended": (
        "{count} job(s) started earlier have ENDED, well or not, and what came of them was not picked up yet. Do not "
        "start them again and do not report them before you know: session.check(step) tells how each ended, or "
        "open its session."
    ),
}

ENGLISH: Final[Mapping[str, str]] = MappingProxyType(
    {f"{status}.happened": said[0] for status, said in SAYS.items()}
    | {f"{status}.advice": said[1] for status, said in SAYS.items()}
    | {f"not_started.{reason}": said for reason, said in NOT_STARTED.items()}
    | {f"because.{reason}": said for reason, said in BECAUSE.items()}
    | OTHER
)
"""All sentences by name; ``{name}`` stands for what is filled in."""

Sentence = tuple[str, tuple[tuple[str, str], ...]]
"""Name of a sentence, and what is filled into it."""


def checked_words(words: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return sentences that stand for the English ones, or raise `ConfigError`."""
    for name, said in (words or {}).items():
        if name not in ENGLISH:
            msg = f"words has {name!r}, and there is no such sentence; agent_runtime.WORDS lists them all"
            raise ConfigError(msg)
        try:
            wanted, has = _fields(ENGLISH[name]), _fields(said)
        except (ValueError, TypeError):
            wanted, has = _fields(ENGLISH[name]), {"a brace without its name"}
        if not has <= wanted:
            msg = f"words[{name!r}] fills in {sorted(has - wanted)}; known there are {sorted(wanted)}"
            raise ConfigError(msg)
    return words


def _fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def say(words: Mapping[str, str] | None, name: str, **fills: str) -> str:
    """Return a sentence in the words given, or in English where they have none."""
    template = (words or ENGLISH).get(name) or ENGLISH[name]
    return template.format(**fills) if fills else template


def sentences(words: Mapping[str, str] | None, said: tuple[Sentence, ...]) -> str:
    """Return sentences one after another."""
    return " ".join(say(words, name, **dict(fills)) for name, fills in said)


def why_of(
    state: State,
    reason: Reason | None,
    effect: Effect | None,
    *,
    unusable: str = "",
    stay: str = "",
    obstacle: Sentence | None = None,
) -> tuple[Sentence, ...]:
    """Return what is said of where an operation stands.

    Args:
        state: of the operation.
        reason: of its state, or None.
        effect: of a failed one.
        unusable: why its result cannot be used.
        stay: why nothing more can be done about it.
        obstacle: why nobody can ask about its job.
    """
    said: list[Sentence] = []
    if reason is Reason.STORED and effect is Effect.POSSIBLE:
        said.append(("because.stored_error", ()))
    elif reason is not None:
        said.append((f"because.{reason}", ()))
    if state is State.ACCEPTED:
        said.append(("accepted", ()))
    if obstacle is not None:
        said.append(obstacle)
    if unusable:
        said.append(("unusable", (("problem", unusable),)))
    if stay:
        said.append(("job_stays" if state is State.ACCEPTED else "stays", (("why", stay),)))
    return tuple(said)


def for_model(outcome: Outcome, words: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return an outcome as plain JSON values for a model."""
    words = words if words is not None else outcome.words
    happened, advice = _happened(outcome, words)
    why = sentences(words, outcome.why) if outcome.why else _sentence(outcome.message)
    said: dict[str, Any] = {
        "status": str(outcome.status),
        "done": outcome.done,
        "tool": outcome.tool,
        "step": outcome.step,
        "message": " ".join(
            part for part in (happened, why, granted_of(outcome, words), since_settled(outcome, words), advice) if part
        ),
    }
    said |= _of_its_job(outcome)
    if outcome.status in {Status.SUCCEEDED, Status.COMPLETED_WITH_ERRORS}:
        said.update(_result(outcome))
    elif outcome.error and outcome.error.get("seen_by") == "transport":
        said["transport_error"] = seen_by_transport(outcome, words)
    elif outcome.error and outcome.error.get("seen_by") == "authorisation":
        said |= _seen_by_authorisation(outcome.error)
    elif outcome.error:
        said["tool_said_untrusted"] = _quote({name: told for name, told in outcome.error.items() if name not in OURS})
    return said


OURS: Final = ("seen_by", "granted_scope")
"""Members of an outcome's error that are our own words, wherever the others come from."""


def _seen_by_authorisation(error: dict[str, Any]) -> dict[str, Any]:
    """Return what the credentials lack in our words, and apart from it what the authorisation server said."""
    told: dict[str, Any] = {name: error[name] for name in ("code", "description") if name in error}
    said = {"authorisation_error": quoted(str(error.get("detail", "")), QUOTE)}
    return said | ({"authorisation_server_said_untrusted": _quote(told)} if told else {})


def granted_of(outcome: Outcome, words: Mapping[str, str] | None = None) -> str:
    """Return what the token was granted, of a step that was refused for want of a scope; else nothing."""
    granted = (outcome.error or {}).get("granted_scope")
    return "" if granted is None else say(words, "scope.granted", scopes=quoted(str(granted), QUOTE))


def _of_its_job(outcome: Outcome) -> dict[str, Any]:
    """Return ids and what the tool told of its job: its words, so quoted."""
    said: dict[str, Any] = {
        "operation_id": outcome.operation_id,
        "job_id": None if outcome.job_id is None else quoted(outcome.job_id, JOB_ID),
        "status_url": None if outcome.status_url is None else quoted(outcome.status_url, URL),
        "kind": outcome.kind,
        "counts": None if outcome.counts is None else quoted_counts(outcome.counts),
        "errors_url": None if outcome.errors_url is None else quoted(outcome.errors_url, URL),
    }
    return {name: value for name, value in said.items() if value is not None}


def since_settled(outcome: Outcome, words: Mapping[str, str] | None = None) -> str:
    """Return how an outcome that is replayed as unsettled ended since; no part of ``message``, which is replayed."""
    return "" if outcome.since is None else say(words, "since_settled", state=str(outcome.since))


def _sentence(text: str) -> str:
    return text if not text or text.endswith(".") else text + "."


def _happened(outcome: Outcome, words: Mapping[str, str] | None) -> tuple[str, str]:
    """Return what happened, and what to do next."""
    happened, advice = say(words, f"{outcome.status}.happened"), say(words, f"{outcome.status}.advice")
    if outcome.status is Status.FAILED:
        happened += " " + say(words, f"effect.{outcome.effect or Effect.NONE}")
    elif outcome.status is Status.NOT_STARTED and f"not_started.{outcome.reason}" in ENGLISH:
        advice = say(words, f"not_started.{outcome.reason}")
    if outcome.since is not None:
        advice = say(words, "since.advice")
    if outcome.errors_url is not None:
        advice += " " + say(words, "errors.advice")
    if outcome.result_state not in {None, ResultState.OK}:
        happened = say(words, "result_unusable.happened", state=str(outcome.result_state))
        advice = say(words, "result_unusable.advice")
    return happened, advice


NO_CONNECTION: Final = frozenset({"ConnectError", "ConnectTimeout", "ProxyError"})


def seen_by_transport(outcome: Outcome, words: Mapping[str, str] | None = None) -> str:
    """Return what our side of the connection saw, by the error's class alone: its text may quote the other side."""
    error = outcome.error or {}
    name = str(error.get("error"))
    how = "not_sent" if not error.get("maybe_sent", True) else "no_answer"
    if how == "not_sent" and name in NO_CONNECTION:
        how = "no_connection"
    return say(words, f"transport.{how}", target=str(error.get("target", outcome.tool)), error=name)


def _result(outcome: Outcome) -> dict[str, Any]:
    text = _json(outcome.value)
    if len(text) <= PREVIEW:
        return {"result": json.loads(text)}
    return {
        "result_preview": text[:PREVIEW],
        "result_length": len(text),
        "result_reference": f"{outcome.session_id}/{outcome.step}",
    }


def _json(value: Any) -> str:
    def plain(item: Any) -> Any:
        dump = getattr(item, "model_dump", None)
        return dump(mode="json") if callable(dump) else str(item)

    return json.dumps(value, ensure_ascii=False, default=plain)


def _quote(error: dict[str, Any]) -> str:
    return quoted_json(error, QUOTE)
