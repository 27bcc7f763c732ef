"""A package that was unknown before adds its skill, through a distribution as an installer leaves it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from codepilot.skills import basic_skills

SKILLS = '''\
"""Skills of a package."""
from acme.body import shout
from codepilot.skills import Registry, SkillPolicy, Target

def add(registry: Registry) -> None:
    registry.skill(SkillPolicy(), version="2.1.0")(shout)

    @registry.skill(SkillPolicy(target=Target.LOCAL))
    def whisper(text: str) -> str:
        """Small letters."""
        return text.lower()
'''
BODY = '''\
def shout(text: str) -> str:
    """Capital letters."""
    return text.upper()
'''
LOOK = """\
from codepilot.agents import AgentParts, make_agent
from codepilot.core.task import Capability
from codepilot.models import ScriptedModel
registry = make_agent("codeact", AgentParts(model=ScriptedModel([])))._registry
print(registry.documentation(Capability.READ_ONLY))
space = {}
exec(registry.prelude(Capability.READ_ONLY), space)
print(space["shout"]("it works"))
print(registry.answer(Capability.READ_ONLY)("whisper", {"text": "Also THIS"}))
print(space["whisper"].__doc__)
"""
BROKEN = """\
import json
from codepilot.core.task import Capability
from codepilot.skills import all_skills
registry = all_skills()
there = [skill.name for skill in registry]
print(json.dumps([there, [failure.model_dump(mode="json") for failure in registry.left_out]]))
exec(registry.prelude(Capability.FULL_SHELL), {})
"""


def install(site: Path, skills: str, point: str = "acme.skills:add", name: str = "acme") -> None:
    skills, point = skills.replace("acme", name), point.replace("acme", name)
    package = site / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "skills.py").write_text(skills)
    (package / "body.py").write_text(BODY)
    info = site / f"{name}_skills-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-skills\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[codepilot.skills]\n{name} = {point}\n")


def run(site: Path, code: str) -> str:
    program = f"import sys; sys.path.insert(0, {str(site)!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_skill_is_documented_and_can_be_called(tmp_path: Path) -> None:
    install(tmp_path, SKILLS)
    reported = run(tmp_path, LOOK)
    assert "shout(text: str) -> str\n    Capital letters.\n" in reported
    assert "whisper(text: str) -> str\n    Small letters.\n" in reported
    assert reported.splitlines()[-3:] == ["IT WORKS", "also this", "Small letters."]


CLASH = "def add(registry):\n    from acme.body import shout\n    registry.add(next(iter(registry)))\n"
PART = SKILLS + "    raise OSError('half way')\n"


UNUSABLE = [
    ("import nothing_like_it\n", "acme.skills:add", "No module named 'nothing_like_it'"),
    ("def add(:\n", "acme.skills:add", "SyntaxError"),
    ("raise SystemExit(3)\n", "acme.skills:add", "SystemExit: 3"),
    ("add = 3\n", "acme.skills:add", "'int' object is not callable"),
    (SKILLS, "acme.skills:missing", "has no attribute 'missing'"),
    (SKILLS.replace("text: str) -> str:", "text):"), "acme.skills:add", "must have a docstring and types"),
    (SKILLS.replace("text: str) -> str:", "text: Nothing) -> str:"), "acme.skills:add", "Nothing"),
    (SKILLS.replace("def whisper", "def Whisper"), "acme.skills:add", "'Whisper' cannot be the name of a skill"),
    (SKILLS.replace("def whisper", "def print"), "acme.skills:add", "'print' cannot be the name of a skill"),
    (SKILLS.replace("2.1.0", "2.1"), "acme.skills:add", "'2.1' is not a version of the skill shout"),
    (CLASH, "acme.skills:add", "there is a skill read_file already"),
    (SKILLS.replace("def whisper", "def run_tests"), "acme.skills:add", "there is a skill run_tests already"),
    (
        SKILLS.replace("SkillPolicy(), ver", "SkillPolicy(), ships=(__import__('pydantic'),), ver"),
        "acme.skills:add",
        "where there is the standard library alone",
    ),
    (PART, "acme.skills:add", "OSError: half way"),
]


def test_a_package_that_cannot_be_used_is_left_out_whole_and_named(tmp_path: Path) -> None:
    for number, (skills, point, _) in enumerate(UNUSABLE):
        install(tmp_path, skills, point, f"acme{number:02}")
    there, failures = json.loads(run(tmp_path, BROKEN))
    assert there == [skill.name for skill in basic_skills()]
    assert len(failures) == len(UNUSABLE)
    for number, (failure, (_, point, why)) in enumerate(zip(failures, UNUSABLE, strict=True)):
        name = f"acme{number:02}"
        point = point.replace("acme", name)
        assert failure["kind"] == "invalid_spec"
        reported = f"The package {name}-skills adds skills ({name} = {point}) that cannot be used: "
        assert failure["message"].startswith(reported)
        assert why in failure["message"]
        assert failure["next_action"] == f"Update or uninstall {name}-skills."


def test_a_broken_package_harms_neither_its_neighbours_nor_silently(tmp_path: Path) -> None:
    install(tmp_path, SKILLS)
    info = tmp_path / "zoo-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[codepilot.skills]\nzoo = zoo:add\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{BROKEN}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    there, failures = json.loads(done.stdout)
    assert {"shout", "whisper"} <= set(there)
    assert [failure["details"] for failure in failures] == [{"package": "zoo"}]
    assert "The package zoo adds skills (zoo = zoo:add) that cannot be used: " in done.stderr
    assert "Update or uninstall zoo." in done.stderr
