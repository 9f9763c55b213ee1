"""A disk that is attacked: its files, how they are stacked, and zoneplug's commands on it, each a process of its own."""

import fcntl
import json
import os
import shutil
import subprocess
import time
import uuid

# Layers, and how many files are below.
STACKS = {
    "plain": ("{a}", 1),
    "po2": ("po2@{a}", 1),
    "crypt": ("crypt,key-file={key}@{a}", 1),
    "linear": ("linear@{a}%{b}", 2),
    "stripe": ("stripe@{a}%{b}", 2),
    "po2-crypt": ("po2@crypt,key-file={key}@{a}", 1),
    "crypt-linear": ("crypt,key-file={key}@linear@{a}%{b}", 2),
    "po2-stripe": ("po2@stripe@{a}%{b}", 2),
}
PATIENCE = 60
PAGE = 4096


class Failed(Exception):
    """A command that had to work did not."""


class Disk:
    def __init__(self, tools, stack, directory, rng, log=lambda text: None):
        self.tools, self.stack, self.dir, self.rng = tools, stack, directory, rng
        self.text, nr = STACKS[stack]
        self.paths = [os.path.join(directory, name + ".zbd") for name in "ab"[:nr]]
        self.key = os.path.join(directory, "key")
        with open(self.key, "wb") as f:
            f.write(rng.randbytes(64))
        # A life of the system; `None`: the real one.
        self.boot = None
        # Whether the files have a medium below a page cache (shim.c).
        self.has_medium = False
        # A sync failed once, and a check may name that as a problem.
        self.failed = False
        self.active = 0
        self.made = self.arguments(nr)
        for i, path in enumerate(self.paths):
            args = list(self.made)
            if stack.endswith("linear") and i > 0:
                args[args.index("--conv") + 1] = "0"
            self.run("create", path, *args)

    def arguments(self, files):
        """What the files are made with."""
        r = self.rng
        size = r.choice([260, 500, 1000, 1020] + ([] if "po2" in self.stack else [256, 1024]))
        capacity = r.choice([size, size - 4, size * 3 // 4 // 4 * 4])
        zones = min(r.choice([9, 17, 33]), 16000 // size) // files
        conv = r.choice([0, 0, 1, 2])
        args = ["--zones", str(zones + conv), "--zone-size", f"{size}K", "--zone-capacity", f"{capacity}K", "--conv", str(conv)]
        args += ["--lba-size", str(r.choice([512, 4096, 4096]))]
        if r.random() < 0.3:
            self.active = r.choice([4, 6])
            args += ["--max-active", str(self.active), "--max-open", str(self.active - r.choice([0, 1]))]
        if r.random() < 0.4:
            args += ["--zone-append-max", r.choice(["64K", "128K"])]
        if r.random() < 0.15:
            args += ["--preallocate"]
        return args

    def spec(self, options=""):
        """The specification, with options of each file (`,io=threads`)."""
        a, b = ([p + options for p in self.paths] * 2)[:2]
        return self.text.format(a=a, b=b, key=self.key)

    def environment(self):
        env = dict(os.environ)
        if self.boot:
            env.update(LD_PRELOAD=self.tools.shim, ATTACK_BOOT_ID=self.boot)
        if self.has_medium:
            env.update(ATTACK_MEDIUM="1", ATTACK_FILES=":".join(self.paths))
        return env

    def new_boot(self):
        self.boot = str(uuid.UUID(int=self.rng.getrandbits(128)))

    def make_medium(self):
        for path in self.paths:
            shutil.copyfile(path, path + ".medium")
            with open(path + ".dirty", "wb") as f:
                f.write(bytes(-(-os.path.getsize(path) // PAGE)))
        self.has_medium = self.failed = True

    def medium(self, path, evict):
        """What the page cache shows when some clean pages were forgotten (`evict`), or what a power cut leaves of it."""
        with open(path, "rb") as now, open(path + ".medium", "rb") as medium, open(path + ".dirty", "rb") as dirty:
            seen, image, dirty = now.read(), bytearray(medium.read()), dirty.read()
        share = self.rng.random()
        for page, soiled in enumerate(dirty):
            at = page * PAGE
            if seen[at:at + PAGE] != image[at:at + PAGE] and (soiled if evict else soiled and self.rng.random() < share):
                image[at:at + PAGE] = seen[at:at + PAGE]
        return image

    def run(self, *args, env=None):
        p = subprocess.run([self.tools.zoneplug, *args], env=env or self.environment(), capture_output=True, timeout=PATIENCE)
        if p.returncode != 0:
            raise Failed(f"zoneplug {' '.join(args)}: exit status {p.returncode}: {p.stderr.decode().strip()}")
        return p.stdout

    def wait_for_lock(self):
        """Waits until the kernel has finished for a process that was killed."""
        end = time.monotonic() + PATIENCE
        for path in self.paths:
            with open(path, "r+b") as f:
                while True:
                    try:
                        # Whichever kind of lock it is.
                        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except (BlockingIOError, PermissionError):
                        if time.monotonic() > end:
                            raise Failed(f"{path} stays locked") from None
                        time.sleep(0.001)

    def check_files(self):
        if self.failed:
            return
        for path in self.paths:
            report = json.loads(self.run("check", "--json", path))
            if report["problems"]:
                raise Failed(f"zoneplug check {path}: {report}")

    def report(self):
        return json.loads(self.run("report", "--json", self.spec()))["zones"]

    def view(self):
        """Zones, and the data of all of them up to their capacity."""
        report = self.report()
        total = sum(z["capacity_sectors"] for z in report) << 9
        data = self.run("read", self.spec(), "--offset", "0", "--len", str(total))
        active = sum(z["condition_code"] in (2, 3, 4) for z in report)
        if self.active and active > self.active * len(self.paths):
            raise Failed(f"{active} zones are active, and {self.active} of each file may be")
        return report, data

    def victim(self, record, options, env=None, **more):
        """Starts the program that works on the disk."""
        args = [f"spec={self.spec(options)}", f"record={record}"] + [f"{k}={v}" for k, v in more.items()]
        return subprocess.Popen(
            self.tools.victim + args, env={**self.environment(), **(env or {})}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
