"""The waits that servers ask for."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime._core.retry_after import http_date, retry_after

NOW = 1767225600.0  # 2026-01-01T00:00:00Z


def ask(*headers, status=429):
    return retry_after(tuple(headers), now=NOW, status=status)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        ("  5 ", 5),
        ("\t5", 5),
        ("00010", 10),
        ("1.5", 1.5),
        ("99999999999", math.inf),
        ("99999999999999999999", math.inf),
        ("Thu, 01 Jan 2026 00:02:00 GMT", 120),
        ("Thu, 01 Jan 2026 00:02:00 UTC", 120),
        ("Thu, 01 Jan 2026 07:02:00 +0700", 120),
        ("Thu, 01 Jan 2026 00:02:00 -0000", 120),
        ("Thursday, 01-Jan-26 00:02:00 GMT", 120),
        ("Thu Jan  1 00:02:00 2026", 120),
        ("Thu Jan 01 00:02:00 2026", 120),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0),
        ("Friday, 31-Dec-99 23:59:59 GMT", 0),
        ("2026-01-01T00:02:00Z", None),
        ("tomorrow", None),
        ("Thu, 32 Jan 2026 00:02:00 GMT", None),
        ("Thu, 01 Jan 2026 25:02:00 GMT", None),
        ("-1", None),
        ("+5", None),
        ("1e3", None),
        ("inf", None),
        ("nan", None),
        ("1_000", None),
        ("", None),
        ("5, 10", None),
        ("5;", None),
        ("٣", None),
        ("²", None),
        (".5", None),
        ("5.", None),
    ],
)
def test_each_form_of_retry_after(value, seconds):
    """A Retry-After value is read by the table, and what is in no form of it is as if absent."""
    assert ask(("Retry-After", value)) == seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2", 2),
        ("0.503", 0.503),
        (" 3 ", 3),
        ("Thu, 01 Jan 2026 00:00:05 GMT", 5),
        ("Wed, 31 Dec 2025 23:59:00 GMT", 0),
        ("1m0s", None),
        ("", None),
    ],
)
def test_A22_fractions_dates_and_durations(value, seconds):
    """A fraction and a date are honoured; a Go duration and nothing at all leave it to the back-off."""
    assert ask(("retry-after", value)) == seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("9999999999", 9999999999),
        ("9" * 310, math.inf),
        ("9" * 5000, math.inf),
        ("9" * 5000 + ".5", math.inf),
        ("Fri, 31 Dec 9999 23:59:59 GMT", math.inf),
        ("Fri, 31 Dec 9999 23:59:59 -2359", math.inf),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Sat, 01 Jan 0000 00:00:00 GMT", None),
        ("Mon, 01 Jan 0050 00:00:00 GMT", None),
        ("Mon, 01 Jan 1000 00:00:00 +2359", 0),
    ],
)
def test_A23_hostile_numbers(value, seconds):
    """Hostile values give a number that can be waited for, endless, or nothing, and never an exception."""
    assert ask(("Retry-After", value)) == seconds


def test_the_longest_of_several_wins():
    """Of several Retry-After lines the longest valid one counts; an invalid one beside it does no harm."""
    assert ask(("Retry-After", "5"), ("retry-after", "x"), ("RETRY-AFTER", "10")) == 10


@pytest.mark.parametrize(
    ("date", "seconds"),
    [
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60),
        ("Wed, 31 Dec 2025 00:00:30 GMT", 86_490),
        ("Thu, 01 Jan 2015 00:01:00 GMT", 120),
        ("Thu, 01 Jan 2099 00:01:00 GMT", 120),
        ("nonsense", 120),
    ],
)
def test_dates_count_from_the_servers_clock(date, seconds):
    """A date counts from the answer's Date header, unless that is more than a day off."""
    assert ask(("Retry-After", "Thu, 01 Jan 2026 00:02:00 GMT"), ("Date", date)) == seconds


@pytest.mark.parametrize("name", ["retry-after-ms", "x-ms-retry-after-ms", "X-Amz-Retry-After"])
def test_milliseconds_count_where_there_is_no_retry_after(name):
    """The vendors' headers in milliseconds are read only if Retry-After gives nothing."""
    assert ask((name, "1500")) == 1.5
    assert ask((name, "1500"), ("Retry-After", "7")) == 7
    assert ask((name, "1500"), ("Retry-After", "never")) == 1.5
    assert ask((name, "9" * 400)) == math.inf
    assert ask((name, "-1")) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ('"default";r=0;t=50', 50),
        ('"a";r=0;t=50, "b";r=0;t=60,"c";r=1;t=99', 60),
        ("token;r=0; t=50", 50),
        ('"a, b;r=0";r=5;t=50', None),
        ('"a";r=5;t=50', None),
        ('"a";r=0', None),
        ('"a";r=0;t=2026-01-01', None),
        ('"a";r=0;t=50 junk', None),
        ('"a;r=0;t=50', None),
        ('"a";r=0;t=50,', None),
        ("", None),
    ],
)
def test_rate_limit_with_nothing_left(value, seconds):
    """RateLimit asks for a wait where a policy has nothing left; a malformed one is ignored."""
    assert ask(("RateLimit", value)) == seconds


def test_R5_retry_after_goes_before_rate_limit():
    """Where both stand, Retry-After wins, even if it is shorter."""
    assert ask(("RateLimit", '"a";r=0;t=50'), ("Retry-After", "20")) == 20
    assert ask(("RateLimit", '"a";r=0;t=50'), ("retry-after-ms", "20000")) == 20


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30", 30),
        ("1.5", 1.5),
        ("1767225630", 30),
        ("1767225630000", 30),
        ("1700000000", 0),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30),
        ("6m0s", None),
    ],
)
def test_the_vendors_reset_is_told_apart_by_size(value, seconds):
    """X-RateLimit-Reset is seconds, epoch seconds, epoch milliseconds or a date, told apart by its size."""
    assert ask(("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", value)) == seconds


def test_the_vendors_reset_needs_nothing_left_and_a_refusal():
    """X-RateLimit-Reset counts only with nothing remaining, and only on 403 and 429."""
    reset = ("X-RateLimit-Reset", "30")
    assert ask(reset) is None
    assert ask(reset, ("X-RateLimit-Remaining", "1")) is None
    assert ask(reset, ("X-RateLimit-Remaining", "0"), status=403) == 30
    assert ask(reset, ("X-RateLimit-Remaining", "0"), status=200) is None
    assert ask(("X-RateLimit-Remaining", "0")) is None


def test_no_header_asks_for_nothing():
    """Without any such header there is no wait."""
    assert ask(("Content-Type", "text/plain")) is None


NAMES = ["Retry-After", "retry-after-ms", "RateLimit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Date"]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.text() | st.from_regex(r"[0-9 :,.;=\"rtGMTJan+-]*"))))
def test_no_header_text_raises(headers):
    """Whatever a server writes, the wait is None or a number of seconds from 0 on."""
    wait = retry_after(tuple(headers), now=NOW)
    assert wait is None or wait >= 0


@given(st.datetimes(min_value=datetime.fromisoformat("1000-01-01"), max_value=datetime.fromisoformat("9999-01-01")))
def test_every_date_is_read_back(moment):
    """A date in the preferred form is read to the second."""
    moment = moment.replace(microsecond=0, tzinfo=UTC)
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    text = f"Mon, {moment:%d} {months[moment.month - 1]} {moment.year:04} {moment:%H:%M:%S} GMT"
    assert http_date(text) == moment.timestamp()
