from os import PathLike
from typing import Any, NamedTuple

class Identity(NamedTuple):
    uuid: str
    label: str
    format_version: int
    created_unix_s: int
    opened_for_writing: int

class CheckReport(NamedTuple):
    lines: list[str]
    problems: int
    repaired: int
    zones: int
    @property
    def left(self) -> int: ...
    def __bool__(self) -> bool: ...

class Snapshot(NamedTuple):
    identity: Identity
    notices: list[str]
    shared: bool
    copied_bytes: int

def create(
    path: str | PathLike[str],
    *,
    size: int | str | None = None,
    zones: int | None = None,
    zone_size: int | str | None = None,
    zone_capacity: int | str | None = None,
    last_zone_size: int | str | None = None,
    last_zone_capacity: int | str | None = None,
    conv: int = 0,
    max_open: int = 0,
    max_active: int = 0,
    lba_size: int | str | None = None,
    granularity: int | str | None = None,
    zone_append_max: int | str | None = None,
    label: str = "",
    preallocate: bool = False,
    force: bool = False,
) -> Identity: ...
def check(path: str | PathLike[str], *, repair: bool = False) -> CheckReport: ...
def snapshot(disk: Any, path: str | PathLike[str], keep_uuid: bool) -> Snapshot: ...
