"""A directory with a tasks file, and `codepilot batch` on it as users run it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codepilot.engine import CodePilot
from configured import configured
from ready import Started, run

PROGRAM = Path(__file__).with_name("odd_program.py")
CONFIG = f"""
[profiles.odd]
command = ["{Path(sys.executable).resolve()}", "odd_program.py", "{{prompt}}"]
mounts = ["{sys.base_prefix}"]
grace_sec = 0.5

[profiles.odd.permission_regex]
press_1 = ["press 1"]
press_p = ["press p"]
"""


ANSWERED = {"permission_policy": {"auto_press_1": True, "auto_press_p": True}}
WAYS_AND_CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "works": ("completed", {}),
    "only_echoes": ("failed_incomplete", {"max_retries": 2}),
    "crashes": ("failed_process", {"max_retries": 1}),
    "fails": ("failed_process", {}),
    "hangs": ("failed_timeout", {"timeout_sec": 2, "max_retries": 1}),
    "goes_on": ("completed", {}),
    "floods": ("completed", {}),
    "floods_for_ever": ("failed_timeout", {"timeout_sec": 3}),
    "one_long_line": ("completed", {}),
    "redraws": ("completed", {}),
    "wraps": ("completed", {}),
    "breaks_its_lines": ("completed", {}),
    "hides_its_marker": ("completed", {}),
    "spins_for_ever": ("failed_timeout", {"timeout_sec": 3}),
    "prints_another_slowly": ("failed_incomplete", {}),
    "asks_the_terminal": ("completed", {}),
    "asks": ("completed", ANSWERED),
    "asks_both": ("completed", ANSWERED),
    "asks_for_ever": ("failed_permission_blocked", {**ANSWERED, "max_retries": 2}),
    "logged_out": ("failed_auth", {"max_retries": 2}),
    "out_of_quota": ("failed_quota", {"max_retries": 2}),
    "echoes_at_the_end": ("failed_incomplete", {}),
    "leaves_children": ("completed", {}),
    "closes_its_terminal": ("completed", {}),
    "prints_garbage": ("completed", {}),
    "does_not_start_its_name": ("failed_incomplete", {}),
}
"""How a task for `odd_program.py` ends, and what the task has beside its way."""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class BatchProject:
    """`work` is the directory of the tasks, beside the tasks file."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> BatchProject:
        project = cls(folder)
        project.work.mkdir(parents=True)
        shutil.copy(PROGRAM, project.work)
        config = folder / "config" / "codepilot" / "codepilot.toml"
        config.parent.mkdir(parents=True)
        config.write_text(CONFIG)
        return project

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def path(self) -> Path:
        return self.folder / "tasks.json"

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PYTHONPATH") if name in os.environ}
        own = {"CODEPILOT_HOME": str(self.folder / "home"), "XDG_CONFIG_HOME": str(self.folder / "config")}
        return {**kept, **own, "COLUMNS": "200"}

    def write(self, *tasks: dict[str, Any], indent: int | None = 2) -> None:
        self.path.write_text(json.dumps({"run_id": "b-1", "tasks": tasks}, indent=indent) + "\n")

    def __call__(self, *arguments: str, **environ: str) -> Ended:
        return Ended(*run(["batch", "tasks.json", *arguments], {**self.environ, **environ}, self.folder))

    def start(self, *arguments: str, **environ: str) -> Started:
        return Started(["batch", "tasks.json", *arguments], {**self.environ, **environ}, self.folder)

    def pilot(self) -> CodePilot:
        return CodePilot(configured(self.environ))

    def tasks(self) -> dict[str, dict[str, Any]]:
        """The tasks as the file has them."""
        return {task["task_id"]: task for task in json.loads(self.path.read_bytes())["tasks"]}

    def log(self, task_id: str, attempt: int = 1, suffix: str = ".log") -> bytes:
        return (self.folder / "runs" / task_id / f"attempt_{attempt}{suffix}").read_bytes()


def odd(way: str, **fields: Any) -> dict[str, Any]:
    """A task for the program that misbehaves."""
    prompt = f"{way}. When complete, print exactly: TASK_COMPLETE:{{task_id}}"
    return {"task_id": way, "agent": "odd", "cwd": "work", "timeout_sec": 60, "prompt_template": prompt, **fields}


def shell(task_id: str, command: str, **fields: Any) -> dict[str, Any]:
    """A task that is a command of the shell."""
    return {"task_id": task_id, "agent": "shell", "cwd": "work", "prompt_template": command, **fields}
