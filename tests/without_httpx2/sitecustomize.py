"""Makes httpx2 look as if it were not installed, in each process that has this folder on its PYTHONPATH.

Children inherit that, so `make test-without-httpx2` hides it from every process that the suite starts.
"""

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
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


sys.meta_path.insert(0, Absent())
