"""Names of branches and tools, labels of steps, aliases, addresses: what may stand in them.

Labels and names are made so that no two positions share a label::

    label   = [ branch "." ] "step_" index [ ".v" N ] [ ".r" N ] [ ".undo" [ ".r" N ] ]
    index   = from 1, three digits at least
    branch  = a name, the label of the step whose function makes the calls, or such a label "." a name
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, Literal, NoReturn

from agent_runtime.errors import ConfigError

MAX_NAME: Final = 64
"""Longest name of a branch or a tool, in characters."""

MAX_LABEL: Final = 128
"""Longest label, in characters; it keeps a composite key under the 255 characters that many servers take."""

MAX_FREE_TEXT: Final = 512
"""Longest alias or address, in bytes of UTF-8."""

MAX_FOREIGN_ID: Final = 1024
"""Longest id of somebody else's that is stored as it stands, in bytes of UTF-8: Postgres indexes 2,700 at most."""

_SESSION: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_STEP: Final = re.compile(r"step_[0-9]+")
_ENDING: Final = re.compile(r"[vr][0-9]+|undo")
_LABEL: Final = re.compile(
    r"(?P<position>(?:[A-Za-z0-9_-]+\.)*step_(?:(?!000)[0-9]{3}|[1-9][0-9]{3,}))"
    r"(?:\.v(?:[2-9]|[1-9][0-9]+))?"
    r"(?:\.r[1-9][0-9]*)?"
    r"(?:\.undo(?:\.r[1-9][0-9]*)?)?"
)
_REISSUE: Final = re.compile(r"\.r[0-9]+$")


def check_session_id(text: str) -> None:
    """Refuse what is no UUID in lower case; raises ConfigError."""
    if not _SESSION.fullmatch(text):
        _refuse(f"{text!r:.80} is no session id: a session id is a UUID in lower case")


def check_name(kind: Literal["branch", "tool"], name: str) -> None:
    """Refuse a name that could not stand in a label or a key.

    Names are letters, digits, ``_`` and ``-``, in parts joined by dots, `MAX_NAME` characters at most. Parts that
    labels use themselves are reserved: ``step_1``, ``.v2``, ``.r1``, ``.undo``. A tool may be called ``undo``, a
    branch may not.

    Raises:
        ConfigError: with the rule that the name breaks.
    """
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        _refuse(
            f"{name!r:.80} cannot name a {kind}: use letters, digits, '_' and '-', parts joined by '.', "
            f"{MAX_NAME} characters at most"
        )
    parts = name.split(".")
    # A branch's first part may follow a step's label ("step_003" + ".undo"); a tool's first part follows nothing.
    endings = parts if kind == "branch" else parts[1:]
    reserved = [part for part in parts if _STEP.fullmatch(part)] + [part for part in endings if _ENDING.fullmatch(part)]
    if reserved:
        _refuse(f"{name!r} cannot name a {kind}: {reserved[0]!r} is reserved for labels of steps")


def check_label(label: str) -> None:
    """Refuse what is no label of a step (grammar at the top of this module); raises ConfigError."""
    _position(label)


def make_label(branch: str, index: int) -> str:
    """Name the position ``index`` (from 1) of a branch; the main branch is the empty text.

    The calls that a function tool makes stand in the branch that is named by the label of its own step.

    Raises:
        ConfigError: the index is below 1, or the label is none or too long.
    """
    if index < 1:
        _refuse(f"steps are counted from 1, got {index}")
    return _checked(f"{branch}.step_{index:03d}" if branch else f"step_{index:03d}")


def revised_label(label: str, n: int) -> str:
    """Name the ``n``-th use (from 2) of a label's position after a replan: ``step_003`` becomes ``step_003.v2``.

    Endings that the label has already fall off, since they belong to the earlier use; raises ConfigError.
    """
    return _checked(f"{_position(label)}.v{n}")


def reissue_label(label: str, n: int) -> str:
    """Name the ``n``-th re-issue (from 1) of an operation that failed without effect: ``step_003.r1``.

    The number counts from the operation first issued: the second is ``step_003.r2``, also if it is made from
    ``step_003.r1``. Raises ConfigError.
    """
    check_label(label)
    return _checked(f"{_REISSUE.sub('', label)}.r{n}")


def undo_label(label: str) -> str:
    """Name the step that undoes an operation: ``step_003.undo``; raises ConfigError for what is an undo itself."""
    check_label(label)
    return _checked(f"{label}.undo")


def bounded_id(text: str) -> str:
    """Return what an id from outside is stored and looked up by, whatever stands in it.

    A job's or an event's id may be as long as its sender likes, and may hold what Postgres cannot store: a digest
    stands for such a one. What this returned it returns unchanged.
    """
    data = text.encode("utf-8", "surrogatepass")
    plain = len(data) <= MAX_FOREIGN_ID and is_storable(text)
    return text if plain else f"sha256:{hashlib.sha256(data).hexdigest()}"


def is_storable(text: str) -> bool:
    """Tell whether both databases can hold a text; asked of ids, which go into statements for a whole batch."""
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def check_alias(text: str) -> None:
    """Refuse an alias that is empty, over `MAX_FREE_TEXT` bytes or not storable; raises ConfigError.

    So is one in the shape of a UUID, in upper or lower case: it could be taken for a session's id.
    """
    _check_text("alias", text)
    if _SESSION.fullmatch(text.strip().lower()):
        _refuse(f"alias {text!r} looks like a session id; put a word before it, as in 'order-{text.strip()}'")


def check_address(text: str) -> None:
    """Refuse an address (``at=``) that is empty, over `MAX_FREE_TEXT` bytes, or not storable; raises ConfigError."""
    _check_text("address", text)


def _checked(label: str) -> str:
    check_label(label)
    return label


def _position(label: str) -> str:
    match = _LABEL.fullmatch(label)
    if match is None:
        _refuse(f"{label!r:.160} is no label of a step; labels look like step_003 or flights.step_003.v2")
    if len(label) > MAX_LABEL:
        _refuse(
            f"label {label:.160} has {len(label)} characters, {MAX_LABEL} at most: "
            "use shorter names for branches or fewer levels of them"
        )
    return match["position"]


def _check_text(kind: str, text: str) -> None:
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        _refuse(f"{kind} {text!r:.80} holds a lone surrogate, which cannot be stored")
    if not 0 < size <= MAX_FREE_TEXT:
        _refuse(f"{kind} {text!r:.80} has {size} bytes in UTF-8; 1 to {MAX_FREE_TEXT} are possible")
    if "\0" in text:
        _refuse(f"{kind} {text!r:.80} holds a NUL character, which Postgres cannot store")


def _refuse(message: str) -> NoReturn:
    raise ConfigError(message) from None
