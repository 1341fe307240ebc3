"""Kill a runner while it takes money, start it again, and count what happened in the world.

``make demo``: a tool server starts; a runner works the plan of `examples/plans/launch_shop.toml`; it is killed with
SIGKILL when the tool has taken the money and its answer is still on its way; the same command runs again. The exit
status is 0 only if each step of the plan had exactly one effect.
"""

from __future__ import annotations

import argparse
import io
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_runtime import Runtime
from examples.plans.runner import Plan, read_plan, tools_at
from examples.tool_backend.process import Backend, running_backend

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).resolve().parents[1]
PLAN = ROOT / "examples" / "plans" / "launch_shop.toml"

KILLED_AT = "first_month"  # the step of the plan whose request is out when the runner dies
ANSWER_HELD = 2.0  # seconds for which the server holds that step's answer back, once the money is taken
GETS_THERE_WITHIN = 30.0
LOOKS_EVERY = 0.02


class DemoFailed(Exception):
    """Something went otherwise than the demo says it would."""


@dataclass(frozen=True)
class Verdict:
    """What a plan came to: its steps against the effects that the server counted."""

    steps: int
    effects: int
    duplicates: int
    lost: int

    @property
    def good(self) -> bool:
        """Whether each step had exactly one effect."""
        return self.steps == self.effects and self.duplicates == self.lost == 0

    def __str__(self) -> str:
        return f"demo: {self.steps} steps, {self.effects} effects, {self.duplicates} duplicates, {self.lost} lost"


def judge(planned: int, keys: Iterable[str], effects: Sequence[str]) -> Verdict:
    """Compare what was planned, and the keys of the steps that the ledger calls done, with the effects' keys.

    An effect under a key that the ledger does not know is a duplicate too: nobody asked for it.
    """
    counted = Counter(effects)
    happened = sum(1 for key in set(keys) if counted[key])
    return Verdict(steps=planned, effects=len(effects), duplicates=len(effects) - happened, lost=planned - happened)


def main() -> int:
    """Run the demo; 0 = each step had exactly one effect."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument(
        "--forget", action="store_true", help="start again under another session name, as if nothing were recorded"
    )
    options = parser.parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # the runners print into the same stream
    plan = read_plan(PLAN)
    print(f"{plan.name}: {plan.goal}\n{len(plan.steps)} calls of tools, planned in {PLAN.relative_to(ROOT)}\n")
    with tempfile.TemporaryDirectory(prefix="agent-runtime-demo-") as folder, running_backend() as backend:
        ledger = f"sqlite:///{folder}/agent.db"
        try:
            kill_while_a_request_is_out(plan, backend, ledger)
            again = f"{plan.name}-again" if options.forget else plan.name
            run_to_the_end(backend, ledger, again)
            verdict = settle_accounts(plan, backend, ledger, again)
        except DemoFailed as failure:
            print(f"\ndemo failed: {failure}")
            return 1
    print(verdict)
    return 0 if verdict.good else 1


def kill_while_a_request_is_out(plan: Plan, backend: Backend, ledger: str) -> None:
    """Start a runner, and kill it once the server has the effect of one step and holds its answer back."""
    step = next(number for number, step in enumerate(plan.steps, 1) if step.id == KILLED_AT)
    backend.script("debit", "slow", seconds=ANSWER_HELD, when="after_effect", match=f":step_{step:03d}:")
    runner = start_runner(backend, ledger, plan.name)
    try:
        wait_for_effects(backend, step, runner)
    finally:
        runner.kill()
        status = runner.wait()
    if status != -signal.SIGKILL:
        raise DemoFailed(f"the runner was not killed: it ended by itself with status {status}")
    print("the money is taken, the answer is on its way ... kill -9\n")
    with Runtime(ledger, tools=tools_at(backend.url)) as runtime:
        left = runtime.explain(plan.name)
    print(f"The ledger, as the crash left it:\n{left}\n")
    if left[-1].state != "in_flight":
        raise DemoFailed("the runner was killed when no request was out")


def run_to_the_end(backend: Backend, ledger: str, session: str) -> None:
    """Start a runner and wait for its end."""
    if start_runner(backend, ledger, session).wait() != 0:
        raise DemoFailed("the second runner did not reach the end of the plan")


def settle_accounts(plan: Plan, backend: Backend, ledger: str, session: str) -> Verdict:
    """Print the ledger beside what the server counted, and judge."""
    effects = backend.effects()
    counted = Counter(effect["key"] for effect in effects)
    with Runtime(ledger, tools=tools_at(backend.url)) as runtime:
        steps = runtime.resume(session).steps()
    print("\nThe ledger now, beside what the server counted:")
    rows = [
        [step.step, step.tool, step.state, step.attempts, counted[step.key or ""], shortened(step.key)]
        for step in steps
    ]
    print(as_table(["step", "tool", "state", "requests", "effects", "key"], rows), end="\n\n")
    keys = [step.key for step in steps if step.state == "succeeded" and step.key is not None]
    return judge(len(plan.steps), keys, [effect["key"] for effect in effects])


def start_runner(backend: Backend, ledger: str, session: str) -> subprocess.Popen[bytes]:
    """Start a runner in a process of its own; it prints what it does."""
    command = [sys.executable, "-m", "examples.plans.runner", str(PLAN)]
    return subprocess.Popen([*command, "--server", backend.url, "--ledger", ledger, "--session", session], cwd=ROOT)


def wait_for_effects(backend: Backend, wanted: int, runner: subprocess.Popen[bytes]) -> None:
    """Wait until the server counts so many effects."""
    deadline = time.monotonic() + GETS_THERE_WITHIN
    while len(backend.effects()) < wanted:
        if runner.poll() is not None:
            raise DemoFailed(f"the runner ended too early, with status {runner.returncode}")
        if time.monotonic() > deadline:
            raise DemoFailed(f"the runner did not reach step {wanted} within {GETS_THERE_WITHIN:.0f} s")
        time.sleep(LOOKS_EVERY)


def shortened(key: str | None) -> str:
    """Return a key as far as a reader needs it: beginnings of session id and hash, and the label between them."""
    return "" if key is None else ":".join(part if part.startswith("step_") else part[:8] for part in key.split(":"))


def as_table(header: list[str], rows: list[list[Any]]) -> str:
    """Return rows as text, columns padded to their widest cell."""
    lines = [header, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


if __name__ == "__main__":
    sys.exit(main())
