"""The parent's side: agents in processes of their own, started from a server that has everything imported."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from contextlib import suppress
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from acceptance_kit import agents

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ANSWERS_WITHIN = 30.0
ENDS_WITHIN = 15.0
SHOWS_WITHIN = 0.5

# What the package imports only when it is wanted.
LATE = ("alembic.command", "alembic.ddl", "httpx", "psycopg", "sqlalchemy.dialects.postgresql.psycopg", "sqlite3")

# A fork server: each agent is a process of its own that has run nothing before, without paying for the imports.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([agents.__name__, *LATE])


@cache
def start_fork_server() -> None:
    """Start the fork server; it finds what is to be imported by its environment, not by this process's path."""
    given = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        forkserver.ensure_running()
    finally:
        if given is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = given


LAST_WORDS = {"done", "raised", "halted"}


def first_to_end(agents: Sequence[Agent], *, within: float = ANSWERS_WITHIN) -> tuple[Agent, str, Any]:
    """Return the first of the agents to say a last word, that word, and what came with it."""
    deadline = time.monotonic() + within
    lines = {agent._line: agent for agent in agents}
    while True:
        for line in wait(lines, max(0.0, deadline - time.monotonic())):
            agent = lines[line]
            word, told = agent._hear()
            if word in LAST_WORDS:
                return agent, word, told
        assert time.monotonic() < deadline, f"no agent ended within {within} s"


class Agent:
    """An agent at work in a process of its own.

    ``live`` is what it does there: a function of an importable module, given the order and the child's end of the line.
    """

    def __init__(self, order: Any, live: Callable[[Any, Any], None] = agents.live) -> None:
        self.order = order
        self.steps: list[dict[str, Any]] = []
        self.session_id = ""
        start_fork_server()
        self._line, theirs = _processes.Pipe()
        self._process = _processes.Process(target=live, args=(order, theirs), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process.pid is not None
        return self._process.pid

    def expect(self, wanted: str, *, within: float = ANSWERS_WITHIN) -> Any:
        """Wait for a word of the agent and return what came with it; any other end is a failure."""
        deadline = time.monotonic() + within
        while True:
            if not self._line.poll(max(0.0, deadline - time.monotonic())):
                self._show_stacks()
                raise AssertionError(f"the agent did not say {wanted!r} within {within} s; its stacks are on stderr")
            word, told = self._hear()
            if word == wanted:
                return told
            if word in LAST_WORDS:
                raise AssertionError(f"the agent said {word!r} ({told}), not {wanted!r}")

    def _show_stacks(self) -> None:
        self.signal(signal.SIGUSR1)
        time.sleep(SHOWS_WITHIN)

    def _hear(self) -> tuple[str, Any]:
        word, told = self._line.recv()
        if word == "opened":
            self.session_id = told
        elif word == "step":
            self.steps.append(told)
        return word, told

    def go(self) -> None:
        """Tell an agent that waits to go on."""
        self._line.send("go")

    def kill(self) -> None:
        """End the process by SIGKILL and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self._process.join(ENDS_WITHIN)
        assert self._process.exitcode == -signal.SIGKILL, self._process.exitcode

    def kill_if_running(self) -> None:
        """End the process by SIGKILL, unless it has ended by itself."""
        if self._process.is_alive():
            with suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)
        self._process.join(ENDS_WITHIN)

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        os.kill(self.pid, number)

    def ended(self, *, within: float = ENDS_WITHIN) -> int:
        """Wait until the process has ended by itself, and return its exit status."""
        self._process.join(within)
        assert self._process.exitcode is not None, f"the agent still runs after {within} s"
        return self._process.exitcode

    def close(self) -> None:
        """End the process, whatever it does, and free what belongs to it."""
        self.kill_if_running()
        self._process.close()
        self._line.close()
