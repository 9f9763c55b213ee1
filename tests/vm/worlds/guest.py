"""The only program of a guest: serves a disk, has writers use a file system on it, and lets things go wrong (`run`); or serves the
disk again after that, and looks for all that was acknowledged (`check`).

Each line that is printed is one of `try WRITER N`, `ack WRITER N`, `gave WRITER N`, `# REMARK`, and `FAIL WHAT`. Nothing of the
host may come in: no time, no number of a process, no random number but those of the seed.
"""

import ctypes
import errno
import json
import mmap
import os
import signal
import subprocess
import sys
import threading
import time

from operations import BLOCK, Files
from plan import KERNELS_OWN, KEY, MORE_MIB, spec

SHARE = "/media"
PROGRAM = f"{SHARE}/zoneplug"
SOCKET = "/tmp/sock"
NQN = "nqn.2026-11.dev.zoneplug:world"
HOST = "nqn.2014-08.org.nvmexpress:uuid:0b5e4f0c-5d5c-4b26-9a4e-0f4c1c1a0001"
HOST_ID = "0b5e4f0c-5d5c-4b26-9a4e-0f4c1c1a0001"
MOUNTED = "/mnt"
FILE, SECOND_FILE = "/srv/d/disk.zbd", "/srv/d/more.zbd"
# How a mounted file system takes the room of a longer disk; zonefs does it by itself.
GROW = {"btrfs": f"btrfs -q filesystem resize 1:max {MOUNTED}", "xfs": f"xfs_growfs -r {MOUNTED}"}
# Simulated seconds after which an operation that does not end hangs: longer than any fault, and than Linux tries to connect again.
HANGS_S = 4 * 86400
# Simulated seconds in which a server is ready.
SLOW_S = 20
KEEP_SIZE, PUNCH_HOLE, MS_SYNC = 1, 2, 4
MS_BIND, READ_ALL_OF_KERNEL = 4096, 3
# Errors that a file system may answer while its device fails, or when it is full.
FULL = (errno.ENOSPC, errno.EDQUOT)
BROKEN = (errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESHUTDOWN, errno.EUCLEAN)


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def fail(*words):
    say("FAIL", *words)


def sh(command, may_fail=False):
    # Without a shell, and by posix_spawn, where the command has only words.
    words = command if set(command) & set("|&;<>$'\"*") else command.split()
    c = subprocess.run(words, shell=words is command, capture_output=True, text=True, close_fds=False)
    if c.returncode and not may_fail:
        fail(f"{command}: status {c.returncode}:", (c.stdout + c.stderr)[-4000:].strip().replace("\n", " | "))
    return c.stdout + c.stderr


# Each start of a program costs milliseconds, and a world has some dozen of them. So the calls of mount(8), sync(1), dmesg(1) and
# nvme-cli are made here.


def mount(what, place, kind=None, flags=0):
    if LIBC.mount(what.encode(), place.encode(), kind and kind.encode(), flags, None):
        e = ctypes.get_errno()
        return fail(f"mount of {what} at {place}: {os.strerror(e)}: {' | '.join(kernel_log()[-5:])}")
    return True


def unmount(place):
    if LIBC.umount2(place.encode(), 0):
        fail(f"umount {place}: {os.strerror(ctypes.get_errno())}")


def sync_file_system():
    fd = os.open(MOUNTED, os.O_RDONLY)
    if LIBC.syncfs(fd):
        fail(f"syncfs: {os.strerror(ctypes.get_errno())}")
    os.close(fd)


def kernel_log():
    buffer = ctypes.create_string_buffer(1 << 20)
    n = LIBC.klogctl(READ_ALL_OF_KERNEL, buffer, len(buffer))
    return buffer.raw[: max(n, 0)].decode(errors="replace").splitlines()


def where(pid):
    """What the threads of a process wait for."""
    tasks = sorted(os.listdir(f"/proc/{pid}/task"), key=int)
    stacks = [open(f"/proc/{pid}/task/{t}/stack").read().replace("\n", " ") for t in tasks]
    return "; ".join(f"{t}: {s}" for t, s in zip(tasks, stacks))


def ends_soon(process):
    """Waits for a process that was killed."""
    try:
        return process.wait(SLOW_S)
    except subprocess.TimeoutExpired:
        fail(f"a killed server is there after {SLOW_S} s:", where(process.pid))
    return process.wait()


def arm():
    """Accesses of the medium count from here."""
    open("/tmp/m/armed", "w").close()


def sync_folder(path):
    fd = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


class Disk:
    """The disk, its server, and the device that Linux has of it."""

    def __init__(self, plan):
        self.plan = plan
        self.own = plan["door"] in KERNELS_OWN
        self.server = None
        self.traces = 0
        self.device = {"ublk": "/dev/ublkb0", "nvme-tcp": "/dev/nvme0n1", "null_blk": "/dev/nullb0", "loop": "/dev/loop0"}[plan["door"]]
        self.name = "ublkb0" if plan["door"] == "ublk" else "tcp4420n1"
        self.files = [FILE]

    def place(self, new):
        """Makes the folder of the disk: on the medium itself, or on a file system of the medium."""
        self.place_medium()
        mount("t", "/srv", "tmpfs")
        os.mkdir("/srv/d")
        if self.plan["below"] == "hostfs":
            return mount("/tmp/m", "/srv/d", flags=MS_BIND)
        if new:
            sh("mkfs.ext4 -q -E nodiscard -N 64 /tmp/m/base.img")
        sh("losetup /dev/loop0 /tmp/m/base.img")
        return mount("/dev/loop0", "/srv/d", "ext4")

    def place_medium(self):
        os.mkdir("/tmp/m")
        mount("/srv", "/tmp/m", flags=MS_BIND)

    def create(self, path, zones, conventional):
        p = self.plan
        # The layer makes zones of the next power of two of them.
        last = f"--last-zone-size {p['last_mib']}M" if p["last_mib"] else ""
        zone = f"{p['capacity_mib']}M" if p["po2"] else f"{p['zone_mib']}M --zone-capacity {p['capacity_mib']}M"
        sh(
            f"{PROGRAM} create {path} --zones {zones} --zone-size {zone} --conv {conventional} "
            f"--max-open {p['limit']} --max-active {p['limit']} {last}"
        )
        os.sync()

    def serve(self, *more, may_fail=False):
        disk = spec(self.plan, *self.files)
        if self.plan["trace"]:
            self.traces += 1
            disk = f"trace,file=/tmp/m/{sys.argv[1]}.trace{self.traces}@{disk}"
        door = ["--ublk", disk, "--id", "0"] if self.plan["door"] == "ublk" else ["--nvme-tcp", "127.0.0.1:4420", disk, "--nqn", NQN]
        out = open("/tmp/serve", "w")
        server = subprocess.Popen([PROGRAM, "serve", *door, "--socket", SOCKET, *more], stdout=out, stderr=out, close_fds=False)
        ready = ("/dev/ublkb0 ", "nvme connect")
        slow = time.monotonic() + SLOW_S
        while server.poll() is None and not any(w in open("/tmp/serve").read() for w in ready):
            time.sleep(0.01)
            if slow and time.monotonic() > slow:
                slow = None
                fail(f"the server is not ready after {SLOW_S} s:", where(server.pid))
        if server.poll() is not None and not may_fail:
            fail("serve", *more, "ended with", server.returncode, open("/tmp/serve").read()[-500:].replace("\n", " | "))
        return server

    def start(self, new):
        p = self.plan
        if p["door"] == "loop":
            self.place_medium()
            return sh("losetup /dev/loop0 /tmp/m/base.img")
        if self.own:
            mib, conventional = p["zone_mib"], p["conventional"]
            d = "/sys/kernel/config/nullb/nullb0"
            settings = dict(size=p["zones"] * mib, zoned=1, zone_size=mib, zone_capacity=p["capacity_mib"], zone_nr_conv=conventional)
            settings.update(zone_max_open=p["limit"], zone_max_active=p["limit"], memory_backed=1, blocksize=4096, power=1)
            return sh(f"mkdir {d}; " + "; ".join(f"echo {v} >{d}/{k}" for k, v in settings.items()))
        self.place(new)
        with open(KEY, "wb") as key:
            key.write(bytes(range(64)))
        if new:
            self.create(FILE, p["zones"], p["conventional"])
        return self.attach()

    def attach(self, *more):
        """Starts a server, and waits for the device."""
        self.server = self.serve(*more)
        if self.plan["door"] == "nvme-tcp":
            with open("/dev/nvme-fabrics", "wb", buffering=0) as f:
                f.write(
                    f"transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn={NQN},hostnqn={HOST},hostid={HOST_ID},"
                    "ctrl_loss_tmo=600,reconnect_delay=1".encode()
                )
        for _ in range(1000):
            try:
                return os.close(os.open(self.device, os.O_RDONLY))
            except OSError:
                time.sleep(0.01)
        return fail("there is no", self.device, open("/tmp/serve").read().replace("\n", " | "))

    def make_file_system(self):
        # btrfs is told to have one copy of its metadata, as zones are few.
        make = {"btrfs": "mkfs.btrfs -q -f -O zoned -m single -d single", "zonefs": "mkzonefs -f", "f2fs": "mkfs.f2fs -q -f -m", "xfs": "mkfs.xfs -q -f"}
        command = make[self.plan["fs"]]
        if self.plan["door"] == "loop":
            command = command.replace("-O zoned ", "").replace(" -m", "" if self.plan["fs"] == "f2fs" else " -m")
        sh(f"{command} {self.device}")

    def mount(self):
        if not mount(self.device, MOUNTED, self.plan["fs"]):
            return False
        sync_file_system()
        return True

    def grow(self):
        """Makes the disk longer by a second file. The device is another one then."""
        self.end()
        self.create(SECOND_FILE, MORE_MIB // self.plan["zone_mib"], 0)
        self.files = [FILE, SECOND_FILE]
        say("# longer")
        self.attach(*["--forget-hosts"] * (self.plan["door"] == "nvme-tcp"))

    def end(self):
        if self.plan["door"] == "nvme-tcp":
            with open("/sys/class/nvme/nvme0/delete_controller", "w") as f:
                f.write("1")
        if self.own:
            return
        self.server.terminate()
        status = self.server.wait()
        if status:
            fail("the server ended with", status, open("/tmp/serve").read()[-500:].replace("\n", " | "))
        for path in self.files:
            if "0 problems, 0 repaired" not in (found := sh(f"{PROGRAM} check {path}")):
                fail("zoneplug check:", found.replace("\n", " | "))


def perform(op):
    """Carries out an operation, and makes it durable."""
    path, kind = f"{MOUNTED}/{op['path']}", op["kind"]
    if kind == "snapshot":
        c = subprocess.run(["btrfs", "-q", "subvolume", "snapshot", "-r", MOUNTED, path], capture_output=True, text=True)
        if c.returncode:
            raise OSError(errno.ENOSPC if "No space" in c.stderr else errno.EIO, c.stderr.strip())
        return sync_folder(path)
    if kind == "remove":
        os.unlink(path)
        return sync_folder(path)
    flags = os.O_RDWR | (os.O_DIRECT if kind == "direct" else 0)
    new = kind in ("create", "replace")
    fd = os.open(path + ".new" * (kind == "replace"), flags | (os.O_CREAT | os.O_TRUNC if new else 0))
    try:
        if kind == "truncate":
            os.ftruncate(fd, op["size"])
        elif kind == "punch":
            if LIBC.fallocate(fd, KEEP_SIZE | PUNCH_HOLE, OFFSET(op["at"]), OFFSET(op["size"])):
                raise OSError(ctypes.get_errno(), "fallocate")
        elif kind == "map":
            write_mapped(fd, op["at"], op["bytes"])
        elif kind == "direct":
            with mmap.mmap(-1, len(op["bytes"])) as m:
                m.write(op["bytes"])
                os.lseek(fd, op["at"], os.SEEK_SET)
                write_all(lambda done: os.writev(fd, [memoryview(m)[done:]]), len(op["bytes"]))
        else:
            write_all(lambda done: os.pwrite(fd, op["bytes"][done:], op["at"] + done), len(op["bytes"]))
        os.fsync(fd)
    finally:
        os.close(fd)
    if kind == "replace":
        os.rename(path + ".new", path)
    if new:
        sync_folder(path)


def write_mapped(fd, at, data):
    """Writes through a mapping. Python's own functions hold its lock meanwhile, and would stop those that start the next server."""
    start = at - at % mmap.PAGESIZE
    size = at + len(data) - start
    with mmap.mmap(fd, size, offset=start) as m:
        view = (ctypes.c_char * size).from_buffer(m)
        address = ctypes.addressof(view)
        LIBC.memcpy(ctypes.c_void_p(address + at - start), data, ctypes.c_size_t(len(data)))
        failed = LIBC.msync(ctypes.c_void_p(address), ctypes.c_size_t(size), MS_SYNC)
        del view
    if failed:
        raise OSError(ctypes.get_errno(), "msync")


def write_all(write, size):
    done = 0
    while done < size:
        done += write(done)


class World:
    def __init__(self, plan):
        self.plan, self.disk = plan, Disk(plan)
        # The operations that have ended, and the writers that have not.
        self.operations, self.at_work = 0, plan["writers"]
        self.progress = threading.Condition()
        # A writer has its lock during an operation.
        self.turns = [threading.Lock() for _ in range(plan["writers"])]
        self.may_fail = any(f["kind"] == "error" for f in plan["faults"])
        self.may_be_full = any(f["kind"] == "full" for f in plan["faults"])

    def attempt(self, op):
        """The outcome of an operation."""
        for _ in range(100):
            try:
                perform(op)
                return "ack"
            except OSError as e:
                if e.errno == errno.EAGAIN:
                    say("# EAGAIN", op["kind"])
                    time.sleep(0.01)
                    continue
                if e.errno in FULL and self.may_be_full or e.errno in BROKEN and self.may_fail:
                    return "gave"
                fail(f"{op['kind']} of {op['path']}:", e)
                return "gave"
        fail(f"{op['kind']} of {op['path']}: EAGAIN a hundred times")
        return "gave"

    def write(self, writer):
        try:
            self.write_files(writer)
        finally:
            self.advance(0, 1)

    def advance(self, operations, ended):
        with self.progress:
            self.operations += operations
            self.at_work -= ended
            self.progress.notify_all()

    def write_files(self, writer):
        files = Files(self.plan, writer)
        for n in range(1, self.plan["operations"] + 1):
            op = files.next()
            with self.turns[writer]:
                say("try", writer, n)
                outcome = self.attempt(op)
                say(outcome, writer, n)
            (files.done if outcome == "ack" else files.given_up)(op)
            self.advance(1, 0)
            if files.ended:
                return
            time.sleep(op["pause_s"])

    def fault(self, fault):
        with self.progress:
            self.progress.wait_for(lambda: self.operations >= fault["after"] or not self.at_work, HANGS_S)
        time.sleep(fault["later_s"])
        kind, wait_s = fault["kind"], fault.get("wait_s", 0)
        if kind == "idle":
            time.sleep(wait_s)
        elif kind == "full":
            self.fill()
        elif kind == "grow":
            self.grow()
        elif kind == "kill":
            self.disk.server.kill()
            ends_soon(self.disk.server)
            time.sleep(wait_s)
            self.disk.server = self.disk.serve(may_fail=self.may_fail)
            if self.disk.server.poll() is not None:
                # The one access that fails was of its start.
                self.disk.server = self.disk.serve()
        elif kind == "takeover":
            old, new = self.disk.server, self.disk.serve("--takeover", may_fail=self.may_fail)
            if new.poll() is not None:
                # Data that the medium did not take cannot be made durable, so the running server goes on.
                say("# refused", kind)
            else:
                self.disk.server = new
                if old.wait():
                    fail("the server that was taken over from ended with", old.returncode)
        elif kind == "stall":
            self.disk.server.send_signal(signal.SIGSTOP)
            time.sleep(wait_s)
            self.disk.server.send_signal(signal.SIGCONT)
        elif kind == "lose":
            sh("ss -K dport = 4420; ss -K sport = 4420")
        elif kind == "copy" and len(self.disk.files) == 1:
            # There are no snapshots of disks of several files. Not *.zbd: what is written to the copy is no access of the medium.
            copy = "/tmp/m/copy"
            sh(f"rm -f {copy}; {PROGRAM} snapshot {self.disk.name} {copy} --socket {SOCKET} && {PROGRAM} check {copy}", self.may_fail)
        say("#", kind, "after operation", self.operations)

    def fill(self):
        path = f"{MOUNTED}/filler"
        if self.plan["fs"] == "zonefs":
            return
        allowed = FULL + BROKEN * self.may_fail
        try:
            with open(path, "wb", buffering=0) as f:
                while True:
                    f.write(bytes(1 << 20))
        except OSError as e:
            if e.errno not in allowed:
                fail("a file that fills all:", e)
        try:
            os.unlink(path)
            sync_folder(path)
        except OSError as e:
            if e.errno not in allowed:
                fail("the end of a file that fills all:", e)

    def grow(self):
        """Makes the disk and its file system longer, while the writers wait. Then a file is written, into the new room on zonefs."""
        for writer, turn in enumerate(self.turns):
            if not turn.acquire(timeout=HANGS_S):
                return fail("writer", writer, "hangs")
        if self.plan["armed_late"]:
            arm()
        before = self.room()
        unmount(MOUNTED)
        self.disk.grow()
        self.disk.mount()
        if self.plan["fs"] in GROW:
            sh(GROW[self.plan["fs"]])
        sync_file_system()
        if self.room() <= before:
            fail(f"the file system has not grown from {before} bytes: {self.room()}")
        kind, path, data = self.grown()
        say("# grown", self.room(), self.attempt({"kind": kind, "path": path, "at": 0, "bytes": data}))
        for turn in self.turns:
            turn.release()

    def grown(self):
        """The operation after the growth: its kind, its file, its data."""
        data = bytes(range(255)) * 16 + bytes(16)
        if self.plan["fs"] != "zonefs":
            return "create", "grown", data
        return "direct", f"seq/{len(os.listdir(f'{MOUNTED}/seq')) - 1}", data

    def room(self):
        """The size of the file system, in bytes."""
        s = os.statvfs(MOUNTED)
        return s.f_blocks * s.f_frsize

    def compare_growth(self, said):
        """Looks for the new room, and what was written then, if the first boot has said that they are there."""
        words = next((line.split() for line in said.splitlines() if line.startswith("# grown ")), None)
        if not words:
            return
        if self.room() != int(words[2]):
            fail(f"lost: the file system had grown to {words[2]} bytes, and has {self.room()}")
        if words[3] != "ack":
            return
        _, path, data = self.grown()
        try:
            with open(f"{MOUNTED}/{path}", "rb") as f:
                same = f.read() == data
        except OSError as e:
            same = fail(f"{path}: {e}")
        if not same:
            fail(f"lost: {path}, which was written when the file system had grown")

    def run(self):
        self.disk.start(True)
        self.disk.make_file_system()
        self.disk.mount()
        if self.plan["door"] != "null_blk" and not self.plan.get("armed_late"):
            arm()
        self.writers = [threading.Thread(target=self.write, args=(w,), daemon=True) for w in range(self.plan["writers"])]
        for t in self.writers:
            t.start()
        for f in self.plan["faults"]:
            if "at" not in f:
                self.fault(f)
        end = time.monotonic() + HANGS_S
        for w, t in enumerate(self.writers):
            t.join(max(0, end - time.monotonic()))
            if t.is_alive():
                fail("writer", w, "hangs")
                sh("echo w >/proc/sysrq-trigger; dmesg | tail -40 >&2", True)
        say("# ended at", time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        if self.plan["door"] == "null_blk":
            # This disk goes with the guest.
            self.compare(open("/srv/run.out").read())
            self.finish()

    def compare(self, said):
        """Looks for all that was acknowledged in what the first boot has said."""
        outcomes = {}
        for line in said.splitlines():
            words = line.split()
            if words and words[0] in ("try", "ack", "gave") and len(words) == 3:
                outcomes[int(words[1]), int(words[2])] = words[0]
        for writer in range(self.plan["writers"]):
            self.compare_writer(writer, outcomes)

    def compare_writer(self, writer, outcomes):
        files, under_way, last = Files(self.plan, writer), None, None
        for n in range(1, self.plan["operations"] + 1):
            outcome = outcomes.get((writer, n))
            if outcome is None:
                break
            op = files.next()
            if outcome == "try":
                under_way = op
                break
            (files.done if outcome == "ack" else files.given_up)(op)
            last = op
            if files.ended:
                break
        if self.plan["fs"] == "f2fs":
            # known.py says what f2fs may lose of these.
            for op in filter(None, (last, under_way)):
                files.content.pop(op["path"], None)
            under_way = None
        paths = set(files.content) | ({under_way["path"]} if under_way else set())
        for path in sorted(paths):
            op = under_way if under_way and under_way["path"] == path and under_way["kind"] != "snapshot" else None
            if path in files.content or op:
                self.compare_file(files, path, path, op)
        for folder, content in files.snapshots.items():
            files.content = content
            for path in sorted(content):
                self.compare_file(files, path, f"{folder}/{path}", None)

    def compare_file(self, files, path, place, op):
        try:
            with open(f"{MOUNTED}/{place}", "rb") as f:
                there = f.read()
        except FileNotFoundError:
            there = None
        except OSError as e:
            return fail(f"{place} cannot be read: {e}")
        if wrong := files.differs(path, there, op):
            fail(f"lost: {place}: {wrong}" + (f" ({op['kind']} was under way)" if op else ""))

    def goes_on(self):
        """Writes once more, on what there is now."""
        data = bytes(range(256)) * 16
        op = {"kind": "create", "path": "after", "at": 0, "bytes": data}
        if self.plan["fs"] == "zonefs":
            op = {"kind": "direct", "path": "seq/0", "at": 0, "bytes": data}
            self.attempt({"kind": "truncate", "path": "seq/0", "size": 0})
        if self.attempt(op) == "ack" and open(f"{MOUNTED}/{op['path']}", "rb").read() != data:
            fail("what was written at last is not there")

    def finish(self):
        unmount(MOUNTED)
        check = {"btrfs": "btrfs check --readonly ", "f2fs": "fsck.f2fs --dry-run ", "xfs": "xfs_repair -n "}
        if self.plan["fs"] in check:
            sh(check[self.plan["fs"]] + self.disk.device)
        self.disk.end()
        complaints = ("BUG:", "Oops", "WARNING:", "blocked for more", "Corrupted write pointer")
        for line in kernel_log():
            if any(c in line for c in complaints):
                fail("kernel:", line)
        say("# checked")

    def check(self):
        with open("/srv/run.out") as f:
            said = f.read()
        self.may_be_full = True
        if "\n# longer\n" in said:
            self.disk.files.append(SECOND_FILE)
        self.disk.start(False)
        if not self.disk.mount():
            return say("# not checked")
        self.compare(said)
        self.compare_growth(said)
        self.goes_on()
        self.finish()


LIBC, OFFSET = ctypes.CDLL(None, use_errno=True), ctypes.c_int64


def main():
    mode = sys.argv[1]
    if mode == "compile":
        # Python has written what it compiled this program to, so that no world does.
        return
    try:
        getattr(World(json.load(open("/srv/plan.json"))), mode)()
    except BaseException as e:
        fail("the guest's own program:", repr(e), "in line", e.__traceback__.tb_next and e.__traceback__.tb_next.tb_lineno)
