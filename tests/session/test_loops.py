"""What loops around a model need of a session: words instead of exceptions, and calls from several threads."""

from __future__ import annotations

import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest
from pydantic import BaseModel

from agent_runtime.errors import ArgumentsRefused, SessionClosed
from tests.session.stage import WAIT, Stage, debit, http_tool, notify, provision

if TYPE_CHECKING:
    from tests.session.stage import Tools


class Order(BaseModel):
    gb: int


order = http_tool("order", args=Order)


@pytest.mark.parametrize("args", [{"gb": "many"}, {}, ["gb"], {"gb": {1, 2}}])
def test_args_that_a_model_got_wrong_come_back_in_words(stage: Stage, args: object) -> None:
    """try_call says that refused args were not started and why; it takes no position, and call raises the same."""
    with stage.runtime(order).open("orders") as session:
        outcome = session.try_call(order, args)
        assert (outcome.status, outcome.reason, outcome.step) == ("not_started", "refused_input", "")
        said = outcome.for_model()
        assert said["done"] is False
        assert "Correct the arguments" in said["message"]
        with pytest.raises(ArgumentsRefused):
            session.call(order, args)
        assert session.call(order, {"gb": 1}).step == "step_001"
    assert stage.tools.names() == ["order"]


def test_a_model_is_told_what_stands_in_the_way_of_its_call(stage: Stage) -> None:
    """A call refused because of an open one, and one whose place is taken, each come with advice of their own."""
    stage.tools.script("notify", "lost")
    session = stage.open()
    session.try_call(notify, {"to": "ana"}, at="msg1.0")
    reworded = session.try_call(notify, {"to": "ana!"}, at="msg2.0")
    other = session.try_call(provision, {"gb": 1}, at="msg1.0")
    session.close()
    assert (reworded.reason, other.reason) == ("unsettled", "diverged")
    assert "has to be settled first" in reworded.for_model()["message"]
    assert "Go by what stands there" in other.for_model()["message"]


def test_a_closed_session_says_that_it_is_closed(stage: Stage) -> None:
    """A call after close() is told to open the session anew; nobody took it over, and nothing is sent."""
    session = stage.open()
    session.close()
    with pytest.raises(SessionClosed, match="is closed"):
        session.call(provision, {"gb": 1})
    assert stage.tools.names() == []


def test_calls_of_several_threads_at_their_addresses_go_out_side_by_side(sync_stage: Stage) -> None:
    """Two threads of one message have their requests out at once, and each gets its own step's result."""
    both = threading.Barrier(2)

    def meeting(request: httpx.Request) -> httpx.Response:
        both.wait(timeout=WAIT)
        return httpx.Response(200, json=json.loads(request.content))

    sync_stage.tools.script("provision", meeting, meeting)
    session = sync_stage.open()
    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(lambda i: session.call(provision, {"gb": i}, at=f"msg1.{i}"), range(2)))
    session.close()
    assert [result.value["gb"] for result in results] == [0, 1]
    assert {result.step for result in results} == {"step_001", "step_002"}


def test_steps_resent_side_by_side_are_warned_of_once_each(sync_stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Two threads that resend at the same time log one WARNING for each step."""
    both = threading.Barrier(2)

    def meeting(tools: Tools, name: str, request: httpx.Request) -> httpx.Response:
        both.wait(timeout=WAIT)
        return tools.apply(name, request.headers["Idempotency-Key"], request.content)

    for tool in (provision, debit):
        sync_stage.tools.script(
            tool.name, "lost", lambda request, name=tool.name: meeting(sync_stage.tools, name, request)
        )
    session = sync_stage.open()
    with caplog.at_level(logging.WARNING, "agent_runtime"), ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda one: session.call(one[1], {}, at=f"msg1.{one[0]}"), enumerate((provision, debit))))
    session.close()
    assert sorted(record.args[1] for record in caplog.records) == ["step_001", "step_002"]
