"""Every way a call can end, provoked inside and counted on the host; and what each rung of the ladder gives."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from codepilot.core.task import Capability
from codepilot.executor import CodeResult, CreateWorkspace, LocalExecutor, RunCode
from codepilot.project.runner_command import VARIABLE, described
from codepilot.sandbox import choose
from codepilot.skills import Registry, SkillPolicy, Target, basic_skills
from codepilot.skills.host_call import Caller
from codepilot.telemetry import Metrics
from codepilot.workspace import ObjectStore

BODIES = '''\
import errno
import time

_calls = []


def dozes(seconds: float) -> str:
    """Sleeps, and stops at its timeout."""
    time.sleep(seconds)
    return "awake"


def flaky(times: int) -> int:
    """Fails so many times with what may pass by itself."""
    _calls.append(1)
    if len(_calls) <= times:
        raise OSError(errno.EAGAIN, "try again")
    done = len(_calls)
    _calls.clear()
    return done


def flaky_write(times: int) -> int:
    """The same, and it writes."""
    return flaky(times)
'''
LOOKING = {"parse_surefire_xml", "score_patch_quality", "check_policy"}
ALL = LOOKING | {"read_file", "list_files", "search_code", "git_status", "git_diff"}
WRITING = {"write_file", "create_file", "edit_file", "apply_patch", "git_reset"}
RUNNING = {"run_command", "run_tests"}


class Bench:
    """An executor whose kernel has the skills, counting into metrics of its own."""

    def __init__(self, folder: Path, capability: Capability) -> None:
        module = folder / "bench_bodies.py"
        module.write_text(BODIES)
        sys.path.insert(0, os.fspath(folder))
        sys.modules.pop("bench_bodies", None)
        try:
            import bench_bodies
        finally:
            sys.path.remove(os.fspath(folder))
        self.metrics = Metrics()
        self.registry = Registry(Caller(self.metrics))
        for skill in basic_skills():
            self.registry.add(skill)
        self.registry.skill(SkillPolicy(timeout_sec=0.2))(bench_bodies.dozes)
        self.registry.skill(SkillPolicy())(bench_bodies.flaky)
        writes = SkillPolicy(filesystem_write=True, needs=Capability.WRITE_WITH_DIFF)
        self.registry.skill(writes)(bench_bodies.flaky_write)

        @self.registry.skill(SkillPolicy(target=Target.LOCAL, timeout_sec=0.2))
        def waits() -> None:
            """Waits on the host's side."""
            import time

            time.sleep(2)

        @self.registry.skill(SkillPolicy(target=Target.LOCAL))
        def breaks() -> None:
            """Breaks on the host's side."""
            raise OSError(errno.EIO, "broken")

        @self.registry.skill(SkillPolicy(target=Target.LOCAL, needs=Capability.FULL_SHELL))
        def mighty() -> None:
            """Needs everything."""

        with ObjectStore.open(folder / "objects") as store:
            tree = store.write_tree({})
        self.executor = LocalExecutor(
            folder / "workspaces", choose("best"), answer=self.registry.answer(capability), count=self.registry.count
        )
        slow = {VARIABLE: described(("/bin/sleep", "60"), "")}
        self.executor.create(CreateWorkspace(workspace="w", objects=str(folder / "objects"), tree=tree, env=slow))
        assert self.run(self.registry.prelude(capability)).status == "ok"

    def run(self, code: str) -> CodeResult:
        return self.executor.run_code(RunCode(workspace="w", code=code, timeout_sec=30, idempotency_key=""))

    def counted(self, skill: str) -> dict[str, float]:
        statuses = ("success", "error", "timeout", "policy_violation")
        calls = {one: self.metrics.value("codepilot_skill_calls_total", skill=skill, status=one) for one in statuses}
        return {status: value for status, value in calls.items() if value}

    def timed(self, skill: str, target: str) -> int:
        return int(self.metrics.value("codepilot_skill_duration_seconds_count", skill=skill, target=target))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench").resolve(), Capability.WRITE_AND_RUN_TESTS)
    yield made
    made.executor.close()


CASES = [
    ("write_file('a.txt', 'a')", "write_file", "success", "executor", ""),
    ("read_file('missing')", "read_file", "error", "executor", "PathError"),
    ("list_files(1, 2, 3)", "list_files", "error", "executor", "BadArguments"),
    ("run_command(['sleep'])", "run_command", "policy_violation", "executor", "PolicyError"),
    ("run_tests(timeout=0.001)", "run_tests", "timeout", "executor", ""),
    ("dozes(5)", "dozes", "timeout", "executor", "SkillTimeout"),
    ("score_patch_quality('')", "score_patch_quality", "success", "local", ""),
    ("parse_surefire_xml('no')", "parse_surefire_xml", "error", "local", "SkillError"),
    ("breaks()", "breaks", "error", "local", "SkillError"),
    ("waits()", "waits", "timeout", "local", "SkillTimeout"),
    ("import codepilot_kernel\ncodepilot_kernel.ask('mighty', {})", "mighty", "policy_violation", "local", ""),
]


@pytest.mark.parametrize(("code", "skill", "status", "target", "error"), CASES, ids=[case[0] for case in CASES])
def test_each_end_of_a_call_is_counted_once_with_its_target(
    bench: Bench, code: str, skill: str, status: str, target: str, error: str
) -> None:
    before, timed = bench.counted(skill).get(status, 0), bench.timed(skill, target)
    result = bench.run(code)
    assert (result.error.type.rpartition(".")[2] if result.error else "") == error
    assert bench.counted(skill) == {status: before + 1}
    assert bench.timed(skill, target) == timed + 1
    assert bench.run("1 + 1").value == "2"


def test_typed_errors_carry_their_kind_inside(bench: Bench) -> None:
    ask = "def kind(f, *a):\n    try: f(*a)\n    except Exception as e: return e.kind\n"
    kinds = f"{ask}[kind(read_file), kind(parse_surefire_xml, 'no'), kind(waits), kind(breaks), kind(dozes, 5)]"
    assert bench.run(kinds).value == (
        "['tool_invalid_args', 'tool_invalid_args', 'tool_timeout', 'tool_failed', 'tool_timeout']"
    )


def test_what_may_pass_by_itself_is_tried_three_times_and_once_if_it_writes(bench: Bench) -> None:
    assert bench.run("flaky(2)").value == "3"
    assert bench.counted("flaky") == {"success": 1}
    failed = bench.run("flaky(9)")
    assert failed.error is not None and "try again" in failed.error.message
    assert bench.run("len(flaky.__wrapped__.__globals__['_calls'])").value == "3"
    bench.run("flaky.__wrapped__.__globals__['_calls'].clear()")
    assert bench.run("flaky_write(1)").error is not None
    assert bench.run("len(flaky.__wrapped__.__globals__['_calls'])").value == "1"


def test_each_rung_of_the_ladder_has_its_skills_in_prompt_and_namespace(tmp_path: Path) -> None:
    registry = basic_skills()
    rungs = [ALL, ALL | WRITING, ALL | WRITING | RUNNING, ALL | WRITING | RUNNING]
    for capability, names in zip(Capability, rungs, strict=True):
        text = registry.documentation(capability)
        for skill in registry:
            assert (f"{skill.signature}\n    " in text) == (skill.name in names)
        space = {"run_command": "left over"}
        exec(registry.prelude(capability), space)
        assert {name for name in space if not name.startswith("_")} == names
        for name in list(sys.modules):
            if name.startswith("_skills_"):
                del sys.modules[name]


def test_every_skill_has_a_whole_manifest_and_policy() -> None:
    skills = list(basic_skills())
    assert {skill.name for skill in skills} == ALL | WRITING | RUNNING
    for skill in skills:
        manifest, policy = skill.manifest, skill.policy
        assert manifest.name == skill.name and manifest.version == "1.0.0" and manifest.description.endswith(".")
        assert manifest.input_schema["type"] == "object" and manifest.input_schema["additionalProperties"] is False
        assert manifest.output_schema
        assert policy.target is (Target.LOCAL if skill.name in LOOKING else Target.EXECUTOR)
        assert not policy.network
        assert policy.filesystem_write == (skill.name in WRITING | RUNNING)
        assert 0 < policy.timeout_sec <= 300 and policy.memory_mb is None
