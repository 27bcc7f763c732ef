"""How the service does: probes, metrics, workers, and the description of the API."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from codepilot import __version__
from codepilot.api.access import Viewer
from codepilot.api.service import service_of
from codepilot.api.shapes import HealthOut, LockList, LockOut, WorkerList, WorkerOut
from codepilot.bench.ratios import pass_at_1
from codepilot.engine.metrics import show_sweeps
from codepilot.engine.worker_pool import DEPTH
from codepilot.telemetry import METRICS
from codepilot.telemetry.metrics import CONTENT_TYPE

router = APIRouter(tags=["health"])


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz")
def healthz() -> HealthOut:
    """The process answers."""
    return HealthOut(status="ok", version=__version__)


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses={503: {"model": HealthOut}})
def readyz(request: Request, response: Response) -> HealthOut:
    """It takes requests: the store answers, and the service is not shutting down."""
    service = service_of(request)
    status = "draining" if service.draining.is_set() else "ok" if service.pilot.healthy() else "unavailable"
    response.status_code = 200 if status == "ok" else 503
    return HealthOut.model_validate({"status": status, "version": __version__})


@router.get("/metrics", openapi_extra={"responses": {"200": {"content": {"text/plain": {}}}}})
def metrics(request: Request, who: Viewer) -> Response:
    """What was counted, for Prometheus."""
    pilot = service_of(request).pilot
    show_sweeps(pass_at_1(pilot.settings.home.path / "bench"))
    DEPTH.set(pilot.queue_depth())
    return Response(METRICS.render(), media_type=CONTENT_TYPE)


@router.get("/v1/workers")
def workers(request: Request, who: Viewer) -> WorkerList:
    """The workers that live."""
    pilot = service_of(request).pilot
    shown = (
        WorkerOut(
            worker_id=one.worker, host=one.host, pid=one.pid, heartbeat_at=one.beat_at, takes_queued=one.takes_queued
        )
        for one in pilot.workers()
    )
    return WorkerList(workers=tuple(shown), most_running=pilot.most_running())


@router.get("/v1/locks")
def locks(request: Request, who: Viewer) -> LockList:
    """The contract locks that runs hold."""
    return LockList(locks=tuple(LockOut(**vars(one)) for one in service_of(request).pilot.locks()))
