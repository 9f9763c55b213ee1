"""The engine on models of drives, in virtual time, as plain data: dictionaries, lists and numbers.

The figures follow from the arguments alone. They are the same on every machine, whatever else it does, and a minute of a
hard disk takes a fraction of a second. Ctrl-C ends a call within about a second.
"""

import os

from . import _zoneplug
from .errors import BrokenPromise, Error

__all__ = ["View", "measure", "replay", "reproduce", "simulate"]

# None in a build without models.
View = getattr(_zoneplug, "View", None)


def measure(
    disk,
    *,
    rw="randwrite",
    block_bytes=4096,
    iodepth=1,
    jobs=1,
    zones=None,
    zone_lock=False,
    reads=None,
    read_block_bytes=None,
    warm_up_s=None,
    runtime_s=None,
    policy=None,
    scheduler=None,
    mode=None,
    tags=None,
    seed=1,
):
    """Runs a workload on the model of a drive, and returns its figures: a row of `zoneplug-lab bench --json`.

        >>> import zoneplug
        >>> row = zoneplug.measure("sim-smr30", block_bytes=1 << 20, iodepth=32, jobs=4, zones=8, zone_lock=True, runtime_s=2)
        >>> row["layer"], row["jobs"]["refused"], 50 < row["jobs"]["mb_per_s"] < 200
        ('plug none qd1 fifo', 0, True)

    `disk`: `"sim-smr30"`, `"sim-smr20"`, `"sim-smr14"`, `"sim-zns1"`, or `"sim,profile=FILE"`, with options such as
    `"sim-smr30,cache=64M"`. `rw`: `"write"`, `"randwrite"`, `"append"`, `"read"` or `"randread"`, of BIOs of `block_bytes`,
    `iodepth` in flight for each of `jobs` clients. Random writes of all jobs go to `zones` zones (None: 64, or what the disk
    allows); `zone_lock`: as fio's zoned mode sends them. `reads` random reads of `read_block_bytes` (None: 4096) are kept in
    flight beside the jobs. `runtime_s` are seconds of virtual time (None: 60 of a hard disk, else 5), after `warm_up_s` that
    do not count (None: a quarter of that, 5 at most).

    `policy`: which zone the single writer writes next. A name, as in `"clook"` or `"clook+300us/4s"`, `"off"` for no single
    writer, None for what the specification says (`fifo` on hard disks, none on SSDs), or a function: see below.
    `scheduler`, `mode`: `"none"`, `"mq-deadline"`; `"plug"`, `"lock"`, `"none"` (None: what the specification says). `tags`:
    commands at the drive. `seed`: where random places come from; the command has 1.

    Rates are in 10^6 bytes a second, latencies in nanoseconds from submission to completion.

    A policy of your own is a function that gets a `View` and returns an index: which of the zones that wait is next.

        >>> def nearest(view):
        ...     last = view.last or 0
        ...     return min(range(len(view)), key=lambda i: abs(view.zones[i] - last))
        >>> row = zoneplug.measure("sim-smr30", block_bytes=65536, iodepth=32, zones=16, runtime_s=1, policy=nearest)
        >>> row["layer"]
        'plug none qd1 nearest'

    It is called when more than one zone waits. It may also be an object with `pick(view)` and perhaps `stay(view)`, which
    says whether the writer waits for more from the zone of its turn, for as long as the specification allows with
    `anticipation-us=300`. An exception of a policy ends the call; an index that is none raises `ValueError`.
    """
    return _built("_measure")(
        disk, rw, block_bytes, iodepth, jobs, zones, zone_lock, reads, read_block_bytes, warm_up_s, runtime_s, policy,
        scheduler, mode, tags, seed,
    )  # fmt: skip


def replay(
    trace,
    *,
    disk,
    policies=("off", "fifo"),
    schedulers=(),
    modes=(),
    speed=1.0,
    iodepth=None,
    map="auto",  # noqa: A002 -- the command's word
    events="q",
    device=None,
    columns=None,
    threads=None,
):
    """Sends a block trace to models of drives, and returns a row for each drive and way to open it, as `zoneplug-lab replay`.

        >>> import zoneplug
        >>> text = "fio version 2 iolog\\nf write 0 65536\\nf write 65536 65536\\nf read 0 4096\\n"
        >>> rows = zoneplug.replay(text, disk="sim-smr30")
        >>> [(row["layer"], row["writes"]["operations"], row["reads"]["bytes"]) for row in rows]
        [('plug none', 2, 4096), ('plug none qd1 fifo', 2, 4096)]

    `trace`: one file of `blktrace`, the output of `blkparse` or of `fio --write_iolog`, or a table, also in gzip, as a path, a
    file object, or the content itself (`bytes`, or a `str` with more than one line). Its lines may stand in any order.
    `disk`: one specification, or several. `policies` are as `measure` has them, also of your own; with none, the
    specification decides. So do `schedulers` and `modes`, which are combined with each other.

    `speed`: so many times as fast as recorded, or `"asap"`. `iodepth`: operations outstanding at most (None: any number at
    the recorded times, 1 of a trace without times, 32 with `"asap"`). `map`: `"exact"` sends each operation where it was
    recorded, `"log"` at the write pointer of its zone, `"auto"` finds out. `events`: `"q"` for what was asked for, `"d"` for
    what was sent to the driver. `device`: whose operations, as the trace names it. `columns`: those of a table without
    titles, such as `"time_us,op,offset,length"`. `threads`: None for one for each processor; with a policy in Python, the
    calling thread does all work.

    A trace that makes no sense raises `Error`, with the number of its line. What a disk refused is counted in the rows.
    Latencies are in nanoseconds, lengths in bytes, times in seconds, sectors of 512 bytes.
    """
    path, text = _source(trace)
    disks = [disk] if isinstance(disk, str) else list(disk)
    return _built("_replay")(
        path, text, disks, _several(policies), _several(schedulers), _several(modes), str(speed), iodepth, map, events,
        device, columns if columns is None or isinstance(columns, str) else ",".join(columns), threads or 0,
    )  # fmt: skip


def reproduce(table=None, *, quick=False, threads=None):
    """Runs the published tables on the models, and returns the document of `zoneplug-lab reproduce --json`, without its schema.

        >>> import zoneplug
        >>> report = zoneplug.reproduce("append-zns", quick=True)
        >>> cell = report["tables"][0]["cells"][0]
        >>> cell["row"], cell["unit"], cell["ours"] > 0
        ('btrfs', 'MB/s', True)

    `table`: a name or what it begins with, or several; None for all that are simulated. Tables of processor time are measured
    by the command only. `quick`: one geometry and one seed of each cell, and nothing is judged. `failed` counts the cells and
    claims that are not as expected. `threads`: None for one for each processor.
    """
    names = [] if table is None else _several(table)
    return _built("_reproduce")(names, quick, threads or 0)


def simulate(seeds, *, stop_at_first=True):
    """Runs the worlds of these seeds, and returns what they did: the tally of `zoneplug-lab sim --json`, and `broken`.

        >>> import zoneplug
        >>> tally = zoneplug.simulate(range(1, 21))
        >>> tally["worlds"], tally["broken"]
        (20, [])

    A world is a disk of random shape with faults below it and clients above it; it follows from its seed alone. `seeds`: one
    seed, a range, or any iterable. A world that breaks a promise of the layer is a bug of zoneplug. The first one raises
    `errors.BrokenPromise`, with `seed` and with the `command` that repeats it. With `stop_at_first=False` all worlds are run,
    nothing is raised, and `broken` is a list of dictionaries with `seed`, `what` and `command`.
    """
    if isinstance(seeds, int):
        seeds = range(seeds, seeds + 1)
    tally = _built("_simulate")(seeds, stop_at_first)
    if stop_at_first and tally["broken"]:
        raise BrokenPromise._of(tally["broken"][0])
    return tally


def _built(name):
    """A function of the compiled module, which may have been built without models."""
    found = getattr(_zoneplug, name, None)
    if found is None:
        e = Error(95, "this build has no models")
        e.hint = "build the package with the cargo feature models"
        raise e
    return found


def _several(names):
    """One or several: a text and a policy are one."""
    return [names] if isinstance(names, str) or not hasattr(names, "__iter__") else list(names)


# The longest trace that is read from an open file, in bytes or characters: it is in memory as a whole.
_MOST = 1 << 30


def _source(trace):
    """A trace as a path or as bytes."""
    if hasattr(trace, "read"):
        trace = trace.read(_MOST + 1)
        if len(trace) > _MOST:
            raise Error._of(22, "more than 1G of trace in an open file", "the path of the file")
        return None, trace.encode() if isinstance(trace, str) else bytes(trace)
    if isinstance(trace, (bytes, bytearray, memoryview)):
        return None, bytes(trace)
    if isinstance(trace, str) and "\n" in trace:
        return None, trace.encode()
    return os.fspath(trace), None
