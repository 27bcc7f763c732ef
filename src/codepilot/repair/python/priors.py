"""How often each template is the right one, relative to the others: data in `priors.json`.

`scripts/fit_priors.py` fits it to what `codepilot bench repair` found on the development sets.
"""

from __future__ import annotations

import json
from pathlib import Path

PRIORS: dict[str, float] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))

DECAY = 0.06
"""How fast the later proposals of one template at one place lose weight."""

UNSEEN = 0.3
"""What a module-level statement weighs against the functions that use its names."""
