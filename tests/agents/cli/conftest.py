from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_place import Place, opened_place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A workspace in the sandbox in which an agent's program runs."""
    with opened_place(tmp_path) as place:
        yield place
