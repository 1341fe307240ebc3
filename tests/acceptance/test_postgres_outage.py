"""The database goes away while tool calls are out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg
import pytest
from acceptance_kit.agents import DEBIT, Order
from acceptance_kit.looks import effects, session_state, states
from acceptance_kit.postgres import OwnPostgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from acceptance_kit.agents import Calls
    from acceptance_kit.children import Agent
    from acceptance_kit.gateway import Gateway, Hold

    from examples.tool_backend.process import Backend as ToolServer

pytestmark = pytest.mark.acceptance

TEN: Calls = (DEBIT,) * 10
LABELS = [f"step_{number:03d}" for number in range(1, len(TEN) + 1)]
DOWN = 0.7  # seconds for which the server stays away once the tools have answered: several tries of the ledger
OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[OwnPostgres]:
    """A server that tests may stop."""
    server = OwnPostgres()
    yield server
    server.close()


def ask(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run one statement on a connection of its own."""
    with psycopg.connect(url, autocommit=True) as conn:
        return conn.execute(statement).fetchall()


def hold_all(gateway: Gateway, labels: list[str]) -> list[Hold]:
    """Hold the answer of each step."""
    return [gateway.hold("answer", f":{label}:") for label in labels]


def test_A42_ten_calls_survive_the_end_of_all_connections(
    start: Callable[[Order], Agent], gateway: Gateway, postgres_url: str, alias: str, tool_server: ToolServer
) -> None:
    """While ten calls are out no transaction is open; if all connections are ended then, all ten outcomes are kept."""
    holds = hold_all(gateway, LABELS)
    order = Order(ledger=postgres_url, server=gateway.url, session=alias, calls=TEN, is_async=True, together=True)
    agent = start(order)
    agent.expect("opened")
    for hold in holds:
        hold.wait()
    assert ask(postgres_url, f"SELECT state {OTHERS}") == [("idle",)]
    assert ask(postgres_url, f"SELECT pg_terminate_backend(pid) {OTHERS}") == [(True,)]
    for hold in holds:
        hold.release()
    agent.expect("done")
    assert [step["status"] for step in agent.steps] == ["succeeded"] * len(TEN)
    assert states(agent) == dict.fromkeys(LABELS, "succeeded")
    assert len(gateway.requests()) == len(TEN)
    assert effects(tool_server, agent) == dict.fromkeys(LABELS, 1)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_A42_an_answer_that_comes_while_postgres_restarts_is_recorded(
    mode: str,
    is_async: bool,
    start: Callable[[Order], Agent],
    gateway: Gateway,
    own_postgres: OwnPostgres,
    alias: str,
    tool_server: ToolServer,
) -> None:
    """A server that is stopped while a request is out, and back later, costs no answer and no second request."""
    hold = gateway.hold("answer", ":step_002:")
    agent = start(Order(ledger=own_postgres.url, server=gateway.url, session=alias, is_async=is_async))
    agent.expect("opened")
    hold.wait()
    own_postgres.stop(mode)
    hold.release()
    time.sleep(DOWN)
    own_postgres.start()
    agent.expect("done")
    assert len(gateway.requests()) == len(agent.order.calls)
    assert effects(tool_server, agent) == {"step_001": 1, "step_002": 1, "step_003": 1}
    assert session_state(agent) == "finished"
