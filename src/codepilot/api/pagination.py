"""Pages of the list of runs. A cursor is the place of the last run shown."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from codepilot.api.present import summary
from codepilot.api.problems import Refused
from codepilot.api.service import Service
from codepilot.api.shapes import RunSummary

if TYPE_CHECKING:
    from codepilot.store import RunRow


def cursor_after(row: RunRow) -> str:
    return base64.urlsafe_b64encode(json.dumps([row.created_at, row.run_id]).encode()).decode().rstrip("=")


def place_of(cursor: str) -> tuple[int, str]:
    try:
        created, run_id = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        place = (int(created), str(run_id))
        if not 0 <= place[0] < 1 << 62 or not place[1].isascii() or not place[1].isprintable():
            raise ValueError(cursor)
    except (ValueError, TypeError, OverflowError) as error:
        raise Refused(404, "The cursor is not one of this list.", "Leave it out for the first page.") from error
    return place


def summaries(service: Service, rows: Sequence[RunRow]) -> tuple[RunSummary, ...]:
    activities = service.pilot.activities(*(row.run_id for row in rows))
    return tuple(summary(row, activities, service.redact) for row in rows)
