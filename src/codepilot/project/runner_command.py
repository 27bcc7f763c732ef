"""The command that runs a project's tests, for the judge and for the agent alike. Standard library only.

The exact test ids go to the command on standard input; pytest gets only the files to look in.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

VARIABLE = "CODEPILOT_TESTS"
"""The variable that holds the command as JSON, for code inside the workspace."""
FOLDER = "CODEPILOT_FOLDER"
"""The variable that holds the project's directory if it is not the top of the repository. Runners start there."""
ARGV_BYTES = 100_000

PYTEST = (
    "-m",
    "pytest",
    "-p",
    "codepilot_plugin",
    "-p",
    "codepilot_options",
    "-o",
    "cache_dir=$CODEPILOT_CACHE",
    "--rootdir=.",
    "--maxfail=0",
    "--continue-on-collection-errors",
    "--tb=short",
    "--color=no",
    "--show-capture=no",
)
UNITTEST = ("-m", "codepilot_unittest")


def described(argv: Sequence[str], plugins: str) -> str:
    """The command for `VARIABLE`. `plugins` is the directory that must be importable, if any."""
    return json.dumps({"argv": list(argv), "plugins": plugins})


def read_command(environ: Mapping[str, str], tests: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command line and the variables that run the named tests; no command line where there is no description."""
    given = json.loads(environ.get(VARIABLE) or "{}")
    argv = with_places(given.get("argv", []), tests, environ.get(FOLDER, ""))
    return argv, importable(given.get("plugins", ""), environ)


def with_places(argv: Sequence[str], tests: Sequence[str], folder: str = "") -> list[str]:
    """A command line with the files in which pytest finds the named tests, as seen from the project's folder."""
    if tuple(argv[1:3]) != PYTEST[:2]:
        return list(argv)
    places = list(dict.fromkeys(name.partition("::")[0].removeprefix("./") for name in tests))
    if folder:
        places = [place.removeprefix(f"{folder}/") if place != folder else "." for place in places]
    if sum(len(os.fsencode(place)) + 1 for place in places) > ARGV_BYTES:
        places = list(dict.fromkeys((p[2:] if p.startswith("./") else p).partition("/")[0] for p in places))
    return [*argv, *places]


def importable(plugins: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variable that makes a directory of plugins importable."""
    rest = environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{plugins}:{rest}" if rest else plugins} if plugins else {}
