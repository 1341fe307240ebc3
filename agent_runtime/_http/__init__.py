"""Sending requests and reading answers: the only home of httpx (its successor httpx2 is taken if a client is one)."""

from agent_runtime._http._events import is_available as streams_are_available
from agent_runtime._http._senders import AsyncHttpSender, HttpSender

__all__ = ["AsyncHttpSender", "HttpSender", "streams_are_available"]
