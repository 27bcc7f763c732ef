"""What speaks for one candidate beside its tests, found out in a child of its own.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .behaviour import Calls, agreeing, changes, digest, kinds, outcomes, retyped, slips, varied
from .code_swap import prepare, swap, unchanged
from .typed_inputs import drawn, promised

if TYPE_CHECKING:
    from .children import Say
    from .worker_state import Ground

WEIGH_SEC = 4.0
UNKNOWN_SEC = 1.0
PATIENCE = 12.0
"""How long the loops of one call may go round, as a multiple of what a test has at first."""


def weigh(ground: Ground, message: dict[str, Any]) -> None:
    """Which examples hold with the candidate in place, and what it does on the tests' inputs and others."""
    ground.children.run(functools.partial(_weigh, ground, message), lambda said: ground.channel.send(**said))


def _weigh(ground: Ground, message: dict[str, Any], say: Say, folder: str) -> None:
    ground.guard.arm(strict=True)
    ground.suite.private(folder)
    say(begin=WEIGH_SEC)
    unit = message["units"][message["job"]["unit"]]
    prepare(unit)
    living = ground.living(unit)
    calm, red = (_calls(ground, message[tests], living) for tests in ("others", "targets"))
    afresh = functools.partial(ground.steps.allow, "", "", PATIENCE)
    say(begin=WEIGH_SEC)
    quiet, wrong = varied(calm), varied(red)
    # With the base in place: what the candidate does must not choose what it is asked.
    further = drawn(living[0], [*calm, *red], afresh) if living else []
    say(begin=WEIGH_SEC)
    # The base counts its rounds as the candidate does, so that both end at the same one.
    if not living or isinstance(swap(ground, unchanged(unit, message["job"]["unit"]), message["units"]), str):
        say(kept=1.0)
        return
    ground.memory.restored()
    before = outcomes(living[0], quiet, afresh)
    ground.memory.restored()
    if isinstance(swap(ground, message["job"], message["units"]), str):
        say(kept=1.0)
        return
    documented = agreeing(message["examples"], living[0].__globals__, afresh)
    say(begin=WEIGH_SEC)
    after = outcomes(living[0], quiet[: len(before)], afresh)
    mended = outcomes(living[0], wrong, afresh)
    say(begin=WEIGH_SEC)
    told = [*after, *mended, *outcomes(living[0], further, afresh)]
    say(
        behaviour=digest(told) if told else "",
        slips=slips(mended),
        retyped=retyped(told, {*kinds(before), *promised(living[0])}),
        **documented,
        **changes(before, after),
    )


def _calls(ground: Ground, tests: list[str], living: list[Any]) -> list[tuple[Any, ...]]:
    """What the tests call the function with, on the base."""
    with Calls({function.__code__ for function in living}) as calls:
        for name in tests:
            ground.run(name, limit=UNKNOWN_SEC, thorough=False)
    return calls.found
