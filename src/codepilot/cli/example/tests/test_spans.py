import unittest

from agenda import Span, gaps, merge, total

DAY = Span(480, 1080)


class SpanTest(unittest.TestCase):
    def test_a_span_needs_minutes(self):
        with self.assertRaises(ValueError):
            Span(10, 10)

    def test_overlap(self):
        self.assertTrue(Span(0, 10).overlaps(Span(9, 12)))
        self.assertFalse(Span(0, 10).overlaps(Span(10, 12)))

    def test_contains(self):
        self.assertTrue(DAY.contains(DAY))
        self.assertFalse(DAY.contains(Span(479, 600)))


class MergeTest(unittest.TestCase):
    def test_apart(self):
        self.assertEqual(merge([Span(5, 6), Span(1, 2)]), [Span(1, 2), Span(5, 6)])

    def test_touching_and_overlapping(self):
        self.assertEqual(merge([Span(1, 3), Span(3, 4), Span(2, 8)]), [Span(1, 8)])

    def test_one_inside_another(self):
        self.assertEqual(merge([Span(1, 9), Span(2, 3)]), [Span(1, 9)])

    def test_total(self):
        self.assertEqual(total([Span(0, 10), Span(5, 20), Span(30, 31)]), 21)


class GapsTest(unittest.TestCase):
    def test_an_empty_day(self):
        self.assertEqual(gaps([], DAY), [DAY])

    def test_between_bookings(self):
        taken = [Span(480, 500), Span(600, 700)]
        self.assertEqual(gaps(taken, DAY), [Span(500, 600), Span(700, 1080)])

    def test_unsorted_bookings(self):
        taken = [Span(900, 1080), Span(480, 540)]
        self.assertEqual(gaps(taken, DAY), [Span(540, 900)])

    def test_a_full_day(self):
        self.assertEqual(gaps([DAY], DAY), [])

    def test_bookings_outside_the_day(self):
        taken = [Span(100, 490), Span(1070, 1200), Span(1300, 1400)]
        self.assertEqual(gaps(taken, DAY), [Span(490, 1070)])

    def test_bookings_before_the_day(self):
        self.assertEqual(gaps([Span(100, 200)], DAY), [DAY])

    def test_a_long_booking_hides_a_short_one(self):
        taken = [Span(500, 900), Span(600, 700), Span(950, 1000)]
        self.assertEqual(gaps(taken, DAY), [Span(480, 500), Span(900, 950), Span(1000, 1080)])


if __name__ == "__main__":
    unittest.main()
