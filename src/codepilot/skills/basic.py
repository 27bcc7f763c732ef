"""The skills every installation has, each with its policy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from codepilot.core.task import Capability
from codepilot.project.plugin import codepilot_reports
from codepilot.skills import inside, local, repository, running, searching, suites
from codepilot.skills.manifest import SkillPolicy, Target
from codepilot.skills.registry import Registry

READS = SkillPolicy()
WRITES = SkillPolicy(filesystem_write=True, needs=Capability.WRITE_WITH_DIFF)
RUNS = SkillPolicy(filesystem_write=True, needs=Capability.WRITE_AND_RUN_TESTS)
LOOKS = SkillPolicy(target=Target.LOCAL, timeout_sec=10.0)


def basic_skills() -> Registry:
    """A registry with the basic skills, to which higher rooms and packages may add theirs."""
    registry = Registry()
    policies: tuple[tuple[SkillPolicy, tuple[Callable[..., object], ...]], ...] = (
        (READS, (inside.read_file, inside.list_files, searching.search_code)),
        (READS, (repository.git_status, repository.git_diff)),
        (WRITES, (inside.write_file, inside.create_file, inside.edit_file, inside.apply_patch, repository.git_reset)),
        (RUNS, (running.run_command, suites.run_tests)),
        (LOOKS, (local.parse_surefire_xml, local.score_patch_quality, local.check_policy)),
    )
    for policy, functions in policies:
        for function in functions:
            ships = (codepilot_reports,) if function is suites.run_tests else ()
            registry.skill(policy, ships=ships)(function)
    return registry


@cache
def inside_prelude(capability: Capability = Capability.WRITE_AND_RUN_TESTS) -> str:
    """What a fresh kernel is given before anyone has asked for more or less."""
    return basic_skills().prelude(capability)
