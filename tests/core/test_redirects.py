"""Our one rule for redirects."""

import pytest

from agent_runtime._core.redirects import redirect_of
from agent_runtime._model import Answer, Request

POST = Request(method="POST", url="https://a.test/x/y", body=b"{}", headers=(("Idempotency-Key", "k"),))
GET = Request(method="GET", url="https://a.test/x/y")


def follow(status, location="/z", request=POST, url=""):
    headers = () if location is None else (("Location", location),)
    return redirect_of(request, Answer(status=status, headers=headers, url=url))


@pytest.mark.parametrize("status", [301, 302])
def test_A28_a_301_or_302_to_a_write_is_not_followed(status):
    """Clients disagree on what they would repeat, so nothing is."""
    assert follow(status) is None
    assert follow(status, request=GET).url == "https://a.test/z"


def test_A28_a_303_is_followed_by_get_without_body_and_key():
    """The request was answered; what is fetched is its result."""
    following = follow(303)
    assert (following.method, following.url, following.body) == ("GET", "https://a.test/z", b"")
    assert "Idempotency-Key" not in dict(following.headers)


@pytest.mark.parametrize("status", [307, 308])
def test_A28_a_307_or_308_keeps_method_body_and_key(status):
    """The same request goes to the other path."""
    following = follow(status)
    assert (following.method, following.body, following.headers) == ("POST", b"{}", POST.headers)
    assert following.url == "https://a.test/z"


@pytest.mark.parametrize(
    "location",
    ["https://b.test/z", "http://a.test/z", "https://a.test:8443/z", "//b.test/z", "https://u:p@a.test/z", None, ""],
)
def test_A28_another_origin_is_not_followed(location):
    """Neither body nor credentials go to another scheme, host or port."""
    for status in (303, 307, 308):
        assert follow(status, location) is None


@pytest.mark.parametrize("status", [200, 201, 300, 304, 400])
def test_what_is_no_redirect_is_not_followed(status):
    """A Location beside another status names something else."""
    assert follow(status) is None


def test_a_target_is_relative_to_where_the_answer_came_from():
    """A relative target is seen from the URL that answered."""
    assert follow(307, "w", url="https://a.test/p/q").url == "https://a.test/p/w"
