"""Kills a process that works on a disk, and cuts the power under one, again and again, and does what it can to servers of disks; then decides from its own record of what was
submitted and acknowledged whether the disk is right. Started by scripts/attack, which says how."""

import argparse
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import cut
import record
from disk import STACKS, Disk, Failed
from model import Model
from served import TURNS_OF_A_SERVER, Served, Wrong

KILLS_OF_A_DISK = 8
CUTS_OF_A_RUN = 12
RUNS_OF_A_DISK = 3


class Found(Exception):
    """Something is wrong with a disk."""


class Progress:
    """One line on a terminal; silent elsewhere."""

    def __init__(self):
        self.on, self.last = sys.stderr.isatty(), 0

    def say(self, text):
        now = time.monotonic()
        if self.on and now - self.last > 0.1:
            self.last = now
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self):
        if self.on:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def read_log(path):
    try:
        with open(path, "rb") as f:
            return list(record.frames(f.read()))
    except FileNotFoundError:
        return []


class Attack:
    def __init__(self, tools, stack, seed, directory, failing):
        self.rng, self.stack, self.failing = random.Random(seed), stack, failing
        self.dir, self.tools = directory, tools
        self.done = {"kills": 0, "cuts": 0, "acknowledged": 0}
        self.where = "before the first"
        self.ops = []
        self.disk = Disk(tools, stack, directory, self.rng)
        self.log = os.path.join(directory, "log")

    def judge(self, disk, model, ops, power_cut, fatal=True):
        """Looks at a disk in another process; returns the zones that were found."""
        self.ops = ops
        for o in ops:
            if fatal and o.status and not o.ok and o.status not in record.REFUSALS:
                raise Found(f"an operation of a disk without faults failed: {o}")
        try:
            if self.rng.random() < 0.5:
                disk.check_files()
            before = disk.view()
            problems, found = model.check(*before, ops, power_cut)
            if problems:
                raise Found("\n".join(problems))
            disk.check_files()
            if self.rng.random() < 0.3:
                # Opened for writing: what the next writer makes durable is what was shown.
                disk.run("flush", disk.spec())
                after = disk.view()
                if before != after:
                    which = [a["zone"] for a, b in zip(after[0], before[0]) if a != b]
                    raise Found(f"zones {which} are reported otherwise, or data changed, after the disk was opened for writing")
                disk.check_files()
        except Failed as e:
            raise Found(str(e)) from None
        return found

    def options(self):
        return self.rng.choice([",io=threads", ",direct=0", ",io=ring", ""])

    def ended(self, process, wanted):
        """Waits for the victim, which says why if it ended otherwise than it was to."""
        begin = time.monotonic()
        _, err = process.communicate(timeout=60)
        if wanted == [-signal.SIGKILL] and time.monotonic() - begin > 15:
            # A child has the pipe for errors too, and ends after twenty seconds.
            raise Found("a child of a fork hangs")
        if process.returncode not in wanted or err:
            raise Found(f"the process that works on the disk ended with {process.returncode}: {err.decode()[-2000:]}")

    def lives(self, process, frames, seconds):
        """Waits until the record has so many frames."""
        end = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < end + (30 if not self.size() else 0):
            if self.size() >= frames * record.FRAME.size:
                break
            time.sleep(0.0003)

    def size(self):
        return os.path.getsize(self.log) if os.path.exists(self.log) else 0

    def kills(self, number):
        """One disk, killed again and again."""
        model = Model(self.disk.report())
        opens = 0.1
        for turn in range(number):
            self.where = f"kill {turn + 1}"
            if os.path.exists(self.log):
                os.remove(self.log)
            r = self.rng
            begin = time.monotonic()
            process = self.disk.victim(
                self.log, self.options(), seed=r.getrandbits(40), run=turn + 1, threads=3, batches=0,
                round=r.choice([0, 0, 0, 3, 15]), **({"forks": self.disk.spec(",read-only=1")} if r.random() < 0.4 else {}))
            # While it opens; or when it has done so much, however busy the machine is.
            frames = 0 if r.random() < 0.1 else 1 + r.expovariate(1 / 400)
            self.lives(process, frames, 1.5)
            if frames:
                opens = min(opens, time.monotonic() - begin)
            time.sleep(r.random() * (0.0005 if frames else 2 * opens))
            process.kill()
            self.ended(process, [-signal.SIGKILL])
            self.disk.wait_for_lock()
            ops = record.operations(read_log(self.log))
            model.accept(self.judge(self.disk, model, ops, False))
            self.done["kills"] += 1
            self.done["acknowledged"] += sum(o.ok for o in ops)
            yield

    def work(self, run):
        """A run whose power is cut later: one process, or one that is killed and one after it."""
        r, env = self.rng, {"ATTACK_LOG": self.log, "ATTACK_FILES": ":".join(self.disk.paths)}
        start = lambda n, batches: self.disk.victim(
            self.log, ",io=threads", env, seed=r.getrandbits(40), run=run * 10 + n, threads=3, batches=batches,
            round=r.choice([0, 0, 7]))
        if r.random() < 0.4:
            process = start(1, 0)
            # With the data that is in the log: some operations.
            self.lives(process, r.expovariate(1 / 20000), 1.5)
            process.kill()
            self.ended(process, [-signal.SIGKILL])
            self.disk.wait_for_lock()
            cut.settle(self.log, self.disk.paths)
        self.ended(start(2, r.choice([5, 15, 30])), [0])

    def failed_sync(self, model, run):
        """Syncs fail in the middle of a run. What the next process that opens the disk makes durable has to be so."""
        r, disk = self.rng, self.disk
        disk.make_medium()
        first = r.randrange(1, 9)
        process = disk.victim(
            self.log, ",io=threads", {"ATTACK_FAIL_SYNC": f"{first}-{first + r.choice([0, 0, 1, 2])}"}, seed=r.getrandbits(40),
            run=run * 10 + 5, threads=3, batches=12, round=0)
        # One whose opening fails ends with 3.
        process.communicate(timeout=60)
        if process.returncode not in (0, 3):
            raise Found(f"after a sync that failed the process ended with {process.returncode}")
        if r.random() < 0.3:
            # Memory is short: what is clean is forgotten.
            for path in disk.paths:
                image = disk.medium(path, True)
                with open(path, "r+b") as f:
                    f.write(image)
        # A close cannot say that it failed.
        ops = [o for o in record.operations(read_log(self.log)) if o.kind != record.CLOSE_DISK]
        disk.run("flush", disk.spec(",io=threads"))
        model.accept(self.judge(disk, model, ops, True, fatal=False))
        self.done["acknowledged"] += sum(o.ok for o in ops)
        for evict in (True, False):
            what = "memory is short" if evict else "the power is cut"
            self.where = f"run {run}, in which a sync failed; {what} after it was opened again"
            there, found = self.look([disk.medium(path, evict) for path in disk.paths], model, [], disk.boot if evict else None)
            self.done["cuts"] += 1
            yield there, found
        disk.has_medium = False

    def cuts(self, number):
        """One disk, whose power is cut at many moments of each of some runs."""
        model = Model(self.disk.report())
        self.disk.new_boot()
        for run in range(RUNS_OF_A_DISK):
            if number <= 0:
                return
            if os.path.exists(self.log):
                os.remove(self.log)
            images = [open(p, "rb").read() for p in self.disk.paths]
            self.where = f"run {run + 1}"
            last = None
            if self.rng.random() < self.failing:
                self.where += ", in which a sync fails"
                for last in self.failed_sync(model, run + 1):
                    number -= 1
                    yield
                self.go_on(model, *last)
                continue
            self.work(run + 1)
            log = read_log(self.log)
            ops = record.operations(log)
            self.done["acknowledged"] += sum(o.ok for o in ops)
            media = [cut.Medium(image, self.rng) for image in images]
            n = min(number, CUTS_OF_A_RUN)
            number -= n
            moments = sorted(self.rng.randint(0, len(log)) for _ in range(n))
            place = 0
            for moment in moments:
                self.where = f"run {run + 1}, cut after {moment} of {len(log)} events"
                for f in log[place:moment]:
                    if f.what in "WPDYE":
                        media[f.op].take(f)
                place = moment
                now = [o.copy(moment + 2) for o in ops if o.s < moment + 2]
                last = self.look([medium.cut() for medium in media], model, now)
                self.done["cuts"] += 1
                yield
            self.go_on(model, *last)

    def go_on(self, model, disk, found):
        """With what the last cut left."""
        for path, there in zip(self.disk.paths, disk.paths):
            os.replace(there, path)
        model.accept(found)
        self.disk.new_boot()

    def look(self, images, model, ops, boot=None):
        """Opens images of the files in another life of the system, or in the same."""
        disk = object.__new__(Disk)
        disk.__dict__.update(self.disk.__dict__)
        disk.has_medium = False
        disk.dir = os.path.join(self.dir, "cut")
        os.makedirs(disk.dir, exist_ok=True)
        disk.paths = [os.path.join(disk.dir, os.path.basename(p)) for p in self.disk.paths]
        if boot is None:
            disk.new_boot()
        for path, image in zip(disk.paths, images):
            with open(path, "wb") as f:
                f.write(image)
        return disk, self.judge(disk, model, ops, True)


def explain(attack, error, kept):
    """What was found, and what the record says of the zones."""
    lines = [f"{attack.stack}, {attack.where}: {error}",
             f"made with {shlex.join(attack.disk.made)}; its files and the record are in {kept}"]
    zones = {int(w.split(":")[0]) for w in ("\n" + str(error)).split("\nzone ")[1:]}
    for zone in sorted(zones)[:2]:
        lines.append(f"the last operations that concern zone {zone}, of {len(attack.ops)}:")
        lines += [f"  {o}" for o in attack.ops if o.zone in (zone, 0xffffffff)][-14:]
    return "\n".join(lines)


def one_disk(args, tools, seed, stack, kind, number, total, progress):
    """Attacks a new disk. Returns what was done, or `None` if something was found."""
    # The page cache of a real file system, with direct I/O and io_uring, and memory, in turns.
    places = [args.dir] if args.dir else [tools.target] + (["/dev/shm"] if os.path.isdir("/dev/shm") else [])
    directory = tempfile.mkdtemp(prefix="zoneplug-attack-", dir=places[-1] if kind == "cuts" else random.Random(seed).choice(places))
    attack = None
    try:
        if kind == "served":
            attack = Served(tools, seed, directory, random.Random(seed))
        else:
            attack = Attack(tools, stack, seed, directory, args.failing)
        for _ in getattr(attack, kind)(number):
            progress.say(f"{kind}: {total + attack.done[kind]}, {stack}, seed {seed}")
    except (Found, Failed, Wrong, subprocess.TimeoutExpired) as e:
        progress.clear()
        if kind == "served" and attack:
            attack.close()
        print(f"seed {seed}: {explain(attack, e, directory) if attack else e}")
        of_stack = "" if kind == "served" else f" --stack {stack}"
        print(f"again: scripts/attack --seed {seed}{of_stack} --kills {number if kind == 'kills' else 0} "
              f"--cuts {number if kind == 'cuts' else 0} --served {number if kind == 'served' else 0}"
              + {0: " --no-failing-syncs", 1: " --only-failing-syncs"}.get(args.failing, ""))
        return None
    except BaseException:
        if kind == "served" and attack:
            attack.close()
        shutil.rmtree(directory, ignore_errors=True)
        raise
    shutil.rmtree(directory)
    return attack.done


class Tools:
    def __init__(self, args):
        self.zoneplug, self.victim, self.target = os.path.abspath(args.zoneplug), shlex.split(args.victim), args.target
        self.shim = os.path.join(args.target, "attack-shim.so")

    def build_shim(self):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim.c")
        new = f"{self.shim}.{os.getpid()}"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", new, source, "-ldl"], check=True)
        os.replace(new, self.shim)


def main():
    parser = argparse.ArgumentParser(prog="scripts/attack", description=__doc__)
    parser.add_argument("--kills", type=int, default=60, metavar="N", help="kill a process N times [60]")
    parser.add_argument("--cuts", type=int, default=60, metavar="N", help="cut the power N times [60]")
    parser.add_argument("--served", type=int, default=40, metavar="N", help="do N things to servers of NVMe/TCP [40]")
    parser.add_argument("--seed", type=int, metavar="S", help="of the first disk; the next has the next one [by the clock]")
    parser.add_argument("--stack", choices=STACKS, help="only this; else all in turns")
    syncs = parser.add_mutually_exclusive_group()
    syncs.add_argument("--no-failing-syncs", dest="failing", action="store_const", const=0, default=0.3,
                       help="before a cut, let no sync fail; else one fails in 3 of 10 runs")
    syncs.add_argument("--only-failing-syncs", dest="failing", action="store_const", const=1, help="let a sync fail in every run")
    parser.add_argument("--dir", metavar="DIR", help="make the disks there [the target directory, /dev/shm]")
    for name in ("zoneplug", "victim", "target"):
        parser.add_argument(f"--{name}", required=True, help=argparse.SUPPRESS)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else int(time.time() * 1000) % 10**9
    tools, progress, begin = Tools(args), Progress(), time.monotonic()
    if args.cuts:
        tools.build_shim()
    done = {"kills": 0, "cuts": 0, "served": 0, "acknowledged": 0}
    first, disks = seed, 0
    for kind, wanted, each in (("kills", args.kills, KILLS_OF_A_DISK), ("cuts", args.cuts, CUTS_OF_A_RUN * RUNS_OF_A_DISK),
                               ("served", args.served, TURNS_OF_A_SERVER)):
        while done[kind] < wanted:
            stack = args.stack or list(STACKS)[seed % len(STACKS)]
            # A seed again is the same number of kills again, so that the same is drawn.
            number = min(each, wanted - done[kind])
            one = one_disk(args, tools, seed, stack, kind, number, done[kind], progress)
            if one is None:
                return 1
            for key, value in one.items():
                done[key] += value
            seed, disks = seed + 1, disks + 1
    progress.clear()
    print(f"{done['kills']} kills, {done['cuts']} power cuts and {done['served']} attacks on servers, of {disks} disks: nothing lost of {done['acknowledged']} acknowledged "
          f"operations, in {time.monotonic() - begin:.0f} s (seed {first})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
