"""The scripted tool: a server's rules, its bad days, and the ways it is plugged in."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest
import respx

from agent_runtime import (
    AsyncRuntime,
    KeyConflict,
    ResultInvalid,
    Runtime,
    StepFailed,
    StepUnknown,
    TokenCallable,
    Tool,
)
from agent_runtime.testing import ToolMock, VirtualClock, mock_transport
from tests.testing.conftest import DEBIT, KEYLESS, LOOKED_UP, URL


def post(client: httpx.Client, key: str | None = "k1", body: bytes = b"{}", **headers: str) -> httpx.Response:
    sent = headers if key is None else {"Idempotency-Key": key, **headers}
    return client.post(URL, content=body, headers=sent)


def client_of(*tools: ToolMock) -> httpx.Client:
    return httpx.Client(transport=mock_transport(*tools))


def call(api: ToolMock, tool: Tool = DEBIT, **settings: Any) -> Any:
    """Call the tool once in a new session and return what the call returned; its clock and random values are given."""
    clock = VirtualClock()
    client = client_of(api)
    with (
        client,
        Runtime(
            "sqlite:///:memory:", tools=[tool], client=client, clock=clock, random=lambda: 0.5, **settings
        ) as runtime,
    ):
        session = runtime.open("orders")
        try:
            return session.call(tool, {"amount": 1})
        finally:
            call.slept = clock.slept
            session.close()


# -- a right server --------------------------------------------------------------------------------------------------


def test_repeat_gets_the_kept_answer():
    """A second request under a key has no effect: same status and bytes, with the replay mark."""
    api = ToolMock(URL, reply={"balance": 5}, status=201)
    with client_of(api) as client:
        first, second = post(client), post(client)
    assert (second.status_code, second.content) == (first.status_code, first.content) == (201, b'{"balance":5}')
    assert ("Idempotent-Replayed" in first.headers, second.headers["Idempotent-Replayed"]) == (False, "true")
    assert (api.requests, api.effects, api.effects_by_key, api.keys) == (2, 1, {"k1": 1}, ["k1", "k1"])


def test_other_payload_under_a_key_is_refused():
    """The key of one payload is not taken for another."""
    api = ToolMock(URL)
    with client_of(api) as client:
        post(client)
        other = post(client, body=b'{"amount":2}')
    assert (other.status_code, other.json()["type"].rsplit("/", 1)[-1], api.effects) == (422, "key-reused", 1)
    assert api.bodies == [b"{}", b'{"amount":2}']


@pytest.mark.parametrize(("body", "status"), [(b"{}", 409), (b"[]", 422)])
def test_request_beside_a_running_one(body: bytes, status: int):
    """While the first request of a key runs, another one gets 409, and with another payload 422."""
    begun, go_on = threading.Event(), threading.Event()

    def slowly(request: Any) -> dict[str, int]:
        begun.set()
        assert go_on.wait(10)
        return {"balance": 5}

    api = ToolMock(URL, reply=slowly, lookup="/operations/{key}")
    with client_of(api) as client:
        thread = threading.Thread(target=post, args=(client,))
        thread.start()
        assert begun.wait(10)
        beside = post(client, body=body)
        looked_up = client.get("https://tools.example.com/operations/k1")
        go_on.set()
        thread.join()
    assert (beside.status_code, looked_up.json(), api.effects) == (status, {"state": "running"}, 1)


def test_request_without_a_key_is_refused():
    """A server that honours keys asks for one."""
    api = ToolMock(URL)
    with client_of(api) as client:
        assert post(client, key=None).status_code == 400
    assert api.effects == 0


def test_tool_that_honours_no_key_works_each_time():
    """Without keys every request is an effect."""
    api = ToolMock(URL, honours_keys=False)
    with client_of(api) as client:
        assert [post(client).status_code, post(client, key=None).status_code] == [200, 200]
    assert (api.effects, api.effects_by_key) == (2, {"k1": 1, None: 1})


def test_refusal_of_the_tools_own_is_kept_and_no_effect():
    """A reply of 402 is the stored end of its key; nothing was done."""
    api = ToolMock(URL, reply=lambda request: httpx.Response(402, json={"error": "no funds"}))
    with client_of(api) as client:
        post(client)
        again = post(client)
    assert (again.status_code, again.headers["Idempotent-Replayed"], api.effects) == (402, "true", 0)


@pytest.mark.parametrize("status", [401, 409, 429, 500, 503])
def test_what_is_no_end_is_not_kept(status: int):
    """An answer that only puts the client off is not repeated for ever."""
    replies = iter([httpx.Response(status), {"balance": 5}])
    api = ToolMock(URL, reply=lambda request: next(replies))
    with client_of(api) as client:
        assert [post(client).status_code, post(client).status_code] == [status, 200]


def test_reply_is_made_of_the_request():
    """A function makes the reply of what the request brought."""
    api = ToolMock("https://tools.example.com/accounts/{id}/debits", reply=lambda seen: seen.json["amount"] * 2)
    with client_of(api) as client:
        answer = client.post(
            "https://tools.example.com/accounts/a%2F1/debits?dry=1",
            json={"amount": 4},
            headers={"idempotency-key": "k"},
        )
    assert answer.json() == 8
    assert api.seen[0].headers["content-type"] == "application/json"


def test_reply_that_raises_drops_the_claim():
    """An error of the reply is raised to the client, and the key can run again."""
    replies = [httpx.ReadError("reset")]

    def reply(request: Any) -> dict[str, int]:
        if replies:
            raise replies.pop()
        return {"balance": 5}

    api = ToolMock(URL, reply=reply)
    with client_of(api) as client:
        with pytest.raises(httpx.ReadError):
            post(client)
        assert post(client).json() == {"balance": 5}


def test_key_as_a_structured_field():
    """The quotes of a structured field are no part of the key."""
    api = ToolMock(URL, key_header="X-Key")
    with client_of(api) as client:
        client.post(URL, headers={"X-Key": '"k1"'})
    assert api.keys == ["k1"]


def test_lookup_tells_what_became_of_a_key():
    """The look-up says absent, then done with status and body."""
    api = ToolMock(URL, reply={"balance": 5}, status=201, lookup="/operations/{key}")
    with client_of(api) as client:
        absent = client.get("https://tools.example.com/operations/a%3Ab")
        post(client, key="a:b")
        done = client.get("https://tools.example.com/operations/a%3Ab")
    assert (absent.status_code, absent.json()) == (404, {"state": "absent"})
    assert done.json() == {"state": "done", "status": 201, "body": {"balance": 5}}
    assert (api.lookups, api.requests) == (2, 1)


# -- bad days, as a session meets them -------------------------------------------------------------------------------


def test_lost_answer_has_one_effect():
    """The effect happened and its answer was lost: the resend gets the kept answer."""
    api = ToolMock(URL, reply={"balance": 5}).lose_answer()
    result = call(api)
    assert (result.value, result.server_replayed, api.requests, api.effects) == ({"balance": 5}, True, 2, 1)


def test_lost_answer_without_keys_is_unknown():
    """Where no key is honoured, nobody may send again."""
    api = ToolMock(URL, honours_keys=False).lose_answer()
    with pytest.raises(StepUnknown):
        call(api, KEYLESS)
    assert (api.requests, api.effects) == (1, 1)


def test_cut_body_is_no_clean_success():
    """Status and half of the body are no result; the effect stands."""
    api = ToolMock(URL, reply={"balance": 5}).cut_body()
    with pytest.raises(ResultInvalid) as caught:
        call(api)
    assert (caught.value.raw, api.effects) == (b'{"bala', 1)


def test_failure_before_the_effect():
    """A 503 before the effect is followed by the effect under the same key."""
    api = ToolMock(URL).fail_before()
    result = call(api)
    assert (result.server_replayed, api.requests, api.effects) == (False, 2, 1)


def test_failure_after_the_effect_is_kept():
    """A 503 after the effect is a lost answer: the resend gets the kept one."""
    api = ToolMock(URL).fail_after()
    result = call(api)
    assert (result.server_replayed, api.requests, api.effects) == (True, 2, 1)


def test_server_that_dies_before_it_keeps_its_answer():
    """``kept=False`` is the case no resend survives: the same key has its effect again."""
    api = ToolMock(URL).fail_after(kept=False)
    with client_of(api) as client:
        assert [post(client).status_code, post(client).status_code] == [503, 200]
    assert api.effects_by_key == {"k1": 2}


def test_500_is_looked_up_and_not_sent_again():
    """After a 500 the session asks the tool's look-up, and finds the effect."""
    api = ToolMock(URL, reply={"balance": 5}, lookup="/operations/{key}").fail_after(500)
    result = call(api, LOOKED_UP)
    assert (result.value, api.requests, api.lookups, api.effects) == ({"balance": 5}, 1, 1, 1)


def test_in_progress_is_waited_for():
    """Two 409 are waited out as asked, under the same key."""
    api = ToolMock(URL).in_progress(2, retry_after=7)
    call(api)
    assert (api.requests, len(set(api.keys)), api.effects) == (3, 1, 1)
    assert [wait >= 7 for wait in call.slept] == [True, True]


def test_rate_limit_is_waited_for():
    """A 429 is waited out as asked."""
    api = ToolMock(URL).rate_limit(retry_after=20)
    call(api)
    assert (api.requests, api.effects, call.slept[0] >= 20) == (2, 1, True)


def test_refused_token_is_replaced():
    """401 for one token until another comes, however often it is shown."""
    api = ToolMock(URL).refuse_token()
    with client_of(api) as client:
        shown = [
            post(client, Authorization=f"Bearer {token}").status_code
            for token in ("static-canary-1", "static-canary-1", "static-canary-2", "static-canary-1")
        ]
    assert (shown, api.effects) == ([401, 401, 200, 401], 1)


def test_session_refreshes_a_refused_token():
    """A session gets a fresh token once, and sends the same key and bytes."""
    tokens = iter(["call-canary-1", "call-canary-2"])
    api = ToolMock(URL).refuse_token()
    call(api, auth=TokenCallable(function=lambda: next(tokens), principal="acct-7"))
    assert (api.requests, len(set(api.keys)), len(set(api.bodies)), api.effects) == (2, 1, 1, 1)


def test_refused_connection_sends_nothing():
    """Refused connections are tried again; the tool sees the last request only."""
    api = ToolMock(URL).refuse_connection(2)
    result = call(api)
    assert (api.requests, api.effects, result.server_replayed) == (3, 1, False)


def test_any_other_answer():
    """Status, body and headers as given, without the effect."""
    api = ToolMock(URL).answer(402, {"error": "no funds"}, headers={"X-Request-Id": "r1"})
    with pytest.raises(StepFailed) as caught:
        call(api)
    assert (caught.value.outcome.status, api.effects) == ("failed", 0)


def test_answer_without_a_body():
    """An answer may be a status alone."""
    api = ToolMock(URL).answer(204)
    with client_of(api) as client:
        assert post(client).content == b""


def test_other_payload_is_a_key_conflict():
    """A server that knows the key for another payload makes the call a `KeyConflict`, and no effect."""
    api = ToolMock(URL).answer(422, {"type": "https://agent-runtime.example/problems/key-reused"})
    with pytest.raises(KeyConflict):
        call(api)
    assert (api.requests, api.effects) == (1, 0)


def test_days_come_in_order_and_are_counted():
    """Each request takes one day; what no test request took is left, and after the last day all is well."""
    api = ToolMock(URL).fail_before().work().rate_limit(2)
    with client_of(api) as client:
        assert [post(client, key=key).status_code for key in ("a", "b", "c")] == [503, 200, 429]
        assert api.days_left == 1
        assert [post(client, key=key).status_code for key in ("d", "e")] == [429, 200]
    assert api.days_left == 0


# -- plugging in -----------------------------------------------------------------------------------------------------


@respx.mock
def test_mount_on_respx_mock():
    """Without a router the tool stands in that of ``respx.mock``."""
    api = ToolMock(URL, reply={"balance": 5}).cut_body().lose_answer().mount()
    with pytest.raises(httpx.RemoteProtocolError):
        post(httpx.Client())
    with pytest.raises(httpx.ReadTimeout):
        post(httpx.Client())
    assert post(httpx.Client()).json() == {"balance": 5}
    assert (api.requests, api.effects) == (3, 1)


def test_mount_on_a_router_of_ones_own():
    """A router of the test's own takes the tool with its look-up, and tells calls from other routes."""
    with respx.mock(base_url="https://tools.example.com") as router:
        other = router.get("/other").respond(204)
        ToolMock(URL, lookup="/operations/{key}").mount(router)
        client = httpx.Client()
        assert post(client).status_code == 200
        assert client.get("https://tools.example.com/operations/k1").json()["state"] == "done"
        assert client.get("https://tools.example.com/other").status_code == 204
        assert other.called


@respx.mock
def test_unused_lookup_is_no_route_of_its_own():
    """respx does not complain of a look-up that no test needed."""
    ToolMock(URL, lookup="/operations/{key}").mount()
    post(httpx.Client())


async def test_async_client():
    """One mock serves async clients too, with respx and with a transport."""
    api = ToolMock(URL).cut_body().lose_answer()
    async with httpx.AsyncClient(transport=mock_transport(api)) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post(URL, headers={"Idempotency-Key": "k1"})
    with respx.mock:
        api.mount()
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.ReadTimeout):
                await client.post(URL, headers={"Idempotency-Key": "k1"})
            answer = await client.post(URL, headers={"Idempotency-Key": "k1"})
    assert (answer.headers["Idempotent-Replayed"], api.requests, api.effects) == ("true", 3, 1)


async def test_async_session():
    """An async session over a mocked transport."""
    api = ToolMock(URL, reply={"balance": 5}).lose_answer().in_progress()
    async with (
        httpx.AsyncClient(transport=mock_transport(api)) as client,
        AsyncRuntime("sqlite:///:memory:", tools=[DEBIT], client=client, clock=VirtualClock()) as runtime,
        runtime.open("orders") as session,
    ):
        result = await session.call(DEBIT, {"amount": 1})
    assert (result.value, result.attempts, api.effects) == ({"balance": 5}, 3, 1)


def test_transport_leads_each_request_to_its_tool():
    """Several tools share a transport; a request for none of them reaches the test as an `AssertionError`."""
    debit, credit = ToolMock(URL), ToolMock("https://tools.example.com/credit", method="put")
    with client_of(debit, credit) as client:
        post(client)
        client.put(credit.url, headers={"Idempotency-Key": "k1"})
        with pytest.raises(AssertionError, match=r"no ToolMock takes POST https://tools\.example\.com/credit"):
            client.post(credit.url)
    assert (debit.requests, credit.requests) == (1, 1)


@pytest.mark.parametrize(
    "url", ["https://tools.example.com", "https://tools.example.com/", "https://Tools.Example.com:443"]
)
def test_tool_at_the_root(url: str):
    """A URL without a path is the root, and URLs are compared as httpx sends them."""
    api = ToolMock(url)
    with client_of(api) as client, respx.mock:
        api.mount()
        assert client.post(url, headers={"Idempotency-Key": "k"}).status_code == 200
        assert httpx.post(url, headers={"Idempotency-Key": "k"}).status_code == 200


def test_mock_shows_what_happened():
    """Its repr, as a failing assertion shows it, has the counts."""
    api = ToolMock(URL)
    with client_of(api) as client:
        post(client)
    assert repr(api) == f"<ToolMock POST {URL} requests=1 effects=1>"
