"""The one table of defaults. Durations are seconds, sizes are bytes."""

from __future__ import annotations

from typing import Final

CONNECT_TIMEOUT: Final = 5.0
READ_TIMEOUT: Final = 30.0
STEP_DEADLINE: Final = 300.0  # how long a process waits for one step; counted anew on a resume
ATTEMPTS: Final = 5
BACKOFF_BASE: Final = 0.5
BACKOFF_FACTOR: Final = 2.0
BACKOFF_CAP: Final = 30.0
MAX_INLINE_WAIT: Final = 60.0  # a longer wait parks the step

KEY_LIFETIME: Final = 24 * 3600.0
KEY_LIFETIME_MARGIN: Final = 0.10  # share of the lifetime in which a resend is no longer risked

LEASE: Final = 30.0
LEASE_MARGIN_SHARE: Final = 0.10  # share of the lease that the local deadline is shorter
SESSION_WAIT: Final = 45.0  # longer than a lease, so that a restart elsewhere takes over

TOKEN_LEEWAY: Final = 60.0
TOKEN_LEEWAY_SHARE: Final = 0.10
TOKEN_LEEWAY_LEAST: Final = 5.0
TOKEN_LIFETIME_UNTOLD: Final = 300.0
ROTATION_GRACE: Final = 30.0  # the shortest default of the platforms that docs/tokens.md names

FIRST_POLL: Final = 5.0
POLL_FACTOR: Final = 1.5
POLL_CAP: Final = 60.0
POLL_BOUND: Final = 600.0
NOT_FOUND_GRACE: Final = 30.0
REMIND_AFTER: Final = 24 * 3600.0
LONGEST_ESTIMATE: Final = 7 * 24 * 3600.0

BODY_LIMIT: Final = 32 * 1024 * 1024
BATCH_LIMIT: Final = 4 * 1024 * 1024  # most that one transaction of the ledger holds

LEDGER_PATIENCE: Final = 30.0  # how long passing trouble of the database is waited out
INTERRUPT_PATIENCE: Final = 5.0  # how long a cancelled caller waits for a write's answer
"""The table above is what `docs/defaults.md` shows; a test holds the two together."""
