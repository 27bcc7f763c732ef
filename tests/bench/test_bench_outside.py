"""What happens outside the sandbox is seen: files of any kind, processes that live on, and a sweep that says so."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from bench_kit import LARGEST, task, write_tasks
from hypothesis import given, settings
from hypothesis import strategies as st

from codepilot.bench import BenchSpec, Result, document, outside, report, run_sweep, write_reports
from codepilot.bench.outside import Outside, Root, prefix_of, survivors, usual
from codepilot.bench.report import figure
from codepilot.bench.results import Results, make_result, tried_again, with_outside


def _watch(*places: Path, **options: Any) -> Outside:
    watch = Outside([Root(place) for place in places], **options)
    watch.begin()
    return watch


def _write(file: Path, text: str = "text") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_made_changed_removed_and_renamed_over(tmp_path: Path) -> None:
    root = tmp_path / "root"
    kept, gone, grown, over, open_ = (
        _write(root / "deep" / name) for name in ("kept", "gone", "grown", "over", "open")
    )
    watch = _watch(root)
    assert watch.seen().changes == ()
    _write(root / "new" / "file")
    gone.unlink()
    grown.write_text("longer text")
    _write(tmp_path / "other").rename(over)
    open_.chmod(0o777)
    seen = watch.seen()
    assert set(seen.changes) == {
        f"made {root / 'new'}",
        f"made {root / 'new' / 'file'}",
        f"removed {gone}",
        f"changed {grown}",
        f"changed {over}",
        f"changed {open_}",
    }
    assert seen.watched == 8 and kept.exists()
    assert watch.seen().changes == (), "each change is reported once"


def test_a_whole_directory_removed_or_put_in_the_place_of_a_file(tmp_path: Path) -> None:
    inside, plain = _write(tmp_path / "root" / "folder" / "inside"), _write(tmp_path / "root" / "plain")
    watch = _watch(tmp_path / "root")
    inside.unlink()
    inside.parent.rmdir()
    plain.unlink()
    _write(plain / "inside")
    assert sorted(watch.seen().changes) == sorted(
        [f"removed {inside.parent}", f"removed {inside}", f"changed {plain}", f"made {plain / 'inside'}"]
    )


def test_a_root_may_be_a_file_be_missing_or_vanish(tmp_path: Path) -> None:
    file, folder, none = _write(tmp_path / "list.json"), tmp_path / "folder", tmp_path / "none"
    folder.mkdir()
    watch = _watch(file, folder, none)
    file.write_text("another list")
    folder.rmdir()
    none.mkdir()
    assert set(watch.seen().changes) == {f"changed {file}", f"removed {folder}", f"made {none}"}


def test_an_unreadable_directory_says_nothing_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shut, scandir = tmp_path / "root" / "shut", os.scandir
    _write(shut / "file")
    watch = _watch(tmp_path / "root")

    def refuse(place: str) -> Any:
        if place == str(shut):
            raise PermissionError(place)
        return scandir(place)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        shut.chmod(0)
        assert watch.seen().changes == (f"changed {shut}",)
    shut.chmod(0o755)
    assert watch.seen().changes == (f"changed {shut}",)


def test_links_are_looked_at_and_not_followed(tmp_path: Path) -> None:
    root, other = tmp_path / "root", _write(tmp_path / "other" / "file")
    root.mkdir()
    (root / "loop").symlink_to(root)
    (root / "away").symlink_to(other.parent)
    watch = _watch(root)
    other.write_text("not watched")
    seen = watch.seen()
    assert seen.changes == () and seen.watched == 3
    (root / "away").unlink()
    (root / "away").symlink_to(tmp_path)
    assert watch.seen().changes == (f"changed {root / 'away'}",)


def test_what_is_left_out_and_roots_within_roots(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("out", "pkg", "data"):
        (root / name).mkdir(parents=True)
    watch = _watch(root, root / "data", left_out=[root / "out", root / "later"])
    for place in (root / "out" / "row", root / "later" / "row", root / "pkg" / "__pycache__" / "x.pyc"):
        _write(place)
    assert watch.seen().changes == ()
    _write(root / "data" / "row")
    assert watch.seen().changes == (f"made {root / 'data' / 'row'}",), "once, though two roots hold it"


def test_a_bound_leaves_whole_directories_out_and_the_same_each_time(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for number in range(20):
        _write(root / "large" / str(number))
    _write(root / "small" / "file")
    watch = _watch(root, bound=10)
    assert watch.seen().watched == 4
    _write(root / "another")
    _write(root / "large" / "more")
    for number in range(30):
        _write(root / "small" / str(number))
    assert len(watch.seen().changes) == 31, "what the first picture looked at has no bound"


def test_a_shared_root_tells_only_of_what_had_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, gone, busy = (_write(tmp_path / name) for name in ("old", "gone", "busy"))
    (tmp_path / "folder").mkdir()
    os.utime(busy, (time.time() + 9000,) * 2)
    monkeypatch.setattr(outside, "SETTLED_SEC", -3600.0)
    watch = Outside([Root(tmp_path, shared=True)])
    watch.begin()
    old.write_text("changed")
    gone.unlink()
    busy.unlink()
    _write(tmp_path / "folder" / "new")
    _write(tmp_path / "new")
    assert watch.seen().changes == (f"removed {gone}", f"changed {old}")


def test_any_name_can_be_reported(tmp_path: Path) -> None:
    watch = _watch(tmp_path)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\n\xff\x1b[1m")).touch()
    (change,) = watch.seen().changes
    assert change == f"made {tmp_path}/a\\n\\udcff\\x1b[1m"
    change.encode("utf-8")


def test_the_environment_of_an_interpreter(tmp_path: Path) -> None:
    python = _write(tmp_path / "venv" / "bin" / "python")
    assert prefix_of(str(python)) == prefix_of(str(tmp_path / "venv")) == tmp_path / "venv"
    assert prefix_of(None) == Path(sys.prefix)


def test_what_a_sweep_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python, data, home = _write(tmp_path / "venv" / "bin" / "python"), _write(tmp_path / "data"), tmp_path / "user"
    for name in (".cache", ".local/share/codepilot", "out"):
        (home / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for name in ("CODEPILOT_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    watch = usual([data], str(python), home / "out")
    watch.begin()
    for name in (".cache/x", ".local/share/codepilot/x", "out/x"):
        _write(home / name)
    wanted = [_write(place, "harm") for place in (python, data, home / "x", home / ".config" / "x")]
    reported = [change for change in watch.seen().changes if str(tmp_path) in change]
    assert sorted(reported) == sorted(
        [
            f"changed {wanted[0]}",
            f"changed {wanted[1]}",
            f"made {wanted[2]}",
            f"made {home}/.config",
            f"made {wanted[3]}",
        ]
    )


_TREES = st.dictionaries(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple), st.integers(0, 3), max_size=6
).map(lambda tree: {path: size for path, size in tree.items() if not any(path[:n] in tree for n in range(len(path)))})


def _entries(tree: dict[tuple[str, ...], int]) -> dict[str, int | None]:
    """Every path of a tree: files with their size, directories with none."""
    folders = {"/".join(path[:n]): None for path in tree for n in range(1, len(path))}
    return folders | {"/".join(path): size for path, size in tree.items()}


def _turn_into(root: Path, old: dict[str, int | None], new: dict[str, int | None]) -> None:
    for name in sorted(old, reverse=True):
        if name not in new or (old[name] is None) != (new[name] is None):
            (root / name).rmdir() if old[name] is None else (root / name).unlink()
    for name, size in sorted(new.items()):
        if size is None:
            (root / name).mkdir(exist_ok=True)
        elif old.get(name) != size:
            (root / name).write_bytes(b"x" * size)


@settings(max_examples=50)
@given(_TREES, _TREES, st.integers(1, 20))
def test_every_change_is_reported_and_a_bound_invents_none(
    before: dict[tuple[str, ...], int], after: dict[tuple[str, ...], int], bound: int
) -> None:
    old, new = _entries(before), _entries(after)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        _turn_into(root, {}, old)
        whole, part = _watch(root), _watch(root, bound=bound)
        _turn_into(root, old, new)
        true = {f"made {root / name}" for name in new.keys() - old.keys()}
        true |= {f"removed {root / name}" for name in old.keys() - new.keys()}
        true |= {f"changed {root / name}" for name in old.keys() & new.keys() if old[name] != new[name]}
        reported = whole.seen().changes
        assert set(reported) == true and len(reported) == len(true)
        assert set(part.seen().changes) <= true


@contextmanager
def _sleeper(*arguments: str, cwd: Path | None = None) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)", *arguments], cwd=cwd)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_a_process_that_lives_on_is_named(tmp_path: Path) -> None:
    place = tmp_path / "work" / "bug-1"
    (place / "home").mkdir(parents=True)
    with _sleeper(str(place / "home")) as named, _sleeper(cwd=place) as within, _sleeper(f"{place}0"):
        found = survivors(place, grace=0)
    assert sorted(line.split()[1] for line in found) == sorted(map(str, (named, within)))
    assert any(line.startswith(f"process {named} lives on: ") and str(place) in line for line in found)
    assert survivors(place) == ()


def _hostile(root: Path) -> dict[str, str]:
    """A bug whose tests would remove the watched files, make others and leave a process behind."""
    checks = (
        f"import pathlib, shutil, subprocess\nshutil.rmtree({str(root)!r}, ignore_errors=True)\n"
        f"try:\n    pathlib.Path({str(root)!r}, 'leak').write_text('leak')\nexcept OSError:\n    pass\n"
        "subprocess.Popen(['sleep', '300'], start_new_session=True)\nassert twice(2) == 4\nassert twice(5) == 10"
    )
    return task(1, "twice", "return x + x", "return x + 1", checks)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_sweep_tells_what_changed_outside_while_a_bug_ran(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    precious = _write(root / "precious")
    data = write_tasks(tmp_path / "data", _hostile(root), LARGEST)
    sweep = BenchSpec("humanevalfix", data, out, seconds=3, search_only=True)
    place = out.absolute() / "work" / "Python-2"
    sandboxed: list[str] = []
    with ExitStack() as left_behind:

        def show(results: Sequence[Result], wanted: int, before: int) -> None:
            if len(results) == 0:
                _write(root / "before the first picture")
            if len(results) == 1 and not before:
                sandboxed.extend(_seen_at_work(place))
                precious.unlink()
                left_behind.enter_context(_sleeper(str(place)))

        first = run_sweep(sweep, show, Outside([Root(root)]))
    quiet, loud = first.results
    assert sandboxed, "what runs in a sandbox is found by what it mounts"
    assert quiet.tried and (quiet.outside, quiet.outside_count, quiet.watched) == ((), 0, 3)
    assert loud.outside[-1] == f"removed {precious}" and loud.outside[0].endswith(f" {place}")
    assert loud.outside_count == len(loud.outside) == 2 and loud.watched == 2
    again = run_sweep(sweep, outside=Outside([Root(root)]))
    assert again.results == first.results == tuple(Results(out).read())
    assert "2 changes outside the sandbox: see the rows" in report.summary(sweep, again)
    reported = document(sweep, again)
    assert reported["all"]["outside"] == 2 and reported["outside"] == {"Python/2": list(loud.outside)}
    assert all(f"removed {precious}" in written.read_text() for written in write_reports(sweep, again))


def _seen_at_work(place: Path) -> tuple[str, ...]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if found := survivors(place, grace=0):
            return found
        time.sleep(0.02)
    return ()


def _row(**more: Any) -> Result:
    return make_result({"set": "s", "bug": "b", "kind": "k", "engine": "e", "seconds": 1.0, **more})


def test_rows_name_the_first_changes_and_count_all() -> None:
    row = with_outside(_row(), [f"made /x/{number}" for number in range(1500)], 7)
    assert len(row.outside) == 20 and figure([row, row]).outside == 3000
    assert make_result(asdict(row)) == row
    retried = tried_again(with_outside(_row(status="DONE"), ["made /y"], 7), row)
    assert retried.status == "DONE" and retried.outside_count == 1501


def test_the_summary_says_how_much_was_watched() -> None:
    old, clean, one = _row(), with_outside(_row(), [], 83412), with_outside(_row(), ["made /x"], 5)
    assert report.outside(figure([clean])) == "nothing changed outside the sandbox (83,412 files watched)"
    assert report.outside(figure([clean, old])).endswith("(83,412 files watched, 1 of 2 bugs not watched)")
    assert report.outside(figure([old])) == "what changes outside the sandbox was not watched"
    assert report.outside(figure([old, one])) == "1 change outside the sandbox: see the rows"
