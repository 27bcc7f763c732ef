from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from repair_kit import Bench, open_bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[Mapping[str, str | bytes]], Bench]]:
    opened: list[Bench] = []

    def make(files: Mapping[str, str | bytes]) -> Bench:
        opened.append(open_bench(tmp_path, files))
        return opened[-1]

    yield make
    for one in opened:
        one.executor.delete(one.workspace)
