"""Taking our own credentials out of what a tool answers: a server may echo what it was sent."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent_runtime._core.effects import Credential
    from agent_runtime._model import Answer

SHORTEST: Final = 6
"""A shorter secret would be found in innocent text."""
MARK: Final = "[credential]"


def scrubbed(answer: Answer, credential: Credential) -> Answer:
    """Return an answer without the secrets of the credential that its request carried."""
    secrets = secrets_of(credential)
    if not secrets:
        return answer
    body, headers = answer.body, answer.headers
    for secret in secrets:
        body = body.replace(secret.encode(), MARK.encode())
        headers = tuple((name, value.replace(secret, MARK)) for name, value in headers)
    if body == answer.body and headers == answer.headers:
        return answer
    return dataclasses.replace(answer, body=body, headers=headers)


def scrubbed_text(text: str, credential: Credential) -> str:
    """Return text of a tool without the secrets of the credential that its request carried."""
    for secret in secrets_of(credential):
        text = text.replace(secret, MARK)
    return text


def repeats(text: str | None, credential: Credential) -> bool:
    """Whether a text holds a secret of the credential."""
    return text is not None and any(secret in text for secret in secrets_of(credential))


def secrets_of(credential: Credential) -> list[str]:
    """Return the secret texts of a credential, the longest first: header values, and what follows a scheme's name."""
    values = {part for _, value in credential.headers for part in (value, value.rpartition(" ")[2])}
    return sorted((value for value in values if len(value) >= SHORTEST), key=len, reverse=True)
