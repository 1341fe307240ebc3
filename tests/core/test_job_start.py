"""Whether an answer started a job: the table of forms, first match wins, and what of an answer is kept."""

import dataclasses

import pytest

from agent_runtime._core.job_start import LONGEST_HINT, LONGEST_TOLD, job_answer, parsed, poll_hint, start_of
from agent_runtime._model import Answer, BodyState, Request
from agent_runtime.config import PollPolicy
from agent_runtime.config.jobs import JobAdapter, JobStart
from tests.core.job_world import JOB_URL, ORIGIN, STARTED, started
from tests.core.world import START, json_answer

TARGET = f"{ORIGIN}/v1/things"
OPERATION, AZURE, LOCATION = {"Operation-Location": "/op"}, {"Azure-AsyncOperation": "/az"}, {"Location": "/l"}
AIP = {"name": "operations/7", "done": False}
CREATING = {"properties": {"provisioningState": "Creating"}}


def start(answer, method="POST", url=TARGET, **policy):
    return start_of(answer, Request(method=method, url=url), PollPolicy(**policy), now=START)


FORMS = {
    "operation-location-202": (started({}, headers=OPERATION), "POST", "operation-location", "/op"),
    "operation-location-200": (started({}, status=200, headers=OPERATION), "POST", "operation-location", "/op"),
    "operation-location-201": (started({}, status=201, headers=OPERATION), "PUT", "operation-location", "/op"),
    "operation-before-azure": (started({}, headers=AZURE | OPERATION), "POST", "operation-location", "/op"),
    "azure-201": (started({}, status=201, headers=AZURE), "PUT", "azure-async", "/az"),
    "azure-before-location": (started({}, headers=AZURE | LOCATION), "POST", "azure-async", "/az"),
    "empty-header-is-none": (started({}, headers={"Operation-Location": ""} | LOCATION), "POST", "location", "/l"),
    "aip-202": (started(AIP), "POST", "aip", "/v1/operations/7"),
    "aip-200": (started(AIP, status=200), "POST", "aip", "/v1/operations/7"),
    "aip-before-location": (started(AIP, headers=LOCATION), "POST", "aip", "/v1/operations/7"),
    "aip-done": (started({"name": "v1/x", "done": True}), "POST", "aip", "/v1/x"),
    "aip-with-version": (started(AIP | {"name": "v1/operations/7"}), "POST", "aip", "/v1/operations/7"),
    "location": (started({}, headers=LOCATION), "POST", "location", "/l"),
    "location-before-body": (started(headers=LOCATION), "POST", "location", "/l"),
    "body": (started(), "POST", "body", "/v1/jobs/job_7f21c"),
    "body-statusUrl": (started({"statusUrl": "/s"}), "POST", "body", "/s"),
    "body-links-status": (started({"links": {"self": "/b", "status": "/a"}}), "POST", "body", "/a"),
    "body-links-self": (started({"links": {"self": {"href": "/b"}}}), "POST", "body", "/b"),
    "body-passes-over-what-is-no-url": (started({"status_url": 7, "status_uri": "/s"}), "POST", "body", "/s"),
    "resource-put": (started(CREATING, status=201), "PUT", "resource", "/v1/things"),
    "resource-patch": (started(CREATING, status=200), "PATCH", "resource", "/v1/things"),
    "bare": (started({"job_id": "j"}), "POST", "bare", None),
    "bare-without-a-body": (started(None), "POST", "bare", None),
    "bare-not-json": (Answer(status=202, body=b"accepted"), "POST", "bare", None),
    "bare-cut": (Answer(status=202, body=b"{}", body_state=BodyState.CUT), "POST", "bare", None),
    "bare-nowhere": (started({"status_url": "/a b"}), "POST", "bare", None),
    "bare-links-are-no-object": (started({"links": ["/s"]}), "POST", "bare", None),
}


@pytest.mark.parametrize(("answer", "method", "protocol", "url"), FORMS.values(), ids=FORMS)
def test_each_form_of_a_start_is_recognised(answer, method, protocol, url):
    """The forms of Azure, AIP-151, RFC 9110 and the sources' bodies, in this order; a 202 is always a job."""
    found = start(answer, method)
    assert (found.protocol, found.url) == (protocol, None if url is None else ORIGIN + url)
    assert found.started_at == START


PLAIN = {
    "result": (json_answer(200, {"id": 1}), "POST"),
    "empty": (json_answer(204), "POST"),
    "a-list": (json_answer(200, [{"done": False}]), "POST"),
    "a-to-do-is-no-operation": (json_answer(200, {"name": "buy milk", "done": False}), "POST"),
    "an-operation-that-is-read": (json_answer(200, AIP), "GET"),
    "a-location-of-what-was-made": (json_answer(201, {}, (("Location", "/l"),)), "POST"),
    "a-status-url-under-200": (json_answer(200, STARTED), "POST"),
    "a-resource-that-is-there": (json_answer(201, {"properties": {"provisioningState": "Succeeded"}}), "PUT"),
    "a-resource-of-no-state": (json_answer(200, {"properties": [1]}), "PUT"),
    "a-resource-under-POST": (json_answer(200, CREATING), "POST"),
}


@pytest.mark.parametrize(("answer", "method"), PLAIN.values(), ids=PLAIN)
def test_a_plain_result_is_no_job(answer, method):
    """Nothing that only looks like a job is waited for."""
    assert start(answer, method) is None


def test_a_tool_may_declare_that_its_200_starts_jobs():
    """Then the body's forms count under 200 as under 202."""
    assert start(json_answer(200, STARTED), on_200=True).url == JOB_URL
    assert start(json_answer(200, {"name": "x7", "done": False}), on_200=True).protocol == "aip"
    assert start(json_answer(200, {"ok": True}), on_200=True) is None


@pytest.mark.parametrize(
    ("target", "name", "url"),
    [
        (f"{ORIGIN}/v2beta1/x", "projects/p/operations/7", "/v2beta1/projects/p/operations/7"),
        (f"{ORIGIN}/things", "operations/7", "/operations/7"),
        (f"{ORIGIN}/videos/x", "operations/7", "/operations/7"),
        (ORIGIN, "/operations/7", "/operations/7"),
    ],
)
def test_an_operations_name_is_its_path_below_the_version(target, name, url):
    """AIP-151: where the target's path begins with a version, so does the operation's."""
    assert start(started({"name": name, "done": False}), url=target).url == ORIGIN + url


def test_a_status_beside_done_is_no_operation_of_aip():
    """The sources' bodies have both; they are read by their status."""
    assert start(started(AIP | {"status": "x"})).protocol == "bare"
    assert start(started({"name": 7, "done": False})).protocol == "bare"


def test_a_start_may_name_the_place_of_its_result():
    """Beside an operation's URL, Location is where the result of a POST will stand; of a PUT it is the resource."""
    answer = started({}, headers=OPERATION | LOCATION)
    assert start(answer).result_url == "/l"
    assert start(answer, "PUT").result_url is None


@pytest.mark.parametrize(
    ("body", "job_id"),
    [
        ({"job_id": "j", "id": "i"}, "j"),
        ({"job_id": "", "taskId": "t"}, "t"),
        ({"operation_id": 7}, "7"),
        ({"id": True, "name": "n"}, "n"),
        ({"id": None}, None),
    ],
)
def test_a_jobs_id_is_read_from_the_body(body, job_id):
    """Text or a whole number, under the usual names."""
    assert start(started(body)).job_id == job_id


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({}, {}, None),
        ({"Retry-After": "7"}, {}, 7.0),
        ({}, {"poll_after_seconds": 30}, 30.0),
        ({}, {"pollInterval": 2500}, 2.5),
        ({}, {"pollIntervalMs": 1500}, 1.5),
        ({"Retry-After": "7"}, {"poll_after_seconds": 30}, 30.0),
        ({"Retry-After": "70"}, {"poll_after_seconds": 30}, 70.0),
        ({"Retry-After": "0"}, {"poll_after_seconds": 0}, None),
        ({}, {"poll_after_seconds": True}, None),
        ({}, {"poll_after_seconds": "30"}, 30.0),
        ({}, {"poll_after_seconds": "1e3"}, None),
        ({}, {"poll_after_seconds": "half a minute"}, None),
        ({}, {"poll_after_seconds": -1}, None),
        ({}, {"poll_after_seconds": float("nan")}, None),
        ({}, {"poll_after_seconds": 1e14}, LONGEST_HINT),
    ],
)
def test_the_longest_hint_is_the_least_wait(headers, body, seconds):
    """Retry-After and the members of a body; zero asks for nothing, what is no number says nothing."""
    assert poll_hint(started(body, headers=headers), body, now=START) == seconds


def test_what_a_start_tells_is_kept():
    """The wait and the time that the job is said to take."""
    found = start(started())
    assert (found.poll_after, found.estimated, found.job_id) == (30.0, 240.0, "job_7f21c")


HERE = {"status_url": "/s"}


@pytest.mark.parametrize(
    "url",
    [
        "http://tools.test/l",
        "https://internal.local/l",
        "https://u:p@tools.test/l",
        "ftp://tools.test/l",
        "/" + "x" * 20_000,
        "https://tools.test:99999/l",
    ],
)
@pytest.mark.parametrize("header", ["Location", "Operation-Location", "Azure-AsyncOperation"])
def test_a_form_whose_url_cannot_be_used_yields_to_one_whose_can(header, url):
    """A proxy that ends TLS names http; nothing goes there, and the body's own URL is good."""
    found = start(started(HERE, headers={header: url}))
    assert (found.protocol, found.url, found.obstacle) == ("body", f"{ORIGIN}/s", None)
    other = "Location" if header == "Azure-AsyncOperation" else "Azure-AsyncOperation"
    beside = start(started({}, headers={header: url, other: "/b"}))
    assert (beside.url, beside.obstacle) == (f"{ORIGIN}/b", None)


def test_a_header_says_that_it_is_a_job_where_its_url_cannot_be_used():
    """So the body's URL counts under 200 too."""
    answer = started(HERE, status=200, headers={"Operation-Location": "http://tools.test/l"})
    assert start(answer).url == f"{ORIGIN}/s"


@pytest.mark.parametrize(
    ("told", "obstacle"),
    [
        ("https://u:p@tools.test/l", "unusable"),
        ("/" + "x" * 20_000, "unusable"),
        ("//[", "unusable"),
        ("http://tools.test/l", "elsewhere"),
    ],
    ids=["userinfo", "long", "malformed", "http"],
)
@pytest.mark.parametrize("where", ["Location", "Operation-Location", "status_url"])
def test_a_url_that_cannot_be_used_is_an_obstacle(where, told, obstacle):
    """Malformed, too long, or of another origin: nobody can ask, and it is said why; nothing is raised."""
    answer = started({where: told}) if where == "status_url" else started({}, headers={where: told})
    assert start(answer).obstacle == obstacle


@pytest.mark.parametrize("name", ["operations/../../admin", "operations/%2e%2e/x", "./x", "operations/7?x", "o/7#x"])
def test_an_operations_name_does_not_leave_its_place(name):
    """It is a path below the version, and nothing else of the tool is asked by it."""
    found = start(started({"name": name, "done": False}))
    assert (found.url, found.obstacle) == (None, "unusable")


OTHER = "https://jobs.test/s"


@pytest.mark.parametrize(
    ("answer", "policy", "url", "obstacle"),
    [
        (started({"status_url": OTHER}), {}, OTHER, "elsewhere"),
        (started({"status_url": OTHER}), {"origins": ("https://jobs.test",)}, OTHER, None),
        (started({"status_url": OTHER, "links": {"self": "/s"}}), {}, f"{ORIGIN}/s", None),
        (started({"links": {"self": OTHER}}), {}, OTHER, "elsewhere"),
        (started({}, headers={"Location": OTHER}), {}, OTHER, "elsewhere"),
        (started({"status_url": OTHER}, status=200), {"on_200": True}, OTHER, "elsewhere"),
    ],
)
def test_a_status_url_of_another_origin_is_kept(answer, policy, url, obstacle):
    """One that may be asked goes first; else the job is where the tool says, whether anybody may ask there or not."""
    found = start(answer, **policy)
    assert (found.url, found.obstacle) == (url, obstacle)


def test_a_link_of_another_origin_is_no_job_under_a_declared_200():
    """There it may point to anything."""
    assert start(json_answer(200, {"links": {"self": OTHER}}), on_200=True) is None


@pytest.mark.parametrize(
    ("told", "url"),
    [
        ("/v1/jobs/1/events", f"{ORIGIN}/v1/jobs/1/events"),
        ("https://evil.test/e", None),
        ("/a b", None),
        (7, None),
    ],
)
def test_a_stream_is_on_the_tools_origin(told, url):
    """Its URL stands in the declared member, and gets the token."""
    assert start(started(STARTED | {"events": told}), stream="events").stream == url
    assert start(started(STARTED | {"events": told})).stream is None


def adapter(function):
    return JobAdapter(start=function, read=lambda answer: None)


def _raises(answer):
    raise KeyError(answer)


def test_an_adapter_goes_before_all_forms():
    """It sees the answer as plain values, and its word counts."""
    seen = []

    def read(answer):
        seen.append(answer)
        return JobStart(url="/mine", poll_after=3.0, estimated=9.0)

    found = start(started(headers=OPERATION | {"X-Job": "7"}), adapter=adapter(read))
    assert (found.protocol, found.url, found.poll_after, found.estimated) == ("adapter", f"{ORIGIN}/mine", 3.0, 9.0)
    assert found.job_id == "job_7f21c", "one that names no id leaves it to the body"
    assert (seen[0].status, seen[0].headers["x-job"], seen[0].body, seen[0].url) == (202, "7", STARTED, TARGET)
    assert start(started(), adapter=adapter(lambda _: JobStart(job_id="mine"))).job_id == "mine"


def test_an_adapter_that_knows_nothing_leaves_it_to_the_usual_forms():
    """None means: look for yourself."""
    nothing = adapter(lambda _: None)
    assert start(started(), adapter=nothing).protocol == "body"
    assert start(json_answer(200, {}), adapter=nothing) is None


def test_an_adapter_that_raises_makes_no_answer_a_result():
    """Whether there is a job cannot be told, so it is not said to be done."""
    assert start(started(), adapter=adapter(_raises)).protocol == "body"
    found = start(json_answer(200, {"id": "i"}), adapter=adapter(_raises))
    assert (found.protocol, found.job_id) == ("bare", "i")


def test_an_adapter_sees_where_the_answer_came_from():
    """After a redirect that is not the URL that was asked; what is no JSON is None."""
    answer = dataclasses.replace(Answer(status=202, body=b"<p>"), url=f"{ORIGIN}/moved")
    assert (job_answer(answer, TARGET).url, job_answer(answer, TARGET).body) == (f"{ORIGIN}/moved", None)
    assert parsed(json_answer(200, "text")) == "text"


WRONG_STARTS = {
    "a plain URL": (lambda _: "/jobs/1", "not str"),
    "an object": (lambda _: {"url": "/jobs/1"}, "not dict"),
    "a number for an id": (lambda _: JobStart(job_id=7), "job_id takes text"),
    "no number": (lambda _: JobStart(url="/j", poll_after=float("nan")), "poll_after takes a finite number"),
    "a URL of another scheme": (lambda _: JobStart(url="ftp://x/1"), "a url that cannot be used"),
    "a URL that is too long": (lambda _: JobStart(url="/" + "x" * 70_000), "a url that cannot be used"),
    "raised": (_raises, "it raised KeyError"),
}


@pytest.mark.parametrize(("function", "said"), WRONG_STARTS.values(), ids=WRONG_STARTS)
def test_a_wrong_start_of_an_adapter_is_an_obstacle_and_no_exception(function, said):
    """The usual forms go on where they can; else nobody knows where to ask, and it is said why."""
    found = start(started(), adapter=adapter(function))
    assert (found.protocol, found.url, found.obstacle) == ("body", JOB_URL, None)
    found = start(started({"job_id": "j"}), adapter=adapter(function))
    assert (found.url, found.job_id, found.obstacle) == (None, "j", "adapter")
    assert said in found.elsewhere


def test_numbers_of_a_start_are_capped():
    """What is beyond means something else."""
    told = JobStart(url="/j", poll_after=1e12, estimated=1e12)
    found = start(started(), adapter=adapter(lambda _: told))
    assert (found.poll_after, found.estimated) == (LONGEST_HINT, LONGEST_TOLD)
    assert start(started(), adapter=adapter(lambda _: JobStart(url="/j", poll_after=0.0))).poll_after is None
    assert start(started({"estimated_duration_seconds": 1e12})).estimated == LONGEST_TOLD
