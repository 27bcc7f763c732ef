"""A worker's process that drives a run with child runs, and kills itself once at each point of their life."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from plans_kit import planned

from codepilot.agents import CodeActAgent
from codepilot.core.events import ChildJoined, ChildStarted, Event, RunFinished, TurnStarted
from codepilot.engine import Runtime, Worker, worker
from configured import configured


def main(home: str, run_id: str, graves: Path) -> None:
    def die(name: str) -> None:
        if not (graves / name).exists():
            (graves / name).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def listen(event: Event) -> None:
        if isinstance(event.data, ChildStarted | ChildJoined):
            die(event.type.value)

    def listen_to_child(event: Event) -> None:
        if isinstance(event.data, TurnStarted):
            die("turn")
        elif isinstance(event.data, RunFinished):
            die("child_done")

    worker._unseen = listen_to_child
    with Runtime.open(configured({"CODEPILOT_HOME": home})) as runtime:
        agent = CodeActAgent(planned())
        print(Worker(runtime, listen, agent_for=lambda task: agent).drive(run_id).state)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
