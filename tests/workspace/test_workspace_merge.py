"""Trees are merged three ways in the object store: lines by lines, and what does not go together is a conflict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codepilot.workspace import Entry, ObjectStore, merge_trees

FILE, EXECUTABLE, LINK = "100644", "100755", "120000"


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore.open(tmp_path / "store.git", durable=False)


def tree(objects: ObjectStore, files: Mapping[str, bytes | tuple[str, bytes]]) -> str:
    entries = {}
    for path, held in files.items():
        mode, data = held if isinstance(held, tuple) else (FILE, held)
        entries[path] = Entry(mode, objects.write_blob(data))
    return objects.write_tree(entries)


def merged(objects: ObjectStore, *sides: Mapping[str, bytes | tuple[str, bytes]]) -> dict[str, bytes] | tuple[str, ...]:
    result = merge_trees(objects, *(tree(objects, side) for side in sides))
    if result.conflicts:
        return result.conflicts
    return {path: objects.read_blob(entry.oid) for path, entry in objects.read_tree(result.tree).items()}


LINES = b"one\ntwo\nthree\nfour\nfive\n"


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ({"f": LINES, "a": b"1"}, {"f": LINES, "b": b"2"}, {"f": LINES, "a": b"1", "b": b"2"}),
        ({"f": b"1\n" + LINES}, {"f": LINES + b"6\n"}, {"f": b"1\n" + LINES + b"6\n"}),
        ({"f": LINES.replace(b"two", b"2")}, {"f": LINES.replace(b"two", b"zwei")}, ("f",)),
        ({"f": LINES.replace(b"two", b"2")}, {}, ("f",)),
        ({}, {}, {}),
        ({"f": LINES, "x": b"same"}, {"f": LINES, "x": b"same"}, {"f": LINES, "x": b"same"}),
        ({"f": LINES, "x": b"mine"}, {"f": LINES, "x": b"theirs"}, ("x",)),
        ({"f": b"\0\1"}, {"f": b"\0\2"}, ("f",)),
        ({"f": LINES, "x": b"file"}, {"f": LINES, "x/y": b"in a directory"}, ("x/y",)),
        ({"f": LINES, "x/y": b"in a directory"}, {"f": LINES, "x": b"file"}, ("x",)),
        ({"f": (LINK, b"there")}, {"f": LINES + b"6\n"}, ("f",)),
    ],
)
def test_both_sides_changes_are_taken_or_a_conflict_is_named(
    objects: ObjectStore,
    ours: dict[str, bytes | tuple[str, bytes]],
    theirs: dict[str, bytes | tuple[str, bytes]],
    expected: object,
) -> None:
    assert merged(objects, {"f": LINES}, ours, theirs) == expected


def test_a_mode_and_a_content_of_different_sides_are_both_taken(objects: ObjectStore) -> None:
    sides = ({"f": LINES}, {"f": (EXECUTABLE, LINES)}, {"f": LINES + b"6\n"})
    result = merge_trees(objects, *(tree(objects, side) for side in sides))
    (entry,) = objects.read_tree(result.tree).values()
    assert (entry.mode, objects.read_blob(entry.oid)) == (EXECUTABLE, LINES + b"6\n")


contents = st.dictionaries(st.sampled_from(["a", "b", "d/e", "d/f"]), st.sampled_from([b"1\n", b"2\n", b"3\n"]))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(base=contents, ours=contents, theirs=contents)
def test_a_merge_takes_each_change_or_none(
    objects: ObjectStore, base: dict[str, bytes], ours: dict[str, bytes], theirs: dict[str, bytes]
) -> None:
    result = merged(objects, base, ours, theirs)
    both = {
        path
        for path in {*base, *ours, *theirs}
        if base.get(path) != ours.get(path) != theirs.get(path) != base.get(path)
    }
    if isinstance(result, tuple):
        assert set(result) <= both
        return
    for path in {*base, *ours, *theirs}:
        mine, other = ours.get(path), theirs.get(path)
        assert result.get(path) == (other if mine == base.get(path) else mine)
    assert merged(objects, base, ours, base) == ours
