"""Reads an action's source before it runs and gives advice and policy findings. The sandbox is the boundary, not this.

Code can always hide what it does from a reader of its text. Actions are refused that cannot work or that
harm the agent's own work: network and native code, shells, signals, and waiting for a person. Code made from text
(`eval`, `exec`) and reading elsewhere are harmless in the sandbox: they get advice, and are refused only when strict.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from codepilot.core.permit import Action, Decision, permit
from codepilot.skills.wanted_command import hosts_in, wanted_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codepilot.core.permit import Kind, Rules

MAX_CODE = 300_000
MAX_FINDINGS = 20
MAX_HOSTS = 5
UNKNOWN = "import.unknown"
_LINE_END = re.compile(r"\r\n|\r|\n")

_NETWORK = (
    "there is no network here. Use what the workspace holds; code of the project that needs it is run by its tests"
)
_NATIVE = "native calls can crash this Python process. Use the standard library, or a program through run_command"
_INSTALL = "packages cannot be installed here. Use what the project has"


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


REFUSED_MODULES: dict[str, str] = {
    **dict.fromkeys(
        _names(
            "socket ssl socketserver urllib.request http.client http.server ftplib smtplib smtpd poplib imaplib nntplib"
            " telnetlib xmlrpc webbrowser asyncore asynchat requests httpx aiohttp urllib3 paramiko websocket"
            " websockets pycurl grpc boto3"
        ),
        _NETWORK,
    ),
    **dict.fromkeys(("ctypes", "_ctypes", "cffi", "_posixsubprocess"), _NATIVE),
    "pty": "there is no terminal here. Use run_command",
    **dict.fromkeys(("pip", "ensurepip", "venv", "virtualenv"), _INSTALL),
}
"""Each name stands for all below it."""
ALLOWED_MODULES = frozenset(
    {
        *("os", "subprocess", "pathlib", "json", "re", "shutil", "difflib", "textwrap", "xml.etree.ElementTree"),
        *sys.stdlib_module_names,
        *("pytest", "codepilot_kernel"),
    }
)

_SHELL = "it bypasses run_command, which knows what may be run. Use run_command([...])"
_FORK = "it copies this Python process with its connection to the platform. Use run_command or concurrent.futures"
_SIGNAL = "it can end this Python process. Stop only what you started, with its Popen object"
_PERSON = "nobody is there to answer. Give the value in the code"
_TEXT = "code made from text cannot be judged before it runs. Write the code out, or run_command(['python', file])"
REFUSED_CALLS: dict[str, str] = {
    **dict.fromkeys(("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"), _SHELL),
    **dict.fromkeys((f"os.exec{end}" for end in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")), _SHELL),
    **dict.fromkeys((f"os.spawn{end}" for end in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")), _SHELL),
    **dict.fromkeys(("os.posix_spawn", "os.posix_spawnp"), _SHELL),
    **dict.fromkeys(("os.fork", "os.forkpty"), _FORK),
    **dict.fromkeys(("os.kill", "os.killpg", "signal.pthread_kill", "signal.raise_signal"), _SIGNAL),
    **dict.fromkeys(("input", "breakpoint", "pdb.set_trace", "getpass.getpass"), _PERSON),
}
_BUILTINS = frozenset(dir(builtins))
_IMPORTING = ("__import__", "importlib.import_module")
_MISSING = "is neither of the standard library nor of the project, and may be missing here. Use what those have"
ADVISED_CALLS: dict[str, str] = dict.fromkeys(("eval", "exec", "__import__", "importlib.import_module"), _TEXT)
SUBPROCESS = frozenset(f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output"))
_MODULES = frozenset({"os", "subprocess", "signal", "importlib", "io", "pathlib", "pdb", "getpass", "builtins"})
"""Modules an earlier action may have imported."""

warnings.filterwarnings("ignore", module="<action>")


@dataclass(frozen=True)
class Finding:
    """One place of an action, with the rule it touches. `refused` findings keep the action from running."""

    rule: str
    line: int
    message: str
    source: str
    refused: bool
    module: str = ""
    """The module that is imported, as the code names it."""
    decision: Decision | None = None
    """The policy's decision, if it is more than advice."""

    @property
    def asked(self) -> bool:
        """True if a person has to allow it, or full autonomy does and goes on record."""
        decision = self.decision
        if decision is None or decision.effect not in ("ask", "allow"):
            return False
        return decision.effect == "ask" or (bool(decision.action.asks) and not decision.action.granted)

    def __str__(self) -> str:
        return f"line {self.line}: {self.source}\n  [{self.rule}] {self.message}."


def check_action(
    code: str,
    policy: Rules,
    known: frozenset[str] = frozenset(),
    *,
    root: str = "",
    capability: str = "write_and_run_tests",
    interaction: str = "ask_before_risky",
    granted: tuple[str, ...] = (),
    tools: frozenset[str] | None = None,
) -> tuple[Finding, ...]:
    """The policy's findings about an action. `known` are the project's own modules, `granted` the commands that a
    person allowed, `tools` the names that are tools; without them all but Python's own are.
    """
    off = policy.imports == "off"
    if off and not (policy.tools.allow or policy.tools.ask or policy.tools.deny or policy.arguments):
        return ()
    if len(code) > MAX_CODE:
        message = f"an action of {len(code):,} characters is not read, and therefore not run. Do it in smaller steps"
        return (Finding("code.size", 1, message, "", True),)
    try:
        tree = ast.parse(code, "<action>")
    except (SyntaxError, ValueError):
        return ()
    except (RecursionError, MemoryError):
        return (Finding("code.nesting", 1, "the code is nested too deeply to be read. Write it flatter", "", True),)
    reader = _Reader(tree, known, root, granted, policy, tools)
    lines = _LINE_END.split(code)
    found: dict[tuple[str, int, str], Finding] = {}
    denied: set[tuple[int, str]] = set()
    for wanted, node, module in reader.findings():
        place = (id(node), wanted.subject)
        if place in denied or (off and not wanted.tool):
            continue
        decision = permit(policy, capability, interaction, wanted)
        computed = wanted.subject in _IMPORTING and decision.effect != "deny"
        if not decision.rule or computed:
            continue
        open_question = bool(wanted.asks) and not wanted.granted
        asking = decision.effect == "ask" and not wanted.advisory
        serious = asking or open_question or decision.effect in ("deny", "sanitise")
        line = getattr(node, "lineno", 1)
        source = lines[line - 1].strip()[:300] if 0 < line <= len(lines) else ""
        if decision.effect == "deny":
            denied.add(place)
        if wanted.tool and not serious:
            continue
        refused = decision.effect == "deny"
        finding = Finding(decision.rule, line, decision.reason, source, refused, module, decision if serious else None)
        found.setdefault((decision.reason, line, wanted.about), finding)
    ordered = sorted(found.values(), key=lambda one: (not one.refused, one.line, one.rule))
    return tuple(ordered[:MAX_FINDINGS])


def unknown_modules(findings: tuple[Finding, ...]) -> frozenset[str]:
    """The modules that are on no list, by their first names: what a caller may look for in the project."""
    return frozenset(one.module.partition(".")[0] for one in findings if one.rule == UNKNOWN)


_Found = tuple[Action, ast.AST, str]
"""The action, its node, and the module that it imports."""


def _wanted(kind: Kind, subject: str, rule: str, why: str, *, advisory: bool = False, host: str = "") -> Action:
    """An action; a full shell and a network lift the rules about them. A person may allow a host that is named."""
    lifted, online = "full_shell" if why.endswith(_SHELL) else "", why.endswith(_NETWORK)
    asks = "network" if online and host else ""
    needs = online and not host
    return Action(kind, subject, rule, why, lifted, needs, advisory, asks=asks, about=host if asks else "")


class _Reader:
    """One walk over the tree, without recursion: the depth is the author's choice."""

    def __init__(
        self,
        tree: ast.AST,
        known: frozenset[str],
        root: str,
        granted: tuple[str, ...],
        policy: Rules,
        tools: frozenset[str] | None,
    ) -> None:
        self.nodes = list(ast.walk(tree))
        self.hosts = _hosts_in(self.nodes)
        self.known = known
        self.root = root
        self.granted = granted
        self.open_hosts: Sequence[str] = policy.hosts
        self.patterns = [one.tool for one in policy.arguments]
        self.tools = tools
        self.names: dict[str, str] = {}
        self.starred: list[str] = []
        self.bound: set[str] = set()
        for node in self.nodes:
            self._learn(node)

    def findings(self) -> Iterator[_Found]:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._import(alias.name, node)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    yield from self._import(node.module, node, alias.name)
            elif isinstance(node, ast.Call):
                yield from self._call(node)

    def _learn(self, node: ast.AST) -> None:
        """Learn what a name stands for."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    self.names[alias.asname] = alias.name
                else:
                    first = alias.name.partition(".")[0]
                    self.names[first] = first
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if alias.name == "*":
                    self.starred.append(node.module)
                else:
                    self.names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.ImportFrom):
            self.bound.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.bound.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self.bound.add(node.id)
        elif isinstance(node, ast.arg):
            self.bound.add(node.arg)

    def _import(self, module: str, node: ast.AST, member: str = "") -> Iterator[_Found]:
        full = f"{module}.{member}" if member else module
        first = module.partition(".")[0]
        ours = first in self.known and first not in sys.stdlib_module_names
        for refused, why in REFUSED_MODULES.items():
            if not ours and f"{full}.".startswith(f"{refused}."):
                why = f"`{refused}` may not be imported: {why}"
                for host in [one for one in self.hosts if not self._is_open(one)][:MAX_HOSTS] or ("",):
                    yield _wanted("import", full, f"import.{refused}", why, host=host), node, module
        if first not in ALLOWED_MODULES and first not in self.known:
            why = f"`{module[:100]}` {_MISSING}"
            yield _wanted("import", full, UNKNOWN, why, advisory=True), node, full

    def _is_open(self, host: str) -> bool:
        return any(fnmatchcase(host, one) or fnmatchcase(host.partition(":")[0], one) for one in self.open_hosts)

    def _call(self, node: ast.Call) -> Iterator[_Found]:
        name = self._called(node.func)
        if name is None:
            return
        if isinstance(node.func, ast.Name) and name == node.func.id and name not in self.bound:
            yield from self._tool(name, node)
        if name in REFUSED_CALLS:
            why = f"`{name}` may not be called: {REFUSED_CALLS[name]}"
            yield _wanted("call", name, f"call.{name}", why), node, ""
        elif name in ADVISED_CALLS:
            yield from self._made_from_text(name, node)
        elif name in SUBPROCESS:
            yield from self._started(name, node)
        elif name in ("open", "io.open") and self.root:
            yield from self._opened(node)

    def _made_from_text(self, name: str, node: ast.Call) -> Iterator[_Found]:
        given = _text(node.args[0]) if node.args else None
        if name in ("eval", "exec"):
            why = f"`{name}`: {ADVISED_CALLS[name]}"
            yield _wanted("call", name, f"call.{name}", why, advisory=True), node, ""
        elif given is not None:
            yield from self._import(given, node)
        else:
            why = f"`{name}` of a name that is computed: {ADVISED_CALLS[name]}"
            yield _wanted("call", name, f"call.{name}", why, advisory=True), node, ""

    def _started(self, name: str, node: ast.Call) -> Iterator[_Found]:
        for keyword in node.keywords:
            if keyword.arg == "shell" and isinstance(keyword.value, ast.Constant) and keyword.value.value:
                yield _wanted("call", name, "call.shell", f"`{name}` with shell=True: {_SHELL}"), node, ""
                return
        given = next((keyword.value for keyword in node.keywords if keyword.arg == "args"), None)
        if node.args:
            given = node.args[0]
        if words := _words(given):
            wanted = wanted_command(words)
            if wanted.rule:
                subject = wanted.subject[:200]
                unlisted = wanted.rule in ("command.unknown", "command.path")
                asking = "; use run_command, which asks" if wanted.asks else ""
                why = f"`{subject}`: {wanted.reason}{asking}"
                yield Action("command", subject, wanted.rule, why, lifted_by="full_shell", advisory=unlisted), node, ""

    def _tool(self, name: str, node: ast.Call) -> Iterator[_Found]:
        """A call of a tool; a command that `run_command` is given in so many words is read here, before it runs."""
        if name in _BUILTINS if self.tools is None else name not in self.tools:
            return
        if name == "run_command":
            given = node.args[0] if node.args else next((one.value for one in node.keywords if one.arg == "cmd"), None)
            if words := _words(given):
                wanted = wanted_command(words, self.granted)
                if wanted.asks or not wanted.rule:
                    yield wanted, node, ""
                return
        values = [*node.args[:1], *(one.value for one in node.keywords[:1])]
        first = next((text for one in values if (text := _text(one)) is not None), None)
        if first and any(fnmatchcase(name, one) for one in self.patterns):
            yield Action("tool", first, tool=name, about=f"{name} {first}"), node, ""
        else:
            yield Action("tool", name, tool=name), node, ""

    def _opened(self, node: ast.Call) -> Iterator[_Found]:
        path = _text(node.args[0]) if node.args else None
        if path is None or not path.startswith("/") or path.startswith(("/tmp/", "/dev/null", "/proc/self/")):
            return
        if f"{path}/".startswith(f"{self.root.rstrip('/')}/") and "/../" not in f"{path}/":
            return
        modes = [one.value for one in node.keywords if one.arg == "mode"] + node.args[1:2]
        writes = any(set(_text(mode) or "") & set("wax+") for mode in modes)
        what = "may not be written" if writes else "is not of the workspace and may be missing or different here"
        message = f"`{path[:200]}` {what}. Use paths relative to the workspace"
        yield _wanted("path", path[:200], "path.outside", message, advisory=not writes), node, ""

    def _called(self, func: ast.AST) -> str | None:
        """The dotted name of what is called, through aliases and constant `getattr`; None if it is computed."""
        parts: list[str] = []
        while True:
            if isinstance(func, ast.Attribute):
                parts.append(func.attr)
                func = func.value
            elif (
                isinstance(func, ast.Call)
                and isinstance(func.func, ast.Name)
                and func.func.id == "getattr"
                and len(func.args) > 1
                and (member := _text(func.args[1])) is not None
            ):
                parts.append(member)
                func = func.args[0]
            else:
                break
        first = self._stands_for(func, bool(parts))
        return None if first is None else ".".join([first, *reversed(parts)]).removeprefix("builtins.")

    def _stands_for(self, node: ast.AST, dotted: bool) -> str | None:
        """The meaning of the first part of a dotted name; `__import__("os")` is a name, too."""
        if isinstance(node, ast.Call) and dotted and node.args and _is_short(node.func):
            return _text(node.args[0]) if self._called(node.func) in _IMPORTING else None
        if not isinstance(node, ast.Name):
            return None
        if node.id in self.names:
            return self.names[node.id]
        if node.id in self.bound or (dotted and node.id not in _MODULES):
            return None
        meant = (f"{module}.{node.id}" for module in self.starred)
        return next((name for name in meant if name in REFUSED_CALLS or name in SUBPROCESS), node.id)


def _words(given: ast.AST | None) -> list[str]:
    """A command that is written out; empty if a part of it is computed."""
    if not isinstance(given, (ast.List, ast.Tuple)) or not given.elts:
        return []
    words = [_text(one) for one in given.elts]
    return [] if any(not word for word in words) else [word for word in words if word]


def _hosts_in(nodes: list[ast.AST]) -> tuple[str, ...]:
    """The hosts of all URLs that the code names."""
    return tuple(dict.fromkeys(host for node in nodes if (text := _text(node)) for host in hosts_in(text)))


def _is_short(func: ast.AST) -> bool:
    """True for a name or a member of one; longer chains may be arbitrarily deep."""
    return isinstance(func.value if isinstance(func, ast.Attribute) else func, ast.Name)


def _text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
