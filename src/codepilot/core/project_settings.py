"""The settings of `[project]`, and a safe parser for a repository's TOML."""

import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from codepilot.core.contract import Contract
from codepilot.core.git_names import check_copied_path, check_folder


class ProjectSettings(Contract):
    """How the project is run and tested."""

    root: Annotated[str, AfterValidator(check_folder)] = ""
    """The directory of the project to repair, relative to the top of the repository."""
    python: str | None = None
    """The interpreter that has the project's dependencies. A repository may only name a system interpreter."""
    runner: Literal["auto", "pytest", "unittest", "maven", "gradle", "npm"] = "auto"
    """The test runner; `auto` detects it."""
    carry: tuple[Annotated[str, AfterValidator(check_copied_path)], ...] = ()
    """Ignored files of the checkout that the tests need; they are copied into the workspace."""
    env: Mapping[str, str] = {}
    """Variables for the project's commands."""


TOML_BYTES = 1 << 18
_DOTS = 200
"""The parser's time grows with the square of the parts of a dotted key."""


def parse_toml(content: bytes) -> dict[str, Any]:
    """Parse a repository's TOML; raise ValueError if it is malformed or too expensive to parse."""
    if len(content) > TOML_BYTES:
        raise ValueError(f"it is larger than {TOML_BYTES >> 10} KiB")
    if any(line.count(b".") > _DOTS for line in content.splitlines()):
        raise ValueError(f"a line holds more than {_DOTS} dots")
    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
