"""One tool server for all tests of this folder, empty at the beginning of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from examples.tool_backend.process import Backend, running_backend

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def server() -> Iterator[Backend]:
    with running_backend() as backend:
        yield backend


@pytest.fixture
def backend(server: Backend) -> Backend:
    server.reset()
    return server
