"""What an error answer says of itself: problem details (RFC 9457) and the vendors' own shapes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from agent_runtime._model import BodyState

if TYPE_CHECKING:
    from agent_runtime._model import Answer

_DETAIL = 2048
_SHORT = 512
_SNIPPET = 2048
# An error body longer than this is no message; what is parsed must not be able to eat the worker's memory.
_PARSED = 262_144
_EXTENSIONS = 4096
_MEMBERS = frozenset({"type", "title", "detail", "status", "instance"})
_BLANK = "about:blank"
_REQUEST_IDS = (
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "x-amz-request-id",
    "x-ms-request-id",
    "x-goog-request-id",
    "x-correlation-id",
    "cf-ray",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What an error body says. Texts are the tool's own: untrusted, and bounded.

    Attributes:
        type: identifies the problem; ``about:blank`` means no more than the status does.
        title: a short summary, or None.
        detail: what happened this time, at most 2 KiB, or None.
        status: the HTTP status of the answer, whatever the body says.
        instance: identifies this occurrence, or None.
        code: the vendor's code (``error.code``, ``error.status``, ``error.type``, ``code``, ``error``), or None.
        extensions: other members of problem details, plain JSON, empty if they are larger than 4 KiB.

    Source: RFC 9457 section 3.
    """

    status: int
    type: str = _BLANK
    title: str | None = None
    detail: str | None = None
    instance: str | None = None
    code: str | None = None
    extensions: dict[str, Any] = field(default_factory=dict)


def read_problem(answer: Answer, *, base: str = "") -> Problem | None:
    """Return what an error answer says of itself, or None if it says nothing in a shape that is known.

    Content types are hints: a JSON object with a problem's or an error's members is read whatever it is called. A
    body labelled ``application/problem+json`` that cannot be read gives a problem with nothing but the status. Members
    of a wrong type are as if absent. Raises nothing.

    Args:
        answer: the answer; below 400 only what is labelled as problem details is read.
        base: URL that relative types are resolved against; the answer's own URL if empty.
    """
    labelled = _media_type(answer) == "application/problem+json"
    if answer.status < 400 and not labelled:
        return None
    body = _object(answer)
    error = body.get("error")
    inner = error if isinstance(error, dict) else {}
    code = _code(body, inner, answer.status)
    kind, title = _text(body, "type"), _text(body, "title")
    if not labelled and kind is None and title is None and code is None and not inner:
        return None
    kind = kind if labelled or code is None or title is not None or _is_uri(kind) else None
    return Problem(
        status=answer.status,
        type=_resolved(base or answer.url, kind),
        title=title,
        detail=_first_text((body, "detail"), (inner, "message"), (body, "message"), (body, "error_description")),
        instance=_text(body, "instance"),
        code=code,
        extensions=_extensions(body),
    )


def describe_error(answer: Answer) -> dict[str, Any]:
    """Return what the ledger keeps of an error answer, as plain JSON: status, problem, a snippet, the request id.

    ``snippet`` is the beginning of the body as text, at most 2 KiB; ``request_id`` is the server's own, or None.
    """
    problem = read_problem(answer)
    return {
        "status": answer.status,
        "problem": None if problem is None else _plain(problem),
        "snippet": answer.body[:_SNIPPET].decode("utf-8", "replace"),
        "body_state": answer.body_state.value,
        "request_id": next((value[:_SHORT] for name in _REQUEST_IDS if (value := answer.header(name))), None),
    }


def _plain(problem: Problem) -> dict[str, Any]:
    return {
        "type": problem.type,
        "title": problem.title,
        "detail": problem.detail,
        "status": problem.status,
        "instance": problem.instance,
        "code": problem.code,
        "extensions": problem.extensions,
    }


def _media_type(answer: Answer) -> str:
    return (answer.header("content-type") or "").partition(";")[0].strip().lower()


def _object(answer: Answer) -> dict[str, Any]:
    """Return the body as a JSON object, or an empty one."""
    if answer.body_state is not BodyState.WHOLE or not 0 < len(answer.body) <= _PARSED:
        return {}
    try:
        body = json.loads(answer.body, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):  # no JSON, no UTF-8, an integer of thousands of digits; nested too deep
        return {}
    return body if isinstance(body, dict) else {}


def _refuse(name: str) -> None:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if number in {float("inf"), float("-inf")}:
        raise ValueError(text)
    return number


def _clean(text: str, limit: int) -> str:
    """Return text that any store can take (lone surrogates replaced), cut to a number of UTF-8 bytes."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def _text(body: dict[str, Any], name: str, limit: int = _SHORT) -> str | None:
    value = body.get(name)
    return _clean(value, limit) if isinstance(value, str) else None


def _first_text(*places: tuple[dict[str, Any], str]) -> str | None:
    found = (_text(body, name, _DETAIL) for body, name in places)
    return next((text for text in found if text), None)


def _code(body: dict[str, Any], inner: dict[str, Any], status: int) -> str | None:
    """Return the vendor's code. Numbers count where they are not the HTTP status again (``error.code`` of Google)."""
    places = ((inner, "code"), (inner, "status"), (inner, "type"), (body, "code"), (body, "error"))
    for where, name in places:
        text = _text(where, name)
        if text:
            return text
    for where, name in places:
        value = where.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value != status:
            return str(value)[:_SHORT]
    return None


def _is_uri(kind: str | None) -> bool:
    return kind is not None and (":" in kind or "/" in kind)


def _resolved(base: str, kind: str | None) -> str:
    if not kind:
        return _BLANK
    try:
        return urljoin(base, kind) if base else kind
    except ValueError:  # "http://[" and the like
        return kind


def _extensions(body: dict[str, Any]) -> dict[str, Any]:
    extra = {name: value for name, value in body.items() if name not in _MEMBERS}
    text = json.dumps(extra, ensure_ascii=False)
    if len(text) > _EXTENSIONS:
        return {}
    cleaned: dict[str, Any] = json.loads(text.encode("utf-8", "replace"))
    return cleaned
