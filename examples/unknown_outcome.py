"""A tool that honours no key loses its answer: what an agent can know then, and how a person ends it.

    python -m examples.unknown_outcome

The old payment service takes no idempotency key and cannot be asked what it did. It takes the money, and then the
connection breaks before its answer. To send the call again could take the money twice, and to report success or failure
would be a guess. Look at what happens instead:

* `call` raises `StepUnknown`, and `outcome.for_model()` tells a model so, in words.
* A model that then asks for the payment in other words is refused: nothing else is written past an open question.
* `runtime.attention()` lists the operation until somebody who looked says what is true: `runtime.decide()`.
* From then on the call returns what was decided.
"""

import json
import tempfile

from agent_runtime import Runtime, StepUnknown, Tool, ToolContract
from examples.tool_backend.process import Backend, running_backend


def agent(runtime: Runtime) -> None:
    """Pay; where the outcome is unknown, try it in other words, as models do."""
    with runtime.open("invoice-42") as session:
        try:
            paid = session.call("old_debit", {"account": "team-7", "amount": 4_900})
        except StepUnknown as unknown:
            print(f"{unknown.step} is unknown. A model is told:")
            print(json.dumps(unknown.outcome.for_model(), indent=2))
            other = session.try_call("old_debit", {"account": "team-7", "amount": 4_901})
            print(f"{other.step}, the same in other words: {other.status}, because {other.message}")
        else:
            print(f"{paid.step} from {paid.source}: {paid.value}")


def person(runtime: Runtime, backend: Backend) -> None:
    """Look where only a person can look here, and say what became of the payment; this is final."""
    [matter] = runtime.attention()
    operation = matter.operation
    [debit] = backend.effects("legacy-debit")
    print(f"A person finds the debit of {operation.tool}, {operation.label}, on the bank statement and says so.")
    runtime.decide(
        operation.id,
        succeeded=True,
        result={"debit_id": debit["effect_id"]},
        by="ops@team-7.example",
        evidence="bank statement of Monday, line 3",
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_backend() as backend:
        old_debit = Tool(
            "old_debit",
            url=f"{backend.url}/legacy/debit",
            contract=ToolContract(),  # a write, no key, no look-up: said on purpose
        )
        backend.script("legacy-debit", "lost_answer")
        with Runtime(f"sqlite:///{folder}/agent.db", tools=[old_debit]) as runtime:
            agent(runtime)
            person(runtime, backend)
            agent(runtime)
            print(f"unknown_outcome: {len(backend.effects())} effect, {len(runtime.attention())} open questions")


if __name__ == "__main__":
    main()
