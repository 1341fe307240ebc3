"""The routes: the tools under the contract, their twin without it, look-up, tokens, and controls for tests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from redis.exceptions import RedisError

from examples.tool_backend.answers import Answer, json_answer, problem
from examples.tool_backend.contract import Begin, IdempotencyContract, ScriptedFailure
from examples.tool_backend.faults import Fault, FaultScript
from examples.tool_backend.jobs import JOB_TOOLS, STATUS_TOOL, Jobs, JobScript, no_such_job, stream_of
from examples.tool_backend.keys import Operation, Refused, fingerprint, parse_args, read_key, scoped_name
from examples.tool_backend.oauth import TokenDesk
from examples.tool_backend.settings import Settings
from examples.tool_backend.store import PREFIX, OperationStore
from examples.tool_backend.tools import READ_TOOL, TOOLS, Call, Tool, World
from examples.tool_backend.wire import WireAnswer

if TYPE_CHECKING:
    from redis.asyncio import Redis

logger = logging.getLogger(__name__)

ALL_TOOLS = (*TOOLS, *JOB_TOOLS)

_KEY_HEADER = "Idempotency-Key"
LAST_WORDS_SECONDS = 5.0


class Backend:
    """What the routes share: who calls, what is ordered to go wrong, the contract, the world."""

    def __init__(self, valkey: Redis, settings: Settings) -> None:
        self.valkey = valkey
        self._serving: set[asyncio.Task[Any]] = set()
        self.desk = TokenDesk(valkey, settings)
        self.script = FaultScript(valkey)
        self.world = World(valkey, opening_balance=settings.opening_balance)
        self.world.jobs = Jobs(valkey)
        store = OperationStore(valkey, claim_seconds=settings.claim_seconds, result_seconds=settings.result_seconds)
        self.contract = IdempotencyContract(
            store, claim_seconds=settings.claim_seconds, retry_after=settings.retry_after
        )

    async def serve(self, request: Request, tool: Tool) -> Response:
        """Serve one request to a tool that changes things."""
        perform = self._perform_once if tool.honours_keys else self._perform
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return await self._pass_gateway(request, tool.name, lambda caller, fault: perform(request, tool, caller, fault))

    async def close(self) -> None:
        """Close the store, but not before handlers cut off by the shutdown have freed their claims."""
        if self._serving:
            await asyncio.wait(self._serving, timeout=LAST_WORDS_SECONDS)
        await self.valkey.aclose()

    async def read_account(self, request: Request, account: str) -> Response:
        """Serve one request to the tool that only reads."""

        async def read(_caller: str, fault: Fault | None) -> Answer:
            if fault is not None:
                await fault.strike("before_effect")
            return json_answer({"account": account, "balance": await self.world.balance(account)})

        return await self._pass_gateway(request, READ_TOOL, read)

    async def job(self, request: Request, job_id: str) -> Response:
        """Serve one poll of a job."""

        async def read(_caller: str, fault: Fault | None) -> Answer:
            if fault is not None:
                await fault.strike("before_effect")
            body = await self.world.jobs.status(job_id)
            return no_such_job(job_id) if body is None else json_answer(body)

        return await self._pass_gateway(request, STATUS_TOOL, read)

    async def find(self, request: Request, key: str, tool_name: str | None) -> Response:
        """Say how the caller's operation of this key stands, at the tool named or at any."""
        caller = await self.desk.caller(request)
        paths = [tool.path for tool in ALL_TOOLS if tool.honours_keys and tool_name in (None, tool.name)]
        states = [await self.contract.state(scoped_name(caller, path, key), key) for path in paths]
        found = [state for state in states if state is not None]
        if len(found) > 1:
            detail = "Several tools know this key: name one, as ?tool=debit."
            return WireAnswer(problem(400, "tool-wanted", detail))
        return WireAnswer(json_answer(found[0]) if found else json_answer({"state": "absent"}, status=404))

    async def reset(self) -> None:
        """Forget everything, and nothing that is not this server's own."""
        entries = [entry async for entry in self.valkey.scan_iter(match=f"{PREFIX}*", count=1000)]
        if entries:
            await self.valkey.unlink(*entries)

    async def _pass_gateway(
        self, request: Request, tool: str, perform: Callable[[str, Fault | None], Awaitable[Answer]]
    ) -> Response:
        """Do what stands before and behind every tool: admission, and the faults of gateway and wire."""
        caller = await self.desk.caller(request)
        fault = await self.script.take(tool, request.headers.get(_KEY_HEADER, ""))
        if fault is None:
            return WireAnswer(await _settled(perform(caller, None)))
        if fault.fault == "unauthorised_until_refresh":
            return WireAnswer(await self.desk.revoke(request))
        if fault.fault == "status" and fault.by == "gateway":
            return WireAnswer(fault.scripted_answer())
        answer = await _settled(perform(caller, fault))
        await fault.strike("after_stored")
        return fault.deliver(answer)

    async def _perform_once(self, request: Request, tool: Tool, caller: str, fault: Fault | None) -> Answer:
        body = await request.body()
        key = read_key(request.headers.getlist(_KEY_HEADER))
        args = parse_args(body)
        order = tool.check(args)
        operation = Operation(caller, tool.path, key, fingerprint(key, body, args))

        async def handler(begin: Begin) -> Answer:
            if fault is not None and fault.fault == "status":
                return fault.scripted_answer()
            return await tool.handler(Call(tool.name, caller, key, args, order, self.world, fault, begin))

        return await self.contract.run(operation, handler)

    async def _perform(self, request: Request, tool: Tool, caller: str, fault: Fault | None) -> Answer:
        """Run the tool as servers without a contract do: each request is an effect, a failure says nothing."""
        args = parse_args(await request.body())
        order = tool.check(args)
        key = request.headers.get(_KEY_HEADER)

        async def begin() -> None:
            pass

        if fault is not None and fault.fault == "status":
            return fault.scripted_answer()
        try:
            return await tool.handler(Call(tool.name, caller, key, args, order, self.world, fault, begin))
        except ScriptedFailure:
            return problem(500, "internal-error", "The tool failed.")


def create_app(valkey: Redis, settings: Settings | None = None) -> FastAPI:
    """Return the server over a Redis or Valkey client, which it closes when it ends."""
    backend = Backend(valkey, settings or Settings())

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await valkey.ping()
        yield
        await backend.close()

    app = FastAPI(title="tool_backend", lifespan=lifespan)
    app.add_exception_handler(Refused, _refuse)
    app.add_exception_handler(RedisError, _store_failed)
    for tool in ALL_TOOLS:
        app.post(tool.path, name=tool.name)(_endpoint(backend, tool))
    _add_look_ups(app, backend)
    _add_jobs(app, backend)
    _add_controls(app, backend)
    return app


def _endpoint(backend: Backend, tool: Tool) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await backend.serve(request, tool)

    return endpoint


def _add_look_ups(app: FastAPI, backend: Backend) -> None:
    @app.get("/accounts/{account}")
    async def get_account(request: Request, account: str) -> Response:
        return await backend.read_account(request, account)

    # ``:path`` takes keys with an encoded slash, too.
    @app.get("/operations/{key:path}")
    async def get_operation(request: Request, key: str, tool: Annotated[str | None, Query()] = None) -> Response:
        return await backend.find(request, key, tool)

    @app.post("/oauth/token")
    async def issue_token(request: Request) -> Response:
        return WireAnswer(await backend.desk.issue(request))


def _add_jobs(app: FastAPI, backend: Backend) -> None:
    jobs = backend.world.jobs

    @app.get("/v1/jobs/{job_id}")
    async def get_job(request: Request, job_id: str) -> Response:
        return await backend.job(request, job_id)

    @app.delete("/v1/jobs/{job_id}")
    async def cancel_job(request: Request, job_id: str) -> Response:
        await backend.desk.caller(request)
        await jobs.cancel(job_id)
        return WireAnswer(json_answer({"job_id": job_id, "status": "cancelling", "done": False}, status=202))

    @app.get("/v1/jobs/{job_id}/errors")
    async def get_errors(request: Request, job_id: str, limit: int = 50) -> Response:
        await backend.desk.caller(request)
        return WireAnswer(json_answer({"job_id": job_id, "errors": await jobs.errors(job_id, limit)}))

    @app.get("/v1/jobs/{job_id}/events")
    async def get_events(request: Request, job_id: str) -> Response:
        await backend.desk.caller(request)
        return stream_of(jobs.events(job_id))

    @app.get("/v1/jobs/{job_id}/polls")
    async def count_polls(job_id: str) -> dict[str, int]:
        return {"polls": await jobs.polls(job_id)}

    @app.post("/jobs", status_code=204)
    async def order_jobs(script: JobScript) -> None:
        await jobs.order(script)


def _add_controls(app: FastAPI, backend: Backend) -> None:
    """Add what a test needs and a real server must not have; none of it asks for a token."""
    scriptable = {READ_TOOL, STATUS_TOOL, *(tool.name for tool in ALL_TOOLS)}

    @app.post("/faults", status_code=201)
    async def add_faults(faults: Fault | list[Fault]) -> Response:
        script = faults if isinstance(faults, list) else [faults]
        unknown = sorted({fault.tool for fault in script} - scriptable)
        if unknown:
            detail = f"No such tool: {', '.join(unknown)}. There are: {', '.join(sorted(scriptable))}."
            return WireAnswer(problem(400, "unknown-tool", detail))
        for fault in script:
            await backend.script.add(fault)
        return WireAnswer(json_answer({"added": len(script)}, status=201))

    @app.get("/effects")
    async def list_effects(tool: str | None = None, key: str | None = None) -> list[dict[str, Any]]:
        effects = await backend.world.effects()
        return [effect for effect in effects if tool in (None, effect["tool"]) and key in (None, effect["key"])]

    @app.get("/oauth/issued")
    async def count_tokens() -> dict[str, int]:
        return {"issued": await backend.desk.issued()}

    @app.post("/reset", status_code=204)
    async def reset() -> None:
        await backend.reset()


async def _settled(performed: Awaitable[Answer]) -> Answer:
    """Return the answer, also where it is a refusal, so that faults on the wire concern refusals, too."""
    try:
        return await performed
    except Refused as refusal:
        return refusal.answer


async def _refuse(_request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, Refused)
    return WireAnswer(refusal.answer)


async def _store_failed(_request: Request, error: Exception) -> Response:
    # Nothing is said about the effect: the store may have failed before it or after it.
    logger.error("the store failed: %r", error)
    detail = "The state of operations cannot be read or written now; ask again with the same key."
    return WireAnswer(problem(503, "store-unavailable", detail, headers=(("Retry-After", "1"),)))
