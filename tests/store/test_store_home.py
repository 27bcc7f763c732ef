"""Home and identities."""

from __future__ import annotations

import multiprocessing
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store import Home, new_id


def test_home_is_chosen_by_the_environment() -> None:
    assert Home.default({"CODEPILOT_HOME": "/a b/ü", "XDG_DATA_HOME": "/x"}).path == Path("/a b/ü")
    assert Home.default({"XDG_DATA_HOME": "/x"}).path == Path("/x/codepilot")
    assert Home.default({"XDG_DATA_HOME": "relative", "HOME": "/h"}).path == Path("/h/.local/share/codepilot")
    assert Home.default({"HOME": "/h"}).path == Path("/h/.local/share/codepilot")
    assert Home.default({}).path == Path.home() / ".local/share/codepilot"


def test_home_is_the_owners_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "with space" / "home").ensure()
    assert home.ensure() == home
    made = [home.path, home.artifacts, home.repos, home.workspaces, home.envs, home.bundles, home.logs, home.locks]
    assert [stat.S_IMODE(directory.stat().st_mode) for directory in made] == [0o700] * 8
    assert home.database == home.path / "codepilot.db"


def test_a_home_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file", tmp_path / "file" / "home"):
        with pytest.raises(CodePilotError, match="cannot be used") as refused:
            Home(path).ensure()
        assert refused.value.kind is FailureKind.STORE_UNAVAILABLE
        assert "CODEPILOT_HOME" in refused.value.failure.advice


def test_ids_sort_by_time_and_are_unique_across_threads() -> None:
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda _: [new_id("r") for _ in range(2_000)], range(8)))
    for batch in batches:
        assert batch == sorted(batch)
    every = [one for batch in batches for one in batch]
    assert len(set(every)) == len(every)
    assert {len(one) for one in every} == {22}
    assert all(one.startswith("r-") for one in every)
    assert new_id("ckpt").startswith("ckpt-")
    assert new_id("t-").count("-") == 1


def _made(count: int) -> list[str]:
    return [new_id("r") for _ in range(count)]


def test_ids_are_unique_across_forks() -> None:
    new_id("r")
    with multiprocessing.get_context("fork").Pool(3) as pool:
        batches = pool.map(_made, [500] * 6, chunksize=1)
    every = [one for batch in batches for one in batch] + _made(500)
    assert len(set(every)) == len(every)
