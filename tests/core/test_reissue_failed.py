"""A step that failed with effect none is issued again when a call of the resumed plan reaches it."""

from agent_runtime._model import Effect, State
from tests.core.world import call_of, fresh, json_answer, key_of, make_call, scripted, tool_of


def test_a_failed_step_is_issued_again_once_when_it_is_reached():
    """Under a key of its own; the same call after that delivers what the second operation came to."""
    tool, world = tool_of(), fresh(scripted(json_answer(402), json_answer(200, 7)))
    assert make_call(world, world.desk(), call_of(tool)).status == "failed"
    (failed,) = world.ledger.operations.values()
    assert (failed.state, failed.effect) == (State.FAILED, Effect.NONE)
    desk = world.desk()
    desk.again = {failed.id}
    assert make_call(world, desk, call_of(tool)).value == 7
    assert desk.again == set()
    first, second = (key_of(send) for send in world.sends)
    assert first != second
    replayed = make_call(world, world.desk(), call_of(tool))
    assert (replayed.value, replayed.source, len(world.sends)) == (7, "ledger", 2)
