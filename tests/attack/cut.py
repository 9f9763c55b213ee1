"""The files of a disk as a power cut may leave them, from the log of the shim.

What a sync covers that ended well before the cut is there: every write that had ended when it began. Of every other write that had
begun, any sectors may be there."""

import record

SECTOR = 512


class Write:
    __slots__ = "id at data long ended".split()

    def __init__(self, f):
        self.id, self.at, self.long, self.ended = f.id, f.sector, f.result, False
        self.data = f.data if f.what == "W" else None

    def apply(self, image, parts=None):
        for at, end in parts or [(0, self.long)]:
            image[self.at + at:self.at + end] = self.data[at:end] if self.data is not None else bytes(end - at)

    def sectors(self, keep):
        """The parts of it, whole sectors of the file, that `keep` says yes to."""
        at = 0
        while at < self.long:
            end = min(self.long, (self.at + at) // SECTOR * SECTOR + SECTOR - self.at)
            if keep():
                yield at, end
            at = end


class Medium:
    """What is on the medium for certain, and what may be."""

    def __init__(self, image, rng):
        self.image, self.rng = bytearray(image), rng
        self.pending, self.syncs = [], {}

    def take(self, f):
        if f.what in "WP":
            self.pending.append(Write(f))
        elif f.what == "D":
            for w in self.pending:
                if w.id == f.id:
                    w.ended = True
        elif f.what == "Y":
            self.syncs[f.id] = [w for w in self.pending if w.ended]
        elif f.what == "E":
            covered = set(self.syncs.pop(f.id))
            for w in self.pending:
                if w in covered:
                    w.apply(self.image)
            self.pending = [w for w in self.pending if w not in covered]

    def cut(self):
        """A file as a power cut may leave it now."""
        image, rng = bytearray(self.image), self.rng
        way = rng.randrange(7)
        one = rng.randrange(len(self.pending)) if self.pending else 0
        share = rng.random()
        for i, w in enumerate(self.pending):
            if way == 0 or way == 1 and i != one or way == 2 and rng.random() < share:
                w.apply(image)
            elif way == 3 and i == one or way == 4 and i >= len(self.pending) - 1 - rng.randrange(3):
                # A later one reached the medium, what came before did not.
                w.apply(image)
            elif way == 5 and w.long < 8 * SECTOR:
                # Table and notes, but no data.
                w.apply(image)
            elif way == 6:
                w.apply(image, list(w.sectors(lambda: rng.random() < share)) or [(0, 0)])
        return image


def settle(log_path, files):
    """After a process was killed: what its writes that had not ended left in the page cache goes into the log as it is there."""
    with open(log_path, "rb") as f:
        log = list(record.frames(f.read()))
    begun = {f.id: f for f in log if f.what in "WP"}
    for f in log:
        if f.what == "D":
            begun.pop(f.id, None)
    with open(log_path, "ab") as out:
        for n, f in enumerate(begun.values()):
            with open(files[f.op], "rb") as disk:
                disk.seek(f.sector)
                data = disk.read(f.result)
            new = f.id | 1 << 31
            out.write(record.overlay(f.op, f.sector, data, new) + record.ended(f.op, f.id))
