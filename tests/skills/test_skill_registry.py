from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Capability
from codepilot.skills import Registry, SkillPolicy, Target, basic_skills
from codepilot.skills.host_call import MAX_OVERDUE

LOCAL = SkillPolicy(target=Target.LOCAL)


def doubled(number: int, times: int = 1) -> int:
    """Twice a number, so many times."""
    return number * 2**times


def test_a_skill_is_a_decorated_function_with_a_manifest() -> None:
    registry = Registry()
    assert registry.skill(LOCAL, version="1.2.3")(doubled) is doubled
    manifest = next(iter(registry)).manifest
    assert (manifest.name, manifest.version) == ("doubled", "1.2.3")
    assert manifest.signature == "doubled(number: int, times: int = 1) -> int"
    assert manifest.description == "Twice a number, so many times."
    assert manifest.input_schema["required"] == ["number"]
    assert manifest.output_schema == {"type": "integer"}


def test_what_is_untyped_undocumented_or_there_already_is_refused() -> None:
    registry = Registry()

    def silent(number: int) -> int:
        return number

    def untyped(number):  # type: ignore[no-untyped-def]
        """Says something."""

    for function in (silent, untyped):
        with pytest.raises(ValueError, match="must have a docstring and types"):
            registry.skill(LOCAL)(function)
    registry.skill(LOCAL)(doubled)
    with pytest.raises(ValueError, match="already"):
        registry.skill(LOCAL)(doubled)


def test_calls_are_checked_before_they_are_made() -> None:
    registry = Registry()
    registry.skill(SkillPolicy(target=Target.LOCAL, needs=Capability.WRITE_WITH_DIFF))(doubled)
    full = Capability.FULL_SHELL
    assert registry.call("doubled", {"number": 3, "times": 2}, full) == 12
    for arguments in ({}, {"number": "three"}, {"number": 1, "extra": 2}):
        with pytest.raises(CodePilotError) as caught:
            registry.call("doubled", arguments, full)
        assert caught.value.kind is FailureKind.TOOL_INVALID_ARGS
    with pytest.raises(CodePilotError) as caught:
        registry.call("doubled", {"number": 1}, Capability.READ_ONLY)
    assert caught.value.kind is FailureKind.TOOL_PERMISSION_DENIED
    with pytest.raises(CodePilotError, match="no skill 'nothing' to call here; use: doubled"):
        registry.call("nothing", {}, full)


def test_every_basic_skill_has_a_manifest_and_grows_with_capability() -> None:
    registry = basic_skills()
    assert all(skill.manifest.description for skill in registry)
    sizes = [len(registry.available(capability)) for capability in Capability]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_documentation_names_what_code_can_call_and_nothing_else() -> None:
    text = basic_skills().documentation(Capability.READ_ONLY)
    assert "search_code(pattern: str, path: str = '.', limit: int = 200) -> list[Hit]\n    The lines" in text
    assert "write_file" not in text
    assert "check_policy(diff: str, patch_lines: int = 300) -> list[dict]\n" in text
    assert "    Keys: name, ok, evidence." in text


def test_a_skill_that_needs_a_network_is_not_there_without_one_and_is_tried_once():
    registry = Registry()

    @registry.skill(SkillPolicy(target=Target.LOCAL, network=True))
    def fetch(name: str) -> str:
        """Get something from elsewhere."""
        raise ConnectionError(name)

    assert "fetch" in registry
    assert "fetch" not in registry.offline()
    assert "fetch(" not in registry.offline().documentation(Capability.FULL_SHELL)
    assert next(iter(registry)).policy.tries == 1


def test_calls_that_never_end_are_held_against_their_author() -> None:
    registry, go = Registry(), threading.Event()

    @registry.skill(SkillPolicy(target=Target.LOCAL, timeout_sec=0.02))
    def hangs(long: bool) -> bool:
        """Waits to be let go."""
        return go.wait(60) if long else True

    answer = registry.answer(Capability.READ_ONLY)
    try:
        for _ in range(MAX_OVERDUE):
            with pytest.raises(CodePilotError, match="took longer"):
                answer("hangs", {"long": True}, "one")
        with pytest.raises(CodePilotError, match="earlier calls still run"):
            answer("hangs", {"long": False}, "one")
        assert answer("hangs", {"long": False}, "another") is True
    finally:
        go.set()


def test_a_policy_that_cannot_be_kept_is_refused():
    def write(name: str) -> str:
        """Write something."""
        return name

    registry = Registry()
    with pytest.raises(ValueError, match="writes"):
        registry.skill(SkillPolicy(filesystem_write=True))(write)
    with pytest.raises(ValueError, match="cannot be bounded"):
        registry.skill(SkillPolicy(target=Target.LOCAL, memory_mb=10))(write)


def test_a_call_is_held_to_its_memory():
    """In a process of its own: what a process may hold is its own affair."""
    program = (
        "from codepilot.skills.inside_call import called\n"
        "def fill(size: int) -> int:\n    return len(bytearray(size << 20))\n"
        "skill = called(fill, 0.0, 1, 64)\nprint(skill(8))\n"
        "try: skill(256)\nexcept Exception as error: print(error)\n"
        "print(called(fill)(256))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == [str(8 << 20), "fill needed more than its 64 MiB.", str(256 << 20)]
