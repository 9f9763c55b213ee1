from collections.abc import Callable
from typing import Any, NamedTuple, Self

from . import Disk as _Disk
from ._zoneplug import Work as Work

__all__ = ["CrashReport", "Disk", "Work", "test"]

class CrashReport(NamedTuple):
    runs: int
    commands: int
    points: int
    cuts: int

class Disk(_Disk):
    def __new__(cls, disk: str = "mem,zones=8,zone-size=1M", *, seed: int = 1) -> Self: ...
    def __init__(self, *_: object, **__: object) -> None: ...
    def power_cut(self) -> None: ...

def test(
    work: Callable[[Work], object],
    check: Callable[[_Disk, list[Any]], object],
    *,
    disk: str = "mem,zones=8,zone-size=256K",
    seeds: range = ...,
    cuts: int = 1000,
    every: bool = False,
    cut_check: bool = False,
) -> CrashReport: ...
