"""Artifacts, the bundle and the logs of a run. A link reads one artifact without credentials until it expires."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from codepilot.api.access import Viewer, identify
from codepilot.api.etags import TaggedRoute, known
from codepilot.api.present import artifact_id
from codepilot.api.problems import not_allowed, not_found
from codepilot.api.routes.events import SSE, LastEventId, event_stream, streaming
from codepilot.api.service import Service, service_of
from codepilot.api.shapes import ArtifactList, ArtifactOut, LogFile, LogList
from codepilot.core.artifacts import ArtifactRef, ArtifactType

if TYPE_CHECKING:
    from codepilot.store import ArtifactRow

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["artifacts"], route_class=TaggedRoute)

LINK_SEC = 900
_PIECE = 1 << 20
_PURPOSE = "artifact"
_BYTES: dict[str, Any] = {
    "responses": {"200": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}}
}
_ZIP: dict[str, Any] = {
    "responses": {"200": {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}}
}
_LINES: dict[str, Any] = {"application/x-ndjson": {}, SSE: {}}
_LOG: dict[str, Any] = {"responses": {"200": {"content": _LINES}}}
_RUN_LOG = "run.jsonl"
READABLE = frozenset(
    {ArtifactType.LOG, ArtifactType.REPORT, ArtifactType.TRANSCRIPT, ArtifactType.TIMELINE, ArtifactType.PATCH}
)
"""What can be shown as text."""
_SUFFIXES = {
    ArtifactType.PATCH: "diff",
    ArtifactType.LOG: "txt",
    ArtifactType.REPORT: "txt",
    ArtifactType.TRANSCRIPT: "jsonl",
    ArtifactType.SNAPSHOT: "bin",
}


def _rows(service: Service, run_id: str, seconds: int | None = None) -> dict[str, tuple[ArtifactRow, str | None]]:
    """The artifacts of a run by their ids, the latest mention of each."""
    return {artifact_id(row): (row, where) for row, where in service.pilot.artifacts(run_id, seconds)}


@router.get("/artifacts")
def artifacts(
    request: Request,
    who: Viewer,
    run_id: str,
    link_sec: Annotated[
        int, Query(alias="linkSec", ge=1, le=7 * 86_400, description="How long links work.")
    ] = LINK_SEC,
) -> ArtifactList:
    """The artifacts of a run, with links that work without credentials for a while."""
    service = service_of(request)
    found = service.pilot.find(run_id)
    shown = [
        _artifact_out(service, found, name, row, where, link_sec)
        for name, (row, where) in _rows(service, found, link_sec).items()
    ]
    return ArtifactList(artifacts=tuple(shown))


def _artifact_out(
    service: Service, run_id: str, name: str, row: ArtifactRow, where: str | None, seconds: int
) -> ArtifactOut:
    expires, signature = service.pilot.sign_until(_PURPOSE, seconds, run_id, name)
    link = where
    if where is not None and "://" not in where:
        link = f"/v1/runs/{run_id}/artifacts/{name}?expires={expires}&signature={signature}"
    return ArtifactOut(
        artifact_id=name,
        run_id=run_id,
        type=row.ref.type,
        uri=row.ref.uri,
        sha256=row.ref.sha256,
        size_bytes=row.ref.size_bytes,
        metadata={"event": row.event, "seq": row.seq, "stepId": row.step_id, "role": row.state},
        link=link,
        link_expires_at=None if link is None else expires * 1_000_000,
    )


@router.get("/artifacts/{name}", openapi_extra=_BYTES)
async def artifact(
    request: Request,
    run_id: str,
    name: str,
    expires: Annotated[int, Query(ge=0, lt=1 << 53)] = 0,
    signature: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """The bytes of an artifact, for a signed link or for a user."""
    service = service_of(request)
    if not signature:
        await identify(request)
    elif not await run_in_threadpool(service.pilot.signed, signature, _PURPOSE, expires, run_id, name):
        raise not_allowed("The link is wrong or expired.", "Ask for the run's artifacts again: they have new links.")
    return await run_in_threadpool(_content, request, service, run_id, name)


def _content(request: Request, service: Service, run_id: str, name: str) -> Response:
    found = _rows(service, service.pilot.find(run_id)).get(name)
    if found is None:
        raise not_found(f"artifact {name!r} of this run", "GET its artifacts for their ids.")
    tag = {"ETag": f'"{found[0].ref.sha256}"', "Cache-Control": "private, no-cache"}
    if known(request, tag["ETag"]):
        return Response(status_code=304, headers=tag)
    sent = _sent(service, found[0].ref, f"{name}.{_suffix(found[0].ref.type)}")
    sent.headers.update(tag)
    return sent


def _suffix(kind: ArtifactType) -> str:
    return _SUFFIXES.get(kind, "json")


def _sent(service: Service, ref: ArtifactRef, name: str) -> Response:
    """Bytes that nobody vouches for: to be saved, never shown as a page."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Content-Length": str(ref.size_bytes)}
    return StreamingResponse(service.pilot.artifact(ref), media_type="application/octet-stream", headers=headers)


@router.get("/bundle", openapi_extra=_ZIP)
def bundle(request: Request, who: Viewer, run_id: str) -> Response:
    """The run's bundle as a zip file: the change with its proof."""
    service = service_of(request)
    found = service.pilot.find(run_id)
    service.pilot.fetch_bundle(found)
    place = service.pilot.bundle(found)
    if not place.is_dir():
        raise not_found(f"bundle of {found}", "A run has a bundle once it is DONE.")
    packed = io.BytesIO()
    try:
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(place.rglob("*")):
                if file.is_file() and not file.is_symlink():
                    archive.write(file, f"{found}/{file.relative_to(place).as_posix()}")
    except FileNotFoundError as error:  # it is being removed
        raise not_found(f"bundle of {found}", "Its run was removed.") from error
    headers = {"Content-Disposition": f'attachment; filename="{found}.zip"'}
    return Response(packed.getvalue(), media_type="application/zip", headers=headers)


@router.get("/program", openapi_extra=_ZIP)
def program(request: Request, who: Viewer, run_id: str) -> Response:
    """The files of the program or module that a run of kind build or scaffold made, as a zip file."""
    service = service_of(request)
    found = service.pilot.find(run_id)
    packed = tempfile.TemporaryFile(dir=service.pilot.settings.home.ensure().path)  # noqa: SIM115 - closed when sent
    service.pilot.pack_program(found, packed)
    packed.seek(0)
    headers = {"Content-Disposition": f'attachment; filename="{found}-program.zip"'}
    return StreamingResponse(_pieces(packed), media_type="application/zip", headers=headers)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE):
            yield piece


@router.get("/logs")
def logs(request: Request, who: Viewer, run_id: str) -> LogList:
    """The files to read of a run: its log, and what its steps wrote."""
    service = service_of(request)
    found = service.pilot.find(run_id)
    files = [
        LogFile(name=name, kind=row.ref.type, size_bytes=row.ref.size_bytes)
        for name, (row, _) in _rows(service, found).items()
        if row.ref.type in READABLE
    ]
    return LogList(logs=(LogFile(name=_RUN_LOG, kind="run", size_bytes=None), *files))


@router.get(f"/logs/{_RUN_LOG}", openapi_extra=_LOG)
async def run_log(request: Request, who: Viewer, run_id: str, last_event_id: LastEventId = "") -> Response:
    """The run's log, a line of JSON for each event: so far, or live as `text/event-stream`."""
    service = service_of(request)
    found = await run_in_threadpool(service.pilot.find, run_id)
    if not streaming(request):
        return StreamingResponse(_lines(service, found), media_type="application/x-ndjson")
    lines = await run_in_threadpool(service.live.log_of, found)
    return event_stream(request, service.live.run_events(found, int(last_event_id or 0), lines))


@router.get("/logs/{name}", openapi_extra={"responses": {"200": {"content": {"text/plain": {}, **_LINES}}}})
def log(request: Request, who: Viewer, run_id: str, name: str) -> Response:
    """One log as text."""
    service = service_of(request)
    found = service.pilot.find(run_id)
    row = _rows(service, found).get(name)
    if row is None or row[0].ref.type not in READABLE:
        raise not_found(f"log {name!r} of this run", "GET its logs for their names.")
    return StreamingResponse(service.pilot.artifact(row[0].ref), media_type="text/plain; charset=utf-8")


def _lines(service: Service, run_id: str) -> Iterator[bytes]:
    for line in service.pilot.log(run_id):
        yield f"{line}\n".encode()
