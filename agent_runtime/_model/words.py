"""An outcome in words for a model: what happened, what did not, what to do next.

A pending outcome never holds a result. The tool's own text is quoted, cut and marked as untrusted.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._model.states import Effect, ResultState, Status

if TYPE_CHECKING:
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
        "Do not report success and do not call it again under other words; it is followed outside this conversation.",
    ),
    Status.TIMED_OUT: (
        "The job was started and is NOT finished; waiting for it has ended, the job has not.",
        "Do not report success or failure. Check the job later by its id.",
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
    "refused_input": "Correct the arguments and call it again.",
    "key_conflict": "Do not report success; a person has to look at the key.",
}
"""Advice for a call that was not started, by reason."""


def for_model(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain JSON values for a model."""
    happened, advice = SAYS[outcome.status]
    if outcome.status is Status.FAILED:
        happened += _effect(outcome)
    elif outcome.status is Status.NOT_STARTED:
        advice = NOT_STARTED.get(str(outcome.reason), advice)
    if outcome.result_state not in {None, ResultState.OK}:
        happened, advice = (
            f"The call took effect, but its result is {outcome.result_state} and cannot be used.",
            "Do not call it again: it took effect. Work without the result or ask a person.",
        )
    said: dict[str, Any] = {
        "status": str(outcome.status),
        "done": outcome.done,
        "tool": outcome.tool,
        "step": outcome.step,
        "message": f"{happened} {outcome.message} {advice}".replace("  ", " "),
    }
    for name in ("operation_id", "job_id", "status_url", "kind"):
        value = getattr(outcome, name)
        if value is not None:
            said[name] = value
    if outcome.status in {Status.SUCCEEDED, Status.COMPLETED_WITH_ERRORS}:
        said.update(_result(outcome))
    elif outcome.error:
        said["tool_said_untrusted"] = _quote(outcome.error)
    return said


def _effect(outcome: Outcome) -> str:
    if outcome.effect is Effect.POSSIBLE:
        return " Part of it may have taken effect."
    return " Nothing took effect."


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
    text = json.dumps(error, ensure_ascii=False)
    return text if len(text) <= QUOTE else text[:QUOTE] + " [cut]"
