"""QuixBugs: classic algorithms with one wrong line.

The search is shown the program and the repository's own pytest cases of it (the JSON cases among them). Held out is the
behaviour of the correct program on inputs like those of the cases.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import JsonValue

from codepilot.bench.bugs import Bug, broken_data
from codepilot.core.contract import JsonObject

PROGRAMS, CORRECT, CASES, TESTS = "python_programs", "correct_python_programs", "json_testcases", "python_testcases"
_ADVICE = "Name a checkout of QuixBugs: it has python_programs, correct_python_programs and python_testcases."


def load(path: Path) -> list[Bug]:
    """Every program that has a correct twin and tests, by name."""
    names = sorted(file.stem.removeprefix("test_") for file in (path / TESTS).glob("test_*.py"))
    if not names or not (path / PROGRAMS).is_dir():
        raise broken_data(path, "is not a checkout of QuixBugs.", _ADVICE)
    return [_bug(path, name) for name in names]


def _bug(path: Path, name: str) -> Bug:
    shared = {
        "conftest.py": _optional(path / "conftest.py"),
        f"{TESTS}/load_testdata.py": _optional(path / TESTS / "load_testdata.py"),
        f"{TESTS}/node.py": _optional(path / TESTS / "node.py"),
        f"{PROGRAMS}/node.py": _optional(path / PROGRAMS / "node.py"),
        f"{CASES}/{name}.json": _optional(path / CASES / f"{name}.json"),
    }
    program, test = f"{PROGRAMS}/{name}.py", f"{TESTS}/test_{name}.py"
    files = {place: text for place, text in shared.items() if text is not None}
    files |= {program: _read(path / program), test: _read(path / test)}
    held_out: JsonObject = {"path": program, "entry": name, "reference": _read(path / CORRECT / f"{name}.py")}
    cases = files.get(f"{CASES}/{name}.json")
    if cases is not None:
        held_out["examples"] = _inputs(path / CASES / f"{name}.json", cases)
    else:
        held_out["tests"] = files[test]
        held_out["extra_files"] = {Path(place).name: text for place, text in files.items() if place.endswith("node.py")}
    return Bug(name=name, kind="one line", tests=(test,), files=files, held_out=held_out)


def _inputs(file: Path, text: str) -> list[JsonValue]:
    """The arguments of each case; what the right answer is, the correct program says."""
    found: list[JsonValue] = []
    for number, row in enumerate(text.splitlines(), 1):
        if row.strip():
            try:
                arguments, _ = json.loads(row)
            except ValueError as error:
                raise broken_data(file, f"line {number} is not [arguments, result] ({error}).", _ADVICE) from error
            found.append(arguments if isinstance(arguments, list) else [arguments])
    return found


def _read(file: Path) -> str:
    text = _optional(file)
    if text is None:
        raise broken_data(file, "is missing.", _ADVICE)
    return text


def _optional(file: Path) -> str | None:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise broken_data(file, f"cannot be read ({error}).", _ADVICE) from error
