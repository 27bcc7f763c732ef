"""Shadows and comparisons through every executor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import CreateWorkspace, Executor, RunCommand

NAME = "r-1"


def sh(executor: Executor, script: str) -> str:
    done = executor.run_command(RunCommand(workspace=NAME, argv=("/bin/sh", "-c", script)))
    assert done.exit_code == 0, done.stderr
    return done.stdout.decode()


def test_code_works_in_the_shadow_and_promotions_change_the_tree(
    executor: Executor, request_for: Callable[..., CreateWorkspace]
) -> None:
    tree = Path(executor.create(request_for(at="/srv/project")).path)
    if not executor.remaps:
        with pytest.raises(CodePilotError) as caught:
            executor.open_shadow(NAME)
        assert caught.value.kind is FailureKind.SANDBOX_UNAVAILABLE
        return
    opened = executor.open_shadow(NAME)
    assert (opened.path, opened.tree) == (str(tree), opened.promoted)
    assert sh(executor, "pwd; cat README; echo changed > README; mkdir new; echo x > new/file").startswith(
        "/srv/project"
    )
    assert (tree / "README").read_text() == "hello\n"
    taken = executor.snapshot(NAME)
    sh(executor, "rm README")
    assert executor.promote(NAME, taken.snapshot).tree == taken.tree
    assert (tree / "README").read_text() == "changed\n"
    assert (tree / "new/file").read_text() == "x\n"
    changes = executor.compare(NAME, opened.tree, taken.tree, patch=False).changes
    assert [(one.path, one.change) for one in changes] == [("README", "modified"), ("new/file", "added")]
    assert changes[0].before
    assert b"+changed" in executor.compare(NAME, opened.tree, taken.tree).patch
    executor.close_shadow(NAME)
    assert sh(executor, "cat README") == "changed\n"
