"""A tool's server in memory: it honours keys or does not, and has bad days by script.

Each request under a key takes the next behaviour of the script, and "ok" once it is used up. A server that honours keys
looks first whether it has stored an end for the key, or runs one.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_runtime._model import Answer, BodyState, SendFailure
from tests.core.world import LOST, MARK, NOT_SENT, json_answer, key_of

if TYPE_CHECKING:
    from agent_runtime._core.effects import Send
    from tests.core.world import Clock

RUNS_FOR = 2.0
"""Seconds that a slow handler runs."""


@dataclass
class Server:
    """What a tool's server knows and did.

    Attributes:
        honours: whether it looks at keys.
        claim: seconds after which it forgets that a request runs; None = never.
        effects: how often the effect was done, by key.
        requests: key and body of each request under a key.
        unlike_its_word: the last request had its effect and the server kept nothing of it, though it honours keys.
    """

    clock: Clock
    script: list[str]
    honours: bool = True
    claim: float | None = None
    stored: dict[str, Answer] = field(default_factory=dict)
    running: dict[str, tuple[float, Answer | None]] = field(default_factory=dict)
    effects: Counter[str] = field(default_factory=Counter)
    requests: list[tuple[str, bytes]] = field(default_factory=list)
    unlike_its_word: bool = False

    def __call__(self, send: Send) -> Answer | SendFailure:
        """Answer one request."""
        key = key_of(send)
        if "/operations/" in send.request.url:
            return self._look_up(send.request.url.rsplit("/", 1)[-1].replace("%3A", ":"))
        if key is None:
            return json_answer(200, {"balance": 1})  # the page that a 303 names
        self.requests.append((key, send.request.body))
        self._tick(key)
        if self.honours and key in self.stored:
            was = self.stored[key]
            return Answer(status=was.status, headers=(*was.headers, *MARK), body=was.body)
        if self.honours and key in self.running:
            return json_answer(409)
        given: Answer | SendFailure = getattr(self, "_" + (self.script.pop(0) if self.script else "ok"))(key)
        self.unlike_its_word = bool(self.effects[key]) and isinstance(given, Answer) and key not in self.stored
        return given

    def _tick(self, key: str) -> None:
        """Let what ran come to its end, or the claim to its own."""
        if key in self.running and self.clock.now >= self.running[key][0]:
            _, end = self.running.pop(key)
            if end is not None:
                self.stored[key] = end

    def _look_up(self, key: str) -> Answer:
        self._tick(key)
        if key in self.stored:
            was = self.stored[key]
            return json_answer(200, {"state": "done", "status": was.status, "body": json.loads(was.body)})
        return json_answer(200, {"state": "running" if key in self.running else "absent"})

    def _done(self, key: str, answer: Answer) -> Answer:
        self.effects[key] += 1
        self.stored[key] = answer
        return answer

    def _ok(self, key: str) -> Answer:
        return self._done(key, json_answer(200, {"balance": 1}))

    def _lost(self, key: str) -> SendFailure:
        self._ok(key)
        return LOST

    def _lost_before(self, key: str) -> SendFailure:
        return LOST

    def _connect(self, key: str) -> SendFailure:
        return NOT_SENT

    def _busy(self, key: str) -> Answer:
        return json_answer(429, None, (("Retry-After", "2"),))

    def _busy_long(self, key: str) -> Answer:
        return json_answer(429, None, (("Retry-After", "90"),))

    def _refuse(self, key: str) -> Answer:
        return json_answer(400, {"error": "no funds"})

    def _unauthorised(self, key: str) -> Answer:
        return json_answer(401)

    def _fails_before(self, key: str) -> Answer:
        return json_answer(500)

    def _fails_after(self, key: str) -> Answer:
        """The effect stands, the claim is dropped and nothing is stored: a resend would do it again."""
        self.effects[key] += 1
        return json_answer(500)

    def _gateway_before(self, key: str) -> Answer:
        return json_answer(503, None, (("Retry-After", "40"),))

    def _gateway_after(self, key: str) -> Answer:
        self._ok(key)
        return json_answer(503)

    def _half_way(self, key: str) -> Answer:
        return self._done(key, json_answer(500, {"type": "https://tools.test/problems/partly-applied"}))

    def _half_way_lost(self, key: str) -> SendFailure:
        self._half_way(key)
        return LOST

    def _slow(self, key: str) -> SendFailure:
        """The handler has done its work and ends later; a request meanwhile meets its claim."""
        self.effects[key] += 1
        self.running[key] = (self.clock.now + RUNS_FOR, json_answer(200, {"balance": 1}))
        return LOST

    def _dies(self, key: str) -> SendFailure:
        """The server dies after the effect: its claim ends by itself, and nothing was stored."""
        assert self.claim is not None
        self.effects[key] += 1
        self.running[key] = (self.clock.now + self.claim, None)
        return LOST

    def _see_other(self, key: str) -> Answer:
        self._ok(key)
        return Answer(status=303, headers=(("Location", "/tools/debit/result"),))

    def _moved(self, key: str) -> Answer:
        return Answer(status=307, headers=(("Location", "/tools/debit/v2"),))

    def _job(self, key: str) -> Answer:
        return self._done(key, json_answer(202, {"job_id": "j1", "status_url": "https://tools.test/jobs/j1"}))

    def _job_lost(self, key: str) -> SendFailure:
        self._job(key)
        return LOST

    def _cut(self, key: str) -> Answer:
        whole = self._ok(key)
        return Answer(status=200, headers=whole.headers, body=whole.body[:4], body_state=BodyState.CUT)
