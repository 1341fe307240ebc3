"""Where URLs point."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime._core.urls import check_url, origin, resolve, same_origin
from agent_runtime.errors import ConfigError

BASE = "https://tools.test/api/run?x=1"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://Tools.Test/a", "https://tools.test:443"),
        ("HTTP://h:8080", "http://h:8080"),
        ("http://h:80/", "http://h:80"),
        ("https://[2001:DB8::1]/x", "https://[2001:db8::1]:443"),
        ("https://user:pw@h/", "https://h:443"),
    ],
)
def test_an_origin_is_scheme_host_and_port(url, expected):
    """An origin is written in lower case, with its port."""
    assert origin(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/a",
        "ftp://h/",
        "https://",
        "https:///a",
        "http://h:99999/",
        "http://[::1/",
        "http://h%41/",
        "http://a..b/",
        "http://.",
        "http://" + "a" * 64,
        "javascript:x",
    ],
)
def test_what_is_no_http_url_has_no_origin(url):
    """What is no absolute http or https URL is refused, and the text does not repeat it."""
    with pytest.raises(ConfigError) as caught:
        origin(url)
    assert len(url) < 3 or url not in str(caught.value)
    assert not same_origin(url, url)


@pytest.mark.parametrize(
    "location", ["/jobs/1", "https://tools.test/jobs/1", "https://TOOLS.test:443/jobs/1", "../jobs/1"]
)
def test_A38_same_origin_targets(location):
    """Relative and absolute links to the same scheme, host and port stay on the origin."""
    url = resolve(BASE, location)
    assert url.lower().endswith("/jobs/1")
    assert same_origin(BASE, url)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("jobs/1", "https://tools.test/api/jobs/1"),
        ("?op=1", "https://tools.test/api/run?op=1"),
        ("/a#part", "https://tools.test/a"),
        (" /a\t", "https://tools.test/a"),
        ("/cafÃ©", "https://tools.test/caf%C3%A9"),
    ],
)
def test_A38_relative_targets(location, expected):
    """A link is resolved against the URL that was asked; fragments go, raw bytes are percent-encoded."""
    assert resolve(BASE, location) == expected


@pytest.mark.parametrize(
    "location",
    [
        "//evil.test/j",
        "https://evil.test/j",
        "http://tools.test/j",
        "https://tools.test:8443/j",
        "https://tools.test.evil.test/j",
        "https://tools.test%2eevil.test@evil.test/j",
        "https://tools.test@evil.test/",
    ],
)
def test_A38_other_origins_are_told_apart(location):
    """Another host, a downgrade, another port and look-alikes are never the same origin."""
    url = resolve(BASE, location)
    assert url is None or not same_origin(BASE, url)


@pytest.mark.parametrize(
    "location",
    [
        "",
        " ",
        "javascript:alert(1)",
        "ftp://tools.test/x",
        "/\\evil.test/j",
        "\\\\evil.test",
        "/a\r\nX: y",
        "/a\x00b",
        "https://user:pw@tools.test/j",
        "https://[bad/j",
        "https://tools.test:x/j",
        "/a b",
    ],
)
def test_A38_targets_that_must_not_be_followed(location):
    """Other schemes, credentials, backslashes, control characters and broken URLs give nothing to follow."""
    assert resolve(BASE, location) is None


@given(st.text())
def test_no_location_raises(location):
    """Whatever a server names, the target is None or a URL that can be sent as it stands."""
    url = resolve(BASE, location)
    if url is not None:
        check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://h/a b",
        "https://h/é",
        "https://h/a\n",
        "https://h/a#b",
        "https://user:CANARY@h/",
        "https://CANARY@h/",
        "h/a",
    ],
)
def test_urls_that_cannot_be_sent_as_they_stand(url):
    """A URL that would be changed, or that holds a password, is refused; the text does not hold it."""
    with pytest.raises(ConfigError) as caught:
        check_url(url)
    assert "CANARY" not in str(caught.value)


def test_a_proper_url_passes():
    """An encoded absolute URL is taken."""
    check_url("https://h:8443/a/../b%20c?x='1'&y=%C3%A9@")
