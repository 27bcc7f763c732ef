"""Task documents as people and programs write them."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import TaskKind, TaskSpec
from codepilot.core.task_document import EXAMPLES, read_task_document

BLUEPRINT = """{
  "goal": {
    "natural": "Fix failing tests in payments service",
    "machine": { "type": "edit_code", "repo": "workspace", "target_outcome": "tests_pass" }
  },
  "constraints": ["keep API stable", "touch only payments module"],
  "budget": { "max_steps": 10, "max_wall_time_sec": 1200, "cost_ceiling": "ask" },
  "risk_profile": {
    "capability": "write_with_diff", // read_only | write_with_diff | write_and_run_tests | full_shell
    "interaction": { "mode": "ask_before_risky" } // full_autonomy | ask_before_risky | ask_every_step
  },
  "evaluation": {
    "success": ["tests_pass", "lint_clean"],
    "acceptance_hint": "ship if diffs match plan and tests are green"
  }
}"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def task(text: str) -> TaskSpec:
    return TaskSpec.model_validate({"task_id": "t-1", **read_task_document(text)})


def test_documents_are_accepted_as_they_are_printed() -> None:
    blueprint = task(BLUEPRINT)
    assert (blueprint.budget.turns, blueprint.budget.wall_sec, blueprint.budget.cost_usd) == (10, 1200, 5.0)
    submitted = task('{"type": "BUGFIX", "prompt": "Mend it", "repoUrl": "https://x.example/r", "repoRef": "main"}')
    assert (submitted.kind, submitted.goal.natural, submitted.ref) == (TaskKind.BUGFIX, "Mend it", "main")
    follow_up = task(
        '{"title": "Refactor foo", "kind": "code_refactor", "inputs": {"paths": ["a.ts"]},'
        ' "origin": {"from_task": "t-9"}}'
    )
    assert (follow_up.kind, follow_up.constraints) == (TaskKind.CHANGE, ("change only a.ts",))
    assert task('\ufeff{"goal": "x", "budget": {"cost_ceiling": 0.5}}').budget.cost_usd == 0.5


@pytest.mark.parametrize("kind", list(EXAMPLES))
def test_every_example_is_a_task_of_its_kind(kind: TaskKind) -> None:
    assert task(EXAMPLES[kind]).kind is kind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1"),
        ('{"goal": "x",\n oops}', "line 2"),
        ("[]", "not a JSON object"),
        ('{"run_id": "x", "tasks": []}', "This is a list of tasks"),
        ('{"goal": "x", "budget": {"cost_ceiling": "much"}}', "cost_ceiling"),
        ('{"title": "x", "kind": "bugfix", "inputs": 3}', "inputs"),
        (r'{"goal": "x", "ref": "\u0000"}', "ref: a text cannot hold"),
        (r'{"goal": "x", "tests": ["t", "\ud800"]}', "tests.1: a text cannot hold"),
    ],
)
def test_a_mistake_is_named(text: str, message: str) -> None:
    with pytest.raises(CodePilotError, match=message) as refused:
        read_task_document(text)
    assert refused.value.kind is FailureKind.INVALID_SPEC


def test_a_refusal_is_short_whatever_it_quotes() -> None:
    with pytest.raises(CodePilotError) as refused:
        read_task_document(json.dumps({"goal": "x", "budget": {"cost_ceiling": "x" * 100_000}}))
    assert len(refused.value.failure.message) < 5_000


def test_a_hostile_document_is_quickly_refused() -> None:
    started = time.process_time()
    with pytest.raises(CodePilotError):
        read_task_document('"a"' + '\\"' * 100_000)
    assert time.process_time() - started < 1


@given(st.dictionaries(st.sampled_from([*TaskSpec.model_fields, "type", "prompt", "title", "inputs"]), JSON))
def test_no_document_is_more_than_a_task_or_a_refusal(document: dict[str, object]) -> None:
    try:
        task(json.dumps(document))
    except (CodePilotError, ValueError) as error:
        assert str(error)
