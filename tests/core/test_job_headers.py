"""Which headers a request about a job carries, before credentials."""

from dataclasses import replace

from agent_runtime._core.job_headers import headers_about
from tests.core.job_world import JOB_URL, job_tool, left, run_of

PLAIN = {"X-Tenant": "acme", "Content-Type": "application/x-own", "prefer": "respond-async", "accept": "text/own"}


def test_the_tool_s_own_headers_go_to_its_own_origin():
    """But not what speaks of the start's body, or how the start is to be answered."""
    tool = job_tool()
    run = run_of(left(tool), replace(tool, headers=PLAIN))
    assert headers_about(run, JOB_URL) == (("Accept", "text/own"), ("X-Tenant", "acme"))


def test_json_is_asked_for_where_the_tool_says_nothing_else():
    """As its start does."""
    tool = job_tool()
    assert headers_about(run_of(left(tool), tool), JOB_URL) == (("Accept", "application/json"),)


def test_a_stream_is_asked_for_as_a_stream():
    """Whatever the tool's own header says."""
    tool = job_tool()
    run = run_of(left(tool), replace(tool, headers=PLAIN))
    assert headers_about(run, JOB_URL, "text/event-stream")[0] == ("Accept", "text/event-stream")


def test_no_header_of_the_tool_goes_to_another_origin():
    """It is told what is wanted, and nothing else."""
    tool = job_tool()
    run = run_of(left(tool), replace(tool, headers=PLAIN))
    assert headers_about(run, "https://other.test/j") == (("Accept", "application/json"),)
    assert headers_about(run, "https://other.test/j", "text/event-stream") == (("Accept", "text/event-stream"),)
