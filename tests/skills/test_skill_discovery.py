"""A package that was never heard of adds its skill, through a distribution as an installer leaves it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

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
from codepilot.agents import make_agent
from codepilot.core.task import Capability
from codepilot.models import ScriptedModel
registry = make_agent("codeact", model=ScriptedModel([]))._registry
print(registry.documentation(Capability.READ_ONLY))
space = {}
exec(registry.prelude(Capability.READ_ONLY), space)
print(space["shout"]("it works"))
print(registry.answer(Capability.READ_ONLY)("whisper", {"text": "Also THIS"}))
print(space["whisper"].__doc__)
"""
BROKEN = """\
from codepilot.skills import all_skills
try:
    all_skills()
except Exception as error:
    print(type(error).__name__, error.kind.value, error.failure.message, error.failure.next_action, sep="|")
"""


def install(site: Path, skills: str, point: str = "acme.skills:add") -> None:
    package = site / "acme"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "skills.py").write_text(skills)
    (package / "body.py").write_text(BODY)
    info = site / "acme_skills-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-skills\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[codepilot.skills]\nacme = {point}\n")


def run(site: Path, code: str) -> str:
    program = f"import sys; sys.path.insert(0, {str(site)!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_skill_is_documented_and_can_be_called(tmp_path: Path) -> None:
    install(tmp_path, SKILLS)
    told = run(tmp_path, LOOK)
    assert "shout(text: str) -> str\n    Capital letters.\n" in told
    assert "whisper(text: str) -> str\n    Small letters.\n" in told
    assert told.splitlines()[-3:] == ["IT WORKS", "also this", "Small letters."]


def test_a_package_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    untyped = SKILLS.replace("text: str) -> str:", "text):")
    clash = "from acme.body import shout\ndef add(registry):\n    registry.add(next(iter(registry)))\n"
    imports = SKILLS.replace(
        "registry.skill(SkillPolicy()", "registry.skill(SkillPolicy(), ships=(__import__('pydantic'),)"
    )
    for number, (skills, point, why) in enumerate(
        [
            ("import nothing_like_it\n", "acme.skills:add", "No module named 'nothing_like_it'"),
            (SKILLS, "acme.skills:missing", "has no attribute 'missing'"),
            (untyped, "acme.skills:add", "must have a docstring and types"),
            (clash, "acme.skills:add", "there is a skill read_file already"),
            (imports, "acme.skills:add", "where there is the standard library alone"),
        ]
    ):
        site = tmp_path / str(number)
        install(site, textwrap.dedent(skills), point)
        name, kind, message, action = run(site, BROKEN).strip().split("|")
        assert (name, kind, action) == ("CodePilotError", "invalid_spec", "Update or uninstall acme-skills.")
        assert message.startswith(f"The package acme-skills adds skills (acme = {point}) that cannot be used: ")
        assert why in message
