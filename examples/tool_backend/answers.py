"""Answers as data: what is sent, what is stored and replayed byte for byte, and problem documents."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

REPLAY_MARK = ("Idempotent-Replayed", "true")
PROBLEM_BASE = "https://agent-runtime.example/problems/"


@dataclass(frozen=True)
class Answer:
    """One HTTP answer, complete: status, headers in order, body bytes."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    def marked_as_replayed(self) -> Answer:
        """Return the same answer with the replay mark; status, body and other headers stay as they were."""
        return replace(self, headers=(*self.headers, REPLAY_MARK))

    def pack(self) -> bytes:
        """Return a form for the store: a line of JSON, then the body untouched."""
        head = json.dumps({"status": self.status, "headers": self.headers})
        return head.encode() + b"\n" + self.body

    @classmethod
    def unpack(cls, stored: bytes) -> Answer:
        """Return the answer that ``pack`` wrote."""
        line, _, body = stored.partition(b"\n")
        head = json.loads(line)
        return cls(head["status"], body, tuple((name, value) for name, value in head["headers"]))

    def readable_body(self) -> Any:
        """Return the body as JSON if it is JSON, else as text."""
        try:
            return json.loads(self.body)
        except ValueError:
            return self.body.decode(errors="replace")


def json_answer(value: Any, *, status: int = 200) -> Answer:
    """Return an answer with a JSON body."""
    return Answer(status, json.dumps(value).encode(), (("Content-Type", "application/json"),))


def problem(
    status: int, name: str, detail: str, *, headers: tuple[tuple[str, str], ...] = (), **members: Any
) -> Answer:
    """Return a problem document (RFC 9457) of type ``PROBLEM_BASE + name``."""
    document = {
        "type": PROBLEM_BASE + name,
        "title": name.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
        **members,
    }
    body = json.dumps(document).encode()
    return Answer(status, body, (("Content-Type", "application/problem+json"), *headers))
