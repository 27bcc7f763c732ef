"""What a user may say about the project in `[project]`."""

from collections.abc import Mapping
from typing import Literal

from codepilot.core.contract import Contract


class ProjectSettings(Contract):
    """Everything has a working default; `python` yields to the `--python` flag."""

    python: str | None = None
    runner: Literal["auto", "pytest", "unittest", "maven", "gradle", "npm"] = "auto"
    carry: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
