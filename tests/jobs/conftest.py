"""The stage of a job's test: both faces, over SQLite; over both databases where the ledger decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.jobs.job_api import JobApi
from tests.session.conftest import _stage, async_stage, clock_of_run, databases, stage, sync_stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.session.stage import Clock, Stage

__all__ = ["async_stage", "clock_of_run", "databases", "stage", "sync_stage"]


@pytest.fixture(params=["sync", "async"])
def api(request: pytest.FixtureRequest, databases: Any, clock_of_run: Clock) -> Iterator[JobApi]:
    """The tool's side of a stage of either face, over SQLite."""
    for made in _stage(request.param, "sqlite", databases, clock_of_run):
        yield JobApi(made)


@pytest.fixture
def everywhere(stage: Stage) -> JobApi:
    """The tool's side of a stage of either face, over either database."""
    return JobApi(stage)
