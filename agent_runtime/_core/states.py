"""The one table of allowed state changes; nothing else changes a state."""

from __future__ import annotations

from typing import Final

from agent_runtime._model.states import SETTLED, State

ALLOWED: Final[dict[State, frozenset[State]]] = {
    State.READY: frozenset({State.READY, State.IN_FLIGHT, State.CANCELLED}),
    State.IN_FLIGHT: frozenset({State.READY, State.SUCCEEDED, State.FAILED, State.UNKNOWN, State.ACCEPTED}),
    State.ACCEPTED: frozenset({State.ACCEPTED, State.SUCCEEDED, State.FAILED, State.UNKNOWN}),
    State.UNKNOWN: frozenset({State.UNKNOWN, State.SUCCEEDED, State.FAILED, State.ACCEPTED, State.IN_FLIGHT}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}
"""From each state, the states that a write may leave it in. ``in_flight`` goes back to ``ready`` only when every
attempt was provably not applied (`agent_runtime._core.conclude`)."""


def settled(state: State) -> bool:
    """Whether nothing more can become known of an operation in this state."""
    return state in SETTLED


def check(before: State, after: State) -> None:
    """Raise `AssertionError` if the table does not allow the change: a fault of ours, never of a user."""
    assert after in ALLOWED[before], f"state change {before} -> {after} is not in the table"
