"""`codepilot executor` refuses to start open to the world, or nowhere, and says what to do instead."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from codepilot.cli.executor import TOKEN, Serving, level_named, serve
from codepilot.core.failures import CodePilotError, FailureKind


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    return Serving(
        listen="127.0.0.1:0",
        home=tmp_path / "home",
        level="best",
        no_token=False,
        workspaces=1,
        processes=1,
        queue=1,
        concurrency=None,
        drain_sec=1.0,
        allow_mounts=(),
        allow_hosts=(),
        as_json=True,
    )


@pytest.mark.parametrize(
    ("changes", "environ", "said"),
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
def test_a_service_that_would_be_open_or_nowhere_is_not_started(serving, changes, environ, said):
    with pytest.raises(CodePilotError) as caught:
        serve(replace(serving, **changes), environ)
    assert caught.value.kind is FailureKind.INVALID_SPEC
    assert said in caught.value.failure.message
    assert caught.value.failure.next_action
    assert not serving.home.exists()


def test_a_level_must_exist():
    with pytest.raises(CodePilotError, match="no sandbox level"):
        level_named("strong")


def test_without_the_extra_it_says_what_to_install(serving, monkeypatch):
    monkeypatch.setitem(sys.modules, "codepilot.executor.service", None)
    with pytest.raises(CodePilotError) as caught:
        serve(serving, {})
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
