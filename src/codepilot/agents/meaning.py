"""What a reply means once it is held to the role's schema and to the plan."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from codepilot.agents.replies import Code, Malformed, Result
from codepilot.agents.roles import Names, Role
from codepilot.agents.seat import Seat
from codepilot.core.areas import outside
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import State

SHOWN = 20


@dataclass(frozen=True)
class OutOfArea:
    """A result whose change reaches where the plan does not let it."""

    message: str
    paths: tuple[str, ...]
    rule: str


Meant = Code | Result | Malformed | OutOfArea


def held_to(role: Role, seat: Seat, names: Names, meant: Code | Result | Malformed) -> Meant:
    """A result that does not fit, or reaches too far, is answered with what is wrong."""
    if not isinstance(meant, Result):
        return meant
    try:
        wrong = role.check(accepted(role, seat, meant.value), names)
    except ValidationError as error:
        wrong = [
            f"{'.'.join(str(part) for part in problem['loc']) or 'the object'}: {problem['msg']}"
            for problem in error.errors()
        ]
    if wrong:
        told = "\n".join(f"- {one}" for one in wrong)
        return Malformed(f"The result does not fit:\n{told}\nCorrect it and give the whole <result> again.")
    return (_too_far(seat) if role.state is State.IMPLEMENT else None) or meant


def accepted(role: Role, seat: Seat, value: JsonObject) -> Contract:
    """The role's artifact, with what the platform knows better."""
    return role.output.model_validate(role.completed(value, seat.desk))


def _too_far(seat: Seat) -> OutOfArea | None:
    """What the change so far touches and the plan does not allow."""
    run, desk = seat.run, seat.desk
    if run.base is None or run.plan is None or not (run.plan.allowed_areas or run.plan.forbidden_areas):
        return None
    changes = desk.executor.diff(desk.workspace, run.base.tree).changes
    broken = outside(run.plan, (change.path for change in changes))
    if not broken:
        return None
    told = "\n".join(f"- {path} ({rule})" for path, rule in list(broken.items())[:SHOWN])
    message = f"The change reaches where the plan does not let it. Undo it there, then finish:\n{told}"
    return OutOfArea(message, tuple(broken), next(iter(broken.values())))
