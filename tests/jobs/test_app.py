"""The ASGI app: mounted in FastAPI, with both runtimes, and what it answers."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette

from agent_runtime import AsyncRuntime, Runtime, webhooks
from agent_runtime.errors import LedgerError
from agent_runtime.webhooks import CallbackRefused, StandardWebhook, sign
from tests.credentials import WEBHOOK_SECRET
from tests.jobs.job_api import DONE, JobApi, transcode

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET = WEBHOOK_SECRET
ARGS = {"source_url": "s3://in/7f21c.mov"}


def ask(app: Any, body: bytes, headers: dict[str, str], path: str = "/hooks/films") -> httpx.Response:
    async def go() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://hooks") as client:
            return await client.post(path, content=body, headers=headers)

    return asyncio.run(go())


def signed(body: bytes, at: float) -> dict[str, str]:
    signature = sign(SECRET, event_id="e1", timestamp=int(at), body=body)
    return {"webhook-id": "e1", "webhook-timestamp": str(int(at)), "webhook-signature": signature}


def under(framework: str, hooks: Any) -> Any:
    """Return a framework's application with the receiver as the pages show it, or mounted above its URL."""
    if framework == "mount":
        app = FastAPI()
        app.mount("/hooks", hooks)
        return app
    app = FastAPI() if framework == "fastapi" else Starlette()
    app.add_route("/hooks/films", hooks)
    return app


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("framework", ["fastapi", "starlette", "mount"])
def test_it_answers_at_the_url_that_was_registered(kind: str, framework: str, api: JobApi) -> None:
    """A job of a session is ended by a callback to a URL without a slash at its end; senders follow no redirects."""
    tool = transcode(webhook="films")
    runtime = api.runtime(tool)
    session = runtime.open("film")
    session.try_call(tool, ARGS, detach=True)
    made = {"tools": [tool], "tenant": api.stage.tenant, "clock": api.stage.clock}
    receiver = (Runtime if kind == "sync" else AsyncRuntime)(api.stage.ledger, **made)
    app = under(framework, webhooks.app(receiver, verify=StandardWebhook(SECRET), source="films"))
    body = json.dumps({"type": "job.completed", "data": DONE}).encode()
    answer = ask(app, body, signed(body, api.stage.clock.wall()))
    assert (answer.status_code, answer.json()) == (200, {"status": "applied"})
    assert session.check("step_001").reason == "callback"


@pytest.mark.parametrize("odd", ["j" * 5000, "a\0b", "job \ud800"], ids=["long", "NUL", "surrogate"])
def test_the_sender_of_any_id_is_answered_200(odd: str, everywhere: JobApi) -> None:
    """Not 503, which senders take for "again" until they switch the endpoint off."""

    def anyone(headers: Mapping[str, str], body: bytes, *, now: float) -> str:
        return odd

    receiver = Runtime(everywhere.stage.ledger, tenant=everywhere.stage.tenant, clock=everywhere.stage.clock)
    answer = ask(
        webhooks.app(receiver, verify=anyone), json.dumps({"job_id": odd, "idempotency_key": odd}).encode(), {}
    )
    assert (answer.status_code, answer.json()) == (200, {"status": "kept"})


class Broken:
    """A runtime whose ledger is away."""

    @property
    def ledger(self) -> Any:
        return self

    def now(self) -> float:
        return 0.0

    def receive(self, event: Any) -> str:
        raise LedgerError("away")


def anyone(headers: Mapping[str, str], body: bytes, *, now: float) -> str:
    if headers.get("x-sender") != "me":
        raise CallbackRefused("who is that?")
    return headers["x-event"]


def test_another_scheme_is_a_function(api: JobApi) -> None:
    """It gets headers and raw bytes, and returns the event's id or refuses; a ledger that is away is a 503."""
    app = webhooks.app(Broken(), verify=anyone)
    me = {"x-sender": "me", "x-event": "1"}
    assert ask(app, b"{}", {"x-sender": "you"}).json() == {"status": "who is that?"}
    assert ask(app, b'{"job_id": "j"}', me).status_code == 503
    assert ask(app, b"no json", me).json() == {"status": "ignored"}
    assert ask(app, b"x" * (1024 * 1024 + 1), me).status_code == 413


@pytest.mark.parametrize("fault", [KeyError("s3cret"), RuntimeError("s3cret"), None, b"bytes", ""])
def test_a_verifier_that_fails_refuses(fault: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Who cannot be told is not believed: 401, and a line in the log that quotes nothing of it."""

    def fails(headers: Mapping[str, str], body: bytes, *, now: float) -> Any:
        if isinstance(fault, Exception):
            raise fault
        return fault

    answer = ask(webhooks.app(Broken(), verify=fails), b'{"job_id": "j"}', {})
    assert (answer.status_code, answer.json()) == (401, {"status": "it could not be verified; not taken"})
    assert "a callback of source default was refused, since its verifier failed" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("fault", [KeyError, ValueError, AttributeError])
def test_a_reader_that_fails_is_a_bad_request(fault: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    """400, not 500: sending it again would not help."""

    def fails(body: Any) -> Any:
        raise fault("s3cret")

    app = webhooks.app(Broken(), verify=anyone, read=fails)
    assert ask(app, b'{"job_id": "j"}', {"x-sender": "me", "x-event": "1"}).status_code == 400
    assert "since its reader failed" in caplog.text
    assert "s3cret" not in caplog.text


def test_it_serves_lifespan_and_passes_over_what_is_no_http() -> None:
    """It runs by itself under any ASGI server."""
    app = webhooks.app(Broken(), verify=anyone)
    incoming = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return incoming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async def run() -> None:
        await app({"type": "lifespan"}, receive, send)
        await app({"type": "websocket"}, receive, send)
        incoming.append({"type": "http.disconnect"})
        await app({"type": "http", "method": "POST", "headers": []}, receive, send)

    asyncio.run(run())
    assert sent == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
        "http.response.start",
        "http.response.body",
    ]
