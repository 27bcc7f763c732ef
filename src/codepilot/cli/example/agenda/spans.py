"""Half-open spans of minutes, and arithmetic on lists of them."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Span:
    """From `start` up to, but not including, `end`."""

    start: int
    end: int

    def __post_init__(self):
        if self.start >= self.end:
            raise ValueError(f"a span must end after it starts: {self.start}-{self.end}")

    @property
    def minutes(self):
        return self.end - self.start

    def overlaps(self, other):
        return self.start < other.end and other.start < self.end

    def contains(self, other):
        return self.start <= other.start and other.end <= self.end


def merge(spans):
    """The same minutes in as few spans as possible, sorted. Spans that touch become one."""
    merged = []
    for span in sorted(spans):
        if merged and span.start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def gaps(spans, within):
    """The minutes of `within` that no span covers."""
    free = []
    cursor = within.start
    for span in sorted(spans):
        if span.start >= within.end:
            break
        if span.start > cursor:
            free.append(Span(cursor, span.start))
        cursor = span.end
    if cursor < within.end:
        free.append(Span(cursor, within.end))
    return free


def total(spans):
    """How many minutes the spans cover, counting overlaps once."""
    return sum(span.minutes for span in merge(spans))
