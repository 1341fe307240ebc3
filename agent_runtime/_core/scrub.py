"""Taking our own credentials out of what a tool answers: a server may echo what it was sent."""

from __future__ import annotations

import dataclasses
import functools
import re
from html.entities import html5
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent_runtime._core.effects import Credential
    from agent_runtime._model import Answer

SHORTEST: Final = 6
"""A shorter secret would be found in innocent text."""
MARK: Final = "[credential]"


def scrubbed(answer: Answer, credential: Credential) -> Answer:
    """Return an answer without the secrets of the credential that its request carried."""
    body, headers = answer.body, answer.headers
    for secret in secrets_of(credential):
        pattern = pattern_of(secret)
        body = re.sub(pattern.encode(), MARK.encode(), body)
        headers = tuple((name, re.sub(pattern, MARK, value)) for name, value in headers)
    if body == answer.body and headers == answer.headers:
        return answer
    return dataclasses.replace(answer, body=body, headers=headers)


def scrubbed_text(text: str, credential: Credential) -> str:
    """Return text of a tool without the secrets of the credential that its request carried."""
    for secret in secrets_of(credential):
        text = re.sub(pattern_of(secret), MARK, text)
    return text


def repeats(text: str | None, credential: Credential) -> bool:
    """Whether a text holds a secret of the credential."""
    return text is not None and any(re.search(pattern_of(secret), text) for secret in secrets_of(credential))


def secrets_of(credential: Credential) -> list[str]:
    """Return the secret texts of a credential, the longest first: header values, and what follows a scheme's name."""
    values = {part for _, value in credential.headers for part in (value, value.rpartition(" ")[2])}
    return sorted((value for value in values if len(value) >= SHORTEST), key=len, reverse=True)


def pattern_of(secret: str) -> str:
    r"""Return a pattern of a secret in which each character but letters and digits may stand escaped or encoded.

    JSON writers escape as they like (a backslash before it, ``\u002b``), and JSON may stand in JSON up to three times;
    forms and URLs have ``%2B`` and ``+`` for a blank, pages have ``&#43;`` and ``&plus;``.
    """
    return "".join(char if char.isalnum() else _forms(char) for char in secret)


@functools.cache  # of single characters, never of a secret
def _forms(char: str) -> str:
    code = ord(char)
    names = "|".join(sorted(name for name, stands_for in html5.items() if stands_for == char and name.endswith(";")))
    forms = [
        rf"\\{{0,7}}{re.escape(char)}",
        rf"\\{{1,7}}u(?i:{code:04x})",
        rf"%(?i:{code:02x})",
        rf"&#(?:0*{code}|[xX]0*(?i:{code:x}));",
    ]
    forms += [rf"&(?:{names})"] if names else []
    forms += [r"\+"] if char == " " else []
    return f"(?:{'|'.join(forms)})"
