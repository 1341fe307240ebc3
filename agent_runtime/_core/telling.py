"""The protocol of telling ``on_end`` of a job's end: at least once across crashes, and once as a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.effects import Job, Tell, ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime._core.effects import Steps
    from agent_runtime._model import Outcome

ENDED: Final = "ended"
"""Kind under which it stands that an end was told."""


def claim_end(operation_id: str) -> Steps[bool]:
    """Take the telling of an end for a while, so that two workers do not both tell it."""
    claimed: bool = yield from ask(Job(lambda ledger: ledger.claim_end(operation_id)))
    return claimed


def tell_end(operation_id: str, outcome: Outcome, listener: Callable[[Outcome], Any]) -> Steps[None]:
    """Let a listener hear of an end that was claimed.

    It counts as told once the listener has returned: where it raises it is told the next time, and where the process
    dies in it, once the claim is over.
    """
    try:
        yield from ask(Tell(listener, outcome))
    except Exception:
        yield from ask(Job(lambda ledger: ledger.free_end(operation_id)))
        raise
    yield from ask(Job(lambda ledger: ledger.note_end(operation_id)))
