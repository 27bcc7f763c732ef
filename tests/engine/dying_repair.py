"""A worker's process that repairs without a model, and kills itself once after each kind of event around the test."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from codepilot.agents import RepairAgent
from codepilot.core.events import Event, EventType
from codepilot.engine import Runtime, Worker
from configured import configured

DEADLY = (
    EventType.TURN_STARTED,
    EventType.TURN_FINISHED,
    EventType.PATCH_PROPOSED,
    EventType.TESTS_JUDGED,
    EventType.PROOF_RECORDED,
)


def main(home: str, run_id: str, graves: Path) -> None:
    def listen(event: Event) -> None:
        grave = graves / event.type
        if event.type in DEADLY and not grave.exists():
            grave.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    with Runtime.open(configured({"CODEPILOT_HOME": home})) as runtime:
        print(Worker(runtime, listen, agent_for=lambda task: RepairAgent()).drive(run_id).state)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
