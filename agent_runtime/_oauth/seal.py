"""How tokens are kept: Fernet, under a key that the user brings and the ledger never sees."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from agent_runtime._core.tokens import KeptAccess, KeptTokens
from agent_runtime.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

TokenKey = str | bytes | Path
VARIABLE: Final = "AGENT_RUNTIME_TOKEN_KEY"
FILE_VARIABLE: Final = "AGENT_RUNTIME_TOKEN_KEY_FILE"
HOW: Final = (
    "Make one with cryptography.fernet.Fernet.generate_key() and give it as Runtime(token_key=...), in the environment "
    f"as {VARIABLE}, or in a file that {FILE_VARIABLE} (or token_key=Path(...)) names"
)


class SealBroken(Exception):
    """What is sealed was sealed under another key, or was changed."""


class Seal:
    """Seals tokens under the first of some keys and opens what any of them sealed; shows no key."""

    def __init__(self, keys: list[str]) -> None:
        try:
            self._fernet = MultiFernet([Fernet(key) for key in keys])
        except (ValueError, TypeError):
            pass
        else:
            return
        raise ConfigError(f"token_key is no Fernet key (32 bytes, base64url). {HOW}")  # noqa: EM102

    def close(self, ident: str, kept: KeptTokens) -> bytes:
        """Return tokens sealed for one row."""
        access = {name: [one.value, one.sent_at, one.expires_at] for name, one in kept.access.items()}
        plain = {"row": ident, "refresh": kept.refresh, "access": access, "before": kept.before}
        return self._fernet.encrypt(json.dumps(plain, separators=(",", ":")).encode())

    def open(self, ident: str, sealed: bytes) -> KeptTokens:
        """Return the tokens of a row.

        Raises:
            SealBroken: another key, changed bytes, or the bytes of another row.
        """
        try:
            plain: dict[str, Any] = json.loads(self._fernet.decrypt(sealed))
        except InvalidToken:
            raise SealBroken from None
        if plain["row"] != ident:
            raise SealBroken
        access = {
            name: KeptAccess(value=value, sent_at=sent_at, expires_at=expires_at)
            for name, (value, sent_at, expires_at) in plain["access"].items()
        }
        return KeptTokens(refresh=plain["refresh"], access=access, before=plain["before"])


def seal_of(token_key: TokenKey | None, environment: Mapping[str, str] = os.environ) -> Seal | None:
    """Return what seals tokens, or None where no key was given.

    Args:
        token_key: a Fernet key, or the path of a file that holds one. Several, separated by commas or lines: the first
            seals, all open, so that a key can be replaced.
        environment: where to look if it is None.

    Raises:
        ConfigError: a key or file that cannot be used; no text holds the key.
    """
    given = token_key or environment.get(VARIABLE)
    if not given and environment.get(FILE_VARIABLE):
        given = Path(environment[FILE_VARIABLE])
    if not given:
        return None
    if isinstance(given, Path):
        try:
            given = given.read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            msg = f"the file of token_key, {given}, cannot be read ({type(error).__name__})"
            raise ConfigError(msg) from None
    text = given.decode("ascii", "replace") if isinstance(given, bytes) else given
    keys = [key.strip() for key in text.replace("\n", ",").split(",") if key.strip()]
    return Seal(keys or [""])
