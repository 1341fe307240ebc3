"""Sentences that a model reads can be replaced and translated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import WORDS, ConfigError, Runtime
from tests.jobs.job_api import RUNS, transcode

if TYPE_CHECKING:
    from tests.jobs.job_api import JobApi

INDONESIAN = {
    "pending.happened": "Pekerjaan telah DIMULAI dan BELUM selesai.",
    "pending.advice": "Jangan laporkan keberhasilan.",
    "accepted": "Alat menerimanya dan sedang mengerjakannya.",
    "timed_out.happened": "Masih berjalan; waktu tunggu habis.",
    "timed_out.advice": "Periksa nanti.",
    "because.poll_bound": "Batas waktu tunggu tercapai.",
    "jobs.some": "{count} pekerjaan sedang berjalan dan BELUM selesai.",
    "not_started.refused_input": "Perbaiki argumen.",
}


def test_a_runtime_speaks_the_words_it_was_given(api: JobApi) -> None:
    """Outcomes and the list of jobs, also after a replay; what is not given stays English."""
    tool = transcode()
    api.script(RUNS)
    runtime = api.runtime(tool, words=INDONESIAN)
    session = runtime.open("film")
    said = session.try_call(tool, {"a": 1}, detach=True).for_model()
    assert said["message"] == (
        "Pekerjaan telah DIMULAI dan BELUM selesai. Alat menerimanya dan sedang mengerjakannya. "
        "Jangan laporkan keberhasilan."
    )
    assert (said["status"], said["done"]) == ("pending", False)
    assert runtime.jobs().for_model()["message"] == "1 pekerjaan sedang berjalan dan BELUM selesai."
    late = session.call_many([(tool, {"a": 2})])[0].for_model()
    assert late["message"].startswith("Masih berjalan; waktu tunggu habis. Batas waktu tunggu tercapai. Alat")
    refused = session.try_call(tool, {"a": float("nan")}).for_model()
    assert refused["message"].endswith("Perbaiki argumen.")
    assert refused["message"].startswith("The call was NOT started")


def test_one_outcome_can_be_told_in_other_words(api: JobApi) -> None:
    """`for_model(words=...)`, whatever the runtime was given."""
    tool = transcode()
    outcome = api.runtime(tool).open("film").try_call(tool, {"a": 1})
    assert outcome.for_model({"succeeded.happened": "Oldu."})["message"].startswith("Oldu. The tool's job")


@pytest.mark.parametrize(
    "words",
    [{"no.such": "x"}, {"jobs.some": "{number} jobs"}, {"unusable": "{problem"}, {"accepted": 7}, {"stays": "{}"}],
)
def test_words_that_cannot_be_said_are_refused(words: dict[str, Any]) -> None:
    """Unknown names and unknown placeholders, when the runtime is built."""
    with pytest.raises(ConfigError):
        Runtime("sqlite://", words=words)


def test_every_sentence_can_be_found() -> None:
    """`WORDS` lists all of them, and is not to be changed."""
    assert "unknown.advice" in WORDS
    with pytest.raises(TypeError):
        WORDS["unknown.advice"] = "x"


def test_streams_need_their_extra() -> None:
    """A tool with a stream is taken where `httpx-sse` is installed."""
    with Runtime("sqlite://", tools=[transcode(stream="events_url")], client=httpx.Client()) as runtime:
        assert runtime.jobs() == []


def test_pending_claims_no_follower(api: JobApi) -> None:
    """Nobody waits once the call has returned; the model is told who can see the end."""
    tool = transcode()
    said = api.runtime(tool).open("film").try_call(tool, {"a": 1}, detach=True).for_model()["message"]
    assert "Nobody waits for it here any more: session.check(step) goes on with it" in said
    assert "runtime.follow_jobs()" in said
    assert "is followed" not in said
