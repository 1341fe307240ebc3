"""Durable, idempotent tool calls for agents: a step ledger, deterministic keys, resume after a crash."""
