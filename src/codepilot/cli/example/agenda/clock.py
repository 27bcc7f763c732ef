"""Times of day as people write them, and as minutes since midnight."""

import re

from agenda.spans import Span

_TIME = re.compile(r"(\d{1,2}):(\d{2})")
_DAY = 24 * 60


def parse_time(text):
    """Minutes since midnight of `9:05` or `17:30`; `24:00` is the end of the day."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a time: {text!r}")
    hours, minutes = int(match.group(1)), int(match.group(2))
    moment = hours * 60 + minutes
    if minutes >= 60 or moment > _DAY:
        raise ValueError(f"no such time of day: {text!r}")
    return moment


def parse_span(text):
    """The span of `9:00-10:30`."""
    start, dash, end = text.partition("-")
    if not dash:
        raise ValueError(f"not a span: {text!r}")
    return Span(parse_time(start), parse_time(end))


def format_time(moment):
    return f"{moment // 60}:{moment % 60:02d}"


def format_span(span):
    return f"{format_time(span.start)}-{format_time(span.end)}"
