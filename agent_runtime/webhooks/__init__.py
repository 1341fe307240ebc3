"""Callbacks of tools whose jobs end later: an ASGI app, and who is believed."""

from agent_runtime._model.events import CallbackEvent
from agent_runtime.webhooks._app import About, WebhookApp, about, app
from agent_runtime.webhooks._verify import CallbackRefused, StandardWebhook, Verifier, sign

__all__ = [
    "About",
    "CallbackEvent",
    "CallbackRefused",
    "StandardWebhook",
    "Verifier",
    "WebhookApp",
    "about",
    "app",
    "sign",
]
