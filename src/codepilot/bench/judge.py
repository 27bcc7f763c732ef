"""The judge: compares offers with the right program on the same inputs, only inside the sandbox.

A repair of a real commit is right if its code is the fix's, or if it behaves like the fix in every function in which
the two differ, on the calls that the fix's tests make and on others like these. One that differs from the fix outside
of functions, or in a function that the tests never call, counts as wrong.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from codepilot.bench.bugs import Bug, Judgement, Origin, Repair
from codepilot.bench.checkout import show
from codepilot.bench.workspace import open_workspace
from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import CommandResult, RunCommand
from codepilot.project import environment, run_tests

INSIDE = Path(__file__).parent / "inside"
JUDGE_PARTS = ("codepilot_judge.py", "codepilot_inputs.py", "codepilot_texts.py", "codepilot_graphs.py")
JUDGE_SEC = 150.0
_FOLDER = "_codepilot_judge"
_REAL_PARTS = ("codepilot_realjudge.py", *JUDGE_PARTS)


def judge(bug: Bug, offers: Sequence[Repair], checkout: Path, home: Path, python: str | None) -> list[Judgement]:
    """One judgement for each offer, in order."""
    path = str(bug.held_out["path"])
    strays = [next((file for file in offer.files if file != path and "test" not in file), None) for offer in offers]
    programs = [offer.files.get(path, bug.files[path]) for offer in offers]
    judgements = compare(bug.held_out, programs, checkout, home, python)
    return [
        Judgement(False, f"it changes {stray} instead") if stray else judgement
        for stray, judgement in zip(strays, judgements, strict=True)
    ]


def compare(
    held_out: JsonObject, programs: Sequence[str], checkout: Path, home: Path, python: str | None
) -> list[Judgement]:
    """Each program's behaviour and the reference's."""
    files = {"spec.json": "", "reference.py": str(held_out["reference"])}
    files |= {f"candidate_{number}.py": text for number, text in enumerate(programs)}
    files |= {name: (INSIDE / name).read_text("utf-8") for name in JUDGE_PARTS}
    extra = held_out.get("extra_files")
    files |= {f"extra/{name}": str(text) for name, text in extra.items()} if isinstance(extra, dict) else {}
    spec = {key: value for key, value in held_out.items() if key != "extra_files"}
    spec |= {"reference": "reference.py", "candidates": [f"candidate_{n}.py" for n in range(len(programs))]}
    files["spec.json"] = json.dumps(spec)
    answer = _run(files, checkout, home, python)
    if answer.get("broken"):
        raise CodePilotError(FailureKind.INVALID_SPEC, f"The held-out half cannot judge: {answer['broken']}.")
    inputs = answer["inputs"]
    return [Judgement(one["correct"], one["reason"], inputs) for one in answer["judged"]]


def _run(files: Mapping[str, str], checkout: Path, home: Path, python: str | None) -> dict[str, Any]:
    contents = {name: text.encode() for name, text in files.items()}
    with closing(open_workspace(checkout, home, python, contents)) as place:
        done = place.executor.run_command(
            RunCommand(
                workspace=place.workspace,
                argv=(place.project.interpreter.executable, "-S", "codepilot_judge.py"),
                env={"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.defpath},
                timeout_sec=JUDGE_SEC,
            )
        )
    return _answer(done)


def _answer(done: CommandResult) -> dict[str, Any]:
    """The last line of the output that is a JSON object: tests may print before it."""
    for line in reversed(done.stdout.splitlines()):
        with suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict) and ("correct" in answer or "broken" in answer):
                return answer
    errors = done.stderr[-300:].decode("utf-8", "replace").strip()
    raise CodePilotError(FailureKind.TOOL_FAILED, f"The judge gave no answer ({done.limit or done.status}): {errors}")


# --- real commits ----------------------------------------------------------------------------------------------------


def judge_real(bug: Bug, offers: Sequence[Repair], checkout: Path, home: Path, python: str | None) -> list[Judgement]:
    """One judgement for each offer, in order."""
    assert bug.origin is not None
    fix = show(bug.origin.repository, bug.origin.fix, bug.origin.source)
    return [_Case(bug.origin, fix, checkout, home, python).judge(offer) for offer in offers]


class _Case:
    def __init__(self, origin: Origin, fix: bytes, checkout: Path, home: Path, python: str | None) -> None:
        self._origin, self._fix = origin, fix
        self._checkout, self._home, self._python = checkout, home, python

    def judge(self, offer: Repair) -> Judgement:
        source = self._origin.source
        strays = [path for path in offer.files if path != source and path not in self._origin.test_files]
        text = offer.files.get(source)
        if text is None:
            return Judgement(False, f"it changes {', '.join(strays)} instead of {source}")
        if normalised(text) == normalised(self._fix.decode("utf-8")):
            return Judgement(not strays, f"it changes {', '.join(strays)} as well" if strays else "")
        if strays:
            return Judgement(False, f"it changes {', '.join(strays)} as well, and {source} otherwise than the fix")
        found = self._compare(text)
        if found.correct and (failing := self._failing(text)):
            return Judgement(False, f"{failing[0]} fails with it", found.inputs)
        return found

    def _compare(self, text: str) -> Judgement:
        spec = {"source": self._origin.source, "tests": list(self._origin.test_files)}
        over = {self._origin.source: self._fix, f"{_FOLDER}/spec.json": json.dumps(spec).encode()}
        over |= {f"{_FOLDER}/candidate.py": text.encode()}
        over |= {f"{_FOLDER}/{name}": (INSIDE / name).read_bytes() for name in _REAL_PARTS}
        with closing(open_workspace(self._checkout, self._home, self._python, over=over)) as place:
            done = place.executor.run_command(
                RunCommand(
                    workspace=place.workspace,
                    argv=(place.project.interpreter.executable, f"{_FOLDER}/{_REAL_PARTS[0]}"),
                    env=environment(place.project),
                    timeout_sec=JUDGE_SEC,
                )
            )
        answer = _answer(done)
        return Judgement(answer["correct"], answer["reason"], answer["inputs"])

    def _failing(self, text: str) -> list[str]:
        """Tests of the fix that fail with the offer and not with the fix."""
        over = {self._origin.source: text.encode()}
        with closing(open_workspace(self._checkout, self._home, self._python, over=over)) as place:
            run = run_tests(
                place.executor, place.workspace, place.project, self._origin.test_files, timeout_sec=JUDGE_SEC
            )
        if run.status != "finished":
            return [run.message or "the suite"]
        return [test for test in run.red if test not in self._origin.known_failures]


def normalised(text: str) -> str:
    """The code without its layout, comments and docstrings."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return text
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1:
                node.body.pop(0)
    return ast.dump(tree)
