"""What a user may say about the project in `[project]`."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator

from codepilot.core.contract import Contract
from codepilot.core.git_names import check_copied_path


class ProjectSettings(Contract):
    """Everything has a working default; `python` yields to the `--python` flag."""

    python: str | None = None
    runner: Literal["auto", "pytest", "unittest", "maven", "gradle", "npm"] = "auto"
    carry: tuple[Annotated[str, AfterValidator(check_copied_path)], ...] = ()
    env: Mapping[str, str] = {}
