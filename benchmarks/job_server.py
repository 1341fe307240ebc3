"""A tool whose jobs never end, in a process of its own: notes when each poll came.

    python -m benchmarks.job_server SECONDS_BETWEEN_POLLS

Prints its port once it listens, and ends with its standard input. Each answer takes a network's 20 ms.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from typing import Any

import uvicorn

NETWORK = 0.02


class JobServer:
    """The ASGI app.

    Attributes:
        every: seconds between polls that each answer asks for; a start asks for half as much more, so that all jobs
            have been started when the first one is polled.
        arrived: by job, when its polls came; ``asked``: before when each of them was not to come (UTC epoch seconds).
    """

    def __init__(self, every: float) -> None:
        self.every = every
        self.arrived: dict[str, list[float]] = {}
        self.asked: dict[str, list[float]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        came = time.time()
        path = scope["path"]
        while (await receive()).get("more_body"):
            pass
        if path == "/polls":
            status, body = 200, {"arrived": self.arrived, "asked": self.asked}
            self.arrived, self.asked = {}, {}
        elif scope["method"] == "POST":
            status, body = 202, self.start()
        else:
            status, body = 200, self.poll(path.rpartition("/")[2], came)
        if path != "/polls":
            await asyncio.sleep(NETWORK)
        text = json.dumps(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    def start(self) -> dict[str, Any]:
        job_id = f"job_{len(self.asked)}"
        first = self.every * 1.5
        self.arrived[job_id], self.asked[job_id] = [], [time.time() + first]
        return {"job_id": job_id, "status_url": f"/v1/jobs/{job_id}", "poll_after_seconds": first}

    def poll(self, job_id: str, came: float) -> dict[str, Any]:
        self.arrived[job_id].append(came)
        self.asked[job_id].append(time.time() + self.every)
        return {"job_id": job_id, "status": "processing", "done": False, "poll_after_seconds": self.every}


class Announcing(uvicorn.Server):
    """Prints its port once it accepts connections."""

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


def end_with_stdin() -> None:
    while os.read(0, 1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_stdin, daemon=True).start()
    config = uvicorn.Config(JobServer(float(sys.argv[1])), port=0, log_level="warning", access_log=False, backlog=4096)
    Announcing(config).run()
