"""SIGKILL around the 202, in polls, in callbacks and in the telling of matters: one start, one end, one next step."""

from __future__ import annotations

import signal
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from acceptance_kit.agents import Halt
from acceptance_kit.children import Agent
from acceptance_kit.transactions import counted_ends, held

from tests.acceptance.jobs import job_agent
from tests.acceptance.jobs.job_agent import JobOrder
from tests.acceptance.jobs.test_callbacks import free_port, receiving, url_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from acceptance_kit.gateway import Gateway

    from examples.tool_backend.process import Backend

pytestmark = pytest.mark.acceptance

ACCEPTED = "NEW.state = 'accepted' AND OLD.state <> 'accepted'"
ENDED = "NEW.state = 'succeeded' AND OLD.state = 'accepted'"
# Where the agent is killed: a write of its ledger at which it stops, a transaction that is held, or a request that is.
KILLS: dict[str, Any] = {
    "before_the_202_is_committed": Halt(boundary="answered", label="step_001"),
    "in_the_commit_of_the_202": {"table": "operations", "on": "UPDATE", "when": ACCEPTED},
    "after_the_commit_of_the_202": Halt(boundary="recorded", label="step_001"),
    "poll_not_arrived": "request",
    "poll_not_answered": "answer",
    "in_the_commit_of_the_end": {"table": "operations", "on": "UPDATE", "when": ENDED},
    "before_the_next_step": Halt(boundary="before_reserve", label="step_002"),
}
SENT_AGAIN = {"before_the_202_is_committed", "in_the_commit_of_the_202"}


@pytest.fixture(params=["sqlite-sync", "postgres-async"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, bool]:
    """A ledger's URL, and whether its agents are async: each store and each face once."""
    if request.param == "sqlite-sync":
        return f"sqlite:///{tmp_path}/agent.db", False
    return request.getfixturevalue("postgres_url"), True


@pytest.fixture
def start() -> Iterator[Callable[[JobOrder], Agent]]:
    """Starts agents, and ends those that a test leaves behind."""
    agents: list[Agent] = []

    def starter(order: JobOrder) -> Agent:
        agents.append(Agent(order, job_agent.live))
        return agents[-1]

    yield starter
    for agent in agents:
        agent.close()


def works(start: Callable[[JobOrder], Agent], **order: Any) -> Agent:
    """Run an agent to its end."""
    agent = start(JobOrder(**order))
    agent.expect("done")
    agent.ended()
    return agent


@pytest.mark.parametrize("where", KILLS)
def test_a_killed_agent_leaves_one_job_and_the_next_one_finishes_it(
    server: Backend, gateway: Gateway, place: tuple[str, bool], start: Callable[..., Agent], where: str
) -> None:
    """Between the 202 and its commit, in a poll, at the end: one job, one end, the next step once; then the ledger."""
    url, is_async = place
    server.order_jobs("transcode", polls=2, estimated=None)
    given = {"ledger": url, "server": gateway.url, "is_async": is_async}
    with counted_ends(url) as ends:
        kill(start, gateway, KILLS[where], given)
        again = works(start, **given)
        assert [(one["step"], one["status"]) for one in again.steps] == [
            ("step_001", "succeeded"),
            ("step_002", "succeeded"),
        ]
        third = works(start, **given)
        assert [one["value"] for one in third.steps] == [one["value"] for one in again.steps]
        assert {one["source"] for one in third.steps} == {"ledger"}
        assert ends() == {"step_001": 1, "step_002": 1}
    posts = gateway.requests(path="/v1/transcode")
    assert Counter(one.key for one in posts) == {again.steps[0]["key"]: 2 if where in SENT_AGAIN else 1}
    assert len(gateway.requests(path="/tools/debit")) == 1
    assert len(server.effects("transcode")) == len(server.effects("debit")) == 1
    assert server.polls(again.steps[0]["job_id"]) >= 3


def kill(start: Callable[..., Agent], gateway: Gateway, where: Any, given: dict[str, Any]) -> None:
    """Start an agent and kill it there."""
    with ExitStack() as stack:
        hold = gateway.hold(where, method="GET", path="/v1/jobs/") if isinstance(where, str) else None
        inside = stack.enter_context(held(given["ledger"], **where)) if isinstance(where, dict) else None
        dead = start(JobOrder(**given, halt=where if isinstance(where, Halt) else None))
        dead.expect("opened")
        if hold is not None:
            hold.wait()
        elif inside is not None:
            inside.wait()
        else:
            dead.expect("halted")
        dead.kill()
        if hold is not None:
            hold.release_and_wait()


# Where the receiver is killed: inside the transaction that keeps the event, that ends the step, that notes so.
RECEIVING: dict[str, Any] = {
    "keeps_the_event": {"table": "events", "on": "INSERT"},
    "ends_the_step": {"table": "operations", "on": "UPDATE", "when": ENDED},
    "notes_that_it_was_told": {"table": "events", "on": "UPDATE"},
}


@pytest.mark.parametrize("where", RECEIVING)
def test_a_receiver_killed_inside_a_transaction_loses_and_doubles_nothing(
    server: Backend, place: tuple[str, bool], start: Callable[..., Agent], where: str
) -> None:
    """The sender tries again, at a new receiver: one end, by the callback alone, and the next step runs once."""
    url, is_async = place
    port = free_port()
    server.order_jobs("transcode", seconds=0, poll_after=None, estimated=None, link="none", callback_url=url_of(port))
    given = {"ledger": url, "server": server.url, "is_async": is_async, "polling": {"webhook": "films"}}
    with counted_ends(url) as ends:
        works(start, **given, detach=True)
        with held(url, **RECEIVING[where]) as transaction, receiving(url, server.url, port) as receiver:
            transaction.wait()
            receiver.kill()
            assert receiver.wait(10) == -signal.SIGKILL
        with receiving(url, server.url, port):
            agent = works(start, **given)
        assert [one["status"] for one in agent.steps] == ["succeeded", "succeeded"]
        assert agent.steps[0]["reason"] == "callback"
        assert ends() == {"step_001": 1, "step_002": 1}
    assert len(server.effects("transcode")) == len(server.effects("debit")) == 1


@pytest.mark.parametrize("where", ["listening", "noting"])
def test_a_matter_is_heard_again_after_a_kill_until_it_is_noted(
    server: Backend, place: tuple[str, bool], start: Callable[..., Agent], tmp_path: Path, where: str
) -> None:
    """Killed inside `on_attention`, or before the note that it was heard: the next process tells it, the third not."""
    url, is_async = place
    server.order_jobs("transcode", end="never", poll_after=None, estimated=None)
    heard = tmp_path / "heard"
    given = {"ledger": url, "server": server.url, "is_async": is_async, "polling": {"bound": 0.3}}
    given |= {"hears": "function", "heard": str(heard)}
    with ExitStack() as stack:
        inside = stack.enter_context(held(url, "notices")) if where == "noting" else None
        dead = start(JobOrder(**given, stops_to_listen=where == "listening"))
        if inside is not None:
            inside.wait()
        else:
            dead.expect("halted")
        dead.kill()
    assert heard.read_text() == "timed_out\n"
    for _ in range(2):
        agent = works(start, **given)
        assert agent.steps[0]["status"] == "timed_out"
        assert agent.steps[0]["job_id"] is not None
    assert heard.read_text() == "timed_out\n" * 2
    assert len(server.effects("transcode")) == 1


@pytest.mark.parametrize("held_back", ["request", "answer"])
def test_a_matter_told_by_a_tool_is_told_under_one_key_across_a_kill(
    server: Backend, gateway: Gateway, place: tuple[str, bool], start: Callable[..., Agent], held_back: str
) -> None:
    """Killed while the telling is out: the next process sends it again under the same key, and the tool tells once."""
    url, is_async = place
    server.order_jobs("transcode", end="never", poll_after=None, estimated=None)
    server.order_jobs("report", polls=0)
    given = {"ledger": url, "server": gateway.url, "is_async": is_async, "polling": {"bound": 0.3}}
    hold = gateway.hold(held_back, path="/v1/reports")  # type: ignore[arg-type]
    dead = start(JobOrder(**given, hears="tool"))
    hold.wait()
    dead.kill()
    hold.release_and_wait()
    for _ in range(2):
        works(start, **given, hears="tool")
    (told,) = server.effects("report")
    assert told["args"]["kind"] == "timed_out"
    assert len({one.key for one in gateway.requests(path="/v1/reports")}) == 1
    assert len(gateway.requests(path="/v1/reports")) == 2
    assert len(server.effects("transcode")) == 1
