"""The one place where skills are declared, documented, shipped inside and called."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, TypeVar, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, create_model

from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Capability
from codepilot.skills.manifest import SkillManifest, SkillPolicy, Target

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Skill:
    """One typed, documented function with its policy."""

    function: Callable[..., Any]
    policy: SkillPolicy
    version: str = "1.0.0"
    ships: tuple[ModuleType, ...] = ()
    """Standard-library-only modules that the body imports; their source travels with it."""

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def signature(self) -> str:
        """As prompts show it: annotations as they are written."""
        shown = inspect.signature(self.function)
        given = [
            f"{name}: {parameter.annotation}"
            + ("" if parameter.default is parameter.empty else f" = {parameter.default!r}")
            for name, parameter in shown.parameters.items()
        ]
        return f"{self.name}({', '.join(given)}) -> {shown.return_annotation}"

    @property
    def description(self) -> str:
        return inspect.getdoc(self.function) or ""

    @cached_property
    def manifest(self) -> SkillManifest:
        result: Any = get_type_hints(self.function)["return"]
        return SkillManifest(
            name=self.name,
            version=self.version,
            description=self.description,
            signature=self.signature,
            input_schema=self.arguments.model_json_schema(),
            output_schema=TypeAdapter(result).json_schema(),
        )

    @cached_property
    def arguments(self) -> Any:
        """The function's parameters as a model that validates calls."""
        hints = get_type_hints(self.function)
        fields: dict[str, Any] = {
            name: (hints[name], ... if parameter.default is parameter.empty else parameter.default)
            for name, parameter in inspect.signature(self.function).parameters.items()
        }
        return create_model(f"{self.name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)


class Registry:
    """The skills there are, by name."""

    def __init__(self) -> None:
        self._skills: dict[str, Skill] = {}

    def __iter__(self) -> Iterator[Skill]:
        return iter(self._skills.values())

    def add(self, skill: Skill) -> None:
        if skill.name in self._skills:
            raise ValueError(f"there is a skill {skill.name} already")
        untyped = [name for name in inspect.signature(skill.function).parameters if name not in _annotated(skill)]
        if untyped or "return" not in _annotated(skill) or not skill.description:
            raise ValueError(f"the skill {skill.name} must have a docstring and types for its arguments and result")
        self._skills[skill.name] = skill

    def skill(
        self,
        policy: SkillPolicy,
        *,
        version: str = "1.0.0",
        ships: tuple[ModuleType, ...] = (),
    ) -> Callable[[F], F]:
        """Register the decorated function as a skill; the function itself is left as it is."""

        def register(function: F) -> F:
            self.add(Skill(function, policy, version, ships))
            return function

        return register

    def available(self, capability: Capability, target: Target | None = None) -> tuple[Skill, ...]:
        """The skills that exist for a task with this capability."""
        return tuple(
            skill for skill in self if capability.allows(skill.policy.needs) and target in (None, skill.policy.target)
        )

    def documentation(self, capability: Capability) -> str:
        """The functions that code actions can call, as prompts show them."""
        parts = []
        for skill in self.available(capability, Target.EXECUTOR):
            body = "\n".join(f"    {line}".rstrip() for line in skill.description.splitlines())
            parts.append(f"{skill.signature}\n{body}")
        return "\n".join(parts)

    def prelude(self, capability: Capability, python: str = "", runner: str = "") -> str:
        """Python source that makes the kernel's namespace hold the available skills and no others."""
        skills = self.available(capability, Target.EXECUTOR)
        modules: dict[str, ModuleType] = {}
        for skill in skills:
            for module in (*skill.ships, inspect.getmodule(skill.function)):
                if module is not None:
                    modules.setdefault(module.__name__, module)
        sources = [(_shipped_name(name), _shipped_source(module, modules)) for name, module in modules.items()]
        names = [(_shipped_name(skill.function.__module__), skill.name) for skill in skills]
        absent = [skill.name for skill in self if skill.policy.target is Target.EXECUTOR and skill not in skills]
        facts = {"CAPABILITY": capability.value, "PYTHON": python, "RUNNER": runner}
        facts = {name: value for name, value in facts.items() if value}
        return _LOADER.format(sources=sources, names=names, absent=absent, facts=facts)

    def call(self, name: str, arguments: JsonObject, capability: Capability) -> Any:
        """Run a LOCAL skill with checked arguments."""
        skill = self._skills.get(name)
        if skill is None or skill.policy.target is not Target.LOCAL:
            known = ", ".join(sorted(s.name for s in self.available(capability, Target.LOCAL)))
            raise CodePilotError(
                FailureKind.TOOL_INVALID_ARGS, f"There is no skill {name!r} to call here; use: {known}."
            )
        if not capability.allows(skill.policy.needs):
            raise CodePilotError(
                FailureKind.TOOL_PERMISSION_DENIED, f"{name} needs {skill.policy.needs}; the task has {capability}."
            )
        try:
            checked = skill.arguments.model_validate(arguments)
        except ValidationError as error:
            raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, f"{name}: {error}", signature=skill.signature) from None
        return skill.function(**{field: getattr(checked, field) for field in type(checked).model_fields})


def _annotated(skill: Skill) -> dict[str, Any]:
    return inspect.get_annotations(skill.function)


def _shipped_name(module: str) -> str:
    return "_skills_" + module.replace(".", "_")


def _shipped_source(module: ModuleType, shipped: dict[str, ModuleType]) -> str:
    """A module's source with its imports of other shipped modules pointed at what travels with it."""

    def renamed(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"from {_shipped_name(name) if name in shipped else name} import"

    return re.sub(r"^from ([\w.]+) import", renamed, inspect.getsource(module), flags=re.MULTILINE)


_LOADER = """\
def _load_skills(into):
    import sys, types
    facts = {facts!r}
    for name, source in {sources!r}:
        module = types.ModuleType(name)
        sys.modules[name] = module
        exec(compile(source, "<" + name + ">", "exec"), module.__dict__)
        module.__dict__.update((key, value) for key, value in facts.items() if key in module.__dict__)
    for module, name in {names!r}:
        into[name] = getattr(sys.modules[module], name)
    for name in {absent!r}:
        into.pop(name, None)
_load_skills(globals())
del _load_skills
"""
