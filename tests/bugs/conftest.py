"""What the bug cases run on: each API in turn, a mocked network, a turned clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import respx

from agent_runtime.testing import VirtualClock
from tests.bugs.harness import NOW, URL, Api, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Backend


@pytest.fixture(params=["sync", "async"])
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    """Each API in turn, over a SQLite ledger."""
    api = Api(request.param, f"sqlite:///{tmp_path}/agent.db")
    yield api
    api.close()


@pytest.fixture(params=["sync", "async"])
def api_on_both(request: pytest.FixtureRequest, backend: Backend) -> Iterator[Api]:
    """Each API in turn, over each store."""
    api = Api(request.param, backend.url)
    yield api
    api.close()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(start=NOW)


@pytest.fixture
def router() -> Iterator[respx.Router]:
    """A mocked network; a request that no route takes fails the test."""
    with respx.mock(assert_all_called=False) as router:
        yield router


@pytest.fixture
def target(router: respx.Router) -> Callable[..., Target]:
    """Put a tool that plays a script at its address."""

    def put(*script: object, at: str = URL, honours: bool = True) -> Target:
        made = Target(*script, honours=honours)
        router.route(url__startswith=at).mock(side_effect=made)
        return made

    return put
