"""Attacks disks that a server shows to a host of NVMe/TCP: take-overs, ends and kills with other arguments and other files, snapshots
beside renames, writes beside appends, data in and behind the capsule. The host keeps the record: the place of each block that a server
has acknowledged. Each block names the operation that wrote it."""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time

from host import APPEND, BLOCK, WRITE, Host, Lost

ZONES, ZONE = 8, 256
TURNS_OF_A_SERVER = 12
PATIENCE = 60


class Wrong(Exception):
    pass


def blocks(op, count):
    return b"".join(struct.pack("<QI", op, n) * (BLOCK // 12) + bytes(BLOCK % 12) for n in range(count))


class Disk:
    """A served disk: its file, its layers, and what is in each zone."""

    def __init__(self, run, directory, n, rng):
        self.n, self.path = n, os.path.join(directory, f"d{n}.zbd")
        self.capacity = rng.choice([ZONE, ZONE * 3 // 4])
        self.made = ["--zones", str(ZONES), "--zone-size", "1M", "--zone-capacity", f"{self.capacity * 4}K", "--lba-size", "4096"]
        if rng.random() < 0.3:
            self.made += ["--zone-append-max", "128K"]
        run("create", self.path, *self.made)
        self.key = None
        if rng.random() < 0.4:
            self.key = os.path.join(directory, f"key{n}")
            with open(os.open(self.key, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
                f.write(rng.randbytes(64))
        self.zones = [b""] * ZONES
        self.nsid = self.uuid = None

    def spec(self, options=""):
        layer = f"crypt,key-file={self.key}@" if self.key else ""
        return f"{layer}{self.path}{options}"


class Served:
    stack = "served"

    def __init__(self, tools, seed, directory, rng):
        self.tools, self.dir, self.rng = tools, directory, rng
        self.done = {"served": 0, "acknowledged": 0}
        self.where, self.ops, self.op = "at the start", [], 0
        self.nqn = f"nqn.2026-11.dev.zoneplug:attack-{os.getpid()}-{seed}"
        self.socket = os.path.join(directory, "socket")
        self.process = self.host = None
        self.pieces = rng.choice([4096, 12288, 1 << 30])
        self.disks = [Disk(self.run, directory, n, rng) for n in range(rng.choice([1, 2, 3]))]
        self.disk = self.disks[0]
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.address = s.getsockname()

    def run(self, *args, wanted=0):
        """Runs a command of zoneplug, which is to end with a status."""
        p = subprocess.run([self.tools.zoneplug, *args], capture_output=True, timeout=PATIENCE)
        said = p.stderr.decode().strip()
        if p.returncode != wanted if wanted is not None else p.returncode == 0:
            raise Wrong(f"zoneplug {' '.join(args)}: exit status {p.returncode}: {said or p.stdout.decode().strip()}")
        return p.stdout if wanted == 0 else said

    def arguments(self, specs, *more):
        at = f"{self.address[0]}:{self.address[1]}"
        return ["serve", "--nqn", self.nqn, "--socket", self.socket, *more, "--nvme-tcp", at, *specs]

    def specs(self):
        """All disks, in another order and with other attributes each time: what hosts see stays."""
        options = ["", ",qd1=1", ",scheduler=mq-deadline", ",io=threads", ",nomerges=1"]
        specs = [d.spec(self.rng.choice(options)) for d in self.disks]
        self.rng.shuffle(specs)
        return specs

    def start(self, specs, *more):
        log = open(os.path.join(self.dir, "server.log"), "ab")
        args = [self.tools.zoneplug, *self.arguments(specs, *more)]
        last, self.process = self.process, subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
        if last and last.wait(PATIENCE) != 0 and "--takeover" in more:
            raise Wrong(f"the server that was taken over from ended with {last.returncode}")
        self.connect()

    def connect(self):
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self.host = Host(self.address, self.nqn)
                # A host may send what it is asked for in pieces.
                self.host.io.chunk = min(self.host.io.chunk, self.pieces)
                there = self.host.namespaces()
                break
            except (Lost, ConnectionError, OSError) as e:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise Wrong(f"the server does not serve ({self.process.poll()}): {e}") from None
                time.sleep(0.01)
        for d in self.disks:
            if d.nsid is None:
                known = {other.nsid for other in self.disks}
                d.nsid = next(n for n in sorted(there) if n not in known and self.is_of(n, d))
                d.uuid = there[d.nsid]
            if there.get(d.nsid) != d.uuid:
                raise Wrong(f"namespace {d.nsid} of {d.path} is {there.get(d.nsid)}, and was {d.uuid}: {there}")
        if self.host.capsule < BLOCK:
            raise Wrong(f"a capsule takes {self.host.capsule} bytes")

    def is_of(self, nsid, disk):
        """Whether an empty namespace is of a disk, by the name that the server gives it."""
        return any(d["name"].endswith(f"n{nsid}") and disk.path in d["spec"] for d in self.status())

    def status(self):
        return json.loads(self.run("status", "--json", "--socket", self.socket))["disks"]

    # Actions of the host.

    def batch(self, resets=True):
        """Up to eight commands in flight, writes and appends to one or two zones of a disk."""
        r, d = self.rng, self.rng.choice(self.disks)
        sent, ends = [], {}
        hot = r.sample(range(ZONES), 2)
        mixes = r.random() < 0.3
        kinds = {zone: r.choice([WRITE, APPEND]) for zone in hot}
        for _ in range(r.randrange(1, 9)):
            zone, count = r.choice(hot), r.choice([1, 1, 2, 3, 8, 16, 31, 32])
            at = ends.get(zone, len(d.zones[zone]) // BLOCK)
            if at + count > d.capacity:
                continue
            kind = r.choice([WRITE, APPEND]) if mixes else kinds[zone]
            self.op += 1
            data = blocks(self.op, count)
            cid = self.host.write(d.nsid, zone * ZONE + (at if kind == WRITE else 0), data, kind)
            ends[zone] = at + count
            sent.append((cid, kind, zone, at, data))
        placed = {zone: [] for zone in hot}
        for cid, kind, zone, at, data in sent:
            status, told, _ = self.host.io.wait(cid)
            if status:
                # A write that an append overtook on its way comes too late for its place.
                if kind == APPEND or not mixes:
                    raise Wrong(f"status {status:#x} of {'append' if kind == APPEND else 'write'} to block {at} of zone {zone} of {d.path}")
                continue
            placed[zone].append((told - zone * ZONE if kind == APPEND else at, data))
            self.done["acknowledged"] += 1
        for zone, parts in placed.items():
            for at, data in sorted(parts):
                if at * BLOCK != len(d.zones[zone]):
                    raise Wrong(f"zone {zone} of {d.path} has {len(d.zones[zone]) // BLOCK} blocks, and the next is at {at}")
                d.zones[zone] += data
        if resets:
            for zone in hot:
                if len(d.zones[zone]) // BLOCK > d.capacity - 32 or r.random() < 0.03:
                    self.host.reset(d.nsid, zone * ZONE)
                    d.zones[zone] = b""
        if r.random() < 0.2:
            self.host.flush(d.nsid)

    def look(self):
        """Everything is where the host was told."""
        for d in self.disks:
            for zone, want in enumerate(d.zones):
                there = self.host.pointer(d.nsid, zone * ZONE) - zone * ZONE
                end = len(want) // BLOCK
                if there != end and not (end == d.capacity and there >= end):
                    raise Wrong(f"the write pointer of zone {zone} of {d.path} is {there}, not {end}")
                for at in range(0, end, 64):
                    count = min(64, end - at)
                    self.differs(self.host.read(d.nsid, zone * ZONE + at, count), want, zone, at, d.path)

    def differs(self, got, want, zone, at, what):
        for n in range(len(got) // BLOCK):
            there, right = got[n * BLOCK:(n + 1) * BLOCK], want[(at + n) * BLOCK:(at + n + 1) * BLOCK]
            if there != right:
                ops = [struct.unpack_from("<QI", b) for b in (there, right)]
                raise Wrong(f"block {at + n} of zone {zone} of {what} is {ops[0]}, not {ops[1]}")

    # Attacks on the server.

    def refused(self, specs, *more):
        """A take-over that has to be refused, after which the server goes on."""
        self.run(*self.arguments(specs, "--takeover", *more), wanted=None)
        if self.process.poll() is not None:
            raise Wrong(f"the server ended with {self.process.poll()} although it refused")

    def take_over(self):
        self.host.close()
        self.start(self.specs(), "--takeover")

    def take_over_with_wrong_arguments(self):
        d = self.rng.choice(self.disks)
        others = [o.spec() for o in self.disks if o is not d]
        wrong = [[f"crypt,key-file={self.key_of_nobody()}@{d.path}", *others], ["mem,zones=8,zone-size=1M", *others], [*others, d.spec() + ",io=no"]]
        if others:
            wrong.append(others)
        self.refused(self.rng.choice(wrong))

    def key_of_nobody(self):
        path = os.path.join(self.dir, "key-of-nobody")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as f:
            f.write(self.rng.randbytes(64))
        return path

    def take_over_with_other_files(self):
        """The disk has another name by then; a copy is at its path; another key is in its file."""
        d = self.rng.choice(self.disks)
        self.host.close()
        moved = d.path + ".moved"
        os.rename(d.path, moved)
        if self.rng.random() < 0.5:
            shutil.copyfile(moved, d.path)
            self.refused([o.spec() for o in self.disks])
            os.unlink(d.path)
        if d.key and self.rng.random() < 0.5:
            os.rename(d.key, d.key + ".moved")
            shutil.copyfile(self.key_of_nobody(), d.key)
            os.chmod(d.key, 0o600)
            here, d.path = d.path, moved
            self.refused([o.spec() for o in self.disks])
            d.path = here
            os.rename(d.key + ".moved", d.key)
        here, d.path = d.path, moved
        self.start(self.specs(), "--takeover")
        os.rename(moved, here)
        d.path = here

    def die(self):
        """Killed, or ended, and started again with the disks in another order."""
        self.host.close()
        self.process.send_signal(self.rng.choice([signal.SIGKILL, signal.SIGTERM]))
        self.process.wait(PATIENCE)
        self.start(self.specs())

    def snapshot(self):
        """A copy beside renames of the disk's path, and beside writes."""
        d = self.rng.choice(self.disks)
        name = next(shown["name"] for shown in self.status() if shown["name"].endswith(f"n{d.nsid}"))
        copy, away = os.path.join(self.dir, "copy.zbd"), d.path + ".away"
        before = [len(z) for z in d.zones]
        with open(os.path.join(self.dir, "snapshot.err"), "wb") as err:
            p = subprocess.Popen([self.tools.zoneplug, "snapshot", name, copy, "--socket", self.socket], stdout=subprocess.DEVNULL, stderr=err)
            # The path may lead nowhere, or to another disk: the server has the file.
            while p.poll() is None:
                os.rename(d.path, away)
                if self.rng.random() < 0.5:
                    self.run("create", d.path, *d.made)
                self.batch(resets=False)
                os.rename(away, d.path)
        with open(os.path.join(self.dir, "snapshot.err")) as err:
            said = err.read()
        if p.returncode == 0:
            layer = f"crypt,key-file={d.key}@" if d.key else ""
            for zone, info in enumerate(json.loads(self.run("report", "--json", layer + copy))["zones"]):
                end = info["write_pointer_offset_sectors"] * 512 if info["condition_code"] != 14 else d.capacity * BLOCK
                if not before[zone] <= end <= len(d.zones[zone]):
                    raise Wrong(f"zone {zone} of a copy of {d.path} ends at {end}: {before[zone]} bytes were there before, {len(d.zones[zone])} after")
                if end:
                    got = self.run("read", layer + copy, "--offset", str(zone * ZONE * BLOCK // 512), "--len", str(end))
                    self.differs(got, d.zones[zone], zone, 0, "a copy of " + d.path)
            os.unlink(copy)
        elif "error" not in said or os.path.exists(copy):
            raise Wrong(f"a snapshot ended with {p.returncode}, {'and left a file' if os.path.exists(copy) else ''}: {said}")

    def overwrite(self):
        """Another disk is copied over the file. The server fails everything, and writes nothing into the file."""
        d = self.rng.choice(self.disks)
        other = os.path.join(self.dir, "other.zbd")
        self.run("create", "--force", other, *d.made)
        kept = os.path.join(self.dir, "kept.zbd")
        for o in self.disks:
            self.host.flush(o.nsid)
        shutil.copyfile(d.path, kept)
        with open(other, "rb") as f:
            content = f.read()
        with open(d.path, "r+b") as f:
            if self.rng.random() < 0.5:
                f.truncate(0)
            f.write(content)
        self.refused(self.specs())
        end = time.monotonic() + 5
        while not any(d.path in (shown.get("file_changed") or "") for shown in self.status()):
            if time.monotonic() > end:
                raise Wrong(f"a server does not notice that {d.path} is another disk")
            time.sleep(0.05)
        for op in (lambda: self.host.read(d.nsid, 0, 1), lambda: self.host.flush(d.nsid), lambda: self.host.reset(d.nsid, 0)):
            try:
                op()
                raise Wrong(f"a server goes on with {d.path}, which is another disk")
            except Lost as e:
                if "status" not in str(e):
                    raise
        self.host.close()
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(PATIENCE) == 0:
            raise Wrong(f"a server says that {d.path} is durable, which is another disk")
        self.process = None
        with open(d.path, "rb") as f:
            if f.read() != content:
                raise Wrong(f"a server wrote into {d.path}, which is another disk")
        # Restores the content of the last flush.
        with open(kept, "rb") as f, open(d.path, "r+b") as to:
            to.truncate(0)
            shutil.copyfileobj(f, to)
        self.start(self.specs())

    def served(self, number):
        """One server after the other."""
        self.start([d.spec() for d in self.disks])
        acts = [self.take_over, self.take_over_with_wrong_arguments, self.take_over_with_other_files, self.die, self.snapshot, self.overwrite]
        for turn in range(number):
            act = self.rng.choice(acts)
            self.where = f"turn {turn + 1}, {act.__name__.replace('_', ' ')}"
            try:
                for _ in range(self.rng.randrange(1, 12)):
                    self.batch()
                act()
                self.look()
            except Lost as e:
                raise Wrong(f"the host: {e}") from None
            self.done["served"] += 1
            yield
        self.close()

    def close(self):
        """Ends what still runs, and takes away what is in /run for the next server."""
        if self.host:
            self.host.close()
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            finally:
                self.process.kill()
        for directory in ("/run/zoneplug", os.path.join(os.environ.get("XDG_RUNTIME_DIR", "/nonexistent"), "zoneplug")):
            for end in (".hosts", ".hosts.lock"):
                path = os.path.join(directory, self.nqn + end)
                if os.path.exists(path):
                    os.unlink(path)
