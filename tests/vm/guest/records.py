"""Writes records of 64 KiB until an error: records.py FILE TOLD [FIRST]. The number of each goes into the file TOLD, in memory and
not on the disk, when its fsync has returned. In Linux 7.2 an operation of btrfs ends with EAGAIN while another one syncs
(tests/vm/worlds/known.py), so it is done again."""

import os
import sys

path, told, number = sys.argv[1], sys.argv[2], int((sys.argv[3:] or ["0"])[0])


def again(call, *arguments):
    for _ in range(100):
        try:
            return call(*arguments)
        except BlockingIOError:
            print("EAGAIN", file=sys.stderr)
    return call(*arguments)


log, ack = os.open(path, os.O_WRONLY | os.O_CREAT), os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
try:
    while True:
        record = (b"%08d " % number) * (65536 // 9 + 1)
        again(os.pwrite, log, record[:65536], number * 65536)
        again(os.fsync, log)
        os.write(ack, b"%d\n" % number)
        number += 1
except OSError as e:
    print("the writer ended: %s" % e)
    sys.exit(3)
