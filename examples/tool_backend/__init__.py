"""A tool server that honours ``Idempotency-Key``: the server's half of the contract, with faults to order."""
