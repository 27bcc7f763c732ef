"""The pages that are generated from the code: the command line and the configuration.

`export_schemas.py` writes them and compares them.
"""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import pairwise
from typing import Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel, SecretStr

from codepilot.cli.app import app
from codepilot.core.attempt import Profile
from codepilot.core.pipeline import PIPELINES
from codepilot.core.task import Budget
from codepilot.engine.sections import USER_ONLY, Sections
from codepilot.telemetry.report import (
    EXIT_BLOCKED,
    EXIT_INPUT,
    EXIT_NOT_FOUND,
    EXIT_PAUSED,
    EXIT_PLATFORM,
    EXIT_PLAUSIBLE,
    EXIT_VERIFIED,
)

GENERATED = "<!-- Generated from the code by `make schemas`. Do not edit. -->"

EXIT_CODES = {
    EXIT_VERIFIED: "A confirmed change, or a plausible one with `--accept-plausible`. Other commands: done",
    EXIT_NOT_FOUND: "Nothing was found that holds; a bundle does not hold",
    EXIT_INPUT: "Bad input: an option, a setting, the repository or its tests",
    EXIT_BLOCKED: "Waits for a person",
    EXIT_PLATFORM: "The platform failed: sandbox, store, provider, disk",
    EXIT_PLAUSIBLE: "A plausible change: read it, then `codepilot apply --accept-plausible`",
    EXIT_PAUSED: "Paused by Ctrl+C",
    131: "Ended by Ctrl+\\",
}

# The command line -----------------------------------------------------------------------------------


def cli_page() -> str:
    """docs/cli.md: every command with its arguments, options and examples."""
    root = typer.main.get_command(app)
    lines = [GENERATED, "", "# Command line", "", _sentence(root.help), ""]
    lines += ["`codepilot COMMAND --help` prints the same on a terminal.", ""]
    lines += ["## Options of `codepilot`", "", *_options(root)]
    lines += ["## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    lines += ["", "Of several runs the worst of 4, 3, 1, 5 and 0 counts.", ""]
    groups: dict[str, list[Any]] = {}
    for command in root.commands.values():  # type: ignore[attr-defined]
        groups.setdefault(str(command.rich_help_panel), []).append(command)
    for group, commands in groups.items():
        lines += [f"## {group}", ""]
        for command in commands:
            lines += _command(command, "codepilot")
    return "\n".join(lines).rstrip() + "\n"


def _command(command: Any, parent: str) -> Iterator[str]:
    name = f"{parent} {command.name}"
    children = getattr(command, "commands", {})
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    usage = " ".join([name, *(["COMMAND"] if children else []), *map(_usage, arguments)])
    yield from [f"### {name}", "", f"```\n{usage} [OPTIONS]\n```", "", _sentence(command.help), ""]
    if arguments:
        yield from ["| argument | meaning |", "|---|---|"]
        yield from (f"| `{one.metavar or one.name.upper()}` | {_meaning(one)} |" for one in arguments)
        yield ""
    yield from _options(command)
    if command.epilog:
        yield from [_examples(command.epilog), ""]
    for child in children.values():
        yield from _command(child, name)


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    name = f"{name}..." if argument.nargs == -1 else name
    return name if argument.required else f"[{name}]"


def _options(command: Any) -> Iterator[str]:
    found = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    if not found:
        return
    yield from ["| option | meaning |", "|---|---|"]
    for one in found:
        names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
        value = "" if one.is_flag or one.count else f" `{one.metavar or _values(one)}`".replace("|", "\\|")
        yield f"| {names}{value} | {_meaning(one)} |"
    yield ""


def _values(option: Any) -> str:
    kind = option.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(one.value) for one in kind)
    return "N" if kind in (int, float) else "TEXT"


def _meaning(parameter: Any) -> str:
    """The help text, the default unless the text names it, and whether it may be repeated."""
    text = _sentence(parameter.help).replace("|", "\\|")
    default = parameter.default
    silent = default in (None, False, (), [], "") or callable(default) or "efault" in text
    if parameter.param_type_name == "option" and (parameter.is_flag or parameter.count):
        silent = True
    return text if silent else f"{text} Default: `{getattr(default, 'value', default)}`."


def _sentence(text: str | None) -> str:
    """The text in one line, with a name between backticks where the code writes one."""
    joined = " ".join((text or "").split())
    return re.sub(r"(?<![`\w-])(--[a-z][a-z-]*|\$[A-Z_]+)(?![`\w-])", r"`\1`", joined)


def _examples(epilog: str) -> str:
    kind, _, rest = epilog.partition(": ")
    examples = [one.strip() for one in rest.split("·")]
    return f"```\n{chr(10).join(examples)}\n```" if kind.startswith("Example") else epilog


# The configuration ----------------------------------------------------------------------------------

RULES = {
    "project": "You and the repository. The repository's value wins.",
    "sandbox": "You. A repository may only demand `bubblewrap`.",
    "budget": "You. A repository may lower a limit, and raise what you have not set, except money, tokens and"
    " `patch_lines`.",
    "policy": "You. A repository may only be stricter: lists of hosts intersect, limits take the smaller, switches the"
    " safer.",
    "interactive": "You. A repository may only be stricter, and chooses `execution_mode`: its value wins.",
    "memory": "You. A repository may only turn it off.",
    "locks": "You and the repository.",
}
"""Who may set a section. The sections of `USER_ONLY` have a rule of their own."""
FLAGS = {
    "project.python": "--python",
    "policy.hosts": "--allow-host",
    "policy.test_hosts": "--allow-test-host",
    "agents.default": "--agent",
    "interactive.execution_mode": "--execution-mode",
    "interactive.strategy": "--strategy",
    "models.default": "--model",
    "models.fallback": "--fallback-model",
    "notify.url": "--notify",
    "budget": "--budget",
}
"""Options of `codepilot fix` that win over a key for one run."""
VARIABLES = {
    "CODEPILOT_HOME": "Where everything is kept. Default: `$XDG_DATA_HOME/codepilot`, else `~/.local/share/codepilot`.",
    "CODEPILOT_STORE": "Where runs are recorded: `postgresql://…` or a file. Default: a file in the home.",
    "CODEPILOT_ARTIFACTS": "Where files of runs are kept: `s3://…` or a directory. Default: the home.",
    "CODEPILOT_EXECUTOR_TOKEN": "The token of the executor that `[executor] url` names.",
    "ANTHROPIC_API_KEY": "The key of `anthropic:` models.",
    "OPENAI_API_KEY": "The key of `openai:` models.",
    "CODEPILOT_MODEL_KEY": "The key of `openai-compatible:` models.",
}
"""Variables that are no key of a section."""


def configuration_page() -> str:
    """docs/configuration.md: every key of every section."""
    lines = [GENERATED, "", _INTRODUCTION]
    for name, section in Sections.model_fields.items():
        lines += [f"## [{name}]", ""]
        if name == "budget":
            lines += [*_budget()]
            continue
        if name == "locks":
            lines += [*_locks()]
            continue
        if name == "profiles":
            lines += [*_profiles()]
            continue
        lines += [*_section(name, section.annotation)]
    lines += ["## Variables", "", "| variable | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in VARIABLES.items()]
    return "\n".join(lines).rstrip() + "\n"


def _locks() -> Iterator[str]:
    yield from ["Names for files that one run at a time may change, each with patterns of paths.", ""]
    yield from [f"**Set by:** {RULES['locks']}", "", "```toml", "[locks]"]
    yield from ['openapi = ["api/**/*.yaml"]', 'schema = ["db/migrations", "*.sql"]', "```", ""]


def _profiles() -> Iterator[str]:
    yield from ["Programs that are agents, by name: a new one, or changes to one that is shipped (batch.md).", ""]
    yield from [f"**Set by:** You only: a repository may not choose {USER_ONLY['profiles']}.", ""]
    yield from _table("profiles.NAME", Profile)


_INTRODUCTION = """\
# Configuration

CodePilot reads, in this order, and later ones win:

1. `~/.config/codepilot/codepilot.toml`, your own file (`$XDG_CONFIG_HOME/codepilot/codepilot.toml` if that is set)
2. `codepilot.toml` at the top of the repository
3. the environment: `CODEPILOT_<SECTION>_<KEY>`, for example `CODEPILOT_BUDGET_WALL_SEC=600`
4. flags of the command

A repository can only be stricter than you are. From a repository given by URL only `[project]` counts. A key that does
not exist is an error that names the file and the key.

```toml
[project]
python = "/path/to/python"
[budget]
wall_sec = 1800
[policy]
hosts = ["pypi.org:443"]
```
"""


def _section(name: str, model: Any) -> Iterator[str]:
    who = f"You only: a repository may not choose {USER_ONLY[name]}." if name in USER_ONLY else RULES[name]
    yield from [_described(model), "", f"**Set by:** {who}", ""]
    yield from _table(name, model)
    for path, nested in _nested(name, model):
        yield from [f"### {path}", "", _described(nested), "", *_table(path.strip("[]"), nested)]


def _table(place: str, model: type[BaseModel]) -> Iterator[str]:
    texts = _texts(model)
    yield from ["| key | values | default | meaning |", "|---|---|---|---|"]
    for key, info in model.model_fields.items():
        if key not in texts:
            raise SystemExit(f"{model.__name__}.{key} has no description: write a docstring below the field.")
        default = "required" if info.is_required() else _default(info.get_default(call_default_factory=True))
        flag = FLAGS.get(f"{place}.{key}")
        meaning = texts[key] + (f" Flag: `{flag}`." if flag else "")
        yield f"| `{key}` | {_type(info.annotation, info.metadata)} | {default} | {meaning} |"
    yield ""


def _nested(name: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Sections below this one: tables by name, and lists of tables."""
    for key, info in model.model_fields.items():
        inner = [one for one in get_args(info.annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
        for one in inner:
            mapped = get_origin(info.annotation) is not tuple
            place = f"{name}.NAME" if key == "named" else f"{name}.{key}.NAME"
            yield (f"[{place}]" if mapped else f"[[{name}.{key}]]"), one


def _budget() -> Iterator[str]:
    yield from ["What a run may spend. Paused, blocked and parked time is free.", ""]
    yield from [f"**Set by:** {RULES['budget']} Flag: `--budget KEY=VALUE`.", ""]
    texts, kinds = _texts(Budget), list(PIPELINES)
    yield f"| key | values | {' | '.join(f'default of {kind}' for kind in kinds)} | meaning |"
    yield "|---|---|" + "---|" * len(kinds) + "---|"
    for key, info in Budget.model_fields.items():
        if key not in texts:
            raise SystemExit(f"Budget.{key} has no description: write a docstring below the field.")
        defaults = " | ".join(_default(getattr(PIPELINES[kind].budget, key)) for kind in kinds)
        yield f"| `{key}` | {_type(info.annotation, info.metadata)} | {defaults} | {texts[key]} |"
    yield ""


def _described(model: type) -> str:
    text = " ".join((inspect.getdoc(model) or "").split())
    if not model.__doc__ or not text:
        raise SystemExit(f"{model.__name__} has no docstring.")
    return text


def _texts(model: type) -> Mapping[str, str]:
    """The docstrings below the fields of a class, which the running program does not keep."""
    source = ast.parse(inspect.cleandoc("\n" + inspect.getsource(model)))
    body = next(node for node in source.body if isinstance(node, ast.ClassDef)).body
    found: dict[str, str] = {}
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split()).replace("|", "\\|")
    return found


def _type(annotation: Any, metadata: Any = ()) -> str:
    """The values of a key in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(one) for one in arguments if one is not type(None))
    if origin is tuple:
        return f"list of {_type(arguments[0])}s"
    if origin is not None and issubclass(origin, Mapping):
        return (
            "tables by name"
            if isinstance(arguments[1], type) and issubclass(arguments[1], BaseModel)
            else "table of texts"
        )
    if hasattr(annotation, "__metadata__"):
        return _type(annotation.__origin__, annotation.__metadata__)
    names = {str: "text", SecretStr: "text", bool: "`true`, `false`", int: "whole number", float: "number"}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    return names[annotation]


def _default(value: Any) -> str:
    if value in (None, (), {}, ""):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float | int):
        return f"`{value:g}`" if value < 1e6 else f"`{value:,}`"
    return f"`{value}`"
