"""What a 401 or 403 says beside its status."""

import base64

import pytest

from agent_runtime._core.challenges import Challenge, challenge_of, refuses_token
from tests.core.world import call_of as call
from tests.core.world import fresh, json_answer, make_call, scripted, tool_of

CLAIMS = '{"access_token":{"acrs":{"essential":true,"value":"c1"}}}'
PACKED = base64.b64encode(CLAIMS.encode()).decode()
ODD = base64.urlsafe_b64encode(b'{"a":"???>>>"}').decode()

DEEP = '{\\"a\\":' + "[" * 8000

TOLD = Challenge(error="insufficient_claims", claims=CLAIMS)


def told(*values):
    return challenge_of(json_answer(401, None, tuple(("WWW-Authenticate", value) for value in values)))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ('Bearer error="invalid_token"', Challenge(error="invalid_token")),
        ('bearer realm="a, b", error=invalid_token', Challenge(error="invalid_token")),
        ('Bearer realm="say \\"hi\\"", error="x"', Challenge(error="x")),
        ("Bearer", Challenge()),
        ('Bearer error="Drop Table; now"', Challenge()),
        ("Basic realm=x, error=y", Challenge()),
        (f'Bearer claims="{PACKED}"', Challenge(claims=CLAIMS)),
        (f'Bearer claims="{PACKED.rstrip("=")}"', Challenge(claims=CLAIMS)),
        (f'Bearer claims="{ODD}"', Challenge(claims='{"a":"???>>>"}')),
        ('Bearer claims="{\\"a\\":1}"', Challenge(claims='{"a":1}')),
        ('Bearer claims="%%%"', Challenge()),
        ('Bearer claims="\xe9\xe9\xe9\xe9"', Challenge()),
        ('Bearer claims="/w=="', Challenge()),  # no UTF-8
        (f'Bearer claims="{"A" * 8193}"', Challenge()),
        ('Bearer claims=""', Challenge()),
        ('Bearer claims="{not json"', Challenge()),
        ('Bearer claims="bm90IGpzb24="', Challenge()),  # not json
        ('Bearer claims="W10="', Challenge()),  # []
        (f'Bearer claims="{DEEP}"', Challenge()),
        (f'Basic realm="x", Bearer error="insufficient_claims", claims="{PACKED}"', TOLD),
        (f'Negotiate abc+/d==, Bearer error = "insufficient_claims" , claims="{PACKED}", Digest nonce="n"', TOLD),
        (f'Bearer realm="Basic x, Bearer error=no", error="insufficient_claims" claims="{PACKED}"', TOLD),
        (
            f'Bearer error="invalid_token", DPoP algs="ES256", Bearer error="insufficient_claims", claims="{PACKED}"',
            TOLD,
        ),
        ("Negotiate, NTLM,, Bearer error=x", Challenge(error="x")),
        (f'Bearer error="x", =, claims="{PACKED}"', Challenge(error="x")),
        ('Bearer realm="never closed, error="x"', Challenge()),
        ('Digest error="x", realm="Bearer error=y"', Challenge()),
    ],
)
def test_a_bearer_challenge_is_read(value, wanted):
    """Its code, and claims as JSON text; what cannot be read says nothing."""
    assert told(value) == wanted


def test_the_bearer_challenge_is_found_among_others():
    """Each scheme may have a header of its own; none at all is an empty challenge."""
    assert told("Negotiate", 'Bearer error="x"') == Challenge(error="x")
    assert told() == Challenge()


def test_the_challenge_that_names_claims_goes_before_others():
    """A person has to bring them, whatever else would be taken."""
    assert told('Bearer error="invalid_token"', f'Bearer error="insufficient_claims", claims="{PACKED}"') == TOLD


@pytest.mark.parametrize(
    ("status", "value", "refused"),
    [
        (401, "Basic", True),
        (403, f'Bearer claims="{PACKED}"', True),
        (403, 'Bearer error="insufficient_claims"', False),
        (403, 'Bearer error="insufficient_scope"', False),
        (400, f'Bearer claims="{PACKED}"', False),
    ],
)
def test_a_403_refuses_the_token_only_where_it_names_claims(status, value, refused):
    """Any other 403 is a refusal of the request."""
    assert refuses_token(json_answer(status, None, (("WWW-Authenticate", value),))) is refused


@pytest.mark.parametrize(
    ("challenge", "person"),
    [
        (Challenge(), False),
        (Challenge(error="invalid_token"), False),
        (Challenge(error="interaction_required"), True),
        (Challenge(error="insufficient_claims"), True),
        (Challenge(claims="{}"), True),
    ],
)
def test_some_challenges_want_a_person(challenge, person):
    """A fresh token of the same proof would be refused as well."""
    assert challenge.wants_person is person


def test_a_challenge_that_cannot_be_read_is_a_plain_401():
    """The token is refreshed once, and the call goes on."""
    answer = json_answer(401, None, (("WWW-Authenticate", 'Bearer claims="\xe9"'),))
    world = fresh(scripted(answer, json_answer(200, 1)))
    assert make_call(world, world.desk(), call(tool_of())).status == "succeeded"
    assert world.token.number == 2


@pytest.mark.parametrize("claims", ["{not json", "bm90IGpzb24=", "W10="])
def test_claims_that_are_no_object_make_no_challenge(claims):
    """A 403 with them is an ordinary refusal, a 401 an ordinary one."""
    header = (("WWW-Authenticate", f'Bearer claims="{claims}"'),)
    assert not refuses_token(json_answer(403, None, header))
    assert refuses_token(json_answer(401, None, header))
    assert not challenge_of(json_answer(401, None, header)).wants_person
