"""How far a change spreads: whether the changed functions act differently on inputs that no failing test has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codepilot.executor import Executor, RunCommand
from codepilot.project import Project, environment
from codepilot.repair.messages import count, text
from codepilot.repair.python.bootstrap import BOOT, SPREAD, bundle
from codepilot.sandbox import Limits, ProtocolError

MAX_ANSWER = 1 << 20
MAX_FUNCTIONS = 50
MAX_TESTS = 40
MAX_VARIANTS = 16
FEWEST = 8
"""The number of further inputs below which nothing can be concluded."""


@dataclass(frozen=True)
class Variants:
    """What the changed files of a workspace are compared with."""

    base: Mapping[str, bytes | None]
    """The changed Python files as the base has them."""
    variants: tuple[tuple[str, str], ...] = ()
    """Changed files without a suspected part: path and text of each."""


@dataclass(frozen=True)
class FunctionSpread:
    """One function of the changed files that the failing tests call."""

    path: str
    qualname: str
    examples: int
    """Inputs that the tests give it."""
    inputs: int
    """Inputs besides those of the failing tests on which both versions were called."""
    changed: int
    """How many of them have another result than before."""
    differing: int
    """The same, with those that fail now."""
    answers: int
    """How many different results those have."""
    new_answers: int
    """How many of these results no failing test has."""
    free: bool
    """True if the change matters whatever each argument of the failing tests is."""
    free_of_numbers: bool
    """True if no number within a text of the failing tests has to be there for the change to matter."""
    free_of_words: bool
    """True if no word of their texts has to be there that neither other tests nor the code know."""
    free_of_answers: bool
    """True if no number of the failing tests' results is in every changed result."""
    changed_own: bool
    """True if the change matters for an input of the failing tests."""
    changed_plain: bool
    """The same for an input without an argument that is nothing, empty or zero."""
    existed: bool
    yields: bool = False
    """True for a generator, whose results are lists of what the tests name: that they vary says less."""
    outside: int = 0
    """On how many inputs it acts otherwise where no test runs, and the base's version does not."""

    @property
    def general(self) -> bool:
        """True if the change matters beyond the tests' inputs, and not by one fixed answer."""
        if not self.existed:
            return self.new_answers >= 2
        free = self.free and self.free_of_words and self.free_of_answers
        return self.changed > 0 and free and not self.yields and (self.answers >= 2 or self.new_answers >= 1)

    @property
    def special(self) -> bool:
        """True if the function differs from the base's on plain inputs of the failing tests alone."""
        return self.existed and self.changed_plain and self.inputs >= FEWEST and self.differing == 0

    @property
    def matters(self) -> bool:
        """True if the other version does something else on any input."""
        return self.existed and (self.changed_own or self.differing > 0)


@dataclass(frozen=True)
class Spread:
    """The comparison of a change with its base, and with itself without each suspected part."""

    functions: tuple[FunctionSpread, ...] = ()
    variants: Mapping[tuple[str, str], tuple[FunctionSpread, ...]] = field(default_factory=dict)
    """By path and text of the variant."""


def measure_spread(
    executor: Executor,
    workspace: str,
    project: Project,
    tests: Sequence[str],
    targets: int,
    versions: Variants,
    seconds: float,
) -> Spread:
    """Compare the changed files of a workspace with other versions of them; nothing where that cannot be done.

    The first `targets` of the tests are the failing ones.
    """
    before = {path: None if data is None else data.decode("utf-8", "replace") for path, data in versions.base.items()}
    variants = versions.variants[:MAX_VARIANTS]
    spec = {
        "runner": project.runner,
        "tests": list(tests[:MAX_TESTS]),
        "targets": targets,
        "files": before,
        "variants": variants,
    }
    if seconds <= 0 or not before or not tests:
        return Spread()
    snapshot = executor.snapshot(workspace).snapshot
    try:
        done = executor.run_command(
            RunCommand(
                workspace=workspace,
                argv=(project.interpreter.executable, "-c", BOOT),
                stdin=bundle(SPREAD) + json.dumps(spec).encode() + b"\n",
                env={**environment(project), "PYTHONHASHSEED": "0"},
                timeout_sec=seconds,
                limits=Limits(wall_sec=seconds, output_bytes=MAX_ANSWER),
            )
        )
    finally:
        executor.restore(workspace, snapshot)
    return _read(done.stdout.partition(b"\n")[0], variants)


def _read(line: bytes, variants: Sequence[tuple[str, str]]) -> Spread:
    try:
        answer = json.loads(line)
        if not isinstance(answer, dict):
            return Spread()
        compared = answer.get("variants")
        each = map(_functions, compared) if isinstance(compared, list) else ()
        return Spread(_functions(answer.get("functions")), dict(zip(variants, each, strict=False)))
    except (ValueError, RecursionError, ProtocolError):
        return Spread()


def _functions(found: object) -> tuple[FunctionSpread, ...]:
    return tuple(map(_function, found[:MAX_FUNCTIONS])) if isinstance(found, list) else ()


def _function(value: Any) -> FunctionSpread:
    if not isinstance(value, dict):
        raise ProtocolError("it sent something else where a function was expected")
    return FunctionSpread(
        path=text(value.get("path")),
        qualname=text(value.get("qualname")),
        examples=count(value.get("examples")),
        inputs=count(value.get("inputs")),
        changed=count(value.get("changed")),
        differing=count(value.get("differing")),
        answers=count(value.get("answers")),
        new_answers=count(value.get("new_answers")),
        free=value.get("free") is True,
        free_of_numbers=value.get("free_of_numbers") is True,
        free_of_words=value.get("free_of_words") is True,
        free_of_answers=value.get("free_of_answers") is True,
        changed_own=value.get("changed_own") is True,
        changed_plain=value.get("changed_plain") is True,
        existed=value.get("existed") is True,
        yields=value.get("yields") is True,
        outside=count(value.get("outside", 0)),
    )
