"""Credentials as settings: what is sent to prove who calls. Secrets never show in a repr and are never pickled."""

from agent_runtime.config.auth._secret import AuthProvider, Secretive, can_be_sent, check_auth, check_can_be_sent
from agent_runtime.config.auth.oauth import (
    ACCESS_TOKEN,
    JWT,
    AuthMethod,
    ClientCredentials,
    OAuth,
    OnBehalfOf,
    PrivateKey,
    RefreshToken,
    SubjectToken,
    TokenExchange,
    part,
    texts,
)
from agent_runtime.config.auth.ready import ApiKey, StaticToken, TokenCallable, TokenFunction

Auth = StaticToken | ApiKey | TokenCallable | OAuth

__all__ = [
    "ACCESS_TOKEN",
    "JWT",
    "ApiKey",
    "Auth",
    "AuthMethod",
    "AuthProvider",
    "ClientCredentials",
    "OAuth",
    "OnBehalfOf",
    "PrivateKey",
    "RefreshToken",
    "Secretive",
    "StaticToken",
    "SubjectToken",
    "TokenCallable",
    "TokenExchange",
    "TokenFunction",
    "can_be_sent",
    "check_auth",
    "check_can_be_sent",
    "part",
    "texts",
]
