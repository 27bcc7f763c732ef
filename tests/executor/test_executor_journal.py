"""The journal of answers: the last word on each key, whatever happened while it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from codepilot.executor.journal import Journal


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "answers.log"


def journal(file: Path, kept: int = 10, kept_bytes: int = 10_000) -> Journal:
    return Journal(file, kept, kept_bytes)


def test_the_last_word_is_kept_and_found_again(file):
    first = journal(file)
    first.write("a", b"one")
    first.write("b", b"two")
    first.write("a", b"three")
    first.write("b", b"")
    for one in (first, journal(file)):
        assert (one.read("a"), one.read("b"), one.read("c")) == (b"three", None, None)
    first.close()
    first.write("c", b"after it was closed")
    assert (first.read("a"), first.read("c")) == (b"three", b"after it was closed")


def test_a_line_that_did_not_come_to_its_end_was_never_written(file):
    whole = journal(file)
    whole.write("a", b"marked")
    before = file.stat().st_size
    whole.write("a", b"answered")
    data = file.read_bytes()
    for length in range(before, len(data)):
        file.write_bytes(data[:length])
        torn = journal(file)
        assert torn.read("a") == b"marked"
        torn.write("b", b"goes on")
        torn.close()
        assert (journal(file).read("a"), journal(file).read("b")) == (b"marked", b"goes on")


def test_it_does_not_grow_for_ever_and_keeps_the_newest_and_the_busy(file):
    kept = journal(file, kept=10)
    kept.write("busy", b"marked")
    for number in range(200):
        kept.write(f"k{number}", b"%d" % number, ["busy"])
    assert len(file.read_bytes().splitlines()) <= 41
    for one in (kept, journal(file)):
        assert [one.read(f"k{number}") for number in range(191, 200)] == [b"%d" % number for number in range(191, 200)]
        assert (one.read("busy"), one.read("k0")) == (b"marked", None)


def test_large_texts_are_fewer_and_the_last_is_kept_whatever_its_size(file):
    kept = journal(file, kept=10, kept_bytes=1000)
    for number in range(20):
        kept.write(f"k{number}", b"x" * 400)
    assert file.stat().st_size <= 5000
    kept.write("huge", b"x" * 9000)
    assert (len(kept.read("huge")), kept.read("k19")) == (9000, None)
