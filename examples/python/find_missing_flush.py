"""Power cuts of a small store find a flush that was forgotten.

The store writes a value to the end of a zone, and promises that it is durable. `flush` says whether it keeps the rule: flush
first, then promise. `python find_missing_flush.py` tests it with the rule, and then with a store that forgets the flush of
every third value.
"""

import zoneplug

BLOCK = 4096


class Store:
    """Values in the blocks of zone 0, one after the other."""

    def __init__(self, disk):
        self.disk = disk

    def put(self, value, flush=True):
        self.disk.append(0, value.encode().ljust(BLOCK, b"\0"))
        if flush:
            self.disk.flush()

    def values(self):
        nbytes = self.disk.zone(0).wp * 512
        data = bytes(self.disk.read(0, nbytes)) if nbytes else b""
        return [data[at : at + BLOCK].rstrip(b"\0").decode() for at in range(0, nbytes, BLOCK)]


def work(forget):
    """What the test runs before each power cut."""

    def run(work):
        store = Store(work.disk)
        for n in range(10):
            store.put(f"value {n}", flush=not (forget and n % 3 == 2))
            work.promise(f"value {n}")

    return run


def check(disk, promised):
    """What holds after each power cut."""
    values = Store(disk).values()
    for value in promised:
        assert value in values, f"{value} was promised, and is gone"


def main():
    print(zoneplug.crash.test(work(forget=False), check, disk="mem,zones=2,zone-size=64K"))
    try:
        zoneplug.crash.test(work(forget=True), check, disk="mem,zones=2,zone-size=64K")
    except zoneplug.errors.PowerCut as found:
        print(f"\nWith a flush that is forgotten at times:\n\n{found}")
    else:
        raise SystemExit("the missing flush was not found")


if __name__ == "__main__":
    main()
