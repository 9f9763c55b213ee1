"""A world as its seed draws it: the disk, the file system on it, those that write, and what goes wrong.

The host and the guest both call `plan`. What is drawn here does not depend on what the host or the guest are.
"""

import random

FILE_SYSTEMS = ("btrfs", "xfs", "f2fs", "zonefs")
DOORS = ("ublk", "nvme-tcp")
# Disks of Linux itself, to see whether a finding is the kernel's own. null_blk has zones, and nothing goes wrong with it but the idle
# time; loop has none, and is on the medium itself, so that the power may fail.
KERNELS_OWN = ("null_blk", "loop")
# Faults of a server, its disk and its connection. A connection is lost at the door of the network only.
FAULTS = ("kill", "takeover", "stall", "idle", "copy", "lose") * 2 + ("full",)
# File systems that take the room of a disk that has become longer.
GROWING = ("btrfs", "xfs", "zonefs")
# Room that a second file adds to a disk, in MiB.
MORE_MIB = 128
# Conventional zones that hold the metadata of a file system, in MiB.
CONVENTIONAL_MIB = {"btrfs": 0, "zonefs": 0, "f2fs": 160, "xfs": 352}
# The key of a layer that encrypts, in a guest.
KEY = "/tmp/key"
# Simulated seconds between a death and the next server, that a server stands still, that nobody asks anything.
GONE_S = (0, 0.01, 5, 90)
STALL_S = (0.2, 5, 25)
# A day costs as much as five worlds, as its server looks at its disks each second.
IDLE_S = (30, 600) * 7 + (3600, 86400)


def draw_fault(r, door, operations):
    kind = r.choice(FAULTS)
    if kind == "lose" and door == "ublk":
        kind = "kill"
    fault = {"kind": kind, "after": r.randint(0, operations), "later_s": r.choice([0, 0, 0.0001, 0.003, 0.1])}
    wait = {"kill": GONE_S, "stall": STALL_S, "idle": IDLE_S}.get(kind)
    if wait:
        fault["wait_s"] = r.choice(wait)
    return fault


def plan(seed, fs=None, door=None, first_faults=None):
    """The world of a seed. `fs`, `door`: what it is in any case. `first_faults`: no more than so many of its faults."""
    r = random.Random(seed)
    drawn_fs = r.choice(("btrfs", "btrfs", "xfs", "f2fs", "zonefs"))
    drawn_door = r.choice(("ublk", "ublk", "nvme-tcp"))
    p = {"seed": seed, "fs": fs or drawn_fs, "door": door or drawn_door}
    own = p["door"] in KERNELS_OWN
    # Over NVMe conventional zones are a namespace of their own, and these file systems want them beside the others. A disk of the
    # kernel's own has the same file system as the served one would have.
    if (drawn_door if own else p["door"]) == "nvme-tcp" and CONVENTIONAL_MIB[p["fs"]]:
        if not fs:
            p["fs"] = "btrfs"
        elif not own:
            p["door"] = "ublk"
    mib = r.choice((4, 8, 16))
    p["zone_mib"] = mib
    p["capacity_mib"] = mib * (3 if p["fs"] in ("btrfs", "zonefs") else 4) // 4 if r.random() < 0.7 else mib
    conventional = CONVENTIONAL_MIB[p["fs"]] // mib
    some = r.choice((0, 0, 2))
    if p["fs"] == "zonefs" and p["door"] == "ublk":
        conventional = some
    p["conventional"] = conventional
    p["zones"] = conventional + 512 // mib
    p["limit"] = r.choice((0, 0, 8, 12))
    # Zones whose size is no power of two, below the layer that makes them look so.
    p["po2"] = r.random() < 0.15 and p["door"] == "ublk" and p["fs"] in ("btrfs", "zonefs") and not conventional
    p["options"] = r.choice(("", "", ",io=threads", ",direct=0", ",emulate-append=1"))
    p["below"] = r.choice(("hostfs", "ext4"))
    p["writers"] = r.randint(1, 4)
    p["operations"] = r.choice((3, 10, 25))
    p["pause_s"] = r.choice((0, 0.001, 0.1, 3))
    all_operations = p["writers"] * p["operations"]
    number = r.choice((0, 1, 1, 1, 2, 3, 4))
    faults = sorted((draw_fault(r, p["door"], all_operations) for _ in range(number)), key=lambda f: f["after"])
    # Accesses of the medium, counted from the first operation.
    error = r.randint(1, 1 << r.randint(2, 11)) if r.random() < 0.1 else 0
    cut = r.randint(1, 1 << r.randint(4, 13)) if r.random() < 0.85 else 0
    # Below ext4 the first flush after such an error fails, and the journal of ext4 asks for flushes without looking at their results.
    # f2fs loses acknowledged data after such an error on a disk of the kernel's own too (--door loop).
    if error and p["below"] == "hostfs" and p["fs"] != "f2fs":
        faults.append({"kind": "error", "at": error})
    if cut:
        faults.append({"kind": "cut", "at": cut})
    if own:
        stay = {"null_blk": ("idle", "full"), "loop": ("idle", "full", "cut", "error")}[p["door"]]
        faults = [f for f in faults if f["kind"] in stay]
    # Over NVMe all zones have one size, and XFS and f2fs take none that is shorter.
    short = r.random() < 0.2 and p["door"] == "ublk" and p["fs"] in ("btrfs", "zonefs") and not p["po2"]
    p["last_mib"] = mib // 2 if short else 0
    p["crypt"] = r.random() < 0.15 and not own
    grows = r.random() < 0.2 and p["fs"] in GROWING and not own
    grow = {"kind": "grow", "after": r.randint(0, all_operations), "later_s": 0}
    if grows and not (p["po2"] or short or any(f["kind"] == "error" for f in faults)):
        faults = sorted(faults + [grow], key=lambda f: f.get("after", all_operations + 1))
        if p["fs"] == "xfs":
            # known.py says why.
            faults = [f for f in faults if f["kind"] != "full" or f["after"] < grow["after"]]
        # In half of these worlds accesses count from here, so that the power fails during the growth, or soon after it.
        p["armed_late"] = r.random() < 0.5
    p["faults"] = faults[:first_faults]
    return p


def spec(p, *paths):
    """The specification of the disk of a world, whose files are at these paths."""
    crypt = f"crypt,key-file={KEY}@" if p["crypt"] else ""
    if len(paths) == 1:
        return ("po2@" if p["po2"] else "") + crypt + paths[0] + p["options"]
    # Options of the whole disk stand behind the last file.
    of_file = "" if "append" in p["options"] else p["options"]
    return f"{crypt}linear@{paths[0]}{of_file}%{paths[1]}{p['options']}"


def at_medium(p, kind):
    """The access of the medium at which this happens; 0: it does not."""
    return next((f["at"] for f in p["faults"] if f["kind"] == kind), 0)


def shown(fault):
    """A fault in a few words."""
    if "at" in fault:
        return f"{fault['kind']} at access {fault['at']}"
    wait = f" for {fault['wait_s']} s" if "wait_s" in fault else ""
    return f"{fault['kind']}{wait} after operation {fault['after']}"
