"""The steps of a run with their durations and what each of them did, folded from the events. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from codepilot.core.artifacts import Reflection, RepoMap, Review, TestResult
from codepilot.core.events import (
    BaselineRecorded,
    Event,
    PatchProposed,
    ProofRecorded,
    RepairsSought,
    StepFailed,
    StepQueued,
    StepSucceeded,
    TurnFinished,
    TurnStarted,
)
from codepilot.core.plan import Plan
from codepilot.core.run import Run
from codepilot.telemetry import Clean, describe, timeline
from codepilot.views.text import counted

Tone = Literal["good", "warn", "bad", "wait", "live", "soft"]


MOST_TURNS = 50
"""Turns of a step that are listed, the newest ones."""


@dataclass(frozen=True)
class Turn:
    """One action of an agent, and how long it took; `seconds` is None while it is carried out."""

    text: str
    seconds: float | None


@dataclass(frozen=True)
class Step:
    """One step with its share of the run's time; `start` and `width` are in thousandths of it."""

    name: str
    tone: Tone
    status: str
    note: str
    seconds: float
    start: int
    width: int
    seq: int
    """The event that queued it: a fork from here takes over the events up to it."""
    turns: tuple[Turn, ...] = ()


_TONES: dict[str, Tone] = {"SUCCEEDED": "good", "FAILED": "bad", "RUNNING": "live", "PENDING": "soft"}


def steps_of(run: Run, events: Sequence[Event], clean: Clean) -> list[Step]:
    """The steps in order. A step that the agent does not have is left out."""
    notes, places = _notes(events), _places(events)
    found = timeline(run, events, clean)["steps"]
    steps = [step for step in found if isinstance(step, dict)] if isinstance(found, list) else []
    seconds = [_number(step.get("durationSec")) for step in steps]
    total, start, made = sum(seconds) or 1.0, 0.0, []
    for step, took, note, (seq, turns) in zip(steps, seconds, notes, places, strict=True):
        status = str(step.get("status"))
        if status == "SKIPPED":
            continue
        attempt = f" ({_nth(step.get('attempt'))} attempt)" if step.get("attempt") != 1 else ""
        made.append(
            Step(
                name=str(step.get("role")).replace("_", " ").capitalize() + attempt,
                tone=_TONES.get(status, "soft"),
                status=status.lower(),
                note=clean(note),
                seconds=took,
                start=round(1000 * start / total),
                width=max(4, round(1000 * took / total)),
                seq=seq,
                turns=turns,
            )
        )
        start += took
    return made


def _places(events: Sequence[Event]) -> list[tuple[int, tuple[Turn, ...]]]:
    """The event that queued each step, and the turns in it, in the order in which the steps were queued."""
    queued: dict[tuple[str | None, int], int] = {}
    turns: dict[tuple[str | None, int], list[Turn]] = {}
    begun: dict[tuple[str | None, int], int] = {}
    for event in events:
        key = (event.step_id, event.attempt)
        if isinstance(event.data, StepQueued):
            queued[key], turns[key] = event.seq, []
        elif key not in queued:
            continue
        elif isinstance(event.data, TurnStarted):
            turns[key].append(Turn(describe(event), None))
            begun[key] = event.at
        elif isinstance(event.data, TurnFinished) and turns[key]:
            turns[key][-1] = Turn(turns[key][-1].text, (event.at - begun[key]) / 1e6)
    return [(seq, tuple(turns[key][-MOST_TURNS:])) for key, seq in queued.items()]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _nth(value: object) -> str:
    return {2: "second", 3: "third"}.get(value if isinstance(value, int) else 0, f"{value}th")


def _notes(events: Sequence[Event]) -> list[str]:
    """What each step did, in the order in which the steps were queued."""
    notes: dict[tuple[str | None, int], str] = {}
    for event in events:
        key = (event.step_id, event.attempt)
        if isinstance(event.data, StepQueued):
            notes[key] = ""
        elif key in notes and (note := _note(event)):
            notes[key] = note
        elif key in notes and isinstance(event.data, StepSucceeded) and not notes[key]:
            notes[key] = event.data.note
    return list(notes.values())


def _note(event: Event) -> str:
    match event.data:
        case BaselineRecorded(before=before):
            return f"{before.passed} pass, {len(before.failed) + len(before.errors)} fail before"
        case RepoMap() as found:
            return found.build_system
        case Plan() as plan:
            return plan.approach or plan.root_cause or counted(len(plan.nodes), "part")
        case RepairsSought(tried=tried, found=found):
            return f"{counted(tried, 'repair')} tried without a model, {found} found"
        case PatchProposed(patch=patch, refused_by=refused_by):
            return f"refused: {refused_by}" if refused_by else f"{counted(len(patch.touched_files), 'file')} changed"
        case TestResult() as result:
            red = len(dict.fromkeys((*result.failed_tests_after, *result.regressions)))
            return f"{result.summary.passed} pass, {red} fail after"
        case Reflection() as reflection:
            return reflection.root_cause
        case Review() as review:
            held = sum(check.ok for check in review.policy_checks)
            return f"{held} of {counted(len(review.policy_checks), 'check')} hold"
        case ProofRecorded(ok=ok, verdict=verdict):
            return f"proved on a clean copy: {verdict}" if ok else "the proof did not hold"
        case StepFailed(failure=failure):
            return failure.message
        case _:
            return ""
