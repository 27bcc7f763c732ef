"""aider's repository map of a directory, made by its own code: cold, and again from its cache. Prints JSON."""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any


class _Counts:
    """A model as far as the map asks one: it counts tokens, four characters to each."""

    def token_count(self, text: str) -> int:
        return len(text) // 4


def main() -> None:
    from aider.io import InputOutput
    from aider.repomap import RepoMap

    root, budget = Path(sys.argv[1]), int(sys.argv[2])
    files = sorted(str(path) for path in root.rglob("*") if path.suffix in (".py", ".java", ".js", ".ts"))
    measured: dict[str, Any] = {"version": version("aider-chat")}
    for what in ("cold", "warm"):
        start = time.perf_counter()
        mapper = RepoMap(
            map_tokens=budget, root=str(root), main_model=_Counts(), io=InputOutput(pretty=False, yes=True)
        )
        made = mapper.get_repo_map([], files)
        measured[what] = time.perf_counter() - start
        measured[f"{what}_size"] = len(made or "")
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
