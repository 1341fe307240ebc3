"""What an authorisation server says, without what it was sent: servers repeat it, whole, cut or encoded."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, quote_plus

LIKE_A_TOKEN: Final = re.compile(r"(?=[^\s\"']*[0-9])[A-Za-z0-9_\-+/=.~%]{16,}")
"""A long word with a digit in it: a token, a digest, a secret in base64; whole, cut or encoded."""
_PLAIN_CODE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_RUN: Final = 8
"""So many characters of a secret in a row are a part of it, and no chance."""


def repeats(text: str, secrets: tuple[str, ...]) -> bool:
    """Whether a text holds one of the secrets, as it is or encoded for a form or URL."""
    return any(form in text for secret in secrets for form in (secret, quote(secret, safe=""), quote_plus(secret)))


def may_be_shown(code: str, secrets: tuple[str, ...]) -> bool:
    """Whether an error code is a plain word that holds no part of a secret and is not like a token."""
    if _PLAIN_CODE.fullmatch(code) is None or LIKE_A_TOKEN.search(code) or repeats(code, secrets):
        return False
    said = code.casefold()
    runs = {said[at : at + _RUN] for at in range(len(said) - _RUN + 1)}
    return not any(run in secret.casefold() for secret in secrets for run in runs)
