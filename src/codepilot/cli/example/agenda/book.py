"""Bookings of several rooms."""

from agenda.spans import Span, gaps


OPENING = Span(8 * 60, 18 * 60)


class Clash(Exception):
    """The room is taken."""


class Agenda:
    """Who has which room, and when."""

    def __init__(self, opening=OPENING):
        self.opening = opening
        self._bookings = {}

    def book(self, room, span, who, shared=False):
        """Take `room` for `span`. A shared booking may overlap other shared ones."""
        if not self.opening.contains(span):
            raise ValueError("outside opening hours")
        for other, _, other_shared in self._bookings.get(room, []):
            if span.overlaps(other) and not (shared and other_shared):
                raise Clash(f"{room} is taken")
        self._bookings.setdefault(room, []).append((span, who, shared))

    def cancel(self, room, span):
        """Give the room back; says whether there was such a booking."""
        kept = [entry for entry in self._bookings.get(room, []) if entry[0] != span]
        found = len(kept) < len(self._bookings.get(room, []))
        self._bookings[room] = kept
        return found

    def booked(self, room):
        return sorted(span for span, _, _ in self._bookings.get(room, []))

    def free(self, room):
        """When the room can still be had."""
        return gaps(self.booked(room), self.opening)

    def first_free(self, room, minutes):
        """The earliest span of that length, or None."""
        for gap in self.free(room):
            if gap.minutes >= minutes:
                return Span(gap.start, gap.start + minutes)
        return None
