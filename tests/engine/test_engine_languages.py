"""A Java bug and a JavaScript bug go through the same roles as any other, and are proved by their own build systems."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from engine_kit import APPROVE, CHEAP, DONE, code, drive, result, states

from codepilot.core.events import Event, EventType, State, StepFailed
from codepilot.core.failures import FailureKind
from codepilot.engine import Checking, Request, Runtime, Worker, make_task, submit, verify_bundle
from codepilot.models import ScriptedModel
from configured import reconfigured
from toolchains import POM, maven_home, toolchain

QUICK = "<argLine>-XX:+UseSerialGC -XX:TieredStopAtLevel=1</argLine>"
"""For the JVM that the tests are forked into."""
JAVA = {
    "pom.xml": POM.replace("<properties>", f"<properties>{QUICK}"),
    "src/main/java/shop/Basket.java": """package shop;

public final class Basket {
    public static int total(int price, int count) {
        return price + count;
    }

    public static int tax(int total) {
        return total / 5;
    }
}
""",
    "src/test/java/shop/BasketTest.java": """package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;

class BasketTest {
    @Test
    void total() {
        assertEquals(12, Basket.total(3, 4));
    }

    @Nested
    class Tax {
        @Test
        void fifth() {
            assertEquals(2, Basket.tax(10));
        }
    }
}
""",
}
JAVASCRIPT = {
    "package.json": '{"name": "shapes", "type": "commonjs", "scripts": {"test": "node --test test/"}}\n',
    "shapes.js": """exports.area = (width, height) => width + height;
exports.around = (width, height) => 2 * (width + height);
""",
    "test/shapes.test.js": """const { describe, it } = require('node:test');
const assert = require('node:assert');
const { area, around } = require('../shapes.js');

describe('shapes', () => {
  it('has an area', () => assert.equal(area(3, 4), 12));
  it('has a length around', () => assert.equal(around(3, 4), 14));
});
""",
}


@pytest.fixture(name="runtime")
def _without_a_named_runner(monkeypatch: pytest.MonkeyPatch, runtime: Runtime) -> Runtime:
    monkeypatch.delenv("CODEPILOT_PROJECT_RUNNER")
    return reconfigured(runtime)


def checkout_of(place: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    identity = ["-c", "user.name=Someone", "-c", "user.email=someone@example.invalid"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *identity, *arguments], cwd=place, check=True)
    return place


def edited(path: str, old: str, new: str) -> str:
    return code(f"write_file({path!r}, read_file({path!r}).replace({old!r}, {new!r}, 1))")


def failures(events: list[Event]) -> list[FailureKind]:
    return [event.data.failure.kind for event in events if isinstance(event.data, StepFailed)]


THOUGHT = result(root_cause="it does not multiply", fix_hypothesis="multiply")
PLAN = result(nodes=[{"id": "one", "title": "multiply"}], root_cause="it adds", approach="multiply")


@pytest.mark.languages
@pytest.mark.timeout(400)
def test_a_bug_in_a_maven_project(runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine runs of Maven in all: every other case is tested with what it printed and wrote."""
    monkeypatch.setenv("HOME", str(maven_home(tmp_path / "user")))
    checkout = checkout_of(tmp_path / "shop", JAVA)
    basket = "src/main/java/shop/Basket.java"
    script = [
        result(build_system="maven", test_cmd=["mvn", "test"]),
        PLAN,
        edited(basket, "price + count;", "price * amount;"),
        DONE,
        THOUGHT,
        edited(basket, "price + count", "price * count"),
        DONE,
        APPROVE,
    ]
    model = ScriptedModel(script)
    run, events = drive(runtime, checkout, model, tests=("BasketTest::total",), budget={"command_sec": 120})
    assert (run.state, run.failure) == (State.DONE, None)
    assert run.baseline is not None
    assert run.baseline.targets == ("shop.BasketTest#total",)
    assert run.baseline.before.failed == ("shop.BasketTest#total",)
    assert failures(events) == [FailureKind.COMPILE_ERROR]
    reflecting = model.requests[4][1].content
    assert "cannot find symbol" in reflecting
    assert "variable amount" in reflecting
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == (basket,)
    assert run.proof is not None
    assert (run.proof.ok, run.proof.suite, run.proof.after.passed) == (True, "full", 2)
    assert run.verdict == "plausible"


def test_a_bug_in_an_npm_project(runtime: Runtime, tmp_path: Path) -> None:
    toolchain("node")
    checkout = checkout_of(tmp_path / "shapes", JAVASCRIPT)
    script = [
        result(build_system="npm", test_cmd=["npm", "test"]),
        PLAN,
        code("outcome = run_tests()\nprint(outcome)"),
        edited("shapes.js", "width + height", "width * height"),
        code("print(run_tests(['test/shapes.test.js::shapes > has an area']))"),
        DONE,
        APPROVE,
    ]
    model = ScriptedModel(script)
    run, events = drive(runtime, checkout, model)
    assert (run.state, run.failure) == (State.DONE, None)
    assert run.baseline is not None
    assert run.baseline.targets == ("test/shapes.test.js::shapes > has an area",)
    assert "1 passed, 1 failed [exit code 1]" in model.requests[3][-1].content
    assert "1 passed [exit code 0]" in model.requests[5][-1].content
    assert states(events)[:5] == [State.INIT, State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.TEST]
    assert run.proof is not None
    assert (run.proof.ok, run.proof.suite, run.proof.after.passed) == (True, "full", 2)
    assert run.bundle is not None
    assert verify_bundle(runtime, Path(run.bundle), Checking()).ok


@pytest.mark.languages
@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (edited("shapes.js", "width + height", "width * height);"), FailureKind.COMPILE_ERROR),
        (code("import os\nos.remove('test/shapes.test.js')"), FailureKind.TESTS_FAILED),
        (edited("test/shapes.test.js", "it('has a length", "it.skip('has a length"), FailureKind.TESTS_FAILED),
    ],
)
def test_what_is_no_repair_in_javascript(runtime: Runtime, tmp_path: Path, wrong: str, kind: FailureKind) -> None:
    toolchain("node")
    checkout = checkout_of(tmp_path / "shapes", JAVASCRIPT)
    mapped = result(build_system="npm", test_cmd=["npm", "test"])
    right = edited("shapes.js", "width + height", "width * height") if "skip" in wrong else ""
    script = [mapped, PLAN, *([right] if right else []), wrong, DONE, THOUGHT]
    _, events = drive(runtime, checkout, ScriptedModel(script))
    assert failures(events)[0] is kind
    assert State.REVIEW not in states(events)


def test_the_embedded_agent_says_at_once_that_it_repairs_python_alone(runtime: Runtime, tmp_path: Path) -> None:
    toolchain("node")
    checkout = checkout_of(tmp_path / "shapes", JAVASCRIPT)
    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    ended = Worker(runtime).drive(run.run_id)
    assert ended.state is State.FAILED
    assert ended.failure is not None
    assert ended.failure.kind is FailureKind.INVALID_SPEC
    assert "works on python only" in ended.failure.message
    assert ended.baseline is None
    assert EventType.WORKSPACE_CREATED not in [event.type for event in runtime.store.events(run.run_id)]
