"""Exceptions: `Error`, and below it one for each status with which an operation may end.

Each has `errno` (Linux's number) and `strerror` as any `OSError`, `hint`: what to try, or None, and `reason`: the name of
what was wrong, or None. An `IoError` also has `op` and `sector`, in units of 512 bytes.
"""


class Error(OSError):
    """Something failed: a specification, an attribute, or with `IoError` an operation."""

    hint: str | None = None
    #: The name of what was wrong, if it has one: `"Exists"` for a file that is there, `"UnknownKey"` for a key of a
    #: specification, `"ZoneFull"` for an operation. A program can compare it; texts may change.
    reason: str | None = None

    @classmethod
    def _of(cls, errno, text, hint):
        e = cls(errno, text)
        e.hint = hint
        if hint:
            e.add_note(f"try: {hint}")
        return e


class PowerCut(Error):
    """A power cut broke a promise of the code that `crash.test` tests, or the code failed before any cut.

    The text tells of the smallest cut that was found, and how to repeat it. `__cause__` is what the check has raised.
    """

    #: One line for what the check has raised.
    message: str = ""
    seed: int | None = None
    #: Events of the run before the cut; None if the work itself failed.
    point: int | None = None
    #: The number of the first cut that failed, from 1 on.
    nr: int = 0
    #: The value of the environment variable ZONEPLUG_CRASH that repeats the cut.
    repeat: str = ""

    def __str__(self):
        return self.strerror


class LogError(Error):
    """An operation of a log failed: see `ZoneLog`."""


class LogFull(LogError):
    """No zone is left for the record. Nothing was written."""


class RecordTooLong(LogError):
    """The record is longer than a zone can hold. Nothing was written."""


class StaleRecord(LogError):
    """The record is not there any more: its zone was reset, or a crash took it before a sync."""


class DamagedRecord(LogError):
    """The checksum of a record is wrong."""


class MissingRecords(LogError):
    """Records are missing between two others."""


class ZoneLost(LogError):
    """The zone that was being written cannot be written any more. The log goes on in the next one."""


class NotALog(LogError):
    """A zone holds data that no log with this id has written."""


class LogFailed(LogError):
    """An earlier sync failed. It is unknown what is durable, so the log takes no more records until it is opened again."""


class BrokenPromise(Error):
    """A world of the simulation broke a promise of the layer: a bug of zoneplug."""

    seed: int | None = None
    command: str | None = None

    @classmethod
    def _of(cls, broken):
        e = cls(5, f"seed {broken['seed']}: {broken['what']}")
        e.seed, e.command = broken["seed"], broken["command"]
        e.hint = f"run it again: {e.command}"
        e.add_note(f"try: {e.hint}")
        return e


class IoError(Error):
    """An operation failed. Its class below this one says how."""

    status: str = "io"
    op: str | None = None
    sector: int | None = None


class NotAtWritePointer(IoError):
    """The write does not start at the zone's write pointer."""

    status = "not_at_write_pointer"


class PastCapacity(IoError):
    """The write or append does not fit below the zone's capacity."""

    status = "past_capacity"


class ZoneFull(IoError):
    """The zone is full."""

    status = "zone_full"


class ZoneReadOnly(IoError):
    """The zone is read-only."""

    status = "zone_read_only"


class ZoneOffline(IoError):
    """The zone is offline."""

    status = "zone_offline"


class StaleWritePointer(IoError):
    """An earlier error left the write pointer unknown: report, reset or finish the zone first."""

    status = "stale_write_pointer"


class OutOfRange(IoError):
    """The range is empty, or not within the disk."""

    status = "out_of_range"


class Unaligned(IoError):
    """The address or length is not a multiple of the block size, or of the write granularity."""

    status = "unaligned"


class BadBuffer(IoError):
    """The buffer is shorter or longer than the BIO says."""

    status = "bad_buffer"


class ConventionalZone(IoError):
    """The operation does not apply to a conventional zone."""

    status = "conventional_zone"


class NotZoneStart(IoError):
    """The sector of an append or a management command is not the start of a zone."""

    status = "not_zone_start"


class AppendTooLarge(IoError):
    """The append is longer than `zone_append_max_bytes`."""

    status = "append_too_large"


class ZoneBusy(IoError):
    """The zone is busy: strict management found writes of it, a write came meanwhile, or a resync found some in flight."""

    status = "zone_busy"


class WouldBlock(IoError):
    """A BIO with `nowait` would have had to wait."""

    status = "would_block"


class ReadOnlyDisk(IoError):
    """The disk was opened for reading only."""

    status = "read_only_disk"


class NotSupported(IoError):
    """The operation is not supported."""

    status = "not_supported"


class AbortedBehind(IoError):
    """An earlier write of the zone failed, so this one was not sent."""

    status = "aborted_behind"


class AbortedByManagement(IoError):
    """The zone was reset or finished while this write waited, so it was not sent."""

    status = "aborted_by_management"


class Aborted(IoError):
    """The queue or the disk was closed before this BIO was sent."""

    status = "aborted"


class OpenLimit(IoError):
    """Too many open zones."""

    status = "open_limit"


class ActiveLimit(IoError):
    """Too many active zones."""

    status = "active_limit"


class Boundary(IoError):
    """The command crosses the end of a zone."""

    status = "boundary"


class InvalidField(IoError):
    """The device refused a field of the command."""

    status = "invalid_field"


class InvalidTransition(IoError):
    """The zone's condition does not allow the operation."""

    status = "invalid_transition"


class UnalignedWrite(IoError):
    """The device refused the write because it does not start at the zone's write pointer."""

    status = "unaligned_write"


class Busy(IoError):
    """The device cannot take the command now; the same command may be tried again."""

    status = "busy"


class DeviceError(IoError):
    """An error of the device or the transport."""

    status = "io"


class Medium(IoError):
    """The medium failed."""

    status = "medium"


class ShortTransfer(IoError):
    """Only a part of the data moved."""

    status = "short_transfer"


class NoSpace(IoError):
    """The device has run out of space to store data."""

    status = "no_space"


class TimedOut(IoError):
    """The command did not complete in time; its outcome is unknown."""

    status = "timeout"


class NoDevice(IoError):
    """The device is gone, or its queue has panicked."""

    status = "no_device"


_LOG = {
    e.__name__: e
    for e in (LogFull, RecordTooLong, StaleRecord, DamagedRecord, MissingRecords, ZoneLost, NotALog, LogFailed)
}

_BY_STATUS = {
    "NotAtWritePointer": NotAtWritePointer,
    "PastCapacity": PastCapacity,
    "ZoneFull": ZoneFull,
    "ZoneReadOnly": ZoneReadOnly,
    "ZoneOffline": ZoneOffline,
    "StaleWritePointer": StaleWritePointer,
    "OutOfRange": OutOfRange,
    "Unaligned": Unaligned,
    "BadBuffer": BadBuffer,
    "ConventionalZone": ConventionalZone,
    "NotZoneStart": NotZoneStart,
    "AppendTooLarge": AppendTooLarge,
    "ZoneBusy": ZoneBusy,
    "WouldBlock": WouldBlock,
    "ReadOnlyDisk": ReadOnlyDisk,
    "NotSupported": NotSupported,
    "AbortedBehind": AbortedBehind,
    "AbortedByManagement": AbortedByManagement,
    "Aborted": Aborted,
    "OpenLimit": OpenLimit,
    "ActiveLimit": ActiveLimit,
    "Boundary": Boundary,
    "InvalidField": InvalidField,
    "InvalidTransition": InvalidTransition,
    "UnalignedWrite": UnalignedWrite,
    "Busy": Busy,
    "Io": DeviceError,
    "Medium": Medium,
    "ShortTransfer": ShortTransfer,
    "NoSpace": NoSpace,
    "Timeout": TimedOut,
    "NoDevice": NoDevice,
}


def _make(reason, errno, text, hint):
    """The exception for a failure of opening, configuring or serving: what the compiled module raises."""
    e = Error._of(errno, text, hint)
    e.reason = reason
    return e


def _make_io(status, errno, text, hint, op, sector):
    """The exception for a failure of an operation."""
    e = _BY_STATUS.get(status, IoError)._of(errno, text, hint)
    e.reason, e.op, e.sector = status, op, sector
    return e


def _make_log(name, errno, text, hint):
    """The exception for a failure of a log."""
    e = _LOG.get(name, LogError)._of(errno, text, hint)
    e.reason = name
    return e


def _make_cut(text, message, seed, point, nr, repeat):
    """The exception for a power cut that a check did not pass."""
    e = PowerCut(5, text)
    e.message, e.seed, e.point, e.nr, e.repeat = message, seed, point, nr, repeat
    return e
