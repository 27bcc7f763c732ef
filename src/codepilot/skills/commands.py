"""Which commands an agent may run, by program and argument. Standard library only: this source also runs inside."""

from __future__ import annotations

from pathlib import PurePath

TOOLS: dict[str, tuple[str, ...]] = {
    "python": ("python", "python3", "pytest", "tox", "nox", "ruff", "mypy", "coverage"),
    "java": ("mvn", "mvnw", "gradle", "gradlew", "java", "javac"),
    "javascript": ("node", "npm", "npx", "yarn", "pnpm", "tsc", "jest", "vitest"),
    "other": ("go", "cargo", "make", "git"),
    "look": ("rg", "grep", "ls", "cat", "head", "tail", "wc", "find", "diff", "sed", "sort", "uniq"),
}
ALLOWED = frozenset(program for programs in TOOLS.values() for program in programs)
GIT_ALLOWED = frozenset(
    {
        "add",
        "apply",
        "blame",
        "checkout",
        "diff",
        "grep",
        "log",
        "ls-files",
        "reset",
        "restore",
        "show",
        "stash",
        "status",
    }
)
REFUSED_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "mvn": ("deploy", "release:", "site-deploy", "-s", "--settings", "-gs", "--global-settings", "-Dmaven.ext"),
    "gradle": ("publish", "uploadArchives", "-I", "--init-script"),
    "npm": ("publish", "login", "adduser", "token", "config"),
    "cargo": ("publish", "login"),
    "find": ("-exec", "-execdir", "-delete", "-ok"),
    "rg": ("--pre",),
}
SAME_RULES = {"mvnw": "mvn", "gradlew": "gradle", "yarn": "npm", "pnpm": "npm"}
INSTALLERS = frozenset({"pip", "ensurepip", "easy_install"})


class PolicyError(Exception):
    """Something the task's policy forbids. The platform counts these; the message says what to do instead."""

    def __init__(self, rule: str, skill: str, attempt: str) -> None:
        super().__init__(f"[{rule}] {skill}: {attempt}")


def refusal(cmd: list[str]) -> tuple[str, str]:
    """The rule that forbids a command and the reason, or two empty strings."""
    program = PurePath(cmd[0]).name
    if program not in ALLOWED:
        return "command.unknown", f"only these programs may be run: {', '.join(sorted(ALLOWED))}"
    if program == "git":
        return _git(cmd[1:])
    if program in ("python", "python3") and cmd[1:2] == ["-m"] and cmd[2:3] and cmd[2] in INSTALLERS:
        return "command.install", "packages cannot be installed here; use what the project has"
    for refused in REFUSED_ARGUMENTS.get(SAME_RULES.get(program, program), ()):
        if any(_is(argument, refused) for argument in cmd[1:]):
            return f"command.{program}", f"`{refused}` is not allowed with {program}"
    return "", ""


def _git(arguments: list[str]) -> tuple[str, str]:
    if not arguments or arguments[0] not in GIT_ALLOWED:
        return "command.git", f"only these git commands may be run: {', '.join(sorted(GIT_ALLOWED))}"
    if any(argument.startswith(("--ext-diff", "--textconv", "--open-files-in-pager", "-O")) for argument in arguments):
        return "command.git", "options that start other programs are not allowed"
    return "", ""


def _is(argument: str, refused: str) -> bool:
    """Whether an argument is the refused one. Goals and properties count by their beginning, options as a whole."""
    if refused.startswith("-") and not refused.startswith("-D"):
        return argument == refused or argument.startswith(refused + "=")
    return argument.startswith(refused)
