"""Links that answer one request for approval without signing in, until the request expires."""

from __future__ import annotations

from codepilot.core.access import matches, signature
from codepilot.core.approval import ApprovalRequested
from codepilot.core.run import Run
from codepilot.engine.runtime import Runtime

_PURPOSE = "answer"


def answer_link(runtime: Runtime, run: Run) -> str | None:
    """The link for the request that a run waits for; None if it waits for none, or the service's URL is not known."""
    waiting, service = run.waiting_for, runtime.settings.service.url
    if service is None or waiting is None or waiting.approval_id is None:
        return None
    request = _request(run, waiting.approval_id)
    if request is None or request.expires_at is None:
        return None
    signed = _signature(runtime, run.run_id, request)
    return f"{service.rstrip('/')}/answer/{run.run_id}/{request.approval_id}?signature={signed}"


def linked_request(runtime: Runtime, run: Run, approval_id: str, given: str) -> ApprovalRequested | None:
    """The request that a link names; None if the signature is wrong. Whether it can still be answered is not asked."""
    request = _request(run, approval_id)
    if request is None or not matches(given, _signature(runtime, run.run_id, request)):
        return None
    return request


def _request(run: Run, approval_id: str) -> ApprovalRequested | None:
    return next((one.request for one in run.approvals if one.request.approval_id == approval_id), None)


def _signature(runtime: Runtime, run_id: str, request: ApprovalRequested) -> str:
    """It covers the time at which the request expires, so a request that is asked anew has another link."""
    key = runtime.store.credentials.signing_key()
    return signature(key, _PURPOSE, run_id, request.approval_id, str(request.expires_at))
