"""The credentials of tests, by one mark: whatever bears it is a secret, and `tests.leaks` looks for it everywhere.

``issued-``, ``static-``, ``key-`` and ``call-`` begin what a tool is sent in its header: access tokens, static tokens,
API keys, and what a user's own function gives. All others, such as a client's secret, a refresh token or what a user
signed in with, go to authorisation servers alone. Private keys are known by their PEM armour.
"""

from __future__ import annotations

import base64

MARK = "canary"

CLIENT_SECRET = "client-secret-canary"
REFRESH = "refresh-canary-0"
"""The first refresh token; rotated ones count on."""
SUBJECT = "subject-canary-1"
"""What a user signed in with."""
ISSUED = "issued-canary-1"
"""An access token."""
STATIC = "static-canary-1"
API_KEY = "key-canary-1"
CALLED = "call-canary-1"
"""What a function of the user's own returns."""
TOKEN_KEY = base64.urlsafe_b64encode(b"canary: it seals tokens of tests").decode()
WEBHOOK_SECRET = "whsec_" + base64.b64encode(b"canary: signs callbacks").decode()

generated: set[bytes] = set()
"""Credentials that bear no mark, since somebody else made them up; looked for as they are."""


def secret(value: str) -> str:
    """Note a credential that was generated, so that it is looked for, and return it."""
    generated.add(value.encode())
    return value
