"""The record of a run: what was submitted and acknowledged, and with the shim what was written and synced, in one order.

The frames are described in victim.rs and shim.c."""

import collections
import math
import struct

FRAME = struct.Struct("<4sBBBBQIIQQQ16s")
INF = math.inf

(WRITE, APPEND, ZEROES, DISCARD, FLUSH, RESET, RESET_ALL, FINISH, OPEN, CLOSE, CLOSE_DISK,
 OPEN_DISK) = range(1, 13)
NAMES = dict(enumerate(
    "write append write-zeroes discard flush reset reset-all finish open close close-disk open-disk".split(), 1))
FUA, PREFLUSH = 1, 2

# What an operation may be refused with on a disk without faults, as the first 16 letters of its name. Nothing of such
# an operation is on the disk.
REFUSALS = {name[:16] for name in (
    "NotAtWritePointer", "PastCapacity", "ZoneFull", "StaleWritePointer", "ZoneBusy", "AbortedBehind",
    "AbortedByManagement", "OpenLimit", "ActiveLimit", "InvalidTransition", "UnalignedWrite", "Boundary")}

Frame = collections.namedtuple("Frame", "what op flags status id zone len sector result unused name data")


class Op:
    """An operation: `s` and `a` are the places of its submission and acknowledgement in the record."""
    __slots__ = "id kind flags zone len sector s a status told".split()

    def __init__(self, f, s):
        self.id, self.kind, self.flags, self.zone, self.len, self.sector = f.id, f.op, f.flags, f.zone, f.len, f.sector
        self.s, self.a, self.status, self.told = s, INF, None, None

    def copy(self, cut):
        """The operation as it is known at place `cut`."""
        o = Op.__new__(Op)
        for name in Op.__slots__:
            setattr(o, name, getattr(self, name))
        if o.a >= cut:
            o.a, o.status, o.told = INF, None, None
        return o

    @property
    def ok(self):
        return self.status == "Ok"

    @property
    def may_count(self):
        """Whether it may have had an effect: it went well, or nothing is known of it, or it failed in an unknown way."""
        return self.status is None or self.ok or self.status not in REFUSALS

    def __repr__(self):
        end = f"{self.status} at {self.a}" if self.status else "in flight"
        told = f", told sector {self.told}" if self.kind == APPEND and self.ok else ""
        flags = (" FUA" if self.flags & FUA else "") + (" preflush" if self.flags & PREFLUSH else "")
        zone = "" if self.zone == 0xffffffff else f" in zone {self.zone}, sector {self.sector} + {self.len}"
        return f"{self.id >> 32}.{self.id & 0xffffffff} {NAMES[self.kind]}{flags}{zone}, submitted at {self.s}, {end}{told}"


def frames(data):
    """The frames of a log. What a process that was killed left half written never happened."""
    at = 0
    while at + FRAME.size <= len(data):
        f = FRAME.unpack_from(data, at)
        what, long = chr(f[1]), 0
        if f[0] == b"ZPAT":
            long = f[9] if what == "W" else 0
        end = at + FRAME.size + long
        # Data that end where another frame begins may be the frames of the next process, behind a frame that was cut
        # short.
        torn = end > len(data) or data[end:end + 4] not in (b"ZPAT", b"") or data.find(b"ZPAT", at + FRAME.size, end) >= 0
        if f[0] != b"ZPAT" or torn:
            at = data.find(b"ZPAT", at + 1)
            if at < 0:
                return
            continue
        yield Frame(what, *f[2:11], f[11].rstrip(b"\0").decode(), data[at + FRAME.size:end])
        at = end


def operations(log, first=2):
    """The operations of a log in the order of their submission. Places begin at `first`: 0 and 1 are before the run."""
    ops = {}
    for at, f in enumerate(log, first):
        if f.what == "S":
            ops[f.id] = Op(f, at)
        elif f.what == "A" and f.op != OPEN_DISK:
            o = ops[f.id]
            o.a, o.status, o.told = at, f.name, f.result
    return list(ops.values())


# A sector as a number: what each of its 32 parts of 16 bytes adds.
IDS = sum(1 << 128 * part for part in range(32))
SECTORS = IDS << 64
PARTS = sum(part << 128 * part + 96 for part in range(32))


def stamp(op_id, sector):
    """What the victim writes into a sector of an operation."""
    return (op_id * IDS + sector * SECTORS + PARTS).to_bytes(512, "little")


def overlay(file, at, data, op_id):
    """Frames for a range that was written, as the shim would have left them."""
    head = FRAME.pack(b"ZPAT", ord("W"), file, 0, 0, op_id, 0, 0, at, len(data), 0, b"")
    return head + data + ended(file, op_id)


def ended(file, op_id):
    return FRAME.pack(b"ZPAT", ord("D"), file, 0, 0, op_id, 0, 0, 0, 0, 0, b"")
