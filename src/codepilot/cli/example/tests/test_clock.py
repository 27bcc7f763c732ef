import unittest

from agenda import Span, format_span, parse_span
from agenda.clock import parse_time


class ParseTest(unittest.TestCase):
    def test_times(self):
        self.assertEqual(parse_time("0:00"), 0)
        self.assertEqual(parse_time("9:05"), 545)
        self.assertEqual(parse_time(" 17:30 "), 1050)

    def test_the_end_of_the_day(self):
        self.assertEqual(parse_time("24:00"), 1440)

    def test_nonsense_is_refused(self):
        for text in ("", "9", "9:5", "24:01", "9:60", "x9:00"):
            with self.subTest(text), self.assertRaises(ValueError):
                parse_time(text)

    def test_spans(self):
        self.assertEqual(parse_span("9:00-10:30"), Span(540, 630))
        with self.assertRaises(ValueError):
            parse_span("9:00")

    def test_round_trip(self):
        for text in ("8:00-8:05", "10:59-12:00", "0:01-24:00"):
            self.assertEqual(format_span(parse_span(text)), text)


if __name__ == "__main__":
    unittest.main()
