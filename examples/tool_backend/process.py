"""The tool server as a process of its own, for tests and demos: start, script, count, kill, restart."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from examples.tool_backend.processes import PROJECT_ROOT, end_process, read_line
from examples.tool_backend.settings import Settings
from examples.tool_backend.valkey import running_valkey

STARTS_WITHIN = 30.0
ANSWERS_WITHIN = 30.0


class Backend:
    """A running tool server.

    Attributes:
        url: its base URL; the same after a restart.
        redis_url: the store it runs over, which outlives it.
    """

    def __init__(self, options: list[str], *, redis_url: str, port: int) -> None:
        self.redis_url = redis_url
        self._options = options
        self._process = self._start(port)
        self.url = self._ready_url()
        self._client = httpx.Client(base_url=self.url, timeout=ANSWERS_WITHIN, trust_env=False)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return urlsplit(self.url).port or 80

    @property
    def pid(self) -> int:
        """The id of its present process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether its process is alive."""
        return self._process.poll() is None

    def effects(self, tool: str | None = None, *, key: str | None = None) -> list[dict[str, Any]]:
        """Return the effects that happened, oldest first: ``{tool, key, caller, args, effect_id}``."""
        wanted = {name: value for name, value in (("tool", tool), ("key", key)) if value is not None}
        return self._client.get("/effects", params=wanted).raise_for_status().json()

    def effect_counts(self, tool: str | None = None) -> Counter[str]:
        """Return how many effects each key had; a key above 1 is a duplicate. No key counts as the empty text."""
        return Counter(effect["key"] or "" for effect in self.effects(tool))

    def script(self, tool: str, fault: str, *, times: int = 1, match: str = "", **options: Any) -> None:
        """Order a fault for the tool's next requests whose key contains ``match``; the README has the options."""
        entry = {"tool": tool, "fault": fault, "times": times, "match": match, **options}
        answer = self._client.post("/faults", json=entry)
        if answer.status_code != 201:
            raise ValueError(f"the server refused {entry}: {answer.text}")

    def order_jobs(self, tool: str, **script: Any) -> None:
        """Say how the next jobs of ``transcode``, ``report``, ``import`` or ``build`` go; options as in the README."""
        answer = self._client.post("/jobs", json={"tool": tool, **script})
        if answer.status_code != 204:
            raise ValueError(f"the server refused {script}: {answer.text}")

    def polls(self, job_id: str) -> int:
        """Return how often a job's status was asked for."""
        return self._client.get(f"/v1/jobs/{job_id}/polls").raise_for_status().json()["polls"]

    def operation(self, key: str, *, tool: str | None = None, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """Return how the operation of a key stands: ``{"state": "done" | "running" | "absent", ...}``."""
        wanted = {} if tool is None else {"tool": tool}
        return self._client.get(f"/operations/{quote(key, safe='')}", params=wanted, headers=headers).json()

    def balance(self, account: str) -> int:
        """Return what an account holds, in cents; counts as a request to ``get-account``."""
        return self._client.get(f"/accounts/{quote(account, safe='')}").raise_for_status().json()["balance"]

    def tokens_issued(self) -> int:
        """Return how many tokens its token endpoint issued."""
        return self._client.get("/oauth/issued").raise_for_status().json()["issued"]

    def reset(self) -> None:
        """Forget effects, answers, claims, tokens and scripts."""
        self._client.post("/reset").raise_for_status()

    def kill(self) -> None:
        """End the process at once, as a power cut would; its store stays."""
        self._process.kill()
        self.wait_until_dead()

    def wait_until_dead(self, within: float = 10.0) -> int:
        """Wait for the process to end, as after a ``crash``; return its exit status."""
        return self._process.wait(timeout=within)

    def restart(self) -> None:
        """Start again over the same store on the same port, killing the process if it still runs."""
        port = self.port
        self.kill()
        end_process(self._process)
        self._process = self._start(port)
        self._ready_url()

    def close(self) -> None:
        """Stop the server; its store is left alone."""
        self._client.close()
        end_process(self._process)

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        arguments = ["--port", str(port), "--redis-url", self.redis_url, "--stop-with-stdin", *self._options]
        return subprocess.Popen(
            [sys.executable, "-m", "examples.tool_backend", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=PROJECT_ROOT,
            # Ctrl-C in a terminal is meant for the agent; this process ends with its standard input.
            start_new_session=True,
        )

    def _ready_url(self) -> str:
        try:
            return read_line(self._process, within=STARTS_WITHIN).rpartition(" ")[2]
        except BaseException:
            self._process.kill()
            end_process(self._process)
            raise


@contextmanager
def running_backend(
    *,
    port: int = 0,
    redis_url: str | None = None,
    claim_seconds: float = Settings.claim_seconds,
    result_seconds: float = Settings.result_seconds,
    retry_after: int = Settings.retry_after,
    require_token: bool = False,
    token_seconds: int = Settings.token_seconds,
) -> Iterator[Backend]:
    """Run a tool server until the block ends; its store is ``redis_url``, or a Valkey started for it."""
    options = [
        f"--claim-seconds={claim_seconds}",
        f"--result-seconds={result_seconds}",
        f"--retry-after={retry_after}",
        f"--token-seconds={token_seconds}",
    ]
    if require_token:
        options.append("--require-token")
    with ExitStack() as stack:
        url = redis_url or stack.enter_context(running_valkey())
        backend = Backend(options, redis_url=url, port=port)
        stack.callback(backend.close)
        yield backend
