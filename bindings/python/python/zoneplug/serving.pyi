import pathlib
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Self, TypeAlias

_Door: TypeAlias = tuple[
    str, str | None, tuple[list[str] | None, bool, list[tuple[str, str]], str | PathLike[str] | None]
]

class Serving:
    nqn: str
    iqn: str
    socket: pathlib.Path

    def __init__(
        self,
        disks: list[str | PathLike[str]],
        nvme_tcp: _Door | None,
        iscsi: _Door | None,
        conventional_only: bool,
        socket: str | PathLike[str] | None,
        metrics: str | None,
    ) -> None: ...
    @property
    def address(self) -> tuple[str, int]: ...
    @property
    def iscsi_address(self) -> tuple[str, int]: ...
    @property
    def lines(self) -> list[str]: ...
    @property
    def is_served(self) -> bool: ...
    def stop(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

def serve(
    *disks: str | PathLike[str],
    address: str | None = None,
    nqn: str | None = None,
    allow_host: Iterable[str] | None = None,
    allow_any_host: bool = False,
    dhchap_key: Mapping[str, str | PathLike[str]] | None = None,
    dhchap_ctrl_key: str | PathLike[str] | None = None,
    iscsi: str | None = None,
    iqn: str | None = None,
    allow_initiator: Iterable[str] | None = None,
    allow_any_initiator: bool = False,
    conventional_only: bool = False,
    chap_secret: Mapping[str, str | PathLike[str]] | None = None,
    chap_target_secret: str | PathLike[str] | None = None,
    socket: str | PathLike[str] | None = None,
    metrics: str | None = None,
) -> Serving: ...
