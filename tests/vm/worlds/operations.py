"""The operations of a writer, and what its files hold after them.

The guest draws each operation from the state that the ones before it have left, and tells their outcomes. The check draws
the same operations from the same outcomes. So it knows what each file must hold, to the byte.
"""

import random

BLOCK = 4096
# A writer makes no file larger than this, in bytes.
MOST = 1 << 20


def data(tag, n):
    """Bytes that are in no other place."""
    return random.Random(tag).randbytes(n)


class Files:
    """The files of one writer. Each operation is durable when it has succeeded."""

    def __init__(self, plan, writer):
        self.plan, self.writer = plan, writer
        self.random = random.Random(f"{plan['seed']}/{writer}")
        self.number = 0
        # By path.
        self.content = {}
        # Folders that hold copies of all files of a time (btrfs).
        self.snapshots = {}
        # A zone whose state is not known cannot be written on.
        self.ended = False

    def held(self, path):
        """What a file holds. One of a conventional zone is there from the start, with zeros."""
        empty = bytes(self.plan["zone_mib"] << 20) if path.startswith("cnv/") else b""
        return self.content.get(path, empty)

    def next(self):
        """The next operation."""
        self.number += 1
        op = self.of_zones() if self.plan["fs"] == "zonefs" else self.of_files()
        op["pause_s"] = self.random.random() * self.plan["pause_s"]
        return op

    def data(self, n):
        return data(f"{self.plan['seed']}/{self.writer}/{self.number}", n)

    def of_files(self):
        r = self.random
        kinds = ["create", "create", "append", "append", "overwrite", "direct", "map", "replace", "remove", "truncate"]
        # btrfs makes no holes on zoned disks.
        kinds.append("snapshot" if self.plan["fs"] == "btrfs" else "punch")
        kind = r.choice(kinds)
        size = r.choice((100, 5000, 70_000, 700_000))
        path = r.choice(sorted(self.content)) if self.content else None
        place = r.random()
        if kind == "snapshot":
            return {"kind": kind, "path": f"s{self.writer}.{self.number}"}
        if path is None or kind == "create":
            return {"kind": "create", "path": f"f{self.writer}.{self.number}", "at": 0, "bytes": self.data(size)}
        had = len(self.content[path])
        at = int(place * had)
        if kind == "append":
            return {"kind": kind, "path": path, "at": had, "bytes": self.data(max(1, min(size, MOST - had)))}
        if kind in ("overwrite", "map", "punch") and had > at:
            size = min(size, had - at)
            if kind == "punch":
                return {"kind": kind, "path": path, "at": at, "size": size}
            return {"kind": kind, "path": path, "at": at, "bytes": self.data(size)}
        if kind == "direct":
            at -= at % BLOCK
            return {"kind": kind, "path": path, "at": at, "bytes": self.data(-(-size // BLOCK) * BLOCK)}
        if kind == "truncate":
            return {"kind": kind, "path": path, "size": r.choice((0, at, at, had + 3 * BLOCK))}
        if kind == "remove":
            return {"kind": kind, "path": path}
        return {"kind": "replace", "path": path, "at": 0, "bytes": self.data(size)}

    def of_zones(self):
        r = self.random
        capacity = self.plan["capacity_mib"] << 20
        kind, blocks, place = r.choice(("append",) * 6 + ("empty", "fill", "conventional")), r.randint(1, 64), r.random()
        if kind == "conventional" and self.writer < self.plan["conventional"] - 1:
            path = f"cnv/{self.writer}"
            at = int(place * 64) * BLOCK
            return {"kind": "direct", "path": path, "at": at, "bytes": self.data(blocks * BLOCK)}
        path = f"seq/{self.writer + 2 * r.randint(0, 1) * self.plan['writers']}"
        had = len(self.held(path))
        if kind == "empty" or had + blocks * BLOCK > capacity:
            return {"kind": "truncate", "path": path, "size": 0}
        if kind == "fill" and self.number % 3 == 0:
            return {"kind": "truncate", "path": path, "size": capacity}
        return {"kind": "direct", "path": path, "at": had, "bytes": self.data(blocks * BLOCK)}

    def done(self, op):
        """The operation has succeeded."""
        path, kind = op["path"], op["kind"]
        if kind == "snapshot":
            self.snapshots[path] = dict(self.content)
        elif kind == "remove":
            del self.content[path]
        elif kind == "replace":
            self.content[path] = op["bytes"]
        elif kind == "truncate":
            old = self.held(path)[: op["size"]]
            self.content[path] = old + bytes(op["size"] - len(old))
        else:
            old = self.held(path)
            new = op["bytes"] if "bytes" in op else bytes(op["size"])
            end = op["at"] + len(new)
            self.content[path] = old[: op["at"]].ljust(op["at"], b"\0") + new + old[end:]

    def given_up(self, op):
        """The operation has failed, as for want of space: what its file holds is not known any more, and it is not used again."""
        self.content.pop(op["path"], None)
        self.ended = self.plan["fs"] == "zonefs"

    def differs(self, path, there, op):
        """What is wrong with a file, or None. `there`: what it holds; None: it is not there. `op`: an operation that was under way, if
        it is about this file."""
        want = self.content.get(path)
        if want is None and "/" in path:
            want = self.held(path)
        if op is None:
            if there == want:
                return None
            return told(want, there)
        kind = op["kind"]
        if kind == "create":
            return None
        if kind in ("replace", "remove"):
            new = op.get("bytes")
            return None if there in (want, new) else told(want, there)
        if there is None:
            return told(want, there)
        if kind == "truncate":
            sizes, changed = (len(want or b""), op["size"]), (min(len(want or b""), op["size"]), MOST * 64)
        else:
            end = op["at"] + (op["size"] if "size" in op else len(op["bytes"]))
            old = len(want or b"")
            # The size may come before or after the data, and the data in parts.
            sizes, changed = (old, max(old, end)), (op["at"], end)
        if not min(sizes) <= len(there) <= max(sizes):
            return told(want, there)
        old = want or b""
        start, end = changed
        kept = min(len(old), len(there))
        same = there[: min(start, kept)] == old[: min(start, kept)] and there[end:kept] == old[end:kept]
        return None if same else told(want, there)


def told(want, there):
    """How two contents differ, in a few words."""
    if there is None:
        return f"{len(want)} bytes are gone with the file"
    if want is None:
        return f"{len(there)} bytes of a file that was removed"
    first = next((i for i, (a, b) in enumerate(zip(want, there)) if a != b), min(len(want), len(there)))
    zeros = " (zeros)" if there[first : first + 512].count(0) == len(there[first : first + 512]) else ""
    return f"{len(want)} bytes were acknowledged, {len(there)} are there, from byte {first} on others{zeros}"
