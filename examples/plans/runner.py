"""Works a plan file: a session, a loop, a call for each step. Killed anywhere? Start it again, just the same."""

from __future__ import annotations

import argparse
import logging
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_runtime import Runtime, Tool, ToolResult
from agent_runtime.config import presets


@dataclass(frozen=True)
class Step:
    """One call that is planned; ``id`` is the name by which later steps refer to its result."""

    id: str
    tool: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """A plan as its file has it."""

    name: str
    goal: str
    steps: tuple[Step, ...]


def read_plan(path: Path) -> Plan:
    """Read a plan file."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    return Plan(content["name"], content["goal"], tuple(Step(**step) for step in content["steps"]))


def tools_at(server: str) -> list[Tool]:
    """Return the tools of a tool server; all of them honour the key that a call is sent under."""
    names = ("provision_database", "debit", "send_webhook")
    return [Tool(name, url=f"{server}/tools/{name.replace('_', '-')}", contract=presets.TOOL_BACKEND) for name in names]


def work(plan: Plan, runtime: Runtime, session_name: str) -> None:
    """Make the calls of a plan, one after the other."""
    results: dict[str, Any] = {}
    with runtime.open(session_name) as session:
        for step in plan.steps:
            print(f"  {step.id:<16} {step.tool:<19}", end="", flush=True)
            result = session.call(step.tool, filled(step.args, results))
            results[step.id] = result.value
            print(told(result), flush=True)


def filled(args: Any, results: dict[str, Any]) -> Any:
    """Return args with each ``"{step.member}"`` replaced by that member of the step's result."""
    if isinstance(args, dict):
        return {name: filled(value, results) for name, value in args.items()}
    if isinstance(args, list):
        return [filled(value, results) for value in args]
    reference = re.fullmatch(r"\{(\w+)\.(\w+)\}", args) if isinstance(args, str) else None
    return results[reference[1]][reference[2]] if reference else args


def told(result: ToolResult[Any]) -> str:
    """Say where a result comes from."""
    if result.source == "ledger":
        return "recorded: nothing is sent"
    if result.server_replayed:
        return "sent again under its key: the server gives its stored answer"
    return "done"


def main() -> None:
    """Work the plan that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--server", required=True, help="base URL of the tool server")
    parser.add_argument("--ledger", default="sqlite:///agent.db", help="SQLite file or Postgres database")
    parser.add_argument("--session", help="name of the session; the plan's own by default")
    options = parser.parse_args()
    # The package warns when it sends something again; here the line of the step says so.
    logging.getLogger("agent_runtime").addHandler(logging.NullHandler())
    plan = read_plan(options.plan)
    print(f"runner, process {os.getpid()}", flush=True)
    with Runtime(options.ledger, tools=tools_at(options.server)) as runtime:
        work(plan, runtime, options.session or plan.name)


if __name__ == "__main__":
    main()
