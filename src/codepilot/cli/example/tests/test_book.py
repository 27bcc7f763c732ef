import unittest

from agenda import Agenda, Clash, Span


class BookTest(unittest.TestCase):
    def setUp(self):
        self.agenda = Agenda(Span(480, 1080))

    def test_a_booking_is_kept(self):
        self.agenda.book("red", Span(500, 560), "ana")
        self.assertEqual(self.agenda.booked("red"), [Span(500, 560)])
        self.assertEqual(self.agenda.booked("blue"), [])

    def test_bookings_may_touch(self):
        self.agenda.book("red", Span(500, 560), "ana")
        self.agenda.book("red", Span(560, 600), "ben")
        self.assertEqual(len(self.agenda.booked("red")), 2)

    def test_a_taken_room_is_refused(self):
        self.agenda.book("red", Span(500, 560), "ana")
        with self.assertRaises(Clash):
            self.agenda.book("red", Span(559, 600), "ben")
        with self.assertRaises(Clash):
            self.agenda.book("red", Span(559, 600), "ben", shared=True)

    def test_outside_opening_hours(self):
        with self.assertRaises(ValueError):
            self.agenda.book("red", Span(470, 500), "ana")

    def test_cancel(self):
        self.agenda.book("red", Span(500, 560), "ana")
        self.assertTrue(self.agenda.cancel("red", Span(500, 560)))
        self.assertFalse(self.agenda.cancel("red", Span(500, 560)))
        self.assertEqual(self.agenda.free("red"), [Span(480, 1080)])

    def test_first_free(self):
        self.agenda.book("red", Span(480, 500), "ana")
        self.agenda.book("red", Span(510, 900), "ben")
        self.assertEqual(self.agenda.first_free("red", 10), Span(500, 510))
        self.assertEqual(self.agenda.first_free("red", 11), Span(900, 911))
        self.assertIsNone(self.agenda.first_free("red", 600))

    def test_shared_bookings_leave_no_false_gap(self):
        self.agenda.book("red", Span(480, 900), "ana", shared=True)
        self.agenda.book("red", Span(500, 600), "ben", shared=True)
        self.assertEqual(self.agenda.free("red"), [Span(900, 1080)])


if __name__ == "__main__":
    unittest.main()
