"""The recipes of each kind of task: where pieces of context come from, and how they are scored."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from codepilot.context.evidence import Clues, Place
from codepilot.context.ranking import Focus, Graph, Ranks, rank
from codepilot.context.rendering import Texts
from codepilot.context.repository import RepositoryMap
from codepilot.context.symbols import is_doc
from codepilot.core.artifacts import ContextKind
from codepilot.core.task import TaskKind
from codepilot.project import is_test

END = 1 << 30
"""The last line of a whole file, whichever it is."""
AROUND = 12
NEIGHBOURS, SIMILAR, DOCS, CALLERS = 12, 4, 3, 5
MAX_DOC, MAX_NAMES = 64_000, 200

_CONFIGS = (
    *("codepilot.toml", "pyproject.toml", "setup.cfg", "pytest.ini", "tox.ini", "package.json", "tsconfig.json"),
    *("pom.xml", "build.gradle", "build.gradle.kts", ".editorconfig"),
)
_SCHEMAS = (
    *(".sql", ".graphql", ".gql", ".proto", ".avsc", ".xsd", ".prisma", ".thrift", ".schema.json", "schema.json"),
    *("openapi.json", "openapi.yaml", "openapi.yml", "swagger.json", "swagger.yaml", "schema.rb"),
)
_CONVENTIONS = ("CONTRIBUTING.md", "AGENTS.md", "CLAUDE.md", "STYLE.md", "docs/CONTRIBUTING.md")


@dataclass(frozen=True)
class Candidate:
    """A piece that may be shown. `marks` are the lines that matter most in it."""

    label: str
    path: str
    start: int
    end: int
    score: float
    reason: str
    marks: tuple[int, ...] = ()

    @property
    def whole(self) -> bool:
        return self.end == END

    @property
    def kind(self) -> ContextKind:
        name = posixpath.basename(self.path)
        if name in _CONFIGS:
            return "config"
        if name.lower().endswith(_SCHEMAS):
            return "schema"
        if is_doc(self.path):
            return "doc"
        return "test" if is_test(self.path) else "code"


@dataclass(frozen=True)
class View:
    """Everything a recipe may look at."""

    repository: RepositoryMap
    clues: Clues
    texts: Texts
    graph: Graph

    @cached_property
    def focus(self) -> Focus:
        return focus_of(self.clues)

    @cached_property
    def ranks(self) -> Ranks:
        return rank(self.repository, self.graph, self.focus)


Source = Callable[[View], Iterable[Candidate]]


def focus_of(clues: Clues) -> Focus:
    """The weights for ranking: failing tests and the frames of their traces most, then files touched and named."""
    weights: dict[str, float] = {}
    for paths, weight in (
        ([place.path for place in clues.tests], 3.0),
        ([place.path for place in clues.frames], 3.0),
        (clues.touched, 2.0),
        (clues.named_paths, 2.0),
        ([place.path for place in clues.named_symbols], 1.0),
    ):
        for path in dict.fromkeys(paths):
            weights[path] = weights.get(path, 0.0) + weight
    places = (*clues.named_symbols, *clues.frames)
    return Focus(weights, frozenset(place.symbol.name for place in places if place.symbol is not None))


def failing_tests(view: View) -> Iterator[Candidate]:
    """Each failing test's own source, and what its file imports."""
    for place in view.clues.tests:
        if place.symbol is not None:
            yield _at(place, "failing test", 1.0, f"{place.symbol.qualified} fails")
        elif line := _titled(view, place):
            yield _around(place.path, line, "failing test", 1.0, f"{place.title} fails", 2, 3 * AROUND)
        else:
            yield Candidate("failing test", place.path, 1, END, 0.97, "holds a failing test")
    for path in dict.fromkeys(place.path for place in view.clues.tests):
        if end := _head(view, path):
            yield Candidate("failing test", path, 1, end, 0.72, "what the failing test's file begins with")


def stack_frames(view: View) -> Iterator[Candidate]:
    """The functions that the traces went through, the innermost first."""
    for depth, place in enumerate(view.clues.frames):
        score = round(max(0.6, 0.96 - 0.03 * depth), 4)
        where = "the failure came from here" if not depth else f"{depth} frames from the failure"
        if place.symbol is not None:
            yield _at(place, "stack frame", score, f"line {place.line}: {where}", (place.line,))
        else:
            yield _around(place.path, place.line, "stack frame", score, where)


def touched_files(view: View) -> Iterator[Candidate]:
    for path in view.clues.touched:
        yield Candidate("touched file", path, 1, END, 0.85, "an earlier change touched it")


def named_files(view: View) -> Iterator[Candidate]:
    """Files and symbols that the task's own words name."""
    for path in view.clues.named_paths:
        yield Candidate("named", path, 1, END, 0.88, "the task names this file")
    for place in view.clues.named_symbols:
        if place.symbol is not None:
            yield _at(place, "named", 0.8, f"the task names {place.symbol.name}")


def neighbours(view: View) -> Iterator[Candidate]:
    """The symbols nearest by reference to what the task is about, and less so those that are near to everything."""
    if not view.focus.paths:
        return
    usual = rank(view.repository, view.graph).symbols
    lifted = {place: value / math.sqrt(usual[place]) for place, value in view.ranks.symbols.items() if usual[place]}
    best = max(lifted.values(), default=0.0)
    shown = 0
    for (path, name), value in sorted(lifted.items(), key=lambda one: (-one[1], one[0])):
        if shown == NEIGHBOURS:
            break
        symbols = (one for one in view.repository.files[path].symbols if one.name == name and one.kind != "constant")
        if (symbol := next(symbols, None)) is not None:
            score = round(0.45 + 0.25 * value / best, 4)
            yield _at(Place(path, symbol.line, symbol), "neighbour", score, "close by reference")
            shown += 1


def callers(view: View) -> Iterator[Candidate]:
    """The callers of the functions that failed: a change must hold there too."""
    failed = dict.fromkeys(place.symbol.name for place in view.clues.frames[:3] if place.symbol is not None)
    names = [name for name in failed if not name.startswith("test")]
    shown = 0
    for name in names:
        for path, file in sorted(view.repository.files.items()):
            for line in file.uses(name):
                symbol = view.clues.symbol_at(path, line)
                if symbol is not None and symbol.name != name and shown < CALLERS:
                    shown += 1
                    yield _at(Place(path, line, symbol), "caller", 0.42, f"uses {name}", (line,))


def similar_files(view: View) -> Iterator[Candidate]:
    """Files whose names share words with the task, and those in the directories of the files it names."""
    words = view.clues.words
    nearby = {posixpath.dirname(path) for path in (*view.clues.named_paths, *view.clues.touched)}
    scored = []
    for path in view.repository.files:
        stem = posixpath.basename(path).rpartition(".")[0].lower()
        shared = words.intersection(part for part in stem.replace("-", "_").split("_") if len(part) > 2)
        near = posixpath.dirname(path) in nearby
        if shared or near:
            scored.append((-(len(shared) * 2 + near), -view.ranks.files.get(path, 0.0), path, shared))
    for value, _, path, shared in sorted(scored)[:SIMILAR]:
        why = f"its name has {', '.join(sorted(shared))}" if shared else "lies next to a file of the task"
        yield Candidate("similar file", path, 1, END, round(min(0.6, 0.44 - value * 0.04), 4), why)


def documentation(view: View) -> Iterator[Candidate]:
    """Documents that speak of what the task speaks of, then the README."""
    names = {name.lower() for name in view.focus.names} | {w for w in view.clues.words if len(w) > 4}
    names |= {posixpath.basename(path).rpartition(".")[0].lower() for path in view.focus.paths}
    longest = sorted(names, key=lambda name: (-len(name), name))[:MAX_NAMES]
    docs = sorted((path for path in view.repository.hashes if is_doc(path)), key=lambda path: (path.count("/"), path))
    found = []
    for path in docs[:40]:
        text = "\n".join(view.texts.lines(path))[:MAX_DOC].lower()
        hits = sum(1 for name in longest if name in text)
        if hits:
            found.append((-hits, path))
    for hits, path in sorted(found)[:DOCS]:
        yield Candidate(
            "documentation", path, 1, END, round(min(0.4, 0.26 - hits * 0.02), 4), "is about the same subject"
        )
    for path in docs:
        if posixpath.basename(path).upper().startswith("README") and "/" not in path:
            yield Candidate("documentation", path, 1, END, 0.25, "the project's own description")


def conventions(view: View) -> Iterator[Candidate]:
    """How this project is written and built."""
    for place, name in enumerate((*_CONVENTIONS, *_CONFIGS)):
        if name in view.repository.hashes:
            yield Candidate(
                "convention", name, 1, END, round(0.38 - place * 0.005, 4), "how this project is built and kept"
            )


def examples(view: View) -> Iterator[Candidate]:
    """The most important source file and test of the project, to be written like."""
    ranked = sorted(view.ranks.files, key=lambda path: (-view.ranks.files[path], path))
    for wanted in (False, True):
        path = next((p for p in ranked if is_test(p) is wanted and view.repository.files[p].symbols), None)
        if path is not None:
            yield Candidate("example", path, 1, END, 0.3, "how a test is written here" if wanted else "central here")


_NEW = (
    named_files,
    touched_files,
    failing_tests,
    stack_frames,
    similar_files,
    neighbours,
    conventions,
    examples,
    documentation,
)
RECIPES: Mapping[TaskKind, tuple[Source, ...]] = {
    TaskKind.BUGFIX: (failing_tests, stack_frames, touched_files, named_files, neighbours, callers, documentation),
    TaskKind.CHANGE: (
        named_files,
        touched_files,
        failing_tests,
        stack_frames,
        neighbours,
        callers,
        similar_files,
        conventions,
        documentation,
    ),
    TaskKind.BUILD: _NEW,
    TaskKind.SCAFFOLD: _NEW,
    TaskKind.PROVE: (),  # no agent works on it
    TaskKind.PROMPT: (),  # the prompt is all that its program is given
    TaskKind.QUESTION: (named_files, similar_files, conventions, examples, documentation),
}


def candidates(kind: TaskKind, view: View) -> list[Candidate]:
    """Everything that a recipe finds, best first."""
    found = [one for source in RECIPES[kind] for one in source(view) if one.path in view.repository.hashes]
    return sorted(found, key=lambda one: (-one.score, one.path, one.start, one.end, one.label))


def _at(place: Place, label: str, score: float, reason: str, marks: tuple[int, ...] = ()) -> Candidate:
    if place.symbol is None:
        return _around(place.path, place.line, label, score, reason)
    return Candidate(
        label, place.path, place.symbol.line, max(place.symbol.line, place.symbol.end), score, reason, marks
    )


def _around(
    path: str, line: int, label: str, score: float, reason: str, before: int = AROUND, after: int = AROUND
) -> Candidate:
    return Candidate(label, path, max(1, line - before), max(1, line + after), score, reason, (max(1, line),))


def _titled(view: View, place: Place) -> int:
    """The line on which a test is given its title; 0 if there is none."""
    lines = view.texts.lines(place.path) if place.title else ()
    return next((number for number, line in enumerate(lines, 1) if place.title in line), 0)


def _head(view: View, path: str) -> int:
    """The last line before the first symbol, within reason; what stands there is imports and set-up."""
    file = view.repository.files.get(path)
    first = min((symbol.line for symbol in file.symbols), default=0) if file is not None else 0
    return min(first - 1, 40) if first > 1 else 0
