"""GETs about a job: under a fresh token on the tool's origin, bare on an allowed one; and the result behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_runtime._core.attempt import send
from agent_runtime._core.challenges import refuses_token
from agent_runtime._core.effects import Credential, NoCredential
from agent_runtime._core.job_headers import headers_about
from agent_runtime._core.job_reading import AZURE
from agent_runtime._core.reach import may_ask, sent_to
from agent_runtime._core.redirects import sent_away
from agent_runtime._core.refusals import refused_token
from agent_runtime._core.run import credential_of, seconds_of, stop_for_auth
from agent_runtime._core.urls import resolve, same_origin
from agent_runtime._model import Answer, BodyState, Request, SendFailure

if TYPE_CHECKING:
    from agent_runtime._core.effects import Steps
    from agent_runtime._core.run import Run
    from agent_runtime._model import Handle
    from agent_runtime.config.jobs import JobReading

SOON: Final = frozenset({408, 425, 429})
"""Statuses of a result's page that say "not now"; other 4xx say that it cannot be had."""


def credential_for(run: Run, url: str) -> Steps[Credential | None]:
    """Return the credential for a GET about a job; none crosses an origin."""
    if not same_origin(url, sent_to(run.operation)):
        return Credential(principal=run.operation.principal)
    return (yield from credential_of(run))


def look(run: Run, url: str, credential: Credential) -> Steps[Answer | SendFailure]:
    """Send one GET of a job's; it carries no idempotency key.

    Where it is redirected to another origin that is allowed it is asked there, without credentials.
    """
    answer = yield from _get(run, url, credential)
    away = sent_away(answer, url) if isinstance(answer, Answer) else None
    if away is None or not may_ask(away, sent_to(run.operation), run.tool.contract.polling):
        return answer
    shown = yield from credential_for(run, away)
    return answer if shown is None else (yield from _get(run, away, shown))


def _get(run: Run, url: str, credential: Credential) -> Steps[Answer | SendFailure]:
    request = Request(method="GET", url=url, headers=headers_about(run, url))
    return (yield from send(run, request, credential, seconds_of(run.tool.contract.timeouts.read) * 2))


def refused(run: Run, url: str, credential: Credential, answer: Answer) -> Steps[bool]:
    """Answer a refused token at a job's GET: True = try a fresh one; False = `Run.problem` says who is wanted."""
    if same_origin(url, sent_to(run.operation)):
        return (yield from refused_token(run, credential, answer, "the job's URL"))
    message = "the job's URL is on another origin, where no credentials are sent, and it wants some"
    yield from stop_for_auth(run, NoCredential("required", message))
    return False


@dataclass(frozen=True, slots=True)
class Fetched:
    """What became of fetching a result: its body, that it cannot be had, or why it is to be asked for again."""

    body: bytes | None = None
    body_state: BodyState = BodyState.WHOLE
    missing: bool = False
    trouble: str = ""


def fetch(run: Run, place: str) -> Steps[Fetched]:
    """Fetch the result of a job that ended; one that is too long, or cannot be decoded, is so the next time too."""
    while True:
        credential = yield from credential_for(run, place)
        if credential is None:
            return Fetched(trouble="there is no token for the result")
        answer = yield from look(run, place, credential)
        if isinstance(answer, SendFailure):
            run.interrupted = answer.interrupted
            return Fetched(trouble="the result could not be fetched")
        if not refuses_token(answer):
            run.refreshed = False
            return _fetched(answer, place)
        if not (yield from refused(run, place, credential, answer)):
            return Fetched(trouble="the result was refused")


def _fetched(answer: Answer, place: str) -> Fetched:
    if 200 <= answer.status < 300 and answer.body_state is not BodyState.CUT:
        return Fetched(answer.body, answer.body_state)
    gone = 400 <= answer.status < 500 and answer.status not in SOON
    if gone or sent_away(answer, place) is not None:
        return Fetched(missing=True)
    return Fetched(trouble=f"the result could not be fetched: HTTP {answer.status}")


def result_place(run: Run, handle: Handle, reading: JobReading) -> str | None:
    """Return where the result of an ended job stands, where its end does not hold it; only where it may be asked."""
    url = reading.result_url or handle.result_url
    request = run.operation.request
    put = request is not None and request.method in {"PUT", "PATCH"}
    target = sent_to(run.operation)
    if url is None and put and handle.protocol in AZURE:
        url = target
    absolute = None if url is None else resolve(handle.url or target, url)
    return absolute if absolute is not None and may_ask(absolute, target, run.tool.contract.polling) else None
