"""Bases that clients send as bytes: what a client has checked out becomes the base of a run on the service."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from pydantic import Field, ValidationError

from codepilot.core.access import Principal
from codepilot.core.contract import Contract
from codepilot.core.events import BasePinned
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.policy import tightened
from codepilot.core.task import TaskKind, TaskSpec
from codepilot.core.task_document import read_task_document
from codepilot.engine.agent_factory import choose_models, make_task_agent
from codepilot.engine.base import open_objects
from codepilot.engine.runtime import Runtime
from codepilot.engine.settings import Settings, document_mistake
from codepilot.workspace import ObjectStore

_OID = r"^[0-9a-f]{64}$"
_KINDS = (TaskKind.BUGFIX, TaskKind.CHANGE)
_NAME = re.compile(r"[^\w.-]+")


class SentBase(Contract):
    """The base of a task whose trees were sent before."""

    repository: str = Field(pattern=r"^[0-9a-f]{16}$")
    """The client's own name for the repository."""
    commit: str = Field(pattern=r"^[0-9a-f]{40,64}$")
    commit_tree: str = Field(pattern=_OID)
    tree: str = Field(pattern=_OID)


def place_of(who: Principal, repository: str) -> str:
    """Under which name a user's repository is kept here: nobody sends objects into another's."""
    return hashlib.sha256(f"sent\0{who.name}\0{repository}".encode()).hexdigest()[:16]


@contextmanager
def _objects(runtime: Runtime, who: Principal, repository: str) -> Iterator[ObjectStore]:
    with closing(open_objects(runtime.home, place_of(who, repository))) as objects:
        yield objects


def has_tree(runtime: Runtime, who: Principal, repository: str, tree: str) -> bool:
    with _objects(runtime, who, repository) as objects:
        return objects.has_tree(tree)


def receive_tree(
    runtime: Runtime, who: Principal, repository: str, tree: str, chunks: Iterable[bytes], limit_bytes: int
) -> None:
    """Take in a tree with all it holds. A stream that is wrong in any way changes nothing."""
    with _objects(runtime, who, repository) as objects:
        root = objects.receive(chunks, limit_bytes)
    if root != tree:
        raise CodePilotError(FailureKind.INVALID_SPEC, f"The stream holds {root}, not {tree}.", "Send it again.")


def take_base(runtime: Runtime, who: Principal, sent: SentBase) -> BasePinned:
    """The base of a run, if all of its trees are here."""
    with _objects(runtime, who, sent.repository) as objects:
        missing = [tree for tree in dict.fromkeys((sent.tree, sent.commit_tree)) if not objects.has_tree(tree)]
    if missing:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The base is incomplete: {', '.join(missing)} is missing.",
            "PUT each tree to /v1/bases first.",
        )
    place = place_of(who, sent.repository)
    return BasePinned(
        repo_id=place, commit=sent.commit, commit_tree=sent.commit_tree, tree=sent.tree, lineage=f"{place}@service"
    )


def read_sent_task(document: dict[str, Any], settings: Settings) -> TaskSpec:
    """A task whose repository is a sent base. No path of the client is looked at here."""
    name = _NAME.sub("-", str(document.pop("name", "")))[:100] or "repository"
    values = {"task_id": "t-0", **document, "repo": f"sent:{name}"}
    try:
        task = TaskSpec.model_validate(values)
    except ValidationError as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The task cannot be used: {document_mistake(error, TaskSpec.model_fields)}",
            "Correct it.",
        ) from error
    unfit = task.approved_hosts or task.approved_test_hosts or task.sandbox_level == "none" or task.branch
    if unfit or task.kind not in _KINDS:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "A task with a sent base is a bugfix or a change, approves no hosts, and commits to no branch.",
            "Submit it where the repository is, or name the repository by its URL.",
        )
    model, fallback = choose_models(task.agent, task.model, task.fallback_model, settings)
    make_task_agent(task.agent, model, fallback, settings)
    own = {
        "model": model,
        "fallback_model": fallback,
        "ref": None,
        "python": None,
        "sandbox_level": settings.sandbox.level,
        "public_hosts_only": True,
    }
    limits = {
        "policy": tightened(settings.policy, task.policy),
        "memory": settings.memory.tightened(task.memory),
    }
    return task.model_copy(update={**own, **limits})


def parsed(document: str) -> dict[str, Any]:
    """The document as an object in the names of the task contract; `repo` is empty if it names none."""
    return dict(read_task_document(document, ""))
