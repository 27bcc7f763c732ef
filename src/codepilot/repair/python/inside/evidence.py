"""Evidence for one candidate beside its tests, collected in a child of its own.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .behaviour import Calls, agreeing, changes, crash_rate, digest, kinds, new_types, outcomes, varied
from .code_swap import prepare, swap, unchanged
from .typed_inputs import drawn, promised

if TYPE_CHECKING:
    from .children import Say
    from .worker_state import WorkerState

EXAMINE_SEC = 4.0
UNKNOWN_SEC = 1.0
PATIENCE = 12.0
"""How long the loops of one call may go round, as a multiple of what a test has at first."""


def examine(state: WorkerState, message: dict[str, Any]) -> None:
    """Check the documented examples, and the candidate's behaviour on the tests' inputs and others."""
    state.children.run(functools.partial(_examine, state, message), lambda said: state.channel.send(**said))


def _examine(state: WorkerState, message: dict[str, Any], say: Say, folder: str) -> None:
    state.guard.arm(strict=True)
    state.suite.private(folder)
    say(begin=EXAMINE_SEC)
    unit = message["units"][message["job"]["unit"]]
    prepare(unit)
    living = state.living(unit)
    calm, red = (_calls(state, message[tests], living) for tests in ("others", "targets"))
    afresh = functools.partial(state.steps.allow, "", "", PATIENCE)
    say(begin=EXAMINE_SEC)
    quiet, wrong = varied(calm), varied(red)
    # With the base in place: what the candidate does must not choose what it is asked.
    further = drawn(living[0], [*calm, *red], afresh) if living else []
    say(begin=EXAMINE_SEC)
    # The base counts its rounds as the candidate does, so that both end at the same one.
    if not living or isinstance(swap(state, unchanged(unit, message["job"]["unit"]), message["units"]), str):
        say(unchanged=1.0)
        return
    state.memory.restored()
    before = outcomes(living[0], quiet, afresh)
    state.memory.restored()
    if isinstance(swap(state, message["job"], message["units"]), str):
        say(unchanged=1.0)
        return
    documented = agreeing(message["examples"], living[0].__globals__, afresh)
    say(begin=EXAMINE_SEC)
    after = outcomes(living[0], quiet[: len(before)], afresh)
    mended = outcomes(living[0], wrong, afresh)
    say(begin=EXAMINE_SEC)
    told = [*after, *mended, *outcomes(living[0], further, afresh)]
    say(
        behaviour=digest(told) if told else "",
        crash_rate=crash_rate(mended),
        new_types=new_types(told, {*kinds(before), *promised(living[0])}),
        **documented,
        **changes(before, after),
    )


def _calls(state: WorkerState, tests: list[str], living: list[Any]) -> list[tuple[Any, ...]]:
    """What the tests call the function with, on the base."""
    with Calls({function.__code__ for function in living}) as calls:
        for name in tests:
            state.run(name, limit=UNKNOWN_SEC, thorough=False)
    return calls.found
