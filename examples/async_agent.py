"""The same words with asyncio: calls side by side, and sub-agents with a branch each.

    python -m examples.async_agent

A step is known by where it stands in the plan. Calls given to one `gather` are numbered in the order in which they are
written, whichever answer comes first. Sub-agents that run side by side, each at its own pace, would number their calls
in an order of chance; so each gets a branch, where its calls are counted on their own. Look at the labels.

The agent runs twice. The second run finds every call at its place, sends nothing, and gets the same results.
"""

import asyncio
import tempfile

from agent_runtime import AsyncRuntime, AsyncSession, Tool
from agent_runtime.config import presets
from examples.tool_backend.process import running_backend


async def sub_agent(session: AsyncSession, region: str) -> str:
    """Set up one region, on a branch of its own."""
    branch = session.branch(region)
    database = await branch.call("provision_database", {"region": region})
    await branch.call("send_webhook", {"url": f"https://{region}.example", "event": "database ready"})
    return database.value["instance_id"]


async def agent(runtime: AsyncRuntime) -> list:
    async with runtime.open("two-regions") as session:
        payments = await asyncio.gather(
            session.call("debit", {"account": "team-7", "amount": 4_900}),
            session.call("debit", {"account": "team-8", "amount": 4_900}),
        )
        databases = await asyncio.gather(sub_agent(session, "frankfurt"), sub_agent(session, "jakarta"))
        print(f"  sent: {len(session.report.sent)}, from the ledger: {len(session.report.replayed)}")
        return [[payment.value["debit_id"] for payment in payments], databases]


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_backend() as backend:
        tools = [
            Tool("provision_database", url=f"{backend.url}/tools/provision-database", contract=presets.TOOL_BACKEND),
            Tool("debit", url=f"{backend.url}/tools/debit", contract=presets.TOOL_BACKEND),
            Tool("send_webhook", url=f"{backend.url}/tools/send-webhook", contract=presets.TOOL_BACKEND),
        ]
        async with AsyncRuntime(f"sqlite:///{folder}/agent.db", tools=tools) as runtime:
            print("The first run:")
            first = await agent(runtime)
            print("The second run:")
            second = await agent(runtime)
            print(await runtime.explain("two-regions"))
        same = "the same results" if first == second else "OTHER results"
        print(f"async_agent: 2 runs, {len(backend.effects())} effects for 6 steps, {same}")


if __name__ == "__main__":
    asyncio.run(main())
