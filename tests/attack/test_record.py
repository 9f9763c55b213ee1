"""The reader of the record, tried by itself: python3 -B tests/attack/test_record.py"""

import unittest

import record


def frame(what, op_id, data=b"", long=None):
    long = len(data) if long is None else long
    return record.FRAME.pack(b"ZPAT", ord(what), 0, 0, 0, op_id, 0, 0, 0, long, 0, b"") + data


def kinds(log):
    return "".join(f.what for f in record.frames(log))


class Frames(unittest.TestCase):
    after = frame("Y", 8) + frame("E", 8) + b"".join(frame("D", i) for i in range(20, 30))

    def test_a_whole_frame_has_its_data(self):
        self.assertEqual(kinds(frame("W", 7, bytes(512)) + self.after), "WYE" + "D" * 10)

    def test_what_a_kill_cut_short_swallows_no_frame_of_the_next_process(self):
        for there in (0, 1, 63, 64, 256, 511):
            cut = frame("W", 7, bytes(there), 512)
            self.assertEqual(kinds(cut + self.after), "YE" + "D" * 10, there)
        self.assertEqual(kinds(frame("W", 7)[:40] + self.after), "YE" + "D" * 10)


unittest.main()
