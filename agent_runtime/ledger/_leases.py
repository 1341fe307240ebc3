"""The leases that live in this process, held weakly."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime.ledger._contract import Lease

Terms = tuple[str, int, str]
"""Session id, fence, owner token."""


def terms(lease: Lease) -> Terms:
    """Return what names a lease in the database."""
    return lease.session_id, lease.fence, lease.owner.token


class LeaseBook:
    """Leases by their terms; one that is collected unreleased is told of.

    Args:
        orphaned: called from wherever the object was collected: must not raise, block or take a lock.
    """

    def __init__(self, orphaned: Callable[[Terms], None]) -> None:
        self._orphaned = orphaned
        self._refs: dict[Terms, weakref.ref[Lease]] = {}

    def add(self, lease: Lease) -> None:
        """Keep a lease alive in the database while the object lives."""
        key, orphaned = terms(lease), self._orphaned

        def collected(_: weakref.ref[Lease]) -> None:
            orphaned(key)

        self._refs[key] = weakref.ref(lease, collected)

    def drop(self, lease: Lease) -> None:
        """Forget a lease that is released or lost."""
        lease.lost = True
        self._refs.pop(terms(lease), None)

    def forget(self, key: Terms) -> bool:
        """Forget the terms of a lease whose object is gone; tell whether they were known."""
        return self._refs.pop(key, None) is not None

    def lose(self, session_id: str, *, below: int) -> None:
        """Mark leases of a session whose fence is lower than ``below`` as lost."""
        for lease in self.living():
            if lease.session_id == session_id and lease.fence < below:
                self.drop(lease)

    def __len__(self) -> int:
        return len(self._refs)

    def living(self) -> list[Lease]:
        """Return the leases whose objects live."""
        return [lease for ref in list(self._refs.values()) if (lease := ref()) is not None]
