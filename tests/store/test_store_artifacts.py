"""Artifacts: whole or absent, and never other bytes than those that were kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store import FileArtifacts


@given(data=st.binary(max_size=2_000), kind=st.sampled_from(ArtifactType))
def test_what_is_put_is_what_is_got(tmp_path_factory: pytest.TempPathFactory, data: bytes, kind: ArtifactType) -> None:
    artifacts = FileArtifacts(tmp_path_factory.getbasetemp() / "shared-artifacts")
    ref = artifacts.put(data, kind)
    assert artifacts.get(ref) == data
    assert artifacts.has(ref)
    assert (ref.type, ref.size_bytes) == (kind, len(data))


def test_the_same_bytes_are_written_once(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)
    ref = artifacts.put(b"same", ArtifactType.LOG)
    path = artifacts.path(ref)
    assert path == tmp_path / "sha256" / ref.sha256[:2] / ref.sha256
    before = path.stat()
    other = artifacts.put(b"same", ArtifactType.PATCH)
    assert other.sha256 == ref.sha256
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_ino == before.st_ino


@given(chunks=st.lists(st.binary(max_size=500), max_size=6))
def test_a_stream_is_kept_as_its_bytes_would_be(tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes]) -> None:
    artifacts = FileArtifacts(tmp_path_factory.getbasetemp() / "streamed-artifacts")
    ref = artifacts.put_stream(iter(chunks), ArtifactType.SNAPSHOT)
    assert ref == artifacts.put(b"".join(chunks), ArtifactType.SNAPSHOT)
    assert b"".join(artifacts.stream(ref)) == b"".join(chunks)


def test_a_stream_that_breaks_leaves_nothing_and_damage_is_noticed_at_its_end(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise CodePilotError(FailureKind.EXECUTOR_LOST, "gone")

    with pytest.raises(CodePilotError) as caught:
        artifacts.put_stream(broken(), ArtifactType.SNAPSHOT)
    assert caught.value.kind is FailureKind.EXECUTOR_LOST
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    ref = artifacts.put_stream([b"precious ", b"bytes"], ArtifactType.SNAPSHOT)
    artifacts.path(ref).write_bytes(b"precious Bytes")
    with pytest.raises(CodePilotError, match=ref.sha256) as damaged:
        list(artifacts.stream(ref))
    assert damaged.value.kind is FailureKind.ARTIFACT_STORE_UNAVAILABLE
    artifacts.put_stream([b"precious bytes"], ArtifactType.SNAPSHOT)
    assert list(artifacts.stream(ref)) == [b"precious bytes"]
    missing = ArtifactRef(type=ArtifactType.LOG, sha256="0" * 64, size_bytes=0)
    with pytest.raises(CodePilotError, match="0" * 64):
        list(artifacts.stream(missing))


def test_damage_is_noticed_and_mended_by_putting_again(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)
    ref = artifacts.put(b"precious bytes", ArtifactType.PATCH)
    artifacts.path(ref).write_bytes(b"precious b")
    with pytest.raises(CodePilotError, match=ref.sha256) as damaged:
        artifacts.get(ref)
    assert damaged.value.kind is FailureKind.ARTIFACT_STORE_UNAVAILABLE
    artifacts.put(b"precious bytes", ArtifactType.PATCH)
    assert artifacts.get(ref) == b"precious bytes"


def test_a_missing_artifact_is_named(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)
    ref = ArtifactRef(type=ArtifactType.LOG, sha256="0" * 64, size_bytes=0)
    assert not artifacts.has(ref)
    with pytest.raises(CodePilotError, match="0" * 64) as missing:
        artifacts.get(ref)
    assert missing.value.kind is FailureKind.ARTIFACT_STORE_UNAVAILABLE


def test_a_torn_write_is_never_taken_for_the_artifact(tmp_path: Path) -> None:
    """The disk ends in the middle of a write: the failure is typed and nothing is left under any name."""
    program = """
import resource, signal, sys
from pathlib import Path
from codepilot.core.artifacts import ArtifactType
from codepilot.core.failures import CodePilotError
from codepilot.store import FileArtifacts
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    FileArtifacts(Path(sys.argv[1])).put(b"x" * 1_000_000, ArtifactType.LOG)
except CodePilotError as error:
    print(error.kind)
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env=environ, capture_output=True, check=True, text=True
    )
    assert ran.stdout.strip() == "disk_full"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_leftover_of_a_killed_writer_is_not_an_artifact(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)
    ref = ArtifactRef(type=ArtifactType.LOG, sha256="ab" + "0" * 62, size_bytes=3)
    artifacts.path(ref).parent.mkdir(parents=True)
    (artifacts.path(ref).parent / ".left.tmp").write_bytes(b"hal")
    assert not artifacts.has(ref)


def test_many_writers_of_the_same_bytes_agree(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        refs = list(pool.map(lambda _: artifacts.put(b"popular" * 1_000, ArtifactType.REPORT), range(24)))
    assert len(set(refs)) == 1
    assert artifacts.get(refs[0]) == b"popular" * 1_000
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "sha256").write_text("in the way")
    with pytest.raises(CodePilotError) as refused:
        FileArtifacts(tmp_path).put(b"x", ArtifactType.LOG)
    assert refused.value.kind is FailureKind.ARTIFACT_STORE_UNAVAILABLE
