"""A process dies between a tool's effect and the note of it. The next process goes on, and nothing happens twice.

    python -m examples.crash_and_resume

The plan has three steps. At the second the process is killed (SIGKILL: nothing of it runs any more) at the worst moment
there is: the tool has taken the money, its answer has arrived, and nobody has written that down. A new process runs the
same function from its top. Look at what becomes of each step there:

* step_001 comes from the ledger; nothing is sent.
* step_002 stands in the ledger as sent and not answered. It is sent again under the same key, and the tool answers with
  what it answered before.
* step_003 is new.
"""

import multiprocessing
import os
import signal
import tempfile
from functools import partial

import httpx

from agent_runtime import Runtime, Tool
from agent_runtime.config import presets
from examples.tool_backend.process import running_backend

say = partial(print, flush=True)


def tools(url: str) -> list:
    return [
        Tool("provision_database", url=f"{url}/tools/provision-database", contract=presets.TOOL_BACKEND),
        Tool("debit", url=f"{url}/tools/debit", contract=presets.TOOL_BACKEND),
        Tool("send_webhook", url=f"{url}/tools/send-webhook", contract=presets.TOOL_BACKEND),
    ]


def plan(ledger: str, url: str, die_at_answer: int | None) -> None:
    """Order a database, pay for it, tell the team: plain code that can run again from its top."""
    with (
        mortal_client(die_at_answer) as client,
        Runtime(ledger, tools=tools(url), client=client) as runtime,
        runtime.open("orders-db") as session,
    ):
        made = session.call("provision_database", {"region": "ap-southeast-1", "storage_gb": 20})
        say(f"  {made.step}  {made.source:6}  {made.value['instance_id']} is ready")

        paid = session.call("debit", {"account": "team-7", "amount": 4_900})
        replayed = " (the tool gave its first answer again)" if paid.server_replayed else ""
        say(f"  {paid.step}  {paid.source:6}  paid, {paid.value['balance']} cents left{replayed}")

        news = {"database": made.value["instance_id"], "debit": paid.value["debit_id"]}
        told = session.call("send_webhook", {"url": "https://team-7.example", "event": "ready", "payload": news})
        say(f"  {told.step}  {told.source:6}  told the team")


def mortal_client(die_at_answer: int | None) -> httpx.Client:
    """Return an HTTP client that kills its own process when the given answer arrives: this is the crash."""
    answers = []

    def on_answer(response: httpx.Response) -> None:
        answers.append(response)
        if len(answers) == die_at_answer:
            os.kill(os.getpid(), signal.SIGKILL)

    return httpx.Client(event_hooks={"response": [on_answer]}, trust_env=False)


def in_a_process(*args: object) -> int | None:
    """Run the plan in a process of its own; return its exit code, which is minus the signal that killed it."""
    process = multiprocessing.get_context("spawn").Process(target=plan, args=args)
    process.start()
    process.join()
    return process.exitcode


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_backend() as backend:
        ledger = f"sqlite:///{folder}/agent.db"

        say("The first process:")
        assert in_a_process(ledger, backend.url, 2) == -signal.SIGKILL
        say(f"  killed; effects so far: {len(backend.effects())}")

        say("What the ledger says, and what a resume would do:")
        with Runtime(ledger, tools=tools(backend.url)) as runtime:
            say(runtime.explain("orders-db"))

        say("The second process:")
        assert in_a_process(ledger, backend.url, None) == 0

        effects = backend.effect_counts()
        duplicates = sum(count - 1 for count in effects.values())
        say(f"crash_and_resume: 3 steps, {effects.total()} effects, {duplicates} duplicates")


if __name__ == "__main__":
    main()
