"""Evidence for one candidate in addition to its tests, collected in a child of its own.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .behaviour import (
    Calls,
    agreeing,
    changes,
    crash_rate,
    digest,
    kinds,
    new_types,
    outcomes,
    varied,
    with_other_functions,
)
from .code_swap import prepare, swap, unchanged
from .typed_inputs import annotated_kinds, random_inputs

if TYPE_CHECKING:
    from .children import Send
    from .worker_state import WorkerState

EXAMINE_SEC, EXAMINE_WALL_SEC = 4.0, 10.0
"""The processor and wall seconds of each part of an examination: a busy machine loses no evidence."""
UNKNOWN_SEC = 1.0
PATIENCE = 12.0
"""How long the loops of one call may go round, as a multiple of what a test has at first."""


def examine(state: WorkerState, message: dict[str, Any]) -> None:
    """Check the documented examples, and the candidate's behaviour on the tests' inputs and others."""
    state.children.run(functools.partial(_examine, state, message), lambda message: state.channel.send(**message))


def _examine(state: WorkerState, message: dict[str, Any], send: Send, folder: str) -> None:
    state.guard.arm(strict=True)
    state.suite.private(folder)
    renew = functools.partial(send, begin=EXAMINE_WALL_SEC, cpu=EXAMINE_SEC)
    renew()
    unit = message["units"][message["job"]["unit"]]
    prepare(unit)
    functions = state.functions_of(unit)
    passing, failing = (_calls(state, message[tests], functions) for tests in ("others", "targets"))
    reset = functools.partial(state.steps.allow, "", "", PATIENCE)
    renew()
    passing_inputs, failing_inputs = varied(passing), varied(failing)
    # Made with the base in place: the candidate must not influence its own inputs.
    further = with_other_functions([*failing, *passing])
    further += random_inputs(functions[0], [*passing, *failing], reset) if functions else []
    renew()
    # The base counts its loop iterations as the candidate does, so that both stop at the same one.
    if not functions or isinstance(swap(state, unchanged(unit, message["job"]["unit"]), message["units"]), str):
        send(unchanged=1.0)
        return
    state.memory.restored()
    before = outcomes(functions[0], passing_inputs, reset)
    documented = agreeing(message["examples"], functions[0].__globals__, reset)
    state.memory.restored()
    if isinstance(swap(state, message["job"], message["units"]), str):
        send(unchanged=1.0)
        return
    kept = agreeing(message["examples"], functions[0].__globals__, reset)
    renew()
    after = outcomes(functions[0], passing_inputs[: len(before)], reset)
    fixed = outcomes(functions[0], failing_inputs, reset)
    renew()
    results = [*after, *fixed, *outcomes(functions[0], further, reset)]
    send(
        behaviour=digest(results) if results else "",
        crash_rate=crash_rate(fixed),
        new_types=new_types(results, {*kinds(before), *annotated_kinds(functions[0])}),
        examples=sum(held is not None for held in kept),
        examples_held=sum(held is True for held in kept),
        lost=[at for at, held in enumerate(kept) if documented[at] and not held],
        **changes(before, after),
    )


def _calls(state: WorkerState, tests: list[str], functions: list[Any]) -> list[tuple[Any, ...]]:
    """The arguments that the tests give to the function, on the base."""
    with Calls({function.__code__ for function in functions}) as calls:
        for name in tests:
            state.run(name, limit=UNKNOWN_SEC, thorough=False)
    return calls.found
