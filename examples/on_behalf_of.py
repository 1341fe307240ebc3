"""On behalf of a user: her token is exchanged for one that the tool takes, and is never sent to the tool itself.

    python -m examples.on_behalf_of

The first run meets what happens in practice: the identity platform wants a second factor before it gives a token for
the orders API. The step waits; nothing was sent to the tool. Once she has signed in again the same call goes on, under
the key that it had all along. Half an hour later her tool token has run out: it is replaced before the next send.
"""

import json
import tempfile
from urllib.parse import parse_qs

import httpx

from agent_runtime import Idempotency, OnBehalfOf, Runtime, StepPending, Tool, ToolContract
from agent_runtime.testing import VirtualClock

TOKEN_URL = "https://login.example.com/tenant/oauth2/v2.0/token"


def agent(runtime: Runtime, clock: VirtualClock) -> None:
    # actor= names the user for the life of the session; subject_token= is the token she signed in to this app with.
    with runtime.open("orders-of-alice", actor="alice", subject_token="alices-token") as session:
        order = {"article": "A-1", "count": 2}
        try:
            session.call("place_order", order)
        except StepPending as waiting:
            print(f"waits for {waiting.kind}: {waiting.outcome.error['code']}")
            print(f"  claims to sign in with: {waiting.outcome.error['claims']}")
            session.authenticate(subject_token="alices-token-with-second-factor")
        print(f"placed: {session.call('place_order', order).value}")
        clock.sleep(1800)
        print(f"half an hour later: {session.call('place_order', {'article': 'B-2', 'count': 1}).value}")


class Platform:
    """Stands in for the identity platform and for the orders API, so that this runs offline."""

    def __init__(self) -> None:
        self.orders: dict[str, str] = {}
        self.exchanges = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer a request for a token or for an order."""
        if str(request.url) == TOKEN_URL:
            return self.exchange({name: values[0] for name, values in parse_qs(request.content.decode()).items()})
        assert "alices-token" not in repr(request.headers.raw), "the user's own token reached a tool"
        key = request.headers["Idempotency-Key"]
        self.orders.setdefault(key, f"order-{len(self.orders) + 1}")
        return httpx.Response(200, json={"order": self.orders[key], "article": json.loads(request.content)["article"]})

    def exchange(self, form: dict[str, str]) -> httpx.Response:
        """Give a token for the orders API, if the user's own one has a second factor."""
        assert form["requested_token_use"] == "on_behalf_of"
        if not form["assertion"].endswith("second-factor"):
            claims = '{"access_token":{"acrs":{"essential":true,"value":"c1"}}}'
            return httpx.Response(400, json={"error": "interaction_required", "claims": claims})
        self.exchanges += 1
        return httpx.Response(
            200, json={"access_token": f"for-orders-{self.exchanges}", "token_type": "Bearer", "expires_in": 1200}
        )


def main() -> None:
    orders = Tool(
        "place_order",
        url="https://orders.example.com/orders",
        contract=ToolContract(idempotency=Idempotency()),
        auth=OnBehalfOf(
            token_url=TOKEN_URL,
            client_id="6731de76-14a6-49ae-97bc-6eba6914391e",
            client_secret="the-app's-secret",
            scope="api://orders/.default",
        ),
    )
    platform, clock = Platform(), VirtualClock()  # half an hour passes at once
    with (
        tempfile.TemporaryDirectory() as folder,
        httpx.Client(transport=httpx.MockTransport(platform)) as client,
        Runtime(f"sqlite:///{folder}/agent.db", tools=[orders], client=client, clock=clock) as runtime,
    ):
        agent(runtime, clock)
    print(f"on_behalf_of: {len(platform.orders)} orders, {platform.exchanges} exchanges")


if __name__ == "__main__":
    main()
