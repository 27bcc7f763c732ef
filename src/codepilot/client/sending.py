"""Sends tasks to a service: a checkout on this machine goes along as bytes. Bundles come back as a zip file."""

from __future__ import annotations

import io
import shutil
import tempfile
import zipfile
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any

from codepilot.client.http import Http
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import TaskKind, TaskSpec
from codepilot.engine import Request, Settings, make_task
from codepilot.engine.base import open_objects, pin
from codepilot.workspace import is_url

_SENT = (
    "kind",
    "goal",
    "path",
    "within",
    "tests",
    "constraints",
    "budget",
    "risk_profile",
    "policy",
    "memory",
    "evaluation",
    "accept",
    "priority",
    "agent",
    "model",
    "fallback_model",
    "notify",
)
"""What a service needs to know of a task; everything else is about this machine."""
MOST_BYTES = 1 << 30


def send_task(http: Http, settings: Settings, asked: Request | TaskSpec, key: str | None) -> str:
    """Submit a task; the run's id. With a key, doing so again begins nothing new."""
    task = asked if isinstance(asked, TaskSpec) else make_task(asked, settings)
    if task.approved_hosts or task.approved_test_hosts or task.sandbox_level == "none" or task.branch:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "A service takes no approved hosts, no branch, and no task without a sandbox.",
            "Leave these options out; its owner's policy decides there.",
        )
    document: dict[str, Any] = task.model_dump(mode="json", include=set(_SENT))
    if is_url(task.repo):
        document |= {"repo": task.repo, "ref": task.ref}
    else:
        document |= _send_base(http, settings, task)
    headers = None if key is None else {"Idempotency-Key": key}
    return str(http.post("/v1/tasks", document, headers)["runId"])


def _send_base(http: Http, settings: Settings, task: TaskSpec) -> dict[str, Any]:
    """Pin the checkout, send what of it the service lacks, and name it."""
    if task.kind not in (TaskKind.BUGFIX, TaskKind.CHANGE):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"A task of kind {task.kind} cannot be sent with a checkout of this machine.",
            "Name the repository by its URL, or run the task here.",
        )
    home = settings.home.ensure()
    base = pin(task, home)
    with closing(open_objects(home, base.repo_id)) as objects:
        for tree in dict.fromkeys((base.tree, base.commit_tree)):
            place = f"/v1/bases/{base.repo_id}/{tree}"
            if not http.get(place)["present"]:
                http.put(place, objects.export(tree))
    sent = {"repository": base.repo_id, "commit": base.commit, "commit_tree": base.commit_tree, "tree": base.tree}
    return {"name": Path(task.repo).name, "base": sent}


def unpack_bundle(packed: bytes, bundles: Path, run_id: str) -> None:
    """Put a bundle in its place, unless it is there. The service is not trusted with paths or sizes."""
    place = bundles / run_id
    if place.exists():
        return
    try:
        _unpack(packed, bundles, run_id)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, FileExistsError, NotADirectoryError) as error:
        raise CodePilotError(
            FailureKind.INTERNAL, f"The service sent no bundle of {run_id} that can be read: {error}."
        ) from error


def _unpack(packed: bytes, bundles: Path, run_id: str) -> None:
    place = bundles / run_id
    with (
        zipfile.ZipFile(io.BytesIO(packed)) as archive,
        tempfile.TemporaryDirectory(dir=bundles) as temporary,
    ):
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > MOST_BYTES:
            raise CodePilotError(FailureKind.INTERNAL, f"The bundle of {run_id} is larger than {MOST_BYTES} bytes.")
        for entry in entries:
            parts = PurePosixPath(entry.filename).parts
            if parts[:1] != (run_id,) or len(parts) < 2 or ".." in parts or entry.is_dir():
                continue
            target = Path(temporary, "bundle", *parts[1:])
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, target.open("xb") as out:
                shutil.copyfileobj(source, out)
        if Path(temporary, "bundle").is_dir():
            try:
                Path(temporary, "bundle").rename(place)
            except OSError:
                if not place.is_dir():  # another process brought it meanwhile
                    raise
