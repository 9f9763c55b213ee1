"""Zoned disks (SMR hard disks, ZNS SSDs) in a Python process.

    >>> import zoneplug
    >>> with zoneplug.Disk("mem,zones=4,zone-size=1M") as disk:
    ...     at = disk.append(0, b"zoned" + bytes(4091))
    ...     bytes(disk.read(at, 4096))[:5]
    b'zoned'

Addresses on a disk are sectors of 512 bytes. Lengths of data are bytes, whole logical blocks. Failures are exceptions of
`zoneplug.errors`. The interpreter lock is released while an operation runs, so threads work side by side; `zoneplug.aio` has
disks for asyncio. `create` and `check` make and check disks in files, `ZoneLog` is a log in zones, `zoneplug.crash` cuts the
power of a disk while your code writes, and `serve` serves disks over NVMe/TCP and iSCSI. `measure`, `replay`,
`reproduce` and `simulate` are about models of drives, in virtual time.
"""

from . import _zoneplug, errors, files
from ._zoneplug import Buffer, LogAddress
from ._zoneplug import __version__ as __version__
from .errors import Error, IoError
from .events import Event
from .files import CheckReport, Identity, Snapshot, check, create
from .models import View, measure, replay, reproduce, simulate
from .serving import Serving, serve
from .sweeps import SweepError, sweep
from .zone_log import Record, Recovery, ZoneLog
from .zones import Condition, Zone, ZoneType, array_of, zones_of

__all__ = [
    "Buffer", "CheckReport", "Condition", "Disk", "Error", "Event", "Identity", "IoError", "LogAddress", "Record", "Recovery",
    "Serving", "Snapshot", "SweepError", "View", "Zone", "ZoneLog", "ZoneType", "aio", "check", "crash", "create", "errors",
    "measure", "replay", "reproduce", "serve", "simulate", "sweep",
]


class Disk(_zoneplug.Disk):
    """A disk, by its specification: `"mem,zones=64,zone-size=4M"`, `"disk.zbd"`, `"/dev/nvme0n1"`, `"po2@/dev/ng0n1"`.

    A `pathlib.Path` names a file or a drive, whatever characters are in it.

    Any number of threads may use it at a time. A child of a fork cannot, and is told so. It is closed by `close`, by the
    end of a `with`, or with its last reference.
    """

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def write(self, sector, data, *, fua=False):
        """Writes `data` at `sector`, which is the write pointer of a sequential zone. `fua`: durable when it returns."""
        super().write(sector, data, fua)

    def append(self, zone_start, data, *, fua=False):
        """Writes `data` at the write pointer of the zone that starts at `zone_start`, and returns the sector."""
        return super().append(zone_start, data, fua)

    def reset(self, sector, nr_sectors=None):
        """Empties the zones of a range; without a length the zone at `sector`."""
        super().reset(sector, self._zone(nr_sectors))

    def finish(self, sector, nr_sectors=None):
        """Makes the zones of a range full; without a length the zone at `sector`."""
        super().finish(sector, self._zone(nr_sectors))

    def open_zone(self, sector, nr_sectors=None):
        """Opens the zones of a range explicitly; without a length the zone at `sector`."""
        super().open_zone(sector, self._zone(nr_sectors))

    def close_zone(self, sector, nr_sectors=None):
        """Closes the open zones of a range; without a length the zone at `sector`."""
        super().close_zone(sector, self._zone(nr_sectors))

    def report(self, sector=0, nr=None, *, resync=False):
        """A list of up to `nr` `Zone`s from the one that holds `sector` on, as the device reports them.

        `resync` also corrects what the layer knows of idle zones, after something else has changed them.
        """
        return zones_of(self._report(sector, 2**32 - 1 if nr is None else nr, resync))

    def report_array(self, sector=0, nr=None, *, resync=False):
        """As `report`, as a NumPy structured array with the fields of `Zone`."""
        return array_of(self._report(sector, 2**32 - 1 if nr is None else nr, resync))

    def events(self, after=0):
        """A list of the `Event`s with numbers above `after`, the oldest first. What succeeds is no event."""
        return [Event(*event) for event in self._events(after)]

    def snapshot(self, path, *, keep_uuid=False):
        """Copies the disk, which is in one file, to the new file `path` while it is in use, and returns a `Snapshot`.

        Everything that was acknowledged before the call is in the snapshot. Its UUID is a new one unless `keep_uuid`.
        """
        return files.snapshot(self, path, keep_uuid)

    def zone(self, nr):
        """The zone of this number, as the device reports it."""
        return self.report(nr * self.zone_sectors, 1)[0]

    def _zone(self, nr_sectors):
        return self.zone_sectors if nr_sectors is None else nr_sectors

    def __getattr__(self, name):
        # Numbers that do not change while the disk is open, unless it is revalidated.
        if not name.startswith("_") and name in _PROPERTIES:
            return self._properties()[name]
        raise AttributeError(f"a disk has no {name!r}")

    def __repr__(self):
        if self.closed:
            return "<zoneplug.Disk, closed>"
        return f"<zoneplug.Disk of {self.nr_zones} zones of {self.zone_sectors} sectors>"


_PROPERTIES = frozenset({
    "sectors", "nr_zones", "zone_sectors", "zone_capacity_sectors", "nr_conventional_zones", "logical_block_sectors",
    "write_granularity_sectors", "max_open_zones", "max_active_zones", "zone_append_max_sectors", "write_cache", "fua",
    "rotational", "read_only",
})

# These are made of `Disk`.
from . import aio, crash  # noqa: E402
