"""Functions an agent may call: manifest, policy, registry, and the basic ones."""

from codepilot.skills.discovery import (
    all_skills,
    answer_calls,
    basic_skills,
    count_calls,
    discovered_skills,
    inside_prelude,
    program_skills,
)
from codepilot.skills.local import (
    PatchQuality,
    ReportedTest,
    check_policy,
    parse_surefire_xml,
    score_patch_quality,
)
from codepilot.skills.manifest import SkillManifest, SkillPolicy, Target
from codepilot.skills.patch_formats import PatchError
from codepilot.skills.patching import Changes, patch_tree
from codepilot.skills.registry import Answering, Registry, Skill
from codepilot.skills.static import Finding, check_action, unknown_modules
from codepilot.skills.wanted_command import EVERYTHING, hosts_in, installs, packages_in, pushed, wanted_command

__all__ = [
    "EVERYTHING",
    "Answering",
    "Changes",
    "Finding",
    "PatchError",
    "PatchQuality",
    "Registry",
    "ReportedTest",
    "Skill",
    "SkillManifest",
    "SkillPolicy",
    "Target",
    "all_skills",
    "answer_calls",
    "basic_skills",
    "check_action",
    "check_policy",
    "count_calls",
    "discovered_skills",
    "hosts_in",
    "inside_prelude",
    "installs",
    "packages_in",
    "parse_surefire_xml",
    "patch_tree",
    "program_skills",
    "pushed",
    "score_patch_quality",
    "unknown_modules",
    "wanted_command",
]
