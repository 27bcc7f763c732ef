"""Artifacts, as files and as objects of a bucket: whole or absent, and never other bytes than those that were kept."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from artifact_kit import BIG, Kept
from hypothesis import given
from hypothesis import strategies as st

from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store import ArtifactDamaged, ArtifactMissing, FileArtifacts, open_artifacts

MISSING = ArtifactRef(type=ArtifactType.LOG, sha256="0" * 64, size_bytes=3)
LARGE = 2 * (8 << 20) + 12_345


def pieces(size: int, seed: int = 0) -> Iterator[bytes]:
    """So many bytes, in pieces of odd lengths."""
    dice, block = random.Random(seed), random.Random(seed).randbytes(1 << 20)
    while size > 0:
        piece = block[: min(size, dice.randrange(1, 1 << 20))]
        size -= len(piece)
        yield piece


@given(data=st.binary(max_size=2_000), kind=st.sampled_from(ArtifactType))
def test_what_is_put_is_what_is_got(tmp_path_factory: pytest.TempPathFactory, data: bytes, kind: ArtifactType) -> None:
    artifacts = FileArtifacts(tmp_path_factory.getbasetemp() / "shared-artifacts")
    ref = artifacts.put(data, kind)
    assert artifacts.get(ref) == data
    assert artifacts.has(ref)
    assert (ref.type, ref.size_bytes) == (kind, len(data))


@given(chunks=st.lists(st.binary(max_size=500), max_size=6))
def test_a_stream_is_kept_as_its_bytes_would_be(tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes]) -> None:
    artifacts = FileArtifacts(tmp_path_factory.getbasetemp() / "streamed-artifacts")
    ref = artifacts.put_stream(iter(chunks), ArtifactType.SNAPSHOT)
    assert ref == artifacts.put(b"".join(chunks), ArtifactType.SNAPSHOT)
    assert b"".join(artifacts.stream(ref)) == b"".join(chunks)


def test_a_file_is_synced_before_it_gets_its_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts, data = FileArtifacts(tmp_path), b"to be found after a power cut"
    final = tmp_path / "sha256" / hashlib.sha256(data).hexdigest()[:2] / hashlib.sha256(data).hexdigest()
    synced: list[tuple[int, bool]] = []
    really = os.fsync

    def fsync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        synced.append((found.st_ino, final.exists()))
        assert final.exists() or found.st_size == len(data), "all of it"
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    ref = artifacts.put(data, ArtifactType.LOG)
    assert artifacts.path(ref) == final
    file, directory, root = (path.stat().st_ino for path in (final, final.parent, final.parent.parent))
    assert synced == [(file, False), (directory, True), (root, True)]


@pytest.mark.parametrize("size", [0, 1, 8 << 20, LARGE])
def test_any_size_comes_back_by_either_way(kept: Kept, size: int) -> None:
    data = b"".join(pieces(size))
    ref = kept.artifacts.put(data, ArtifactType.REPORT)
    assert (ref.sha256, ref.size_bytes) == (hashlib.sha256(data).hexdigest(), size)
    assert kept.names() == [f"sha256/{ref.sha256[:2]}/{ref.sha256}"]
    assert kept.artifacts.put_stream(pieces(size), ArtifactType.REPORT) == ref
    assert kept.artifacts.get(ref) == data
    assert b"".join(kept.artifacts.stream(ref)) == data
    assert kept.artifacts.has(ref) and kept.names() == [f"sha256/{ref.sha256[:2]}/{ref.sha256}"]


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


def test_a_stream_that_breaks_leaves_nothing(kept: Kept) -> None:
    def broken(size: int) -> Iterator[bytes]:
        yield from pieces(size)
        raise CodePilotError(FailureKind.EXECUTOR_LOST, "gone")

    for size in (4, LARGE):
        with pytest.raises(CodePilotError) as caught:
            kept.artifacts.put_stream(broken(size), ArtifactType.SNAPSHOT)
        assert caught.value.kind is FailureKind.EXECUTOR_LOST
    assert kept.names() == []


def test_no_more_is_taken_than_allowed(kept: Kept) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(1_000):
            yield b"x" * 100_000

    with pytest.raises(CodePilotError, match="500000") as refused:
        kept.artifacts.put_stream(endless(), ArtifactType.SNAPSHOT, limit_bytes=500_000)
    assert refused.value.kind is FailureKind.POLICY_VIOLATION
    assert kept.names() == []
    assert kept.artifacts.put_stream([b"x" * 500_000], ArtifactType.LOG, limit_bytes=500_000).size_bytes == 500_000


@pytest.mark.parametrize(
    ("size", "how"),
    [(5_000, "flipped"), (5_000, "shorter"), (5_000, "longer"), (5_000, "empty"), (LARGE, "flipped")],
)
def test_damage_is_noticed_and_mended_by_putting_again(kept: Kept, size: int, how: str) -> None:
    data = b"".join(pieces(size))
    ref = kept.artifacts.put(data, ArtifactType.PATCH)
    flipped = bytearray(data)
    flipped[-7] ^= 1
    spoiled = {"flipped": bytes(flipped), "shorter": data[:-1], "longer": data + b"x", "empty": b""}[how]
    kept.spoil(ref, spoiled)
    for read in (lambda: kept.artifacts.get(ref), lambda: list(kept.artifacts.stream(ref))):
        with pytest.raises(ArtifactDamaged, match=ref.sha256) as damaged:
            read()
        assert damaged.value.kind is FailureKind.ARTIFACT_STORE_UNAVAILABLE
    kept.artifacts.put_stream(pieces(size), ArtifactType.PATCH)
    assert kept.artifacts.get(ref) == data
    assert len(kept.names()) == 1


def test_no_more_is_read_than_was_kept(kept: Kept) -> None:
    ref = kept.artifacts.put(b"few", ArtifactType.LOG)
    kept.spoil(ref, b"f" * 3_000_000)
    taken = 0
    with pytest.raises(ArtifactDamaged):
        for piece in kept.artifacts.stream(ref):
            taken += len(piece)
    assert taken <= 3


def test_a_missing_artifact_is_named(kept: Kept) -> None:
    assert not kept.artifacts.has(MISSING)
    for read in (lambda: kept.artifacts.get(MISSING), lambda: list(kept.artifacts.stream(MISSING))):
        with pytest.raises(ArtifactMissing, match="0" * 64) as missing:
            read()
        assert missing.value.kind is FailureKind.ARTIFACT_STORE_UNAVAILABLE
        assert kept.artifacts.place in str(missing.value)


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


@pytest.mark.parametrize("size", [7_000, 9 << 20])
def test_many_writers_of_the_same_bytes_agree(kept: Kept, size: int) -> None:
    writers = 50 if size < 1 << 20 else 6
    data, together = b"".join(pieces(size)), threading.Barrier(writers)

    def put(_: int) -> ArtifactRef:
        together.wait()
        return kept.artifacts.put(data, ArtifactType.REPORT)

    with ThreadPoolExecutor(writers) as pool:
        refs = set(pool.map(put, range(writers)))
    assert len(refs) == 1
    assert kept.artifacts.get(refs.pop()) == data
    assert len(kept.names()) == 1


def test_many_writers_of_different_bytes_do_not_meet(kept: Kept) -> None:
    with ThreadPoolExecutor(50) as pool:
        every = [b"%d" % number * 20_000 for number in range(50)]
        refs = list(pool.map(lambda data: kept.artifacts.put(data, ArtifactType.LOG), every))
        assert list(pool.map(kept.artifacts.get, refs)) == every
    assert len(kept.names()) == 50


def test_what_is_put_again_looks_young(kept: Kept) -> None:
    """Retention goes by age, so who finds a thing already there makes sure that it will not be taken for old."""
    for data in (b"again", b"".join(pieces(9 << 20))):
        ref = kept.artifacts.put(data, ArtifactType.LOG)
        kept.age(ref, timedelta(hours=30))
        before = kept.modified(ref)
        kept.artifacts.put(data, ArtifactType.LOG)
        assert kept.modified(ref) > before
        assert kept.artifacts.get(ref) == data


def test_a_link_lets_anyone_read_for_a_while(kept: Kept) -> None:
    ref = kept.artifacts.put(b"for all to see", ArtifactType.REPORT)
    link = kept.artifacts.link(ref, 60)
    if kept.form == "files":
        assert link is None
        return
    assert link is not None and kept.secret not in link
    with urllib.request.urlopen(link, timeout=10) as answer:
        assert answer.read() == b"for all to see"
    for other in (link.replace(ref.sha256, "0" * 64), link.partition("?")[0], link[:-2] + "zz"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(other, timeout=10)
        assert refused.value.code == 403
    for seconds in (0, -1, 8 * 24 * 3600):
        with pytest.raises(CodePilotError) as caught:
            kept.artifacts.link(ref, seconds)
        assert caught.value.kind is FailureKind.INVALID_SPEC


def test_a_large_artifact_passes_through_little_memory(kept: Kept) -> None:
    program = """
import hashlib, json, os, resource, sys
from codepilot.core.artifacts import ArtifactType
from codepilot.store import open_artifacts
artifacts = open_artifacts(sys.argv[1], os.environ)
small = artifacts.put(b"warm", ArtifactType.LOG)
artifacts.get(small)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
block = bytes(range(256)) * 4096
ref = artifacts.put_stream((block for _ in range(int(sys.argv[2]))), ArtifactType.SNAPSHOT)
size = sum(len(piece) for piece in artifacts.stream(ref))
print(json.dumps([size, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024]))
"""
    environ = {**os.environ, **kept.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, kept.url, str(BIG >> 20)]
    ran = subprocess.run(command, env=environ, capture_output=True, check=True, text=True)
    size, grown_mib = map(int, ran.stdout.strip("[]\n").split(","))
    assert size == BIG
    assert grown_mib < 100


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "sha256").write_text("in the way")
    with pytest.raises(CodePilotError) as refused:
        FileArtifacts(tmp_path).put(b"x", ArtifactType.LOG)
    assert refused.value.kind is FailureKind.ARTIFACT_STORE_UNAVAILABLE


def test_a_place_is_a_path_or_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ref = FileArtifacts(tmp_path / "a b").put(b"x", ArtifactType.LOG)
    for place in (tmp_path / "a b", "a b", str(tmp_path / "a b"), f"file://{tmp_path}/a%20b"):
        assert open_artifacts(place, {}).get(ref) == b"x"
    for url in ("gs://bucket", "s3://", "s3://key:secret@bucket/x", "s3://bucket?x=1", "file://host/x", "s3://b:80/x"):
        with pytest.raises(CodePilotError) as refused:
            open_artifacts(url, {"AWS_ACCESS_KEY_ID": "k"})
        assert refused.value.kind is FailureKind.INVALID_SPEC and "secret" not in str(refused.value)
