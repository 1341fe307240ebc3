"""Migrations of the ledger, run by the ledger itself."""
