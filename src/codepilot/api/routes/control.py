"""Requests to a run: cancel, pause, resume, fork, apply."""

from __future__ import annotations

from fastapi import APIRouter, Request

from codepilot.api.access import Admin, Operator
from codepilot.api.present import status_of
from codepilot.api.service import Service, service_of
from codepilot.api.shapes import Applied, ApplyIn, Controlled, ForkIn, ResumeIn
from codepilot.core.interactive import ModeSwitch
from codepilot.core.run import Run

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["control"])


def _controlled(service: Service, run: Run) -> Controlled:
    activity = service.pilot.activities(run.run_id).get(run.run_id)
    return Controlled(
        run_id=run.run_id,
        status=status_of(run.state, activity),
        cancel_requested=run.cancel_requested,
        pause_requested=run.pause_requested,
    )


@router.post("/cancel", status_code=202)
def cancel(request: Request, who: Operator, run_id: str) -> Controlled:
    """End a run and remove its workspace; within a second if a worker has it."""
    service = service_of(request)
    return _controlled(service, service.pilot.cancel(service.pilot.find(run_id), by=who.name))


@router.post("/pause", status_code=202)
def pause(request: Request, who: Operator, run_id: str) -> Controlled:
    """Let a run stop at its next safe point."""
    service = service_of(request)
    return _controlled(service, service.pilot.pause(run_id, by=who.name))


@router.post("/resume", status_code=202)
def resume(request: Request, who: Operator, run_id: str, wanted: ResumeIn | None = None) -> Controlled:
    """Let a run go on that waits, was paused or has spent its budget."""
    service, wanted = service_of(request), wanted or ResumeIn()
    mode = ModeSwitch(execution_mode=wanted.execution_mode, strategy=wanted.strategy)
    return _controlled(service, service.pilot.resume(run_id, by=who.name, limits=wanted.limits, mode=mode))


@router.post("/fork", status_code=201)
def fork(request: Request, who: Operator, run_id: str, wanted: ForkIn | None = None) -> Controlled:
    """Queue a new run that begins with this one's events up to number `at`."""
    service = service_of(request)
    return _controlled(service, service.pilot.fork(run_id, wanted.at if wanted else None, by=who.name))


@router.post("/apply")
def apply(request: Request, who: Admin, run_id: str, wanted: ApplyIn | None = None) -> Applied:
    """Write the proved change into the checkout on the server that the run was made for."""
    plausible = bool(wanted and wanted.accept_plausible)
    found = service_of(request).pilot.apply(run_id, accept_plausible=plausible, by=who.name)
    return Applied(run_id=service_of(request).pilot.find(run_id), checkout=found.checkout, files=found.files)
