"""What has to be on a disk, by the record alone. Shares no code with zoneplug or its tests.

Each operation took effect at some moment between its submission and its acknowledgement, or at any later one or never if it was
not acknowledged. A zone is right if there is an order of its operations that explains what it holds. Since all that empties a zone is
a reset, it is enough to find one reset that may have been the last, and a moment for it."""

from record import (APPEND, CLOSE_DISK, DISCARD, FINISH, FLUSH, FUA, INF, PREFLUSH, RESET, RESET_ALL, WRITE, ZEROES, stamp)

NONE = bytes(512)
EMPTY, CLOSED, FULL, CONVENTIONAL = 1, 4, 14, 0


class Zone:
    """A zone as it was found the last time: what it holds then must be there from then on."""

    def __init__(self, start, length, capacity, conventional):
        self.start, self.len, self.capacity, self.conventional = start, length, capacity, conventional
        # Sequential: operation, sector in the zone, sectors that are there. Conventional: sector to operation, sector
        # in it.
        self.pieces, self.blocks = [], {}
        self.finished, self.data = False, bytes(capacity << 9)
        self.cond = CONVENTIONAL if conventional else EMPTY


class Wrong(Exception):
    pass


def durable(ops):
    """Operations that a power cut must not take back, of those that were acknowledged."""
    covers = [(o.s, None) for o in ops if o.ok and o.kind in (FLUSH, CLOSE_DISK)]
    covers += [(o.s, None) for o in ops if o.ok and o.flags & PREFLUSH]
    covers += [(o.s, o.zone) for o in ops if o.ok and o.kind == FINISH]
    last = {}
    for s, zone in covers:
        last[zone] = max(last.get(zone, -1), s)
    always = last.get(None, -1)
    for o in ops:
        if o.ok and (o.flags & FUA or o.kind in (RESET, RESET_ALL, FINISH) or o.a < max(always, last.get(o.zone, -1))):
            yield o


def zeros_of(zone, ops):
    """Operations that may have written zeroes, the newest at the end."""
    return [p[0] for p in zone.pieces if p[0].kind == ZEROES] + [o for o in ops if o.kind == ZEROES and o.may_count]


def walk(zone, nr, data, end, full, known, ops, need):
    """What a zone holds below sector `end`: pieces as in `Zone`."""
    pieces, at = [], 0
    zeroes = zeros_of(zone, ops)
    while at < end:
        sector = data[at << 9:(at + 1) << 9]
        if sector == NONE:
            if full and data.count(0, at << 9) == len(data) - (at << 9):
                # Written zeroes and the end of what was written before a finish look the same.
                break
            op = next((o for o in reversed(zeroes) if o.sector == zone.start + at and all(o is not p[0] for p in pieces)), None)
            if op is None:
                if full:
                    break
                raise Wrong(f"sector {at} is zeroes, below the write pointer {end}")
        else:
            number = int.from_bytes(sector[:8], "little")
            op = known.get(number)
            if op is None:
                raise Wrong(f"sector {at} holds what was never written: {sector[:32].hex()}")
        n = 0
        while n < op.len and at + n < end:
            want = NONE if op.kind == ZEROES else stamp(op.id, n)
            if data[(at + n) << 9:(at + n + 1) << 9] != want:
                break
            n += 1
        if n == 0:
            raise Wrong(f"sector {at} holds another part of {op}: {sector[:16].hex()}")
        if any(op is p[0] for p in pieces):
            raise Wrong(f"sector {at}: {op} is there twice")
        if op.zone != nr or op.kind not in (WRITE, APPEND, ZEROES):
            raise Wrong(f"sector {at} holds {op}")
        place = op.told if op.kind == APPEND and op.ok else None if op.kind == APPEND else op.sector
        if place is not None and place != zone.start + at:
            raise Wrong(f"sector {at} (sector {zone.start + at} of the disk) holds {op}")
        if not op.may_count:
            raise Wrong(f"sector {at} holds what was refused: {op}")
        whole = n == op.len or n == need.get(op) or at + n == end
        whole |= full and data[(at + n) << 9:(at + n + 1) << 9] == NONE
        if not whole:
            raise Wrong(f"sector {at + n} is not what {op} wrote there: {data[(at + n) << 9:][:32].hex()}")
        pieces.append((op, at, n))
        at += n
    if data.count(0, at << 9) != len(data) - (at << 9):
        raise Wrong(f"sectors past {at}, where the data ends, are not all zeroes")
    return pieces


def sequential(zone, nr, info, data, ops, must, known):
    """Checks a sequential zone. Returns the zone as it was found."""
    cond, full = info["condition_code"], info["condition_code"] == FULL
    if cond not in (EMPTY, CLOSED, FULL):
        raise Wrong(f"its condition is {info['cond']}, of a disk that nothing has open")
    end = zone.capacity if full else info["write_pointer_offset_sectors"]
    if not 0 <= end <= zone.capacity or (cond == EMPTY) != (end == 0) or (end == zone.capacity) != full:
        raise Wrong(f"its condition is {info['cond']} with the write pointer at {end} of {zone.capacity}")
    need = {op: n for op, at, n in zone.pieces}
    need.update((o, o.len) for o in ops if o in must and o.kind in (WRITE, APPEND, ZEROES))
    pieces = walk(zone, nr, data, end, full, known, ops, need)
    there = {op: n for op, at, n in pieces}
    written = sum(there.values()) == zone.capacity
    if full and not written:
        # The end may be zeroes that were written.
        tail = [o for o in zeros_of(zone, ops) if o.sector - zone.start >= sum(there.values())]
        written = any(o.sector - zone.start + o.len == zone.capacity for o in tail)
        for o in tail:
            need.pop(o, None)
    # The moment of the last reset is after `low` and before `high`.
    low, high, why_low, why_high = -1, INF, None, None
    for op, n in need.items():
        if there.get(op, 0) < n and op.s > low:
            low, why_low = op.s, f"{n - there.get(op, 0)} of {n} sectors are missing of {op}"
    for op in there:
        if op.a < high:
            high, why_high = op.a, f"it holds {op}"
    finishes = [o for o in ops if o.kind == FINISH and o.may_count]
    if full and not written:
        last = max([o.a for o in finishes] + [1 if zone.finished else -1])
        if last < 0:
            raise Wrong("it is full, though not written up to its end and not finished")
        if last < high:
            high, why_high = last, "it was finished"
    if not full:
        for s, why in [(o.s, o) for o in finishes if o in must] + ([(0, "before")] if zone.finished else []):
            if s > low:
                low, why_low = s, f"it is not full, but was finished: {why}"
    resets = [o for o in ops if o.kind in (RESET, RESET_ALL) and o.may_count]
    needed = [o for o in resets if o in must]
    for reset in [None] + resets:
        s, a = (reset.s, reset.a) if reset else (-1, 0)
        first = max([s, low] + [o.s for o in needed if o is not reset])
        if first < min(a, high):
            break
    else:
        last = max(needed, key=lambda o: o.s, default=None)
        raise Wrong("; ".join(str(w) for w in (
            why_low, why_high, f"its last reset was {last}" if last else "it was not reset") if w))
    for (x, at, _), (y, _, _) in zip(pieces, pieces[1:]):
        if y.a < x.s:
            raise Wrong(f"at sector {at} {x} lies in front of {y}, which was acknowledged before")
    found = Zone(zone.start, zone.len, zone.capacity, False)
    found.pieces, found.data = pieces, data
    # Zeroes at the end that may have been written count as finished from now on.
    found.finished = full and sum(there.values()) < zone.capacity
    return found


def conventional(zone, nr, info, data, ops, must, known):
    """Checks a conventional zone, sector by sector: what is there may have been the last write."""
    if info["condition_code"] != CONVENTIONAL:
        raise Wrong(f"its condition is {info['cond']}")
    touched = {}
    for o in ops:
        if o.may_count and o.kind in (WRITE, ZEROES, DISCARD):
            for i in range(o.len):
                touched.setdefault(o.sector - zone.start + i, []).append((o, i))
    found = Zone(zone.start, zone.len, zone.capacity, True)
    found.blocks, found.data = dict(zone.blocks), data
    for at in range(zone.capacity):
        if at not in touched:
            if data[at << 9:(at + 1) << 9] != zone.data[at << 9:(at + 1) << 9]:
                raise Wrong(f"sector {at} changed, and nothing was written there")
            continue
        sector = data[at << 9:(at + 1) << 9]
        if sector == NONE:
            may = [(o, i) for o, i in touched[at] if o.kind != WRITE]
            was = at not in zone.blocks
        else:
            op = known.get(int.from_bytes(sector[:8], "little"))
            may = [(o, i) for o, i in touched[at] if o is op and sector == stamp(o.id, i)]
            was = sector == zone.data[at << 9:(at + 1) << 9]
        # The last to begin of those that may be it: it is the hardest to be after.
        value = max(may, key=lambda v: v[0].a, default=None)
        if value is None and not was:
            raise Wrong(f"sector {at} holds {sector[:16].hex()}, of {[o for o, _ in touched[at]]}")
        until = value[0].a if value else 1
        if was:
            until = max(until, 1)
        later = [o for o, _ in touched[at] if o in must and o.s > until]
        if later:
            raise Wrong(f"sector {at} holds {value[0] if value else 'what it did before'}, but then came {later[-1]}")
        found.blocks.pop(at, None)
        if sector != NONE:
            found.blocks[at] = value or zone.blocks.get(at)
    return found


class Model:
    """All zones of a disk, and every operation that may be on it."""

    def __init__(self, report):
        self.zones = [Zone(z["start_sector"], z["len_sectors"], z["capacity_sectors"], z["condition_code"] == CONVENTIONAL) for z in report]
        self.known = {}

    def check(self, report, data, ops, power_cut):
        """Checks what a disk reports and reads against the operations since the last check. Returns problems, and the zones found."""
        problems, found = [], []
        must = set(durable(ops)) if power_cut else {o for o in ops if o.ok}
        known = dict(self.known)
        known.update((o.id, o) for o in ops)
        by_zone = {}
        for o in ops:
            if o.kind == RESET_ALL:
                for nr in range(len(self.zones)):
                    by_zone.setdefault(nr, []).append(o)
            elif o.zone < len(self.zones):
                by_zone.setdefault(o.zone, []).append(o)
        if [(z["start_sector"], z["len_sectors"], z["capacity_sectors"]) for z in report] != [(z.start, z.len, z.capacity) for z in self.zones]:
            return ["the zones have another layout"], None
        at = 0
        for nr, (zone, info) in enumerate(zip(self.zones, report)):
            here = data[at:at + (zone.capacity << 9)]
            at += zone.capacity << 9
            mine = by_zone.get(nr, [])
            if not mine and here == zone.data and info["condition_code"] == zone.cond:
                found.append(zone)
                continue
            try:
                found.append((conventional if zone.conventional else sequential)(
                    zone, nr, info, here, mine, must, known))
                found[-1].cond = info["condition_code"]
            except Wrong as e:
                problems.append(f"zone {nr}: {e}")
        if at != len(data):
            problems.append(f"{len(data)} bytes were read, not {at}")
        return problems, found

    def accept(self, found):
        """From now on all that was found has to be there."""
        self.zones, self.known = found, {}
        for zone in found:
            for op in [p[0] for p in zone.pieces] + [v[0] for v in zone.blocks.values()]:
                op.s, op.a, op.status = 0, 1, "Ok"
                self.known[op.id] = op
            for op, at, _ in zone.pieces:
                # Where an append that was not acknowledged lies is known now.
                op.told = zone.start + at
