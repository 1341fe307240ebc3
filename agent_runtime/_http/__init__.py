"""Sending requests and reading answers: the only home of httpx (its successor httpx2 is taken if a client is one)."""

from agent_runtime._http._senders import AsyncHttpSender, HttpSender

__all__ = ["AsyncHttpSender", "HttpSender"]
