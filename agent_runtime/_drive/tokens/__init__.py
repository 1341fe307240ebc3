"""Credentials for each send: fresh, one request for all who wait, under the identity that the step was recorded for."""

from agent_runtime._drive.tokens.acquire import acquire
from agent_runtime._drive.tokens.identity import checked_token, principal_of, refuse_awaitable
from agent_runtime._drive.tokens.rotation import save_all
from agent_runtime._drive.tokens.store import TokenStore, rotating_account

__all__ = ["TokenStore", "acquire", "checked_token", "principal_of", "refuse_awaitable", "rotating_account", "save_all"]
