"""What a 401 or 403 says beside its status: the Bearer challenge of ``WWW-Authenticate`` (RFC 6750; Entra's claims)."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_runtime._model import Answer

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105  the grammar's word for a name
# What stands between commas (RFC 9110 section 11.6.1): a parameter of the challenge at hand, or a new challenge's
# scheme, alone or with all its data in one word.
_PART: Final = re.compile(
    rf"""[ \t,]*(?:
        (?P<name>{_TOKEN})[ \t]*=[ \t]*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s,"]+))(?=[ \t,]|$)
        |(?P<scheme>{_TOKEN})(?=[ \t,]|$)(?:[ \t]+[0-9A-Za-z._~+/-]+=*(?=[ \t]*(?:,|$)))?
    )""",
    re.VERBOSE,
)
_CODE: Final = re.compile(r"[a-z_]{1,64}")
_CLAIMS: Final = 8192
_BY_A_PERSON: Final = frozenset({"consent_required", "insufficient_claims", "interaction_required", "login_required"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """A Bearer challenge: its ``error`` code, and the claims that new proof must hold, as JSON text."""

    error: str | None = None
    claims: str | None = None

    @property
    def wants_person(self) -> bool:
        """Whether a fresh token of the same proof would not do."""
        return self.claims is not None or self.error in _BY_A_PERSON


def challenge_of(answer: Answer) -> Challenge:
    """Return the Bearer challenge of an answer, one with claims before others; an empty one where none can be read."""
    found = [
        _read(parameters)
        for value in answer.header_list("WWW-Authenticate")
        for scheme, parameters in _challenges(value)
        if scheme == "bearer"
    ]
    with_claims = [one for one in found if one.claims is not None]
    return (with_claims or found or [Challenge()])[0]


def refuses_token(answer: Answer) -> bool:
    """Whether an answer says that the token will not do: a 401, or a 403 that names claims; other 403 are refusals."""
    return answer.status == 401 or (answer.status == 403 and challenge_of(answer).claims is not None)


def _challenges(value: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Return the challenges of one header line: scheme and parameters; what cannot be read ends it."""
    scheme, parameters, place = "", dict[str, str](), 0
    while (part := _PART.match(value, place)) is not None:
        place = part.end()
        if part["scheme"] is None:
            parameters[part["name"].lower()] = part["plain"] or re.sub(r"\\(.)", r"\1", part["quoted"])
            continue
        yield scheme, parameters
        scheme, parameters = part["scheme"].lower(), {}
    yield scheme, parameters


def _read(parameters: dict[str, str]) -> Challenge:
    code = parameters.get("error")
    return Challenge(
        error=code if code is not None and _CODE.fullmatch(code) else None,
        claims=_claims(parameters.get("claims")),
    )


def _claims(text: str | None) -> str | None:
    """Return claims as JSON text: they come base64-encoded, with or without padding, or quoted as they are.

    What is no JSON object asks for nothing that a sign-in could be given.
    """
    if not text or len(text) > _CLAIMS:
        return None
    try:
        plain = text if text.lstrip().startswith("{") else _unpacked(text)
        wanted = json.loads(plain)
    except (ValueError, RecursionError):
        # Letters that base64 does not have, padding that does not fit, no UTF-8, no JSON, or far too deep.
        return None
    return plain if isinstance(wanted, dict) else None


def _unpacked(text: str) -> str:
    return base64.b64decode(text.translate(str.maketrans("-_", "+/")) + "=" * (-len(text) % 4), validate=True).decode()
