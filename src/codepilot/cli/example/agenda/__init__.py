"""Book rooms by the minute."""

from agenda.book import Agenda, Clash
from agenda.clock import format_span, parse_span
from agenda.spans import Span, gaps, merge, total

__all__ = ["Agenda", "Clash", "Span", "format_span", "gaps", "merge", "parse_span", "total"]
