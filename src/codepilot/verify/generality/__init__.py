"""True if a change is general: signs that it answers its tests instead of the task.

A sign is certain, or it stands until the changed behaviour turns out to be general.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codepilot.project import is_test
from codepilot.verify import testcode
from codepilot.verify.generality.evasions import evasions
from codepilot.verify.generality.files import file_signs
from codepilot.verify.generality.fitted import fitted
from codepilot.verify.generality.judgement import changed_files, concerns, sources_of, versions
from codepilot.verify.generality.scripts import text_signs
from codepilot.verify.generality.sign import PythonChange, Sign
from codepilot.verify.generality.special_cases import special_cases
from codepilot.verify.generality.values import TestValues, test_values
from codepilot.verify.review_checks import ChangedFile

__all__ = ["Sign", "TestValues", "changed_files", "concerns", "signs", "sources_of", "test_values", "versions"]

MAX_SIGNS = 30


def signs(
    files: Sequence[ChangedFile],
    sources: Mapping[str, bytes],
    tests: Sequence[str],
    messages: Sequence[str] = (),
    collected: Sequence[str] = (),
) -> tuple[Sign, ...]:
    """The signs in a change, certain ones first. `sources` are the files of the failing `tests`.

    `messages` are those with which the tests failed before the change, `collected` are all tests of the suite.
    Without failing tests there is nothing that a change could answer instead of its task.
    """
    if not tests:
        return ()
    values = test_values(sources, tests, messages)
    found = list(file_signs(files, values, sources, (*tests, *collected)))
    for file in files:
        if file.after is None or file.change.binary or is_test(file.path):
            continue
        if file.is_python:
            change = PythonChange.of(file)
            if change is not None:
                found += [*special_cases(change, values), *evasions(change, values), *fitted(change, values)]
        elif file.path.endswith((*testcode.JVM, *testcode.SCRIPT)):
            found += text_signs(file, values)
    unique = {
        (one.concern.rule, one.concern.path, one.concern.line): one
        for one in sorted(found, key=lambda one: one.certain)
    }
    ordered = sorted(unique.values(), key=lambda one: (not one.certain, one.weak, one.concern.path, one.concern.line))
    return tuple(ordered[:MAX_SIGNS])
