"""Functions an agent may call: manifest, policy, registry, and the basic ones."""

from codepilot.skills.discovery import (
    all_skills,
    answer_calls,
    basic_skills,
    count_calls,
    discovered_skills,
    inside_prelude,
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

__all__ = [
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
    "inside_prelude",
    "parse_surefire_xml",
    "patch_tree",
    "score_patch_quality",
    "unknown_modules",
]
