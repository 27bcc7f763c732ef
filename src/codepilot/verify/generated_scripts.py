"""The same for generated programs in JavaScript and Java: what their imports and calls say, read by patterns.

Comments are taken out first. A pattern can be evaded; the sandbox is the boundary.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal
from urllib.parse import urlsplit

from codepilot.verify.generated_sign import LOOPBACK, Sign, first_line

SCRIPT_FILES = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx")
_LINE_COMMENT = re.compile(r"(?<![:\"'`\w])//[^\n]*")
_COMMENT = re.compile(rf"/\*|{_LINE_COMMENT.pattern}")
_LINE_END = re.compile(r"\n")
_SHOWN = re.compile(r"[^\n]")
_IMPORT = re.compile(
    r"""(?:\bfrom\s*|\bimport\s*\(?\s*|\brequire\s*\(\s*)(["'])(?P<name>[^"'\n]{1,200})\1""",
)
_URL = re.compile(r"""["'`](?P<url>(?:https?|wss?)://[^"'`\s$]{1,300})|["'](?P<host>localhost|127\.0\.0\.1|::1)["']""")

Kind = Literal["blocked", "network", "command", "install"]
NODE_MODULES: Mapping[str, tuple[Kind, str]] = {
    "vm": ("blocked", "code made from text; write the code out"),
    "v8": ("blocked", "it reaches into the engine"),
    "inspector": ("blocked", "it reaches into the engine"),
    "worker_threads": ("command", "it starts threads with code of their own"),
    "child_process": ("command", "it starts other programs"),
    "cluster": ("command", "it starts other programs"),
    **dict.fromkeys(("net", "tls", "dgram", "dns", "http2"), ("network", "it talks to the network")),
}
NODE_CALLS: tuple[tuple[re.Pattern[str], Kind, str, str], ...] = (
    (re.compile(r"(?<![\w.$])eval\s*\("), "blocked", "eval()", "code made from text; use JSON.parse for data"),
    (re.compile(r"\bnew\s+Function\s*\("), "blocked", "new Function()", "code made from text; write the code out"),
    (re.compile(r"\bprocess\.(?:binding|dlopen)\b"), "blocked", "process.binding", "it loads native code"),
    (re.compile(r"(?<![\w.$])fetch\s*\("), "network", "fetch", "it talks to the network"),
    (re.compile(r"\bhttps?\.(?:request|get)\s*\("), "network", "http.request", "it talks to the network"),
    (re.compile(r"\bnew\s+WebSocket\s*\("), "network", "WebSocket", "it talks to the network"),
)
BUILT_IN = frozenset(
    (
        *("assert", "async_hooks", "buffer", "child_process", "cluster", "console", "constants", "crypto", "dgram"),
        *("diagnostics_channel", "dns", "domain", "events", "fs", "http", "http2", "https", "inspector", "module"),
        *("net", "os", "path", "perf_hooks", "process", "punycode", "querystring", "readline", "repl", "sqlite"),
        *("stream", "string_decoder", "sys", "test", "timers", "tls", "trace_events", "tty", "url", "util", "v8"),
        *("vm", "wasi", "worker_threads", "zlib"),
    )
)
JAVA_SIGNS: tuple[tuple[re.Pattern[str], Kind, str, str], ...] = (
    (re.compile(r"\bRuntime\.getRuntime\(\)\.exec\b|\bProcessBuilder\b"), "command", "process", "it starts programs"),
    (re.compile(r"\bjava\.net\.(?:http|Socket|URL\b|HttpURL)"), "network", "java.net", "it talks to the network"),
    (re.compile(r"\bsun\.misc\.Unsafe\b|\bSystem\.load(?:Library)?\s*\("), "blocked", "native code", "use the JDK"),
    (re.compile(r"\bObjectInputStream\b"), "blocked", "ObjectInputStream", "reading objects runs code; use JSON"),
    (re.compile(r"\bjavax\.script\b"), "blocked", "javax.script", "code made from text; write the code out"),
)


def scan_node(files: Mapping[str, bytes], there: frozenset[str]) -> Iterator[Sign]:
    """The signs in the scripts of a package, and the packages that it declares and that are not installed."""
    for path, content in files.items():
        if not path.endswith(SCRIPT_FILES):
            continue
        text, lines, hosts = _read(content)
        starts = [end.end() for end in _LINE_END.finditer(text)]
        for found in _IMPORT.finditer(text):
            yield from _imported(found["name"], path, _line(starts, found.start()), lines, hosts, there)
        for pattern, kind, subject, why in NODE_CALLS:
            for call in pattern.finditer(text):
                line = _line(starts, call.start())
                yield Sign(kind, path, line, subject, why, first_line(lines, line), hosts)
    for name in sorted(declared_packages(files.get("package.json", b"")) - there - {"fast-check"}):
        yield Sign("install", "package.json", 1, name, f"the package `{name}` is not installed", name)


def _imported(
    name: str, path: str, line: int, lines: list[str], hosts: tuple[str, ...], there: frozenset[str]
) -> Iterator[Sign]:
    plain = name.removeprefix("node:")
    first = plain.partition("/")[0]
    if name.startswith((".", "/")):
        if name.startswith("/"):
            yield Sign("blocked", path, line, name, "it lies outside of the package", first_line(lines, line), hosts)
    elif name.startswith("node:") or first in BUILT_IN:
        if first in NODE_MODULES:
            kind, why = NODE_MODULES[first]
            yield Sign(kind, path, line, first, why, first_line(lines, line), hosts)
    else:
        package = "/".join(plain.split("/")[: 2 if plain.startswith("@") else 1])
        if package not in there:
            why = f"the package `{package}` is not installed"
            yield Sign("install", path, line, package, why, first_line(lines, line), hosts)


def declared_packages(content: bytes) -> frozenset[str]:
    """The packages that a package.json names."""
    try:
        document = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        return frozenset()
    groups = ("dependencies", "devDependencies") if isinstance(document, dict) else ()
    tables = [document.get(group) for group in groups]
    return frozenset(str(name) for table in tables if isinstance(table, dict) for name in table)


def scan_java(files: Mapping[str, bytes], there: frozenset[str]) -> Iterator[Sign]:
    """The signs in Java sources."""
    for path, content in files.items():
        if not path.endswith(".java"):
            continue
        text, lines, hosts = _read(content)
        starts = [end.end() for end in _LINE_END.finditer(text)]
        for pattern, kind, subject, why in JAVA_SIGNS:
            for found in pattern.finditer(text):
                line = _line(starts, found.start())
                yield Sign(kind, path, line, subject, why, first_line(lines, line), hosts)


def _read(content: bytes) -> tuple[str, list[str], tuple[str, ...]]:
    """The text without comments, its lines as they were, and the hosts that it names."""
    whole = content.decode("utf-8", "replace")
    text = _without_comments(whole)
    hosts: dict[str, None] = {}
    for found in _URL.finditer(text):
        try:
            host = found["host"] or urlsplit(found["url"]).hostname
        except ValueError:
            continue
        if host:
            hosts[host] = None
    if re.search(r"\.listen\s*\(\s*0\b", text) and not hosts:
        hosts[next(iter(sorted(LOOPBACK)))] = None  # a server at a port that the machine chooses, for its own tests
    return text, whole.splitlines(), tuple(hosts)


def _without_comments(text: str) -> str:
    """The text with blanks in place of comments; one without an end is none."""
    parts, at, pattern = [], 0, _COMMENT
    while (found := pattern.search(text, at)) is not None:
        end = found.end()
        if found[0] == "/*" and (end := text.find("*/", end) + 2) < found.end():
            pattern = _LINE_COMMENT  # no further one has an end either
            continue
        parts += [text[at : found.start()], _SHOWN.sub(" ", text[found.start() : end])]
        at = end
    return "".join([*parts, text[at:]])


def _line(starts: Sequence[int], at: int) -> int:
    return bisect_right(starts, at) + 1
