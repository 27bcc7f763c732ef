"""Trees travel as bytes: exactly, repeatably, never by halves, and never into harm."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from object_streams import blob, contents, pieces, raw, record, row, stored, tree

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import Entry, ObjectStore, Workspace
from codepilot.workspace.base_index import carried_tree, keep_tree
from codepilot.workspace.pack import object_id
from codepilot.workspace.transfer import Member, Title, write_stream

REFUSALS = (FailureKind.TOOL_INVALID_ARGS, FailureKind.POLICY_VIOLATION)


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


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_anywhere_is_refused_and_leaves_nothing(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source, target = (ObjectStore.open(Path(directory, name), durable=False) for name in ("a.git", "b.git"))
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
    whole(row(b"100644", b"a", a.oid), Member("blob", a.oid, 5, [b"other"]))
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
    with pytest.raises(CodePilotError):
        workspace.import_snapshot([raw("snapshot", root.oid, [root, lie])])


def test_what_is_here_already_counts_as_much_as_what_arrives(objects: ObjectStore) -> None:
    """A file of 4 MiB in 5,000 places, and a directory with it in as many, would be 20 GB each."""
    large = objects.write_blob(bytes(4 << 20))
    held = objects.write_tree({"large": Entry("100644", large)})
    before = contents(objects)
    for mode, oid in ((b"100644", large), (b"40000", held)):
        many = tree(b"".join(row(mode, b"%04d" % number, oid) for number in range(5_000)))
        with pytest.raises(CodePilotError) as caught:
            objects.receive([raw("tree", many.oid, [many])])
        assert caught.value.kind is FailureKind.POLICY_VIOLATION
    assert contents(objects) == before


def test_one_listing_cannot_fill_the_memory(other: ObjectStore) -> None:
    a = blob(b"a")
    wide = tree(b"".join(row(b"100644", b"n" * 240 + b"%06d" % number, a.oid) for number in range(125_000)))
    with pytest.raises(CodePilotError) as caught:
        other.receive([raw("tree", wide.oid, [wide, a])])
    assert caught.value.kind is FailureKind.POLICY_VIOLATION and contents(other) == ["HEAD", "config"]


@pytest.mark.parametrize(
    "line", [b"f 644 5 1 %s ../../escaped\0", b"f 4755 5 1 %s x\0", b"f 644 5 1 %s .git\0", b"f\0%s"]
)
def test_files_that_look_like_a_snapshot_are_not_restored_into_harm(
    objects: ObjectStore, tmp_path: Path, state: Callable[[Path], object], line: bytes
) -> None:
    base = objects.write_tree({})
    workspace = Workspace(tmp_path / "home/ws", objects)
    workspace.create(base)
    manifest = blob(line % object_id("blob", b"a").encode())
    for number, data in enumerate((b"a", b"".join(manifest.chunks), b"".join(record(base, manifest.oid).chunks))):
        (workspace.tree_path / str(number)).write_bytes(data)
    workspace.snapshot()
    expected = state(tmp_path / "home/ws/tree")
    with pytest.raises(CodePilotError) as caught:
        workspace.restore(record(base, manifest.oid).oid)
    assert caught.value.kind is FailureKind.POLICY_VIOLATION
    assert state(workspace.tree_path) == expected and [path.name for path in (tmp_path / "home").iterdir()] == ["ws"]


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
