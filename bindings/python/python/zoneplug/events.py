"""What happened to a disk."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a disk: see `Disk.events`."""

    #: Counts up from 1 without gaps. The disk keeps the last 256 events.
    sequence: int
    #: "failed": a command at the device; "stale": the write pointer of a zone is unknown; "recovered": it is known again;
    #: "data-missing": the device reports less data than it has acknowledged; "late-back": a command that was given up has
    #: come back; "queue-died": the code of a device has panicked; "revalidated": the zones were read again.
    kind: str
    #: The operation of a command, as in `IoError.op`, or None.
    op: str | None
    #: Why it failed, in a few words.
    status: str
    #: The number of the zone, or None.
    zone: int | None
    #: Where the command began; else the start of the zone.
    sector: int
    #: Equal events that followed each other before they were read.
    count: int
    #: Writes that waited behind the failed ones and were aborted.
    aborted: int
