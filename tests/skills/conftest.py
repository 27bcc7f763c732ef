"""The skills' source, loaded as the kernel loads it, working in a directory of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from codepilot.core.task import Capability
from codepilot.project import PLUGIN_DIR
from codepilot.project.runner_command import PYTEST, UNITTEST, VARIABLE, described
from codepilot.skills import basic_skills

RUNNERS = {"pytest": PYTEST, "unittest": UNITTEST}
Load = Callable[..., dict[str, Any]]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    root = tmp_path / "work space é"
    root.mkdir()
    monkeypatch.chdir(root)
    before = set(sys.modules)

    def loaded(
        capability: Capability = Capability.WRITE_AND_RUN_TESTS, runner: str = "unittest", prepare: bool = False
    ) -> dict[str, Any]:
        if runner in RUNNERS:
            monkeypatch.setenv(VARIABLE, described((sys.executable, *RUNNERS[runner]), str(PLUGIN_DIR)))
        kernel: dict[str, Any] = {"__name__": "__main__"}
        exec(basic_skills().prelude(capability, sys.executable, runner, prepare), kernel)
        return kernel

    yield loaded
    for name in set(sys.modules) - before:
        if name.startswith("_skills_"):
            del sys.modules[name]
