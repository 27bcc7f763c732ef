"""Trees and snapshots travel as bytes: exactly, repeatably, and never by halves."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codepilot.core.artifacts import ArtifactType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store import FileArtifacts
from codepilot.workspace import Entry, ObjectStore, Workspace
from codepilot.workspace.pack import object_id
from codepilot.workspace.stream import Member, write_stream
from codepilot.workspace.submodules import carried_tree, keep_tree
from codepilot.workspace.transfer import Role, Title

REFUSALS = (FailureKind.TOOL_INVALID_ARGS, FailureKind.POLICY_VIOLATION)


def stored(objects: ObjectStore, count: int = 40) -> str:
    oids = objects.write_blobs(b"content %d\n" % number * (number % 7) for number in range(count))
    entries = {f"d{number % 5}/s{number % 3}/f{number}": Entry("100644", oid) for number, oid in enumerate(oids)}
    entries["odd\udcff\n name"] = Entry("100755", oids[0])
    entries["link"] = Entry("120000", objects.write_blob(b"d0"))
    return objects.write_tree(entries)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def contents(store: ObjectStore) -> list[str]:
    """Every file of a store, so that a refusal can be seen to have left nothing."""
    return sorted(str(path.relative_to(store.path)) for path in store.path.rglob("*") if path.is_file())


def raw(role: Role, root: str, members: Iterable[Member], **fields: object) -> bytes:
    return b"".join(write_stream(Title(root, role, **fields).encode(), members))  # type: ignore[arg-type]


def blob(data: bytes) -> Member:
    return Member("blob", object_id("blob", data), data)


def tree(data: bytes) -> Member:
    return Member("tree", object_id("tree", data), data)


def row(mode: bytes, name: bytes, oid: str) -> bytes:
    return mode + b" " + name + b"\0" + bytes.fromhex(oid)


@pytest.fixture
def other(tmp_path: Path) -> ObjectStore:
    return ObjectStore.open(tmp_path / "other.git")


def test_a_tree_arrives_whole_and_again(objects: ObjectStore, other: ObjectStore) -> None:
    root = stored(objects)
    data = b"".join(objects.export(root))
    assert not other.has_tree(root)
    for size in (1 << 20, 1000):
        assert other.receive(pieces(data, size)) == root
    assert other.has_tree(root) and other.read_tree(root) == objects.read_tree(root)
    for entry in other.read_tree(root).values():
        assert other.read(entry.oid) == objects.read(entry.oid)
    assert b"".join(other.export(root)) == data
    with ObjectStore.open(other.path) as reopened:
        assert reopened.has_tree(root)
    blob_name = objects.read_tree(root)["link"].oid
    assert not other.has_tree(blob_name) and not other.has_tree("0" * 64) and not other.has_tree("../x")


def test_any_tar_can_list_a_stream(objects: ObjectStore) -> None:
    root = stored(objects)
    with tarfile.open(fileobj=io.BytesIO(b"".join(objects.export(root)))) as archive:
        members = archive.getmembers()
        assert members[0].name == "codepilot-objects" and {member.mtime for member in members} == {0}
        for member in members[1:]:
            kind, _, oid = member.name.partition("/")
            content = archive.extractfile(member)
            assert content is not None and objects.read(oid) == (kind, content.read())


def test_what_the_receiver_has_is_left_out(objects: ObjectStore, other: ObjectStore) -> None:
    old = stored(objects)
    new = objects.write_tree(objects.read_tree(old) | {"d0/new": Entry("100644", objects.write_blob(b"new\n"))})
    whole, part = b"".join(objects.export(new)), b"".join(objects.export(new, [old]))
    assert len(part) * 3 < len(whole)
    with pytest.raises(CodePilotError) as caught:
        other.receive([part])
    assert caught.value.kind is FailureKind.PATH_NOT_FOUND and contents(other) == ["HEAD", "config"]
    other.receive(objects.export(old))
    assert other.receive([part]) == new
    assert other.read_tree(new) == objects.read_tree(new)


def test_the_files_of_submodules_come_along(objects: ObjectStore, other: ObjectStore) -> None:
    gitlink = "ab" * 20 + "0" * 24
    inside = objects.write_tree({"lib.py": Entry("100644", objects.write_blob(b"lib\n"))})
    keep_tree(objects, gitlink, inside)
    root = objects.write_tree({"sub": Entry("160000", gitlink), "a": Entry("100644", objects.write_blob(b"a"))})
    assert other.receive(objects.export(root)) == root
    assert carried_tree(other, gitlink) == inside and other.has_tree(inside)
    workspace = Workspace(other.path.parent / "ws", other)
    workspace.create(root)
    assert (workspace.tree_path / "sub/lib.py").read_bytes() == b"lib\n"


def test_neither_a_blob_nor_a_missing_object_can_be_exported(objects: ObjectStore) -> None:
    for name in (objects.write_blob(b"plain"), "0" * 64):
        with pytest.raises(CodePilotError):
            objects.export(name)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_anywhere_is_refused_and_leaves_nothing(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source, target = ObjectStore.open(Path(directory, "a.git")), ObjectStore.open(Path(directory, "b.git"))
        plain = bytearray(gzip.decompress(b"".join(source.export(stored(source, 5)))))
        before = contents(target)
        how = data.draw(st.sampled_from(["flip", "cut", "insert", "append"]))
        place = data.draw(st.integers(0, len(plain) - 1))
        if how == "flip":
            plain[place] ^= 1 << data.draw(st.integers(0, 7))
        elif how == "cut":
            del plain[place:]
        elif how == "insert":
            plain[place:place] = data.draw(st.binary(min_size=1, max_size=600))
        else:
            plain += data.draw(st.binary(min_size=1, max_size=600))
        try:
            target.receive([gzip.compress(bytes(plain), 1)])
        except CodePilotError as error:
            assert error.kind in (*REFUSALS, FailureKind.PATH_NOT_FOUND)
            assert contents(target) == before
        else:
            pytest.fail("a damaged stream was taken")


def test_damaged_compression_is_refused(objects: ObjectStore, other: ObjectStore) -> None:
    data = b"".join(objects.export(stored(objects)))
    for bad in (b"", b"garbage", data[:-1], data[:30], data + b"x", data + data, data + gzip.compress(b"")):
        with pytest.raises(CodePilotError) as caught:
            other.receive(pieces(bad, 999))
        assert caught.value.kind in REFUSALS
    rng = random.Random(7)
    content, refusals = gzip.decompress(data), 0
    for _ in range(40):
        changed = bytearray(data)
        changed[rng.randrange(10, len(data))] ^= 1 << rng.randrange(8)
        try:
            same = gzip.decompress(bytes(changed)) == content
        except (OSError, EOFError, zlib.error):
            same = False
        if not same:
            refusals += 1
            with pytest.raises(CodePilotError):
                other.receive(pieces(bytes(changed), 999))
    assert refusals > 20 and contents(other) == ["HEAD", "config"]


def test_a_bomb_is_stopped_at_the_limit(other: ObjectStore) -> None:
    taken = 0

    def bomb() -> Iterator[bytes]:
        nonlocal taken
        squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
        while True:
            piece = squeeze.compress(bytes(1 << 20))
            taken += len(piece)
            yield piece

    def empty_blocks() -> Iterator[bytes]:
        """Compressed data that goes on for ever and never gives a byte."""
        yield gzip.compress(b"")[:10]
        while True:
            yield b"\0\0\0\xff\xff" * 10_000

    head = Title("0" * 64, "tree").encode()
    zeros = blob(bytes(8 << 20))
    for stream in (bomb(), empty_blocks(), iter([b"".join(write_stream(head, [zeros]))])):
        with pytest.raises(CodePilotError) as caught:
            other.receive(stream, limit_bytes=4 << 20)
        assert caught.value.kind in REFUSALS
    assert taken < 1 << 20 and contents(other) == ["HEAD", "config"]


def test_forged_graphs_are_refused(objects: ObjectStore, other: ObjectStore) -> None:
    a, link = blob(b"a"), blob(b"/etc/passwd")
    good = tree(row(b"100644", b"a", a.oid))
    forged: list[bytes] = []

    def whole(data: bytes, *more: Member) -> None:
        forged.append(raw("tree", tree(data).oid, [tree(data), *more]))

    for name in (b"", b".", b"..", b"x/y", b"../../x", b".git", b".GIT"):
        whole(row(b"100644", name, a.oid), a)
    for mode in (b"100600", b"0100644", b"777", b"", b"4O000"):
        whole(row(mode, b"a", a.oid), a)
    whole(row(b"100644", b"b", a.oid) + row(b"100644", b"a", a.oid), a)
    whole(row(b"100644", b"a", a.oid) * 2, a)
    whole(row(b"100644", b"a", a.oid)[:-1], a)
    whole(row(b"100644", b"a", a.oid) + b"rest", a)
    whole(row(b"100644", b"a", good.oid), good, a)
    whole(row(b"40000", b"a", a.oid), a)
    whole(row(b"100644", b"a", a.oid))
    whole(row(b"100644", b"a", a.oid), a, link)
    whole(row(b"100644", b"a", a.oid), a, a)
    whole(row(b"100644", b"a", a.oid), Member("blob", a.oid, b"other"))
    forged.append(raw("tree", a.oid, [a]))
    forged.append(raw("tree", good.oid, []))
    forged.append(raw("blob", a.oid, [a]))
    forged.append(raw("tree", good.oid, [good, a], submodules={"ab" * 32: good.oid}))
    forged.append(raw("tree", good.oid, [good, a], submodules={"../../../x": good.oid}))
    forged.append(raw("tree", "../" + good.oid, [good, a]))
    for stream in forged:
        with pytest.raises(CodePilotError) as caught:
            other.receive([stream])
        assert caught.value.kind in REFUSALS
        assert contents(other) == ["HEAD", "config"]
    assert other.receive([raw("tree", good.oid, [good, a])]) == good.oid


def nested(kind: str, width: int, levels: int) -> tuple[str, list[Member]]:
    """Few objects that stand for `width ** levels` directories."""
    member = tree(b"") if kind == "tree" else blob(b"")
    members = [member]
    for _ in range(levels):
        oid = member.oid
        if kind == "tree":
            member = tree(b"".join(row(b"40000", b"%02d" % number, oid) for number in range(width)))
        else:
            member = blob(b"".join(b"d 755 0 0 %s %02d\0" % (oid.encode(), number) for number in range(width)))
        members.append(member)
    return member.oid, members


@pytest.mark.parametrize(("width", "levels"), [(10, 12), (1, 3000), (2, 255)])
def test_few_objects_cannot_stand_for_endless_trees(other: ObjectStore, width: int, levels: int) -> None:
    root, members = nested("tree", width, levels)
    manifest, parts = nested("manifest", width, levels)
    empty = tree(b"")
    snapshot = record(empty.oid, manifest)
    for stream in (raw("tree", root, members), raw("snapshot", snapshot.oid, [snapshot, empty, *parts])):
        with pytest.raises(CodePilotError) as caught:
            other.receive([stream])
        assert caught.value.kind is FailureKind.POLICY_VIOLATION
        assert contents(other) == ["HEAD", "config"]
    root, members = nested("tree", 3, 4)
    assert other.receive([raw("tree", root, members)]) == root
    grown = tree(b"".join(row(b"40000", b"%03d" % number, root) for number in range(900)))
    larger = tree(b"".join(row(b"40000", b"%03d" % number, grown.oid) for number in range(900)))
    with pytest.raises(CodePilotError):
        other.receive([raw("tree", larger.oid, [larger, grown])])


def test_links_and_names_that_no_file_system_takes_are_refused(other: ObjectStore) -> None:
    before = contents(other)
    for target in (b"", b"a\0b", b"x" * 4096):
        link = blob(target)
        held = tree(row(b"120000", b"l", link.oid))
        listed = blob(b"l 0 0 0 %s l\0" % link.oid.encode())
        snapshot = record(tree(b"").oid, listed.oid)
        for stream in (
            raw("tree", held.oid, [held, link]),
            raw("snapshot", snapshot.oid, [snapshot, tree(b""), listed, link]),
        ):
            with pytest.raises(CodePilotError) as caught:
                other.receive([stream])
            assert caught.value.kind in REFUSALS
    a = blob(b"a")
    long = tree(row(b"100644", b"n" * 256, a.oid))
    with pytest.raises(CodePilotError):
        other.receive([raw("tree", long.oid, [long, a])])
    assert contents(other) == before
    fine = tree(row(b"100644", b"n" * 255, a.oid))
    assert other.receive([raw("tree", fine.oid, [fine, a])]) == fine.oid


def test_a_snapshot_that_lies_about_sizes_is_refused(objects: ObjectStore, tmp_path: Path) -> None:
    a, base = blob(b"abc"), objects.write_tree({})
    workspace = Workspace(tmp_path / "ws", objects)
    workspace.create(base)
    lie = blob(b"f 644 5 1 %s x\0" % a.oid.encode())
    root = record(base, lie.oid)
    with pytest.raises(CodePilotError):
        workspace.import_snapshot([raw("snapshot", root.oid, [root, lie, a])])
    objects.write_blob(b"abc")
    arrived = workspace.import_snapshot([raw("snapshot", root.oid, [root, lie])])
    with pytest.raises(CodePilotError) as caught:
        workspace.restore(arrived.id)
    assert caught.value.kind is FailureKind.POLICY_VIOLATION


def record(root: str, manifest: str, mode: bytes = b"755") -> Member:
    return blob(b"codepilot snapshot 1\n%s\n%s\n%s\n" % (root.encode(), manifest.encode(), mode))


def test_forged_snapshots_are_refused(objects: ObjectStore, tmp_path: Path) -> None:
    a, nothing = blob(b"a"), tree(b"")
    base = objects.write_tree({})
    workspace = Workspace(tmp_path / "ws", objects)
    workspace.create(base)
    workspace.snapshot()
    store = ObjectStore.open(workspace.path / "snapshots")
    before = contents(store)
    line = b"f 644 5 1 %s %s\0"
    rows = [line % (a.oid.encode(), name) for name in (b"../x", b"..", b".", b"", b"a/b", b".git", b".Git")]
    rows += [
        b"f 4755 5 1 %s x\0" % a.oid.encode(),
        b"q 644 5 1 %s x\0" % a.oid.encode(),
        b"f 644 5 1 ../../x x\0",
        b"f 644 x 1 %s x\0" % a.oid.encode(),
        b"f 644 %d 1 %s x\0" % (1 << 70, a.oid.encode()),
        b"f 0644 5 1 %s x\0" % a.oid.encode(),
        b"d 755 0 0 %s x\0" % nothing.oid.encode(),
        (line % (a.oid.encode(), b"x")) * 2,
        line % (a.oid.encode(), b"z") + line % (a.oid.encode(), b"y"),
        b"f\0",
        b"unfinished",
    ]
    streams = []
    for data in rows:
        root = record(base, blob(data).oid)
        streams.append(raw("snapshot", root.oid, [root, blob(data), a]))
    fine = blob(line % (a.oid.encode(), b"x"))
    for root in (record(a.oid, fine.oid), record(base, "0" * 64), record(base, fine.oid, b"77777"), a):
        streams.append(raw("snapshot", root.oid, [root, fine, a] if root is not a else [a]))
    streams.append(raw("tree", base, []))
    for stream in streams:
        with pytest.raises(CodePilotError) as caught:
            workspace.import_snapshot([stream])
        assert caught.value.kind in REFUSALS
        assert contents(store) == before
    root = record(base, fine.oid)
    workspace.restore(workspace.import_snapshot([raw("snapshot", root.oid, [root, fine, a])]).id)
    assert (workspace.tree_path / "x").read_bytes() == b"a"


def furnished(tmp_path: Path, objects: ObjectStore, name: str = "ws") -> Workspace:
    workspace = Workspace(tmp_path / name, objects)
    workspace.create(stored(objects))
    top = workspace.tree_path
    (top / "d0/s0/f0").write_bytes(b"edited")
    (top / "d1/s1/f1").unlink()
    (top / "__pycache__").mkdir()
    (top / "__pycache__/x.pyc").write_bytes(b"\0ignored")
    (top / "empty/deeper").mkdir(parents=True)
    (top / "empty").chmod(0o750)
    (top / "nothing").write_bytes(b"")
    (top / "tool").write_bytes(b"#!/bin/sh\n")
    (top / "tool").chmod(0o711)
    (top / "out").symlink_to("/etc/passwd")
    (top / "bad\udcfe\n").write_bytes(b"odd")
    os.utime(top / "tool", ns=(1, 123_456_789))
    top.chmod(0o701)
    return workspace


@pytest.mark.parametrize("whole", [False, True])
def test_a_snapshot_is_restored_exactly_elsewhere(
    tmp_path: Path, objects: ObjectStore, other: ObjectStore, whole: bool, state: Callable[[Path], object]
) -> None:
    workspace = furnished(tmp_path, objects)
    snapshot, expected = workspace.snapshot(), state(workspace.tree_path)
    data = b"".join(workspace.export_snapshot(snapshot.id, whole))
    assert data == b"".join(workspace.export_snapshot(snapshot.id, whole))
    base = stored(objects)
    other.receive(objects.export(base))
    there = Workspace(tmp_path / "there", other)
    there.create(base)
    for _ in range(2):
        arrived = there.import_snapshot(pieces(data, 4096))
        assert (arrived.id, arrived.tree) == (snapshot.id, snapshot.tree)
    there.restore(arrived.id)
    assert state(there.tree_path) == expected
    assert there.snapshot() == snapshot
    assert there.tree_path.stat().st_mode & 0o777 == 0o701
    assert there.diff(base).patch == workspace.diff(base).patch


def test_a_snapshot_without_its_base_says_what_it_needs(
    tmp_path: Path, objects: ObjectStore, other: ObjectStore
) -> None:
    workspace = furnished(tmp_path, objects)
    data = b"".join(workspace.export_snapshot(workspace.snapshot().id))
    there = Workspace(tmp_path / "there", other)
    there.create(other.write_tree({}))
    with pytest.raises(CodePilotError) as caught:
        there.import_snapshot([data])
    assert caught.value.kind is FailureKind.PATH_NOT_FOUND
    assert caught.value.failure.details["needs"] == stored(objects)


def test_a_snapshot_outlives_its_workspace_in_the_artifact_store(
    tmp_path: Path, objects: ObjectStore, state: Callable[[Path], object]
) -> None:
    artifacts = FileArtifacts(tmp_path / "artifacts")
    workspace = furnished(tmp_path, objects)
    snapshot, expected = workspace.snapshot(), state(workspace.tree_path)
    ref = workspace.keep_snapshot(snapshot.id, artifacts)
    assert ref.type is ArtifactType.SNAPSHOT and artifacts.has(ref)
    assert workspace.keep_snapshot(snapshot.id, artifacts) == ref
    workspace.delete()
    again = Workspace(tmp_path / "again", objects)
    again.create(stored(objects))
    fetched = again.fetch_snapshot(ref, artifacts)
    again.restore(fetched.id)
    assert state(again.tree_path) == expected
    damaged = artifacts.path(ref).read_bytes()
    artifacts.path(ref).write_bytes(damaged[:-1] + bytes([damaged[-1] ^ 1]))
    with pytest.raises(CodePilotError):
        again.fetch_snapshot(ref, artifacts)


def test_a_receiver_that_dies_leaves_nothing_to_be_read(objects: ObjectStore, other: ObjectStore) -> None:
    root = stored(objects)
    data = b"".join(objects.export(root))

    def breaking() -> Iterator[bytes]:
        yield data[: len(data) // 2]
        os._exit(9)

    child = os.fork()
    if child == 0:
        other.receive(breaking())
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with ObjectStore.open(other.path) as reopened:
        assert not reopened.has_tree(root)
        assert reopened.receive([data]) == root
