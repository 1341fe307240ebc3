"""Tokens as plain values: requests, replies, metadata, sealing. The only home of Authlib and of cryptography.

Of Authlib only transport-free parts serve. Requests go out through the same sender as everything else, so that status,
headers and the whole error body of the authorisation server are seen.
"""

from agent_runtime._core.tokens import AccessToken
from agent_runtime._oauth.discovery import metadata_urls, read_metadata
from agent_runtime._oauth.echoes import LIKE_A_TOKEN, repeats
from agent_runtime._oauth.replies import read_token_reply, refresh_token_of
from agent_runtime._oauth.requests import Grant, SecretRequest, TokenRequest, token_request
from agent_runtime._oauth.seal import HOW, Seal, SealBroken, TokenKey, seal_of

__all__ = [
    "HOW",
    "LIKE_A_TOKEN",
    "AccessToken",
    "Grant",
    "Seal",
    "SealBroken",
    "SecretRequest",
    "TokenKey",
    "TokenRequest",
    "metadata_urls",
    "read_metadata",
    "read_token_reply",
    "refresh_token_of",
    "repeats",
    "seal_of",
    "token_request",
]
