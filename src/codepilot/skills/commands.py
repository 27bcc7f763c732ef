"""Which commands an agent may run, by program and argument. Standard library only: this source also runs inside.

This is policy, not the wall: it keeps an agent to building, testing and looking, and tells it what to do instead.
Code that an agent writes can do by itself what is refused here; the sandbox is what bounds both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from codepilot.skills.arrival import FOLDER
from codepilot.skills.command_arguments import PYTHON, in_cluster, operands, outside, spelled, values
from codepilot.skills.command_rules import (
    ELSEWHERE,
    GRADLE_BEGINNINGS,
    GRADLE_TASKS,
    INSIDE_PROPERTIES,
    INSTALLS,
    INSTEAD,
    JVM_SWITCHES,
    MAKE_VARIABLES,
    MAVEN_GOALS,
    MAVEN_GROUPS,
    MAVEN_PHASES,
    MAVEN_PLUGINS,
    PATTERN_FIRST,
    PROGRAMS,
    PROPERTIES,
    PUBLISHES,
    PYTHON_TOOLS,
    REFUSED_MODULES,
    RUNS_MODULES,
    STARTS,
    SYSTEM_PLACES,
    TOOL_PLACES,
    WRAPPERS,
    WRITES,
    Program,
)

ROOT = FOLDER


def refusal(cmd: Sequence[str], root: str = "") -> tuple[str, str]:
    """The rule that forbids a command, and why with what to do instead; or two empty strings."""
    name, why = _program(cmd[0])
    if why:
        return name, why
    why = _refused(name, list(cmd[1:]), root or ROOT)
    return (f"command.{name}", why) if why else ("", "")


def leads_out(cmd: Sequence[str], root: str = "") -> str:
    """The operand of a looking program that lies outside of the workspace, told kindly; empty if there is none."""
    name, why = _program(cmd[0])
    if why or not PROGRAMS[name].reads:
        return ""
    program, arguments = PROGRAMS[name], list(cmd[1:])
    if name == "find":
        first = (number for number, argument in enumerate(arguments) if argument[:1] in ("-", "(", "!"))
        files = arguments[: next(first, len(arguments))]
    else:
        files = list(operands(program, arguments, everything=True))
    given = any(spelled(program, option, argument) for argument in arguments for option in ("-e", "-f", "--regexp"))
    if name in PATTERN_FIRST and not given:
        files = files[1:]
    for operand in files:
        if outside(operand, root or ROOT, readable=True):
            return (
                f"{operand} lies outside of the workspace, where {name} has nothing to look for. Use paths relative to"
                " the workspace's root; inspect.getsource shows a dependency's source."
            )
    return ""


def _program(given: str) -> tuple[str, str]:
    """The name under which a program's rules stand; or the rule that forbids it, and why."""
    folder, _, base = os.path.normpath(given).rpartition("/") if "/" in given else ("", "", given)
    name = "python" if re.fullmatch(r"python3?(\.\d+)?", base) else WRAPPERS.get(base, base)
    if name not in PROGRAMS:
        instead = INSTEAD.get(base, "")
        listed = f"only these programs may be run: {', '.join(sorted(PROGRAMS))}"
        return "command.unknown", f"{instead}; {listed}" if instead else listed
    local = given in (f"./{base}", base) and base in WRAPPERS
    tools = folder in SYSTEM_PLACES | TOOL_PLACES or (folder and folder == str(Path(PYTHON).parent))
    if "/" in given and not local and not tools:
        return "command.path", f"programs are found by their names, not by a path: use {base!r}"
    return name, ""


def _refused(name: str, arguments: list[str], root: str) -> str:
    """Why these arguments may not be given to a program; empty if they may."""
    program = PROGRAMS[name]
    rest = arguments
    if program.commands is not None:
        first = next((number for number, a in enumerate(arguments) if a not in program.before.split()), None)
        if first is None or arguments[first] not in program.commands:
            what = f"`{arguments[first]}`" if first is not None else "no command"
            kind = "may not stand before the command" if what.startswith("`-") else "is not among what may be run"
            return f"{what} {kind}; {program.hint}"
        rest = arguments[first + 1 :]
    own = rest[: rest.index("--")] if program.stops and "--" in rest else rest
    return _by_options(program, own, root) or _by_words(program, own) or _by_program(name, arguments, rest, root)


def _by_options(program: Program, arguments: list[str], root: str) -> str:
    for number, argument in enumerate(arguments):
        if argument.startswith("@") and program.from_file:
            return f"`{argument}`: arguments from a file cannot be judged; give them in the list"
        if not argument.startswith("-"):
            continue
        for spellings, why in program.options.items():
            for option in spellings.split():
                if spelled(program, option, argument):
                    return f"`{argument}` is `{option}`: {why}" if argument != option else f"`{option}`: {why}"
        for option in program.inside.split():
            for value in values(program, option, arguments, number):
                if outside(value, root):
                    return f"`{option} {value}` leads out of the workspace; use the files of the workspace"
    return ""


def _by_words(program: Program, arguments: list[str]) -> str:
    for operand in operands(program, arguments):
        for word, why in program.words.items():
            if operand == word or operand.startswith((f"{word}:", f"{word}-", f"{word}_")):
                return f"`{operand}`: {why}"
    return ""


def _by_program(name: str, arguments: list[str], rest: list[str], root: str) -> str:
    """What only one program has."""
    if name in ("mvn", "gradle", "java", "javac"):
        judge = {"mvn": _maven, "gradle": _gradle}.get(name, _java)
        return _properties(rest, root) or judge(rest)
    if name == "python":
        return _python(arguments, root)
    if name == "coverage":
        return _coverage(rest, root)
    if name == "go":
        return _go(arguments)
    if name == "make":
        return _make(rest)
    if name == "git":
        return _git(arguments, rest)
    if name == "sed":
        return _sed(rest)
    if name == "uniq" and len(list(operands(PROGRAMS[name], rest))) > 1:
        return f"the second file is one that uniq writes: {WRITES}"
    return ""


def _python(arguments: list[str], root: str) -> str:
    """`-m module` in any cluster, up to the script or the code."""
    number = 0
    while number < len(arguments) and arguments[number].startswith("-") and arguments[number] != "-":
        argument = arguments[number]
        letters = "" if argument.startswith("--") else argument[1:]
        stop = re.search("[cmWX]", letters)
        if stop is None:
            number += 2 if argument == "--check-hash-based-pycs" else 1
            continue
        rest = [letters[stop.end() :]] if letters[stop.end() :] else []
        after = [*rest, *arguments[number + 1 :]]
        if stop.group() == "c":
            return ""
        if stop.group() == "m":
            return _module(after, root)
        number += 1 if rest else 2
    return ""


def _module(arguments: list[str], root: str) -> str:
    if not arguments:
        return ""
    module = arguments[0].strip()
    started = [module]
    if module in RUNS_MODULES:
        started += [argument.removeprefix("-m").rpartition("=")[2] for argument in arguments[1:]]
    for refused, why in REFUSED_MODULES.items():
        if any(f"{one}.".startswith(f"{refused}.") for one in started):
            return f"`-m {refused}`: {why}"
    tool = module.removesuffix(".__main__")
    return _refused(tool, arguments[1:], root) if tool in PYTHON_TOOLS else ""


def _coverage(arguments: list[str], root: str) -> str:
    """`coverage run -m module` starts a module as Python does."""
    for number, argument in enumerate(arguments):
        if argument.startswith("--m") and "--module".startswith(argument.partition("=")[0]):
            attached = argument.partition("=")[2]
        elif re.fullmatch(r"-[aLp]*m.*", argument):
            attached = argument.partition("m")[2]
        else:
            continue
        why = _module(([attached] if attached else []) + arguments[number + 1 :], root)
        if why:
            return why
    return ""


_PROPERTY = re.compile(r"-[A-Za-z]*?D\s*=?\s*(.*)|--?(?:d(?:e(?:f(?:i(?:ne?)?)?)?)?|system-prop)(?:=(.*))?", re.DOTALL)


def _properties(arguments: list[str], root: str) -> str:
    """System properties that make a build or a JVM load, start or fetch something else."""
    for number, argument in enumerate(arguments):
        found = _PROPERTY.fullmatch(argument)
        if found is None:
            continue
        text = found.group(1) or found.group(2) or next(iter(arguments[number + 1 : number + 2]), "")
        key, _, value = text.strip().partition("=")
        lowered = key.strip().lower()
        if any(lowered == one or lowered.startswith(f"{one}.") for one in PROPERTIES):
            return f"`-D{key}`: it makes the build load, start or fetch something else; leave it to the project's files"
        if any(switch in value.lower() for switch in JVM_SWITCHES):
            return f"`-D{key}` passes a switch that loads code into the JVM; leave the switch out"
        if lowered in INSIDE_PROPERTIES and outside(value, root):
            return f"`-D{key}={value}` leads out of the workspace; leave it out"
    return ""


def _java(arguments: list[str]) -> str:
    for argument in arguments:
        plain = argument.removeprefix("-J").lower()
        if plain.startswith(JVM_SWITCHES):
            return f"`{argument}` loads code into the JVM or starts a program; leave it out"
    return ""


def _maven(arguments: list[str]) -> str:
    for operand in operands(PROGRAMS["mvn"], arguments):
        goal = operand.strip().lower().partition("@")[0]
        plugin, _, name = goal.rpartition(":")
        if not plugin:
            if goal not in MAVEN_PHASES:
                why = PUBLISHES if "deploy" in goal else "only build phases up to `install` may be run; use `test`"
                return f"`{operand}`: {why}"
            continue
        parts = plugin.split(":")
        group, artifact = (parts[0], parts[1]) if len(parts) > 1 else ("", parts[0])
        short = re.sub(r"^maven-(.+)-plugin$|^(.+)-maven-plugin$", r"\1\2", artifact) if group else artifact
        known = short in MAVEN_PLUGINS and (not group or group in MAVEN_GROUPS)
        if not known or f"{short}:{name}" in MAVEN_GOALS:
            return (
                f"`{operand}`: of plugins' goals only those that build, test and report may be run; use a phase"
                " such as `test` or `verify`"
            )
    return ""


def _gradle(arguments: list[str]) -> str:
    """Tasks that publish, in any project, under any abbreviation that Gradle takes."""
    for operand in operands(PROGRAMS["gradle"], arguments):
        task = operand.rpartition(":")[2]
        if task.lower().startswith(GRADLE_BEGINNINGS):
            return f"`{operand}`: {PUBLISHES}"
        for name in GRADLE_TASKS:
            if _abbreviates(task, name):
                return f"`{operand}` can stand for `{name}`: {PUBLISHES if name != 'wrapper' else INSTALLS}"
    return ""


def _abbreviates(given: str, name: str) -> bool:
    """Whether Gradle may read a task's name into this: the beginnings of its words, in order."""
    humps = [part.lower() for part in re.findall(r"[A-Z0-9]?[^A-Z0-9\-]+|[A-Z0-9]", given)]
    words = [part.lower() for part in re.findall(r"[A-Z]?[^A-Z]+", name)]
    if not humps or not words[0].startswith(humps[0]):
        return False
    rest = iter(words[1:])
    return all(any(word.startswith(hump) for word in rest) for hump in humps[1:])


def _go(arguments: list[str]) -> str:
    command, rest = arguments[0], arguments[1:]
    flags = {"-" + argument.lstrip("-").partition("=")[0] for argument in rest if argument.startswith("-")}
    if command == "env" and flags & {"-w", "-u"}:
        return "`go env -w` changes Go's configuration; use `go env` to read it"
    if command == "mod" and (not rest or rest[0] not in ("graph", "why", "verify", "tidy")):
        return "`go mod` may graph, why, verify and tidy; edit go.mod with apply_patch"
    if command == "run" and any("@" in argument for argument in rest):
        return f"`go run` of a package with a version: {INSTALLS}"
    if any("-extld" in argument or "-extar" in argument for argument in rest):
        return f"a linker of your own: {STARTS}"
    return ""


def _make(arguments: list[str]) -> str:
    for argument in arguments:
        found = re.match(r"\s*([^\s=:+?!]+)\s*(:{0,3}|[+?!])=", argument)
        if found is None:
            continue
        if found.group(1) in MAKE_VARIABLES or found.group(2) == "!":
            return f"`{argument}` chooses what runs the recipes; leave it to the Makefile"
        if re.search(r"\$[({]", argument):
            return f"`{argument}` is evaluated by make; give plain text"
    return ""


def _git(arguments: list[str], rest: list[str]) -> str:
    """`-O` opens a pager of one's choice in `grep` alone, where it may hide among other letters."""
    grep = Program(flags="efABCm")
    searching = "grep" in arguments[: len(arguments) - len(rest)]
    for argument in rest:
        if argument.startswith("-O") or (searching and in_cluster(grep, "O", argument) is not None):
            return f"`{argument}`: {STARTS if searching else ELSEWHERE}"
    return ""


# A bracket expression may hold the delimiter for some versions of sed and not for others, so here it may not.
_REGEX = r"/(?:[^/\\\n\[]|\\[^\n]|\[\^?\]?[^\]/\\\n]*\])*/[IM]*"
_ADDRESS = rf"(?:\d+(?:~\d+)?|\$|{_REGEX})"
_FOUND = r"(?:(?!(?P=by))[^\\\n\[]|\\[^\n]|\[\^?\]?(?:(?!(?P=by))[^\]\\\n])*\])*"
_CHANGE = rf"s(?P<by>[/|#,@%!:]){_FOUND}(?P=by)(?:(?!(?P=by))[^\\\n]|\\[^\n])*(?P=by)[gpiIM0-9]*"
_STEP = re.compile(
    rf"[\s;]*(?:{_ADDRESS}(?:,\s*(?:{_ADDRESS}|[+~]\d+))?)?\s*!?\s*(?:(?:{_CHANGE}|[pdqQ=nNgGhHxPD])(?=[\s;}}]|\Z)|\{{|\}})"
)


def _sed(arguments: list[str]) -> str:
    """Only commands that print, delete and substitute: others run programs and touch other files."""
    if arguments[:1] == ["--sandbox"]:
        return ""
    scripts: list[str] = []
    program = PROGRAMS["sed"]
    for number in range(len(arguments)):
        for option in ("-e", "--expression"):
            scripts += values(program, option, arguments, number)
    for script in scripts or list(operands(program, arguments, everything=True))[:1]:
        place = 0
        while found := _STEP.match(script, place):
            place = found.end()
        left = script[place:].strip(" \t\n;")
        if left:
            return f"`{left[:80]}`: only p, d, q, = and s/// are known to be harmless; put --sandbox first for others"
    return ""
