"""What a search has done so far: what it found, what came of its candidates, and how that outlives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from codepilot.core.contract import JsonObject
from codepilot.repair.client import Ruling
from codepilot.repair.pairs import recall
from codepilot.repair.pairs import remember as remember_marks
from codepilot.repair.python.source import Source
from codepilot.repair.rank import Plausible, rank
from codepilot.repair.record import remember, revive

SURE = 0.7
"""The confidence that makes up for changes on inputs that tests were content with."""


@dataclass
class Ledger:
    digest: str = ""
    """Names the order of candidates; empty until that is known."""
    position: int = 0
    """Whatever comes before it was tried, but for what is marked to be loaded anew."""
    tried: int = 0
    trying_sec: float = 0.0
    composed: bool = False
    """Whether what is missing was composed."""
    found: list[Plausible] = field(default_factory=list)
    marks: dict[int, str] = field(default_factory=dict)
    """What came of single edits, by position."""
    about: str = ""
    """Names the engine and the tests to be mended."""
    ended: bool = False
    """Whether the search came to its own end."""

    def count(self, rulings: Mapping[int, Ruling], seconds: float) -> None:
        self.tried += sum(ruling.outcome != "cold" for ruling in rulings.values())
        self.trying_sec += seconds

    def has(self, path: str, content: bytes) -> bool:
        return any(one.patched == content and one.proposal.source.path == path for one in self.found)

    def worthy(self) -> list[Plausible]:
        """What the search may end with: repairs that can be trusted, else those that are likely right all the same."""
        trusted = [one for one in self.found if one.trusted]
        return trusted or [ranked.one for ranked in rank(self.found) if ranked.confidence >= SURE]

    def state(self) -> JsonObject:
        return {
            "digest": self.digest,
            "about": self.about,
            "ended": self.ended,
            "position": self.position,
            "tried": self.tried,
            "trying_sec": self.trying_sec,
            "composed": self.composed,
            "plausible": [remember(one) for one in self.found],
            "marks": remember_marks(self.marks),
        }

    def resume(self, state: JsonObject, sources: Mapping[str, Source], refused: Sequence[bytes]) -> None:
        """Go on from a recorded state of the same order; another one says nothing."""
        self.found = []
        if state.get("digest") != self.digest:
            return
        position = state.get("position")
        self.position = position if isinstance(position, int) else 0
        marks = state.get("marks")
        self.marks = recall(marks) if isinstance(marks, str) else {}
        tried, trying_sec = state.get("tried"), state.get("trying_sec")
        self.tried = tried if isinstance(tried, int) else 0
        self.trying_sec = trying_sec if isinstance(trying_sec, float) else 0.0
        self.composed = state.get("composed") is True
        self._revive(state, sources, refused)

    def take_over(self, state: JsonObject, sources: Mapping[str, Source], refused: Sequence[bytes]) -> None:
        """What is left of an ended search for the same tests, once some of its answers were turned down."""
        if refused and state.get("ended") is True and state.get("about") == self.about:
            self._revive(state, sources, refused)

    def _revive(self, state: JsonObject, sources: Mapping[str, Source], refused: Sequence[bytes]) -> None:
        kept = state.get("plausible")
        for row in kept if isinstance(kept, list) else []:
            found = revive(row, sources)
            if found is not None and found.patched not in refused:
                self.found.append(found)


def paths_of(state: JsonObject) -> list[str]:
    """The files that the state's candidates change."""
    kept = state.get("plausible")
    rows = [row for row in kept if isinstance(row, dict)] if isinstance(kept, list) else []
    return list(dict.fromkeys(str(row.get("path")) for row in rows))
