"""Runs of agents that are programs: a checkout with a bug, and a program that does the steps of a script."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engine_kit import CODE, commit

from codepilot.core.events import Event, EventType
from codepilot.core.run import Run
from codepilot.core.task import InteractionMode
from codepilot.engine import Request, Runtime, Worker, make_task, submit
from configured import configured

PROGRAM = Path(__file__).parents[1] / "json_lines_agent.py"
FIXED = CODE.replace("width + height", "width * height", 1)
FIX = ["write", "shapes.py", FIXED]
WAIT = 60


@dataclass
class Scripts:
    """A checkout with the program and its scripts, each of which is one agent."""

    checkout: Path

    def add(self, *steps: Any, name: str = "script") -> str:
        """The name of an agent that takes these steps."""
        (self.checkout / f"{name}.json").write_text(json.dumps(list(steps)))
        commit(self.checkout, name)
        return f"stdio:{sys.executable} agent.py {name}.json"


@pytest.fixture
def scripts(checkout: Path) -> Scripts:
    shutil.copy(PROGRAM, checkout / "agent.py")
    return Scripts(checkout)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """The environment of the runs; their configuration file is in it too."""
    monkeypatch.setenv("CODEPILOT_PROJECT_RUNNER", "unittest")
    (tmp_path / "config" / "codepilot").mkdir(parents=True)
    return {
        "CODEPILOT_HOME": str(tmp_path / "home"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "CODEPILOT_POLICY_GENERATED_CODE": "off",
    }


def worked(
    settings: Mapping[str, str], checkout: Path, agent: str, config: str = "", **asked: Any
) -> tuple[Run, list[Event]]:
    """The run of a bug fix by this agent, as far as it comes by itself."""
    (Path(settings["XDG_CONFIG_HOME"]) / "codepilot" / "codepilot.toml").write_text(config)
    chosen = configured(settings)
    budget = {"iterations": 1, "wall_sec": WAIT, **asked.pop("budget", {})}
    asked = {"interaction": InteractionMode.FULL_AUTONOMY, **asked}
    with Runtime.open(chosen) as runtime:
        task = make_task(Request(repo=str(checkout), agent=agent, budget=budget, **asked), chosen)
        run = submit(runtime, task)
        ended = Worker(runtime).drive(run.run_id)
        runtime.store.check(run.run_id)
        return ended, runtime.store.events(run.run_id)


def mounted(directory: Path, *steps: Any, name: str = "script") -> str:
    """The name of an agent whose program and script lie in a directory of the user's, outside of any repository."""
    shutil.copy(PROGRAM, directory / "agent.py")
    (directory / f"{name}.json").write_text(json.dumps(list(steps)))
    return f"stdio:{sys.executable} {directory}/agent.py {directory}/{name}.json"


def data_of(events: Sequence[Event], kind: EventType) -> list[Any]:
    return [event.data for event in events if event.type is kind]
