"""Where a job may be asked about, and why nobody can ask about one."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from agent_runtime._core.handles import handle_of
from agent_runtime._core.urls import LONGEST_URL, origin, same_origin
from agent_runtime._model import Reason
from agent_runtime.errors import ConfigError

if TYPE_CHECKING:
    from agent_runtime._model import Handle, OperationRecord
    from agent_runtime._model.words import Sentence
    from agent_runtime.config.jobs import PollPolicy


PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""A tool's word that may stand in a sentence of ours; what is no such word stands in the error alone."""


def sent_to(operation: OperationRecord) -> str:
    """Return the URL that an operation went to."""
    return operation.request.url if operation.request is not None else operation.origin


def may_ask(url: str, target: str, policy: PollPolicy) -> bool:
    """Whether a job's URL may be asked: it is on the tool's origin, or on one that is allowed without credentials."""
    if len(url) > LONGEST_URL:
        return False
    if same_origin(url, target):
        return True
    try:
        return origin(url) in {origin(allowed) for allowed in policy.origins}
    except ConfigError:
        return False


def asked_at(handle: Handle, target: str, policy: PollPolicy) -> str | None:
    """Return the URL at which a job may be asked about, or None."""
    return handle.url if handle.url is not None and may_ask(handle.url, target, policy) else None


def obstacle_of(operation: OperationRecord) -> Sentence:
    """Return why nobody can ask about an operation's job, or how it ended, as a sentence by its name."""
    if operation.reason is Reason.JOB_UNCLEAR:
        word = json.loads(operation.error or b"{}").get("status")
        plain = isinstance(word, str) and PLAIN_WORD.fullmatch(word) is not None
        return ("unclear.word", (("word", word),)) if plain else ("unclear.no_word", ())
    handle = handle_of(operation)
    if handle.obstacle == "too_long":
        return "untracked.too_long", ()
    if handle.obstacle == "redirected":
        return "untracked.redirected", (("origin", handle.elsewhere or "?"),)
    if handle.obstacle == "adapter":
        return "untracked.adapter", (("problem", handle.elsewhere or "?"),)
    if handle.obstacle == "unusable" or (handle.url is not None and len(handle.url) > LONGEST_URL):
        return "untracked.unusable", ()
    if handle.url is not None:
        return "untracked.elsewhere", (("origin", origin(handle.url)),)
    return "untracked.bare", ()
