"""The service does exactly what its OpenAPI document says, whatever it is asked. All checks of schemathesis."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_kit import make_checkout

import private_environment
from codepilot.core.access import Scope
from codepilot.engine import CodePilot, Request
from configured import configured
from ready import Started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

DOCUMENTED = ("POST /v1/tasks", "POST /v1/runs/{run_id}/review", "POST /v1/runs/{run_id}/resume")
"""What makes a body of these valid is more than a schema says: which keys a kind of task needs, what a change has."""
REQUIREMENTS = Path(__file__).parents[1] / "executor" / "schemathesis.txt"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[str, str, str]]:
    """The address of a real service, a token, and a run that has ended."""
    place = {
        "CODEPILOT_HOME": str(tmp_path / "home"),
        "CODEPILOT_PROJECT_RUNNER": "unittest",
        "CODEPILOT_POLICY_GENERATED_CODE": "off",
        "CODEPILOT_SERVICE_REQUESTS_PER_MIN": "6000000",
    }
    with CodePilot(configured(place)) as pilot:
        run_id = pilot.submit(Request(repo=str(make_checkout(tmp_path / "shapes")))).run_id
        pilot.work(run_id)
        token = pilot.create_token("fuzz", Scope.ADMIN).secret
    serving = Started(["serve", "--port", "0", "--no-workers", "--json"], {**os.environ, **place})
    assert serving.stdout is not None
    yield json.loads(serving.stdout.readline())["url"], token, run_id
    os.kill(serving.pid, signal.SIGTERM)
    assert serving.wait(30) == 0


@pytest.mark.parametrize("known", [False, True])
def test_nothing_is_found(service: tuple[str, str, str], known: bool, tmp_path: Path) -> None:
    """Once with made-up ids, so that most of what is asked for is not there, and once with those of a run that is."""
    url, token, run_id = service
    lines = ["[parameters]", f'"path.run_id" = "{run_id}"'] if known else []
    for name in DOCUMENTED:
        lines += ["[[operations]]", f'include-name = "{name}"', "checks.positive_data_acceptance.enabled = false"]
    (tmp_path / "schemathesis.toml").write_text("\n".join(lines))
    command = [
        *(str(private_environment.interpreter(REQUIREMENTS)), "-m", "schemathesis.cli", "run"),
        *(f"{url}/v1/openapi.json", "--no-color", "--header", f"Authorization: Bearer {token}"),
        *("--request-timeout", "60", "--max-examples", "8", "--generation-database", "none"),
        *("--phases", "fuzzing" if known else "examples,coverage,fuzzing"),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-20_000:]
