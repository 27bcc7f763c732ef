"""Records who allowed or denied the installations of `codepilot prepare`: one line for each answer."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import ValidationError

from codepilot.core.contract import Contract
from codepilot.engine.environment.prepare import Preparation
from codepilot.engine.runtime import Runtime
from codepilot.store import Home

FILE = "decisions.jsonl"
MAX_READ = 1 << 20


class InstallDecided(Contract):
    """One answer about the dependencies of a checkout."""

    at: int
    root: str
    subject: str
    hosts: tuple[str, ...]
    key: str
    decision: Literal["once", "denied"]
    by: str
    reason: str = ""


def record_decision(
    runtime: Runtime, found: Preparation, decision: Literal["once", "denied"], by: str, reason: str
) -> None:
    """Keep an answer before anything follows from it."""
    made = InstallDecided(
        at=runtime.store.now(),
        root=found.root,
        subject=found.subject,
        hosts=found.hosts,
        key=found.key,
        decision=decision,
        by=by,
        reason=reason,
    )
    place = runtime.home.envs / FILE
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("ab") as file:
        file.write(made.model_dump_json().encode("utf-8", "replace") + b"\n")
        file.flush()
        os.fsync(file.fileno())


def recorded_decisions(home: Home) -> list[InstallDecided]:
    """The newest answers, oldest first. A line that a crash cut off is left out."""
    try:
        with (home.envs / FILE).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_READ))
            lines = file.read().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            found.append(InstallDecided.model_validate_json(line))
        except ValidationError:
            continue
    return found
