from collections.abc import Callable, Iterable
from os import PathLike
from typing import IO, Any, Protocol

from ._zoneplug import View as View

__all__ = ["View", "measure", "replay", "reproduce", "simulate"]

class _Picks(Protocol):
    """A policy; a method `stay(view)` that returns a truth value is optional."""

    def pick(self, view: View, /) -> int: ...

_Policy = str | Callable[[View], int] | _Picks

def measure(
    disk: str,
    *,
    rw: str = "randwrite",
    block_bytes: int = 4096,
    iodepth: int = 1,
    jobs: int = 1,
    zones: int | None = None,
    zone_lock: bool = False,
    reads: int | None = None,
    read_block_bytes: int | None = None,
    warm_up_s: float | None = None,
    runtime_s: float | None = None,
    policy: _Policy | None = None,
    scheduler: str | None = None,
    mode: str | None = None,
    tags: int | None = None,
    seed: int = 1,
) -> dict[str, Any]: ...
def replay(
    trace: str | bytes | PathLike[str] | IO[str] | IO[bytes],
    *,
    disk: str | Iterable[str],
    policies: _Policy | Iterable[_Policy] = ("off", "fifo"),
    schedulers: str | Iterable[str] = (),
    modes: str | Iterable[str] = (),
    speed: float | str = 1.0,
    iodepth: int | None = None,
    map: str = "auto",
    events: str = "q",
    device: str | None = None,
    columns: str | Iterable[str] | None = None,
    threads: int | None = None,
) -> list[dict[str, Any]]: ...
def reproduce(table: str | Iterable[str] | None = None, *, quick: bool = False, threads: int | None = None) -> dict[str, Any]: ...
def simulate(seeds: int | Iterable[int], *, stop_at_first: bool = True) -> dict[str, Any]: ...
