"""The agents of the examples, killed at each point of their runs: what was wanted happened, and happened once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.examples.crashing import DIED, asking_a_person, async_graph, chat, graph, in_a_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from examples.tool_backend.process import Backend

pytestmark = pytest.mark.acceptance

MOMENTS = ("request", "answer", "recorded")
POINTS = [f"{moment}:{number}" for moment in MOMENTS for number in (1, 2, 3)]
ACTS = {"provision-database": 1, "debit": 1, "send-webhook": 1}


def _effects(backend: Backend) -> dict[str, int]:
    counts: dict[str, int] = {}
    for effect in backend.effects():
        counts[effect["tool"]] = counts.get(effect["tool"], 0) + 1
    return counts


def _said(folder: Path) -> list[list[str]]:
    return json.loads((folder / "said.json").read_text())


@pytest.mark.parametrize(
    ("run", "point"),
    [*((graph, point) for point in POINTS), *((async_graph, f"{moment}:2") for moment in MOMENTS)],
)
def test_a_langgraph_agent_killed_anywhere_has_each_effect_once(
    run: Callable[..., None], point: str, backend: Backend, tmp_path: Path
) -> None:
    """The thread resumes from its checkpoints in a new process, and the server counts one effect for each act."""
    assert in_a_process(run, str(tmp_path), backend.url, point) == DIED
    assert in_a_process(run, str(tmp_path), backend.url, "") == 0
    assert _effects(backend) == ACTS
    assert [status for _, status, _ in _said(tmp_path)] == ["success"] * 3


def test_a_refusal_comes_to_a_langgraph_agent_in_words_and_its_sibling_goes_on(
    backend: Backend, tmp_path: Path
) -> None:
    """One of two parallel calls is refused: a ToolMessage of status error says so, the other call has its effect."""
    backend.script("debit", "status", status=402, body={"title": "no funds"}, by="handler")
    assert in_a_process(graph, str(tmp_path), backend.url, "") == 0
    assert _effects(backend) == {"provision-database": 1, "send-webhook": 1}
    [name, status, content] = _said(tmp_path)[1]
    said = json.loads(content)
    assert (name, status, said["status"], said["done"]) == ("debit", "error", "failed", True)
    assert "Nothing took effect" in said["message"]


def test_an_interrupt_of_a_tool_that_the_session_does_not_know_passes(backend: Backend, tmp_path: Path) -> None:
    """The graph pauses and goes on with the person's answer, as it would without the session; nothing is sent twice."""
    assert in_a_process(asking_a_person, str(tmp_path), backend.url, "") == 0
    assert _effects(backend) == {"provision-database": 1, "debit": 1}
    assert _said(tmp_path)[2][2] == "a person said no"


def _chat_answers(folder: Path) -> list[dict[str, Any]]:
    messages = json.loads((folder / "messages.json").read_text())
    return [json.loads(message["content"]) for message in messages if message["role"] == "tool"]


@pytest.mark.parametrize("point", [point for point in POINTS if not point.endswith("3")])
def test_a_chat_loop_killed_anywhere_has_each_effect_once(point: str, backend: Backend, tmp_path: Path) -> None:
    """The model is asked again, makes new call ids, and each act of its first message stands once."""
    assert in_a_process(chat, str(tmp_path), backend.url, point) == DIED
    assert in_a_process(chat, str(tmp_path), backend.url, "") == 0
    assert {tool: n for tool, n in _effects(backend).items() if tool in ACTS} == {"provision-database": 1, "debit": 1}


@pytest.mark.parametrize(("point", "debits"), [("request:3", 0), ("answer:3", 1)])
def test_a_chat_loop_killed_in_a_call_without_a_key_tells_the_model_that_nobody_knows(
    point: str, debits: int, backend: Backend, tmp_path: Path
) -> None:
    """It is never sent again, whether or not it took effect; the model is told so, and its rewording is not sent."""
    assert in_a_process(chat, str(tmp_path), backend.url, point) == DIED
    assert in_a_process(chat, str(tmp_path), backend.url, "") == 0
    assert _effects(backend).get("legacy-debit", 0) == debits
    asked, reworded = _chat_answers(tmp_path)[2:]
    assert (asked["status"], asked["done"]) == ("unknown", False)
    assert (reworded["status"], reworded["done"]) == ("not_started", False)
    assert "has to be settled first" in reworded["message"]
