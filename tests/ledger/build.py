"""Short ways to say what a ledger is given: a clock to be turned, owners, entries."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent_runtime._model import (
    Advance,
    Change,
    Deliver,
    EndSession,
    File,
    NewAttempt,
    NewEvidence,
    NewOperation,
    NewStep,
    PutValue,
    Request,
    Reserve,
    SessionState,
    State,
)
from agent_runtime.ledger import current_owner

if TYPE_CHECKING:
    from agent_runtime._model import OperationRecord, WriteOutcome
    from agent_runtime.ledger import Claim, Lease, Owner, SqlLedger

TENANT = "acme"
WAIT = 20.0
"""Seconds that a test waits for what must come; only a failing test waits as long."""


class FakeClock:
    """A clock that stands still until it is turned."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wall(self) -> float:
        return 1_800_000_000.0 + self.seconds

    def boottime(self) -> float:
        return 5_000.0 + self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


def fresh() -> str:
    return uuid.uuid4().hex


def here() -> Owner:
    """A Session object of this process."""
    return current_owner(fresh())


def elsewhere() -> Owner:
    """A Session object of another machine."""
    return replace(here(), host="elsewhere", pid=7, boot_id="other-boot")


def new_operation(session_id: str, number: int, **changes: Any) -> NewOperation:
    label = f"step_{number:03d}"
    values = {
        "id": fresh(),
        "label": label,
        "tool": "provision",
        "kind": "write",
        "args": b'{"gb":20}',
        "fingerprint": "f1",
        "args_hash": "h1",
        "scheme": "jcs",
        "key": f"{session_id}:{label}:h1",
        "key_format": "composite",
        "carrier": "Idempotency-Key",
        "key_lifetime": 86400.0,
        "request": Request(
            method="POST", url="https://tools.example.com/p", body=b'{"gb":20}', headers=(("Accept", "*/*"),)
        ),
        "principal": "acct-7",
        "contract_version": "1",
        "origin": "https://tools.example.com",
    }
    return NewOperation(**(values | changes))


def new_step(operation: NewOperation | None, number: int, **changes: Any) -> NewStep:
    values = {
        "label": f"step_{number:03d}",
        "branch": "",
        "index": number,
        "seq": number,
        "kind": "refused" if operation is None else "call",
        "tool": "provision",
        "fingerprint": "f1",
        "args_hash": "h1",
        "operation_id": None if operation is None else operation.id,
    }
    return NewStep(**(values | changes))


class Holder:
    """A session with its lease, and entries for it."""

    def __init__(self, ledger: SqlLedger, claim: Claim) -> None:
        assert claim.lease is not None
        assert claim.loaded is not None
        self.ledger = ledger
        self.claim = claim
        self.lease: Lease = claim.lease
        self.id = claim.lease.session_id
        self.fence = claim.lease.fence

    def write(self, *entries: Any) -> list[WriteOutcome]:
        return self.ledger.write(entries).result(WAIT)

    def one(self, entry: Any) -> WriteOutcome:
        (outcome,) = self.write(entry)
        return outcome

    def reserve_entry(self, number: int, **changes: Any) -> Reserve:
        address = changes.pop("address", None)
        operation = new_operation(self.id, number, **changes)
        return Reserve(
            write_id=fresh(),
            session_id=self.id,
            fence=self.fence,
            operations=(operation,),
            steps=(new_step(operation, number, address=address),),
        )

    def reserve(self, number: int, **changes: Any) -> OperationRecord:
        outcome = self.one(self.reserve_entry(number, **changes))
        assert outcome.took == "took", outcome
        return outcome.operations[0]

    def advance_entry(self, operation: OperationRecord, **changes: Any) -> Advance:
        extra = {name: changes.pop(name) for name in ("attempt", "evidence", "expect_version") if name in changes}
        fence = changes.pop("fence", self.fence)
        return Advance(
            write_id=fresh(),
            session_id=self.id,
            fence=fence,
            operation_id=operation.id,
            change=Change(**changes),
            **({"expect_version": operation.version} | extra),
        )

    def advance(self, operation: OperationRecord, **changes: Any) -> OperationRecord:
        outcome = self.one(self.advance_entry(operation, **changes))
        assert outcome.took == "took", outcome
        assert outcome.operation is not None
        return outcome.operation

    def send(self, operation: OperationRecord, *, deadline: float = 30.0) -> OperationRecord:
        attempt = NewAttempt(number=operation.attempts + 1, purpose="send", deadline=deadline)
        return self.advance(operation, state=State.IN_FLIGHT, mark_sent=True, attempt=attempt)

    def value_entry(self, name: str, value: bytes = b"1") -> PutValue:
        return PutValue(
            write_id=fresh(), session_id=self.id, fence=self.fence, branch="", name=name, index=1, value=value
        )

    def deliver_entry(self, label: str, delivered: bytes = b"{}") -> Deliver:
        return Deliver(
            write_id=fresh(),
            session_id=self.id,
            fence=self.fence,
            label=label,
            delivered=delivered,
            delivered_seq=1,
        )

    def file_entry(self, operation: OperationRecord, *, contradicts: bool = False, **seen: Any) -> File:
        return File(
            write_id=fresh(),
            session_id=self.id,
            operation_id=operation.id,
            evidence=NewEvidence(**({"kind": "late"} | seen)),
            contradicts=contradicts,
        )

    def end_entry(self) -> EndSession:
        return EndSession(write_id=fresh(), session_id=self.id, fence=self.fence, state=SessionState.FINISHED)

    def loaded(self) -> Any:
        return self.ledger.load(name=self.id, tenant=TENANT).result(WAIT)


def start(ledger: SqlLedger, alias: str | None = None, *, owner: Owner | None = None) -> Holder:
    claim = ledger.start(
        session_id=str(uuid.uuid4()),
        alias=alias,
        tenant=TENANT,
        actor=None,
        input_digest=None,
        owner=owner or here(),
    ).result(WAIT)
    assert claim.status == "taken", claim
    return Holder(ledger, claim)


def claim(ledger: SqlLedger, name: str, *, owner: Owner | None = None, replaces: str | None = None) -> Claim:
    return ledger.claim(name=name, tenant=TENANT, owner=owner or here(), replaces=replaces).result(WAIT)
