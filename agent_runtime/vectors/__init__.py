"""Golden vectors of the key derivation, for authors of tool servers in any language.

``keys.json`` beside this file is the data; ``docs/key-format.md`` describes the algorithms.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

__all__ = ["load"]


def load() -> dict[str, Any]:
    """Return the golden vectors of the key derivation.

    Returns:
        ``version``, ``description``, ``canonical`` (a text and what it is written as in each scheme), ``keys`` (what
        goes in, what is hashed, the key), ``refused`` (texts that are no arguments) and ``structured_fields``.
    """
    text = files(__name__).joinpath("keys.json").read_text(encoding="utf-8")
    vectors: dict[str, Any] = json.loads(text)
    return vectors
