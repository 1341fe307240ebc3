"""A Python function as a tool: it gets the idempotency key as a parameter, and can say that nothing happened.

    python -m examples.function_tool

Three things to look at:

* The key comes in by the parameter annotated `Key`. The model's schema does not show it.
* An exception says nothing about the effect: the money may be gone or not, so such a step ends as unknown. `NotApplied`
  says it: nothing happened, the step failed, and the agent may try another way.
* A second run of the agent gets what the first one got, the failure too. The function is not called.
"""

import tempfile
from itertools import count

from agent_runtime import Idempotency, Key, NotApplied, Runtime, StepFailed, ToolContract, tool

BANK: dict[str, dict] = {}  # stands for a payment service that keeps what it did under each key
RECEIPTS = count(1)


@tool(contract=ToolContract(idempotency=Idempotency()))
def charge(card: str, cents: int, key: Key) -> dict:
    """Charge a card."""
    print(f"  charge() runs for {card}")
    if card == "expired":
        raise NotApplied("the card has expired")
    return BANK.setdefault(key, {"receipt": next(RECEIPTS), "cents": cents})


def agent(runtime: Runtime) -> None:
    with runtime.open("order-1138") as session:
        try:
            session.call(charge, {"card": "expired", "cents": 1_200})
        except StepFailed as error:
            print(f"  {error.step} failed, effect: {error.effect}")
        paid = session.call(charge, {"card": "valid", "cents": 1_200})
        print(f"  {paid.step} from {paid.source}: receipt {paid.value['receipt']}")


def main() -> None:
    print(f"What a model sees of its parameters: {', '.join(charge.args_schema()['properties'])}")
    with tempfile.TemporaryDirectory() as folder, Runtime(f"sqlite:///{folder}/agent.db", tools=[charge]) as runtime:
        print("The first run:")
        agent(runtime)
        print("The second run:")
        agent(runtime)
    print(f"function_tool: 2 runs, {len(BANK)} charge")


if __name__ == "__main__":
    main()
