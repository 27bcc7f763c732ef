"""The HTTP application: checks tokens and parameters, reads bodies within bounds, and runs operations in threads."""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from fastapi import FastAPI, Request
from fastapi.concurrency import iterate_in_threadpool
from fastapi.responses import Response, StreamingResponse

from codepilot import __version__
from codepilot.core.contract import Contract
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.executor.service import messages
from codepilot.executor.service.admission import AdmissionQueue, Busy, Draining
from codepilot.executor.service.manager import WorkspaceManager
from codepilot.executor.service.messages import Refused, bad_parameter, respond, respond_to
from codepilot.executor.service.openapi import document
from codepilot.executor.service.routes import BYTES, JSON, PATH_PATTERNS, QUERY_SCHEMAS, ROUTES, Operation, Route
from codepilot.executor.service.settings import is_loopback
from codepilot.executor.service.telemetry import Measures, log
from codepilot.executor.wire import About, Done, Health, Resize, Signal, WaitRemote, Written
from codepilot.telemetry import METRICS
from codepilot.telemetry.metrics import CONTENT_TYPE

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_LARGE_REPLY = 1 << 20
_CONTROLS = 8
_UNROUTED = Route("GET", "none", "none", "A request that no route takes", JSON)

Handler = Callable[..., Awaitable[Response]]
"""Takes the request, and the parameters of its route by name."""
Result = TypeVar("Result")


class HttpApp:
    """Answers every request. It is made outside the event loop; its handlers run on one."""

    def __init__(self, manager: WorkspaceManager) -> None:
        settings = manager.settings
        self.manager = manager
        self.settings = settings
        self.draining = False
        METRICS.enabled = True
        self.measures = Measures()
        self._queues = {
            kind: AdmissionQueue(settings.concurrency, settings.queue) for kind in ("runs", "files", "uploads")
        }
        self._queues["intake"] = AdmissionQueue(1, settings.queue)  # One stream at a time is unpacked and checked.
        self._exports = 0
        self._pools = {
            "runs": ThreadPoolExecutor(settings.concurrency, "codepilot-run"),
            "files": ThreadPoolExecutor(settings.concurrency, "codepilot-file"),
            "control": ThreadPoolExecutor(_CONTROLS, "codepilot-control"),
        }
        self._document = document(token=settings.token is not None)

    @property
    def active(self) -> int:
        """Operations that run or wait, snapshots on their way out, and processes that live."""
        operations = sum(queue.active + queue.waiting for queue in self._queues.values())
        return operations + self._exports + self.manager.processes.running()

    def app(self) -> FastAPI:
        app = FastAPI(title="CodePilot executor", openapi_url=None, docs_url=None, redoc_url=None)
        paths: dict[str, dict[str, Handler]] = {}
        for route in ROUTES:
            handler = self._operation(route, route.operation) if route.operation else getattr(self, route.name)
            paths.setdefault(route.path, {})[route.method] = self._answering(route, handler)
        for path, handlers in paths.items():
            app.add_route(path, _by_method(handlers), methods=list(handlers), include_in_schema=False)
        for status in (404, 405):
            app.add_exception_handler(status, self._unrouted)
        return app

    async def _unrouted(self, request: Request, error: Exception) -> Response:
        """Answer a request that no route takes in the same form as all others."""

        async def refuse(request: Request) -> Response:
            return _no_route(request) if getattr(error, "status_code", 404) == 404 else _wrong_method(request, error)

        return await self._answering(_UNROUTED, refuse)(request)

    def _answering(self, route: Route, handler: Handler) -> Handler:
        """Wrap a handler: request id, token, parameters, failures as responses, log and metrics."""

        async def answer(request: Request) -> Response:
            begun = time.monotonic()
            given = request.headers.get("x-request-id", "")
            request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
            try:
                if not route.public:
                    self._check_token(request)
                response = await handler(request, **_parameters(request, route))
            except CodePilotError as error:
                response = respond_to(error)
                if error.kind is FailureKind.INTERNAL:
                    log("failure", request_id=request_id, route=route.path, message=error.failure.message)
            except Exception as error:  # noqa: BLE001 - the last place that can still answer
                log("defect", error=error, request_id=request_id, route=route.path)
                message = f"{type(error).__name__} while answering {route.path}"
                response = respond(Failure(kind=FailureKind.INTERNAL, message=message), 500)
            response.headers["X-Request-Id"] = request_id
            if messages.is_unread(request):
                response.headers["Connection"] = "close"  # The rest is never read; it may have no end.
            seconds = time.monotonic() - begun
            self.measures.answered(route.path, response.status_code, seconds)
            if route.path not in ("/healthz", "/metrics"):
                log(
                    "request",
                    request_id=request_id,
                    method=request.method,
                    route=route.path,
                    status=response.status_code,
                    duration_ms=round(seconds * 1000, 3),
                )
            return response

        return answer

    def _check_token(self, request: Request) -> None:
        if self.settings.token is None:
            host = request.headers.get("host", "")
            if not is_loopback(host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host):
                raise Refused(  # A web page may be speaking through a browser on this machine.
                    421,
                    "without a token the executor answers to loopback names alone",
                    "Ask for 127.0.0.1, ::1 or localhost, or start it with a token.",
                    FailureKind.TOOL_PERMISSION_DENIED,
                )
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        fits = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self.settings.token.encode())
        if scheme.lower() != "bearer" or not fits:
            raise Refused(
                401,
                "the bearer token is missing or wrong",
                "Set CODEPILOT_EXECUTOR_TOKEN to the token of the service.",
                FailureKind.TOOL_PERMISSION_DENIED,
            )

    def _operation(self, route: Route, operation: Operation) -> Handler:
        takes = route.takes
        assert isinstance(takes, type)

        async def handle(request: Request) -> Response:
            asked = await self._contract(request, takes)
            if operation.work and self.draining:
                raise Draining

            def act() -> Response:
                result = operation.act(self.manager, asked)
                return self._reply(Done() if result is None else result)

            if operation.queue == "control":
                return await self._threaded("control", act)
            order: str = getattr(asked, "workspace", "") if operation.ordered else ""
            async with self._queues[operation.queue].turn(order):
                if operation.work and self.draining:
                    raise Draining
                return await self._threaded(operation.queue, act)

        return handle

    def _reply(self, answer: Contract | bytes) -> Response:
        """A response. A large body is read from disk, so that slow readers cost no memory."""
        kind = BYTES if isinstance(answer, bytes) else JSON
        data = answer if isinstance(answer, bytes) else answer.__pydantic_serializer__.to_json(answer)
        if len(data) <= _LARGE_REPLY:
            return Response(data, media_type=kind)
        file = tempfile.TemporaryFile(dir=self.settings.staging)  # noqa: SIM115 - closed with the response
        file.write(data)
        file.seek(0)
        chunks = iterate_in_threadpool(iter(lambda: file.read(_LARGE_REPLY), b""))
        return StreamingResponse(chunks, headers={"Content-Length": str(len(data))}, media_type=kind)

    async def _contract(self, request: Request, kind: type[messages.Asked]) -> messages.Asked:
        return await messages.contract(request, kind, self.settings.json_bytes, self.settings.body_sec)

    async def _threaded(self, pool: str, act: Callable[[], Result]) -> Result:
        """Run in a thread to the end, even if the caller goes away."""
        running = asyncio.get_running_loop().run_in_executor(self._pools[pool], act)
        return await asyncio.shield(running)

    async def process_state(self, request: Request, process: str) -> Response:
        return self._reply(self.manager.processes.get(process).state())

    async def process_write(self, request: Request, process: str, offset: int, end: bool) -> Response:
        served = self.manager.processes.get(process)
        data = await messages.whole(request, self.settings.json_bytes, self.settings.body_sec)
        received = await served.write(data, offset, end, self.settings.body_sec)
        return self._reply(Written(received=received))

    async def process_read(self, request: Request, process: str, offset: int) -> Response:
        served = self.manager.processes.get(process)
        served.output.take(offset)
        return StreamingResponse(served.read(offset), media_type=BYTES)

    async def process_stderr(self, request: Request, process: str) -> Response:
        return self._reply(self.manager.processes.get(process).process.stderr())

    async def process_resize(self, request: Request, process: str) -> Response:
        served = self.manager.processes.get(process)
        asked = await self._contract(request, Resize)
        served.process.resize(asked.terminal)
        return self._reply(Done())

    async def process_signal(self, request: Request, process: str) -> Response:
        served = self.manager.processes.get(process)
        await self._contract(request, Signal)
        await self._threaded("control", served.process.interrupt)
        return self._reply(Done())

    async def process_wait(self, request: Request, process: str) -> Response:
        served = self.manager.processes.get(process)
        asked = await self._contract(request, WaitRemote)
        return self._reply(await served.wait(asked.timeout_sec))

    async def process_kill(self, request: Request, process: str) -> Response:
        served = self.manager.processes.get(process)
        await self._threaded("control", served.kill)
        return self._reply(served.state())

    async def base_state(self, request: Request, tree: str) -> Response:
        return self._reply(await self._threaded("control", lambda: self.manager.base(tree)))

    async def base_upload(self, request: Request, tree: str) -> Response:
        return await self._upload(request, lambda file: self.manager.receive(file, tree))

    async def snapshot_import(self, request: Request, workspace: str) -> Response:
        return await self._upload(request, lambda file: self.manager.receive_snapshot(file, workspace), workspace)

    async def _upload(self, request: Request, take: Callable[[Path], Contract], workspace: str = "") -> Response:
        """Spool the body first, so that a slow sender delays no other request; then take it in."""
        limit, seconds = self.settings.upload_bytes, self.settings.body_sec
        try:
            if self.draining:
                raise Draining
            async with self._queues["uploads"].turn():
                with self.manager.spool() as file:
                    await messages.spooled(request, file, limit, seconds)
                    async with self._queues["intake"].turn(), self._queues["files"].turn(workspace):
                        return self._reply(await self._threaded("files", lambda: take(file)))
        except Busy:
            await messages.discarded(request, limit, seconds)
            raise

    async def snapshot_export(self, request: Request, workspace: str, snapshot: str, whole: bool) -> Response:
        async with self._queues["files"].turn(workspace):
            chunks = await self._threaded(
                "files", lambda: self.manager.executor.export_snapshot(workspace, snapshot, whole)
            )
        return StreamingResponse(self._exporting(chunks), media_type=BYTES)

    async def _exporting(self, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Count the export as active until the caller has all of it or has disconnected."""
        self._exports += 1
        try:
            async for chunk in iterate_in_threadpool(chunks):
                yield chunk
        finally:
            self._exports -= 1

    async def about(self, request: Request) -> Response:
        executor = self.manager.executor
        return self._reply(About(level=executor.level, remaps=executor.remaps, version=__version__))

    async def health(self, request: Request) -> Response:
        health = Health(status="draining" if self.draining else "ok")
        return Response(health.model_dump_json(), 503 if self.draining else 200, media_type="application/json")

    async def metrics(self, request: Request) -> Response:
        workspaces = await self._threaded("control", self.manager.workspaces)
        self.measures.now(self._queues, workspaces, self.manager.processes.running())
        return Response(METRICS.render(), media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        return Response(self._document, media_type="application/json")

    def close(self) -> None:
        """Wait for the threads; everything they ran has been ended."""
        for pool in self._pools.values():
            pool.shutdown(wait=True)


def _by_method(handlers: dict[str, Handler]) -> Handler:
    async def handle(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return handle


def _parameters(request: Request, route: Route) -> dict[str, str | int | bool]:
    """The parameters of the path and the query, checked."""
    found: dict[str, str | int | bool] = {}
    for name in route.path_parameters:
        found[name] = value = str(request.path_params[name])
        if not re.fullmatch(PATH_PATTERNS[name].removeprefix("^").removesuffix("$"), value):
            raise bad_parameter(f"the path's {name} is not valid")
    for name in route.query:
        schema = QUERY_SCHEMAS[name]
        value = request.query_params.get(name, str(schema["default"]).lower())
        if schema["type"] == "boolean":
            if value not in ("true", "false"):
                raise bad_parameter(f"{name} must be true or false")
            found[name] = value == "true"
        else:
            if not re.fullmatch(r"0|[1-9][0-9]{0,17}", value):
                raise bad_parameter(f"{name} must be a whole number")
            found[name] = int(value)
    return found


def _no_route(request: Request) -> Response:
    message = f"there is nothing at {request.url.path[:200]!r}"
    return respond(Failure(kind=FailureKind.PATH_NOT_FOUND, message=message, next_action="See /openapi.json."), 404)


def _wrong_method(request: Request, error: Exception) -> Response:
    failure = Failure(
        kind=FailureKind.TOOL_INVALID_ARGS,
        message=f"{request.url.path[:200]!r} does not take {request.method[:20]}",
        next_action="See /openapi.json.",
    )
    return respond(failure, 405, dict(getattr(error, "headers", None) or {}))
