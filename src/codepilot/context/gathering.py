"""Chooses and records the best pieces within a budget. A piece that does not fit is condensed before it is left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from codepilot.context.evidence import Clues, Evidence
from codepilot.context.ranking import Graph, graph_of
from codepilot.context.recipes import Candidate, View, candidates
from codepilot.context.rendering import Texts, condensed, tokens_of, whole
from codepilot.context.repository import Read, RepositoryMap
from codepilot.core.artifacts import ContextChoice, ContextItem
from codepilot.core.events import ContextGathered
from codepilot.core.task import TaskKind

MAX_CANDIDATES = 80
SMALL_FILE = 150
"""A whole file of no more lines than this is shown in one piece, with all that was found in it."""
SHARE = 0.5
"""One piece takes no more of the budget than this while it can be condensed."""


@dataclass(frozen=True)
class Gathered:
    """The chosen pieces, best first, and the record of all candidates."""

    items: tuple[ContextItem, ...]
    record: ContextGathered

    @property
    def text(self) -> str:
        """The items as a model reads them."""
        return "".join(map(shown, self.items))


def gather(
    kind: TaskKind,
    repository: RepositoryMap,
    evidence: Evidence,
    read: Read,
    budget_tokens: int,
    graph: Graph | None = None,
) -> Gathered:
    """The context for a task, within its budget. The same input gives the same output.

    `graph` is the map's own, where it is known already.
    """
    view = View(repository, Clues(repository, evidence), Texts(read), graph or graph_of(repository))
    return fit(kind.value, candidates(kind, view)[:MAX_CANDIDATES], view, budget_tokens)


def fit(recipe: str, found: Iterable[Candidate], view: View, budget_tokens: int) -> Gathered:
    """Take pieces in order of their worth while there is room: whole, else condensed, else not at all."""
    items: list[ContextItem] = []
    choices: list[ContextChoice] = []
    room = max(0, budget_tokens)
    for number, piece in enumerate(disjoint(found, view.texts), 1):
        item = _fitted(piece, f"ctx_{number}", view, room, int(budget_tokens * SHARE))
        if item.fate != "discarded":
            items.append(item)
            room -= item.tokens
        choices.append(ContextChoice.model_validate(item.model_dump(exclude={"text"})))
    used = sum(item.tokens for item in items)
    record = ContextGathered(recipe=recipe, budget_tokens=budget_tokens, used_tokens=used, choices=tuple(choices))
    return Gathered(tuple(items), record)


def shown(item: ContextItem) -> str:
    """One item with its heading."""
    short = ", condensed" if item.fate == "condensed" else ""
    fence = "`" * max(3, _longest_run(item.text) + 1)
    heading = f"## {item.path}:{item.start}-{item.end} ({item.label}: {item.reason}{short})"
    return f"{heading}\n{fence}\n{item.text}{fence}\n\n"


def disjoint(found: Iterable[Candidate], texts: Texts) -> list[Candidate]:
    """The pieces without their overlaps, best first: what one shows, no other shows again."""
    taken: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    pieces: list[Candidate] = []
    for one in sorted(_absorbed(list(found), texts), key=_precedence):
        lines = texts.lines(one.path)
        for start, end in _free(one.start, min(one.end, len(lines)), taken[one.path]):
            if any(line.strip() for line in lines[start - 1 : end]):
                pieces.append(replace(one, start=start, end=end))
                taken[one.path].append((start, end))
    return sorted(pieces, key=lambda one: (-one.score, one.path, one.start))


def _precedence(one: Candidate) -> tuple[bool, float, str, int, int, str]:
    """Pieces that were found by line come before whole files, which then show the rest of themselves."""
    return one.whole, -one.score, one.path, one.start, one.end, one.label


def _absorbed(found: list[Candidate], texts: Texts) -> list[Candidate]:
    """Small files that are wanted whole take in all that was found in them."""
    small: dict[str, Candidate] = {}
    for one in found:
        if one.whole and len(texts.lines(one.path)) <= SMALL_FILE:
            small.setdefault(one.path, one)
    for one in found:
        if (host := small.get(one.path)) is not None:
            best = max(host, one, key=lambda each: each.score)
            marks = tuple(sorted({*host.marks, *one.marks}))
            small[one.path] = replace(best, start=1, end=host.end, marks=marks)
    return [*small.values(), *(one for one in found if one.path not in small)]


def _free(first: int, last: int, taken: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of a range of lines that are not taken."""
    free: list[tuple[int, int]] = []
    for begin, end in sorted(taken):
        if begin > last or end < first:
            continue
        if begin > first:
            free.append((first, begin - 1))
        first = end + 1
    if first <= last:
        free.append((first, last))
    return free


def _fitted(piece: Candidate, name: str, view: View, room: int, share: int) -> ContextItem:
    lines = view.texts.lines(piece.path)
    full = _item(piece, name, whole(lines, piece.start, piece.end), "chosen", piece.reason)
    if full.tokens <= min(room, share):
        return full
    file = view.repository.files.get(piece.path)
    for text in condensed(lines, piece.start, piece.end, file.symbols if file else (), piece.marks):
        short = _item(piece, name, text, "condensed", piece.reason)
        if short.tokens < full.tokens and short.tokens <= min(room, share):
            return short
    if full.tokens <= room:
        return full
    return full.model_copy(update={"fate": "discarded", "reason": f"{piece.reason}; no room: {room} tokens were left"})


def _item(piece: Candidate, name: str, text: str, fate: str, reason: str) -> ContextItem:
    item = ContextItem.model_validate(
        {
            "id": name,
            "kind": piece.kind,
            "label": piece.label,
            "path": piece.path,
            "start": piece.start,
            "end": piece.end,
            "relevance_score": piece.score,
            "tokens": 0,
            "fate": fate,
            "reason": reason,
            "text": text,
        }
    )
    return item.model_copy(update={"tokens": tokens_of(shown(item))})


def _longest_run(text: str) -> int:
    """The longest run of backquotes: the fence must be longer."""
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
