"""What the answer to a poll says about a job: by protocol, word by word."""

import pickle
from dataclasses import replace

import pytest

from agent_runtime import ConfigError
from agent_runtime._core.job_reading import names_another, read_job, read_start
from agent_runtime._core.job_start import LONGEST_HINT
from agent_runtime._core.job_words import TABLE
from agent_runtime._model import Answer
from agent_runtime.config import PollPolicy
from agent_runtime.config.jobs import JobAdapter, JobReading, JobStart
from tests.core.job_world import ENDS, PARTLY, RUNS, STARTED, handle, started
from tests.core.world import START, json_answer

POLICY = PollPolicy()


def read(body, protocol="body", *, status=200, headers=()):
    answer = body if isinstance(body, Answer) else json_answer(status, body, headers)
    return read_job(answer, handle(protocol), POLICY, now=START)


def test_the_sources_bodies_are_read_as_they_are_meant():
    """A job that runs, one that ended well, and one that was done in part with its counts and where its errors are."""
    runs = read(RUNS)
    assert (runs.status, runs.progress, runs.poll_after, runs.message) == ("running", 45.0, 45.0, "Still at work.")
    ends = read(ENDS)
    assert (ends.status, ends.result, ends.has_result) == ("succeeded", ENDS["result"], True)
    partly = read(PARTLY)
    assert (partly.status, partly.counts) == ("completed_with_errors", PARTLY["summary"])
    assert (partly.errors_url, partly.message) == (PARTLY["errors_url"], PARTLY["message"])
    assert partly.result == {"summary": PARTLY["summary"]}, "the counts are all that it has to show"


STATUSES = {
    # protocol, HTTP status, body, what it says
    "azure-any-case": ("operation-location", 200, {"status": "SUCCEEDED"}, "succeeded"),
    "azure-one-l": ("azure-async", 200, {"status": "Canceled"}, "cancelled"),
    "azure-failed": ("azure-async", 200, {"status": "Failed"}, "failed"),
    "L5-azure-unknown-word": ("operation-location", 200, {"status": "Paused"}, "running"),
    "azure-no-word": ("operation-location", 200, {"result": 1}, "running"),
    "aip-runs": ("aip", 200, {"done": False}, "running"),
    "aip-says-nothing": ("aip", 200, {}, "running"),
    "L8-aip-error": ("aip", 200, {"done": True, "error": {"code": 7}}, "failed"),
    "L8-aip-response": ("aip", 200, {"done": True, "response": {"x": 1}}, "succeeded"),
    "L8-aip-null-error": ("aip", 200, {"done": True, "error": None}, "succeeded"),
    "resource-runs": ("resource", 200, {"properties": {"provisioningState": "Updating"}}, "running"),
    "resource-is-there": ("resource", 200, {"properties": {"provisioningState": "Succeeded"}}, "succeeded"),
    "resource-failed": ("resource", 200, {"properties": {"provisioningState": "Failed"}}, "failed"),
    "resource-without-a-state": ("resource", 200, {"id": "x"}, "succeeded"),
    "resource-somebody-elses-page": ("resource", 200, None, "running"),
    "location-202": ("location", 202, {}, "running"),
    "location-202-tells": ("location", 202, {"status": "failed"}, "failed"),
    "location-result": ("location", 200, {"id": "x"}, "succeeded"),
    "location-list": ("location", 200, [1, 2], "succeeded"),
    "location-empty-result": ("location", 204, None, "succeeded"),
    "location-202-not-done": ("location", 202, {"done": False, "status": "success", "result": None}, "running"),
    "location-status": ("location", 200, {"status": "queued"}, "running"),
    "location-done-false": ("location", 200, {"done": False}, "running"),
    "body-done": ("body", 200, {"done": True}, "succeeded"),
    "body-done-with-error": ("body", 200, {"done": True, "error": "x"}, "failed"),
    "body-done-unknown-word": ("body", 200, {"done": True, "status": "archived", "result": 1}, "unknown"),
    "body-done-unknown-number": ("body", 200, {"done": True, "status": 7}, "unknown"),
    "body-done-http-error": ("body", 200, {"done": True, "status": 500}, "unknown"),
    "body-done-http-status": ("body", 200, {"done": True, "status": 200}, "succeeded"),
    "body-done-true-of-itself": ("body", 200, {"done": True, "status": True}, "unknown"),
    "body-done-an-object": ("body", 200, {"done": True, "status": {"state": "failed"}}, "unknown"),
    "body-done-null-status": ("body", 200, {"done": True, "status": None}, "succeeded"),
    "body-done-and-runs": ("body", 200, {"done": True, "status": "In-Progress", "progress_percent": 40}, "running"),
    "body-done-state": ("body", 200, {"done": True, "state": "FAILED"}, "failed"),
    "body-state": ("body", 200, {"state": "SUCCEEDED", "result": 1}, "succeeded"),
    "body-state-of-something": ("body", 200, {"state": "CA"}, "running"),
    "location-done-unknown-word": ("location", 200, {"done": True, "status": "archived"}, "unknown"),
    "location-state-runs": ("location", 200, {"state": "running"}, "running"),
    "location-phase-runs": ("location", 200, {"phase": "Pending"}, "running"),
    "location-job-status": ("location", 200, {"jobStatus": "IN_PROGRESS"}, "running"),
    "location-state-failed": ("location", 200, {"state": "Failed", "error": "x"}, "failed"),
    "location-state-of-an-address": ("location", 200, {"city": "LA", "state": "CA"}, "succeeded"),
    "location-state-partly": ("location", 200, {"state": "partial_success", "rows": []}, "completed_with_errors"),
    "location-progress": ("location", 200, {"job_id": "job_7f21c", "progress_percent": 45}, "running"),
    "location-all-of-it": ("location", 200, {"progress_percent": 100, "id": 1}, "succeeded"),
    "location-hint": ("location", 200, {"id": 1, "poll_after_seconds": 45}, "running"),
    "location-error-object": ("location", 200, {"error": {"message": "crashed"}}, "failed"),
    "location-error-text": ("location", 200, {"error": "crashed"}, "failed"),
    "location-error-null": ("location", 200, {"error": None, "id": 1}, "succeeded"),
    "location-error-empty": ("location", 200, {"error": "", "id": 1}, "succeeded"),
    "location-error-count": ("location", 200, {"error": 0.02, "id": 1}, "succeeded"),
    "location-error-of-a-running-one": ("location", 200, {"error": "late", "state": "running"}, "running"),
    "location-error-and-a-hint": ("location", 200, {"error": "not ready", "poll_after_seconds": 9}, "running"),
    "jsend-runs": ("body", 200, {"status": "success", "data": {"status": "running"}}, "running"),
    "jsend-failed": ("body", 200, {"status": "ok", "data": {"status": "failed"}}, "failed"),
    "jsend-ends": ("body", 200, {"status": "success", "data": {"status": "done", "result": 1}}, "succeeded"),
    "jsend-of-something": ("body", 200, {"status": "success", "data": {"status": "CA"}}, "succeeded"),
    "counts-all-failed": ("body", 200, {"status": "done", "summary": {"failed": 10}}, "completed_with_errors"),
    "counts-none-failed": ("body", 200, {"status": "done", "summary": {"failed": 0}}, "succeeded"),
    "body-done-unknown-word-error": ("body", 200, {"done": True, "status": "x", "error": "y"}, "failed"),
    "body-done-known-word": ("body", 200, {"done": True, "status": "failed"}, "failed"),
    "body-not-done-whatever-it-says": ("body", 200, {"done": False, "status": "succeeded"}, "running"),
    "body-null-status": ("body", 200, {"status": None}, "running"),
    "body-spaces-and-hyphens": ("body", 200, {"status": " Completed-With errors "}, "completed_with_errors"),
    "body-says-nothing": ("body", 200, {"id": "x"}, "running"),
    "body-no-json": ("body", 200, None, "running"),
    "L10-result-is-error": ("body", 200, {"status": "completed", "result": {"isError": True}}, "failed"),
    "L10-is-error": ("body", 200, {"status": "completed", "isError": True}, "failed"),
    "A37-succeeded-with-errors": ("body", 200, {"status": "SUCCEEDED", "errors": [{}]}, "completed_with_errors"),
    "A37-succeeded-with-error": ("body", 200, {"status": "succeeded", "error": "x"}, "completed_with_errors"),
    "no-errors-at-all": ("body", 200, {"status": "succeeded", "errors": []}, "succeeded"),
}


@pytest.mark.parametrize(("protocol", "status", "body", "says"), STATUSES.values(), ids=STATUSES)
def test_what_a_poll_says(protocol, status, body, says):
    """Words of any case; a word or a body that is not known means that it runs."""
    assert read(body, protocol, status=status).status == says


def test_a_location_that_shows_the_result_is_the_result():
    """Its members are the tool's own: ``errors`` or a ``message`` among them say nothing about the job."""
    found = read({"id": 1, "message": "none", "errors": [1]}, "location")
    assert (found.status, found.is_result, found.error) == ("succeeded", True, None)


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        ("text/html", b"<h1>Sign in</h1>", "running"),
        ("text/html", b'{"id": 1}', "succeeded"),
        ("text/csv", b"a,b", "succeeded"),
    ],
)
def test_a_web_page_is_no_result(kind, body, says):
    """A proxy's or a sign-in's page stands there in passing; JSON is JSON whatever its type."""
    answer = Answer(status=200, headers=(("Content-Type", kind),), body=body)
    assert read(answer, "location").status == says
    assert read(Answer(status=200, body=body), "location").status == "succeeded"


@pytest.mark.parametrize(
    ("body", "result", "place", "error", "nothing"),
    [
        ({"status": "done", "output": 7}, (7, True), None, None, False),
        ({"status": "done", "result": None}, (None, True), None, None, False),
        ({"status": "done", "resourceLocation": "/r"}, (None, False), "/r", None, False),
        ({"status": "done", "resultUrl": ""}, (None, False), None, None, False),
        ({"status": "failed", "error": {"code": "full"}}, (None, False), None, {"code": "full"}, False),
        ({"status": "failed", "errors": ["a"]}, (None, False), None, ["a"], False),
        ({"done": True}, (None, False), None, None, True),
        ({"status": "failed", "summary": {"failed": 3}}, ({"summary": {"failed": 3}}, True), None, None, False),
        ({"done": True, "response": 1}, (1, True), None, None, False),
    ],
)
def test_what_an_end_holds(body, result, place, error, nothing):
    """Its result, or where that stands, or what went wrong; "ended without a word and a result" is told apart."""
    found = read(body)
    assert (found.result, found.has_result) == result
    assert (found.result_url, found.error, found.nothing_said) == (place, error, nothing)


@pytest.mark.parametrize(
    ("body", "percent"),
    [
        ({"progress_percent": 45}, 45.0),
        ({"percentComplete": 12.5}, 12.5),
        ({"progress_percent": 250}, 100.0),
        ({"progress_percent": "half"}, None),
        ({}, None),
    ],
)
def test_progress_is_per_cent(body, percent):
    """Never more than a hundred; what is no number is not told."""
    assert read(body | {"status": "running"}).progress == percent


STARTS = {
    "of-the-request": ("body", {"status": "success", "status_url": "/s"}, "running"),
    "bare-of-the-request": ("bare", {"status": "ok", "message": "queued"}, "running"),
    "with-done": ("body", {"status": "success", "done": True}, "succeeded"),
    "with-a-result": ("bare", {"status": "success", "result": 1}, "succeeded"),
    "a-failure-is-one": ("body", {"status": "failed"}, "failed"),
    "L4-azure-failed": ("operation-location", {"status": "Failed", "error": {"code": "x"}}, "failed"),
    "azure-succeeded": ("operation-location", {"status": "Succeeded"}, "succeeded"),
    "not-done-whatever-it-says": ("body", {"status": "success", "done": False, "result": None}, "running"),
    "the-sources-start": ("body", STARTED, "running"),
}


@pytest.mark.parametrize(("protocol", "body", "says"), STARTS.values(), ids=STARTS)
def test_what_a_start_says_of_its_end(protocol, body, says):
    """A 202's "success" may speak of the request: it counts with ``done`` or a result, a failure always does."""
    assert read_start(started(body), handle(protocol), POLICY, now=START).status == says


def test_a_start_that_is_no_end_keeps_its_words():
    """Of the success that it seemed to tell nothing is left."""
    body = {"status": "success", "message": "queued", "progress_percent": 1, "errors_url": "/e"}
    found = read_start(started(body), handle("body"), POLICY, now=START)
    assert found == JobReading(message="queued", progress=1.0)


def test_an_adapters_job_is_read_by_it():
    """It alone knows the words; a job that was found by the usual forms is read by the usual words."""
    seen = []
    ended = JobReading(status="cancelled", counts={"n": 1})
    policy = PollPolicy(adapter=JobAdapter(start=lambda _: None, read=lambda answer: seen.append(answer) or ended))
    assert read_job(json_answer(200, {"st": 4}), handle("adapter"), policy, now=START) == ended
    assert (seen[0].body, seen[0].url) == ({"st": 4}, handle().url)
    assert read_job(json_answer(200, ENDS), handle("body"), policy, now=START).status == "succeeded"


WORDS = [(word, status) for status, words in TABLE for word in words.split()]


@pytest.mark.parametrize(("word", "status"), WORDS)
@pytest.mark.parametrize("done", [{}, {"done": True}], ids=["alone", "done"])
def test_known_words_count_beside_done_too(word, status, done):
    """``done`` makes no success of a failure, and no end of what still runs."""
    assert read({"status": word.title().replace("_", "-"), **done}).status == status


def test_no_word_says_two_things():
    """Nor does one stand in the table twice."""
    assert len({word.replace("_", "") for word, _ in WORDS}) == len(WORDS)


@pytest.mark.parametrize(
    ("status", "word"), [("archived", "archived"), (7, "7"), (["x" * 200], '["' + "x" * 98)], ids=["text", "7", "list"]
)
def test_an_end_in_a_word_that_is_not_known_is_no_success(status, word):
    """Nobody knows what it is; the word is kept, and a result beside it changes nothing."""
    found = read({"done": True, "status": status, "result": 1})
    assert (found.status, found.word) == ("unknown", word)


def test_a_policys_own_words_go_first():
    """They say what a word means that is not known, or that means something else with this tool."""
    policy = PollPolicy(words={"Archived": "succeeded", "terminated": "completed_with_errors"})
    for word, says in (("ARCHIVED", "succeeded"), ("Terminated", "completed_with_errors"), ("killed", "failed")):
        body = json_answer(200, {"done": True, "status": word})
        assert read_job(body, handle(), policy, now=START).status == says


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (3, "succeeded"),
        ("3", "succeeded"),
        (-3, "failed"),
        ("-3", "failed"),
        (4, "running"),
        (3.0, "running"),
        (True, "running"),
    ],
)
def test_a_policys_own_words_may_be_numbers(told, says):
    """Declared as text; a number keeps its sign, and one that is not declared says nothing."""
    policy = PollPolicy(words={"3": "succeeded", "-3": "failed", "True": "succeeded"})
    for member in ("status", "state"):
        assert read_job(json_answer(200, {member: told}), handle(), policy, now=START).status == says


def test_a_policys_own_words_are_a_copy():
    """What becomes of the dict that was given changes no policy; equal ones are one in a set, also after a pickle."""
    given = {"fertig": "succeeded"}
    policy = PollPolicy(words=given)
    given["fertig"] = "failed"
    same = PollPolicy(words={"fertig": "succeeded"})
    assert policy.words == {"fertig": "succeeded"}
    assert len({policy, same, pickle.loads(pickle.dumps(policy)), PollPolicy()}) == 2
    assert "words={'fertig': 'succeeded'}" in repr(policy)
    assert replace(policy, cap=90.0).words == policy.words
    with pytest.raises(TypeError):
        policy.words["fertig"] = "failed"


@pytest.mark.parametrize("words", [{"": "failed"}, {" - ": "failed"}, {"a b": "failed", "A_B": "succeeded"}])
def test_words_that_say_nothing_or_two_things_are_refused(words):
    """When the policy is built."""
    with pytest.raises(ConfigError, match="words has"):
        PollPolicy(words=words)


def test_words_mean_one_of_the_usual_words():
    """Anything else is refused with what it takes."""
    with pytest.raises(ConfigError, match="'succeeded'"):
        PollPolicy(words={"archived": "archived"})


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ((("Retry-After", "5"),), "running"),
        ((("Retry-After", "0"),), "succeeded"),
        ((("RateLimit", '"a";r=0;t=5'),), "succeeded"),
    ],
)
def test_a_200_of_a_location_that_asks_to_wait_is_no_result(headers, says):
    """``Retry-After`` says "not yet"; that no rate is left says nothing about the job."""
    assert read({"id": 1}, "location", headers=headers).status == says


def test_a_state_beside_a_result_is_a_status():
    """Then the result is the member, not the page."""
    found = read({"state": "succeeded", "result": 7}, "location")
    assert (found.is_result, found.result) == (False, 7)
    assert read({"state": "succeeded", "rows": 7}, "location").is_result


@pytest.mark.parametrize(
    ("body", "another"),
    [
        ({"job_id": "job_other"}, True),
        ({"job_id": "job_7f21c"}, False),
        ({"job_id": 7}, True),
        ({"job_id": None}, False),
        ({"task_id": "t", "id": "i"}, False),
        ({"data": {"job_id": "job_other"}}, True),
        ({"job_id": "envelope", "data": {"job_id": "job_7f21c"}}, False),
        ({}, False),
    ],
)
def test_a_body_may_name_another_job(body, another):
    """In the member in which the start named this one; an ``id`` may be the answer's own."""
    assert names_another(body, handle(id_from="job_id")) is another
    for other in (handle(id_from="id"), handle(), handle(id_from="job_id", job_id=None)):
        assert not names_another(body, other)


class NoJson(dict):
    """What cannot be written: it holds itself."""

    def __init__(self):
        super().__init__(me=self)


@pytest.mark.parametrize("told", [None, {"status": "succeeded"}, "done", JobReading(result=NoJson())])
def test_what_an_adapter_returns_is_checked(told):
    """Anything but a reading that can be stored is refused, in words that say what it was."""
    policy = PollPolicy(adapter=JobAdapter(start=lambda _: None, read=lambda _: told))
    with pytest.raises(ConfigError, match=r"JobAdapter\.read"):
        read_job(json_answer(200, {}), handle("adapter"), policy, now=START)


def test_an_adapters_hint_is_capped_and_zero_is_none():
    """As the hint of any answer."""
    for given, wait in ((0.0, None), (5.0, 5.0), (1e12, LONGEST_HINT)):
        policy = PollPolicy(adapter=JobAdapter(start=lambda _: None, read=lambda _, g=given: JobReading(poll_after=g)))
        assert read_job(json_answer(200, {}), handle("adapter"), policy, now=START).poll_after == wait


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "processing"},
        {"status": None},
        {"progress": NAN},
        {"progress": -1.0},
        {"poll_after": NAN},
        {"poll_after": INF},
        {"poll_after": -5.0},
        {"poll_after": "30"},
        {"result_url": 7},
        {"counts": [1]},
        {"message": b"x"},
    ],
)
def test_a_reading_holds_our_words_and_usable_numbers(wrong):
    """The tool's own word, or a wait that is none, is refused where it is made."""
    with pytest.raises(ConfigError, match="JobReading"):
        JobReading(**wrong)


@pytest.mark.parametrize("wrong", [{"url": 7}, {"job_id": 7}, {"poll_after": NAN}, {"estimated": -1.0}])
def test_a_start_holds_text_and_usable_numbers(wrong):
    """So it is refused before anything is made of it."""
    with pytest.raises(ConfigError, match="JobStart"):
        JobStart(**wrong)
