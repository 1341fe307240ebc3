"""A plain tool-calling loop: its durable position is the list of messages, so it names each call by its message.

    python -m examples.chat_loop

Look at `chat`. The loop itself is the usual one; what is new in it is `try_call(..., at=f"msg{n}.{i}")`: call i of the
n-th message that asks for tools. Ids of calls would not do: a model that is asked again makes new ones.

1. The first process dies after both calls of the first message, before it saved anything. The second process knows only
   what the user said, and asks the model again. Message and index are the same, so nothing is sent a second time.
2. Then a tool without keys loses its answer. The model is told in words that the outcome is unknown. It asks again in
   other words, as models do; that call is not sent, and the model is told why.
"""

import json
import multiprocessing
import os
import tempfile
import uuid
from contextlib import closing
from functools import partial
from pathlib import Path

from agent_runtime import Runtime, Session, Tool, ToolContract
from agent_runtime.config import presets
from examples.tool_backend.process import running_backend

say = partial(print, flush=True)

# -- the loop ---------------------------------------------------------------------------------------------------------


def chat(session: Session, file: Path, *, die_before_saving: bool = False) -> str:
    """Go on with a conversation from its file until the model has nothing more to ask for; return its last words."""
    messages = json.loads(file.read_text())
    while True:
        message = model(messages)
        messages.append(message)
        if not message["tool_calls"]:
            return message["content"]
        n = sum("tool_calls" in earlier for earlier in messages)
        for i, call in enumerate(message["tool_calls"]):
            name, args = call["function"]["name"], json.loads(call["function"]["arguments"])
            outcome = session.try_call(name, args, at=f"msg{n}.{i}")
            say(f"  msg{n}.{i}  {name} {args}: {outcome.status}")
            answer = json.dumps(outcome.for_model())
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": answer})
        if die_before_saving:
            os._exit(1)
        file.write_text(json.dumps(messages))


# -- what stands for a model ------------------------------------------------------------------------------------------

SCRIPT = [
    [
        ("provision_database", {"region": "ap-southeast-1", "storage_gb": 20}),
        ("debit", {"account": "team-7", "amount": 4_900}),
    ],
    [("old_debit", {"account": "team-7", "amount": 250})],
    [("old_debit", {"account": "team-7", "amount": 250, "memo": "second try"})],
    [],
]


def model(messages: list[dict]) -> dict:
    """Answer like an OpenAI-style model: calls with new ids, or last words when the script is at its end."""
    asks = SCRIPT[sum(message["role"] == "assistant" for message in messages)]
    calls = [
        {"id": f"call_{uuid.uuid4().hex}", "function": {"name": name, "arguments": json.dumps(args)}}
        for name, args in asks
    ]
    content = "" if calls else "Database made and paid. Whether the old debit went through, a person has to look up."
    return {"role": "assistant", "content": content, "tool_calls": calls}


# -- around it --------------------------------------------------------------------------------------------------------


def tools(url: str) -> list:
    return [
        Tool("provision_database", url=f"{url}/tools/provision-database", contract=presets.TOOL_BACKEND),
        Tool("debit", url=f"{url}/tools/debit", contract=presets.TOOL_BACKEND),
        Tool("old_debit", url=f"{url}/legacy/debit", contract=ToolContract()),  # honours no key, cannot be asked
    ]


def app(ledger: str, url: str, file: Path, die_before_saving: bool) -> None:
    # `closing`: a `with` of the session itself would finish it in the end, and the user may say more.
    with Runtime(ledger, tools=tools(url)) as runtime, closing(runtime.open("chat-9")) as session:
        words = chat(session, file, die_before_saving=die_before_saving)
        said = [json.loads(message["content"]) for message in json.loads(file.read_text()) if message["role"] == "tool"]
        say(f"The model was told: {said[-2]['message']}")
        say(f"The model was told: {said[-1]['message']}")
        say(f"The model says: {words}")


def in_a_process(*args: object) -> int | None:
    process = multiprocessing.get_context("spawn").Process(target=app, args=args)
    process.start()
    process.join()
    return process.exitcode


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_backend() as backend:
        backend.script("legacy-debit", "lost_answer")
        ledger, file = f"sqlite:///{folder}/agent.db", Path(folder, "messages.json")
        file.write_text(json.dumps([{"role": "user", "content": "A database for team-7, please, and pay for it."}]))
        say("The first process:")
        assert in_a_process(ledger, backend.url, file, True) == 1
        say(f"  died with {len(json.loads(file.read_text()))} message saved; effects so far: {len(backend.effects())}")
        say("The second process:")
        assert in_a_process(ledger, backend.url, file, False) == 0
        say(f"chat_loop: 3 effects wanted, {len(backend.effects())} happened, 1 call was refused")


if __name__ == "__main__":
    main()
