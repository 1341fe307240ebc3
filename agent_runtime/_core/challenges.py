"""What a 401 says beside its status: the Bearer challenge of ``WWW-Authenticate`` (RFC 6750, claims as Entra sends)."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent_runtime._model import Answer

# One parameter: a token, "=", then a token or a quoted string (RFC 9110 section 11.2).
_PARAMETER: Final = re.compile(r"""([A-Za-z0-9_-]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))""")
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
    """Return the Bearer challenge of an answer; an empty one where there is none that can be read."""
    for value in answer.header_list("WWW-Authenticate"):
        scheme, _, rest = value.strip().partition(" ")
        if scheme.lower() != "bearer":
            continue
        found = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(rest)}
        code = found.get("error")
        return Challenge(
            error=code if code is not None and _CODE.fullmatch(code) else None,
            claims=_claims(found.get("claims")),
        )
    return Challenge()


def _claims(text: str | None) -> str | None:
    """Return claims as JSON text: they come base64-encoded, with or without padding, or quoted as they are."""
    if not text or len(text) > _CLAIMS:
        return None
    if text.lstrip().startswith("{"):
        return re.sub(r"\\(.)", r"\1", text)
    try:
        plain = base64.b64decode(text.translate(str.maketrans("-_", "+/")) + "=" * (-len(text) % 4), validate=True)
        return plain.decode()
    except ValueError:  # letters that base64 does not have, padding that does not fit, no UTF-8
        return None
