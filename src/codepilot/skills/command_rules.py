"""Rules for the commands an agent may run, with advice for the others. Standard library only: shipped into the sandbox.

The rules keep an agent to building, testing and looking. They are advice: code that an agent writes can do what is
refused here, and the sandbox bounds both.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codepilot.skills.lazy_loader import FOLDER

ROOT = FOLDER
PYTHON = sys.executable


@dataclass(frozen=True)
class Program:
    """The rules of one program."""

    options: dict[str, str] = field(default_factory=dict)
    """Refused options, separated by spaces, each group with the reason."""
    commands: frozenset[str] | None = None
    """The subcommands that may be used, if the program has subcommands."""
    before: frozenset[str] = frozenset()
    """The options that may stand before the subcommand."""
    hint: str = ""
    """Advice for other subcommands."""
    builds: bool = False
    """Its operands are targets, goals or scripts: those that publish are refused."""
    reads: bool = False
    """Its operands are files that it reads."""
    valued: frozenset[str] = frozenset()
    """Options that take the next argument as their value."""


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


STARTS = "it starts another program; run that program itself"
WRITES = "it writes to a file of your choice; take the output and use write_file"
PUBLISHES = "publishing is not part of a task; leave it to the people who accept the change"
INSTALLS = "packages cannot be installed here; use what the project has"
LISTENS = "nothing can connect to it here; run the tests instead"
ENDLESS = "it would never end; leave the option out"

REFUSED_MODULES: dict[str, str] = {
    **dict.fromkeys(_set("pip ensurepip easy_install pipx uv poetry conda pdm hatch"), INSTALLS),
    **dict.fromkeys(_set("venv virtualenv"), "an environment without packages is of no use; the project's is set up"),
    **dict.fromkeys(_set("http.server xmlrpc.server socketserver smtpd wsgiref idlelib"), LISTENS),
    **dict.fromkeys(_set("pty telnetlib ftplib smtplib webbrowser"), "there is no terminal and no network"),
    "twine": PUBLISHES,
}
"""Modules that `python -m` may not start; a package's name covers its submodules."""

INSTEAD: dict[str, str] = {
    **dict.fromkeys(
        _set("sh bash zsh dash fish ksh csh cmd powershell pwsh env xargs nohup time timeout watch script exec eval"),
        "there is no shell; run the program itself, and use Python for pipes, loops and variables",
    ),
    **dict.fromkeys(_set("cd pushd"), "every command runs in the workspace's root; use paths relative to it"),
    **dict.fromkeys(_set("echo printf pwd whoami date which type export set source"), "use Python: print, os, shutil"),
    **dict.fromkeys(_set("rm rmdir cp mv mkdir touch ln chmod tee dd truncate install"), "use pathlib and shutil"),
    **dict.fromkeys(_set("awk gawk perl ruby tr cut paste jq yq column comm nl tac rev"), "use Python for text"),
    **dict.fromkeys(_set("tree file stat du df realpath basename dirname less more"), "use list_files and read_file"),
    **dict.fromkeys(_set("ag ack fd"), "use search_code and list_files"),
    **dict.fromkeys(_set("patch ed ex vi vim nano emacs"), "use edit_file, apply_patch or write_file"),
    **dict.fromkeys(_set("pip pip3 uv poetry pipx conda pdm apt apt-get yum dnf apk brew gem bundle"), INSTALLS),
    **dict.fromkeys(_set("curl wget ssh scp rsync nc ncat telnet ftp sftp"), "there is no network"),
    **dict.fromkeys(_set("docker podman kubectl helm systemctl service sudo su doas"), "there is none here"),
    **dict.fromkeys(_set("black isort flake8 pylint unittest"), 'use ["python", "-m", name]'),
    **dict.fromkeys(_set("kill pkill killall"), "stop what you started with its Popen object"),
}
"""Advice for programs that are often requested and not available."""

PYTHON_TOOLS = _set("pytest tox nox ruff mypy coverage")
NODE_TOOLS = _set("tsc jest vitest eslint prettier mocha tsx ts-node ava tap c8 nyc stylelint biome oxlint")
PLACES = _set("/bin /sbin /usr/bin /usr/sbin /usr/local/bin node_modules/.bin")
WRAPPERS = {"mvnw": "mvn", "gradlew": "gradle"}
PATTERN_FIRST = _set("rg grep sed")
"""Programs whose first operand is a pattern or a script, unless an option gave it."""

_GIT = _set(
    "blame check-ignore describe diff grep log ls-files ls-tree merge-base rev-parse shortlog show status"
    " add apply checkout mv reset restore rm stash"
)
_SCRIPTS = _set("test t tst run run-script why ls list")
_ELSEWHERE = {"--global -g --location": INSTALLS, "--userconfig --globalconfig --registry": INSTALLS, "--call": STARTS}

PROGRAMS: dict[str, Program] = {
    **dict.fromkeys(_set("python pytest ruff coverage java javac tsc jest vitest eslint"), Program()),
    "tox": Program(options={"--installpkg": INSTALLS}),
    "nox": Program(options={"--install-only": INSTALLS}),
    "mypy": Program(options={"--install-types": INSTALLS}),
    "node": Program(options={"--inspect --inspect-brk --inspect-wait": LISTENS}),
    "mvn": Program(builds=True, valued=_set("-f --file -P -pl -rf -T -D --define -l --log-file")),
    "gradle": Program(
        options={"--scan": PUBLISHES, "-t --continuous": ENDLESS},
        builds=True,
        valued=_set("-x --exclude-task -D -P -p --project-dir -b --build-file --tests"),
    ),
    "make": Program(builds=True, valued=_set("-f --file -C --directory -o -W -I")),
    "npm": Program(
        options=_ELSEWHERE,
        commands=_SCRIPTS | _set("rum urn la ll explain root prefix query help"),
        before=_set("--silent -s --quiet -q --offline"),
        hint='use ["npm", "test"] or ["npm", "run", script]',
        builds=True,
    ),
    "yarn": Program(
        options=_ELSEWHERE,
        commands=_SCRIPTS | NODE_TOOLS | _set("info build lint check typecheck"),
        before=_set("--silent -s --offline"),
        hint='use ["yarn", "run", script]',
        builds=True,
    ),
    "pnpm": Program(
        options=_ELSEWHERE,
        commands=_SCRIPTS | NODE_TOOLS | _set("build lint check typecheck"),
        before=_set("--silent -s --offline -r --recursive"),
        hint='use ["pnpm", "run", script]',
        builds=True,
    ),
    "npx": Program(
        commands=NODE_TOOLS,
        before=_set("--no --no-install --offline --quiet -q"),
        hint="npx fetches what the project lacks; name one of its own tools",
    ),
    "cargo": Program(
        commands=_set("build b check c test t run r bench doc d clippy fmt tree metadata clean version nextest"),
        before=_set("-q --quiet -v --verbose --offline --locked --frozen"),
        hint='use ["cargo", "test"], build, check or clippy; the toolchain is the one there is',
    ),
    "go": Program(
        options={"-exec -toolexec -vettool --exec --toolexec --vettool": STARTS},
        commands=_set("build test vet fmt list run doc version env mod help"),
        hint='use ["go", "test", "./..."], build, vet, list or run of the project',
    ),
    "git": Program(
        options={
            "--ext-diff --textconv --open-files-in-pager": STARTS,
            "--output": WRITES,
            "--no-index --contents --unsafe-paths": "it leads out of the repository; use diff or read_file",
        },
        commands=_GIT,
        before=_set("--no-pager -P --no-optional-locks --literal-pathspecs"),
        hint=f"these may be used: {', '.join(sorted(_GIT))}",
        reads=True,
    ),
    "find": Program(
        options={
            "-exec -execdir -ok -okdir": "it starts programs; loop over list_files() instead",
            "-delete": "it deletes whatever matches; delete the files you mean with apply_patch or pathlib",
            "-fprint -fprint0 -fprintf -fls": WRITES,
        },
        reads=True,
    ),
    "sed": Program(
        options={"-i --in-place": "files are changed with edit_file or apply_patch, so that every change is seen"},
        valued=_set("-e --expression -l"),
        reads=True,
    ),
    "sort": Program(options={"-o --output": WRITES}, valued=_set("-k --key -S -t"), reads=True),
    "uniq": Program(valued=_set("-f -s -w"), reads=True),
    "tail": Program(options={"-f -F --follow --retry": ENDLESS}, valued=_set("-n --lines -c --bytes"), reads=True),
    "head": Program(valued=_set("-n --lines -c --bytes"), reads=True),
    "rg": Program(
        options={"--pre": STARTS}, valued=_set("-e --regexp -g --glob -t -T -A -B -C -m -r -d --max-depth"), reads=True
    ),
    "grep": Program(valued=_set("-e --regexp -A -B -C -m -d -D --include --exclude"), reads=True),
    "diff": Program(valued=_set("-U -C -I -x -F -W --label"), reads=True),
    **dict.fromkeys(_set("cat wc"), Program(reads=True)),
    "ls": Program(valued=_set("-I -w -T"), reads=True),
}


def refusal(cmd: Sequence[str]) -> tuple[str, str]:
    """The rule that forbids a command, and why with what to do instead; or two empty strings."""
    name, why = _program(cmd[0])
    if why:
        return name, why
    why = _refused(name, list(cmd[1:]))
    return (f"command.{name}", why) if why else ("", "")


def leads_out(cmd: Sequence[str], root: str = "") -> str:
    """An error for an operand outside the workspace, if the program reads its operands; else empty."""
    name, why = _program(cmd[0])
    if why or not PROGRAMS[name].reads:
        return ""
    arguments = list(cmd[1:])
    if name == "find":
        first = (number for number, argument in enumerate(arguments) if argument[:1] in ("-", "(", "!"))
        files = arguments[: next(first, len(arguments))]
    else:
        files = list(_operands(PROGRAMS[name], arguments))
    given = any(re.match(r"-[a-z]*[ef]$|--(regexp|expression|file)\b", argument) for argument in arguments)
    if name in PATTERN_FIRST and not given:
        files = files[1:]
    for operand in files:
        if _outside(operand, root or ROOT):
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
    wrapper = given in (f"./{base}", base) and base in WRAPPERS
    if "/" in given and not wrapper and folder not in PLACES | {str(Path(PYTHON).parent)}:
        return "command.path", f"programs are found by their names, not by a path: use {base!r}"
    return name, ""


def _refused(name: str, arguments: list[str]) -> str:
    """The reason why a program may not get these arguments; else empty."""
    program = PROGRAMS[name]
    rest = arguments
    if program.commands is not None:
        first = next((number for number, a in enumerate(arguments) if a not in program.before), None)
        if first is None or arguments[first] not in program.commands:
            what = f"`{arguments[first]}`" if first is not None else "no command"
            kind = "may not stand before the command" if what.startswith("`-") else "is not among what may be run"
            return f"{what} {kind}; {program.hint}"
        rest = arguments[first + 1 :]
    own = rest[: rest.index("--")] if "--" in rest else rest
    for argument in own:
        for options, why in program.options.items():
            if any(_spells(program, option, argument) for option in options.split()):
                return f"`{argument}`: {why}"
    for operand in _operands(program, own) if program.builds else ():
        if any(part.startswith(("publish", "deploy", "release", "upload", "push")) for part in _parts(operand)):
            return f"`{operand}`: {PUBLISHES}"
    return _module(arguments) if name == "python" else _module(arguments[1:]) if name == "coverage" else ""


def _spells(program: Program, option: str, argument: str) -> bool:
    """True if an argument is an option, with `=` and a value or, for short ones, among other letters (`-ni`)."""
    if argument.partition("=")[0] == option:
        return True
    if len(option) != 2 or not program.reads or not re.match("-[^-]", argument):
        return False
    before, found, _ = argument[1:].partition(option[1])
    return bool(found) and not any(f"-{letter}" in program.valued for letter in before)


def _parts(operand: str) -> list[str]:
    return re.split(r"[:@._-]", operand.lower())


def _module(arguments: list[str]) -> str:
    """The reason why the module that `-m` names may not be started; else empty."""
    value = False
    for number, argument in enumerate(arguments):
        found = re.fullmatch(r"-[A-Za-z]*m(.*)|--module=(.*)", argument)
        if not value and found:
            named = [found.group(1) or found.group(2) or "", *arguments[number + 1 :]]
            module, *rest = [one for one in named if one] or [""]
            tool = module.strip().removesuffix(".__main__")
            if tool in ("runpy", "pdb", "cProfile", "profile", "trace", "coverage"):
                return _module([*rest, *(["-m", rest[0]] if rest and tool == "runpy" else [])])
            for refused, why in REFUSED_MODULES.items():
                if f"{tool}.".startswith(f"{refused}."):
                    return f"`-m {refused}`: {why}"
            return _refused(tool, rest) if tool in PYTHON_TOOLS else ""
        if argument == "-c" or not (value or argument.startswith("-")):
            return ""
        value = argument in ("-W", "-X")
    return ""


def _operands(program: Program, arguments: list[str]) -> Iterator[str]:
    """The arguments that are neither options nor values of options. A lone `--` makes operands of all that follow."""
    value = False
    for number, argument in enumerate(arguments):
        if value:
            value = False
        elif argument == "--":
            yield from arguments[number + 1 :]
            return
        elif argument.startswith("-") and argument != "-":
            value = argument in program.valued
        else:
            yield argument


def _outside(path: str, root: str) -> bool:
    """True if a path leads out of the workspace, libraries and scratch space, through links too."""
    if path in ("-", "/dev/null") or "\0" in path:
        return False
    scratch = Path(os.environ.get("TMPDIR") or "/tmp")
    places = (Path(root), Path(os.__file__).parent, Path(PYTHON).parent.parent / "lib", scratch)
    real = os.path.realpath(Path(root, path))
    return not any(f"{real}/".startswith(os.path.realpath(place).rstrip("/") + "/") for place in places)
