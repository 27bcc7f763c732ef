"""Bases that clients send: the trees of a repository that only the client has."""

from __future__ import annotations

import tempfile
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.concurrency import run_in_threadpool

from codepilot.api.access import Operator
from codepilot.api.problems import Refused
from codepilot.api.service import service_of
from codepilot.core.contract import Contract

router = APIRouter(prefix="/v1/bases", tags=["tasks"])

_CHUNK = 1 << 20
Repository = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", description="The client's name for the repository.")]
Tree = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="The hash of the tree.")]
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class TreeOut(Contract):
    tree: str
    present: bool


@router.get("/{repository}/{tree}")
def state(request: Request, who: Operator, repository: Repository, tree: Tree) -> TreeOut:
    """If this tree need not be sent again."""
    return TreeOut(tree=tree, present=service_of(request).pilot.has_tree(who, repository, tree))


@router.put("/{repository}/{tree}", openapi_extra=_BODY)
async def send(request: Request, who: Operator, repository: Repository, tree: Tree) -> TreeOut:
    """Send a tree with all it holds, as a stream of objects. `POST /v1/tasks` names it in `base`."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/octet-stream":
        raise Refused(415, "A tree is sent as application/octet-stream.")
    pilot = service_of(request).pilot
    with tempfile.TemporaryFile(dir=pilot.settings.home.ensure().path) as spool:
        async for chunk in request.stream():
            await run_in_threadpool(spool.write, chunk)
        spool.seek(0)
        await run_in_threadpool(pilot.receive_tree, who, repository, tree, iter(lambda: spool.read(_CHUNK), b""))
    return TreeOut(tree=tree, present=True)
