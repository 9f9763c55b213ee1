"""Zones, as a report describes them."""

import struct
from enum import IntEnum
from typing import NamedTuple

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]

#: Linux's `struct blk_zone`: 64 bytes, little endian. Numbers are sectors of 512 bytes.
_RECORD = struct.Struct("<QQQBB6xQ24x")
_FIELDS = ("start", "len", "wp", "type", "cond", "capacity")


class Condition(IntEnum):
    """The condition of a zone (`BLK_ZONE_COND_*`)."""

    NOT_WP = 0x0
    EMPTY = 0x1
    IMP_OPEN = 0x2
    EXP_OPEN = 0x3
    CLOSED = 0x4
    READ_ONLY = 0xD
    FULL = 0xE
    OFFLINE = 0xF
    ACTIVE = 0xFF


class ZoneType(IntEnum):
    """How a zone is written."""

    CONVENTIONAL = 1
    SEQ_WRITE_REQUIRED = 2


class Zone(NamedTuple):
    """A zone. `start`, `len`, `wp` and `capacity` are in sectors of 512 bytes.

    `wp` is the next sector to write; `start + len` if the zone is full; 2**64 - 1 if it has no write pointer.
    """

    start: int
    len: int
    wp: int
    type: ZoneType
    cond: Condition
    capacity: int


def zones_of(records):
    """`Zone`s of the records of a report."""
    return [Zone(s, n, w, ZoneType(t), Condition(c), k) for s, n, w, t, c, k in _RECORD.iter_unpack(records)]


def array_of(records):
    """A NumPy structured array of the records of a report. It does not copy them."""
    if numpy is None:
        raise ImportError("a report as an array needs numpy; Disk.report() gives a list")
    dtype = numpy.dtype({
        "names": _FIELDS,
        "formats": ["<u8", "<u8", "<u8", "u1", "u1", "<u8"],
        "offsets": [0, 8, 16, 24, 25, 32],
        "itemsize": 64,
    })
    return numpy.frombuffer(records, dtype)
