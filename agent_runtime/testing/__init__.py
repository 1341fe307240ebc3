"""Tools for users' tests."""
