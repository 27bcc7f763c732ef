"""Tiny sets made up for the tests, in the formats of the real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from codepilot.bench.bugs import Judgement
from codepilot.bench.checkout import commit_files
from codepilot.bench.judge import compare
from codepilot.bench.sets import load_set


def task(number: int, name: str, right: str, wrong: str, checks: str, examples: str = "") -> dict[str, str]:
    """One line of a humanevalfix file: bodies and asserts are given as single lines."""

    def body(text: str) -> str:
        return "".join(f"    {line}\n" for line in text.split("\n"))

    return {
        "task_id": f"Python/{number}",
        "prompt": f'def {name}(x):\n    """Made up."""\n',
        "canonical_solution": body(right),
        "buggy_solution": body(wrong),
        "test": f"def check({name}):\n{body(checks)}\ncheck({name})",
        "example_test": f"def check({name}):\n{body(examples)}check({name})\n" if examples else "",
        "bug_type": "value misuse",
        "entry_point": name,
    }


TWICE = task(
    1,
    "twice",
    "return x + x",
    "return x + 1",
    "assert twice(2) == 4\nassert twice(5) == 10\nassert twice(0) == 0",
    "assert twice(3) == 6",
)
LARGEST = task(
    2,
    "largest",
    "return max(x)",
    "return min(x)",
    "assert largest([1, 4, 2]) == 4\nassert largest([7, 3]) == 7\nassert largest([5]) == 5",
)
HOPELESS = task(
    3,
    "secret",
    "return [x * 3 + 1, str(x)[::-1], x % 7, hex(x)]",
    "return None",
    "assert secret(1234) == [3703, '4321', 2, '0x4d2']\nassert secret(77) == [232, '77', 0, '0x4d']",
)


def write_tasks(folder: Path, *tasks: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "python.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in tasks), "utf-8")
    return file


def write_quixbugs(folder: Path, name: str, right: str, wrong: str, cases: list[Any]) -> Path:
    files = {
        f"python_programs/{name}.py": wrong,
        f"correct_python_programs/{name}.py": right,
        f"json_testcases/{name}.json": "".join(json.dumps(case) + "\n" for case in cases),
        f"python_testcases/test_{name}.py": (
            "import json\nfrom pathlib import Path\nimport pytest\n"
            f"from python_programs.{name} import {name}\n\n"
            f"CASES = [json.loads(row) for row in Path('json_testcases/{name}.json').read_text().splitlines()]\n\n"
            "@pytest.mark.parametrize('given,expected', CASES)\n"
            f"def test_{name}(given, expected):\n    assert {name}(*given) == expected\n"
        ),
    }
    for place, text in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, "utf-8")
    return folder


def judged(folder: Path, kind: str, data: Path, *programs: str) -> list[Judgement]:
    """What the judge says of whole programs offered for the first bug of a set."""
    bug = load_set(kind, data)[0]
    checkout = folder / "checkout"
    checkout.mkdir()
    commit_files(checkout, bug.files)
    return compare(bug.held_out, programs, checkout, folder / "home", None)
