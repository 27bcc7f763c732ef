"""Fix before you pay: by policy the model-free engine tries before a model is asked for anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_kit import APPROVE, DONE, MAP, PLAN, TESTS, code, drive, states, until

from codepilot.core.events import EventType, State
from codepilot.core.policy import Policy
from codepilot.engine import Runtime
from codepilot.models import ScriptedModel

FREE = Policy(free_first=True)


def test_a_repair_that_needs_no_model_costs_nothing(runtime: Runtime, checkout: Path) -> None:
    model = until()
    run, events = drive(runtime, checkout, model, FREE)
    assert run.state is State.DONE
    assert run.verdict == "confirmed"
    assert (model.requests, run.spent.tokens) == ([], 0)
    assert run.proposal is not None
    assert "+    return width * height" in run.proposal.patch.diff
    assert run.proof is not None
    test = run.proof.regression_test
    assert test is not None
    assert test.test == "test_shapes.ShapesTest.test_area_regression"
    (sought,) = [event.data for event in events if event.type is EventType.REPAIRS_SOUGHT]
    assert (sought.by, sought.chosen) == ("policy", True)  # type: ignore[attr-defined]
    skipped = [event.data.state for event in events if event.type is EventType.STEP_SKIPPED]  # type: ignore[attr-defined]
    assert skipped == [State.MAP_REPO, State.PLAN]
    assert run.review is not None
    assert "model-free" in run.review.notes


@pytest.mark.variants
def test_what_the_free_engine_cannot_do_is_paid_for(runtime: Runtime, checkout: Path) -> None:
    """An algorithm that is missing altogether: the tests compare digests, so that no expression can be guessed."""
    rest = "\n\ndef perimeter(width, height):\n    return 2 * (width + height)\n"
    (checkout / "shapes.py").write_text(f"def area():\n    raise NotImplementedError\n{rest}", "utf-8")
    (checkout / "test_shapes.py").write_text(
        TESTS.replace("(area(3, 4), 12)", "(hashlib.md5(area()).hexdigest(), hashlib.md5(b'3 by 4').hexdigest())")
        .replace("        self.assertEqual(area(2, 2), 4)\n", "")
        .replace("import unittest", "import hashlib\nimport unittest"),
        "utf-8",
    )
    right = f"def area():\n    return b'3 by 4'\n{rest}"
    mend = code(f"write_file('shapes.py', {right!r})")
    soon = {"step_wall_sec": 60.0}
    run, events = drive(runtime, checkout, ScriptedModel([MAP, PLAN, mend, DONE, APPROVE]), FREE, budget=soon)
    assert run.state is State.DONE
    (sought,) = [event.data for event in events if event.type is EventType.REPAIRS_SOUGHT]
    assert (sought.by, sought.chosen) == ("policy", False)  # type: ignore[attr-defined]
    assert sought.reason  # type: ignore[attr-defined]
    assert state_count(events, State.PLAN) == 1


def state_count(events: list[object], state: State) -> int:
    return states(events).count(state)  # type: ignore[arg-type]


def test_without_the_policy_the_model_is_asked_at_once(runtime: Runtime, checkout: Path) -> None:
    model = until(MAP)
    run, events = drive(runtime, checkout, model)
    assert run.repo_map is not None
    assert len(model.requests) == 2
    assert not [event for event in events if event.type is EventType.REPAIRS_SOUGHT]
