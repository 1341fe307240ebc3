"""A tool's callback about a job, as a plain value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackEvent:
    """One verified callback.

    Attributes:
        source: who calls back; event ids are unique within it.
        event_id: the sender's id of the event, the same in each of its tries.
        job_id: the job that it is about, or None; key: the idempotency key, or None. One of them has to be known.
        body: the raw bytes that were signed.
        received_at: UTC epoch seconds, by the database's clock.
        tenant: whose it is; told by the ledger.
    """

    source: str
    event_id: str
    job_id: str | None
    key: str | None
    body: bytes
    received_at: float = 0.0
    tenant: str = ""
