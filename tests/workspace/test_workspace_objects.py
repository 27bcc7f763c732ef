"""The object store: exact, verified, shared, and readable by git."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import Entry, ObjectStore, pin_base
from codepilot.workspace.patch_parts import PatchParts
from codepilot.workspace.trees import decode_tree, differing_entries, encode_tree

NAMES = st.sampled_from(
    ["a", "b.py", "with space", "ünï", "q\"uote'", "new\nline", "tab\t", "bad\udcff\udcfe", "-dash", "a-b", "a.b", "A"]
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENTS = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from([b"x\n", b"y\r\n", b"\n", b"\xff\xfe\n", b"long " * 20, b"end"]), max_size=8).map(
        b"".join
    ),
    st.just(b"\0" * 40 + b"binary"),
)
FILES = st.dictionaries(
    PATHS, st.tuples(st.sampled_from(["100644", "100755", "120000"]), CONTENTS.filter(bool)), max_size=8
)


def store_files(objects: ObjectStore, files: dict[str, tuple[str, bytes]]) -> str:
    """A tree of those files that do not lie below another file."""
    fits = {
        path: content
        for path, content in files.items()
        if not any(other != path and path.startswith(other + "/") for other in files)
    }
    oids = objects.write_blobs(data for _, data in fits.values())
    return objects.write_tree({path: Entry(fits[path][0], oid) for path, oid in zip(fits, oids, strict=True)})


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(FILES, FILES)
def test_a_diff_applied_to_its_base_gives_the_other_tree(
    before: dict[str, tuple[str, bytes]], after: dict[str, tuple[str, bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as directory, ObjectStore.open(Path(directory, "s.git")) as objects:
        a, b = store_files(objects, before), store_files(objects, before | after)
        for old, new in ((a, b), (b, a)):
            difference = objects.diff(old, new)
            assert objects.apply(old, difference.patch) == new
            assert objects.diff(old, new) == difference
            assert bool(difference.changes) == (old != new)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(FILES, FILES, FILES)
def test_a_diff_of_known_parts_is_the_diff(
    before: dict[str, tuple[str, bytes]], between: dict[str, tuple[str, bytes]], after: dict[str, tuple[str, bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as directory, ObjectStore.open(Path(directory) / "x.git") as objects:
        trees = [store_files(objects, before | more) for more in ({}, between, {**between, **after}, after)]
        known = PatchParts()
        for old in trees[:2]:
            for new in trees:
                assert objects.diff(old, new, known) == objects.diff(old, new)


def test_only_the_entries_that_differ_are_decoded() -> None:
    """Names of content are any bytes: they may look like a mode, a name or the end of a line."""
    same, odd = ("same", "100644", "0a" * 32), ("b 1\n", "100644", "20003031" * 8)
    old = encode_tree([same, odd, ("a", "100644", "00" * 32), ("c", "40000", "31" * 32)])
    new = encode_tree([same, odd, ("a", "100755", "00" * 32), ("c", "100644", "0a20" * 16)])
    before, after = differing_entries(old, new)
    assert before == {"a": Entry("100644", "00" * 32), "c": Entry("40000", "31" * 32)}
    assert after == {"a": Entry("100755", "00" * 32), "c": Entry("100644", "0a20" * 16)}
    assert differing_entries(b"", new) == ({}, decode_tree(new))


def test_only_what_is_new_of_a_diff_is_made(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"{n}.txt": ("100644", b"%d\n" % n) for n in range(200)}
    base, first = store_files(objects, {}), store_files(objects, files)
    second = store_files(objects, {**files, ":new": ("100644", b"x\n"), "5.txt": ("120000", b"new")})
    asked, make, known = [], objects._patch, PatchParts()

    def patch(a: str, b: str, paths: Sequence[str] = ()) -> bytes:
        asked.append(tuple(paths))
        return make(a, b, paths)

    monkeypatch.setattr(objects, "_patch", patch)
    for tree in (first, second, second):
        made = objects.diff(base, tree, known)
        assert made == objects.diff(base, tree)
    assert asked == [(), (), ("5.txt", ":new"), (), ()]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(FILES)
def test_git_agrees_with_every_object_we_write(files: dict[str, tuple[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as directory, ObjectStore.open(Path(directory, "s.git")) as objects:
        tree = store_files(objects, files)
        listed = objects.read_tree(tree)
        assert {path: files[path][1] for path in listed} == {
            path: objects.read_blob(entry.oid) for path, entry in listed.items()
        }
        checked = subprocess.run(
            ["git", "fsck", "--strict", "--no-dangling", tree], cwd=objects.path, capture_output=True, timeout=60
        )
        assert checked.returncode == 0, checked.stderr


def test_many_blobs_become_one_pack_that_git_verifies(objects: ObjectStore) -> None:
    contents = [b"content %d\n" % number * 5 for number in range(3000)] + [b"", b"x" * 3_000_000]
    oids = objects.write_blobs(iter(contents))
    packs = list((objects.path / "objects" / "pack").glob("*.idx"))
    assert len(packs) == 1
    checked = subprocess.run(["git", "verify-pack", str(packs[0])], cwd=objects.path, capture_output=True, timeout=300)
    assert checked.returncode == 0, checked.stderr
    again = ObjectStore.open(objects.path)
    assert [again.read_blob(oid) for oid in oids] == contents
    assert again.write_blobs(contents) == oids
    assert len(list((objects.path / "objects" / "pack").glob("*.idx"))) == 1


def test_deltified_packs_are_read_as_well(objects: ObjectStore) -> None:
    contents = [b"".join(b"%d\n" % line for line in range(400)) + b"%d" % number for number in range(40)]
    oids = objects.write_blobs(contents)
    listed = "".join(f"{oid}\n" for oid in oids).encode()
    subprocess.run(
        ["git", "pack-objects", "-q", str(objects.path / "objects" / "pack" / "pack")],
        cwd=objects.path,
        input=listed,
        capture_output=True,
        check=True,
        timeout=300,
    )
    subprocess.run(["git", "prune-packed"], cwd=objects.path, check=True, timeout=300)
    with ObjectStore.open(objects.path) as again:
        assert [again.read_blob(oid) for oid in oids] == contents


def test_opening_again_changes_nothing_and_racing_makers_agree(tmp_path: Path) -> None:
    path = tmp_path / "with spaces and ü" / "s.git"
    stores: list[ObjectStore] = []
    threads = [threading.Thread(target=lambda: stores.append(ObjectStore.open(path))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    oid = stores[0].write_blob(b"shared")
    assert all(store.read_blob(oid) == b"shared" for store in stores)
    assert [child.name for child in path.parent.iterdir()] == ["s.git"]


def test_threads_write_and_read_at_once(objects: ObjectStore) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            contents = [b"%d" % ((seed * 7 + number) % 300) * 10 for number in range(300)]
            oids = objects.write_blobs(contents)
            tree = objects.write_tree({f"f{number}": Entry("100644", oid) for number, oid in enumerate(oids)})
            listed = objects.read_tree(tree)
            assert [objects.read_blob(listed[f"f{number}"].oid) for number in range(300)] == contents
            patch = objects.diff(objects.write_tree({}), tree).patch
            assert objects.apply(objects.write_tree({}), patch) == tree
        except BaseException as error:  # noqa: BLE001 (carried to the test's own thread)
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_store_reads_from_its_alternates_and_writes_only_to_itself(tmp_path: Path, objects: ObjectStore) -> None:
    base = objects.write_tree({"a": Entry("100644", objects.write_blob(b"base\n"))})
    before = sorted(objects.path.rglob("*"))
    with ObjectStore.open(tmp_path / "own.git", [objects.path]) as own:
        new = own.write_tree({"a": Entry("100644", own.write_blob(b"new\n")), "b": own.read_tree(base)["a"]})
        assert own.read_blob(own.read_tree(base)["a"].oid) == b"base\n"
        patch = own.diff(base, new).patch
        assert own.apply(base, patch) == new
    assert sorted(objects.path.rglob("*")) == before
    with ObjectStore.open(tmp_path / "own.git") as reopened:
        assert reopened.read_tree(base)


def test_changes_are_named_by_kind(objects: ObjectStore) -> None:
    def entry(data: bytes, mode: str = "100644") -> Entry:
        return Entry(mode, objects.write_blob(data))

    a = objects.write_tree(
        {"m": entry(b"1\n"), "x": entry(b"s"), "gone": entry(b"g"), "t": entry(b"to"), "d/f": entry(b"")}
    )
    b = objects.write_tree(
        {
            "m": entry(b"2\n\0"),
            "x": entry(b"s", "100755"),
            "new": entry(b"n"),
            "t": entry(b"to", "120000"),
            "d": entry(b"f"),
        }
    )
    changes = {change.path: change for change in objects.diff(a, b).changes}
    assert {path: change.kind for path, change in changes.items()} == {
        "m": "modified",
        "x": "mode",
        "gone": "deleted",
        "new": "added",
        "t": "mode",
        "d": "added",
        "d/f": "deleted",
    }
    assert changes["m"].binary and not changes["new"].binary
    assert (changes["x"].old_mode, changes["x"].new_mode) == ("100644", "100755")
    assert objects.apply(a, objects.diff(a, b).patch) == b


def test_a_patch_that_does_not_fit_names_the_file_and_the_line(objects: ObjectStore) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(20))
    a = objects.write_tree({"f.py": Entry("100644", objects.write_blob(lines))})
    b = objects.write_tree({"f.py": Entry("100644", objects.write_blob(lines.replace(b"line 10", b"other")))})
    patch = objects.diff(a, b).patch
    with pytest.raises(CodePilotError) as caught:
        objects.apply(b, patch)
    assert caught.value.kind is FailureKind.PATCH_CONFLICT
    assert caught.value.failure.details["file"] == "f.py"
    assert caught.value.failure.details["line"] == 8
    assert "f.py" in caught.value.failure.message
    assert objects.apply(a, b"") == a
    for nonsense in (b"hello", b"diff --git a/x b/x\n", patch.replace(b"f.py", b".git/config")):
        with pytest.raises(CodePilotError) as caught:
            objects.apply(a, nonsense)
        assert caught.value.kind is FailureKind.PATCH_CONFLICT
    assert not list(objects.path.glob("tmp_index_*"))


def test_a_patch_with_binary_files_fits_the_users_sha1_repository(repo: Any, objects: ObjectStore) -> None:
    repo.write("bin", b"\0old")
    repo.write("text", "old\n")
    repo.commit()
    before = pin_base(repo.path, objects).tree
    repo.write("bin", b"\0new")
    repo.write("text", "new\n")
    repo.write("added", b"\0added")
    after = pin_base(repo.path, objects).tree
    repo.git("stash", "-q", "-u")
    (repo.path.parent / "patch").write_bytes(objects.patch_for_sha1(before, after))
    repo.git("apply", str(repo.path.parent / "patch"))
    assert pin_base(repo.path, objects).tree == after


@pytest.mark.parametrize("path", [".git/config", "a/.GIT", "../x", "/abs", "a//b", "", "a/./b", "nul\0"])
def test_a_tree_refuses_paths_that_could_hurt(objects: ObjectStore, path: str) -> None:
    with pytest.raises(CodePilotError) as caught:
        objects.write_tree({path: Entry("100644", objects.write_blob(b""))})
    assert caught.value.kind is FailureKind.POLICY_VIOLATION


def test_a_file_and_a_directory_cannot_share_a_name(objects: ObjectStore) -> None:
    blob = Entry("120000", objects.write_blob(b"/etc"))
    for paths in (["a", "a/b"], ["a/b", "a"]):
        with pytest.raises(CodePilotError):
            objects.write_tree(dict.fromkeys(paths, blob))


def test_corruption_and_loss_are_noticed(objects: ObjectStore) -> None:
    oid, other = objects.write_blob(b"one"), objects.write_blob(b"two")
    place = objects.path / "objects" / oid[:2] / oid[2:]
    place.chmod(0o644)
    place.write_bytes((objects.path / "objects" / other[:2] / other[2:]).read_bytes())
    with pytest.raises(CodePilotError, match="corrupt"):
        objects.read_blob(oid)
    with pytest.raises(CodePilotError, match="missing"):
        objects.read_blob("0" * 63 + "1")


def test_an_object_emptied_by_a_power_loss_is_written_again(objects: ObjectStore) -> None:
    oid = objects.write_blob(b"one")
    place = objects.path / "objects" / oid[:2] / oid[2:]
    place.chmod(0o644)
    place.write_bytes(b"")
    again = ObjectStore.open(objects.path)
    assert again.write_blob(b"one") == oid
    assert again.read_blob(oid) == b"one"


@pytest.mark.parametrize("words", [3, 400, 20_000])
def test_the_header_of_a_loose_object_is_reported_whole_however_it_is_compressed(tmp_path: Path, words: int) -> None:
    """A compressor may write more than a hundred bytes before the first that it stands for."""
    data = "".join(f"{chr(33 + n * n % 90) * (n % 5)}word{n * 7919 % 997} " for n in range(words)).encode()
    with ObjectStore.open(tmp_path / "o.git") as objects:
        assert objects.header(objects.write_blob(data)) == ("blob", len(data))
