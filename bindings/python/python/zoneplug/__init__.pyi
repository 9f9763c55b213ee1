from os import PathLike
from typing import Any, Self, type_check_only

from typing_extensions import Buffer as _Buffer

from . import _zoneplug
from . import aio as aio
from . import crash as crash
from . import errors as errors
from ._zoneplug import Buffer as Buffer
from ._zoneplug import LogAddress as LogAddress
from ._zoneplug import __version__ as __version__
from .errors import Error as Error
from .errors import IoError as IoError
from .events import Event as Event
from .files import CheckReport as CheckReport
from .files import Identity as Identity
from .files import Snapshot as Snapshot
from .files import check as check
from .files import create as create
from .models import View as View
from .models import measure as measure
from .models import replay as replay
from .models import reproduce as reproduce
from .models import simulate as simulate
from .serving import Serving as Serving
from .serving import serve as serve
from .sweeps import SweepError as SweepError
from .sweeps import sweep as sweep
from .zone_log import Record as Record
from .zone_log import Recovery as Recovery
from .zone_log import ZoneLog as ZoneLog
from .zones import Condition as Condition
from .zones import Zone as Zone
from .zones import ZoneType as ZoneType

__all__ = [
    "Buffer", "CheckReport", "Condition", "Disk", "Error", "Event", "Identity", "IoError", "LogAddress", "Record", "Recovery",
    "Serving", "Snapshot", "SweepError", "View", "Zone", "ZoneLog", "ZoneType", "aio", "check", "crash", "create", "errors",
    "measure", "replay", "reproduce", "serve", "simulate", "sweep",
]

# The numbers of a disk, which `Disk` and `aio.Disk` read by name.
@type_check_only
class _Properties:
    sectors: int
    nr_zones: int
    zone_sectors: int
    zone_capacity_sectors: int
    nr_conventional_zones: int
    logical_block_sectors: int
    write_granularity_sectors: int
    max_open_zones: int
    max_active_zones: int
    zone_append_max_sectors: int
    write_cache: bool
    fua: bool
    rotational: bool
    read_only: bool

class Disk(_zoneplug.Disk, _Properties):
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def write(self, sector: int, data: _Buffer, *, fua: bool = False) -> None: ...  # type: ignore[override]
    def append(self, zone_start: int, data: _Buffer, *, fua: bool = False) -> int: ...  # type: ignore[override]
    def reset(self, sector: int, nr_sectors: int | None = None) -> None: ...
    def finish(self, sector: int, nr_sectors: int | None = None) -> None: ...
    def open_zone(self, sector: int, nr_sectors: int | None = None) -> None: ...
    def close_zone(self, sector: int, nr_sectors: int | None = None) -> None: ...
    def report(self, sector: int = 0, nr: int | None = None, *, resync: bool = False) -> list[Zone]: ...
    def report_array(self, sector: int = 0, nr: int | None = None, *, resync: bool = False) -> Any: ...
    def events(self, after: int = 0) -> list[Event]: ...
    def snapshot(self, path: str | PathLike[str], *, keep_uuid: bool = False) -> Snapshot: ...
    def zone(self, nr: int) -> Zone: ...
