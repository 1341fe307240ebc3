"""What a status body tells of which only the beginning came, because the whole is longer than the body limit.

A job that says ``succeeded`` in front of a result that nobody can hold has succeeded; to ask again brings no more.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.job_reading import is_page, read_job, tells_to_wait
from agent_runtime._model import BodyState
from agent_runtime.config.jobs import JobReading

if TYPE_CHECKING:
    from agent_runtime._model import Answer, Handle
    from agent_runtime.config.jobs import PollPolicy

BLANKS: Final = " \t\r\n"
ERRORS: Final = frozenset({"error", "errors"})
CUT: Final = "[longer than the body limit]"


def read_beginning(answer: Answer, handle: Handle, policy: PollPolicy, *, now: float) -> JobReading | None:
    """Return what the beginning of a 2xx answer to a poll says, or None if it does not tell how the job stands.

    The member that is cut counts as none, so that no part of a result is taken for the whole.
    """
    if handle.protocol == "adapter":
        return None
    members = members_of(answer.body)
    if not _tells(members or {}, handle):
        place = handle.protocol == "location" and answer.status != 202 and not is_page(answer)
        shows_result = place and not tells_to_wait(answer, {}, now)
        return JobReading(status="succeeded", is_result=True) if shows_result else None
    text = json.dumps(members).encode()
    return read_job(dataclasses.replace(answer, body=text, body_state=BodyState.WHOLE), handle, policy, now=now)


def _tells(members: dict[str, Any], handle: Handle) -> bool:
    if handle.protocol == "resource":
        return "properties" in members
    # Of Location it is the result, unless one of its members says otherwise.
    place = handle.protocol == "location" and bool(members)
    return place or isinstance(members.get("status"), str) or isinstance(members.get("done"), bool)


def members_of(body: bytes) -> dict[str, Any] | None:
    """Return the members of a JSON object as far as they came whole, or None if the text begins none.

    Of an error that is cut it is kept that there is one.
    """
    text = body.decode("utf-8-sig", "replace")
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        return None
    members: dict[str, Any] = {}
    decoder = json.JSONDecoder()
    while True:
        name: Any = None
        try:
            name, at = decoder.raw_decode(text, _skip(text, at + 1))
            at = _skip(text, at)
            if not isinstance(name, str) or text[at : at + 1] != ":":
                return members
            value, at = decoder.raw_decode(text, _skip(text, at + 1))
        except (ValueError, RecursionError):
            return members | ({name: CUT} if name in ERRORS else {})
        at = _skip(text, at)
        if text[at : at + 1] not in {",", "}"}:  # a number may go on behind the cut
            return members
        members[name] = value
        if text[at] == "}":
            return members


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in BLANKS:
        at += 1
    return at
