"""The ledger: sessions, steps, operations, attempts and evidence in SQLite or Postgres.

The contract, which one suite of tests proves for both databases:

* **One ledger thread** per ledger does everything that touches the database. Callers hand in work and get a
  ``concurrent.futures.Future``; what has queued while a commit ran goes into the next transaction. A caller that
  stops waiting tears nothing: its work is done all the same.
* **A write takes whole or not at all**, and says which: `Took`. Each carries a write id that is stored with the rows;
  after a commit whose answer was lost the rows are read back, and the own id found means that it took.
* **Every write but `File`, and a decision without lease, is fenced**: it takes only while the fence is the one that
  the writer holds. On Postgres a batch first locks its session rows ``FOR KEY SHARE`` in order and reads the fence
  under that lock; a take-over locks the row ``FOR UPDATE``, raises the fence, and only then reads.
* **A lease says who may write now.** `claim` gives it to a free session, to one whose lease has run out by the
  database's clock, or to one whose owner is a dead process of this same boot and pid namespace; else the session is
  busy. The ledger thread renews the leases of living `Lease` objects, which it holds weakly.
* **A settled operation never changes again**, but for ``contradicted``.
* **No content can hurt a batch**: payloads are bytes; an entry that the database cannot hold fails alone.
* **Passing trouble stays inside**: busy files, serialization failures, failover and dropped links are tried again here
  and never become a step's outcome.
"""

from agent_runtime.ledger._contract import Claim, Lease, Ledger, Owner
from agent_runtime.ledger._host import LedgerClock, MachineClock, current_owner
from agent_runtime.ledger._sql import SqlLedger, open_ledger

__all__ = [
    "Claim",
    "Lease",
    "Ledger",
    "LedgerClock",
    "MachineClock",
    "Owner",
    "SqlLedger",
    "current_owner",
    "open_ledger",
]
