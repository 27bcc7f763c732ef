"""`codepilot executor` refuses to start open to the world, or nowhere, and says what to do instead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from codepilot.cli.options import LevelName
from codepilot.cli.team import TOKEN, executor
from codepilot.core.failures import CodePilotError, FailureKind


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CODEPILOT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("options", "environ", "message"),
    [
        ({}, {}, TOKEN),
        ({}, {TOKEN: "short"}, "at least 16"),
        ({}, {TOKEN: "long enough, but with spaces"}, "at least 16"),
        ({"no_token": True, "listen": "0.0.0.0:0"}, {}, "does not listen on 0.0.0.0"),
        ({"no_token": True, "listen": "[::]:0"}, {}, "does not listen on ::"),
        ({"no_token": True}, {TOKEN: "x" * 20}, "is set"),
        ({"no_token": True, "listen": "nonsense"}, {}, "not an address"),
        ({"no_token": True, "listen": ":80"}, {}, "not an address"),
        ({"no_token": True, "listen": "127.0.0.1:65536"}, {}, "not an address"),
    ],
)
def test_a_service_that_would_be_open_or_nowhere_is_not_started(home, options, environ, message, monkeypatch):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CodePilotError) as caught:
        executor(**{"listen": "127.0.0.1:0", "level": LevelName.best, **options})
    assert caught.value.kind is FailureKind.INVALID_SPEC
    assert message in caught.value.failure.message
    assert caught.value.failure.next_action
    assert not home.exists()


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "codepilot.executor.service", None)
    with pytest.raises(CodePilotError) as caught:
        executor(no_token=True)
    assert caught.value.kind is FailureKind.ENVIRONMENT_MISSING
    assert "pip install fastapi uvicorn" in caught.value.failure.next_action


def test_using_an_executor_elsewhere_needs_no_extra():
    """The client, and the command line itself, import neither FastAPI nor uvicorn."""
    program = (
        "import sys; import codepilot.cli.app; from codepilot.executor import RemoteExecutor;"
        "print([name for name in ('fastapi', 'starlette', 'uvicorn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "[]"
