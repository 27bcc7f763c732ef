"""Who is informed that a workspace holds too much, when several trees write to it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codepilot.sandbox import DiskAccount
from codepilot.sandbox.limits.disk import DiskWatch

PAGE = 4096
LIMIT = 32 * PAGE
A, B = 0, 1


class Disk:
    """A disk on which two trees write to one workspace, others next to it, and nobody else."""

    def __init__(self, directory: Path) -> None:
        self.place = directory / "place"
        self.place.mkdir()
        self._next_to = 0
        self._dirtied = [0, 0]
        held = DiskAccount(time.time() - 1)
        self._watches = [self._watch(held), self._watch(held)]

    def _watch(self, held: DiskAccount) -> DiskWatch:
        disk = self

        class Watch(DiskWatch):
            def _space(self) -> tuple[int, int]:
                return (1 << 40) - disk.used() - disk._next_to, 1 << 20

        return Watch([self.place], LIMIT, held)

    def used(self) -> int:
        return sum(path.stat().st_blocks * 512 for path in self.place.iterdir())

    def write(self, tree: int, pages: int) -> None:
        with (self.place / str(tree)).open("ab") as file:
            os.posix_fallocate(file.fileno(), file.tell(), pages * PAGE)  # it takes no more and no less than that
        self._dirtied[tree] += pages * PAGE

    def write_next_to(self, pages: int) -> None:
        self._next_to = max(0, self._next_to + pages * PAGE)

    def note(self, tree: int) -> None:
        with self._written():
            self._watches[tree].note(tree)

    def exceeded(self, tree: int, ended: bool = False) -> bool:
        with self._written():
            return self._watches[tree].exceeded(tree, ended)

    @contextmanager
    def _written(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("codepilot.sandbox.limits.disk._dirtied", self._dirtied.__getitem__)
            patch.setattr("codepilot.sandbox.limits.disk._deleted_but_open", lambda tree: 0)
            yield


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path)


def test_who_wrote_while_there_was_room_is_not_to_blame_for_who_writes_later(disk):
    disk.write(A, 20)
    disk.note(A)
    disk.write(B, 25)
    assert disk.exceeded(B)
    assert not disk.exceeded(A)
    disk.write(A, 1)
    assert disk.exceeded(A)


def test_who_wrote_at_the_same_time_is_to_blame_too(disk):
    disk.write(A, 20)
    disk.write(B, 25)
    assert disk.exceeded(B)
    assert disk.exceeded(A)


def test_space_that_was_reported_by_another_hides_nothing(disk):
    disk.write(B, 15)
    disk.note(B)
    assert not disk.exceeded(B)
    assert not disk.exceeded(A)
    disk.write(B, 3)
    assert not disk.exceeded(B)
    disk.write(A, 14)
    disk.note(A)
    disk.write(B, 14)
    disk.note(B)
    assert disk.exceeded(A) or disk.exceeded(B)


def test_what_others_write_on_that_disk_hides_nothing(disk):
    disk.write_next_to(24)
    assert not disk.exceeded(A)
    assert not disk.exceeded(B)
    for tree in (A, B):
        disk.write(tree, 24)
        disk.note(tree)
    assert disk.exceeded(A) or disk.exceeded(B)


_tree = st.sampled_from([A, B])
_steps = st.one_of(
    st.tuples(st.just(Disk.write), _tree, st.integers(1, 24)),
    st.tuples(st.just(Disk.note), _tree),
    st.tuples(st.just(Disk.exceeded), _tree),
    st.tuples(st.just(Disk.write_next_to), st.integers(-24, 24)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_steps, max_size=12))
def test_too_much_is_always_reported_to_somebody(steps):
    with tempfile.TemporaryDirectory() as directory:
        disk = Disk(Path(directory))
        reported = [step(disk, *arguments) for step, *arguments in steps]
        reported += [disk.exceeded(tree, ended) for ended in (False, True) for tree in (A, B)]
        assert any(reported) == (disk.used() > LIMIT)
