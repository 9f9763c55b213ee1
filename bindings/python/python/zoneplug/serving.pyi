import pathlib
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Self

class Serving:
    nqn: str
    socket: pathlib.Path

    def __init__(
        self,
        disks: list[str | PathLike[str]],
        address: str,
        nqn: str,
        access: tuple[list[str] | None, bool, list[tuple[str, str]], str | PathLike[str] | None],
        socket: str | PathLike[str] | None,
        metrics: str | None,
    ) -> None: ...
    @property
    def address(self) -> tuple[str, int]: ...
    @property
    def lines(self) -> list[str]: ...
    @property
    def is_served(self) -> bool: ...
    def stop(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

def serve(
    *disks: str | PathLike[str],
    address: str = "127.0.0.1:0",
    nqn: str | None = None,
    allow_host: Iterable[str] | None = None,
    allow_any_host: bool = False,
    dhchap_key: Mapping[str, str | PathLike[str]] | None = None,
    dhchap_ctrl_key: str | PathLike[str] | None = None,
    socket: str | PathLike[str] | None = None,
    metrics: str | None = None,
) -> Serving: ...
