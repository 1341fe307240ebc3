"""What a person may say of an operation, and what is no decision."""

import pytest

from agent_runtime._core.ending import decide
from agent_runtime._model import Effect, Reason, ResultState, State
from agent_runtime.errors import ArgumentsRefused, ConfigError
from tests.core.world import LOST, PLAIN, call_of, fresh, make_call, scripted, tool_of


def unknown():
    world = fresh(scripted(LOST))
    make_call(world, world.desk(), call_of(tool_of(PLAIN)))
    (operation,) = world.ledger.operations.values()
    return world, operation


@pytest.mark.parametrize(
    ("succeeded", "result", "effect", "state", "stands", "body", "result_state"),
    [
        (True, {"b": 1, "a": 2}, "none", State.SUCCEEDED, None, b'{"a":2,"b":1}', ResultState.OK),
        (True, None, "none", State.SUCCEEDED, None, b"", ResultState.MISSING),
        (False, None, "none", State.FAILED, Effect.NONE, None, None),
        (False, None, "possible", State.FAILED, Effect.POSSIBLE, None, None),
    ],
)
def test_a_decision_settles_it(succeeded, result, effect, state, stands, body, result_state):
    """With the result that was seen, or with what may be left behind."""
    world, operation = unknown()
    row = world.run(decide("", operation.id, succeeded, result, "ann", "seen", effect))
    assert (row.state, row.reason, row.effect) == (state, Reason.DECIDED, stands)
    assert (row.result, row.result_state) == (body, result_state)
    assert (world.ledger.evidence[-1][1].by, world.ledger.evidence[-1][1].detail) == ("ann", "seen")


@pytest.mark.parametrize(
    ("succeeded", "result", "effect", "error"),
    [
        (False, 1, "none", ConfigError),
        (True, None, "possible", ConfigError),
        (True, None, "perhaps", ConfigError),
        (False, None, "perhaps", ConfigError),
        (True, {"at": object()}, "none", ArgumentsRefused),
        (True, {"ids": {1, 2}}, "none", ArgumentsRefused),
    ],
)
def test_what_contradicts_itself_or_has_no_json_form_is_no_decision(succeeded, result, effect, error):
    """Nothing is written: the operation can still be decided."""
    world, operation = unknown()
    with pytest.raises(error):
        world.run(decide("", operation.id, succeeded, result, "ann", "seen", effect))
    assert world.ledger.operations[operation.id] == operation
