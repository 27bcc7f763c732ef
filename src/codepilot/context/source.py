"""Which files are worth parsing, told from their names and bytes alone."""

from __future__ import annotations

from pathlib import PurePosixPath

MAX_BYTES = 512 << 10
"""Larger files are data or generated; they are listed, not parsed."""
LONG_LINE, LONG_MEAN = 20_000, 400

_LANGUAGES = {
    ".py": "python",
    ".pyi": "python",
    ".java": "java",
    ".js": "javascript",
    ".jsx": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".ts": "typescript",
    ".mts": "typescript",
    ".cts": "typescript",
    ".tsx": "tsx",
}
_DOCS = frozenset((".md", ".rst", ".txt", ".adoc"))
VENDORED = frozenset(("node_modules", "site-packages", ".venv", "venv", "vendor", "third_party", "dist", "__pycache__"))
"""Folders of others' code and of what is made from sources."""
_TEST_FOLDERS = frozenset(("test", "tests", "__tests__", "spec", "specs", "testing"))


def language_of(path: str) -> str | None:
    """The language a file is parsed as; None for all that is not parsed."""
    folder, _, name = path.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    language = _LANGUAGES.get(f".{ending.lower()}") if stem and dot else None
    return None if language is None or VENDORED.intersection(folder.split("/")) else language


def unfit(source: bytes) -> str:
    """Why a source is not parsed; empty if it is."""
    if len(source) > MAX_BYTES:
        return "too large"
    if b"\0" in source:
        return "binary"
    lines = source.split(b"\n")
    if len(source) > 4096 and (len(source) / len(lines) > LONG_MEAN or max(map(len, lines)) > LONG_LINE):
        return "minified"
    return ""


def is_doc(path: str) -> bool:
    pure = PurePosixPath(path)
    return pure.suffix.lower() in _DOCS or pure.stem.upper() in ("README", "CONTRIBUTING")


def is_test(path: str) -> bool:
    """Whether a file looks like one of tests, in any of the languages."""
    pure = PurePosixPath(path)
    stem = pure.stem.lower()
    if _TEST_FOLDERS.intersection(part.lower() for part in pure.parts[:-1]):
        return True
    return (
        stem.startswith("test_")
        or stem.endswith(("_test", ".test", ".spec", "_spec"))
        or (pure.suffix == ".java" and pure.stem.endswith(("Test", "Tests", "IT")))
    )
