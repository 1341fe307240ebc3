"""What the token tests run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_runtime.testing import VirtualClock
from tests.oauth.kit import Api, Site
from tests.oauth.provider import Provider, running_provider

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Backend


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def site(clock: VirtualClock) -> Site:
    return Site(clock)


@pytest.fixture(params=["sync", "async"])
def api(request: pytest.FixtureRequest, tmp_path: Path, site: Site) -> Iterator[Api]:
    """Each API in turn, over a SQLite ledger."""
    api = Api(request.param, f"sqlite:///{tmp_path}/agent.db", site)
    yield api
    api.close()


@pytest.fixture(params=["sync", "async"])
def api_on_both(request: pytest.FixtureRequest, backend: Backend, site: Site) -> Iterator[Api]:
    """Each API in turn, over each store."""
    api = Api(request.param, backend.url, site)
    yield api
    api.close()


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    """The real authorisation server: certified, rotation with reuse detection."""
    with running_provider() as provider:
        yield provider
