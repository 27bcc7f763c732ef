"""The settings of `[project]`, and a safe parser for a repository's TOML."""

import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from codepilot.core.contract import Contract
from codepilot.core.git_names import check_copied_path


class ProjectSettings(Contract):
    """The settings of `[project]`. The `--python` flag overrides `python`."""

    python: str | None = None
    runner: Literal["auto", "pytest", "unittest", "maven", "gradle", "npm"] = "auto"
    carry: tuple[Annotated[str, AfterValidator(check_copied_path)], ...] = ()
    env: Mapping[str, str] = {}


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
