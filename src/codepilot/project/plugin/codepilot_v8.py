"""Reads V8's own coverage of a Node.js program and prints `{"run": n, "lines": n}`. Standard library only.

    python codepilot_v8.py DIRECTORY ROOT

A line counts as run unless a range that never ran covers all of it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

MAX_REPORTS = 200


def is_product(path: str) -> bool:
    """True for the program's own files; tests and installed packages do not count."""
    parts = path.split("/")
    if any(part.startswith(".") or part in ("test", "tests", "__tests__", "node_modules") for part in parts[:-1]):
        return False
    return ".test." not in parts[-1] and ".spec." not in parts[-1] and not parts[-1].startswith("test")


def _lines(source: str) -> dict[int, tuple[int, int]]:
    """The lines that hold code, by number, each with its place in the source."""
    found, at = {}, 0
    for number, line in enumerate(source.split("\n"), 1):
        text = line.strip()
        if text and not text.startswith(("//", "*", "/*")) and text not in ("{", "}", "});", "};", ")", ");"):
            begin = at + len(line) - len(line.lstrip())
            found[number] = (begin, begin + len(text))
        at += len(line) + 1
    return found


def _run_in(script: dict[str, Any], places: dict[int, tuple[int, int]]) -> set[int]:
    """The lines of a script that one process ran: the innermost range around a line decides."""
    ranges = [one for function in script.get("functions", ()) for one in function.get("ranges", ())]
    ranges.sort(key=lambda one: one["endOffset"] - one["startOffset"], reverse=True)
    run = set()
    for number, (begin, end) in places.items():
        count = 0
        for one in ranges:
            if one["startOffset"] <= begin and end <= one["endOffset"]:
                count = one["count"]
        if count:
            run.add(number)
    return run


def main(directory: str, root: str) -> dict[str, int]:
    places: dict[str, dict[int, tuple[int, int]]] = {}
    run: dict[str, set[int]] = {}
    for report in sorted(Path(directory).glob("coverage-*.json"))[:MAX_REPORTS]:
        try:
            scripts = json.loads(report.read_text(encoding="utf-8")).get("result", [])
        except (ValueError, OSError, RecursionError):
            continue
        for script in scripts:
            url = str(script.get("url", ""))
            path = unquote(urlsplit(url).path)
            if not url.startswith("file://") or not path.startswith(root.rstrip("/") + "/"):
                continue
            name = path[len(root.rstrip("/")) + 1 :]
            if not is_product(name):
                continue
            try:
                known = places.setdefault(name, _lines(Path(path).read_text(encoding="utf-8")))
                run.setdefault(name, set()).update(_run_in(script, known))
            except (KeyError, TypeError, ValueError, OSError):
                continue
    return {"run": sum(map(len, run.values())), "lines": sum(map(len, places.values()))}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], sys.argv[2])))
