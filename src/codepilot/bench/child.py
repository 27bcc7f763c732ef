"""One bug in its own process: the job comes on standard input, the row goes to standard output."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from codepilot.bench.attempt import Limits, attempt, search_alone
from codepilot.bench.bugs import Bug, Judgement, Repair
from codepilot.bench.checkout import prepare
from codepilot.bench.sets import judge_of, load_set
from codepilot.core.failures import CodePilotError


def main() -> None:
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_leave_with_parent, args=(job["parent"],), daemon=True).start()
    answer, sys.stdout = sys.stdout, sys.stderr
    try:
        row = work(job)
    except CodePilotError as error:
        row = {"status": "ERROR", "reason": str(error), "correct": [], "judged": []}
    except Exception as error:  # noqa: BLE001 - one bug's crash is a row of the table, not the table's end
        traceback.print_exc()
        row = {"status": "ERROR", "reason": f"{type(error).__name__}: {error}", "correct": [], "judged": []}
    answer.write(json.dumps(row) + "\n")
    answer.flush()
    os._exit(0)


def _leave_with_parent(parent: int) -> None:
    """End soon after the sweep, however it died."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Repair the bug in a directory of its own and judge what is offered."""
    place = Path(job["work"])
    shutil.rmtree(place, ignore_errors=True)
    (place / "checkout").mkdir(parents=True)
    bug = next(bug for bug in load_set(job["set"], Path(job["data"])) if bug.name == job["bug"])
    checkout = prepare(place / "checkout", bug)
    try:
        through = search_alone if job["search_only"] else attempt
        found = through(bug, checkout, place / "home", Limits(job["seconds"], job["python"], bug.command_sec))
        judged = judged_offers(bug, found.offers, checkout, place / "home", job["python"])
    finally:
        shutil.rmtree(place, ignore_errors=True)
    row = {key: value for key, value in vars(found).items() if key != "offers"}
    return {
        **row,
        "plausible": found.status == "DONE",
        "correct": [judgement.correct for judgement in judged],
        "judged": [judgement.reason for judgement in judged],
        "inputs": max((judgement.inputs for judgement in judged), default=0),
        "patches": [offer.diff for offer in found.offers],
    }


def judged_offers(bug: Bug, offers: list[Repair], checkout: Path, home: Path, python: str | None) -> list[Judgement]:
    """Judge each offer. One that cannot be judged counts as wrong, with the reason."""
    if not offers:
        return []
    try:
        return judge_of(bug)(bug, offers, checkout, home, python)
    except Exception as error:  # noqa: BLE001 - judged code may raise anything
        if not isinstance(error, CodePilotError):
            traceback.print_exc()
        return [Judgement(False, f"it could not be judged: {type(error).__name__}: {error}")] * len(offers)


if __name__ == "__main__":
    main()
