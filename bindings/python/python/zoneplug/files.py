"""Disks in files: making, checking and copying them."""

from typing import NamedTuple

from . import _zoneplug
from .errors import Error


class Identity(NamedTuple):
    """The identity of a disk in a file."""

    uuid: str
    label: str
    format_version: int
    #: When it was made, in seconds since 1970.
    created_unix_s: int
    #: How often it was opened for writing.
    opened_for_writing: int


class CheckReport(NamedTuple):
    """The findings of `check`. True if no problem is left."""

    #: Each finding, and what was done about it, one line each.
    lines: list
    problems: int
    repaired: int
    #: Zones that were checked.
    zones: int

    @property
    def left(self):
        """Problems that are left."""
        return max(self.problems - self.repaired, 0)

    def __bool__(self):
        return self.left == 0

    def __str__(self):
        return "\n".join([*self.lines, f"{self.zones} zones, {self.problems} problems, {self.repaired} repaired"])


class Snapshot(NamedTuple):
    """A snapshot that `Disk.snapshot` has made."""

    identity: Identity
    #: Problems of the disk, such as damage, one line each.
    notices: list
    #: Whether it shares blocks with the original.
    shared: bool
    #: Bytes of data that were copied instead.
    copied_bytes: int


def create(
    path,
    *,
    size=None,
    zones=None,
    zone_size=None,
    zone_capacity=None,
    last_zone_size=None,
    last_zone_capacity=None,
    conv=0,
    max_open=0,
    max_active=0,
    lba_size=None,
    granularity=None,
    zone_append_max=None,
    label="",
    preallocate=False,
    force=False,
):
    """Makes a disk in a new file, and returns its `Identity`. `zoneplug.Disk(path)` opens it.

        >>> import pathlib, tempfile, zoneplug
        >>> with tempfile.TemporaryDirectory() as name:
        ...     path = pathlib.Path(name, "disk.zbd")
        ...     label = zoneplug.create(path, zones=8, zone_size="1M", label="scratch").label
        ...     with zoneplug.Disk(path) as disk:
        ...         label, disk.nr_zones, bool(zoneplug.check(path))
        ('scratch', 8, True)

    Sizes are bytes, or texts such as `"64M"`. `size`: of the whole disk; or `zones`: their number. `zone_size` is 256 MiB
    unless it is given, `zone_capacity` is the zone size. `conv`: conventional zones, at the start of the disk. `max_open`,
    `max_active`: 0 is no limit. `lba_size`: bytes of a logical block, 4096. `granularity`: writes to sequential zones are
    multiples of it. `zone_append_max`: the longest append of the device itself; without it the layer emulates appends.
    `preallocate` finds space for all data now. `force` replaces a file that exists.
    """
    if size is None and zones is None:
        raise _wrong("a disk needs a size", "size=\"20G\", or zones=64")
    if size is not None and zones is not None:
        raise _wrong("a disk has a size or a number of zones", "size= or zones= alone")
    options = {
        "size": size,
        "zones": zones,
        "zone_size": zone_size,
        "zone_capacity": zone_capacity,
        "last_zone_size": last_zone_size,
        "last_zone_capacity": last_zone_capacity,
        "conv": conv,
        "max_open": max_open,
        "max_active": max_active,
        "lba_size": lba_size,
        "granularity": granularity,
        "zone_append_max": zone_append_max,
        "label": label,
        "preallocate": preallocate,
    }
    return Identity(**_built(_zoneplug, "_create")(path, force, options))


def check(path, *, repair=False):
    """Checks the disk in a file that no process writes, and returns a `CheckReport`, which is true if no problem is left.

    `repair` repairs what can be repaired. A problem that cannot be is an `Error`: both copies of the superblock are damaged, or
    the file was cut.
    """
    return CheckReport(*_built(_zoneplug, "_check")(path, repair))


def snapshot(disk, path, keep_uuid):
    """A `Snapshot` of an open disk."""
    identity, notices, shared, copied = _built(disk, "_snapshot")(path, keep_uuid)
    return Snapshot(Identity(**identity), notices, shared, copied)


def _built(owner, name):
    """A function that only builds with disks in files have."""
    try:
        return getattr(owner, name)
    except AttributeError:
        raise _wrong("this build has no disks in files", "a build with the feature file") from None


def _wrong(text, hint):
    return Error._of(22, text, hint)
