"""The service does exactly what its OpenAPI document says, whatever it is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = 10


def test_schemathesis_finds_nothing(service, tmp_path: Path):
    """All checks, on every operation. Its report is in the assertion if there is one."""
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{service.url}/openapi.json"),
        *("--header", "Authorization: Bearer a-token-for-tests-0123456789"),
        *("--checks", "all", "--max-examples", str(EXAMPLES), "--seed", "1", "--no-color"),
        *("--phases", "examples,coverage,fuzzing", "--request-timeout", "60"),
        *("--generation-database", "none"),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
