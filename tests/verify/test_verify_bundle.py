"""A bundle accounts for every byte: whatever is altered, added or taken away is named."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codepilot.core.artifacts import RegressionTest
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Goal, TaskSpec
from codepilot.telemetry import redact
from codepilot.verify import (
    BundleContents,
    Provenance,
    Versions,
    check_bundle,
    read_payload,
    sandbox_used,
    write_bundle,
)
from codepilot.verify.bundle import PATCH, PAYLOAD, PROVENANCE, SEAL

FILES = sorted([*PAYLOAD, PROVENANCE, SEAL])


def contents(patch: bytes = b"diff --git a/x b/x\n", level: str = "bubblewrap") -> BundleContents:
    return BundleContents(
        patch=patch,
        base_diff=b"",
        report={"schema_version": 1, "status": "DONE"},
        transcript=b'{"seq":1}\n{"seq":2}\n',
        timeline={"runId": "r-1"},
        provenance=Provenance(
            run_id="r-1",
            task=TaskSpec(task_id="t-1", goal=Goal(natural="mend it"), repo="/somewhere"),
            base_commit="a" * 40,
            base_dirty=False,
            base_tree="b" * 64,
            patched_tree="c" * 64,
            targets=("tests/test_x.py::test_y",),
            signature="f" * 16,
            suite="full",
            verdict="confirmed",
            confidence=0.9,
            versions=Versions(codepilot="0.1.0", python="3.11.7", git="2.39.5", pytest="8.0"),
            commands=(("python", "-m", "pytest"),),
            sandbox=sandbox_used(level),
            created_at="2025-01-01T00:00:00Z",
        ),
    )


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def refusal(directory: Path, expected: str | None = None) -> CodePilotError:
    with pytest.raises(CodePilotError) as caught:
        check_bundle(directory, expected)
    return caught.value


def test_a_bundle_holds_its_files_and_checks_out(tmp_path: Path) -> None:
    written = write_bundle(tmp_path / "r-1", contents())
    assert sorted(bytes_of(written.path)) == FILES
    provenance = check_bundle(written.path, written.sha256)
    assert sorted(provenance.files) == sorted(PAYLOAD)
    assert read_payload(written.path, PATCH, provenance) == contents().patch
    assert [path.name for path in tmp_path.iterdir()] == ["r-1"]


def test_the_provenance_is_redacted_where_it_quotes_words_alone() -> None:
    token = "ghp_" + "a1" * 18
    message = {
        "goal": Goal(natural=f"by {token}"),
        "constraints": (token,),
        "repo": f"/home/{token}",
        "tests": (token,),
    }
    before = contents().provenance
    task = before.task.model_copy(update=message)
    test = RegressionTest(test=token, path=token, reason=f"says {token}")
    whole = before.model_copy(update={"task": task, "targets": (token,), "regression_test": test})
    clean = whole.redacted(redact)
    assert clean.task.goal.natural == "by [redacted]" and clean.task.constraints == ("[redacted]",)
    assert clean.regression_test == RegressionTest(test=token, path=token, reason="says [redacted]")
    needed = {"goal": task.goal, "constraints": task.constraints}
    assert clean.model_copy(update={"task": clean.task.model_copy(update=needed), "regression_test": test}) == whole
    url = task.model_copy(update={"repo": f"https://{token}@example.invalid/x.git"})
    assert token not in whole.model_copy(update={"task": url}).redacted(redact).task.repo
    assert before.redacted(redact) == before


def test_a_proof_without_a_sandbox_says_so(tmp_path: Path) -> None:
    written = write_bundle(tmp_path / "r-1", contents(level="none"))
    assert b'"unsandboxed": true' in (written.path / PROVENANCE).read_bytes()
    assert check_bundle(written.path).sandbox.unsandboxed
    assert not check_bundle(write_bundle(tmp_path / "r-2", contents()).path).sandbox.unsandboxed


def test_writing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    first = write_bundle(tmp_path / "r-1", contents())
    before = bytes_of(first.path)
    again = write_bundle(tmp_path / "r-1", contents())
    assert (again.sha256, bytes_of(again.path)) == (first.sha256, before)
    other = write_bundle(tmp_path / "r-1", contents(patch=b"other\n"))
    assert other.sha256 != first.sha256
    assert check_bundle(other.path, other.sha256)


@pytest.mark.parametrize("leftover", [".r-1.writing", ".r-1.replaced"])
def test_what_a_crash_left_does_not_stand_in_the_way(tmp_path: Path, leftover: str) -> None:
    (tmp_path / leftover).mkdir()
    (tmp_path / leftover / PATCH).write_bytes(b"half")
    written = write_bundle(tmp_path / "r-1", contents())
    assert check_bundle(written.path, written.sha256)
    assert [path.name for path in tmp_path.iterdir()] == ["r-1"]


@pytest.mark.parametrize("broken_call", range(1, 9))
def test_a_write_that_fails_leaves_no_half_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken_call: int
) -> None:
    calls = 0
    real = os.fsync

    def failing(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == broken_call:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(CodePilotError) as caught:
        write_bundle(tmp_path / "r-1", contents())
    assert caught.value.kind is FailureKind.DISK_FULL
    assert not (tmp_path / "r-1").exists()
    monkeypatch.undo()
    assert check_bundle(write_bundle(tmp_path / "r-1", contents()).path)


# Tampering ------------------------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(name=st.sampled_from(FILES), data=st.data())
def test_any_flipped_bit_is_found(tmp_path: Path, name: str, data: st.DataObject) -> None:
    written = write_bundle(tmp_path / "r-1", contents())
    target = written.path / name
    original = target.read_bytes()
    if not original:
        target.write_bytes(b"x")
    else:
        place = data.draw(st.integers(0, len(original) - 1))
        bit = data.draw(st.integers(0, 7))
        target.write_bytes(original[:place] + bytes([original[place] ^ (1 << bit)]) + original[place + 1 :])
    problem = refusal(written.path)
    assert problem.kind is FailureKind.PROOF_FAILED
    assert problem.failure.details["file"] in (name, PROVENANCE if name == SEAL else name)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["removed", "truncated", "appended", "symlink", "directory"])
def test_any_other_tampering_is_found(tmp_path: Path, name: str, how: str) -> None:
    written = write_bundle(tmp_path / "r-1", contents(patch=b"p\n"))
    target = written.path / name
    data = target.read_bytes()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(data)
    if how == "truncated" and not data:
        return
    match how:
        case "truncated":
            target.write_bytes(data[:-1])
        case "appended":
            target.write_bytes(data + b"\n")
        case "symlink":
            target.unlink()
            target.symlink_to(elsewhere)
        case "directory":
            target.unlink()
            target.mkdir()
        case _:
            target.unlink()
    assert refusal(written.path).failure.details["file"] in (name, SEAL, PROVENANCE)


@pytest.mark.parametrize("extra", ["notes.txt", ".hidden", "PATCH.diff", "patch.diff.orig"])
def test_an_extra_file_is_found(tmp_path: Path, extra: str) -> None:
    written = write_bundle(tmp_path / "r-1", contents())
    (written.path / extra).write_bytes(b"")
    assert refusal(written.path).failure.details["file"] == extra


def test_a_consistent_forgery_is_judged_by_the_runs_own_log(tmp_path: Path) -> None:
    genuine = write_bundle(tmp_path / "r-1", contents())
    shutil.rmtree(genuine.path)
    forged = write_bundle(genuine.path, contents(patch=b"evil\n"))
    assert check_bundle(forged.path)
    assert "not the one that the run wrote" in str(refusal(forged.path, genuine.sha256))


def test_swapped_files_are_found(tmp_path: Path) -> None:
    written = write_bundle(tmp_path / "r-1", contents())
    (written.path / "base.diff").rename(tmp_path / "keep")
    (written.path / PATCH).rename(written.path / "base.diff")
    (tmp_path / "keep").rename(written.path / PATCH)
    assert refusal(written.path).kind is FailureKind.PROOF_FAILED


def test_what_is_no_bundle_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "directory").mkdir()
    for name in ("nothing", "file", "directory"):
        assert refusal(tmp_path / name).kind is FailureKind.INVALID_SPEC


def test_a_file_exchanged_after_the_check_is_noticed(tmp_path: Path) -> None:
    written = write_bundle(tmp_path / "r-1", contents())
    provenance = check_bundle(written.path)
    (written.path / PATCH).write_bytes(b"evil\n")
    with pytest.raises(CodePilotError):
        read_payload(written.path, PATCH, provenance)
