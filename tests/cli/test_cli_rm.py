"""`codepilot rm`, and what `[retention]` makes of `gc`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Command

from codepilot.core.artifacts import ArtifactType
from codepilot.core.decide import start
from codepilot.core.failures import CodePilotError
from codepilot.core.task import Goal, TaskSpec


def left(home: Path, run_id: str) -> list[str]:
    """Files of the home whose path names the run."""
    return [str(path) for path in home.rglob("*") if run_id in path.name]


def stored(home: Path) -> list[Path]:
    return [path for path in (home / "artifacts" / "sha256").rglob("*") if path.is_file()]


def test_a_run_is_removed_with_everything_that_is_its_own(codepilot: Command, finished: str) -> None:
    forked = codepilot("fork", finished).out.strip()
    shared = stored(codepilot.home)
    assert shared and left(codepilot.home, finished)
    removed = codepilot("rm", finished, "--json").json["runs"]
    assert [(one["run_id"], one["existed"]) for one in removed] == [(finished, True)]
    assert left(codepilot.home, finished) == []
    with codepilot.runtime() as runtime:
        named = {row.ref.sha256 for row in runtime.store.artifacts(forked)}
        assert {path.name for path in stored(codepilot.home)} == named, "the fork keeps what it names"
        assert runtime.store.check_all() == {}
    again = codepilot("rm", finished)
    assert (again.code, again.out) == (0, f"{finished} was removed before.\n")
    assert codepilot("show", finished).code == 2
    assert codepilot("rm", "last").out.startswith(f"{forked} removed")
    assert stored(codepilot.home) == [] and codepilot("history", "--json").json["runs"] == []


def test_a_run_that_never_was_is_refused(codepilot: Command) -> None:
    for name in ("r-never", "last", "r-"):
        refused = codepilot("rm", name)
        assert refused.code == 2 and ("There is no run yet" if name == "last" else "There is no run 'r-") in refused.err


def test_a_log_stays_append_only_until_its_run_is_removed(codepilot: Command, queued: str) -> None:
    with codepilot.runtime() as runtime:
        claimed = runtime.store.claim_next("w-one", queued)
        with pytest.raises(CodePilotError, match="is at work"):
            runtime.store.remove_run(queued)
        assert claimed is not None
        runtime.store.give_back(claimed.claim)
        assert runtime.store.remove_run(queued) == [] and runtime.store.was_removed(queued)
        assert runtime.store.events(queued) == []


def test_artifacts_that_a_run_at_work_may_need_are_left_to_gc(codepilot: Command, finished: str) -> None:
    """It may have stored the same bytes, and not recorded them yet."""
    with codepilot.runtime() as runtime:
        runtime.artifacts.put(b"unnamed", ArtifactType.SNAPSHOT)
    before = len(stored(codepilot.home))
    with codepilot.runtime() as runtime:
        task = TaskSpec(task_id="t-01", goal=Goal(natural="Repair it"), repo="/nowhere")
        runtime.store.create_run("r-02", start(task, "r-02"), "w-one")
        removed = codepilot("rm", finished, "--json").json["runs"][0]
    assert (removed["artifacts"], removed["artifacts_left"]) == (0, before - 1)
    assert len(stored(codepilot.home)) == before


def test_retention_removes_old_bundles_and_runs(codepilot: Command, finished: str) -> None:
    assert codepilot("gc").out == "Nothing to remove.\n", "it is off by default"
    bundle = codepilot.home / "bundles" / finished
    kept = codepilot("gc", "--json", CODEPILOT_RETENTION_BUNDLES_DAYS="1").json
    assert (kept["bundles"], kept["runs"], bundle.is_dir()) == ([], [], True)
    rehearsed = codepilot("gc", "--dry-run", CODEPILOT_RETENTION_BUNDLES_DAYS="0")
    assert rehearsed.out == "1 bundle would be removed.\n" and bundle.is_dir()
    assert codepilot("gc", CODEPILOT_RETENTION_BUNDLES_DAYS="0").out == "1 bundle removed.\n"
    assert not bundle.exists() and codepilot("show", finished).code == 0
    assert codepilot("gc", "--json", CODEPILOT_RETENTION_HISTORY_DAYS="0").json["runs"] == [finished]
    assert codepilot("history", "--json").json["runs"] == []
