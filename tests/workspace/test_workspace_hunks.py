"""Hunks: any choice of them gives exactly the chosen lines, and all of them give the change."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codepilot.core.failures import CodePilotError
from codepilot.workspace import ChangedFile, Entry, ObjectStore, Piece, changed_files, remaining_tree, selected
from codepilot.workspace.trees import EXECUTABLE, FILE, SYMLINK

Files = dict[str, bytes | tuple[str, bytes]]


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore.open(tmp_path_factory.mktemp("hunks") / "objects.git", durable=False) as opened:
        yield opened


def tree(objects: ObjectStore, files: Files) -> str:
    entries = {}
    for path, content in files.items():
        mode, data = content if isinstance(content, tuple) else (FILE, content)
        entries[path] = Entry(mode, objects.write_blob(data))
    return objects.write_tree(entries)


def content(objects: ObjectStore, name: str) -> Files:
    return {
        path: data if entry.mode == FILE else (entry.mode, data)
        for path, entry in objects.read_tree(name).items()
        for data in [objects.read_blob(entry.oid)]
    }


def chosen(objects: ObjectStore, before: Files, after: Files, *wanted: str) -> Files:
    a, b = tree(objects, before), tree(objects, after)
    files = changed_files(objects, a, b)
    taken = {piece for one in wanted for piece in selected(files, one)}
    return content(objects, remaining_tree(objects, a, files, taken))


LINES = [b"%d\n" % number for number in range(40)]
OLD = b"".join(LINES)
NEW = b"".join([b"top\n", *LINES[:19], b"nineteen\n", LINES[20], b"one\n", *LINES[22:]])


def ids(objects: ObjectStore, before: Files, after: Files) -> list[str]:
    files = changed_files(objects, tree(objects, before), tree(objects, after))
    return [piece.id for file in files for piece in file.pieces]


def test_hunks_and_their_parts_are_taken_one_by_one(objects: ObjectStore) -> None:
    before, after = {"a.txt": OLD}, {"a.txt": NEW}
    assert ids(objects, before, after) == ["a.txt:1", "a.txt:2.1", "a.txt:2.2"]
    assert chosen(objects, before, after, "a.txt:1") == {"a.txt": b"top\n" + OLD}
    assert chosen(objects, before, after, "a.txt:2.2") == {"a.txt": OLD.replace(b"\n21\n", b"\none\n")}
    both = OLD.replace(b"\n19\n", b"\nnineteen\n").replace(b"\n21\n", b"\none\n")
    assert chosen(objects, before, after, "a.txt:2") == {"a.txt": both}
    assert chosen(objects, before, after, "a.txt") == after
    assert chosen(objects, before, after) == before


def test_new_deleted_binary_and_linked_files_are_taken_whole(objects: ObjectStore) -> None:
    before: Files = {"gone": b"a\n", "image": b"\0old", "link": (SYMLINK, b"gone"), "kept": b"k\n"}
    after: Files = {"new": b"n\n", "image": b"\0new", "link": (SYMLINK, b"new"), "kept": b"k\n"}
    assert ids(objects, before, after) == ["gone", "image", "link", "new"]
    assert chosen(objects, before, after, "new", "image") == {**before, "new": b"n\n", "image": b"\0new"}
    assert chosen(objects, before, after, "gone", "link") == {
        "image": b"\0old",
        "link": (SYMLINK, b"new"),
        "kept": b"k\n",
    }


def test_a_mode_is_taken_without_the_lines_and_the_lines_without_the_mode(objects: ObjectStore) -> None:
    before: Files = {"run.sh": b"echo a\n"}
    after: Files = {"run.sh": (EXECUTABLE, b"echo b\n")}
    assert ids(objects, before, after) == ["run.sh:mode", "run.sh:1"]
    assert chosen(objects, before, after, "run.sh:mode") == {"run.sh": (EXECUTABLE, b"echo a\n")}
    assert chosen(objects, before, after, "run.sh:1") == {"run.sh": b"echo b\n"}


def test_a_rename_is_taken_without_the_lines_and_the_lines_without_the_name(objects: ObjectStore) -> None:
    before, after = {"old.txt": OLD}, {"new.txt": NEW}
    assert ids(objects, before, after)[0] == "new.txt:rename"
    assert chosen(objects, before, after, "new.txt:rename") == {"new.txt": OLD}
    assert chosen(objects, before, after, "old.txt:1") == {"old.txt": b"top\n" + OLD}
    assert chosen(objects, before, after, "new.txt") == after


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nc\r\n"),
        (b"a\nb", b"a\nb\nc\n"),
        (b"a\nb\n", b"a\nb"),
        (b"\\ No newline at end of file\nx\n", b"x\n\\ No newline at end of file"),
        (b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n", b"@@ -1 +1 @@\ndiff --git a/x b/x\n"),
        (b"a\x0cb\x85c\xe2\x80\xa8d\n", b"a\x0cb\x85C\xe2\x80\xa8d\n"),
        (b"x\n", b""),
        (b"", b"x"),
    ],
)
def test_line_ends_and_lines_that_look_like_a_diff_are_content(objects: ObjectStore, old: bytes, new: bytes) -> None:
    before, after = {"f": old, "z": b"1\n"}, {"f": new, "z": b"2\n"}
    assert chosen(objects, before, after, "f") == {"f": new, "z": b"1\n"}
    assert chosen(objects, before, after, "z") == {"f": old, "z": b"2\n"}


line = st.sampled_from([b"a", b"b", b"c\r", b"", b"-", b"+x", b"@@ -1,2 +3 @@", b"diff --git a/f b/f"])
text = st.builds(lambda lines, end: b"\n".join(lines) + end, st.lists(line, max_size=30), st.sampled_from([b"", b"\n"]))


@settings(max_examples=60, deadline=None)
@given(old=text, new=text, seed=st.integers())
def test_any_choice_leaves_a_change_whose_rest_is_the_other_choice(
    objects: ObjectStore, old: bytes, new: bytes, seed: int
) -> None:
    a, b = tree(objects, {"f": old}), tree(objects, {"f": new})
    files = changed_files(objects, a, b)
    pieces = [piece for file in files for piece in file.pieces]
    some = {piece for piece in pieces if random.Random(f"{seed}{piece}").random() < 0.5}
    part = remaining_tree(objects, a, files, some)
    assert remaining_tree(objects, a, files, set(pieces)) == b
    assert remaining_tree(objects, a, files, set()) == a
    edits = {len(hunk.edits) for file in files for hunk in file.hunks}
    assert not edits or len([piece for piece in pieces if piece.part]) == sum(
        len(hunk.edits) for file in files for hunk in file.hunks
    )
    if 0 < len(some) < len(pieces):
        assert part not in (a, b)


def test_a_file_whose_name_looks_like_a_hunk_is_not_taken_with_it(objects: ObjectStore) -> None:
    before: Files = {"a": b"1\n"}
    after: Files = {"a": b"2\n", "a:1": b"sly\n"}
    a, b = tree(objects, before), tree(objects, after)
    files = changed_files(objects, a, b)
    with pytest.raises(CodePilotError, match="names several parts"):
        selected(files, "a:1")
    assert content(objects, remaining_tree(objects, a, files, {Piece("a", "1")})) == {"a": b"2\n"}


def test_an_unknown_part_is_refused_with_the_known_ones(objects: ObjectStore) -> None:
    files: tuple[ChangedFile, ...] = changed_files(
        objects, tree(objects, {"a.txt": OLD}), tree(objects, {"a.txt": NEW})
    )
    with pytest.raises(CodePilotError) as refused:
        selected(files, "a.txt:7")
    assert "a.txt:1, a.txt:2.1, a.txt:2.2" in refused.value.failure.advice
    with pytest.raises(CodePilotError, match=r"b\.txt"):
        selected(files, "b.txt")


def test_a_file_and_what_would_be_in_it_cannot_both_stay(objects: ObjectStore) -> None:
    before: Files = {"a": b"file\n"}
    after: Files = {"a/b": b"inside\n"}
    with pytest.raises(CodePilotError, match="does not fit together"):
        chosen(objects, before, after, "a/b")
