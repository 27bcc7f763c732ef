"""Prompt sections about the repository and other runs. A resumed conversation reads as before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from codepilot.agents.protocol import StepContext
from codepilot.agents.roles import Role, Sections
from codepilot.agents.step_conversation import StepConversation
from codepilot.context import Evidence, Gathered, Survey, quirks_among, recall, tokens_of
from codepilot.core.artifacts import ContextChoice
from codepilot.core.events import ContextGathered, DependencyDegraded, EventType, TurnStarted
from codepilot.core.failures import CodePilotError
from codepilot.core.memory import MemoryRecalled, Recalled
from codepilot.models import Model, ReplayModel


def repository_sections(role: Role, step: StepConversation) -> Sections:
    """The sections that a survey of the base gives; what was chosen for them and what not is recorded once a step.

    The same base and the same run give the same text, so that a conversation which goes on reads as it did.
    """
    if not (role.outline_tokens or role.context_tokens) or step.context.survey is None:
        return {}
    try:
        survey = step.context.survey()
    except CodePilotError as error:
        consequence = f"the {role.name} sees nothing of the repository but what it reads itself"
        degraded = DependencyDegraded(dependency="context", consequence=consequence, failure=error.failure)
        step.record(EventType.DEPENDENCY_DEGRADED, degraded)
        return {}
    evidence = evidence_of(step.context)
    shown: Sections = {}
    if role.outline_tokens:
        shown["Outline of the repository"] = survey.outline(evidence, role.outline_tokens)
    if role.context_tokens:
        shown["Code that may matter"] = _gathered(survey, evidence, role, step).text
    return shown


def evidence_of(context: StepContext) -> Evidence:
    """The places in the code that the run points to, at the beginning of the step."""
    targets = context.targets
    cases = [context.baseline.cases[test] for test in targets if test in context.baseline.cases]
    errors = context.run.test_result.errors if context.run.test_result else ()
    touched = context.run.proposal.patch.touched_files if context.run.proposal else ()
    traces = (*(case.traceback for case in cases), *(error.traceback for error in errors))
    return Evidence(targets, tuple(trace for trace in traces if trace), touched, context.run.task.goal.natural)


def _gathered(survey: Survey, evidence: Evidence, role: Role, step: StepConversation) -> Gathered:
    found = survey.gather(step.run.task.kind, evidence, role.context_tokens)
    recorded = step.gathered or any(isinstance(event.data, ContextGathered) for event in step.context.history)
    if not recorded:
        choices = (*_known_before(found.record.choices, step.context), *_of_memories(step.context))
        step.record(EventType.CONTEXT_GATHERED, found.record.model_copy(update={"choices": choices}))
    step.gathered = True
    return found


def _known_before(choices: Sequence[ContextChoice], context: StepContext) -> Iterator[ContextChoice]:
    """The choices; those that an earlier step was shown as well say so."""
    earlier = (event.data for event in context.earlier if isinstance(event.data, ContextGathered))
    known = {_place(one) for record in earlier for one in record.choices if one.fate != "discarded"}
    for one in choices:
        yield one.model_copy(update={"source": "cache"}) if _place(one) in known else one


def _place(one: ContextChoice) -> tuple[str, int, int]:
    return one.path, one.start, one.end


def _of_memories(context: StepContext) -> Iterator[ContextChoice]:
    """The memories that are shown, as ranked items."""
    for number, one in enumerate(context.recalled, 1):
        yield ContextChoice(
            id=f"mem_{number}",
            source="memory",
            kind="memory",
            label=one.memory.kind,
            path=one.run_id,
            start=one.seq,
            end=one.seq,
            relevance_score=one.similarity,
            tokens=tokens_of(one.memory.model_dump_json()),
            fate="chosen",
            reason="what people or runs know of the repository" if one.memory.kind == "quirk" else "similar to this",
        )


def load_memories(role: Role, step: StepConversation, model: Model | None) -> None:
    """Put the memories of other runs that the role is shown into the context, and the repository's quirks.

    A conversation that goes on reads as it did, whatever others have recorded since: with what was found when it began,
    or without anything. So does one that is replayed.
    """
    recorded = [event.data for event in step.context.history if isinstance(event.data, MemoryRecalled)]
    if recorded:
        found = recorded[-1].found
    elif any(isinstance(event.data, TurnStarted) for event in step.context.history):
        found = ()
    else:
        found = _replayed(model) if isinstance(model, ReplayModel) else _recalled(role, step)
        if found or (role.recalls and step.context.remember is not None and not _memory_failed(step.context)):
            step.record(EventType.MEMORY_RECALLED, MemoryRecalled(kind=role.recalls or "quirk", found=found))
    step.context = replace(step.context, recalled=found)


def _replayed(model: ReplayModel) -> tuple[Recalled, ...]:
    return model.recalled.found if model.recalled else ()


def _recalled(role: Role, step: StepConversation) -> tuple[Recalled, ...]:
    context = step.context
    if context.remember is None or _memory_failed(context):
        return ()
    error_type, text = "", ""
    if role.recalls is not None:
        error_type, text = _failure(context) if role.recalls == "failure" else ("", _task(context))
    try:
        known = quirks_among(context.remember("quirk", "")) if role.quirks else ()
        rows = context.remember(role.recalls, f"{error_type} {text}") if role.recalls and (text or error_type) else ()
    except CodePilotError as error:
        consequence = f"the {role.name} is shown nothing of earlier runs"
        degraded = DependencyDegraded(dependency="memory", consequence=consequence, failure=error.failure)
        step.record(EventType.DEPENDENCY_DEGRADED, degraded)
        return ()
    if role.recalls is None or not rows:
        return known
    own = (context.run.run_id,)
    if context.vectors is not None and not _memory_failed(context, EMBEDDINGS):
        whole = f"{error_type}: {text}" if error_type else text
        try:
            found = recall(role.recalls, whole, rows, own=own, rate=context.success_of, vectors=context.vectors)
            return (*found, *known)
        except CodePilotError as error:
            degraded = DependencyDegraded(
                dependency=EMBEDDINGS, consequence="memories are compared by their words", failure=error.failure
            )
            step.record(EventType.DEPENDENCY_DEGRADED, degraded)
    return (*recall(role.recalls, text, rows, error_type, own=own, rate=context.success_of), *known)


EMBEDDINGS = "embeddings"
"""The dependency that fails if texts cannot be turned into vectors in time."""


def _memory_failed(context: StepContext, dependency: str = "memory") -> bool:
    """True if the memory was out of reach earlier in this run: it is not waited for again."""
    known = (event.data for event in context.earlier if isinstance(event.data, DependencyDegraded))
    return any(one.dependency == dependency for one in known)


def _task(context: StepContext) -> str:
    return "\n".join((context.run.task.goal.natural, *(context.run.baseline.targets if context.run.baseline else ())))


def _failure(context: StepContext) -> tuple[str, str]:
    """Type and message of the last change's error, else of the failing test."""
    if context.run.test_result and (errors := context.run.test_result.errors):
        return errors[0].error_type, errors[0].message
    targets = context.run.baseline.targets if context.run.baseline else ()
    case = next((context.baseline.cases[test] for test in targets if test in context.baseline.cases), None)
    return (case.error_type, case.message) if case else ("", "")
