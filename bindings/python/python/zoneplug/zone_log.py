"""An append-only log over the sequential zones of a disk."""

from typing import NamedTuple

from . import _zoneplug
from ._zoneplug import LogAddress


class Record(NamedTuple):
    """A record of a log."""

    address: LogAddress
    data: bytes


class Recovery(NamedTuple):
    """What opening a log has found."""

    #: Zones that hold records.
    zones_in_use: int
    #: The numbers of the oldest and of the newest record, or None.
    first: int | None
    last: int | None
    #: Bytes behind the newest record that a crash has torn. They were never durable.
    torn_bytes: int
    #: `LogError`s: records that are missing or damaged in the newest zone.
    holes: list
    #: Numbers of zones that the log cannot write.
    lost: list
    #: Numbers of zones that hold other data. The log does not touch them.
    foreign: list


class ZoneLog:
    """A log in the zones of a disk: records that are appended, and can be read by their address until their zone is reset.

        >>> import zoneplug
        >>> disk = zoneplug.Disk("mem,zones=4,zone-size=1M")
        >>> log = zoneplug.ZoneLog(disk)
        >>> at = log.append(b"hello")
        >>> log.sync()
        >>> log.read(at), [record.data for record in log]
        (b'hello', [b'hello'])

    *Acknowledged* is not *durable*: `append` returns when the disk has the record, and a power cut may still take it, with all
    that was appended behind it. `sync` returns when everything acknowledged before is durable.

    Opening a log begins one if all its zones are empty. `zones` is a `range` of zone numbers, or None for all sequential zones.
    Logs of one disk have different `id`s. Any number of threads may use a log; do not open it a second time while it is open.
    The log keeps the disk in use, also after `Disk.close`, for as long as it is referred to.
    """

    def __init__(self, disk, *, id=0, zones=None):
        self._log = _opened(disk, id, zones, 1, False)[0]

    @classmethod
    def create(cls, disk, *, id=0, zones=None):
        """Begins a log: resets its zones, whatever they hold."""
        return cls._of(_opened(disk, id, zones, 1, True)[0])

    @classmethod
    def open_set(cls, disk, logs, *, id=0, zones=None):
        """A list of `logs` logs that share the zones and write side by side. Their ids are `id` and those that follow."""
        return [cls._of(log) for log in _opened(disk, id, zones, logs, False)]

    @classmethod
    def create_set(cls, disk, logs, *, id=0, zones=None):
        """Begins a set of logs: resets its zones, whatever they hold."""
        return [cls._of(log) for log in _opened(disk, id, zones, logs, True)]

    @classmethod
    def _of(cls, log):
        made = cls.__new__(cls)
        made._log = log
        return made

    def append(self, data, *, sync=False):
        """Appends a record, and returns its `LogAddress`. `sync`: it and all earlier records are durable then."""
        return self._log.append([data], sync)[0]

    def append_batch(self, records, *, sync=False):
        """Appends records in sequence, in as few writes as possible, and returns their addresses."""
        return self._log.append(list(records), sync)

    def sync(self):
        """Makes everything that was acknowledged before the call durable."""
        self._log.sync()

    def read(self, address):
        """The data of the record at `address`."""
        return self._log.read(address)

    def __iter__(self):
        return self.records()

    def records(self, start=None):
        """`Record`s, the oldest first, or from the address `start` on.

        Where records are missing the iterator raises `errors.MissingRecords` or `errors.DamagedRecord`; the next call of `next`
        goes on behind them.
        """
        return _Records(self._log.records(start))

    def trim(self, before):
        """Resets each zone that holds only records older than the address `before`, and returns their numbers."""
        return self._log.trim(before)

    def reset_oldest(self):
        """Resets the zone with the oldest records, and returns its number; None if only one zone holds records."""
        return self._log.reset_oldest()

    @property
    def max_record_bytes(self):
        """The length of the longest record."""
        return self._log.max_record_bytes()

    @property
    def numbers(self):
        """The `range` of record numbers, from the oldest to the next one."""
        return range(*self._log.numbers())

    @property
    def recovery(self):
        """What opening the log has found: a `Recovery`."""
        return Recovery(**self._log.recovery())


class _Records:
    def __init__(self, records):
        self._records = records

    def __iter__(self):
        return self

    def __next__(self):
        found = self._records.next()
        if found is None:
            raise StopIteration
        return Record(*found)


def _opened(disk, id, zones, logs, erase):
    if zones is not None and (not isinstance(zones, range) or zones.step != 1):
        raise TypeError("zones is a range of zone numbers, such as range(0, 8)")
    return _zoneplug._open_logs(disk, id, None if zones is None else (zones.start, zones.stop), logs, erase)
