"""A worker's process that drives one run, and kills itself once in every state that it has not died in before."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from engine_kit import APPROVE, DONE, MAP, PLAN, RIGHT

from codepilot.agents import CodeActAgent
from codepilot.core.events import Event, EventType, State, StepQueued
from codepilot.engine import Runtime, Worker
from codepilot.models import Message, ScriptedModel
from configured import configured

REPLIES = {"RepoMapper": [MAP], "Planner": [PLAN], "Implementer": [RIGHT, DONE], "Reviewer": [APPROVE]}

BY_AGENT = (State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.REVIEW)
"""Here it dies in the middle of an action."""


def main(home: str, run_id: str, graves: Path) -> None:
    state = {"now": State.INIT}

    def listen(event: Event) -> None:
        if isinstance(event.data, StepQueued):
            state["now"] = event.data.state
        grave = graves / state["now"]
        deadly = EventType.TURN_STARTED if state["now"] in BY_AGENT else EventType.STEP_STARTED
        if event.type is deadly and not grave.exists():
            grave.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    with Runtime.open(configured({"CODEPILOT_HOME": home})) as runtime:
        state["now"] = runtime.store.load(run_id).state
        agent = CodeActAgent(ScriptedModel(reply))
        print(Worker(runtime, listen, agent_for=lambda task: agent).drive(run_id).state)  # noqa: T201


def reply(messages: Sequence[Message]) -> str:
    """The role's next reply, by the replies that it gave without an interruption."""
    role = messages[0].content.partition("You are the ")[2].partition(".")[0]
    answers = [message.content for message in messages[2:] if message.role == "user"]
    done = sum("interrupted" not in answer for answer in answers)
    return REPLIES[role][min(done, len(REPLIES[role]) - 1)]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
