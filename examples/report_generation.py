"""A quarterly report that takes a while: one call that waits outside the model, and a link that works.

Without it an agent gets a job's id, announces the report, and hands out a link to nothing. Here the call returns the
real link, and if the wait was too short it says so in words that nobody can take for success.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from agent_runtime import Idempotency, PollPolicy, Runtime, Tool, ToolContract
from agent_runtime.progress import terminal_progress
from examples.tool_backend.process import Backend, running_backend

LINK = {"download_url": "https://files.example.com/reports/2026-q3.xlsx"}
ARGS = {"quarter": "2026-Q3", "format": "xlsx"}


def report_tool(backend: Backend, *, bound: float) -> Tool:
    """Return the tool; ``bound``: seconds that a call waits for its job."""
    polling = PollPolicy(bound=bound)
    contract = ToolContract(idempotency=Idempotency(), polling=polling)
    return Tool("report", url=f"{backend.url}/v1/reports", contract=contract)


def main() -> None:
    """Ask too short, see what a model is told, then wait."""
    with tempfile.TemporaryDirectory() as folder, running_backend() as backend:
        # Scaled: the export of 90 seconds takes 3 here, and asks to be polled every half second.
        backend.order_jobs("report", seconds=3, poll_after=0.5, estimated=None, result=LINK)
        ledger = f"sqlite:///{Path(folder) / 'agent.db'}"

        impatient = report_tool(backend, bound=1)
        with Runtime(ledger, tools=[impatient]) as runtime:
            outcome = runtime.open("finance").try_call(impatient, ARGS)
            print(f"waited a second: {outcome.status}, done: {outcome.done}, job: {outcome.job_id is not None}")
            print("the model reads:", outcome.for_model()["message"])

        tool = report_tool(backend, bound=60)
        with Runtime(ledger, tools=[tool]) as runtime, runtime.open("finance") as session, terminal_progress() as bar:
            print("at the start of its run it reads:", runtime.jobs().for_model()["message"])
            result = session.call(tool, ARGS, on_progress=bar)
            print("waited for the end:", result.value["download_url"])
        print(f"report_generation: {len(backend.effects('report'))} report, 1 link that works")


if __name__ == "__main__":
    main()
