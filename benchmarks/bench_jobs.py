"""A thousand jobs polled at once by one process: how late each poll is, what memory and threads that takes.

Three ways, each over a SQLite file, fully synced, and a status server in another process, over TCP: a thousand
sessions that each wait for a job, and a thousand parked jobs looked at by `follow_jobs` of either runtime. Before them
the floor: the same polls by bare httpx, without a ledger, which says what this machine can do now. Each job asks to be
polled every so many seconds (a third of the time measured).

A poll is late by the time from the moment that the ledger has for it (``resume_at``) to its arrival at the server.
Bounds: no poll later than the latest of the floor and 2 s more, none before the moment that the server asked for, no
more threads than a few whatever the number of jobs, so much memory for each job, and no more of it as polls go on. Exit
status 1 if one is broken.

    python -m benchmarks.bench_jobs [jobs] [seconds]
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from agent_runtime import AsyncRuntime, Idempotency, PollPolicy, Runtime, Tool, ToolContract
from agent_runtime.ledger import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_LATE = 2.0
"""Seconds, above the floor."""
MOST_THREADS = 24
"""Threads that polling adds, whatever the number of jobs; the blocking `follow_jobs` has 16."""
MOST_KB = (20_000, 150)
"""Resident memory: so much in any case, and so much for each job."""
MOST_KB_LATER = (5_000, 10)
"""How much of it may be added while nothing happens but polls."""
CLIENT = {"trust_env": False, "timeout": 60.0}


class Noting:
    """A ledger that notes when each job was to be polled, as it is written."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.due: defaultdict[str, list[float]] = defaultdict(list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, entries: Iterable[Any]) -> Any:
        for entry in entries:
            change = getattr(entry, "change", None)
            # What a 202 or a poll said is written with the handle; a job that is merely taken for a look is not.
            if isinstance(getattr(change, "handle", None), bytes) and isinstance(change.resume_at, float):
                self.due[json.loads(change.handle)["job_id"]].append(change.resume_at)
        return self._inner.write(entries)


class Measured:
    """One way's run: its server, its ledger, and what it took of this process."""

    def __init__(self, way: str, jobs: int, seconds: float, folder: str) -> None:
        self.way = way
        self.jobs = jobs
        self.seconds = seconds
        self.every = seconds / 3
        self.ledger = Noting(open_ledger(f"sqlite:///{folder}/{way}.db"))
        self._threads = threading.active_count()
        self._memory = memory()
        self._samples: list[tuple[int, float]] = []

    def tool(self, url: str) -> Any:
        polling = PollPolicy(bound=self.seconds * 10)
        return Tool("work", url=f"{url}/v1/work", contract=ToolContract(idempotency=Idempotency(), polling=polling))

    def sample(self) -> None:
        """Look at threads and memory now; once in the middle, once near the end."""
        self._samples.append((threading.active_count() - self._threads, memory() - self._memory))

    def sample_while(self, seconds: float) -> threading.Thread:
        """Look in the middle and near the end of a time, in a thread of its own that does not count."""
        self._threads += 1

        def look() -> None:
            for share in (0.5, 0.4):
                time.sleep(seconds * share)
                self.sample()

        thread = threading.Thread(target=look)
        thread.start()
        return thread

    def figures(self, url: str) -> dict[str, Any]:
        """Return the figures of a run that has ended."""
        self.ledger.close()
        told = httpx.get(f"{url}/polls", **CLIENT).json()
        late, early = [], []
        for job_id, arrived in told["arrived"].items():
            late += [came - due for came, due in zip(arrived, self.ledger.due[job_id], strict=False)]
            early += [asked - came for came, asked in zip(arrived, told["asked"][job_id], strict=False) if came < asked]
        late.sort()
        (threads, middle), (more, end) = self._samples
        return {
            "way": self.way,
            "jobs": sum(map(bool, told["arrived"].values())),
            "polls": len(late),
            "late_median_s": round(statistics.median(late), 3),
            "late_p99_s": round(late[int(len(late) * 0.99)], 3),
            "late_most_s": round(late[-1], 3),
            "early": len(early),
            "early_most_s": round(max(early, default=0.0), 3),
            "threads": max(threads, more),
            "memory_kb": round(max(middle, end)),
            "memory_kb_a_job": round(max(middle, end) / self.jobs, 1),
            "memory_kb_later": round(end - middle),
        }


def memory() -> float:
    """Return the resident memory of this process in KB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1000


@contextmanager
def running_server(every: float) -> Iterator[str]:
    """Run the status server until the block ends."""
    command = [sys.executable, "-m", "benchmarks.job_server", str(every)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    process.stdin.close()
    process.wait()
    process.stdout.close()


def floor(run: Measured, url: str) -> None:
    """The same polls by bare httpx."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)

    async def one_job(client: httpx.AsyncClient, n: int, ends: float) -> None:
        answer = await client.post(f"{url}/v1/work", json={"n": n})
        while True:
            told = answer.json()
            due = time.time() + told["poll_after_seconds"] * (1 + random.random() / 10) + 0.2  # as the SDK spreads them
            if due > ends:
                return
            job_id = told["job_id"]
            run.ledger.due[job_id].append(due)
            await asyncio.sleep(due - time.time())
            answer = await client.get(f"{url}/v1/jobs/{job_id}")

    async def all_jobs() -> None:
        async with httpx.AsyncClient(limits=limits, **CLIENT) as client:
            work = [one_job(client, n, time.time() + run.seconds * 1.4) for n in range(run.jobs)]
            await asyncio.gather(*work)

    thread = run.sample_while(run.seconds)
    asyncio.run(all_jobs())
    thread.join()


def waiting(run: Measured, url: str) -> None:
    """Sessions that each wait in a task for their job, until they are cancelled."""

    async def all_wait() -> None:
        tool = run.tool(url)
        async with AsyncRuntime(run.ledger, tools=[tool]) as runtime:

            async def wait(n: int) -> None:
                async with runtime.open(f"session {n}") as session:
                    await session.try_call(tool, {"n": n})

            work = [asyncio.ensure_future(wait(n)) for n in range(run.jobs)]
            for share in (0.7, 0.7):
                await asyncio.sleep(run.seconds * share)
                run.sample()
            for one in work:
                one.cancel()
            await asyncio.wait(work)

    asyncio.run(all_wait())


async def start_all(run: Measured, tool: Any) -> None:
    """Start all jobs and leave them."""
    async with AsyncRuntime(run.ledger, tools=[tool]) as runtime:

        async def start(n: int) -> None:
            async with runtime.open(f"session {n}") as session:
                await session.try_call(tool, {"n": n}, detach=True)

        await asyncio.gather(*(start(n) for n in range(run.jobs)))


def parked(run: Measured, url: str) -> None:
    """Parked jobs, looked at by tasks."""
    tool = run.tool(url)

    async def follow() -> None:
        await start_all(run, tool)
        async with AsyncRuntime(run.ledger, tools=[tool]) as runtime:
            await runtime.follow_jobs(until=time.time() + run.seconds)

    thread = run.sample_while(run.seconds)
    asyncio.run(follow())
    thread.join()


def parked_in_threads(run: Measured, url: str) -> None:
    """Parked jobs, looked at by a few threads."""
    tool = run.tool(url)
    asyncio.run(start_all(run, tool))
    thread = run.sample_while(run.seconds)
    with Runtime(run.ledger, tools=[tool]) as runtime:
        runtime.follow_jobs(until=time.time() + run.seconds)
    thread.join()


FLOOR = "floor"
WAYS = {
    FLOOR: floor,
    "waiting sessions": waiting,
    "follow_jobs, async": parked,
    "follow_jobs, blocking": parked_in_threads,
}


def broken(figures: dict[str, Any], floor: float) -> list[str]:
    """Return the bounds that figures break. ``floor``: how late the latest of bare polls was, in seconds."""
    most = {
        "late_most_s": floor + MOST_LATE,
        "early": 0,
        "threads": MOST_THREADS,
        "memory_kb": MOST_KB[0] + MOST_KB[1] * figures["jobs"],
        "memory_kb_later": MOST_KB_LATER[0] + MOST_KB_LATER[1] * figures["jobs"],
    }
    return [name for name, bound in most.items() if figures[name] > bound]


def measure(way: str, jobs: int, seconds: float) -> dict[str, Any]:
    """Run one way and return its figures."""
    with tempfile.TemporaryDirectory() as folder, running_server(seconds / 3) as url:
        run = Measured(way, jobs, seconds, folder)
        WAYS[way](run, url)
        return run.figures(url)


def main(jobs: int = 1000, seconds: float = 30.0) -> int:
    """Measure each way; return 1 if a bound was broken."""
    wrong, late = False, 0.0
    for way in WAYS:
        figures = measure(way, jobs, seconds)
        if way == FLOOR:
            late = figures["late_most_s"]
        else:
            figures["broken"] = broken(figures, late)
            wrong |= bool(figures["broken"])
        print(json.dumps(figures), flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(*(int(one) for one in sys.argv[1:])))
