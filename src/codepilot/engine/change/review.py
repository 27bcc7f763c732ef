"""`codepilot review`: take some hunks of a run's change, judge exactly what remains, and send the others back.

The reviewed run and its bundle stay as they are. What remains is the change of a run of its own, of kind prove, on the
same base, with the gates, the review and the clean-copy proof of any change. Rejected hunks go back in a fork of the
reviewed run: its workspace begins with the accepted hunks, and its agent reads the reasons.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from codepilot.agents import agent_spec
from codepilot.core import DEFAULT_AGENT
from codepilot.core.events import BasePinned, EventDraft, EventType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.pipeline import PIPELINES, pipeline_of
from codepilot.core.review import HunkChoice, HunkDecision, HunksReviewed
from codepilot.core.run import Run
from codepilot.core.send_back import sent_back
from codepilot.core.task import Goal, ProposedChange, TaskKind, TaskOrigin, TaskSpec
from codepilot.core.text import counted, decoded, head_and_tail
from codepilot.engine.base import fetch_base
from codepilot.engine.change.apply import changed_objects
from codepilot.engine.close import open_log
from codepilot.engine.fork import forked_events
from codepilot.engine.runtime import Runtime
from codepilot.engine.task import Begun, begin, claim_created
from codepilot.store import new_id
from codepilot.telemetry import now_us
from codepilot.verify import tree_with_tests
from codepilot.workspace import ChangedFile, Hunk, ObjectStore, Piece, changed_files, remaining_tree, selected

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
MAX_SENT_BACK = 3_000
"""Characters of one rejected hunk that an agent is shown."""

Wanted = str | Piece
"""A part of the change as a person names it: `FILE`, `FILE:HUNK`, or the piece itself."""
Reasons = str | Mapping[str, str] | Mapping[Piece, str]
"""One reason for all that is rejected, or one for each part."""


@dataclass(frozen=True)
class Choices:
    """What a person accepts and rejects, and why."""

    accept: Sequence[Wanted] = ()
    reject: Sequence[Wanted] = ()
    reason: Reasons = ""
    """Of all that is rejected, or of each part by its name; a hunk's own comes before its file's."""
    rest: HunkChoice | None = None
    """The parts that are not named. None: with only accepted parts they are rejected, with only rejected ones accepted,
    with both they are left out without a reason.
    """
    again: bool = False
    """True if a further run works on what was rejected."""
    by: str = "user"


@dataclass(frozen=True)
class Reviewed:
    """A recorded review."""

    run: Run
    record: HunksReviewed
    judging: Begun | None = None
    """The run that judges what remains."""
    again: Begun | None = None
    """The run that works on the rejected hunks."""
    refusal: str = ""
    """Why nothing is judged; empty if something is, or if everything was accepted."""


def change_of(runtime: Runtime, run_id: str) -> tuple[ChangedFile, ...]:
    """The files and hunks of a run's change."""
    run, base, tree = _reviewable(runtime, run_id)
    with closing(_objects(runtime, run, base)) as objects:
        return changed_files(objects, base.untouched, tree)


def review_run(runtime: Runtime, run_id: str, choices: Choices) -> Reviewed:
    """Record the review, and begin the runs that follow from it. The same review again begins nothing new."""
    run, base, tree = _reviewable(runtime, run_id)
    with closing(_objects(runtime, run, base)) as objects:
        files = changed_files(objects, base.untouched, tree)
        decided = decide_pieces(files, choices)
        taken = {piece for piece, (choice, _) in decided.items() if choice == "accepted"}
        rejected = [(piece, reason) for piece, (choice, reason) in decided.items() if choice == "rejected"]
        if choices.again and not rejected:
            raise _refused("Nothing was rejected, so there is nothing to send back.", "Leave --again out.")
        remaining = remaining_tree(objects, base.untouched, files, taken) if taken else base.untouched
        judging, refusal = None, ""
        if not taken:
            refusal = "Nothing was accepted, so nothing remains."
        elif remaining != tree:
            judging, refusal = _judge(runtime, run, base, objects, remaining, (len(taken), len(decided)))
        record = HunksReviewed(
            by=choices.by,
            decisions=tuple(
                HunkDecision(hunk=piece.id, decision=choice, reason=runtime.redact(reason))
                for piece, (choice, reason) in decided.items()
            ),
            tree=remaining if taken else None,
            judged_by=judging.run.run_id if judging else None,
        )
        again = None
        if choices.again:
            texts = {piece: _text_of(files, piece) for piece, _ in rejected}
            back = [(piece, runtime.redact(why), texts[piece]) for piece, why in rejected]
            tests_only = tree_with_tests(objects, base.untouched, remaining) == remaining
            again = _send_back(runtime, run, record, back, kept_source=not tests_only)
            record = record.model_copy(update={"again": again.run.run_id})
    _record(runtime, run_id, record)
    return Reviewed(runtime.store.load(run_id), record, judging, again, refusal)


def decide_pieces(files: Sequence[ChangedFile], choices: Choices) -> dict[Piece, tuple[HunkChoice, str]]:
    """Each piece of the change with its decision and the reason. A hunk's own decision comes before its file's."""
    if not choices.accept and not choices.reject:
        raise _refused("Nothing was accepted or rejected.", "Name a part: --accept FILE, --reject FILE:HUNK.")
    named: dict[Piece, tuple[int, HunkChoice]] = {}
    for choice, wanted in _both(choices):
        pieces = (wanted,) if isinstance(wanted, Piece) else selected(files, wanted)
        for piece in pieces:
            known = named.get(piece)
            if known is not None and known[0] == len(pieces) and known[1] != choice:
                raise _refused(f"{piece.id} is both accepted and rejected.", "Decide on one of them.")
            if known is None or len(pieces) < known[0]:
                named[piece] = (len(pieces), choice)
    one_list: HunkChoice = "rejected" if choices.accept else "accepted"
    rest = choices.rest or ("left" if choices.accept and choices.reject else one_list)
    reasons = _reasons(files, choices.reason)
    decided: dict[Piece, tuple[HunkChoice, str]] = {}
    for piece in (piece for file in files for piece in file.pieces):
        final = named[piece][1] if piece in named else rest
        decided[piece] = (final, reasons.get(piece, "") if final == "rejected" else "")
    return decided


def _reasons(files: Sequence[ChangedFile], given: Reasons) -> dict[Piece, str]:
    """The reason of each piece that has one."""
    if isinstance(given, str):
        return {piece: given for file in files for piece in file.pieces}
    found: dict[Piece, tuple[int, str]] = {}
    for wanted, text in given.items():
        pieces = (wanted,) if isinstance(wanted, Piece) else selected(files, wanted)
        for piece in pieces:
            if piece not in found or len(pieces) < found[piece][0]:
                found[piece] = (len(pieces), text)
    return {piece: text for piece, (_, text) in found.items()}


def _both(choices: Choices) -> Iterable[tuple[HunkChoice, Wanted]]:
    for wanted in choices.accept:
        yield "accepted", wanted
    for wanted in choices.reject:
        yield "rejected", wanted


# What remains ---------------------------------------------------------------------------------------


def _judge(
    runtime: Runtime, run: Run, base: BasePinned, objects: ObjectStore, remaining: str, parts: tuple[int, int]
) -> tuple[Begun | None, str]:
    """The run that judges what remains, or why none can."""
    pinned = judged_base(base, objects, remaining)
    if pinned.tree == remaining:
        return None, "What was accepted is tests only, and tests alone prove nothing."
    patch = objects.diff(base.untouched, remaining).patch
    goal = f"Judge {parts[0]} of {counted(parts[1], 'part')} of the change of {run.run_id}"
    task = judging_task(run, goal, base.commit, patch)
    return begin(runtime, task, derived_id(run.run_id, remaining), pinned), ""


def judged_base(base: BasePinned, objects: ObjectStore, proposed: str) -> BasePinned:
    """The base on which a changed tree is judged: with the tests that the change brings."""
    with_tests = tree_with_tests(objects, base.untouched, proposed)
    changed = {"before": base.untouched, "tree": with_tests, "proposed": proposed, "carried": (), "measured": None}
    return base.model_copy(update=changed)


def judging_task(run: Run, goal: str, ref: str, patch: bytes) -> TaskSpec:
    """The task of judging a change that follows from a run's."""
    task = run.task
    tests = task.tests if task.kind is TaskKind.PROVE or run.baseline is None else run.baseline.targets
    text, encoding = decoded(patch)
    return task.model_copy(
        update={
            "task_id": new_id("t-"),
            "kind": TaskKind.PROVE,
            "goal": Goal(natural=f"{goal}: {task.goal.natural}"),
            "ref": ref,
            "tests": tests,
            "within": (),
            "proposed": ProposedChange(diff=text if encoding == "utf-8" else ""),
            "budget": task.budget.model_copy(
                update={"patch_lines": PIPELINES[TaskKind.PROVE].budget.patch_lines},
            ),
            "agent": DEFAULT_AGENT,
            "model": None,
            "fallback_model": None,
            "branch": None,
            "origin": TaskOrigin(from_task=task.task_id),
        }
    )


def derived_id(run_id: str, *parts: str) -> str:
    """The same review of the same run gives the same id, so that a repeated command finds its run."""
    number = int.from_bytes(hashlib.sha256("\0".join((run_id, *parts)).encode()).digest()[:13])
    return "r-" + "".join(_ALPHABET[number >> 5 * place & 31] for place in range(20))


# What goes back -------------------------------------------------------------------------------------


def _send_back(
    runtime: Runtime,
    run: Run,
    record: HunksReviewed,
    rejected: Sequence[tuple[Piece, str, str]],
    *,
    kept_source: bool,
) -> Begun:
    """A run that continues from the accepted hunks; `kept_source` says whether they change more than tests."""
    _refuse_unteachable(run, kept_source=kept_source)
    reasons = [_sent_back(piece, why, text) for piece, why, text in rejected]
    forked = derived_id(run.run_id, record.tree or "", *reasons)
    drafts = sent_back(forked_events(runtime, run.run_id, None, forked), forked, record, reasons, now_us())
    return claim_created(runtime, forked, drafts)


def _refuse_unteachable(run: Run, *, kept_source: bool) -> None:
    spec = agent_spec(run.task.agent)
    if pipeline_of(run.task.kind).roles.isdisjoint(spec.roles):
        raise _refused(
            f"No agent made the change of {run.run_id}, so there is none to send it back to.", "Leave --again out."
        )
    if not spec.needs_model and kept_source:
        raise _refused(
            f"The agent {spec.name!r} searches for a whole repair and cannot redo a part of one.",
            "Reject all of its code, or repeat the task with an agent that has a model.",
        )


def _sent_back(piece: Piece, why: str, text: str) -> str:
    because = f": {why}" if why else ", without a reason"
    return f"A person rejected {piece.id}{because}\n{head_and_tail(text, MAX_SENT_BACK)}".rstrip()


def _text_of(files: Sequence[ChangedFile], piece: Piece) -> str:
    """The lines of a piece, for an agent."""
    for file in files:
        if file.path != piece.path:
            continue
        if file.whole:
            return "\n".join(_hunk_text(hunk.lines) for hunk in file.hunks)
        number, _, part = piece.part.partition(".")
        for hunk in file.hunks:
            if str(hunk.number) == number:
                return _hunk_text(_lines(hunk, part))
    return ""


def _lines(hunk: Hunk, part: str) -> Sequence[bytes]:
    return hunk.part(int(part)) if part else hunk.lines


def _hunk_text(lines: Sequence[bytes]) -> str:
    return b"\n".join(lines).decode("utf-8", "backslashreplace")


# Reading and recording ------------------------------------------------------------------------------


def _reviewable(runtime: Runtime, run_id: str) -> tuple[Run, BasePinned, str]:
    run = runtime.store.load(run_id)
    if run.base is None or run.proposal is None:
        raise _refused(f"Run {run_id} is {run.state} and has no change to review.", f"See `codepilot show {run_id}`.")
    if not run.terminal:
        raise _refused(
            f"Run {run_id} is {run.state}: its change is not final.", f"Wait for its end: codepilot watch {run_id}"
        )
    return run, run.base, run.proposal.tree


def _objects(runtime: Runtime, run: Run, base: BasePinned) -> ObjectStore:
    """The objects with the changed tree, which a run that failed has as a patch only."""
    objects = changed_objects(runtime, run, base)
    fetch_base(runtime, base, objects)
    if run.proposal is not None and not objects.has_tree(run.proposal.tree):
        objects.apply(base.tree, runtime.artifacts.get(run.proposal.diff))
    return objects


def _record(runtime: Runtime, run_id: str, record: HunksReviewed) -> None:
    def once(current: Run) -> list[EventDraft]:
        return [
            EventDraft(type=EventType.HUNKS_REVIEWED, data=record, step_id=current.step_id, attempt=current.attempt)
        ]

    last = [event.data for event in runtime.store.events(run_id) if isinstance(event.data, HunksReviewed)][-1:]
    if last != [record]:
        runtime.store.control(run_id, once)
        open_log(runtime, run_id).close()


def _refused(message: str, advice: str) -> CodePilotError:
    return CodePilotError(FailureKind.INVALID_SPEC, message, next_action=advice)
