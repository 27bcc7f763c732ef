"""The parser's own process: source in on stdin, symbols out on stdout. Standard library and tree-sitter alone.

Source is anybody's, and a parser in C may hang, swell, crash or be taken over by it: so each file has a bound of
processor time, the process one of memory, and once it reads the kernel lets it compute and answer and nothing else.
Its parent sees it die. Run as a file, without the package around it.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import struct
import sys
from functools import cache
from importlib import import_module
from typing import Any

REQUEST = struct.Struct(">12sdI")
"""Language, seconds of processor time, length of the source that follows."""
ANSWER = struct.Struct(">I")
READY = b"ready"
MEMORY = 1 << 30

MAX_SYMBOLS, MAX_NAMES, MAX_LINES, MAX_IMPORTS = 2000, 4000, 8, 500
MAX_NAME, MAX_SIGNATURE = 120, 200

GRAMMARS = {
    "python": ("tree_sitter_python", "language"),
    "java": ("tree_sitter_java", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
}

CALLS = {
    "x86_64": (
        0xC000003E,
        (0, 1, 5, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 28, 38, 39, 60, 186, 202, 219, 228, 231, 234, 318),
    ),
    "aarch64": (
        0xC00000B7,
        (
            *(63, 64, 80, 62, 222, 226, 215, 214, 134, 135, 139, 124),
            *(216, 233, 103, 172, 93, 178, 98, 128, 113, 94, 131, 278),
        ),
    ),
}
"""The kernel's name for a machine, and the numbers there of: read write fstat lseek mmap mprotect munmap brk
rt_sigaction rt_sigprocmask rt_sigreturn sched_yield mremap madvise setitimer getpid exit gettid futex restart_syscall
clock_gettime exit_group tgkill getrandom."""

_JS_FUNCTIONS = "[(arrow_function body: (_) @body) (function_expression body: (_) @body)]"
_SCRIPT = f"""
(function_declaration name: (identifier) @name body: (_) @body) @function
(generator_function_declaration name: (identifier) @name body: (_) @body) @function
(method_definition name: [(property_identifier) (private_property_identifier)] @name body: (_) @body) @method
(variable_declarator name: (identifier) @name value: {_JS_FUNCTIONS}) @function
(assignment_expression left: (member_expression property: (property_identifier) @name) right: {_JS_FUNCTIONS}) @function
(program (lexical_declaration (variable_declarator name: (identifier) @name) @constant))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name) @constant)))
"""
_TYPED = """
(class_declaration name: (type_identifier) @name body: (_) @body) @class
(abstract_class_declaration name: (type_identifier) @name body: (_) @body) @class
(interface_declaration name: (type_identifier) @name body: (_) @body) @interface
(enum_declaration name: (identifier) @name body: (_) @body) @enum
(type_alias_declaration name: (type_identifier) @name) @type
(method_signature name: (property_identifier) @name) @method
(abstract_method_signature name: (property_identifier) @name) @method
(public_field_definition name: (property_identifier) @name value: (arrow_function body: (_) @body)) @method
(function_signature name: (identifier) @name) @function
"""
DEFINITIONS = {
    "python": """
(class_definition name: (identifier) @name body: (_) @body) @class
(function_definition name: (identifier) @name body: (_) @body) @function
(module (expression_statement (assignment left: (identifier) @name) @constant))
""",
    "java": """
(class_declaration name: (identifier) @name body: (_) @body) @class
(record_declaration name: (identifier) @name body: (_) @body) @class
(interface_declaration name: (identifier) @name body: (_) @body) @interface
(annotation_type_declaration name: (identifier) @name body: (_) @body) @interface
(enum_declaration name: (identifier) @name body: (_) @body) @enum
(method_declaration name: (identifier) @name body: (_)? @body) @method
(constructor_declaration name: (identifier) @name body: (_) @body) @method
""",
    "javascript": _SCRIPT + "(class_declaration name: (identifier) @name body: (_) @body) @class",
    "typescript": _SCRIPT + _TYPED,
    "tsx": _SCRIPT + _TYPED,
}
_SCRIPT_NAMES = "(identifier) @name (shorthand_property_identifier) @name (property_identifier) @member"
NAMES = {
    "python": """
(identifier) @name
(attribute attribute: (identifier) @member)
(keyword_argument name: (identifier) @label)
""",
    "java": """
(identifier) @name
(type_identifier) @name
(method_invocation name: (identifier) @member)
(field_access field: (identifier) @member)
""",
    "javascript": _SCRIPT_NAMES,
    "typescript": f"{_SCRIPT_NAMES} (type_identifier) @name",
    "tsx": f"{_SCRIPT_NAMES} (type_identifier) @name",
}
_SCRIPT_IMPORTS = """
(import_statement source: (string (string_fragment) @module))
(export_statement source: (string (string_fragment) @module))
(call_expression function: (import) arguments: (arguments . (string (string_fragment) @module)))
((call_expression function: (identifier) @_f arguments: (arguments . (string (string_fragment) @module)))
 (#eq? @_f "require"))
"""
IMPORTS = {
    "python": """
(import_statement name: (dotted_name) @module)
(import_statement name: (aliased_import name: (dotted_name) @module))
(import_from_statement module_name: (_) @module name: (dotted_name) @part)
(import_from_statement module_name: (_) @module name: (aliased_import name: (dotted_name) @part))
(import_from_statement module_name: (_) @module (wildcard_import))
""",
    "java": "(import_declaration [(scoped_identifier) (identifier)] @module)",
    "javascript": _SCRIPT_IMPORTS,
    "typescript": _SCRIPT_IMPORTS,
    "tsx": _SCRIPT_IMPORTS,
}
_KINDS = ("class", "interface", "enum", "type", "method", "function", "constant")
_HOLDERS = frozenset(("class", "interface", "enum"))
_SPACE = re.compile(r"\s+")
_ANNOTATIONS = re.compile(r"(?:@(?!interface)[\w.]+(?:\([^()]*\))?\s*)+")


@cache
def _tools(language: str) -> tuple[Any, Any, Any, Any]:
    """A language's parser and its three queries."""
    from tree_sitter import Language, Parser, Query

    module, function = GRAMMARS[language]
    grammar = Language(getattr(import_module(module), function)())
    definitions, names, imports = (Query(grammar, texts[language]) for texts in (DEFINITIONS, NAMES, IMPORTS))
    return Parser(grammar), definitions, names, imports


def parsed(language: str, source: bytes) -> dict[str, Any]:
    """A file's symbols, the names it uses and what it imports, as plain data."""
    from tree_sitter import QueryCursor

    parser, definitions, names, imports = _tools(language)
    root = parser.parse(source).root_node
    symbols, defined = _symbols(QueryCursor(definitions).matches(root), source)
    captured = QueryCursor(names).captures(root)
    return {
        "symbols": symbols,
        "references": _references(captured, defined, source),
        "imports": _imports(QueryCursor(imports).matches(root), source),
        "lines": source.count(b"\n") + (not source.endswith(b"\n") and bool(source)),
        "note": "" if len(symbols) < MAX_SYMBOLS else "cut",
    }


def _symbols(matches: Any, source: bytes) -> tuple[list[list[Any]], set[int]]:
    """Definitions in order, each with the class it lies in; those within functions are left out."""
    found: dict[int, tuple[int, int, str, Any, Any, Any]] = {}
    for _, captures in matches:
        kind = next(kind for kind in _KINDS if kind in captures)
        node, name = captures[kind][0], captures["name"][0]
        body = captures["body"][0] if "body" in captures else None
        if name.start_byte not in found or kind != "constant":
            found[name.start_byte] = (node.start_byte, -node.end_byte, kind, node, name, body)
    rows: list[list[Any]] = []
    around: list[tuple[int, str, str]] = []
    for start, end, kind, node, name, body in sorted(found.values(), key=lambda one: one[:2]):
        while around and around[-1][0] <= start:
            around.pop()
        _, outer, parent = around[-1] if around else (0, "", "")
        label = _text(source, name)[:MAX_NAME]
        if outer in _HOLDERS or not outer:
            if kind == "function" and outer == "class":
                kind = "method"
            rows.append([kind, label, *_range(node), parent, _signature(source, node, body, kind)])
        if kind != "constant":
            around.append((-end, kind, f"{parent}.{label}" if parent else label))
    return rows[:MAX_SYMBOLS], set(found)


def _range(node: Any) -> tuple[int, int]:
    """First and last line, with decorators and with what a declaration stands in."""
    outer = node.parent
    while outer is not None and outer.type in ("decorated_definition", "export_statement", "lexical_declaration"):
        node, outer = outer, outer.parent
    return node.start_point[0] + 1, node.end_point[0] + 1


def _signature(source: bytes, node: Any, body: Any, kind: str) -> str:
    end = min(node.end_byte if body is None else body.start_byte, node.start_byte + 4 * MAX_SIGNATURE)
    text = source[node.start_byte : end].decode("utf-8", "replace")
    if kind in ("constant", "type"):
        text = text.partition("\n")[0]
    line = _SPACE.sub(" ", _ANNOTATIONS.sub("", text)).strip().removesuffix("=>").rstrip(" :{;=")
    line = line.replace("( ", "(").replace(", )", ")").replace(" )", ")")
    return line if len(line) <= MAX_SIGNATURE else line[: MAX_SIGNATURE - 1] + "…"


def _references(captured: Any, defined: set[int], source: bytes) -> dict[str, str]:
    """The first lines on which each name is used, as `3,17`; members as `.name`. To define a name is not to use it."""
    members = {node.start_byte for node in captured.get("member", ())}
    ignored = defined.union(node.start_byte for node in captured.get("label", ()))
    used = (node for kind in ("name", "member") for node in captured.get(kind, ()))
    places: dict[bytes, list[int]] = {}
    for start, end, row in sorted({(node.start_byte, node.end_byte, node.start_point[0]) for node in used}):
        if not 2 < end - start <= MAX_NAME or start in ignored:
            continue
        name = source[start:end]
        lines = places.setdefault(b"." + name if start in members else name, [])
        if len(lines) < MAX_LINES and lines[-1:] != [row + 1]:
            lines.append(row + 1)
    kept = list(places.items())[:MAX_NAMES]
    return {name.decode("utf-8", "replace"): ",".join(map(str, lines)) for name, lines in kept}


def _imports(matches: Any, source: bytes) -> list[str]:
    """Modules, and for `from a import b` also `a.b`, which may be one."""
    found: dict[str, None] = {}
    for _, captures in matches:
        module = _text(source, captures["module"][0])[:MAX_NAME]
        found[module] = None
        for part in captures.get("part", ()):
            dot = "" if module.endswith(".") else "."
            found[f"{module}{dot}{_text(source, part)[:MAX_NAME]}"] = None
        if len(found) >= MAX_IMPORTS:
            break
    return list(found)


def _text(source: bytes, node: Any) -> str:
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def confine() -> None:
    """Give up all but memory, time and the pipes. Where the kernel has no filters, the limits are what there is."""
    import ctypes

    for limit, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 3),
    ):
        resource.setrlimit(limit, (most, most))
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in CALLS:
        return
    architecture, calls = CALLS[machine]
    program = [(0x20, 0, 0, 4), (0x15, 1, 0, architecture), (0x06, 0, 0, 0x80000000), (0x20, 0, 0, 0)]
    program += [(0x15, len(calls) - place, 0, call) for place, call in enumerate(calls)]
    program += [(0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]  # EPERM for all others
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    filter_program = struct.pack("@HP", len(program), ctypes.addressof(code))
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    header = ctypes.create_string_buffer(filter_program)
    prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    prctl(22, 2, ctypes.addressof(header), 0, 0)  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def main(languages: list[str]) -> None:
    """Answer requests until there are no more."""
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    for language in languages:
        _tools(language)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    confine()
    stdout.write(READY)
    stdout.flush()
    while len(header := stdin.read(REQUEST.size)) == REQUEST.size:
        language, seconds, length = REQUEST.unpack(header)
        source = stdin.read(length)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        answer = json.dumps(parsed(language.rstrip(b"\0").decode(), source), separators=(",", ":")).encode()
        signal.setitimer(signal.ITIMER_PROF, 0)
        stdout.write(ANSWER.pack(len(answer)) + answer)
        stdout.flush()


if __name__ == "__main__":
    sys.path[:] = sys.argv[2:]
    main(sys.argv[1].split(","))
