"""The judge of real commits: the same code as the fix, or the same behaviour wherever the two differ.

It knows the functions in which an offer and the fix differ by the calls that the fix's tests make of them, and by calls
made like those. An offer that differs from the fix outside of functions, or in one that the tests never call, is not
called right.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from codepilot.bench.bugs import Bug, Judgement, Origin, Repair
from codepilot.bench.checkout import show
from codepilot.bench.judge import INSIDE, JUDGE_PARTS, JUDGE_SEC
from codepilot.bench.workspace import open_workspace
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import RunCommand
from codepilot.project import environment, run_tests

_FOLDER = "_codepilot_judge"
_PARTS = ("codepilot_realjudge.py", *JUDGE_PARTS)


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
        over |= {f"{_FOLDER}/{name}": (INSIDE / name).read_bytes() for name in _PARTS}
        with closing(open_workspace(self._checkout, self._home, self._python, over=over)) as place:
            done = place.executor.run_command(
                RunCommand(
                    workspace=place.workspace,
                    argv=(place.project.interpreter.executable, f"{_FOLDER}/{_PARTS[0]}"),
                    env=environment(place.project),
                    timeout_sec=JUDGE_SEC,
                )
            )
        answer = _last_document(done.stdout)
        if answer is None:
            said = done.stderr[-300:].decode("utf-8", "replace").strip()
            raise CodePilotError(
                FailureKind.TOOL_FAILED, f"The judge gave no answer ({done.limit or done.status}): {said}"
            )
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


def _last_document(stdout: bytes) -> dict[str, Any] | None:
    for line in reversed(stdout.splitlines()):
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        return answer if isinstance(answer, dict) and "correct" in answer else None
    return None
