from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from os import PathLike
from typing import Any, ParamSpec, TypeVar

from .errors import Error

__all__ = ["RayExecutor", "SerialExecutor", "SweepError", "echo", "run_cell", "sweep"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

class SweepError(Error):
    results: list[dict[str, Any]]
    failures: list[dict[str, Any]]

def sweep(
    cells: Iterable[dict[str, Any]],
    *,
    executor: Executor | Callable[[], Executor] | None = None,
    run: Callable[[Any], Any] | None = None,
    file: str | PathLike[str] | None = None,
    retries: int = 2,
    progress: Callable[[int, int, int], object] | bool | None = None,
    shard: tuple[int, int] | None = None,
    in_flight: int | None = None,
) -> list[dict[str, Any]]: ...
def run_cell(cell: dict[str, Any]) -> dict[str, Any]: ...
def echo(cell: Any) -> Any: ...

class SerialExecutor(Executor):
    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]: ...

class RayExecutor(Executor):
    def __init__(self, **options: Any) -> None: ...
    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]: ...
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None: ...
