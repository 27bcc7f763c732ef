"""What a build can be asked for: the length of its task, and that it says what to make. Pure."""

from __future__ import annotations

import re

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.text import counted

SHORTEST, LONGEST = 10, 500
EXAMPLE = "Build a REST API with endpoints for creating and listing todos"
_WORDS = """
a an the some any me my it its this that these those us please just now for to with in of and or i you we your our
want wants need needs like would can could should will shall must which what who how all more most many lots ever
make makes build create write code do does give generate develop program programs implement add adds use uses using
get gets put try let help helps improve fix change update finish complete choose pick decide idea ideas choice
something anything everything nothing thing things stuff whatever app apps application software project tool script
website site solution work works working feature features functionality functions looks look looking feel
cool nice good great awesome fun interesting amazing useful simple new better best well properly perfect super
beautiful fancy random small little big kind sort surprise impressive clever smart powerful modern advanced fast
clean robust professional stunning wonderful fantastic incredible exciting creative unique pretty own
python node nodejs java javascript typescript ai language very really so is be are
"""
_FILLER = frozenset(_WORDS.split())
"""Words that say nothing about what a program does."""


def check_build_task(text: str) -> str:
    """The task without surrounding space; raise if it is too short, too long, or says nothing."""
    task = " ".join(text.split())
    if not SHORTEST <= len(task) <= LONGEST:
        size = "empty" if not task else f"{counted(len(task), 'character')} long"
        raise _refusal(f"The task is {size}; it must have {SHORTEST} to {LONGEST} characters.")
    if not any(map(_tells, re.findall(r"[^\W_]+", task.lower()))):
        raise _refusal(f"The task {task!r} does not say what the program does.")
    return task


def _tells(word: str) -> bool:
    """True for a word that can say what a program does: no filler, no number, no letter held down."""
    return word not in _FILLER and not word.isdigit() and len(set(word)) > 1


def directory_name(task: str) -> str:
    """A directory's name from the words of a task."""
    words = re.findall(r"[a-z0-9]+", task.lower())
    informative = [word for word in words if word not in _FILLER] or words
    return "-".join(informative[:4])[:40].strip("-") or "program"


def _refusal(message: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.INVALID_SPEC, message, next_action=f'Say what it does, for example: codepilot build "{EXAMPLE}"'
    )
