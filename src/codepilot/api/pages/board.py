"""The board and the list of runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response

from codepilot.api.access import Viewer
from codepilot.api.pages.render import render
from codepilot.api.pagination import cursor_after, place_of
from codepilot.api.service import Service, service_of
from codepilot.core.events import TERMINAL, State
from codepilot.store import RunFilter, RunRow
from codepilot.telemetry import now_us
from codepilot.views.board import Card, Need, board, card_of

router = APIRouter(include_in_schema=False)

SHOWN = 50
LOOKED_AT = 500
"""How many runs a filter is tried on for one page."""
_MOVING: tuple[Need, ...] = ("you", "working")
_ENDED: tuple[Need, ...] = ("review", "done", "failed")
_OPEN = tuple(state for state in State if state not in TERMINAL)


@dataclass
class Search:
    """What a person typed: words of the goal, and `name:value` pairs."""

    words: list[str] = field(default_factory=list)
    pairs: dict[str, str] = field(default_factory=dict)
    problem: str = ""

    @classmethod
    def of(cls, query: str) -> Search:
        found = cls()
        for part in query.split():
            name, colon, value = part.partition(":")
            if colon and name in ("repo", "kind", "agent", "state", "need", "verdict"):
                found.pairs[name] = value.lower()
            elif colon and value and not value.startswith("//"):
                found.problem = f"{name} is no filter. Use repo, kind, agent, state, need or verdict."
            else:
                found.words.append(part)
        return found

    def lets(self, card: Card, state: str, verdict: str | None) -> bool:
        facts = {
            "repo": card.repo.lower(),
            "kind": card.kind,
            "agent": card.agent.lower(),
            "state": state.lower(),
            "need": card.need,
            "verdict": verdict or "none",
        }
        return all(wanted in facts[name] for name, wanted in self.pairs.items()) and all(
            word.lower() in card.title.lower() or word.lower() in card.run_id for word in self.words
        )


@router.get("/")
def home(request: Request, who: Viewer) -> Response:
    """The board: what needs you first, then what is moving, then what is done."""
    service = service_of(request)
    moving = service.pilot.page(RunFilter(states=_OPEN), 4 * SHOWN)
    ended = service.pilot.page(RunFilter(states=tuple(TERMINAL)), 2 * SHOWN)
    partial = {*(_MOVING if len(moving) == 4 * SHOWN else ()), *(_ENDED if len(ended) == 2 * SHOWN else ())}
    rows = {row.run_id: row for row in (*moving, *ended)}
    cards = sorted((card for card, _ in _cards(service, list(rows.values()))), key=lambda card: -card.at)
    columns = board(cards, partial=frozenset(partial))
    return render(request, who, "runs", columns=columns, cards=cards, listed=False, **_listing())


@router.get("/runs")
def runs(
    request: Request,
    who: Viewer,
    q: Annotated[str, Query(max_length=300)] = "",
    before: Annotated[str, Query(max_length=300)] = "",
) -> Response:
    service, search = service_of(request), Search.of(q)
    place, last, looked = place_of(before) if before else None, None, 0
    found: list[Card] = []
    while len(found) < SHOWN and looked < LOOKED_AT:
        rows = service.pilot.page(RunFilter(before=place), SHOWN)
        looked += len(rows)
        ended = len(rows) < SHOWN
        for card, row in _cards(service, rows):
            last = row
            if search.lets(card, str(row.state), row.verdict):
                found.append(card)
            if len(found) == SHOWN:
                ended = ended and row is rows[-1]
                break
        if ended:
            last = None
            break
        place = (rows[-1].created_at, rows[-1].run_id)
    following = f"/runs?q={quote(q)}&before={cursor_after(last)}" if last is not None else ""
    return render(request, who, "runs", columns=(), cards=found, listed=True, **_listing(q, search.problem, following))


def _cards(service: Service, rows: list[RunRow]) -> Iterator[tuple[Card, RunRow]]:
    """The cards of runs; one that is damaged or of a newer version is left out, as `codepilot fsck` names it."""
    names = [row.run_id for row in rows]
    activities, views, now = service.pilot.activities(*names), service.pilot.views(names), now_us()
    for row in rows:
        if (run := views.get(row.run_id)) is not None:
            yield card_of(run, activities.get(row.run_id), now), row


def _listing(query: str = "", problem: str = "", following: str = "") -> dict[str, Any]:
    return {"query": query, "problem": problem, "following": following, "now": now_us()}
