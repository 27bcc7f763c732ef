"""The figures of a sweep: what was found, what of it is right, how fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from codepilot.bench.results import Result


@dataclass(frozen=True)
class Figures:
    bugs: int
    errors: int
    plausible: int
    top1: int
    top5: int
    confirmed: int
    confirmed_wrong: int
    median_first_sec: float | None
    """Seconds of search to the first plausible repair, over the bugs that have one."""
    per_sec: float
    """Candidates tried in all, for each second in which candidates were being tried."""
    median_per_sec: float
    peak_mib: float
    median_total_sec: float
    outside: int
    """Changes outside the sandbox."""
    watched: int
    """Files looked at for that, where they were fewest."""
    unwatched: int
    """Bugs whose rows are from before there was such a look."""

    def as_json(self) -> dict[str, float | int | None]:
        return asdict(self)


def figure(results: Sequence[Result]) -> Figures:
    first = [one.first_plausible_sec for one in results if one.plausible and one.first_plausible_sec is not None]
    searched = [one for one in results if one.trying_sec > 0]
    trying_sec = sum(one.trying_sec for one in searched)
    confirmed = [one for one in results if one.verdict == "confirmed"]
    return Figures(
        bugs=len(results),
        errors=sum(one.status == "ERROR" for one in results),
        plausible=sum(one.plausible for one in results),
        top1=sum(one.first_correct for one in results),
        top5=sum(one.any_correct for one in results),
        confirmed=len(confirmed),
        confirmed_wrong=sum(not one.first_correct for one in confirmed),
        median_first_sec=round(median(first), 2) if first else None,
        per_sec=round(sum(one.tried for one in searched) / trying_sec, 1) if trying_sec else 0.0,
        median_per_sec=round(median([one.tried / one.trying_sec for one in searched]), 1) if searched else 0.0,
        peak_mib=max((one.peak_mib for one in results), default=0.0),
        median_total_sec=round(median([one.total_sec for one in results]), 1) if results else 0.0,
        outside=sum(one.outside_count for one in results),
        watched=min((one.watched for one in results if one.watched), default=0),
        unwatched=sum(not one.watched for one in results),
    )


def by_kind(results: Sequence[Result]) -> dict[str, Figures]:
    """The same for each kind of bug, the most frequent first."""
    kinds: dict[str, list[Result]] = {}
    for one in results:
        kinds.setdefault(one.kind, []).append(one)
    ordered = sorted(kinds.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return {kind: figure(found) for kind, found in ordered}
