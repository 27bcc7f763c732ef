"""Ships skills into the sandbox: their modules' source, and a calling function for those that run on the host."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from codepilot.skills import inside_call, lazy_loader
from codepilot.skills.manifest import Target

if TYPE_CHECKING:
    from codepilot.skills.registry import Skill

_PACKAGE = f"{__name__.rpartition('.')[0]}."
_SHIPPED = (_PACKAGE, "codepilot.core.permit", "codepilot.core.globs", "codepilot.core.text")
_OURS = f"{__name__.partition('.')[0]}."


def prelude(skills: Sequence[Skill], absent: Sequence[str], facts: dict[str, str], prepare: bool) -> str:
    """Source that leaves `skills` in the namespace it runs in, and none of `absent`.

    CodePilot's modules are compiled on the first call of a skill of theirs; other packages' at once, because their
    imports may have effects.
    """
    modules = {module.__name__: module for module in needed(inside_call)}
    bodies = [skill for skill in skills if skill.policy.target is Target.EXECUTOR]
    for skill in bodies:
        for body in (*skill.ships, sys.modules[skill.function.__module__]):
            modules.update((module.__name__, module) for module in needed(body))
    shipped = frozenset(modules)
    sources = {_shipped_name(name): _shipped_source(module, shipped) for name, module in modules.items()}
    here = _shipped_name(lazy_loader.__name__)
    return _LOADER.format(
        here=here,
        file=f"<skills {here[8:]}>",
        source=sources.pop(here),
        modules=[*sources.items()],
        stubs=(_STUBS, "\n".join([_STUBS_HEAD, *(_stub(skill) for skill in skills if _may_wait(skill))])),
        skills=[_entry(skill) for skill in skills],
        calls=_shipped_name(inside_call.__name__),
        facts=facts,
        at_once=[_shipped_name(name) for name in modules if not name.startswith(_OURS)],
        absent=list(absent),
        prepare=[_shipped_name(name) for name, module in modules.items() if prepare and hasattr(module, "prepare")],
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
    ours = sorted(name for name in foreign_imports(module) if name.startswith(_SHIPPED) and name in sys.modules)
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
        name = match.group(2)
        return f"{match.group(1)}from {_shipped_name(name) if name in shipped else name} import"

    return re.sub(r"^([ \t]*)from ([\w.]+) import", renamed, _source(module), flags=re.MULTILINE)


def _may_wait(skill: Skill) -> bool:
    """True if a skill's body may be compiled on its first call."""
    return skill.policy.target is Target.LOCAL or skill.function.__module__.startswith(_PACKAGE)


def _entry(skill: Skill) -> tuple[str, str, tuple[float, int, int], int]:
    """A skill's module, name, bounds and first line, as `load` takes them."""
    if skill.policy.target is Target.LOCAL:
        return (_STUBS, skill.name, (0.0, 1, 0), 0)
    line = skill.function.__code__.co_firstlineno if _may_wait(skill) else 0
    return (
        _shipped_name(skill.function.__module__),
        skill.name,
        (skill.policy.timeout_sec, skill.policy.tries, skill.policy.memory_mb or 0),
        line,
    )


def _stub(skill: Skill) -> str:
    """A function with the skill's signature and documentation. The stub of a LOCAL skill calls the host."""
    gives = skill.signature.rpartition(" -> ")[2]
    head = f"def {skill.name}({skill.parameters}) -> {gives}:\n"
    if skill.policy.target is Target.EXECUTOR:
        return f"{head}    {skill.function.__doc__!r}\n"
    given = ", ".join(f"{name!r}: {name}" for name in inspect.signature(skill.function).parameters)
    return (
        f"{head}    {skill.description!r}\n"
        f"    from {_shipped_name(inside_call.__name__)} import host_called\n"
        f"    return host_called({skill.name!r}, {{{given}}})\n"
    )


_STUBS = "_skills_stubs"
_STUBS_HEAD = "from __future__ import annotations\n"
_LOADER = """\
def _load_skills(into):
    import sys, types
    here = sys.modules[{here!r}] = types.ModuleType({here!r})
    exec(compile({source!r}, {file!r}, "exec"), here.__dict__)
    here.load(into, {modules!r}, {stubs!r}, {skills!r}, {calls!r}, {facts!r}, {at_once!r})
    for name in {absent!r}:
        into.pop(name, None)
    here.have_prepared({prepare!r})
_load_skills(globals())
del _load_skills
"""
