"""What an unsettled step stops, what it lets go on, and what settles it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from agent_runtime import ConfigError, PlanDiverged, StepFailed, StepUnknown, UnsettledStep
from agent_runtime.errors import ResultInvalid
from tests.session.stage import debit, inspect_stock, notify, provision, ship

if TYPE_CHECKING:
    from tests.session.stage import Stage

ANA = {"to": "ana"}


def _lost(stage: Stage, session: Any, tool: Any = notify, args: Any = ANA, **settings: Any) -> StepUnknown:
    """Call a tool that honours no key, whose answer is lost."""
    stage.tools.script(tool.name, "lost")
    with pytest.raises(StepUnknown) as caught:
        session.call(tool, args, **settings)
    return caught.value


# -- the same call again --------------------------------------------------------------------------------------------


def test_the_same_call_again_points_to_the_same_operation(stage: Stage) -> None:
    """After a timeout the call made again takes the next position and joins the operation: one effect, one key."""
    session = stage.open()
    first = _lost(stage, session)
    with pytest.raises(StepUnknown) as again:
        session.call(notify, ANA)
    assert (first.step, again.value.step) == ("step_001", "step_002")
    assert (first.key, first.operation_id) == (again.value.key, again.value.operation_id)
    assert stage.tools.effects["notify"] == 1
    assert len(stage.loaded().operations) == 1


def test_the_same_call_again_settles_a_tool_that_honours_keys(stage: Stage) -> None:
    """Where the budget of the first call was used up, the next call goes on under the same key."""
    stage.tools.script("provision", *["lost"] * 5)
    with stage.open() as session:
        with pytest.raises(StepUnknown) as first:
            session.call(provision, {"gb": 1})
        result = session.call(provision, {"gb": 1})
    assert (result.step, result.key) == ("step_002", first.value.key)
    assert result.server_replayed
    assert stage.tools.effects["provision"] == 1
    assert len({seen.body for seen in stage.tools.requests}) == 1


def test_a_replay_delivers_first_the_unsettled_and_then_the_settled_outcome(stage: Stage) -> None:
    """Code that caught the timeout and called again takes the same way on a resume, and sends nothing."""

    def plan() -> list[str]:
        session = stage.open()
        seen = []
        for _ in range(2):
            try:
                seen.append(f"{session.call(provision, {'gb': 1}).step} ok")
            except StepUnknown as error:
                seen.append(f"{error.step} {error.outcome.reason} {error.outcome.attempts}")
        session.close()
        return seen

    stage.tools.script("provision", *["lost"] * 5)
    first = plan()
    sent = len(stage.tools.requests)
    assert first == ["step_001 lost_answer 5", "step_002 ok"]
    assert plan() == first
    assert len(stage.tools.requests) == sent


def test_the_last_position_of_a_branch_settles_afresh(stage: Stage) -> None:
    """Where the code did not go on after an unsettled outcome, a resume does not repeat it: it settles the step."""
    stage.tools.script("provision", *["lost"] * 5)
    session = stage.open()
    with pytest.raises(StepUnknown):
        session.call(provision, {"gb": 1})
    session.close()
    with stage.open() as session:
        assert session.call(provision, {"gb": 1}).step == "step_001"
        assert session.report.resent == ["step_001"]
        assert session.report.settled == ["step_001"]
    assert stage.tools.effects["provision"] == 1


def test_an_equal_call_with_a_key_of_its_own_is_another_effect(stage: Stage) -> None:
    """A caller's own key says that another effect is meant, so the call does not join: it waits like other writes."""
    session = stage.open()
    _lost(stage, session, key="order-1")
    with pytest.raises(UnsettledStep):
        session.call(notify, ANA, key="order-2")
    with pytest.raises(StepUnknown):
        session.call(notify, ANA, key="order-1")
    assert stage.tools.effects["notify"] == 1


# -- other calls ----------------------------------------------------------------------------------------------------


def test_a_reworded_write_is_refused_and_recorded_as_not_started(stage: Stage) -> None:
    """Another write on the branch raises `UnsettledStep` that names the step in the way; nothing is sent."""
    session = stage.open()
    _lost(stage, session)
    with pytest.raises(UnsettledStep) as caught:
        session.call(notify, {"to": "Ana"})
    assert caught.value.step == "step_002"
    assert "step_001" in str(caught.value)
    assert caught.value.outcome.status == "not_started"
    assert stage.step_kinds() == [("step_001", "call"), ("step_002", "refused")]
    assert session.report.refused == ["step_002"]
    assert len(stage.tools.requests) == 1


def test_an_unsettled_step_error_names_the_step_in_the_way(stage: Stage) -> None:
    """`blocking` is its label, and `blocking_session` the session that holds it."""
    session = stage.open()
    _lost(stage, session)
    with pytest.raises(UnsettledStep) as caught:
        session.call(ship, {"n": 1})
    assert (caught.value.blocking, caught.value.blocking_session) == ("step_001", session.id)


def test_reads_go_on(stage: Stage) -> None:
    """A read changes nothing, so it waits for nothing; a read that waits itself is in nobody's way either."""
    session = stage.open()
    _lost(stage, session)
    assert session.call(inspect_stock, {"item": "a"}).step == "step_002"


def test_other_branches_go_on(stage: Stage) -> None:
    """What is unsettled on one branch is in nobody's way on another."""
    session = stage.open()
    _lost(stage, session)
    assert session.branch("b").call(notify, {"to": "bob"}).step == "b.step_001"
    assert stage.tools.effects["notify"] == 2


@pytest.mark.parametrize("where", ["runtime", "call"])
def test_others_go_on_where_that_is_declared(stage: Stage, where: str) -> None:
    """With ``after_unknown="continue"`` writes of other tools go on, those of the unknown tool do not."""
    on_call = {"after_unknown": "continue"} if where == "call" else {}
    runtime = stage.runtime(**({} if on_call else {"after_unknown": "continue"}))
    session = runtime.open("orders")
    _lost(stage, session)
    assert session.call(ship, {"n": 1}, **on_call).step == "step_002"
    with pytest.raises(UnsettledStep):
        session.call(notify, {"to": "bob"}, **on_call)
    assert stage.tools.effects == {"notify": 1, "ship": 1}


def test_a_call_can_insist_on_order_where_the_runtime_goes_on(stage: Stage) -> None:
    """``after_unknown="block"`` on a call wins over the runtime's setting."""
    session = stage.runtime(after_unknown="continue").open("orders")
    _lost(stage, session)
    with pytest.raises(UnsettledStep):
        session.call(ship, {"n": 1}, after_unknown="block")


def test_siblings_of_one_batch_do_not_stop_each_other(stage: Stage) -> None:
    """One of many calls that stays unknown lets the others of its batch go out."""
    stage.tools.script("notify", "lost")
    session = stage.open()
    outcomes = session.call_many([(notify, ANA), (notify, {"to": "bob"}), (ship, {"n": 1})])
    assert [outcome.status for outcome in outcomes] == ["unknown", "succeeded", "succeeded"]


def test_siblings_of_one_message_do_not_stop_each_other(stage: Stage) -> None:
    """Calls at addresses of one message go out beside an unknown one; those of the next message do not."""
    session = stage.open()
    _lost(stage, session, at="msg7.0")
    assert session.call(ship, {"n": 1}, at="msg7.1").step == "step_002"
    with pytest.raises(UnsettledStep):
        session.call(ship, {"n": 2}, at="msg8.0")


def test_siblings_still_awaited_do_not_stop_each_other(async_stage: Stage) -> None:
    """A call made before its sibling's answer was lost goes out all the same."""
    async_stage.tools.script("notify", "lost")

    async def work() -> list[Any]:
        session = await async_stage.own.target.open("orders")
        together = await asyncio.gather(session.call(notify, ANA), session.call(ship, {"n": 1}), return_exceptions=True)
        await session.close()
        return together

    lost, shipped = async_stage.run(work())
    assert isinstance(lost, StepUnknown)
    assert shipped.step == "step_002"


def test_siblings_replay_together(async_stage: Stage) -> None:
    """A sibling that was out already does not count as going on: a resume settles the unknown one afresh."""

    async def work() -> list[Any]:
        session = await async_stage.own.target.open("orders")
        together = await asyncio.gather(
            session.call(provision, {"gb": 1}), session.call(ship, {"n": 1}), return_exceptions=True
        )
        await session.close()
        return together

    async_stage.tools.script("provision", *["lost"] * 5)
    first, _ = async_stage.run(work())
    assert isinstance(first, StepUnknown)
    again, shipped = async_stage.run(work())
    assert (again.step, again.key) == ("step_001", first.key)
    assert shipped.source == "ledger"
    assert async_stage.tools.effects == {"provision": 1, "ship": 1}


# -- refused positions on a resume ----------------------------------------------------------------------------------


def test_a_refused_position_does_not_count_as_going_on(stage: Stage) -> None:
    """A resume settles the step in front of it, and the call that was refused then goes out at its own position."""
    stage.tools.script("provision", *["lost"] * 5)
    session = stage.open()
    with pytest.raises(StepUnknown):
        session.call(provision, {"gb": 1})
    with pytest.raises(UnsettledStep):
        session.call(ship, {"n": 1})
    session.close()
    with stage.open() as session:
        assert session.call(provision, {"gb": 1}).step == "step_001"
        assert session.call(ship, {"n": 1}).step == "step_002"
    assert stage.tools.effects == {"provision": 1, "ship": 1}


def test_a_refused_position_is_taken_over_by_a_call_that_differs(stage: Stage) -> None:
    """Nothing was sent for it, so other code there is no `PlanDiverged`."""
    session = stage.open()
    error = _lost(stage, session)
    with pytest.raises(UnsettledStep):
        session.call(ship, {"n": 1})
    session.close()
    stage.own.decide(error.operation_id, succeeded=True, by="ana", evidence="saw it", result={"ok": True})
    with stage.open() as session:
        assert session.call(notify, ANA).value == {"ok": True}
        assert session.call(debit, {"amount": 5}).step == "step_002"
    assert stage.step_kinds()[-1] == ("step_002", "call")


def test_a_refusal_that_the_code_went_on_after_is_replayed(stage: Stage) -> None:
    """Unknown, refused, the same call again: a resume takes the three positions the same way, and so once finished."""

    def plan() -> list[str]:
        seen = []
        with stage.open() as session:
            for tool, args in [(provision, {"gb": 1}), (ship, {"n": 1}), (provision, {"gb": 1})]:
                seen.append(str(session.try_call(tool, args).status))
        return seen

    stage.tools.script("provision", *["lost"] * 5)
    first = plan()
    assert first == ["unknown", "not_started", "succeeded"]
    assert stage.loaded().session.state == "finished"
    assert plan() == first
    assert stage.tools.effects == {"provision": 1}


# -- addresses ------------------------------------------------------------------------------------------------------


def test_an_address_asked_again_settles_though_the_code_went_on(stage: Stage) -> None:
    """A live object that asks for the same address again wants to know how the step stands now."""
    session = stage.open()
    stage.tools.script("provision", *["lost"] * 5)
    with pytest.raises(StepUnknown):
        session.call(provision, {"gb": 1}, at="msg1.0")
    session.call(ship, {"n": 1}, at="msg2.0", after_unknown="continue")
    assert session.call(provision, {"gb": 1}, at="msg1.0").step == "step_001"
    assert stage.tools.effects["provision"] == 1


# -- ways on --------------------------------------------------------------------------------------------------------


def test_a_person_decides_that_it_took_effect(stage: Stage) -> None:
    """The result said is the step's from then on; the session object that lives sees it at its next call."""
    session = stage.open()
    error = _lost(stage, session)
    row = stage.own.decide(error.operation_id, succeeded=True, by="ana", evidence="mail 7", result={"sent": 1})
    assert (row.state, row.reason) == ("succeeded", "decided")
    result = session.call(notify, ANA)
    assert (result.value, result.key, result.step) == ({"sent": 1}, error.key, "step_002")
    assert session.call(ship, {"n": 1}).step == "step_003"
    assert stage.tools.effects == {"notify": 1, "ship": 1}
    decided = [seen for seen in stage.ledger.evidence(error.operation_id).result(20) if seen.kind == "decision"]
    assert [(one.by, one.detail) for one in decided] == [("ana", "mail 7")]


def test_a_decision_lets_a_live_session_go_on_with_another_write(stage: Stage) -> None:
    """What stood in the way is looked at again before a write is refused, each of several."""
    session = stage.open()
    errors = [_lost(stage, session), _lost(stage, session, ship, {"n": 1}, after_unknown="continue")]
    for error in errors:
        stage.own.decide(error.operation_id, succeeded=False, by="ana", evidence="not in the log")
    assert session.call(debit, {"amount": 5}).step == "step_003"
    session.close()
    assert ("step_003", "call") in stage.step_kinds()


def test_a_decision_lets_many_calls_of_a_live_session_go_on(stage: Stage) -> None:
    """`call_many` looks again as well."""
    session = stage.open()
    error = _lost(stage, session)
    stage.own.decide(error.operation_id, succeeded=True, by="ana", evidence="mail 7", result=1)
    outcomes = session.call_many([(ship, {"n": 1}), (debit, {"amount": 5})])
    assert [outcome.status for outcome in outcomes] == ["succeeded", "succeeded"]


def test_a_decision_without_a_result_leaves_it_missing(stage: Stage) -> None:
    """The effect stands, its result does not: the step is never sent again, and a call says so."""
    session = stage.open()
    error = _lost(stage, session)
    stage.own.decide(error.operation_id, succeeded=True, by="ana", evidence="mail 7")
    with pytest.raises(ResultInvalid) as caught:
        session.call(notify, ANA)
    assert caught.value.result_state == "missing"
    assert stage.tools.effects["notify"] == 1


@pytest.mark.parametrize("effect", ["none", "possible"])
def test_a_person_decides_that_it_failed(stage: Stage, effect: str) -> None:
    """``effect`` says whether part of it may stand."""
    session = stage.open()
    error = _lost(stage, session)
    stage.own.decide(error.operation_id, succeeded=False, by="ana", evidence="log", effect=effect)
    with pytest.raises(StepFailed) as caught:
        session.call(notify, ANA)
    assert caught.value.effect == effect


def test_a_decision_is_final(stage: Stage) -> None:
    """A second one is refused, and so is one about an operation that nobody has to decide."""
    session = stage.open()
    error = _lost(stage, session)
    stage.own.decide(error.operation_id, succeeded=True, by="ana", evidence="mail 7", result=1)
    settled = session.try_call(ship, {"n": 1}).operation_id
    for operation in (error.operation_id, settled, "no-such-operation"):
        with pytest.raises(ConfigError):
            stage.own.decide(operation, succeeded=False, by="bob", evidence="none")
    assert session.call(notify, ANA).value == 1


def test_the_errors_own_line_decides(stage: Stage) -> None:
    """The message of `StepUnknown` names the call and the operation id that it takes."""
    error = _lost(stage, stage.open())
    assert f"runtime.decide({error.operation_id!r}, succeeded=True" in str(error)


def test_attention_lists_what_only_a_person_can_settle(stage: Stage) -> None:
    """An unknown operation stands there until it is decided."""
    error = _lost(stage, stage.open())
    assert [matter.operation.id for matter in stage.own.attention()] == [error.operation_id]
    stage.own.decide(error.operation_id, succeeded=True, by="ana", evidence="mail 7")
    assert stage.own.attention() == []


def test_settle_goes_as_far_as_evidence_goes(stage: Stage) -> None:
    """`Session.settle()` settles what honours keys, leaves the rest unknown, raises for none, returns outcomes."""
    session = stage.open()
    stage.tools.script("provision", *["lost"] * 5)
    with pytest.raises(StepUnknown):
        session.call(provision, {"gb": 1})
    _lost(stage, session, after_unknown="continue")
    outcomes = session.settle()
    assert [(one.step, str(one.status)) for one in outcomes] == [("step_001", "succeeded"), ("step_002", "unknown")]
    assert stage.tools.effects == {"provision": 1, "notify": 1}


def test_the_runtime_settles_a_session_that_nobody_holds(stage: Stage) -> None:
    """`Runtime.settle()` resumes, settles and releases, and leaves the session open."""
    session = stage.open()
    stage.tools.script("provision", *["lost"] * 5)
    with pytest.raises(StepUnknown):
        session.call(provision, {"gb": 1})
    session.close()
    assert [str(one.status) for one in stage.own.settle("orders")] == ["succeeded"]
    assert stage.loaded().session.state == "open"
    assert stage.loaded().session.owner is None


# -- again, under another key ---------------------------------------------------------------------------------------


def test_a_failed_step_is_issued_again_under_a_key_of_its_own(stage: Stage) -> None:
    """`reissue` makes a second operation with the label ``step_001.r1``; a resume delivers its outcome."""
    stage.tools.script("provision", 422)
    session = stage.open()
    with pytest.raises(StepFailed) as failed:
        session.call(provision, {"gb": 1})
    result = session.reissue("step_001")
    assert (result.step, result.source) == ("step_001", "sent")
    assert result.key.startswith(f"{session.id}:step_001.r1:")
    assert result.key != failed.value.key
    session.close()
    again = stage.open().call(provision, {"gb": 1})
    assert (again.key, again.source, again.value) == (result.key, "ledger", result.value)
    assert [seen.key for seen in stage.tools.requests] == [failed.value.key, result.key]


def test_an_issue_again_can_fail_and_be_issued_again(stage: Stage) -> None:
    """The second one's label is ``step_001.r2``."""
    stage.tools.script("provision", 422, 422)
    session = stage.open()
    with pytest.raises(StepFailed):
        session.call(provision, {"gb": 1})
    with pytest.raises(StepFailed):
        session.reissue("step_001")
    assert session.reissue("step_001").key.startswith(f"{session.id}:step_001.r2:")


def test_a_step_at_an_address_keeps_it_when_issued_again(stage: Stage) -> None:
    """A resume that asks by address gets the outcome of the second issue."""
    stage.tools.script("provision", 422)
    session = stage.open()
    with pytest.raises(StepFailed):
        session.call(provision, {"gb": 1}, at="msg1.0")
    key = session.reissue("step_001").key
    assert session.call(provision, {"gb": 1}, at="msg1.0").key == key
    session.close()
    assert stage.open().call(provision, {"gb": 1}, at="msg1.0").key == key
    assert stage.tools.effects["provision"] == 1


def test_a_resume_issues_failed_steps_again_where_it_is_told_to(stage: Stage) -> None:
    """With ``reissue_failed=True`` a step that failed with effect none is issued again once, when a call reaches it."""
    stage.tools.script("provision", 422)
    session = stage.open()
    with pytest.raises(StepFailed):
        session.call(provision, {"gb": 1})
    session.call(notify, ANA)
    session.close()
    again = stage.own.resume("orders", reissue_failed=True)
    assert len(stage.tools.requests) == 2
    result = again.call(provision, {"gb": 1})
    assert (result.source, result.key.split(":")[1]) == ("sent", "step_001.r1")
    assert again.call(notify, ANA).source == "ledger"
    again.close()
    stage.tools.script("provision", 422)
    assert stage.own.resume("orders", reissue_failed=True).call(provision, {"gb": 1}).key == result.key


def test_a_failure_that_may_stand_in_part_is_issued_again_only_by_a_word(stage: Stage) -> None:
    """Who says ``effect_possible=True`` wants a second effect, and gets it under a key of its own."""
    session = stage.open()
    error = _lost(stage, session)
    stage.own.decide(error.operation_id, succeeded=False, by="ana", evidence="log", effect="possible")
    session.try_call(notify, ANA)
    with pytest.raises(ConfigError):
        session.reissue("step_001")
    assert session.reissue("step_001", effect_possible=True).key.split(":")[1] == "step_001.r1"


@pytest.mark.parametrize("state", ["succeeded", "unknown", "possible", "none-such"])
def test_only_a_failure_without_effect_is_issued_again(stage: Stage, state: str) -> None:
    """What succeeded, is unknown, may stand in part or was never recorded is refused; nothing is sent."""
    session = stage.open()
    if state == "succeeded":
        session.call(notify, ANA)
    elif state != "none-such":
        error = _lost(stage, session)
        if state == "possible":
            stage.own.decide(error.operation_id, succeeded=False, by="ana", evidence="log", effect="possible")
            session.try_call(notify, ANA)
    before = len(stage.tools.requests)
    with pytest.raises(ConfigError):
        session.reissue("step_001")
    assert len(stage.tools.requests) == before


# -- the source text's story ----------------------------------------------------------------------------------------


def test_source_000_a_loop_that_calls_again_unchanged_has_one_effect(stage: Stage) -> None:
    """A loop catches the timeout and calls `provision` again with the same region: one database, one key."""
    stage.tools.script("provision", *["lost"] * 5)
    value = None
    with stage.open() as session:
        for _ in range(3):
            try:
                value = session.call(provision, {"region": "ap-southeast-1"}).value
                break
            except StepUnknown:
                continue
    assert value == {"tool": "provision", "effect": 1, "region": "ap-southeast-1"}
    assert stage.tools.effects["provision"] == 1
    assert len({seen.key for seen in stage.tools.requests}) == 1


def test_source_000_a_loop_that_calls_again_with_another_region_is_told_why_not(stage: Stage) -> None:
    """The reworded call is not sent: the first database may stand, and the error says so and what to do."""
    stage.tools.script("provision", *["lost"] * 5)
    session = stage.open()
    with pytest.raises(StepUnknown):
        session.call(provision, {"region": "ap-southeast-1"})
    outcome = session.try_call(provision, {"region": "us-east-1"})
    told = outcome.for_model()
    assert (told["status"], told["done"]) == ("not_started", False)
    assert "step_001" in told["message"]
    assert "nothing was sent" in told["message"]
    assert stage.tools.effects["provision"] == 1
    assert {seen.body for seen in stage.tools.requests} == {b'{"region":"ap-southeast-1"}'}


def test_a_changed_plan_after_an_unknown_step_diverges_at_its_position(stage: Stage) -> None:
    """On a resume other args at the unknown step's own position are `PlanDiverged`; nothing is sent."""
    session = stage.open()
    _lost(stage, session)
    session.close()
    with pytest.raises(PlanDiverged):
        stage.open().call(notify, {"to": "bob"})
    assert stage.tools.effects["notify"] == 1


# -- what the code was told last ------------------------------------------------------------------------------------


def test_a_resume_of_a_resume_delivers_what_the_second_run_delivered(stage: Stage) -> None:
    """Unknown, then settled by a resume that went on: the third run gets the settled outcome at that position."""
    stage.tools.script("provision", *["lost"] * 5)
    session = stage.open()
    with pytest.raises(StepUnknown):
        session.call(provision, {"gb": 1})
    session.close()
    for _ in range(3):
        session = stage.open()
        assert session.call(provision, {"gb": 1}).value["effect"] == 1
        session.call(ship, {"n": 1})
        session.close()
    assert stage.tools.effects == {"provision": 1, "ship": 1}


def test_a_decided_step_that_a_resume_delivered_stays_delivered(stage: Stage) -> None:
    """The end that a person's word gave is what later runs get, though the first one was told that it is unknown."""
    session = stage.open()
    error = _lost(stage, session)
    session.close()
    stage.own.decide(error.operation_id, succeeded=True, by="ana", evidence="mail 7", result=7)
    for _ in range(3):
        session = stage.open()
        assert session.call(notify, ANA).value == 7
        session.call(ship, {"n": 1})
        session.close()
    assert stage.tools.effects == {"notify": 1, "ship": 1}


@pytest.mark.parametrize("resumed", [False, True], ids=["live", "resumed"])
def test_the_same_call_again_is_no_second_effect_though_it_was_settled_meanwhile(stage: Stage, resumed: bool) -> None:
    """The code was told "unknown" last, so an equal call asks for that one, whoever settled it and whatever went on."""
    session = stage.open()
    error = _lost(stage, session)
    session.call(ship, {"n": 1}, after_unknown="continue")
    stage.own.decide(error.operation_id, succeeded=True, by="ana", evidence="mail 7", result=7)
    if resumed:
        session.close()
        session = stage.open()
        assert session.try_call(notify, ANA).status == "unknown"
        session.call(ship, {"n": 1})
    else:
        session.call(debit, {"amount": 5}, at="msg1.0")
    assert session.call(notify, ANA).value == 7
    assert stage.tools.effects["notify"] == 1
    assert session.call(notify, ANA).value["effect"] == 2  # told now; another equal call is another wish


def test_what_settle_returned_is_told_at_the_next_equal_call(stage: Stage) -> None:
    """`settle()` goes on with the operation, and the call made again delivers it: one effect."""
    stage.tools.script("provision", *["lost"] * 5)
    session = stage.open()
    with pytest.raises(StepUnknown):
        session.call(provision, {"gb": 1})
    assert [str(one.status) for one in session.settle()] == ["succeeded"]
    session.call(ship, {"n": 1})
    assert session.call(provision, {"gb": 1}).value["effect"] == 1
    assert stage.tools.effects["provision"] == 1


def test_settle_does_not_change_what_a_replay_delivers(stage: Stage) -> None:
    """A step that stays unknown is replayed as unknown where the code went on, though `settle()` looked at it again."""
    session = stage.open()
    error = _lost(stage, session)
    session.call(ship, {"n": 1}, after_unknown="continue")
    session.settle()
    session.close()
    stage.own.decide(error.operation_id, succeeded=True, by="ana", evidence="mail 7", result=7)
    again = stage.open()
    assert again.try_call(notify, ANA).status == "unknown"
    assert again.call(ship, {"n": 1}).source == "ledger"


def test_the_same_decision_again_changes_nothing(stage: Stage) -> None:
    """A plan that decides by itself says so in every replay; another decision than the first is refused."""
    session = stage.open()
    error = _lost(stage, session)
    said = {"by": "ana", "evidence": "the dashboard"}
    first = stage.own.decide(error.operation_id, succeeded=True, result={"id": 1}, **said)
    assert stage.own.decide(error.operation_id, succeeded=True, result={"id": 1}, **said) == first
    with pytest.raises(ConfigError):
        stage.own.decide(error.operation_id, succeeded=True, result={"id": 2}, **said)
    with pytest.raises(ConfigError):
        stage.own.decide(error.operation_id, succeeded=False, **said)
