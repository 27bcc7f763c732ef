"""How skills get inside: their modules' source, and for those that run on the host a function that asks it."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from codepilot.skills import calls
from codepilot.skills.manifest import Target

if TYPE_CHECKING:
    from codepilot.skills.registry import Skill

_PACKAGE = f"{__name__.rpartition('.')[0]}."


def prelude(skills: Sequence[Skill], absent: Sequence[str], facts: dict[str, str], prepare: bool) -> str:
    """Source that leaves `skills` in the namespace it runs in, and none of `absent`."""
    modules = {module.__name__: module for module in needed(calls)}
    bodies = [skill for skill in skills if skill.policy.target is Target.EXECUTOR]
    asking = [skill for skill in skills if skill.policy.target is Target.LOCAL]
    for skill in bodies:
        for body in (*skill.ships, sys.modules[skill.function.__module__]):
            modules.update((module.__name__, module) for module in needed(body))
    sources = [(_shipped_name(name), _shipped_source(module, frozenset(modules))) for name, module in modules.items()]
    sources.append((_ASKING, "\n".join([_ASKING_HEAD, *(_asking(skill) for skill in asking)])))
    names = [
        (_shipped_name(skill.function.__module__), skill.name, skill.policy.timeout_sec, skill.policy.tries)
        for skill in bodies
    ]
    names += [(_ASKING, skill.name, 0.0, 1) for skill in asking]
    return _LOADER.format(
        sources=sources,
        names=names,
        absent=list(absent),
        facts=facts,
        calls=_shipped_name(calls.__name__),
        prepare=prepare,
    )


@cache
def foreign_imports(module: ModuleType) -> frozenset[str]:
    """The modules that a module imports and that are not of the standard library; inside there are no others."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
    return frozenset(name for name in found if name.partition(".")[0] not in sys.stdlib_module_names)


@cache
def needed(module: ModuleType) -> tuple[ModuleType, ...]:
    """A module with those of this package that it imports, each after what it imports itself."""
    ours = sorted(name for name in foreign_imports(module) if name.startswith(_PACKAGE) and name in sys.modules)
    found = {one.__name__: one for name in ours for one in needed(sys.modules[name])}
    return (*found.values(), module)


@cache
def _source(module: ModuleType) -> str:
    return inspect.getsource(module)


def _shipped_name(module: str) -> str:
    return "_skills_" + module.replace(".", "_")


@cache
def _shipped_source(module: ModuleType, shipped: frozenset[str]) -> str:
    """A module's source with its imports of other shipped modules pointed at what travels with it."""

    def renamed(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"from {_shipped_name(name) if name in shipped else name} import"

    return re.sub(r"^from ([\w.]+) import", renamed, _source(module), flags=re.MULTILINE)


def _asking(skill: Skill) -> str:
    """A function with the skill's signature and documentation that has the host call it."""
    given = ", ".join(f"{name!r}: {name}" for name in inspect.signature(skill.function).parameters)
    gives = skill.signature.rpartition(" -> ")[2]
    return (
        f"def {skill.name}({skill.parameters}) -> {gives}:\n"
        f"    {skill.description!r}\n"
        f"    return host_called({skill.name!r}, {{{given}}})\n"
    )


_ASKING = "_skills_of_the_host"
_ASKING_HEAD = f"from __future__ import annotations\nfrom {_shipped_name(calls.__name__)} import host_called\n"
_LOADER = """\
def _load_skills(into):
    import linecache, sys, types
    facts = {facts!r}
    modules = []
    for name, source in {sources!r}:
        module = types.ModuleType(name)
        sys.modules[name] = module
        file = "<skills " + name[8:] + ">"
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        exec(compile(source, file, "exec"), module.__dict__)
        module.__dict__.update((key, value) for key, value in facts.items() if key in module.__dict__)
        modules.append(module)
    called = sys.modules[{calls!r}].called
    for module, name, timeout, tries in {names!r}:
        into[name] = called(getattr(sys.modules[module], name), timeout, tries)
    for name in {absent!r}:
        into.pop(name, None)
    if {prepare!r}:
        for module in modules:
            if hasattr(module, "prepare"):
                module.prepare()
_load_skills(globals())
del _load_skills
"""
