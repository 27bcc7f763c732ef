"""Every test that takes `sandbox` runs at each level that confines; a machine without one may skip, CI may not."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from codepilot.sandbox import CommandResult, Limits, Mount, Sandbox, SandboxSpec
from levels import level


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return level(request.param)


@pytest.fixture(params=["bubblewrap", "landlock", "none"])
def any_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return level(request.param)


@pytest.fixture
def bubblewrap() -> Sandbox:
    return level("bubblewrap")


@pytest.fixture
def landlock() -> Sandbox:
    return level("landlock")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A workspace directory with a directory of its own around it."""
    path = tmp_path.resolve() / "place" / "tree"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def view(tree: Path) -> SandboxSpec:
    return SandboxSpec(Mount(tree, tree, writable=True))


@dataclass(frozen=True)
class Runner:
    sandbox: Sandbox
    view: SandboxSpec

    def __call__(self, *argv: str, limits: Limits | None = None, stdin: bytes = b"") -> CommandResult:
        return self.sandbox.run(argv, self.view, limits or Limits(wall_sec=60), stdin)

    def python(self, code: str, limits: Limits | None = None) -> CommandResult:
        return self("/usr/bin/python3", "-I", "-c", code, limits=limits)


@pytest.fixture
def run(sandbox: Sandbox, view: SandboxSpec) -> Runner:
    return Runner(sandbox, view)


@pytest.fixture
def run_any(any_sandbox: Sandbox, view: SandboxSpec) -> Runner:
    return Runner(any_sandbox, view)


@pytest.fixture
def marked() -> Callable[[str], list[int]]:
    """Finds the processes of the whole machine that carry a mark in their environment."""

    def find(mark: str) -> list[int]:
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                content = environ.read_bytes()
            except OSError:
                continue
            if f"MARK={mark}\0".encode() in content:
                found.append(int(environ.parent.name))
        return found

    return find


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificate")
    openssl = shutil.which("openssl")
    assert openssl is not None, "the openssl command makes the test's certificate"
    for_a_name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    of_a_kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command = [openssl, "req", "-x509", *of_a_kind, *for_a_name, "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return directory / "cert.pem"
