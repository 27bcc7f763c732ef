"""A tree in an object store, mapped and looked at as those do who ask agents."""

from __future__ import annotations

from pathlib import Path

import pytest
from little_shop import SHOP

from codepilot.context import Evidence, Files, Survey
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import TaskKind
from codepilot.workspace import Entry, ObjectStore


def stored(path: Path, sources: dict[str, bytes], links: dict[str, bytes] | None = None) -> tuple[ObjectStore, str]:
    objects = ObjectStore.open(path)
    entries = {name: Entry("100644", objects.write_blob(data)) for name, data in sources.items()}
    entries |= {name: Entry("120000", objects.write_blob(data)) for name, data in (links or {}).items()}
    return objects, objects.write_tree(entries)


def test_a_tree_is_mapped_from_its_object_store(tmp_path: Path) -> None:
    objects, tree = stored(tmp_path / "o.git", SHOP, {"shop/link.py": b"/etc/passwd"})
    files = Files.of_tree(objects, tree)
    assert "shop/link.py" not in files.hashes
    survey = Survey.of(files, tmp_path / "cache.db")
    assert "def with_tax(amount)" in survey.outline(Evidence(), 500)
    found = survey.gather(TaskKind.CHANGE, Evidence(task="shop/money.py"), 500)
    assert found.items[0].text.encode() == SHOP["shop/money.py"]
    assert Survey.of(Files.of_tree(objects, tree), tmp_path / "cache.db").repository.figures.parsed == 0


def test_a_huge_blob_is_not_even_read(tmp_path: Path) -> None:
    objects, tree = stored(tmp_path / "o.git", {"big.py": b"x = 1\n" * 200_000})
    files = Files.of_tree(objects, tree)
    assert files.read("big.py") is None
    assert Survey.of(files).repository.files["big.py"].note == "unreadable"


def test_files_as_they_are_now_stand_in_for_those_of_the_tree(tmp_path: Path) -> None:
    objects, tree = stored(tmp_path / "o.git", SHOP)
    now = {"shop/money.py": b"def changed(): ...\n", "shop/fresh.py": b"def fresh(): ...\n"}

    def read_file(path: str) -> bytes:
        if path not in now:
            raise CodePilotError(FailureKind.PATH_NOT_FOUND, f"there is no {path}")
        return now[path]

    base = Files.of_tree(objects, tree)
    files = base.changed(["shop/money.py", "shop/fresh.py", "shop/stock.py"], read_file)
    assert "shop/stock.py" not in files.hashes
    assert files.hashes["shop/money.py"] == objects.write_blob(now["shop/money.py"])
    survey = Survey.of(files)
    assert [one.name for one in survey.repository.files["shop/money.py"].symbols] == ["changed"]
    assert survey.read("shop/basket.py") == SHOP["shop/basket.py"]


def test_an_executor_that_is_lost_is_no_missing_file(tmp_path: Path) -> None:
    objects, tree = stored(tmp_path / "o.git", SHOP)

    def read_file(path: str) -> bytes:
        raise CodePilotError(FailureKind.EXECUTOR_LOST, "gone")

    with pytest.raises(CodePilotError, match="gone"):
        Files.of_tree(objects, tree).changed(["shop/money.py"], read_file)
