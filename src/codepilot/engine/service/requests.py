"""What a service does for its users: submit a task that came over the network, within what its sender may do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codepilot.core.access import Principal, Scope
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.core.task import TaskKind, TaskSpec
from codepilot.engine.facade.base import FacadeBase
from codepilot.store import new_id

if TYPE_CHECKING:
    from codepilot.core.events import BasePinned
    from codepilot.core.review import HunkChoice
    from codepilot.engine.change.review import Reasons, Reviewed
    from codepilot.engine.task import Begun

_OWN_KEYS = ("anthropic:", "openai:")


class ServiceWork(FacadeBase):
    def submit_for(self, who: Principal, document: str, key: str | None = None) -> Run:
        """Queue a run of a task document for a user of the service.

        A second call with the same user, key and document returns the first one's run; with another document it is an
        error.
        """
        from codepilot.engine.task import submit

        run_id = new_id("r-") if key is None else _keyed("r-k", who.name, key)
        task, base = self._asked(who, document, run_id)
        task_id = new_id("t-") if key is None else _keyed("t-k", who.name, key, document)
        task = task.model_copy(update={"task_id": task_id})
        run = submit(self._runtime, task, run_id, by=who.name, base=base)
        if key is not None and run.task.task_id != task.task_id:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                "The Idempotency-Key was used for another task.",
                next_action="Use a new key for each task.",
            )
        return run

    def review_for(
        self,
        who: Principal,
        run_id: str,
        *,
        accept: Sequence[str] = (),
        reject: Sequence[str] = (),
        reason: Reasons = "",
        rest: HunkChoice | None = None,
        again: bool = False,
    ) -> Reviewed:
        """Take a part of a run's change for a user of the service. The runs that begin are left to any worker."""
        from codepilot.engine.change.review import Choices, review_run

        choices = Choices(tuple(accept), tuple(reject), reason, rest, again, who.name)
        found = review_run(self._runtime, run_id, choices)
        for begun in (found.judging, found.again):
            if begun is not None:
                self._hand_over(begun)
        return found

    def _hand_over(self, begun: Begun) -> None:
        """Let any worker have a run that this process has begun and does not work on."""
        store = self._runtime.store
        if begun.start is not None:
            store.give_back(begun.start.claim)
        store.release_worker(begun.worker)

    def _asked(self, who: Principal, document: str, run_id: str) -> tuple[TaskSpec, BasePinned | None]:
        """The task that a document describes, with its base if the client has sent that."""
        from codepilot.engine.documents import read_task
        from codepilot.engine.service.uploads import SentBase, parsed, read_sent_task, take_base

        hosts = self.settings.service.repository_hosts
        values = parsed(document)
        check_named(who, values)  # before anything looks at it
        if (sent := values.pop("base", None)) is None:
            named = next((values[name] for name in ("repo", "repoUrl", "repo_url") if name in values), "")
            place = _own_place(values, self.settings.home.builds / run_id) if named == "" else ""
            if not place:
                check_repository(who, str(named))  # before anything looks at it
            return checked_for(who, read_task(document, self.settings, place), hosts, place), None
        try:
            base = SentBase.model_validate(sent)
        except ValueError as error:
            raise CodePilotError(
                FailureKind.INVALID_SPEC, "The task's base cannot be used.", "Send its repository, commit and trees."
            ) from error
        values.pop("repo", None)
        task = read_sent_task(values, self.settings)
        check_models(who, task)
        return task, take_base(self._runtime, who, base)

    def has_tree(self, who: Principal, repository: str, tree: str) -> bool:
        """True if a user of the service has sent this tree of a repository."""
        from codepilot.engine.service.uploads import has_tree

        return has_tree(self._runtime, who, repository, tree)

    def receive_tree(self, who: Principal, repository: str, tree: str, chunks: Iterable[bytes]) -> None:
        """Take in a tree of a repository that a user of the service has checked out."""
        from codepilot.engine.service.uploads import receive_tree

        limit = self.settings.service.upload_mb << 20
        receive_tree(self._runtime, who, repository, tree, chunks, 4 * limit)


def _keyed(prefix: str, *parts: str) -> str:
    return prefix + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _own_place(values: Mapping[str, Any], place: Path) -> str:
    """Where the service keeps what a task makes that names no directory."""
    made = values.get("scaffold")
    if isinstance(made, dict) and not made.get("join"):
        return str(place / "module")
    if values.get("kind", values.get("type")) == TaskKind.BUILD:
        return str(place / "program")
    raise CodePilotError(
        FailureKind.INVALID_SPEC,
        "The task names no repository.",
        next_action="Set repoUrl, or send a checkout: codepilot submit --url URL.",
    )


def checked_for(who: Principal, task: TaskSpec, hosts: tuple[str, ...] = (), place: str = "") -> TaskSpec:
    """The task as this user may submit it: repositories are fetched from public addresses and from `hosts`.

    Only administrators name files, interpreters and models of the server. `place` is the service's own directory for
    the task.
    """
    from codepilot.workspace import check_public

    remote = _is_remote(task.repo)
    if task.repo != place:
        check_repository(who, task.repo)
    if not who.scope.allows(Scope.ADMIN):
        for wrong, what in (
            (task.python is not None, "an interpreter of the server"),
            (task.branch is not None, "a branch of a checkout on the server"),
        ):
            if wrong:
                raise _not_yours(what)
        check_models(who, task)
    if remote:
        check_public(task.repo, hosts)
    return task.model_copy(update={"public_hosts_only": remote})


def check_repository(who: Principal, repo: str) -> None:
    """Others than administrators learn nothing about files of the server, not even whether they are there."""
    if not _is_remote(repo) and not who.scope.allows(Scope.ADMIN):
        raise _not_yours(f"the repository {repo!r} of the server")


def _is_remote(repo: str) -> bool:
    from codepilot.workspace import is_url

    return is_url(repo) and not repo.lower().startswith("file:")


def check_named(who: Principal, values: Mapping[str, Any]) -> None:
    """The interpreter and models of a document that is not read yet: a scripted model is a file of the server."""
    if values.get("python") is not None and not who.scope.allows(Scope.ADMIN):
        raise _not_yours("an interpreter of the server")
    for name in ("model", "fallback_model", "fallbackModel"):
        check_model(who, str(values.get(name) or ""))


def check_models(who: Principal, task: TaskSpec) -> None:
    for named in (task.model or "", task.fallback_model or ""):
        check_model(who, named)


def check_model(who: Principal, named: str) -> None:
    """Others than administrators use models of the known providers: an address could be sent the service's keys."""
    if named and not who.scope.allows(Scope.ADMIN) and not named.startswith(_OWN_KEYS):
        raise _not_yours(f"the model {named!r}")


def _not_yours(what: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.DENIED,
        f"Only an administrator of the service may name {what}.",
        next_action="Name a repository by its URL and leave the rest to the service, or ask an administrator.",
    )
