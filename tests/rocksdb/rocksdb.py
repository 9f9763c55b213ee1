"""RocksDB on ZenFS on zoneplug's disks, in processes of this machine: what scripts/rocksdb runs.

The victim (victim.cc) says in a record what it submitted and what was acknowledged. Whatever ended it, the database must
open again and be what its first `count` operations make, `count` being at least the last synced one that was
acknowledged, and at most the last one submitted."""

import argparse
import collections
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/attack"))
import cut  # noqa: E402
import record  # noqa: E402

# Small zones, so that files, logs and metadata go from zone to zone all the time. Every kind of zone and limit is there.
SMALL = "--zones 56 --zone-size 2M --zone-capacity 1536K --conv 1 --max-open 8 --max-active 10".split()
# So small that ZenFS changes the zone of its metadata every few dozen writes.
TINY = "--zones 56 --zone-size 256K --zone-capacity 192K --conv 1".split()
LINE = re.compile(r"^(\w+) +: +([\d.]+) micros/op (\d+) ops/sec.*?(?:([\d.]+) MB/s)?(?: \((\d+) of (\d+) found\))?$", re.M)
BENCH = ["--value_size=400", "--compression_type=none", "--verify_checksum=1", "--write_buffer_size=8388608",
         "--target_file_size_base=8388608", "--max_bytes_for_level_base=33554432"]


class Wrong(Exception):
    pass


class Tests:
    def __init__(self, args, where):
        self.args, self.where = args, where
        self.rng = random.Random(args.seed)
        # ZenFS's lock and log files go there too.
        self.env = {**os.environ, "TMPDIR": str(where), "LD_PRELOAD": args.zenfs}

    def disk(self, *options, path=None):
        """Makes a new disk in a file."""
        path = str(path or self.where / "disk.zbd")
        subprocess.run([self.args.zoneplug, "create", "--force", path, *(options or SMALL)], check=True, stdout=subprocess.DEVNULL)
        return path

    # db_bench

    def bench(self, fs, db, benchmarks, *options):
        """Runs db_bench; returns its lines. A benchmark that did not run, or read what it did not find, is an error."""
        uri = [f"--fs_uri=zenfs://zoneplug:{fs}"] if fs else []
        p = subprocess.run(["db_bench", *uri, f"--db={db}", f"--benchmarks={benchmarks}", *BENCH, *options], text=True, env=self.env,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
        if p.returncode:
            raise Wrong(f"db_bench on {fs or db} ended with {p.returncode}:\n{p.stderr[-800:]}")
        lines = {m[1]: m for m in LINE.finditer(p.stdout.replace("\r", "\n"))}
        missing = set(benchmarks.split(",")) - set(lines)
        if missing:
            raise Wrong(f"db_bench on {fs or db} did not run {sorted(missing)}:\n{p.stdout[-800:]}{p.stderr[-800:]}")
        return lines

    def workloads(self):
        """Every workload, checksums verified, on disks that reorder, and on geometries that no block device of Linux has."""
        num = 20_000 if self.args.short else 200_000
        big = "zones=64,zone-size=16M"
        file = self.disk("--zones", "48", "--zone-size", "24M", "--zone-capacity", "20M", "--max-open", "8", "--max-active", "12")
        for name, spec in {
                "in memory, reordered": f"mem,{big},reorder=7",
                "zones of 24M with 20M, limits": "mem,zones=48,zone-size=24M,zone-capacity=20M,conv=2,max-open=8,max-active=12,reorder=3",
                "blocks of 512 bytes": f"mem,{big},lba-size=512",
                "po2@ over zones of 24M": "po2@mem,zones=48,zone-size=24M,zone-capacity=20M,reorder=5",
                "a disk in a file": file}.items():
            lines = self.bench(spec, "db", "fillseq,overwrite,readrandom,deleterandom,compact,verifychecksum", f"--num={num}")
            if (lines["readrandom"][5], lines["readrandom"][6]) != (str(num), str(num)):
                raise Wrong(f"{name}: {lines['readrandom'][0]}")
            print(f"{name}: " + ", ".join(f"{b} {m[3]}/s" for b, m in lines.items() if int(m[3]) > 100 and b != "verifychecksum"))
        lines = self.bench(file, "db", "readrandom,verifychecksum", f"--num={num}", "--use_existing_db=1")
        left = int(lines["readrandom"][5])
        # deleterandom draws as often as there are keys, so about 1/e of them are left.
        if not 0.3 * num < left < 0.45 * num:
            raise Wrong(f"the file, opened again: {lines['readrandom'][0]}")
        print(f"the file, opened again by another process: {left} of {num} keys are left")
        for db in ("/srv/rocksdb/here/db", "here/and/there", "//odd//db/"):
            lines = self.bench(f"mem,{big}", db, "fillseq,readrandom,verifychecksum", "--num=2000")
            if lines["readrandom"][5] != "2000":
                raise Wrong(f"a database at {db}: {lines['readrandom'][0]}")
        print("databases at nested paths, absolute and relative, are there")

    # The victim

    def victim(self, what, spec, *rest, env=None):
        return subprocess.Popen([self.args.victim, what, f"zenfs://zoneplug:{spec}", "db", str(self.args.seed), *map(str, rest)], text=True,
                                env={**self.env, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def ended(self, process, wanted, seconds=30):
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            raise Wrong(f"the victim hangs: {said}") from None
        if process.returncode not in wanted:
            raise Wrong(f"the victim ended with {process.returncode}: {said}")
        return said.strip()

    @staticmethod
    def said(frames):
        """What was acknowledged, and what was submitted at most."""
        frames = list(frames)
        return max((f.id for f in frames if f.what == "A"), default=0), max((f.id for f in frames if f.what == "S"), default=0)

    def read(self, path):
        return list(record.frames(pathlib.Path(path).read_bytes())) if os.path.exists(path) else []

    def verify(self, spec, acknowledged, submitted, env=None):
        said = self.ended(self.victim("verify", spec, env=env), [0])
        count = int(said.split()[0])
        if not acknowledged <= count <= submitted:
            raise Wrong(f"{count} operations are there; {acknowledged} was acknowledged, {submitted} submitted")
        return count

    def wait_for_lock(self, path):
        """A ring that the kernel takes down may hold the file for a moment after its process is gone."""
        for _ in range(200):
            if subprocess.run([self.args.zoneplug, "flush", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
                return
            time.sleep(0.02)
        raise Wrong(f"{path} cannot be opened after its process was killed")

    def kills(self, number):
        """One disk whose process is killed again and again: while it opens, and while it works."""
        file, log = self.disk(), self.where / "record"
        acknowledged = submitted = opening = 0
        for turn in range(number):
            process = self.victim("write", file, log)
            if turn % 5 == 4:
                time.sleep(self.rng.random() * 0.15)
            else:
                # When it has done so much, however busy the machine is.
                frames, end = self.rng.randrange(1, 400), time.monotonic() + 30
                while len(self.read(log)) < frames and time.monotonic() < end:
                    time.sleep(0.002)
                time.sleep(self.rng.random() * 0.01)
            process.kill()
            self.ended(process, [-signal.SIGKILL])
            a, s = self.said(self.read(log))
            opening += s <= submitted
            acknowledged, submitted = max(a, acknowledged), max(s, submitted)
            self.wait_for_lock(file)
            count = self.verify(file, acknowledged, submitted)
            # What is there stays; what was not there is submitted again, with the same content.
            submitted = acknowledged = count
            log.unlink(missing_ok=True)
        self.interrupted_rename(file, count)
        if not count > 20 * number:
            raise Wrong(f"only {count} operations: the victim had no time to work")
        print(f"{number} kills, {opening} of them before the first write: all {count} operations are there, and no other")

    def stops(self, number):
        """Between any two writes: one is carried out, its answer is lost, and the process is killed when it has come to rest."""
        last = 0
        for turn in range(number):
            file, log = self.disk(*(SMALL if turn % 3 == 0 else TINY)), self.where / "record"
            log.unlink(missing_ok=True)
            stop = f"fault=write/lost/skip={self.rng.randrange(1000)}"
            process = self.victim("write", f"{file},{stop}", log, 4000)
            size, quiet = 0, time.monotonic()
            while time.monotonic() < quiet + 0.5:
                time.sleep(0.02)
                now = log.stat().st_size if log.exists() else 0
                if now != size:
                    size, quiet = now, time.monotonic()
            process.kill()
            try:
                self.ended(process, [-signal.SIGKILL])
                self.wait_for_lock(file)
                a, s = self.said(self.read(log))
                last = max(last, self.verify(file, a, s))
            except Wrong as e:
                raise Wrong(f"{stop}: {e}") from None
        if not last > 100:
            raise Wrong(f"the farthest had {last} operations: they did not work")
        print(f"{number} writes that were never answered, then a kill: nothing that was acknowledged is gone")

    def interrupted_rename(self, file, count):
        """ZenFS deletes `CURRENT` before it renames another file to it. A kill in between is rare, so it is made here."""
        tool = pathlib.Path(self.args.zenfs).with_name("zenfs")

        def zenfs(*words):
            return subprocess.run([tool, *words, f"--zbd=zoneplug:{file}"], env={**self.env, "LD_PRELOAD": ""}, text=True, check=True,
                                  stdout=subprocess.PIPE).stdout

        number = re.search(r"MANIFEST-(\d+)", zenfs("list", "--path=db"))[1]
        zenfs("rename", "--src_file=db/CURRENT", f"--dest_file=db/{number}.dbtmp")
        self.verify(file, count, count)

    def cuts(self, number):
        """The power is cut: only what the disk's file was synced for is there for certain."""
        shim = self.where / "shim.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, ROOT / "tests/attack/shim.c", "-ldl"], check=True)
        log, image = self.where / "log", self.where / "cut.zbd"
        preload = f"{shim}:{self.args.zenfs}"
        done = synced = 0
        while done < number:
            file = self.disk()
            medium = cut.Medium(pathlib.Path(file).read_bytes(), self.rng)
            log.unlink(missing_ok=True)
            process = self.victim("write", f"{file},io=threads", log,
                                  env={"LD_PRELOAD": preload, "ATTACK_LOG": str(log), "ATTACK_FILES": file})
            wanted, end = self.rng.randrange(50, 400), time.monotonic() + 60
            while self.said(self.read(log))[0] < wanted and time.monotonic() < end:
                time.sleep(0.2)
            process.kill()
            self.ended(process, [-signal.SIGKILL])
            frames = self.read(log)
            first = next((n for n, f in enumerate(frames) if f.what == "A"), None)
            if first is None:
                raise Wrong("nothing was acknowledged before the first cut")
            place = 0
            for moment in sorted(self.rng.randint(first + 1, len(frames)) for _ in range(6)):
                for f in frames[place:moment]:
                    if f.what in "WPDYE":
                        medium.take(f)
                place = moment
                image.write_bytes(medium.cut())
                said = self.said(frames[:moment])
                env = {"LD_PRELOAD": preload, "ATTACK_BOOT_ID": str(uuid.UUID(int=self.rng.getrandbits(128)))}
                try:
                    count = self.verify(str(image), *said, env=env)
                except Wrong as e:
                    raise Wrong(f"cut after event {moment} of {len(frames)}: {e}") from None
                done, synced = done + 1, synced + count
        print(f"{done} power cuts: every synced operation was there, of {synced}")

    def faults(self, seeds):
        """Commands fail: RocksDB says so, or nothing is lost."""
        for fault in ("write/io/p=0.003", "write/torn/p=0.003", "write/nospace/p=0.003", "reset/io/p=0.1", "close/io/p=0.05",
                      "read/io/p=0.002", "any/io/p=0.001"):
            reported = noted = 0
            for _ in range(seeds):
                for aux in self.where.glob("zenfs-*"):
                    shutil.rmtree(aux)
                file, log = self.disk(), self.where / "record"
                log.unlink(missing_ok=True)
                self.ended(self.victim("write", file, log, 600), [0])
                seed = self.rng.randrange(1 << 30)
                where = f"fault={fault}+seed={seed}"
                try:
                    process = self.victim("write", f"{file},{where}", log, 3000)
                    self.ended(process, [0, 3])
                    reported += process.returncode == 3
                    self.wait_for_lock(file)
                    a, s = self.said(self.read(log))
                    count = self.verify(file, a, s)
                    if process.returncode == 0 and count != 3000:
                        raise Wrong(f"{count} operations are there, of 3000, and no error was reported")
                except Wrong as e:
                    raise Wrong(f"{where}: {e}") from None
                # What is no error of a write is in RocksDB's own log: a file could not be deleted.
                noted += sum(len(re.findall("IO error|No space", log.read_text())) for log in self.where.glob("zenfs-*/db/LOG*"))
            # A failed close is none to ZenFS, see the back end.
            if seeds > 1 and not reported + noted and not fault.startswith("close"):
                raise Wrong(f"fault={fault} was never reported: it hit nothing")
            print(f"fault={fault}: reported in {reported} of {seeds} runs, {noted} lines in RocksDB's log; what was acknowledged is there")

    # Speed

    def speed(self, turns, num):
        """db_bench on this machine's file system and on our disks, in turns."""
        kind = subprocess.run(["stat", "-f", "-c", "%T", self.where], text=True, stdout=subprocess.PIPE, check=True).stdout.strip()
        kind = {"ext2/ext3": "ext4"}.get(kind, kind)
        found = collections.defaultdict(lambda: collections.defaultdict(list))
        zones = ["--zones", "128", "--zone-size", "16M"]
        for _ in range(turns):
            for name in (kind, f"file on {kind}", "file, direct=0", "mem"):
                db, spec = "db", "mem,zones=128,zone-size=16M"
                if name == kind:
                    db, spec = str(self.where / "plain"), None
                elif name != "mem":
                    spec = self.disk(*zones) + (",direct=0" if "direct" in name else "")
                lines = self.bench(spec, db, "fillseq,overwrite,readrandom", f"--num={num}")
                shutil.rmtree(self.where / "plain", ignore_errors=True)
                if spec and not spec.startswith("mem"):
                    self.disk(*zones)
                synced = self.bench(spec, db, "fillrandom", f"--num={num // 100}", "--sync=1")
                shutil.rmtree(self.where / "plain", ignore_errors=True)
                for b, m in [*lines.items(), ("synced", synced["fillrandom"])]:
                    found[name][b].append(int(m[3]))
        print(f"operations per second, {num} keys of 400 bytes; synced: {num // 100} writes,")
        print(f"each synced. The median of {turns} turns, and half of their spread")
        print(f"{'':20}" + "".join(f"{b:>15}" for b in found[kind]))
        for name, values in found.items():
            cells = [(round(statistics.median(v)), (max(v) - min(v)) / 2 / statistics.median(v)) for v in values.values()]
            print(f"{name:20}" + "".join(f"{m:9,} ±{spread:4.0%}" for m, spread in cells))


def main():
    parser = argparse.ArgumentParser()
    for name in ("zoneplug", "zenfs", "victim"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only", choices="workloads kills stops cuts faults speed".split())
    args = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    # What each step is given: how many, in full and in short.
    steps = {"workloads": ([], []), "kills": ([100], [10]), "stops": ([60], [5]), "cuts": ([60], [6]), "faults": ([5], [1]),
             "speed": ([5, 200_000], [1, 50_000])}
    with tempfile.TemporaryDirectory(prefix="zoneplug-rocksdb-") as name:
        tests = Tests(args, pathlib.Path(name))
        for step in [args.only] if args.only else steps:
            print(f"-- {step}", flush=True)
            try:
                getattr(tests, step)(*steps[step][args.short])
            except Wrong as e:
                kept = tempfile.mkdtemp(prefix="zoneplug-rocksdb-kept-")
                shutil.copytree(name, kept, dirs_exist_ok=True)
                sys.exit(f"rocksdb: {step}: {e}\nkept in {kept}; again: scripts/rocksdb --only {step} --seed {args.seed}")


if __name__ == "__main__":
    main()
