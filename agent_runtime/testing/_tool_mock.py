"""A tool without a server: it honours keys as a right server does, and has the bad days that a test gives it."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

import httpx

from agent_runtime.errors import ConfigError
from agent_runtime.testing._days import NEVER_KEPT, Day, Kind, Reply, json_reply, problem, reply_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, eq=False)
class ToolRequest:
    """A request as a mocked tool saw it.

    Attributes:
        key: the idempotency key, or None.
        body: bytes, as they came.
        headers: by name, in any case.
    """

    method: str
    url: str
    key: str | None
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        """The body as JSON; None without a body."""
        return json.loads(self.body) if self.body else None


class ToolMock:
    """A scripted tool for respx or for an ``httpx`` client's transport; one object serves blocking and async code.

    It does what a right server does: the first request under a key runs the tool and its answer is kept; a repeat gets
    the kept answer with ``Idempotent-Replayed: true``; one that comes while the first still runs, 409; one with another
    payload, 422; one without a key, 400. What it shall do badly is said in days, which requests take in order::

        tool_api = ToolMock("https://tools.example.com/tools/debit", reply={"balance": 5}).lose_answer().mount()

    Args:
        url: where the tool is; ``{name}`` stands for one part of the path.
        reply: JSON value that the tool answers, or a function that makes it of a `ToolRequest`; it may return an
            ``httpx.Response``.
        method: of its requests.
        status: of its answers.
        honours_keys: False = every request has its effect, whatever its key.
        key_header: header that the key comes in, raw or as a structured field.
        lookup: path or URL with ``{key}`` at which GET tells what became of an operation, as `HttpLookup` of
            ``agent_runtime.config.presets.TOOL_BACKEND`` reads it: ``done``, ``running``, or 404 ``absent``.

    Attributes:
        seen: every request, in order.

    >>> tool_api = ToolMock("https://tools.example.com/debit", reply={"balance": 5}).lose_answer()
    >>> client = httpx.Client(transport=mock_transport(tool_api))
    >>> client.post("https://tools.example.com/debit", headers={"Idempotency-Key": "k1"})
    Traceback (most recent call last):
    httpx.ReadTimeout: the answer was lost
    >>> answer = client.post("https://tools.example.com/debit", headers={"Idempotency-Key": "k1"})
    >>> answer.json(), answer.headers["Idempotent-Replayed"], tool_api.requests, tool_api.effects
    ({'balance': 5}, 'true', 2, 1)
    """

    def __init__(
        self,
        url: str,
        *,
        reply: Any = None,
        method: str = "POST",
        status: int = 200,
        honours_keys: bool = True,
        key_header: str = "Idempotency-Key",
        lookup: str | None = None,
    ) -> None:
        self.url = url
        self.method = method.upper()
        self.seen: list[ToolRequest] = []
        self._reply = {} if reply is None else reply
        self._status = status
        self._honours_keys = honours_keys
        self._key_header = key_header
        self._pattern = _pattern(url)
        self._lookup = None if lookup is None else _pattern(str(httpx.URL(_sample(url)).join(lookup)))
        self._days: deque[Day] = deque()
        self._refused_tokens: set[str | None] = set()
        self._running: dict[str, bytes] = {}
        self._kept: dict[str, tuple[bytes, Reply]] = {}
        self._effects: Counter[str | None] = Counter()
        self._lookups = 0
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<ToolMock {self.method} {self.url} requests={self.requests} effects={self.effects}>"

    # -- what was seen ----------------------------------------------------------------------------------------------

    @property
    def requests(self) -> int:
        """How many requests were sent here, those whose connection was refused included; look-ups are not."""
        return len(self.seen)

    @property
    def effects(self) -> int:
        """How often the tool did its work: the number that must not exceed the number of steps."""
        return sum(self._effects.values())

    @property
    def effects_by_key(self) -> dict[str | None, int]:
        """How often it did so under each key."""
        return dict(self._effects)

    @property
    def keys(self) -> list[str | None]:
        """The key of each request, in order."""
        return [request.key for request in self.seen]

    @property
    def bodies(self) -> list[bytes]:
        """The body of each request, in order."""
        return [request.body for request in self.seen]

    @property
    def lookups(self) -> int:
        """How many look-ups came."""
        return self._lookups

    @property
    def days_left(self) -> int:
        """How many scripted days no request has taken yet; 0 at a test's end says that all of them happened."""
        return len(self._days)

    # -- its days ---------------------------------------------------------------------------------------------------

    def work(self, times: int = 1) -> Self:
        """A good day, for between bad ones; so is every day after the last scripted one."""
        return self._script(times, Day(Kind.WORK))

    def lose_answer(self, times: int = 1) -> Self:
        """The effect happens and the answer is kept; the client sees a read timeout."""
        return self._script(times, Day(Kind.LOSE_ANSWER))

    def cut_body(self, times: int = 1) -> Self:
        """The effect happens and the answer is kept; the client sees the status and half of the body."""
        return self._script(times, Day(Kind.CUT_BODY))

    def fail_before(self, status: int = 503, times: int = 1) -> Self:
        """The tool fails before the effect: a 5xx, and nothing is kept."""
        reply = problem(status, "not-applied", "the tool failed before it changed anything")
        return self._script(times, Day(Kind.ANSWER, reply))

    def fail_after(self, status: int = 503, times: int = 1, *, kept: bool = True) -> Self:
        """The effect happens and the client sees a 5xx.

        ``kept=False`` is the server that died before it kept its answer: the same key runs again, so that a resend
        doubles the effect.
        """
        reply = problem(status, "internal", "the tool failed")
        return self._script(times, Day(Kind.FAIL_AFTER, reply, kept))

    def in_progress(self, times: int = 1, *, retry_after: float | None = None) -> Self:
        """409: a request under this key is running; no effect."""
        reply = problem(409, "in-progress", "a request under this key is running", retry_after=retry_after)
        return self._script(times, Day(Kind.ANSWER, reply))

    def rate_limit(self, times: int = 1, *, retry_after: float = 1) -> Self:
        """429 with ``Retry-After``; no effect."""
        reply = problem(429, "rate-limited", "too many requests", retry_after=retry_after)
        return self._script(times, Day(Kind.ANSWER, reply))

    def refuse_token(self) -> Self:
        """401 for the credential that comes with this request, now and from then on, until another one comes."""
        return self._script(1, Day(Kind.REFUSE_TOKEN))

    def refuse_connection(self, times: int = 1) -> Self:
        """The connection cannot be made; nothing reaches the tool."""
        return self._script(times, Day(Kind.REFUSE_CONNECTION))

    def answer(
        self, status: int, json: Any = None, *, headers: Mapping[str, str] | None = None, times: int = 1
    ) -> Self:
        """Any other answer, without the effect."""
        extra = tuple((headers or {}).items())
        reply = Reply(status, b"", extra) if json is None else json_reply(json, status=status, headers=extra)
        return self._script(times, Day(Kind.ANSWER, reply))

    def _script(self, times: int, day: Day) -> Self:
        with self._lock:
            self._days.extend([day] * times)
        return self

    # -- plugging in ------------------------------------------------------------------------------------------------

    def mount(self, router: Any = None) -> Self:
        """Route the tool's requests here in a respx router; without one, in that of ``respx.mock``."""
        try:
            import respx  # noqa: PLC0415  an extra that only this method needs
            from respx.patterns import M  # noqa: PLC0415
        except ImportError:
            raise ConfigError("mount() needs respx: pip install 'agent-runtime-ledger[testing]'") from None
        pattern = M(method=self.method, url__regex=self._pattern)
        if self._lookup is not None:
            pattern |= M(method="GET", url__regex=self._lookup)
        (respx.mock if router is None else router).route(pattern).mock(side_effect=self.handle)
        return self

    def takes(self, request: httpx.Request) -> bool:
        """Whether a request is for this tool."""
        url = str(request.url)
        if request.method == "GET" and self._lookup is not None and self._lookup.search(url):
            return True
        return request.method == self.method and self._pattern.search(url) is not None

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Serve one request: a side effect for respx, a handler for ``httpx.MockTransport``; raises httpx's errors."""
        asked = self._lookup.search(str(request.url)) if self._lookup is not None else None
        if asked is not None and request.method == "GET":
            return self._look_up(unquote(asked[1])).response()
        came = ToolRequest(
            request.method, str(request.url), self._key_of(request), request.content, request.headers.copy()
        )
        with self._lock:
            self.seen.append(came)
            token = came.headers.get("Authorization")
            day = Day(Kind.REFUSE_TOKEN) if token in self._refused_tokens else self._next_day()
        return self._live(day, came, token, request)

    def _next_day(self) -> Day:
        return self._days.popleft() if self._days else Day(Kind.WORK)

    def _live(self, day: Day, came: ToolRequest, token: str | None, request: httpx.Request) -> httpx.Response:
        match day.kind:
            case Kind.REFUSE_CONNECTION:
                raise httpx.ConnectError("connection refused", request=request)
            case Kind.REFUSE_TOKEN:
                self._refused_tokens.add(token)
                return Reply(401, b"", (("WWW-Authenticate", 'Bearer error="invalid_token"'),)).response()
            case Kind.ANSWER:
                assert day.reply is not None
                return day.reply.response()
            case _:
                reply = self._serve(came, kept=day.kept)
        match day.kind:
            case Kind.LOSE_ANSWER:
                raise httpx.ReadTimeout("the answer was lost", request=request)
            case Kind.CUT_BODY:
                return reply.cut_response()
            case Kind.FAIL_AFTER:
                assert day.reply is not None
                return day.reply.response()
            case _:
                return reply.response()

    # -- the server's rules -----------------------------------------------------------------------------------------

    def _serve(self, came: ToolRequest, *, kept: bool) -> Reply:
        """Answer as a server does; ``kept``: it lives long enough to keep what it answers."""
        key, payload = came.key, httpx.URL(came.url).raw_path + b"\n" + came.body
        if self._honours_keys:
            if key is None:
                return problem(400, "key-missing", f"{self._key_header} is missing")
            known = self._claim(key, payload)
            if known is not None:
                return known
        try:
            reply = reply_of(self._reply(came) if callable(self._reply) else self._reply, self._status)
            with self._lock:
                if reply.status < 400:
                    self._effects[key] += 1
                if key is not None and kept and reply.status < 500 and reply.status not in NEVER_KEPT:
                    self._kept[key] = (payload, reply)
        finally:
            if key is not None:
                self._running.pop(key, None)
        return reply

    def _claim(self, key: str, payload: bytes) -> Reply | None:
        """Claim a key for the request that runs, or return what a request gets whose key stands."""
        with self._lock:
            running, kept = self._running.get(key), self._kept.get(key)
            standing = running if running is not None else (kept[0] if kept is not None else None)
            if standing is None:
                self._running[key] = payload
                return None
        if standing != payload:
            return problem(422, "key-reused", "this key was used with another payload")
        if kept is not None:
            return kept[1].marked()
        return problem(409, "in-progress", "a request under this key is running", retry_after=1)

    def _look_up(self, key: str) -> Reply:
        with self._lock:
            self._lookups += 1
            kept, running = self._kept.get(key), key in self._running
        if kept is None:
            return json_reply({"state": "running"}) if running else json_reply({"state": "absent"}, status=404)
        reply = kept[1]
        return json_reply({"state": "done", "status": reply.status, "body": _readable(reply.body)})

    def _key_of(self, request: httpx.Request) -> str | None:
        key: str | None = request.headers.get(self._key_header)
        if key is not None and len(key) >= 2 and key[0] == key[-1] == '"':
            return key[1:-1]
        return key


def mock_transport(*tools: ToolMock) -> httpx.MockTransport:
    """Return a transport that leads to mocked tools, for ``httpx.Client`` and ``httpx.AsyncClient``, without respx.

    A request for no tool among them raises `AssertionError`, which sessions let through to the test.
    """

    def handle(request: httpx.Request) -> httpx.Response:
        for tool in tools:
            if tool.takes(request):
                return tool.handle(request)
        msg = f"no ToolMock takes {request.method} {request.url}"
        raise AssertionError(msg)

    return httpx.MockTransport(handle)


def _sample(url: str) -> str:
    return re.sub(r"\{[^}]*\}", "x", url)


def _pattern(url: str) -> re.Pattern[str]:
    """Return what a URL with ``{name}`` in its path matches, whatever the query; groups have no names for respx."""
    tidy = httpx.URL(url)
    text = str(tidy).removesuffix("/") if tidy.path == "/" else str(tidy)
    end = "/?" if tidy.path == "/" else ""
    parts = map(re.escape, re.split(r"%7B[^%]*%7D", text))
    return re.compile(rf"^{'([^/?#]+)'.join(parts)}{end}(?:\?.*)?$")


def _readable(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
