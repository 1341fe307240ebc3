"""A pytest plugin that makes httpx2 look as if it were not installed."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class Absent(MetaPathFinder):
    """Finds nothing, and keeps others from finding it."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> None:
        if fullname.partition(".")[0] in {"httpx2", "httpcore2"}:
            raise ModuleNotFoundError(name=fullname)


assert "httpx2" not in sys.modules
sys.meta_path.insert(0, Absent())
