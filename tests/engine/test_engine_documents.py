"""Task documents: those that the specifications print, and those that no one should send."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from engine_kit import CHEAP
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codepilot.core.failures import CodePilotError, FailureKind, Origin
from codepilot.core.task import Capability, TaskKind
from codepilot.engine import Runtime
from codepilot.engine.documents import read_task

SPEC = """{
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
FOLLOW_UP = {
    "title": "Refactor duplicated logic in foo/bar",
    "kind": "code_refactor",
    "inputs": {"paths": ["src/foo.ts", "src/bar.ts"]},
    "origin": {"from_task": "task_123"},
}
BENCH = {
    "taskId": "lang-001",
    "repo": "https://github.com/apache/commons-lang",
    "ref": "commons-lang-3.12.0",
    "prompt": "Fix the NullPointerException in StringUtils.strip() when the input string is null.",
    "failingTest": "org.apache.commons.lang3.StringUtilsTest#testStrip_StringString",
    "verificationCmd": ["mvn", "-q", "test", "-Dtest=StringUtilsTest#testStrip_StringString"],
    "knownFixSummary": "Add null guard before calling charAt(0)",
}
PLAIN = {"goal": "mend it", "kind": "bugfix", "tests": ["test_shapes.ShapesTest.test_area"], "budget": {"wall_sec": 9}}


def test_the_documents_of_the_specifications_are_tasks(checkout: Path) -> None:
    spec = read_task(SPEC, CHEAP, str(checkout))
    assert (spec.kind, spec.budget.turns, spec.budget.wall_sec) == (TaskKind.BUGFIX, 10, 1200)
    assert spec.evaluation.success == ("tests_pass", "lint_clean")
    bench = read_task(json.dumps(BENCH), CHEAP, str(checkout))
    assert (bench.tests, bench.accept) == ((BENCH["failingTest"],), (shlex.join(BENCH["verificationCmd"]),))
    assert "guard" not in bench.model_dump_json()
    old = {"type": "BUGFIX", "prompt": "mend it", "repoUrl": str(checkout), "repoRef": "HEAD", "constraints": []}
    assert read_task(json.dumps(old), CHEAP).ref == "HEAD"


def test_a_follow_up_and_a_question_go_to_an_agent_with_a_model(checkout: Path) -> None:
    model = {"model": "openai-compatible:http://127.0.0.1:9/v1#m"}
    follow_up = {"goal": FOLLOW_UP["title"], "kind": "change", **model}
    assert read_task(json.dumps(follow_up), CHEAP, str(checkout)).agent == "codeact"
    question = {"goal": "Where?", "risk_profile": {"capability": "read_only"}, **model}
    task = read_task(json.dumps(question), CHEAP, str(checkout))
    assert (task.kind, task.risk_profile.capability, task.agent) == (TaskKind.QUESTION, Capability.READ_ONLY, "codeact")
    with pytest.raises(CodePilotError, match="model"):
        read_task(json.dumps(FOLLOW_UP), CHEAP, str(checkout))


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["..", "/", "\0", "\ud800", "-x", "HEAD", "workspace", "ask", "a" * 5000, 10**400]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
NAMES = """goal kind type repo ref path within tests constraints budget risk_profile policy memory evaluation accept
proposed scaffold dry_run priority agent model fallback_model python sandbox_level notify origin branch language
approved_hosts task_id prompt title inputs failingTest verificationCmd riskProfile unknown"""
BROKEN = st.dictionaries(st.sampled_from(NAMES.split()), ANYTHING, min_size=1, max_size=3)


def listed(place: Path) -> list[str]:
    return sorted(str(path) for path in place.rglob("*"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(broken=BROKEN)
def test_a_broken_document_is_a_clear_error_and_leaves_nothing(
    broken: dict[str, object], checkout: Path, runtime: Runtime, tmp_path: Path
) -> None:
    before = listed(tmp_path)
    document = json.dumps({**PLAIN, **broken})
    try:
        task = read_task(document, CHEAP, str(checkout))
    except CodePilotError as error:
        failure = error.failure
        assert failure.handling.origin in (Origin.INPUT, Origin.PERSON), failure
        assert failure.message and failure.advice and "Traceback" not in failure.message
        assert len(failure.message) < 2000
        if failure.kind is FailureKind.INVALID_SPEC and "cannot be used" in failure.message:
            assert any(name in failure.message for name in (*broken, "goal", "proposed", "scaffold", "kind"))
    else:
        assert task.goal.natural.strip()
    assert listed(tmp_path) == before and runtime.store.history(5) == []
