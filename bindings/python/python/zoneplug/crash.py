"""Power-cut tests for storage code: `test` tries many cuts of a workload, a `Disk` has its power cut when a test wants it.

    >>> import zoneplug
    >>> def work(work):
    ...     log = zoneplug.ZoneLog(work.disk)
    ...     for n in range(5):
    ...         at = log.append(bytes([n]) * 3000, sync=True)
    ...         work.promise((at, n))
    >>> def check(disk, promised):
    ...     log = zoneplug.ZoneLog(disk)
    ...     for at, n in promised:
    ...         assert log.read(at) == bytes([n]) * 3000
    >>> zoneplug.crash.test(work, check, disk="mem,zones=4,zone-size=64K", cuts=50, seeds=range(1)).cuts
    50
"""

import traceback
from typing import NamedTuple

from . import Disk as _Disk
from . import _zoneplug
from ._zoneplug import Work

__all__ = ["CrashReport", "Disk", "Work", "test"]

_DISK = "mem,zones=8,zone-size=256K"


class CrashReport(NamedTuple):
    """Counts of a test that passed."""

    #: Runs of the work.
    runs: int
    #: Commands of all runs that changed the disk.
    commands: int
    #: Moments at which the power could be cut.
    points: int
    #: Power cuts that were checked.
    cuts: int

    def __str__(self):
        return f"{self.cuts} power cuts at {self.points} points of {self.runs} runs, {self.commands} commands: passed"


class Disk(_Disk):
    """A disk in memory with a volatile write cache, whose power a test cuts when it wants to.

        >>> import zoneplug
        >>> with zoneplug.crash.Disk("mem,zones=4,zone-size=1M", seed=7) as disk:
        ...     disk.write(0, b"a" * 4096)
        ...     disk.flush()
        ...     disk.write(8, b"b" * 4096)
        ...     disk.power_cut()
        ...     disk.zone(0).wp in (8, 16)
        True

    It is a `zoneplug.Disk` of a specification of the kind `mem`. `seed` chooses what each cut takes.
    """

    def __new__(cls, disk="mem,zones=8,zone-size=1M", *, seed=1):
        power = _zoneplug.Power(disk, seed)
        made = super().__new__(cls, power.open())
        made._power = power
        return made

    def __init__(self, *_, **__):
        pass

    def power_cut(self):
        """Cuts the power and restores it; from then on this is the disk that is left, as a program finds it after a crash.

        Each sequential zone keeps a random prefix of what was written, at least what a flush or FUA covers. Logs, and
        `aio.Disk`s of this disk, have to be opened again, as after a crash.
        """
        self._power.cut(self)


def test(work, check, *, disk=_DISK, seeds=range(1, 11), cuts=1000, every=False, cut_check=False):
    """Runs `work`, cuts the power at many moments, and has `check` look at what each cut has left. Returns a `CrashReport`.

    `work(work)` runs the code on `work.disk`, an empty `zoneplug.Disk`, once for each of `seeds`, a `range`; `work.seed` is
    that number. `work.promise(x)` declares that from now on no power cut may undo `x`, which may be anything that the check
    needs. Call it when the code says that data are durable. `check(disk, promised)` gets the disk that a cut has left, and a
    list of the promises that were made before it. It opens the disk as the code does after a crash, and raises, as by `assert`,
    if a promise is broken.

    `disk` is a specification of the kind `mem`. Small disks are quick, and their zones become full. `cuts` is the number of
    cuts in total; `every` cuts at every moment of every run instead, in four ways. `cut_check` cuts the power once more while
    the check works.

    The first promise that is broken raises `errors.PowerCut` with the smallest cut found that breaks it, and the way to repeat
    it. If the environment variable `ZONEPLUG_CRASH` names a cut, only that one is made.
    """
    if not isinstance(seeds, range) or seeds.step != 1:
        raise TypeError("seeds is a range, such as range(1, 11)")
    return CrashReport(*_zoneplug._crash(disk, work, check, (seeds.start, seeds.stop), cuts, every, cut_check, _Disk))


# Not a test of the programs that import this, whatever a collector of tests thinks of the name.
test.__test__ = False


def _describe(e):
    """One line for what a check has raised."""
    text = str(e).splitlines()[0] if str(e) else ""
    frames = traceback.extract_tb(e.__traceback__)
    if isinstance(e, AssertionError) and frames:
        last = frames[-1]
        text = text or (last.line or "").strip()
        return f"{text} ({last.filename}:{last.lineno})"
    return f"{type(e).__name__}: {text}" if text else type(e).__name__
