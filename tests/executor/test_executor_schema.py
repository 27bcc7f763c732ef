"""The service does exactly what its OpenAPI document says, whatever it is asked. All checks of schemathesis."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import private_environment
from codepilot.executor import StartProcess

pytestmark = pytest.mark.timeout(400)  # The first one makes schemathesis' environment.

TOKEN = "a-token-for-tests-0123456789"
NAME = "fuzzed"
SPARED = tuple(f"POST /{what}" for what in ("workspace/delete", "workspace/release", "process/{process}/kill"))
SPARED += ("POST /workspace/freeze",)  # What is asked for in a frozen workspace waits.


@pytest.fixture(scope="session")
def schemathesis() -> Path:
    """A Python that has schemathesis. Its pytest plugin must not be seen by the suites that we run."""
    try:
        return private_environment.interpreter(Path(__file__).with_name("schemathesis.txt"))
    except private_environment.NotInstalled as error:
        pytest.fail(str(error))


def fuzz(python: Path, url: str, directory: Path, examples: int, *options: str) -> None:
    """Its report is in the assertion if it finds anything."""
    command = [
        *(str(python), "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--no-color"),
        *("--header", f"Authorization: Bearer {TOKEN}", "--request-timeout", "60"),
        *("--checks", "all", "--max-examples", str(examples), "--generation-database", "none", *options),
    ]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_nothing_is_found_by_a_stranger(schemathesis, service, tmp_path):
    """Names are made up, so that most of what is asked for is not there."""
    fuzz(schemathesis, service.url, tmp_path, 5, "--phases", "examples,coverage,fuzzing")


@pytest.mark.slow
def test_nothing_is_found_in_a_workspace(schemathesis, service, tmp_path, request_for, base):
    """Names are those of a workspace, a snapshot and a process that are there."""
    client = service.client()
    client.create(request_for(NAME))
    snapshot = client.snapshot(NAME).snapshot
    process = client.start_process(StartProcess(workspace=NAME, argv=("/bin/cat",)))
    known = {"workspace": NAME, "snapshot": snapshot, "tree": base[1], "process": process.name}
    values = {f"{place}.{name}": value for name, value in known.items() for place in ("path", "body")}
    values["body.base_tree"] = base[1]
    lines = ["[parameters]", *(f'"{name}" = "{value}"' for name, value in values.items()), '"body.timeout_sec" = 0.5']
    for name in SPARED:
        lines += ["[[operations]]", f'include-name = "{name}"', "enabled = false"]
    (tmp_path / "schemathesis.toml").write_text("\n".join(lines))
    fuzz(schemathesis, service.url, tmp_path, 3, "--phases", "fuzzing")
    assert client.snapshot(NAME).snapshot, "the workspace has survived"
    client.delete(NAME)
