"""The one place where skills are declared, documented, shipped inside and called."""

from __future__ import annotations

import ast
import builtins
import inspect
import keyword
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Protocol, TypeVar, get_type_hints

from pydantic import ConfigDict, JsonValue, TypeAdapter, create_model

from codepilot.core.contract import JsonObject
from codepilot.core.events import SkillCall
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.task import Capability
from codepilot.skills.host_call import UNKNOWN, Caller
from codepilot.skills.manifest import NAME, VERSION, SkillManifest, SkillPolicy, Target, plain_type
from codepilot.skills.source_bundle import foreign_imports, needed, prelude

F = TypeVar("F", bound=Callable[..., Any])

_PLAIN_PARAMETERS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


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

    @cached_property
    def parameters(self) -> str:
        """The parameters as prompts show them, with annotations as written."""
        parts = []
        keywords = False
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
                keywords = True
                parts.append("*")
            default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
            parts.append(f"{name}: {_written(parameter.annotation)}{default}")
        return ", ".join(parts)

    @cached_property
    def signature(self) -> str:
        """The signature as code actions see it; LOCAL skills return plain data."""
        if self.policy.target is Target.LOCAL:
            gives, _ = plain_type(self.output_schema)
        else:
            gives = _written(inspect.signature(self.function).return_annotation)
        return f"{self.name}({self.parameters}) -> {gives}"

    @cached_property
    def description(self) -> str:
        text = inspect.getdoc(self.function) or ""
        if text and self.policy.target is Target.LOCAL:
            _, keys = plain_type(self.output_schema)
            return f"{text}\nKeys: {keys}." if keys else text
        return text

    @cached_property
    def manifest(self) -> SkillManifest:
        return SkillManifest(
            name=self.name,
            version=self.version,
            description=self.description,
            signature=self.signature,
            input_schema=self.arguments.model_json_schema(),
            output_schema=self.output_schema,
        )

    @cached_property
    def result(self) -> TypeAdapter[Any]:
        return TypeAdapter(get_type_hints(self.function)["return"])

    @cached_property
    def output_schema(self) -> JsonObject:
        return self.result.json_schema(mode="serialization", by_alias=False)

    @cached_property
    def arguments(self) -> Any:
        """The function's parameters as a model that validates calls."""
        hints = get_type_hints(self.function)
        fields: dict[str, Any] = {
            name: (hints[name], ... if parameter.default is parameter.empty else parameter.default)
            for name, parameter in inspect.signature(self.function).parameters.items()
        }
        return create_model(f"{self.name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)


class Answering(Protocol):
    """Calls a LOCAL skill for code inside a workspace, whose name is the asker's."""

    def __call__(self, name: str, arguments: JsonObject, asker: str = "", /) -> JsonValue: ...


class Registry:
    """Skills by name."""

    def __init__(self, caller: Caller | None = None) -> None:
        self._skills: dict[str, Skill] = {}
        self._caller = caller or Caller()
        self.left_out: list[Failure] = []
        """Packages that were left out."""

    def __iter__(self) -> Iterator[Skill]:
        return iter(self._skills.values())

    def __contains__(self, name: object) -> bool:
        return name in self._skills

    def add(self, skill: Skill) -> None:
        """Add a skill, or raise ValueError with the reason."""
        if skill.name in self._skills:
            raise ValueError(f"there is a skill {skill.name} already")
        if not re.fullmatch(NAME, skill.name) or keyword.iskeyword(skill.name) or hasattr(builtins, skill.name):
            raise ValueError(f"{skill.name!r} cannot be the name of a skill: small letters, and none of Python's own")
        if not re.fullmatch(VERSION, skill.version):
            raise ValueError(f"{skill.version!r} is not a version of the skill {skill.name}; it is like 1.0.0")
        parameters = inspect.signature(skill.function).parameters
        annotated = inspect.get_annotations(skill.function)
        if any(name not in annotated for name in (*parameters, "return")) or not inspect.getdoc(skill.function):
            raise ValueError(f"the skill {skill.name} must have a docstring and types for its arguments and result")
        if any(parameter.kind not in _PLAIN_PARAMETERS for parameter in parameters.values()):
            raise ValueError(f"the skill {skill.name} must name each of its arguments")
        if skill.policy.filesystem_write and not skill.policy.needs.allows(Capability.WRITE_WITH_DIFF):
            raise ValueError(f"the skill {skill.name} writes: it must need at least {Capability.WRITE_WITH_DIFF}")
        if skill.policy.target is Target.LOCAL:
            if skill.policy.memory_mb is not None:
                raise ValueError(f"the skill {skill.name} runs in the host's process, where memory cannot be bounded")
            _check_defaults(skill, parameters.values())
        else:
            _check_imports(skill)
        self._skills[skill.name] = skill

    def extend(self, add: Callable[[Registry], None]) -> None:
        """Add all skills that a function registers, with complete manifests, or none."""
        before = dict(self._skills)
        try:
            add(self)
            for name in self._skills.keys() - before.keys():
                _ = self._skills[name].manifest
        except BaseException:
            self._skills = before
            raise

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

    def only(self, names: frozenset[str]) -> Registry:
        """A registry of the named skills."""
        left = Registry(self._caller)
        left._skills = {name: skill for name, skill in self._skills.items() if name in names}
        return left

    def offline(self) -> Registry:
        """The same without the skills that need a network, for tasks that have none."""
        return self.only(frozenset(skill.name for skill in self if not skill.policy.network))

    def documentation(self, capability: Capability) -> str:
        """The functions that code actions can call, as prompts show them."""
        parts = []
        for skill in self.available(capability):
            body = "\n".join(f"    {line}".rstrip() for line in skill.description.splitlines())
            parts.append(f"{skill.signature}\n{body}")
        return "\n".join(parts)

    def prelude(
        self,
        capability: Capability,
        python: str = "",
        runner: str = "",
        prepare: bool = False,
        facts: Mapping[str, str] | None = None,
    ) -> str:
        """Python source that makes the kernel's namespace hold the available skills and no others.

        `prepare` also sets up the workspace once, such as its throwaway repository; `facts` are what else they know.
        """
        facts = {"CAPABILITY": capability.value, "PYTHON": python, "RUNNER": runner, **(facts or {})}
        there = self.available(capability)
        absent = [skill.name for skill in self if skill not in there]
        return prelude(there, absent, {name: value for name, value in facts.items() if value}, prepare)

    def call(self, name: str, arguments: JsonObject, capability: Capability, asker: str = "") -> Any:
        """Run a LOCAL skill within its policy."""
        skill = self._skills.get(name)
        if skill is None:
            known = ", ".join(sorted(s.name for s in self.available(capability, Target.LOCAL)))
            self._caller.count(UNKNOWN, Target.LOCAL, "error", 0.0)
            raise CodePilotError(
                FailureKind.TOOL_INVALID_ARGS, f"There is no skill {name!r} to call here; use: {known}."
            )
        return self._caller.call(skill, arguments, capability, asker)

    def answer(self, capability: Capability) -> Answering:
        """A function that runs LOCAL skills for a kernel and returns plain data."""

        def answered(name: str, arguments: JsonObject, asker: str = "") -> JsonValue:
            given = self.call(name, arguments, capability, asker)
            plain: JsonValue = self._skills[name].result.dump_python(given, mode="json", by_alias=False)
            return plain

        return answered

    def count(self, calls: Sequence[SkillCall]) -> None:
        """Count the calls that a kernel reports."""
        self._caller.count_all(calls, {skill.name: skill.policy.target for skill in self})

    def known(self, calls: Sequence[SkillCall]) -> tuple[SkillCall, ...]:
        """The calls, with unknown names replaced: a kernel may report any name."""
        return tuple(call if call.skill in self else call.model_copy(update={"skill": UNKNOWN}) for call in calls)


def _written(annotation: object) -> str:
    if annotation is inspect.Signature.empty or annotation is None:
        return "None"
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _check_defaults(skill: Skill, parameters: Any) -> None:
    for parameter in parameters:
        if parameter.default is parameter.empty:
            continue
        try:
            same = ast.literal_eval(repr(parameter.default)) == parameter.default
        except (ValueError, SyntaxError):
            same = False
        if not same:
            raise ValueError(f"the default of {parameter.name} of the skill {skill.name} must be plain data")


def _check_imports(skill: Skill) -> None:
    module = sys.modules.get(skill.function.__module__)
    if module is None:
        raise ValueError(f"the skill {skill.name} runs inside, so its source must be a module's")
    travels = [shipped for body in (*skill.ships, module) for shipped in needed(body)]
    names = {shipped.__name__ for shipped in travels}
    for shipped in travels:
        foreign = foreign_imports(shipped) - names
        if foreign:
            raise ValueError(
                f"the skill {skill.name} runs inside, where there is the standard library alone, but "
                f"{shipped.__name__} imports {', '.join(sorted(foreign))}; keep its body in a module of its own"
            )
