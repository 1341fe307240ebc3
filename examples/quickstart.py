"""Quickstart: a tool call that takes effect once, however often the program runs.

    python -m examples.quickstart

Look at `agent`: those ten lines are all there is to it. It is run twice here, as after a crash or a second click. The
second run sends nothing: the step stands in the ledger, and its result comes from there.
"""

import tempfile

from agent_runtime import Idempotency, Runtime, Tool, ToolContract
from examples.tool_backend.process import running_backend  # a tool server to call, so that this runs offline


def agent(ledger: str, url: str) -> None:
    provision = Tool(
        "provision_database",
        url=f"{url}/tools/provision-database",
        contract=ToolContract(idempotency=Idempotency()),  # the tool honours Idempotency-Key
    )
    with Runtime(ledger, tools=[provision]) as runtime, runtime.open("orders-db") as session:
        result = session.call(provision, {"region": "ap-southeast-1", "storage_gb": 20})
        print(f"{result.step} from {result.source}: {result.value['instance_id']}")
        print(f"  under key {result.key}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, running_backend() as backend:
        agent(f"sqlite:///{folder}/agent.db", backend.url)
        agent(f"sqlite:///{folder}/agent.db", backend.url)
        print(f"quickstart: 2 runs, {len(backend.effects())} database")
