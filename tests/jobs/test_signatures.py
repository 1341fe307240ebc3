"""Who is believed: Standard Webhooks over the raw bytes, and what a callback is about."""

from __future__ import annotations

import pytest

from agent_runtime.errors import ConfigError
from agent_runtime.webhooks import About, CallbackRefused, StandardWebhook, about, sign

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, AT = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330
BODY = b'{"test": 2432232314}'


def headers(signature: str, at: str = str(AT), event_id: str = ID) -> dict[str, str]:
    return {"webhook-id": event_id, "webhook-timestamp": at, "webhook-signature": signature}


@pytest.mark.parametrize(
    ("body", "signature"),
    [
        (BODY, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        (b'{"test":2432232314}', "v1,Vif40peJBP7Iyl0XGmu61n4MwdrcHov5CFREBpE0svs="),
        (b"", "v1,v48jdbgvh29KJz2Qc+ghw8G6vG3nAKnujWBg8oM/62A="),
    ],
)
def test_L1_the_published_vectors(body: bytes, signature: str) -> None:
    """Bytes as they came: a blank less is another body."""
    assert StandardWebhook(SECRET)(headers(signature), body, now=AT) == ID
    assert sign(SECRET, event_id=ID, timestamp=AT, body=body) == signature


@pytest.mark.parametrize("off", [301, -301])
def test_L2_old_and_future_stamps_are_refused(off: int) -> None:
    """More than five minutes either way; 300 s are taken."""
    good = headers(sign(SECRET, event_id=ID, timestamp=AT, body=BODY))
    with pytest.raises(CallbackRefused, match="too old or too new"):
        StandardWebhook(SECRET)(good, BODY, now=AT + off)
    assert StandardWebhook(SECRET)(good, BODY, now=AT + off / 301 * 300) == ID


def test_L2_one_good_signature_among_others_is_enough() -> None:
    """Several versions and signatures in one header; secrets without padding or prefix."""
    good = sign(SECRET, event_id=ID, timestamp=AT, body=BODY)
    assert StandardWebhook(SECRET)(headers(f"v1,bad v2,x {good}"), BODY, now=AT) == ID
    plain = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    assert StandardWebhook(plain)(headers(good), BODY, now=AT) == ID
    rotated = StandardWebhook("bmV3IHNlY3JldA", older_secrets=(SECRET,))
    assert rotated(headers(good), BODY, now=AT) == ID


@pytest.mark.parametrize(
    "bad",
    [
        {},
        headers("v1,AAAA"),
        headers("v2," + sign(SECRET, event_id=ID, timestamp=AT, body=BODY)[3:]),
        headers("v1,x", at="yesterday"),
        headers("v1,x", at="²"),
        headers("v1,x", at="9" * 13),
        headers("v1,é"),
    ],
)
def test_what_is_not_signed_is_refused(bad: dict[str, str]) -> None:
    """Missing, wrong, of another version, without a usable time."""
    with pytest.raises(CallbackRefused):
        StandardWebhook(SECRET)(bad, BODY, now=AT)


@pytest.mark.parametrize("secret", ["", "whsec_", "not base64 at all!"])
def test_L2_an_unusable_secret_is_refused_and_not_shown(secret: str) -> None:
    """When the verifier is built."""
    with pytest.raises(ConfigError) as caught:
        StandardWebhook(secret)
    assert "not base64" not in str(caught.value)
    assert SECRET not in repr(StandardWebhook(SECRET))


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"job_id": "j1"}, About("j1")),
        ({"data": {"job_id": 7}}, About("7")),
        ({"id": "evt_1", "data": {"id": "j1"}}, About("j1")),
        ({"id": "evt_1", "data": {"operationId": "o"}}, About("o")),
        ({"id": "j1"}, About("j1")),
        ({"id": True, "idempotency_key": "k"}, About(None, "k")),
        ({"data": {"idempotencyKey": "k"}}, About(None, "k")),
        ({"id": "evt_1", "data": {}}, About()),
        (["j1"], About()),
    ],
)
def test_what_a_callback_is_about(body: object, wanted: About) -> None:
    """A job's id or a key, at the top or below ``data``; an event's own id is no job's."""
    assert about(body) == wanted
