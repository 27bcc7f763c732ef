"""The judge: offers beside the right program on the same inputs, inside the sandbox and nowhere else."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from codepilot.bench.bugs import Bug, Judgement, Repair
from codepilot.bench.workspace import open_workspace
from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import RunCommand

INSIDE = Path(__file__).parent / "inside"
JUDGE_PARTS = ("codepilot_judge.py", "codepilot_inputs.py", "codepilot_texts.py", "codepilot_graphs.py")
JUDGE_SEC = 150.0


def judge(bug: Bug, offers: Sequence[Repair], checkout: Path, home: Path, python: str | None) -> list[Judgement]:
    """One judgement for each offer, in order."""
    path = str(bug.held_out["path"])
    strays = [next((file for file in offer.files if file != path and "test" not in file), None) for offer in offers]
    programs = [offer.files.get(path, bug.files[path]) for offer in offers]
    told = compare(bug.held_out, programs, checkout, home, python)
    return [
        Judgement(False, f"it changes {stray} instead") if stray else judgement
        for stray, judgement in zip(strays, told, strict=True)
    ]


def compare(
    held_out: JsonObject, programs: Sequence[str], checkout: Path, home: Path, python: str | None
) -> list[Judgement]:
    """Each program's behaviour beside the reference's."""
    files = {"spec.json": "", "reference.py": str(held_out["reference"])}
    files |= {f"candidate_{number}.py": text for number, text in enumerate(programs)}
    files |= {name: (INSIDE / name).read_text("utf-8") for name in JUDGE_PARTS}
    beside = held_out.get("beside")
    files |= {f"beside/{name}": str(text) for name, text in beside.items()} if isinstance(beside, dict) else {}
    spec = {key: value for key, value in held_out.items() if key != "beside"}
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
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        said = done.stderr[-300:].decode("utf-8", "replace").strip()
        raise CodePilotError(
            FailureKind.TOOL_FAILED, f"The judge gave no answer ({done.limit or done.status}): {said}"
        ) from None
    assert isinstance(answer, dict)
    return answer
