"""Between rows and the plain values that leave the ledger."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from agent_runtime._model import (
    AttemptRecord,
    Effect,
    EvidenceRecord,
    OperationRecord,
    Reason,
    Request,
    ResultState,
    SessionRecord,
    SessionState,
    State,
    StepRecord,
    ValueRecord,
)
from agent_runtime.ledger._contract import Owner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import RowMapping

    from agent_runtime._model import Headers, NewEvidence, NewOperation, NewStep

    Row = RowMapping | Mapping[str, Any]

_ENUMS = {"state": State, "reason": Reason, "effect": Effect, "result_state": ResultState}
# SQLite's RETURNING gives a whole number for a REAL such as 86400.0.
_TIMES = (
    *("key_lifetime", "created_at", "updated_at", "first_sent_at", "first_maybe_at", "last_deadline", "absent_since"),
    *("resume_at", "expires_at"),
)
_OPERATION = tuple(f.name for f in fields(OperationRecord) if f.name != "request" and f.name not in _ENUMS)


def text_bytes(text: str) -> bytes:
    """Return a text as bytes that hold anything a ``str`` can hold."""
    return text.encode("utf-8", "surrogatepass")


def bytes_text(data: bytes) -> str:
    """Return the text that `text_bytes` was given."""
    return data.decode("utf-8", "surrogatepass")


def headers_bytes(headers: Headers) -> bytes:
    """Return headers as JSON in ASCII."""
    return json.dumps(headers, separators=(",", ":")).encode("ascii")


def bytes_headers(data: bytes) -> Headers:
    """Return the headers that `headers_bytes` was given."""
    return tuple((name, value) for name, value in json.loads(data))


def operation_row(new: NewOperation, *, session_id: str, tenant: str, now: float) -> dict[str, Any]:
    """Return the row of a new operation, all columns included."""
    request = new.request
    row: dict[str, Any] = {name: getattr(new, name) for name in _NEW}
    return row | {
        "session_id": session_id,
        "tenant": tenant,
        "request_method": request.method if request else None,
        "request_url": text_bytes(request.url) if request else None,
        "request_headers": headers_bytes(request.headers) if request else None,
        "request_body": request.body if request else None,
        "state": "ready",
        "version": 1,
        "created_at": now,
        "updated_at": now,
        **_FRESH,
    }


_NEW = (
    *("id", "label", "tool", "kind", "args", "fingerprint", "args_hash", "scheme", "key", "key_format", "carrier"),
    *("key_lifetime", "principal", "contract_version", "origin", "business_key", "expires_at", "reissue_of"),
)
_FRESH: dict[str, Any] = {
    **dict.fromkeys(("partial", "contradicted", "maybe_applied", "no_resend", "server_replayed", "untold"), False),
    **dict.fromkeys(("attempts", "absences"), 0),
    **dict.fromkeys(("reason", "effect", "result_state", "first_sent_at", "first_maybe_at", "last_attempt_at")),
    **dict.fromkeys(("last_deadline", "absent_since", "resume_at", "result", "result_status", "error", "handle")),
}


def operation_record(row: Row) -> OperationRecord:
    """Return an operation as a plain value."""
    values: dict[str, Any] = {name: row[name] for name in _OPERATION}
    for name in _TIMES:
        values[name] = _seconds(values[name])
    for name, kind in _ENUMS.items():
        values[name] = None if row[name] is None else kind(row[name])
    method = row["request_method"]
    values["request"] = (
        None
        if method is None
        else Request(
            method=method,
            url=bytes_text(row["request_url"]),
            body=bytes(row["request_body"]),
            headers=bytes_headers(row["request_headers"]),
        )
    )
    return OperationRecord(**values)


def _seconds(value: float | None) -> float | None:
    return None if value is None else float(value)


def step_row(new: NewStep, *, session_id: str) -> dict[str, Any]:
    """Return the row of a new step."""
    return {
        "session_id": session_id,
        "label": new.label,
        "branch": new.branch,
        "index": new.index,
        "seq": new.seq,
        "kind": new.kind,
        "tool": new.tool,
        "fingerprint": new.fingerprint,
        "args_hash": new.args_hash,
        "operation_id": new.operation_id,
        "delivered": None,
        "delivered_seq": None,
    }


def step_record(row: Row, address: str | None) -> StepRecord:
    """Return a step as a plain value."""
    return StepRecord(**dict(row), address=address)


def session_record(row: Row) -> SessionRecord:
    """Return a session as a plain value."""
    return SessionRecord(
        id=row["id"],
        alias=row["alias"],
        tenant=row["tenant"],
        actor=row["actor"],
        state=SessionState(row["state"]),
        input_digest=row["input_digest"],
        fence=row["fence"],
        created_at=float(row["created_at"]),
        ended_at=_seconds(row["ended_at"]),
        owner=row["owner_token"],
        lease_until=_seconds(row["lease_until"]),
    )


def owner_columns(owner: Owner | None) -> dict[str, Any]:
    """Return the columns that say who owns a session."""
    if owner is None:
        return dict.fromkeys(_OWNER)
    return dict(
        zip(
            _OWNER,
            (owner.token, owner.host, owner.pid, owner.boot_id, owner.pid_namespace, owner.process_started),
            strict=True,
        )
    )


_OWNER = (
    *("owner_token", "owner_host", "owner_pid", "owner_boot_id", "owner_pid_namespace"),
    "owner_process_started",
)


def owner_of(row: Row) -> Owner | None:
    """Return who owns a session, or None."""
    if row["owner_token"] is None:
        return None
    return Owner(
        token=row["owner_token"],
        host=row["owner_host"],
        pid=row["owner_pid"],
        boot_id=row["owner_boot_id"],
        pid_namespace=row["owner_pid_namespace"],
        process_started=row["owner_process_started"],
    )


def value_record(row: Row) -> ValueRecord:
    """Return a value of ``session.record`` as a plain value."""
    return ValueRecord(
        session_id=row["session_id"],
        branch=row["branch"],
        name=row["name"],
        index=row["index"],
        value=bytes(row["value"]),
    )


def attempt_record(row: Row) -> AttemptRecord:
    """Return an attempt as a plain value."""
    return AttemptRecord(**dict(row))


def evidence_row(new: NewEvidence, *, operation_id: str, now: float) -> dict[str, Any]:
    """Return the row of a piece of evidence."""
    return {
        "operation_id": operation_id,
        "kind": new.kind,
        "at": now,
        "attempt": new.attempt,
        "status": new.status,
        "headers": headers_bytes(new.headers),
        "body": new.body,
        "detail": text_bytes(new.detail),
        "by": None if new.by is None else text_bytes(new.by),
    }


def evidence_record(row: Row) -> EvidenceRecord:
    """Return a piece of evidence as a plain value."""
    return EvidenceRecord(
        operation_id=row["operation_id"],
        kind=row["kind"],
        at=row["at"],
        attempt=row["attempt"],
        status=row["status"],
        headers=bytes_headers(row["headers"]),
        body=bytes(row["body"]),
        detail=bytes_text(row["detail"]),
        by=None if row["by"] is None else bytes_text(row["by"]),
    )
