"""A build of 40 minutes: started, left, and picked up by another run of the program.

Nobody waits in the agent's turn. The job's id is in the ledger before the answer is looked at, a scheduled run looks at
what is due, and each turn of the agent begins by reading what runs. A turn in the middle makes the same call: it joins
the build and starts none. Time is virtual: the 40 minutes pass at once, and each look comes when it would have come.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path

import httpx

from agent_runtime import Idempotency, Outcome, PollPolicy, Runtime, Tool, ToolContract
from agent_runtime.testing import VirtualClock

BUILDS = "https://ci.example.com/v1/builds"
MINUTES = 40
ARGS = {"repository": "shop", "ref": "v2.4.0"}
TOOL = Tool("build", url=BUILDS, contract=ToolContract(idempotency=Idempotency(), polling=PollPolicy()))


class Builds:
    """The build server: a build takes 40 minutes by the clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.began: list[float] = []
        self.looks: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Start a build, or say how it stands."""
        if request.method == "POST":
            self.began.append(self.clock.wall())
            body = {"status": "processing", "job_id": "build-117", "status_url": "/v1/builds/build-117"}
            hints = {"poll_after_seconds": 300, "estimated_duration_seconds": MINUTES * 60}
            return httpx.Response(202, json=body | hints)
        self.looks.append(self.clock.wall())
        minutes = (self.clock.wall() - self.began[0]) / 60
        if minutes < MINUTES:
            running = {"status": "processing", "done": False, "progress_percent": round(100 * minutes / MINUTES)}
            return httpx.Response(200, json=running | {"poll_after_seconds": 300})
        return httpx.Response(200, json={"status": "succeeded", "done": True, "result": {"image": "shop:v2.4.0"}})


def runtime(ledger: str, builds: Builds) -> Runtime:
    """Return the runtime of one run of the program: nothing of it outlives the run but the ledger."""
    client = httpx.Client(transport=httpx.MockTransport(builds))
    return Runtime(ledger, tools=[TOOL], client=client, clock=builds.clock, actor="release-agent")


def turn(ledger: str, builds: Builds, name: str) -> Outcome:
    """Take one turn of the agent: read what runs, then call; the call is the same in every turn."""
    with runtime(ledger, builds) as one:
        running = one.jobs().for_model()
        print(f"{name}: the model reads: {running['message']} {json.dumps([job['job_id'] for job in running['jobs']])}")
        with one.open("release v2.4.0") as session:
            outcome = session.try_call(TOOL, ARGS, detach=True)
        print(f"{name}: {outcome.status}, job {outcome.job_id}")
        return outcome


def main() -> None:
    """Start, let a scheduled run look, come back too early, pick up."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = f"sqlite:///{Path(folder) / 'agent.db'}"
        clock = VirtualClock()
        builds = Builds(clock)
        turn(ledger, builds, "first turn")

        for passes in itertools.count(1):
            clock.advance(600)  # a scheduled run every ten minutes, each a process of its own
            with runtime(ledger, builds) as one:
                ended = one.follow_jobs(on_end=lambda outcome: print(f"scheduled run: the build {outcome.status}"))
            if passes == 2:
                turn(ledger, builds, "turn after 20 minutes")
            if ended or passes > MINUTES:
                break

        outcome = turn(ledger, builds, "last turn")
        print(f"the image: {outcome.value['image']}, {len(builds.looks)} looks in {MINUTES} minutes, none by the model")
        print(f"long_build: {len(builds.began)} build started, picked up by another run: {outcome.status}")


if __name__ == "__main__":
    main()
