"""The HTTP edge: checks who asks, reads bodies within bounds, hands over to threads, and answers in one form."""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.concurrency import iterate_in_threadpool
from fastapi.responses import Response, StreamingResponse

from codepilot import __version__
from codepilot.core.contract import Contract
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.executor.protocol import NAME_PATTERN, OBJECT_PATTERN
from codepilot.executor.service import messages
from codepilot.executor.service.admission import AdmissionQueue, Busy, Draining
from codepilot.executor.service.manager import WorkspaceManager
from codepilot.executor.service.messages import Misdirected, Unauthorised, failed, told
from codepilot.executor.service.openapi import document
from codepilot.executor.service.operations import OPERATIONS, Operation
from codepilot.executor.service.processes import Served
from codepilot.executor.service.settings import is_loopback
from codepilot.executor.service.telemetry import Measures, log
from codepilot.executor.wire import About, BaseState, Done, Health, ProcessState, Signal, WaitRemote, Written
from codepilot.telemetry import METRICS
from codepilot.telemetry.metrics import CONTENT_TYPE

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_OPEN = ("/healthz", "/openapi.json")
_BYTES, _JSON = "application/octet-stream", "application/json"
_LARGE_REPLY = 1 << 20
_CONTROLS = 8
_ASTRAY = "none"

Handler = Callable[[Request], Awaitable[Response]]
Result = TypeVar("Result")


class HttpApp:
    """Everything that answers requests. Made on no loop; its handlers run on one."""

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
        for path, method, handler in self.routes():
            paths.setdefault(path, {})[method] = handler
        for path, handlers in paths.items():
            app.add_route(path, _by_method(handlers), methods=list(handlers), include_in_schema=False)
        for status in (404, 405):
            app.add_exception_handler(status, self._astray)
        return app

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Every path with its method and handler; `openapi.py` describes the same."""
        operations = [(f"/workspace/{operation.name}", "POST", self._operation(operation)) for operation in OPERATIONS]
        process = "/process/{process}"
        found: list[tuple[str, str, Handler]] = [
            *operations,
            (process, "GET", self.process_state),
            (f"{process}/write", "POST", self.process_write),
            (f"{process}/read", "GET", self.process_read),
            (f"{process}/signal", "POST", self.process_signal),
            (f"{process}/wait", "POST", self.process_wait),
            (f"{process}/kill", "POST", self.process_kill),
            ("/base/{tree}", "GET", self.base_state),
            ("/base/{tree}", "PUT", self.base_upload),
            ("/snapshot/{workspace}/{snapshot}", "GET", self.snapshot_export),
            ("/snapshot/{workspace}", "PUT", self.snapshot_import),
            ("/about", "GET", self.about),
            ("/healthz", "GET", self.health),
            ("/metrics", "GET", self.metrics),
            ("/openapi.json", "GET", self.openapi),
        ]
        return [(path, method, self._answering(path, handler)) for path, method, handler in found]

    async def _astray(self, request: Request, error: Exception) -> Response:
        """What no route takes is answered like everything else."""

        async def refuse(request: Request) -> Response:
            return (
                _nothing_there(request) if getattr(error, "status_code", 404) == 404 else _wrong_method(request, error)
            )

        return await self._answering(_ASTRAY, refuse)(request)

    def _answering(self, route: str, handler: Handler) -> Handler:
        """What every request goes through: id, token, failures as replies, log and measures."""

        async def answer(request: Request) -> Response:
            begun = time.monotonic()
            given = request.headers.get("x-request-id", "")
            request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
            try:
                if route not in _OPEN:
                    self._check_token(request)
                response = await handler(request)
            except CodePilotError as error:
                response = told(error)
                if error.kind is FailureKind.INTERNAL:
                    log("failure", request_id=request_id, route=route, message=error.failure.message)
            except Exception as error:  # noqa: BLE001 - the last place that can still answer
                log("defect", error=error, request_id=request_id, route=route)
                message = f"{type(error).__name__} while answering {route}"
                response = failed(Failure(kind=FailureKind.INTERNAL, message=message), 500)
            response.headers["X-Request-Id"] = request_id
            if messages.is_unread(request):
                response.headers["Connection"] = "close"  # Nobody will read the rest, which could go on for ever.
            seconds = time.monotonic() - begun
            self.measures.answered(route, response.status_code, seconds)
            if route not in ("/healthz", "/metrics"):
                log(
                    "request",
                    request_id=request_id,
                    method=request.method,
                    route=route,
                    status=response.status_code,
                    duration_ms=round(seconds * 1000, 3),
                )
            return response

        return answer

    def _check_token(self, request: Request) -> None:
        if self.settings.token is None:
            host = request.headers.get("host", "")
            if not is_loopback(host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host):
                raise Misdirected
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        fits = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self.settings.token.encode())
        if scheme.lower() != "bearer" or not fits:
            raise Unauthorised

    def _operation(self, operation: Operation) -> Handler:
        async def handle(request: Request) -> Response:
            asked = await self._contract(request, operation.takes)
            workspace: str = getattr(asked, "workspace", "")
            if operation.work and self.draining:
                raise Draining

            def act() -> Response:
                return self._reply(operation.carry_out(self.manager, asked))

            if operation.turn == "control":
                return await self._threaded("control", act)
            order = workspace if operation.ordered else ""
            async with self._queues[operation.turn].turn(order):
                if operation.work and self.draining:
                    raise Draining
                return await self._threaded(operation.turn, act)

        return handle

    def _reply(self, answer: Contract | bytes) -> Response:
        """A response; a large one waits on disk for its reader, so that slow readers cost no memory."""
        kind = _BYTES if isinstance(answer, bytes) else _JSON
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
        """Run in a thread to the end, even if the caller goes away meanwhile."""
        running = asyncio.get_running_loop().run_in_executor(self._pools[pool], act)
        return await asyncio.shield(running)

    async def process_state(self, request: Request) -> Response:
        return _reply(self._process(request).state())

    async def process_write(self, request: Request) -> Response:
        served = self._process(request)
        offset, end = _whole_number(request, "offset"), _flag(request, "end")
        data = await messages.whole(request, self.settings.json_bytes, self.settings.body_sec)
        received = await served.write(data, offset, end, self.settings.body_sec)
        return _reply(Written(received=received))

    async def process_read(self, request: Request) -> Response:
        served = self._process(request)
        offset = _whole_number(request, "offset")
        served.output.take(offset)
        return StreamingResponse(served.read(offset), media_type=_BYTES)

    async def process_signal(self, request: Request) -> Response:
        served = self._process(request)
        await self._contract(request, Signal)
        await self._threaded("control", served.process.interrupt)
        return _reply(Done())

    async def process_wait(self, request: Request) -> Response:
        served = self._process(request)
        asked = await self._contract(request, WaitRemote)
        return _reply(await served.wait(asked.timeout_sec))

    async def process_kill(self, request: Request) -> Response:
        served = self._process(request)

        def kill() -> ProcessState:
            served.kill()
            return served.state()

        return _reply(await self._threaded("control", kill))

    def _process(self, request: Request) -> Served:
        return self.manager.processes.get(_path(request, "process", "^[0-9a-f]{32}$"))

    async def base_state(self, request: Request) -> Response:
        tree = _path(request, "tree", OBJECT_PATTERN)
        return _reply(await self._threaded("control", lambda: self.manager.base(tree)))

    async def base_upload(self, request: Request) -> Response:
        tree = _path(request, "tree", OBJECT_PATTERN)

        def take(file: Any) -> BaseState:
            return self.manager.receive(file, tree)

        return await self._upload(request, take)

    async def snapshot_import(self, request: Request) -> Response:
        workspace = _path(request, "workspace", NAME_PATTERN)
        return await self._upload(request, lambda file: self.manager.receive_snapshot(file, workspace), workspace)

    async def _upload(self, request: Request, take: Callable[[Any], Contract], workspace: str = "") -> Response:
        """A body of its own pace first, which holds up nobody; then its turn."""
        limit, seconds = self.settings.upload_bytes, self.settings.body_sec
        try:
            if self.draining:
                raise Draining
            async with self._queues["uploads"].turn():
                with self.manager.spool() as file:
                    await messages.spooled(request, file, limit, seconds)
                    async with self._queues["intake"].turn(), self._queues["files"].turn(workspace):
                        return _reply(await self._threaded("files", lambda: take(file)))
        except Busy:
            await messages.discarded(request, limit, seconds)
            raise

    async def snapshot_export(self, request: Request) -> Response:
        workspace = _path(request, "workspace", NAME_PATTERN)
        snapshot = _path(request, "snapshot", OBJECT_PATTERN)
        whole = _flag(request, "whole")
        async with self._queues["files"].turn(workspace):
            chunks = await self._threaded(
                "files", lambda: self.manager.executor.export_snapshot(workspace, snapshot, whole)
            )
        return StreamingResponse(self._exporting(chunks), media_type=_BYTES)

    async def _exporting(self, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        """The service does not end before the caller has all of it, or has gone away."""
        self._exports += 1
        try:
            async for chunk in iterate_in_threadpool(chunks):
                yield chunk
        finally:
            self._exports -= 1

    async def about(self, request: Request) -> Response:
        executor = self.manager.executor
        return _reply(About(level=executor.level, remaps=executor.remaps, version=__version__))

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


def _reply(answer: Contract | bytes) -> Response:
    if isinstance(answer, bytes):
        return Response(answer, media_type=_BYTES)
    return Response(answer.model_dump_json(), media_type="application/json")


def _path(request: Request, name: str, pattern: str) -> str:
    value: str = request.path_params[name]
    if not re.fullmatch(pattern.removeprefix("^").removesuffix("$"), value):
        raise messages.BadParameter(f"the path's {name} is not valid")
    return value


def _whole_number(request: Request, name: str) -> int:
    value = request.query_params.get(name, "0")
    if not re.fullmatch(r"0|[1-9][0-9]{0,17}", value):
        raise messages.BadParameter(f"{name} must be a whole number")
    return int(value)


def _flag(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "false")
    if value not in ("true", "false"):
        raise messages.BadParameter(f"{name} must be true or false")
    return value == "true"


def _nothing_there(request: Request) -> Response:
    message = f"there is nothing at {request.url.path[:200]!r}"
    return failed(Failure(kind=FailureKind.PATH_NOT_FOUND, message=message, next_action="See /openapi.json."), 404)


def _wrong_method(request: Request, error: Exception) -> Response:
    failure = Failure(
        kind=FailureKind.TOOL_INVALID_ARGS,
        message=f"{request.url.path[:200]!r} does not take {request.method[:20]}",
        next_action="See /openapi.json.",
    )
    return failed(failure, 405, dict(getattr(error, "headers", None) or {}))
