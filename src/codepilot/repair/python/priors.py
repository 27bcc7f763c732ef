"""How often each template is right, relative to the others: data in `priors.json`.

`scripts/fit_priors.py` fits it to what `codepilot bench repair` found on the development sets.
"""

from __future__ import annotations

import json
from pathlib import Path

from codepilot.repair.edit import Edit

PRIORS: dict[str, float] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))

DECAY = 0.06
"""How fast the later proposals of one template at one place lose weight."""

UNSEEN = 0.3
"""The weight of a module-level statement relative to the functions that use its names."""
PENALTIES: dict[str, float] = {
    "statement.delete": 0.5,
    "statement.return_other": 0.5,
    "statement.copy": 0.6,
    "statement.set": 0.7,
    "statement.normalise": 0.7,
    "condition.strengthen": 0.8,
    "condition.weaken": 0.8,
    "guard.return": 0.6,
    "guard.skip": 0.6,
    "guard.wrap": 0.6,
    "name.module": 0.6,
    "call.clamp": 0.7,
    "documented.condition": 0.5,
    "statement.step": 0.7,
    "statement.keep_value": 0.5,
    "synthesis.condition": 0.7,
    "synthesis.value": 0.7,
    "synthesis.statement": 0.5,
    "synthesis.guard": 0.5,
    "synthesis.branch": 0.5,
}
"""The overfit penalty of templates that often only make the tests pass instead of stating an intention."""


def penalty(edit: Edit) -> float:
    return PENALTIES.get(edit.template, 1.0)
