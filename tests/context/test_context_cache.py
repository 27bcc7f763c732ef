"""The cache by content: a second look parses nothing, and nothing that happens to the cache is reported wrong."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from little_shop import SHOP, files_of

from codepilot.context import RepositoryMap, map_repository
from codepilot.context import repository as caching

SOURCES = {path: data for path, data in SHOP.items() if path.endswith(".py")}


def look(cache: Path, sources: dict[str, bytes] = SOURCES) -> RepositoryMap:
    files = files_of(sources)
    return map_repository(files.hashes, files.read, cache)


def test_a_second_look_reads_and_parses_nothing(tmp_path: Path) -> None:
    first = look(tmp_path / "cache" / "a.db")
    hashes = files_of(SOURCES).hashes
    again = map_repository(hashes, lambda path: pytest.fail(f"{path} was read"), tmp_path / "cache" / "a.db")
    assert again.files == first.files
    assert (first.figures.parsed, again.figures.parsed) == (len(SOURCES), 0)


def test_a_changed_file_alone_is_parsed_again(tmp_path: Path) -> None:
    look(tmp_path / "a.db")
    found = look(tmp_path / "a.db", {**SOURCES, "shop/stock.py": b"class Other: ...\n"})
    assert found.figures.parsed == 1
    assert found.files["shop/stock.py"].symbols[0].name == "Other"


def test_the_same_content_is_parsed_as_what_its_name_says(tmp_path: Path) -> None:
    source = b"function f(a: number) { return a }\n"
    found = look(tmp_path / "a.db", {"a.ts": source, "b.ts": source, "c.js": source})
    assert found.figures.parsed == 2
    assert found.files["a.ts"].symbols[0].signature == "function f(a: number)"


def test_a_damaged_entry_is_parsed_again(tmp_path: Path) -> None:
    first = look(tmp_path / "a.db")
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("UPDATE parsed SET payload = '{}' WHERE key IN (SELECT key FROM parsed LIMIT 2)")
        database.execute("UPDATE parsed SET payload = CAST(replace(CAST(payload AS TEXT), 'Basket', 'Casket') AS BLOB)")
    again = look(tmp_path / "a.db")
    assert again.files == first.files
    assert again.figures.parsed >= 3
    assert look(tmp_path / "a.db").figures.parsed == 0


def test_an_entry_of_another_shape_is_parsed_again(tmp_path: Path) -> None:
    first = look(tmp_path / "a.db")
    with sqlite3.connect(tmp_path / "a.db") as database:
        for (key,) in database.execute("SELECT key FROM parsed").fetchall():
            payload = b'{"symbols": [1]}'
            database.execute(
                "UPDATE parsed SET payload = ?, sum = ? WHERE key = ?", (payload, caching._sum(key, payload), key)
            )
    assert look(tmp_path / "a.db").files == first.files


@pytest.mark.parametrize("damage", ["garbage", "cut", "zeros", "empty", "directory", "no table"])
def test_a_damaged_file_costs_time_alone(tmp_path: Path, damage: str) -> None:
    cache = tmp_path / "a.db"
    first = look(cache)
    data = cache.read_bytes()
    if damage == "directory":
        cache.unlink()
        cache.mkdir()
    elif damage == "no table":
        with sqlite3.connect(cache) as database:
            database.execute("DROP TABLE parsed")
    else:
        damaged = {"garbage": b"garbage" * 900, "cut": data[: len(data) // 2], "zeros": bytes(len(data)), "empty": b""}
        cache.write_bytes(damaged[damage])
    assert look(cache).files == first.files
    assert look(cache).files == first.files
    if damage != "directory":
        assert look(cache).figures.parsed == 0, "it has mended itself"


def test_a_place_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    assert look(tmp_path / "file" / "a.db").files == look(tmp_path / "b.db").files


def test_a_cache_that_others_keep_busy_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "BUSY_SEC", 0.05)
    first = look(tmp_path / "a.db", {"a.py": b"def a(): ...\n"})
    with sqlite3.connect(tmp_path / "a.db", isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert look(tmp_path / "a.db", {"a.py": b"def a(): ...\n"}).files == first.files
        other.execute("ROLLBACK")


def test_many_writers_at_once_leave_a_whole_cache(tmp_path: Path) -> None:
    found: list[RepositoryMap] = []
    trees = [{f"m{n}_{k}.py": b"def f%d_%d(): ...\n" % (n, k) for k in range(20)} | SOURCES for n in range(4)]
    threads = [threading.Thread(target=lambda tree=tree: found.append(look(tmp_path / "a.db", tree))) for tree in trees]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for tree in trees:
        assert look(tmp_path / "a.db", tree).figures.parsed == 0


def test_what_nobody_uses_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "KEPT", 5)
    look(tmp_path / "a.db", {f"{n}.py": b"x%d = 1\n" % n for n in range(5)})
    look(tmp_path / "a.db", {"new.py": b"def new(): ...\n"})
    with sqlite3.connect(tmp_path / "a.db") as database:
        assert database.execute("SELECT count(*) FROM parsed").fetchone() == (1,)
