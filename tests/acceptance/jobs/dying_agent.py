"""An agent that calls a slow tool and is killed at a chosen place: ``python -m ... ledger server where``."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from agent_runtime import Idempotency, PollPolicy, RetryPolicy, Runtime, Tool, ToolContract
from agent_runtime._model import Advance, State
from agent_runtime.ledger import open_ledger

ARGS = {"source_url": "s3://in/7f21c.mov"}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dying:
    """A ledger whose process is killed before or after the write that records the 202, or at the second poll's."""

    def __init__(self, inner: Any, where: str) -> None:
        self._inner = inner
        self._where = where
        self._accepted = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, entries: Any) -> Any:
        (entry,) = entries
        accepts = isinstance(entry, Advance) and entry.change.state is State.ACCEPTED
        self._accepted += accepts
        if accepts and self._where == "before_commit":
            die()
        if accepts and self._accepted == 3 and self._where == "during_poll":
            die()
        future = self._inner.write(entries)
        if accepts and self._where == "after_commit":
            future.result()
            die()
        return future


def tool_at(server: str) -> Any:
    contract = ToolContract(
        idempotency=Idempotency(),
        polling=PollPolicy(first=0.05, cap=0.1, bound=20),
        retry=RetryPolicy(base=0.05, cap=0.2),
    )
    return Tool("transcode", url=f"{server}/v1/transcode", contract=contract)


def main(url: str, server: str, where: str) -> None:
    tool = tool_at(server)
    ledger = open_ledger(url)
    with Runtime(Dying(ledger, where), tools=[tool]) as runtime, runtime.open("film") as session:
        outcome = session.try_call(tool, ARGS)
        print(json.dumps({"status": outcome.status, "job_id": outcome.job_id, "report": session.report.resent}))
    ledger.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
