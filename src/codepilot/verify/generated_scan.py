"""Reads a generated program before it runs: what it may not do, and what a person has to allow.

Blocked imports and calls go back to the agent. Network, other programs and packages are asked about. The sandbox is the
boundary; this keeps the programs that users get free of what they did not ask for. Pure.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from typing import Literal
from urllib.parse import urlsplit

from codepilot.core.task import Language
from codepilot.verify import generated_scripts
from codepilot.verify.generated_sign import LOOPBACK, Sign, first_line

BLOCKED_MODULES: Mapping[str, str] = {
    "os": "use pathlib for files, shutil and tempfile for directories, and pass settings as arguments",
    "pty": "a program needs no terminal of its own",
    "ctypes": "native code can do anything; use the standard library",
    "cffi": "native code can do anything; use the standard library",
    "pickle": "loading a pickle runs code; use json",
    "marshal": "loading it runs code; use json",
    "shelve": "it stores pickles; use json or sqlite3",
    "dill": "loading a pickle runs code; use json",
}
HARMLESS_MEMBERS: Mapping[str, frozenset[str]] = {
    "os": frozenset({"path", "environ", "getenv", "PathLike", "fspath", "sep", "linesep"})
}
"""Members of blocked modules that may be imported by name."""
BLOCKED_CALLS: Mapping[str, str] = {
    "eval": "code made from text; use ast.literal_eval or json.loads for data",
    "exec": "code made from text; write the code out",
    "compile": "code made from text; write the code out",
    "__import__": "import the module by name at the top of the file",
    "importlib.import_module": "import the module by name at the top of the file",
    "breakpoint": "nobody is there to answer",
}
NETWORK = frozenset(
    (
        *("socket", "ssl", "urllib.request", "http.client", "ftplib", "smtplib", "poplib", "imaplib", "telnetlib"),
        *("nntplib", "xmlrpc.client", "requests", "httpx", "aiohttp", "urllib3", "websockets", "websocket", "paramiko"),
        *("pycurl", "grpc", "boto3"),
    )
)
PROGRAMS = frozenset({"subprocess", "multiprocessing", "pexpect", "sh", "asyncio.subprocess"})
PROGRAM_CALLS = frozenset(
    {"os.system", "os.popen", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"}
    | {f"os.{kind}{end}" for kind in ("exec", "spawn") for end in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")}
)
OFFERED = frozenset({"pytest", "hypothesis", "_pytest"})
"""Packages that the tests of every build have."""


def scan_program(files: Mapping[str, bytes], language: Language, there: frozenset[str] = frozenset()) -> list[Sign]:
    """What is found in the files of a program. `there` are the packages that its environment has beyond the usual."""
    read = {"python": _scan_python, "node": generated_scripts.scan_node, "java": generated_scripts.scan_java}[language]
    return [sign for sign in read(files, there) if not (sign.kind == "network" and sign.local)]


def _scan_python(files: Mapping[str, bytes], there: frozenset[str]) -> Iterator[Sign]:
    sources = {path: content for path, content in files.items() if path.endswith((".py", ".pyw"))}
    own = {part for path in sources for part in _modules(path)}
    known = own | OFFERED | there | sys.stdlib_module_names
    for path, content in sources.items():
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # the tests say what is wrong with it
        yield from _Reader(path, content.decode("utf-8", "replace"), tree, own, known).signs()


def _modules(path: str) -> set[str]:
    """The names by which a file of the program can be imported."""
    parts = path.removesuffix(".pyw").removesuffix(".py").split("/")
    return {parts[0], parts[-1], *(parts[1:2] if parts[0] in ("src", "tests", "test") else ())}


class _Reader:
    """One walk over a file."""

    def __init__(self, path: str, text: str, tree: ast.Module, own: set[str], known: set[str] | frozenset[str]) -> None:
        self.path, self.lines, self.own, self.known = path, text.splitlines(), own, known
        self.nodes = list(ast.walk(tree))
        self.names = dict(_imported(self.nodes))
        self.bound = {node.name for node in self.nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        self.hosts = _hosts(self.nodes)

    def signs(self) -> Iterator[Sign]:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._import(alias.name, "", node)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    yield from self._import(node.module, alias.name, node)
            elif isinstance(node, ast.Call):
                yield from self._call(node)

    def _sign(
        self, kind: Literal["blocked", "network", "command", "install"], subject: str, why: str, node: ast.AST
    ) -> Sign:
        line = getattr(node, "lineno", 1)
        return Sign(kind, self.path, line, subject, why, first_line(self.lines, line), self.hosts)

    def _import(self, module: str, member: str, node: ast.AST) -> Iterator[Sign]:
        first = module.partition(".")[0]
        if first in self.own and first not in sys.stdlib_module_names:
            return
        full = f"{module}.{member}" if member else module
        if first in BLOCKED_MODULES:
            allowed = HARMLESS_MEMBERS.get(first, frozenset())
            if (module.partition(".")[2].partition(".")[0] or member) not in allowed:
                yield self._sign("blocked", f"import {module}", BLOCKED_MODULES[first], node)
        elif any(f"{full}.".startswith(f"{name}.") for name in NETWORK):
            yield self._sign("network", first, f"`{full}` talks to the network", node)
        elif any(f"{full}.".startswith(f"{name}.") for name in PROGRAMS):
            yield self._sign("command", first, f"`{full}` starts other programs", node)
        if first not in self.known:
            yield self._sign("install", first, f"the package `{first}` is not installed", node)

    def _call(self, node: ast.Call) -> Iterator[Sign]:
        name = self._called(node.func)
        if name in BLOCKED_CALLS:
            yield self._sign("blocked", f"{name}()", BLOCKED_CALLS[name], node)
        elif name in PROGRAM_CALLS:
            yield self._sign("command", name, f"`{name}` starts other programs", node)
        elif name in ("open", "io.open", "pathlib.Path", "Path") and node.args:
            given = node.args[0]
            path = given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else ""
            if leads_out(path):
                yield self._sign("blocked", f"{name}({path!r})", "it lies outside of the program's directory", node)

    def _called(self, func: ast.AST) -> str:
        """The dotted name of what is called; empty if it is computed or the program's own."""
        parts: list[str] = []
        while isinstance(func, ast.Attribute):
            parts.append(func.attr)
            func = func.value
        if not isinstance(func, ast.Name) or (not parts and func.id in self.bound):
            return ""
        first = self.names.get(func.id, func.id)
        return ".".join([first, *reversed(parts)]).removeprefix("builtins.")


def leads_out(path: str) -> bool:
    """True for a path outside of the program's directory and of scratch space."""
    if path.startswith(("/tmp/", "/dev/null")):
        return False
    return path.startswith(("/", "~")) or ".." in path.split("/")


def _imported(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _hosts(nodes: list[ast.AST]) -> tuple[str, ...]:
    """The hosts that the constants of a file name: in URLs, and loopback names on their own."""
    found: dict[str, None] = {}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if "://" in text:
                try:
                    host = urlsplit(text.strip()).hostname
                except ValueError:
                    continue
                if host:
                    found[host] = None
            elif text in LOOPBACK:
                found[text] = None
    return tuple(found)
