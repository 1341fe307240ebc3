"""Looks at what an agent left: steps and evidence in the ledger, effects in the world."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from acceptance_kit.agents import tools_at
from agent_runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acceptance_kit.children import Agent
    from agent_runtime._model import EvidenceRecord, SessionRecord
    from examples.tool_backend.process import Backend


@contextmanager
def looking(agent: Agent) -> Iterator[Runtime]:
    """Open the agent's ledger in this process."""
    with Runtime(agent.order.ledger, tools=tools_at(agent.order.server)) as runtime:
        yield runtime


def states(agent: Agent) -> dict[str, str]:
    """Return the state of each step of the agent's session, by label."""
    with looking(agent) as runtime:
        return {step.step: step.state for step in runtime.explain(agent.session_id)}


def session_state(agent: Agent) -> str:
    """Return the state of the agent's session."""
    return str(session_record(agent).state)


def session_record(agent: Agent) -> SessionRecord:
    """Return the agent's session as the ledger has it."""
    with looking(agent) as runtime:
        return next(one for one in runtime.sessions() if one.id == agent.session_id)


def evidence(agent: Agent, label: str) -> list[EvidenceRecord]:
    """Return what was seen about a step, in the order of filing."""
    with looking(agent) as runtime:
        steps = {step.step: step.operation_id for step in runtime.explain(agent.session_id)}
        return runtime.ledger.evidence(steps[label] or "").result()


def effects(server: Backend, agent: Agent) -> dict[str, int]:
    """Return how many effects each step of the agent's session had, by label; steps without one do not show."""
    mine = (key for key in server.effect_counts().elements() if key.startswith(f"{agent.session_id}:"))
    return dict(Counter(key.split(":")[1] for key in mine))


def effect_ids(server: Backend, agent: Agent) -> list[str]:
    """Return the ids of the effects of the agent's session, in the order in which they happened."""
    return [one["effect_id"] for one in server.effects() if (one["key"] or "").startswith(f"{agent.session_id}:")]


def effect_id(value: dict[str, Any]) -> str:
    """Return the id of the effect that a tool's result tells of."""
    told = value.get("debit_id") or value.get("instance_id") or value["delivery_id"]
    return str(told).rpartition("-")[2]
