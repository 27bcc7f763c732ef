"""Trees that attack the host which snapshots, reads, compares, restores and deletes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from attack_kit import Attack, Targets, command, expected, settle
from corpus import of

from codepilot.core.failures import CodePilotError
from codepilot.executor import CreateWorkspace, LocalExecutor, RunCommand
from codepilot.sandbox import Sandbox
from codepilot.workspace import Entry, ObjectStore

NAME = "r-3"


@pytest.fixture
def base(targets: Targets) -> tuple[Path, str]:
    path = targets.place / "objects"
    with ObjectStore.open(path) as store:
        files = {"README": b"hello\n", "pkg/mod.py": b"ANSWER = 41\n"}
        tree = store.write_tree({name: Entry("100644", store.write_blob(data)) for name, data in files.items()})
    return path, tree


@pytest.fixture
def executor(targets: Targets, sandbox: Sandbox, base: tuple[Path, str]) -> Iterator[LocalExecutor]:
    executor = LocalExecutor(targets.place / "runs", sandbox)
    executor.create(CreateWorkspace(workspace=NAME, objects=str(base[0]), tree=base[1], env={"MARK": targets.mark}))
    targets.look_again()
    yield executor
    executor.close()


@pytest.mark.parametrize("attack", of("tree"), ids=lambda attack: attack.name)
def test_a_hostile_tree_harms_nobody(
    attack: Attack, sandbox: Sandbox, targets: Targets, executor: LocalExecutor, base: tuple[Path, str]
) -> None:
    clean = executor.snapshot(NAME)
    argv = tuple(command(attack.program, targets))
    done = executor.run_command(RunCommand(workspace=NAME, argv=argv, limits=attack.limits, timeout_sec=20))
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    seen: set[str] = set()
    reported = [done.stdout, done.stderr]
    try:
        taken, found = executor.snapshot(NAME), executor.diff(NAME, base[1])
        seen |= {f"rule:{violation.rule}" for violation in (*taken.violations, *found.violations)} or {"none"}
        reported.append(found.patch)
    except CodePilotError as error:
        seen.add(f"failure:{error.kind}")
    for path in attack.then.split():
        try:
            reported.append(executor.read_file(NAME, path))
            seen.add("read")
        except CodePilotError as error:
            seen.add(f"failure:{error.kind}")
    assert seen <= expected(attack, sandbox.level) | {"none"} and seen & expected(attack, sandbox.level), seen
    executor.restore(NAME, clean.snapshot)
    assert executor.snapshot(NAME) == clean
    executor.delete(NAME)
    assert not (targets.place / "runs" / NAME).exists()
    settle(targets)
    targets.forget(NAME)
    assert targets.harm(*reported) == []
