"""20,000 records, of which 140 are rejected from row 14,000 on: done, and not a success.

The counts come with the outcome, so that an agent can decide; the rejected rows stand behind a URL with a limit, so
that they come into a model's context only when somebody asks for them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from agent_runtime import Idempotency, PartialResult, PollPolicy, Runtime, Tool, ToolContract
from examples.tool_backend.process import running_backend

ARGS = {"file": "s3://uploads/customers.csv", "records": 20_000}


def main() -> None:
    """Import, read the counts, look at a few rejected rows, import those again."""
    with tempfile.TemporaryDirectory() as folder, running_backend() as backend:
        # Scaled: the eight minutes take two seconds here.
        backend.order_jobs("import", seconds=2, poll_after=0.4, estimated=None, end="completed_with_errors")
        contract = ToolContract(idempotency=Idempotency(), polling=PollPolicy())
        tool = Tool("import", url=f"{backend.url}/v1/imports", contract=contract)
        ledger = f"sqlite:///{Path(folder) / 'agent.db'}"
        with Runtime(ledger, tools=[tool]) as runtime, runtime.open("import-customers") as session:
            try:
                session.call(tool, ARGS)
            except PartialResult as partial:
                outcome = partial.outcome
            print(f"status: {outcome.status}, counts: {dict(outcome.counts)}")
            print("the model reads:", outcome.for_model()["message"])
            rejected = session.errors(outcome.step, limit=3)["errors"]
            print("three of the rejected rows:", [row["row"] for row in rejected])

            backend.order_jobs("import", seconds=0.5, poll_after=0.2, estimated=None)
            again = session.call(tool, ARGS | {"rows": [row["row"] for row in rejected]})
            print(f"those three, corrected: {again.step} succeeded")
        print(f"bulk_import: 2 imports wanted, {len(backend.effects('import'))} happened, 0 claimed as full success")


if __name__ == "__main__":
    main()
