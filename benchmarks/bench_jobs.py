"""A thousand jobs polled at once by one process: how late each poll is, what memory and threads that takes.

Both ways are measured over a SQLite file, fully synced, and a status server in this process: a thousand sessions that
each wait for a job, and a thousand parked jobs looked at by `follow_jobs`. Each job asks to be polled every ten seconds
(a third of the time measured). A poll may come up to a tenth later than asked, by jitter, so that many do not ask at
once; what is over that counts as late.

    python -m benchmarks.bench_jobs [jobs] [seconds]
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

import httpx

from agent_runtime import AsyncRuntime, Idempotency, PollPolicy, Tool, ToolContract

URL = "https://jobs.example.com/v1/work"
BOUND_LATE = 2.0


class JobServer:
    """Answers starts and polls after a network's 20 ms; remembers when each poll was due at the earliest."""

    def __init__(self, every: float) -> None:
        self.every = every
        self.due: dict[str, float] = {}
        self.after: list[float] = []  # seconds from the moment asked for to each poll
        self.count: defaultdict[str, int] = defaultdict(int)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0.02)
        now = time.time()
        if request.method == "POST":
            job_id = f"job_{len(self.due)}"
            self.due[job_id] = now + self.every
            body = {"job_id": job_id, "status_url": f"/v1/jobs/{job_id}", "poll_after_seconds": self.every}
            return httpx.Response(202, json=body)
        job_id = request.url.path.rpartition("/")[2]
        self.after.append(now - 0.02 - self.due[job_id])
        self.count[job_id] += 1
        self.due[job_id] = now + self.every
        return httpx.Response(200, json={"status": "processing", "done": False, "poll_after_seconds": self.every})


def tool(bound: float) -> Tool:
    """Return the tool."""
    return Tool("work", url=URL, contract=ToolContract(idempotency=Idempotency(), polling=PollPolicy(bound=bound)))


def report(name: str, server: JobServer, threads: int, grown: float) -> dict[str, object]:
    """Print and return the figures of one way."""
    late = sorted(max(0.0, after - server.every / 10) for after in server.after)
    figures = {
        "way": name,
        "jobs": len(server.due),
        "polls": len(late),
        "late_median_s": round(statistics.median(late), 3),
        "late_p99_s": round(late[int(len(late) * 0.99)], 3),
        "late_most_s": round(late[-1], 3),
        "early": sum(one < -0.01 for one in server.after),
        "threads": threads,
        "memory_grown_mb": round(grown, 1),
    }
    print(json.dumps(figures))
    return figures


def memory() -> float:
    """Return the resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    return pages * resource.getpagesize() / 1e6


async def waiting(jobs: int, seconds: float, folder: str) -> dict[str, object]:
    """A thousand sessions, each in a task that waits for its job."""
    server = JobServer(every=seconds / 3)
    client = httpx.AsyncClient(transport=httpx.MockTransport(server))
    one = tool(bound=seconds)
    before = memory()
    async with AsyncRuntime(f"sqlite:///{folder}/waiting.db", tools=[one], client=client) as runtime:

        async def wait(n: int) -> None:
            async with runtime.open(f"session {n}") as session:
                await session.try_call(one, {"n": n})

        work = asyncio.gather(*(wait(n) for n in range(jobs)))
        await asyncio.sleep(seconds / 2)
        threads, grown = threading.active_count(), memory() - before
        await work
    return report("waiting sessions", server, threads, grown)


async def parked(jobs: int, seconds: float, folder: str) -> dict[str, object]:
    """A thousand parked jobs, looked at by `follow_jobs`."""
    server = JobServer(every=seconds / 3)
    client = httpx.AsyncClient(transport=httpx.MockTransport(server))
    one = tool(bound=seconds * 10)
    async with AsyncRuntime(f"sqlite:///{folder}/parked.db", tools=[one], client=client) as runtime:

        async def start(n: int) -> None:
            async with runtime.open(f"session {n}") as session:
                await session.try_call(one, {"n": n}, detach=True)

        await asyncio.gather(*(start(n) for n in range(jobs)))
        now = time.time()
        before = memory()
        work = asyncio.ensure_future(runtime.follow_jobs(until=now + seconds))
        await asyncio.sleep(seconds * 0.6)
        threads, grown = threading.active_count(), memory() - before
        await work
    return report("parked jobs", server, threads, grown)


def main(jobs: int = 1000, seconds: float = 30.0) -> list[dict[str, object]]:
    """Measure both ways; exit status 1 if a poll came later than 2 s after it was due."""
    with tempfile.TemporaryDirectory() as folder:
        return [asyncio.run(way(jobs, seconds, folder)) for way in (waiting, parked)]


if __name__ == "__main__":
    told = main(*(int(one) for one in sys.argv[1:]))
    sys.exit(any(one["late_most_s"] > BOUND_LATE for one in told))
