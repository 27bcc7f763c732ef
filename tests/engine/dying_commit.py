"""A worker's process that ends a run with a commit, and kills itself once at every point around its making."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from engine_kit import EditingAgent

from codepilot.core.events import Event, EventType
from codepilot.engine import Runtime, Worker, commit
from codepilot.workspace import Commit, ObjectStore
from codepilot.workspace import commit as plumbing
from codepilot.workspace.repository import Repository
from configured import configured


def main(run_id: str, graves: Path) -> None:
    def die(name: str) -> None:
        if not (graves / name).exists():
            (graves / name).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def listen(event: Event) -> None:
        if event.type in (EventType.PROOF_RECORDED, EventType.COMMIT_RECORDED):
            die(f"after {event.type}")

    make_branch, write_commit = plumbing._make_branch, commit.write_commit

    def make_branch_in_the_end(repository: Repository, branch: str, name: str) -> str:
        die("before the branch")
        return make_branch(repository, branch, name)

    def write_commit_and_no_more(
        checkout: Path, objects: ObjectStore, wanted: Commit, branch: str, before_commit: Callable[[], None]
    ) -> str:
        name = write_commit(checkout, objects, wanted, branch, before_commit)
        die("before the event")
        return name

    plumbing._make_branch = make_branch_in_the_end
    commit.write_commit = write_commit_and_no_more
    with Runtime.open(configured()) as runtime:
        print(Worker(runtime, listen, agent_for=lambda task: EditingAgent()).drive(run_id).state)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
