from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from repair_kit import Bench, open_bench

from codepilot.repair.python.inside import behaviour


@pytest.fixture(autouse=True)
def untimed_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls made in the test process have no CPU limit: only a worker handles SIGPROF, which ends other processes."""
    monkeypatch.setattr(behaviour, "CALL_SEC", 0.0)  # which starts no timer


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    """Opens tiny projects. Searches end soon after the first repair, and reloads come early."""
    search, queue = (sys.modules[f"codepilot.repair.{name}"] for name in ("search", "queue"))
    monkeypatch.setattr(search, "LINGER", 100)
    monkeypatch.setattr(search, "LINGER_SEC", 1.0)
    monkeypatch.setattr(queue, "RELOAD_EVERY", 20)
    opened: list[Bench] = []

    def make(files: Mapping[str, str | bytes], part: str = "") -> Bench:
        opened.append(open_bench(tmp_path, files, part))
        return opened[-1]

    yield make
    for one in opened:
        one.executor.delete(one.workspace)
