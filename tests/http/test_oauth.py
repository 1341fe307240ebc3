"""Token requests and token replies."""

import base64
import json
from urllib.parse import parse_qsl

import pytest

from agent_runtime import ClientCredentials
from agent_runtime._model import Answer, BodyState
from agent_runtime._oauth import AccessToken, Grant, read_token_reply, token_request
from agent_runtime.errors import AuthorisationRequired, ConfigError, TokenRefused, TokenUnavailable

URL = "https://as.test/token"
SECRET = "s%cr+t:é€"


def reply(body, status=200, headers=(), **more):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status=status, headers=headers, body=raw, **more)


def token(**members):
    return read_token_reply(reply({"access_token": "CANARY", "token_type": "Bearer"} | members), sent_at=1000.0)


def made_for(secret=SECRET, *, scopes=(), audiences=(), **settings):
    auth = ClientCredentials(**{"token_url": URL, "client_id": "client", "client_secret": secret} | settings)
    return token_request(Grant(auth=auth, scopes=scopes, audiences=audiences), URL, jti="j", now=0.0)


def test_O10_basic_is_form_encoded_utf8():
    """Id and secret are form-encoded from UTF-8 before base64, so that no character breaks or misleads."""
    made = made_for(client_id="cli:ent", scopes=("a", "b"), audiences=("https://api.test",))
    assert made.request.method == "POST"
    assert dict(parse_qsl(made.request.body.decode())) == {
        "grant_type": "client_credentials",
        "scope": "a b",
        "audience": "https://api.test",
    }
    assert made.headers[0][0] == "Authorization"
    assert base64.b64decode(made.headers[0][1].removeprefix("Basic ")) == b"cli%3Aent:s%25cr%2Bt%3A%C3%A9%E2%82%AC"


def test_O10_basic_as_it_stands_for_servers_that_do_not_decode():
    """Id and secret go out as UTF-8 text, not form-encoded; the form holds neither."""
    made = made_for(auth_method="client_secret_basic_raw", client_id="cli/ent")
    assert base64.b64decode(made.headers[0][1].removeprefix("Basic ")) == b"cli/ent:s%cr+t:\xc3\xa9\xe2\x82\xac"
    assert dict(parse_qsl(made.request.body.decode())) == {"grant_type": "client_credentials"}


def test_the_post_method_puts_the_secret_into_the_body():
    """With client_secret_post id and secret are members of the form, and there is no secret header."""
    made = made_for(auth_method="client_secret_post")
    assert dict(parse_qsl(made.request.body.decode())) == {
        "grant_type": "client_credentials",
        "client_id": "client",
        "client_secret": SECRET,
    }
    assert made.headers == ()


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_basic_raw", "client_secret_post"])
def test_A40_no_repr_shows_a_secret(method):
    """Neither the token request, nor its copy with headers, nor a token shows its secret."""
    made = made_for("CANARY", auth_method=method)
    encoded = base64.b64encode(b"client:CANARY").decode()
    copy = made.request.with_headers((("X", "1"),))
    assert copy.body == made.request.body
    shown = repr(made) + repr(made.request) + repr(copy) + repr(token())
    assert "CANARY" not in shown
    assert encoded not in shown


@pytest.mark.parametrize("url", ["as.test", "https://u:CANARY@as.test/", "https://as.test/a b"])
def test_an_endpoint_that_cannot_be_asked_is_refused(url):
    """A URL that cannot be sent as it stands makes no request, and the refusal does not show it."""
    auth = ClientCredentials(token_url=URL, client_id="c", client_secret="client-secret-canary")
    with pytest.raises(ConfigError) as caught:
        token_request(Grant(auth=auth), url, jti="j", now=0.0)
    assert url not in str(caught.value)


def test_an_unknown_method_is_refused():
    """A client proves itself in the ways that are known."""
    with pytest.raises(ConfigError, match="auth_method"):
        made_for(auth_method="secret_knock")


@pytest.mark.parametrize(
    ("expires_in", "lifetime"),
    [
        (3600, 3600),
        ("3600", 3600),
        (3599.7, 3599.7),
        ("3599.7", 3599.7),
        (" 60 ", 60),
        (0, 0),
        ("0", 0),
        (-1, 0),
        (None, 300),
        ("", 300),
        ("soon", 300),
        ("inf", 300),
        ("1e999", 300),
        (True, 300),
        ([3600], 300),
        ("9" * 5000, 300),
    ],
)
def test_O7_every_form_of_expires_in(expires_in, lifetime):
    """expires_in is read in each form; unusable means 300 s, nothing left means to be used once."""
    got = token(expires_in=expires_in)
    assert got.expires_at == 1000.0 + lifetime
    assert got.fresh(1000.0) is (lifetime > 0)


@pytest.mark.parametrize("text", [b"1e999", b"NaN", b"-Infinity"])
def test_O7_numbers_that_are_none(text):
    """Numbers that only Python takes for JSON are no lifetime."""
    body = b'{"access_token": "t", "token_type": "bearer", "expires_in": ' + text + b"}"
    assert read_token_reply(reply(body), sent_at=0.0).expires_at == 300


def test_O7_an_absent_lifetime():
    """Without expires_in a token counts for 300 s."""
    assert token().expires_at == 1300.0


@pytest.mark.parametrize(
    ("lifetime", "stale_after"),
    [(3600, 3540), (600, 540), (100, 90), (30, 25), (8, 4), (2, 1)],
)
def test_A31_O2_a_token_is_stale_a_little_early(lifetime, stale_after):
    """The leeway is a tenth, at least 5 s and at most 60 s, but never eats a short lifetime whole."""
    got = AccessToken(value="t", issued_at=0.0, expires_at=lifetime)
    assert got.fresh(stale_after - 0.01)
    assert not got.fresh(stale_after)


def test_a_token_is_carried_as_bearer():
    """The header is what RFC 6750 asks for, and the granted scope is kept."""
    got = token(scope="a", token_type="bEARER")
    assert got.header() == ("Authorization", "Bearer CANARY")
    assert got.scope == "a"
    assert token(scope=["a"], token_type=None).scope is None


@pytest.mark.parametrize(
    "members",
    [
        {"access_token": None},
        {"access_token": ""},
        {"access_token": 5},
        {"access_token": "CANARY\n"},
        {"token_type": "N_A"},
        {"token_type": "DPoP"},
        {"token_type": 5},
        {"error": "invalid_client"},
    ],
)
def test_a_200_that_holds_no_usable_token(members):
    """A success reply without a bearer token that a header can carry is refused, and not shown."""
    with pytest.raises(TokenRefused) as caught:
        token(**members)
    assert "CANARY" not in str(caught.value)
    assert caught.value.status == 200


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"", b"[" * 100_000, b'{"access_token": "t"'])
def test_a_200_that_is_no_token_reply(body):
    """A page, or broken JSON, under 200 is no token."""
    with pytest.raises(TokenRefused):
        read_token_reply(reply(body), sent_at=0.0)


def test_a_cut_reply_may_be_asked_for_again():
    """A reply that did not come whole says nothing against another try."""
    with pytest.raises(TokenUnavailable):
        read_token_reply(reply(b'{"acc', body_state=BodyState.CUT), sent_at=0.0)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
@pytest.mark.parametrize("body", [b"", {"message": "x"}, {"error": "Internal Server Error"}, {"access_token": "t"}])
def test_O6_a_server_that_cannot_serve_now(status, body):
    """Throttling and server faults are no token, whatever the body, and carry the wait that was asked."""
    with pytest.raises(TokenUnavailable) as caught:
        read_token_reply(reply(body, status, (("Retry-After", "3"),)), sent_at=0.0)
    assert caught.value.retry_after == 3


@pytest.mark.parametrize(
    ("headers", "now", "wait"),
    [
        ((("Date", "Thu, 01 Jan 2026 00:00:00 GMT"), ("Retry-After", "Thu, 01 Jan 2026 00:01:00 GMT")), None, 60),
        ((("Retry-After", "Thu, 01 Jan 2026 00:01:00 GMT"),), 1767225600.0, 60),
        ((("Retry-After", "Thu, 01 Jan 2026 00:01:00 GMT"),), None, None),
        ((), None, None),
    ],
)
def test_a_wait_that_is_a_date(headers, now, wait):
    """A date counts from the caller's clock or the server's; without either it says nothing."""
    with pytest.raises(TokenUnavailable) as caught:
        read_token_reply(reply(b"", 503, headers), sent_at=0.0, now=now)
    assert caught.value.retry_after == wait


@pytest.mark.parametrize("code", ["temporarily_unavailable", "slow_down", "server_error"])
def test_an_error_that_passes(code):
    """An error that says "later" is no refusal, even under 400."""
    with pytest.raises(TokenUnavailable):
        read_token_reply(reply({"error": code}, 400), sent_at=0.0)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (400, {"error": "invalid_scope"}, "invalid_scope"),
        (401, {"error": "invalid_client", "error_description": "d"}, "invalid_client"),
        (500, {"error": "invalid_client"}, "invalid_client"),
        (403, {"message": "x"}, None),
        (404, b"<html>", None),
        (302, b"", None),
        (201, {"access_token": "t", "token_type": "bearer"}, None),
        (400, {"error": "CANARY\n"}, None),
        (400, {"error": {"code": "x"}}, None),
    ],
)
def test_a_refusal(status, body, error):
    """What the server refuses is told with its error code and status; an odd code is not repeated."""
    with pytest.raises(TokenRefused) as caught:
        read_token_reply(reply(body, status), sent_at=0.0)
    assert (caught.value.error, caught.value.status) == (error, status)
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "claims"),
    [
        ({"error": "invalid_grant"}, None),
        ({"error": "interaction_required", "claims": "{}"}, "{}"),
        ({"error": "something", "claims": "{}", "error_description": "d" * 900}, "{}"),
    ],
)
def test_O9_A33_new_proof_is_wanted(body, claims):
    """A dead grant and a wish for interaction ask for new proof, with the claims kept."""
    with pytest.raises(AuthorisationRequired) as caught:
        read_token_reply(reply(body, 400), sent_at=0.0)
    assert caught.value.claims == claims
    assert len(caught.value.description or "") <= 500
