"""Shadows: the agent's copy, promotion by exchange, and a person's edits in the run's tree."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError
from codepilot.workspace import Entry, ObjectStore, Workspace
from codepilot.workspace.shadow import Shadow


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    objects = ObjectStore.open(tmp_path / "objects")
    names = ("a.txt", "src/b.py", "src/deep/c.py", ".gitignore")
    content = {name: f"{name}\n".encode() for name in names} | {".gitignore": b"*.log\n"}
    entries = {name: Entry("100644", objects.write_blob(data)) for name, data in content.items()}
    made = Workspace(tmp_path / "r-1", objects)
    made.create(objects.write_tree(entries))
    return made


def _files(path: Path) -> dict[str, str]:
    return {str(file.relative_to(path)): file.read_text() for file in sorted(path.rglob("*")) if file.is_file()}


def test_only_a_promotion_changes_the_tree(workspace: Workspace) -> None:
    workspace.open_shadow()
    tree, agent = workspace.path / "tree", workspace.tree_path
    assert agent.name == "shadow"
    before = _files(tree)
    (agent / "src/b.py").write_text("changed\n")
    (agent / "a.txt").unlink()
    (agent / "run.sh").write_text("#!/bin/sh\n")
    (agent / "run.sh").chmod(0o755)
    taken = workspace.snapshot()
    (agent / "src/b.py").write_text("later, not promoted\n")
    assert _files(tree) == before
    found = workspace.promote(taken.id)
    assert found.tree == taken.tree
    assert _files(tree) == {
        ".gitignore": "*.log\n", "run.sh": "#!/bin/sh\n", "src/b.py": "changed\n", "src/deep/c.py": "src/deep/c.py\n"
    }  # fmt: skip
    assert (tree / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (agent / "src/b.py").read_text() == "later, not promoted\n"
    for number in range(3):
        (agent / f"new{number}.txt").write_text(str(number))
        workspace.promote(workspace.snapshot().id)
        assert (tree / f"new{number}.txt").read_text() == str(number)
    workspace.close_shadow()
    assert workspace.tree_path == tree
    assert sorted(path.name for path in workspace.path.iterdir()) == ["index.json", "snapshots", "tree"]
    assert workspace.snapshot().tree == workspace.scan().tree


def test_there_is_no_moment_without_a_whole_tree(workspace: Workspace) -> None:
    """A reader that opens the tree during hundreds of exchanges always finds every file of one state."""
    workspace.open_shadow()
    tree, agent = workspace.path / "tree", workspace.tree_path
    broken: list[str] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                root = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                broken.append("no tree")
                continue
            if not {"a.txt", "src", ".gitignore"} <= set(os.listdir(root)):  # noqa: PTH208 (by its open directory)
                broken.append("files missing")
            os.close(root)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(40):
        (agent / "a.txt").write_text(str(number))
        workspace.promote(workspace.snapshot().id)
    stop.set()
    reader.join()
    assert broken == []


def test_a_persons_place_gets_promotions_and_keeps_their_files(workspace: Workspace, tmp_path: Path) -> None:
    place = tmp_path / "open" / "here"
    found = workspace.open_shadow(place)
    assert found.promoted == found.tree
    assert (place / "src/b.py").read_text() == "src/b.py\n"
    (place / "mine.log").write_text("ignored, mine\n")
    (place / ".git").mkdir()
    (place / "src/b.py").write_text("edited by a person\n")
    seen = workspace.run_tree()
    assert seen.tree != seen.promoted
    edits = workspace.compare(seen.promoted, seen.tree, patch=False).changes
    assert [change.path for change in edits] == ["src/b.py"]
    workspace.restore(seen.snapshot, ["src/b.py"])
    (workspace.tree_path / "a.txt").write_text("by the agent\n")
    workspace.promote(workspace.snapshot().id)
    assert (place / "src/b.py").read_text() == "edited by a person\n"
    assert (place / "a.txt").read_text() == "by the agent\n"
    assert (place / "mine.log").read_text() == "ignored, mine\n"
    assert (place / ".git").is_dir()
    workspace.close_shadow()
    (place / "a.txt").write_text("between two steps\n")
    again = workspace.open_shadow(place)
    assert [c.path for c in workspace.compare(again.promoted, again.tree, patch=False).changes] == ["a.txt"]
    workspace.delete()
    assert (place / "a.txt").read_text() == "between two steps\n"


def test_a_place_with_other_files_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    with pytest.raises(CodePilotError, match="is not empty"):
        workspace.open_shadow(tmp_path / "full")
    assert (tmp_path / "full" / "x").read_text() == "x"


def test_comparison_names_content_and_looks_at_no_file(workspace: Workspace) -> None:
    first = workspace.snapshot()
    (workspace.tree_path / "a.txt").rename(workspace.tree_path / "moved.txt")
    second = workspace.snapshot()
    listing = workspace.compare(first.tree, second.tree, patch=False)
    assert [(one.path, one.kind) for one in listing.changes] == [("a.txt", "deleted"), ("moved.txt", "added")]
    assert listing.changes[0].before == listing.changes[1].after
    assert listing.patch == b""
    assert b"rename" not in workspace.compare(first.tree, second.tree).patch


def test_an_edit_that_nobody_had_seen_is_reported_by_the_promotion(workspace: Workspace, tmp_path: Path) -> None:
    """An edit between the last look and the promotion is in the tree that the promotion exchanges."""
    place = tmp_path / "mine"
    opened = workspace.open_shadow(place)
    (workspace.tree_path / "a.txt").write_text("the agent's\n")
    taken = workspace.snapshot()
    (place / "src" / "b.py").write_text("the person's\n")
    done = workspace.promote(taken.id)
    assert done.late is not None
    paths = [change.path for change in workspace.compare(opened.tree, done.late[0]).changes]
    assert paths == ["src/b.py"]
    workspace.restore(done.late[1], paths)
    assert workspace.promote(workspace.snapshot().id).late is None
    assert _files(place)["src/b.py"] == "the person's\n"
    assert _files(place)["a.txt"] == "the agent's\n"


@pytest.mark.parametrize("moment", ["exchanged", "noted"])
def test_edits_that_a_cut_off_promotion_took_away_come_back(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A worker that dies after the exchange, or before it has put the late edits into the agent's files."""
    place = tmp_path / "mine"
    workspace.open_shadow(place)
    (workspace.tree_path / "a.txt").write_text("the agent's\n")
    taken = workspace.snapshot()
    (place / "src" / "b.py").write_text("the person's\n")
    (place / "new").mkdir()
    (place / "new" / "late.txt").write_text("late\n")
    (place / "own.log").write_text("ignored\n")
    if moment == "exchanged":
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Shadow, "_bring", _die)
            workspace.promote(taken.id)
    else:
        assert workspace.promote(taken.id).late is not None
    assert "new/late.txt" not in _files(place)
    (place / "alone.txt").write_text("alone\n")
    (place / "a.txt").write_text("while nobody worked\n")

    for _ in range(2):  # what was brought back once stays as the person leaves it
        again = Workspace(workspace.path, ObjectStore.open(tmp_path / "objects"))
        again.open_shadow(place)
        kept = {"a.txt": "while nobody worked\n", "src/b.py": "the person's\n", "new/late.txt": "late\n"}
        assert kept.items() <= _files(place).items()
        assert {"alone.txt": "alone\n", "own.log": "ignored\n"}.items() <= _files(place).items()


def test_a_promotion_that_was_cut_off_before_its_exchange_changes_nothing(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the next state had been prepared with is no edit of a person's."""
    place = tmp_path / "mine"
    workspace.open_shadow(place)
    (workspace.tree_path / "a.txt").write_text("first\n")
    workspace.promote(workspace.snapshot().id)
    (workspace.tree_path / "src" / "b.py").write_text("second\n")
    taken = workspace.snapshot()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Shadow, "_note", _die)
        workspace.promote(taken.id)
    found = Workspace(workspace.path, ObjectStore.open(tmp_path / "objects")).open_shadow(place)
    assert found.tree == found.promoted
    assert (_files(place)["a.txt"], _files(place)["src/b.py"]) == ("first\n", "src/b.py\n")


def _die(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
