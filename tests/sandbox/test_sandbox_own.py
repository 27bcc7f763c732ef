"""The interpreter that CodePilot runs in, as the sandbox shows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import codepilot

RUNS = """
import sys
from pathlib import Path
from codepilot.sandbox import Kernel, Limits, Mount, SandboxSpec, choose
place = Path(sys.argv[1])
kernel = Kernel(choose(), SandboxSpec(Mount(place, place)), Limits())
print(sys.base_prefix, kernel.run("6 * 7").value)
kernel.stop()
"""


def test_an_interpreter_that_was_started_by_a_relative_path_is_shown(tmp_path: Path) -> None:
    """One without an environment, whose very prefix then has dots."""
    base = os.path.relpath(Path(sys.executable).resolve(), tmp_path)
    packages = [str(Path(codepilot.__file__).parents[1]), *(path for path in sys.path if path.endswith("-packages"))]
    done = subprocess.run(
        [base, "-c", RUNS, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(packages)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.stdout.split()[1:] == ["42"], done.stderr
