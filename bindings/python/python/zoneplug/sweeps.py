"""Sweeps: many independent measurements, on this machine or on a cluster.

    >>> import zoneplug.sweeps
    >>> cells = [{"n": n} for n in range(3)]
    >>> zoneplug.sweep(cells, run=zoneplug.sweeps.echo, executor=zoneplug.sweeps.SerialExecutor())[2]
    {'cell': {'n': 2}, 'result': {'n': 2}}

A cell says what to measure: a disk, a workload or a trace, a policy, a seed. `sweep` runs cells on any executor of
`concurrent.futures` and puts their results together in the order of the cells. All that a cell gives follows from the
cell, so results are the same on every executor.
"""

import errno
import functools
import hashlib
import importlib.metadata
import json
import queue
import traceback
from collections import deque
from concurrent.futures import BrokenExecutor, CancelledError

from ._executors import Pool, RayExecutor, SerialExecutor
from ._progress import progress_of
from ._sweep_file import FORM, SweepFile, canonical, refusal
from .errors import Error

__all__ = ["RayExecutor", "SerialExecutor", "SweepError", "echo", "run_cell", "sweep"]


class SweepError(Error):
    """Cells failed, after all others were run.

    `results` are those of all cells: one that failed has `error` in place of `result`. `failures` are the failed ones.
    """

    results: list = []
    failures: list = []


def sweep(cells, *, executor=None, run=None, file=None, retries=2, progress=None, shard=None, in_flight=None):
    """Runs all `cells` and returns `{"cell": ..., "result": ...}` of each, in their order.

    A cell is a dict of what JSON has. By default it is one of `run_cell`; `run` is another function of a cell, which
    returns what JSON has. Processes find it by its name, so it is at the top of a module. Equal cells run once.

    `executor` is one of `concurrent.futures`, which stays open; or a callable that makes one, which is called again if
    its workers die; or None for a process for each processor. It has `in_flight` cells at a time: by default twice as
    many as it has workers, or 1024 if it does not say how many.

    A cell that raises, or whose worker dies, is run again up to `retries` times. If cells are left that failed,
    `SweepError` names them and has all results.

    `file` gets a line for each result as it comes. The same call with that file runs only what is missing, and what had
    failed. A file of other cells, of another `run` or of another version of zoneplug is refused.

    `shard=(i, n)` runs the i-th of n parts, i from 1 to n: the cells i - 1, i - 1 + n and so on. Each part has a file of
    its own, and `zoneplug-lab merge FILE...` makes one of them.

    `progress` is called with the numbers of cells that are done, of all cells, and of those that failed. None is a bar
    on a terminal; False is silence.
    """
    run = run or run_cell
    plan = _Plan(cells, run, shard)
    record = None
    try:
        if file is not None:
            record = SweepFile(file, plan.header, plan.texts, plan.keys)
            plan.known(record.results)
        show = progress_of(progress, len(plan.done), len(plan.keys))
        try:
            _Run(plan, record, show, executor, run, retries, in_flight).all()
        finally:
            show.close()
        if record:
            record.sort()
    finally:
        if record:
            record.close()
    return plan.results()


def run_cell(cell):
    """Runs one cell, in this process: what `sweep` does with each.

    `{"disk": "sim-smr30", "workload": {...}, "policy": "fifo", "seed": 1}` is measured: the workload are keywords of
    `zoneplug.measure`. `{"disk": ..., "trace": "trace.txt", "options": {...}, "policy": "fifo"}` replays a trace, with
    keywords of `zoneplug.replay` as options.
    """
    import zoneplug

    _check_cell(cell)
    cell = dict(cell)
    disk = cell.pop("disk")
    if "trace" in cell:
        trace, options = cell.pop("trace"), cell.pop("options", {})
        if "policy" in cell:
            cell["policies"] = [cell.pop("policy")]
        rows = zoneplug.replay(trace, disk=disk, **options, **cell)
        return rows[0] if len(rows) == 1 else {"rows": rows}
    return zoneplug.measure(disk, **cell.pop("workload", {}), **cell)


def echo(cell):
    """Returns the cell itself: to try an executor."""
    return cell


_KEYS = {"disk", "workload", "trace", "options", "policy", "seed"}


def _check_cell(cell):
    """Refuses what is no cell of `run_cell`."""
    if not isinstance(cell, dict) or "disk" not in cell or ("workload" in cell and "trace" in cell):
        raise refusal(f"no cell: {cell!r}", 'a dict with "disk", and "workload" or "trace"')
    if unknown := sorted(set(cell) - _KEYS):
        raise refusal(f"a cell has no {unknown[0]!r}: {cell!r}", f"one of {', '.join(sorted(_KEYS))}")


@functools.cache
def _version():
    try:
        return importlib.metadata.version("zoneplug")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


class _Plan:
    """The cells of a sweep, by their numbers, and what is known of each."""

    def __init__(self, cells, run, shard):
        self.version = _version()
        self.texts, numbers = [], {}
        #: For each cell of the caller the number of the first one that is equal.
        self.order = []
        for cell in cells:
            if run is run_cell:
                _check_cell(cell)
            try:
                text = canonical(cell)
            except (TypeError, ValueError) as e:
                raise refusal(f"a cell is not JSON: {e}", "dicts, lists, texts, finite numbers") from None
            number = numbers.setdefault(text, len(self.texts))
            if number == len(self.texts):
                self.texts.append(text)
            self.order.append(number)
        part, of = shard or (1, 1)
        if not 1 <= part <= of:
            raise refusal(f"there is no shard {part} of {of}", f"1 to {of}")
        wanted = range(part - 1, len(self.texts), of)
        self.keys = {n: hashlib.sha256(f"{self.version}\n{self.texts[n]}".encode()).hexdigest()[:32] for n in wanted}
        self.header = {
            "cells": len(self.texts),
            "run": f"{getattr(run, '__module__', None)}:{getattr(run, '__qualname__', type(run).__qualname__)}",
            "shard": shard and {"number": part, "of": of},
            "zoneplug": self.version,
            "zoneplug_sweep": FORM,
        }
        self.hint = "failures has what each said, results what the others gave; the same call with a file= runs only these again"
        #: By number: the JSON text of a result, or why there is none.
        self.done, self.errors = {}, {}

    def known(self, results):
        """Takes results of a file."""
        self.done = {n: results[key] for n, key in self.keys.items() if key in results}

    def results(self):
        rows = [self._row(n) for n in self.order if n in self.keys]
        failures = [row for row in rows if "error" in row]
        if failures:
            raise _failed(rows, failures, self.hint)
        return rows

    def _row(self, number):
        cell = json.loads(self.texts[number])
        if number in self.done:
            return {"cell": cell, "result": json.loads(self.done[number])}
        return {"cell": cell, "error": self.errors[number]}


def _failed(rows, failures, hint):
    said = [f"{canonical(row['cell'])} ({row['error']['type']}: {row['error']['message']})" for row in failures[:3]]
    more = "" if len(failures) <= 3 else f" and {len(failures) - 3} more"
    e = SweepError(errno.EIO, f"{len(failures)} of {len(rows)} cells failed: {', '.join(said)}{more}")
    e.hint = hint
    e.results, e.failures = rows, failures
    e.add_note(f"try: {e.hint}")
    for row in failures[:1]:
        if text := row["error"].get("traceback"):
            e.add_note(text)
    return e


def _attempt(run, cell, version, _nr):
    """In a worker: the result of a cell as JSON, or what it raised, both as text, which every executor can carry.

    Attempts have a number, so that an executor that remembers results (Dask) sees a new call.
    """
    here = _version()
    try:
        if here != version:
            raise RuntimeError(f"this worker has zoneplug {here}, and not {version}")
        return {"result": canonical(run(cell))}
    except Exception as e:
        text = " ".join(str(e).split())
        return {"error": {"type": type(e).__name__, "message": text, "traceback": traceback.format_exc()}}


class _Run:
    """Runs what is missing of a plan."""

    def __init__(self, plan, record, show, executor, run, retries, in_flight):
        self._plan, self._record, self._show, self._run, self._retries = plan, record, show, run, retries
        self._waiting = deque(n for n in plan.keys if n not in plan.done)
        self._pool = Pool(executor, len(self._waiting))
        self._in_flight = in_flight
        #: Cells in whose company workers died again and again. Each is run by itself, which shows whether it is the cause.
        self._suspects = deque()
        self._flying = {}
        self._ended = queue.SimpleQueue()
        self._attempts, self._deaths = {}, {}
        #: Executors that were lost since the last result.
        self._lost = 0

    def all(self):
        try:
            while self._waiting or self._suspects or self._flying:
                self._submit()
                if self._flying:
                    self._take(self._ended.get())
            self._pool.close()
        except BaseException:
            # Ctrl-C, or an executor that takes no more calls. What has ended is kept.
            self._pool.abandon(list(self._flying))
            while not self._ended.empty():
                future = self._ended.get()
                if not future.cancelled() and future.exception() is None and "result" in future.result():
                    self._finish(self._flying[future][0], future.result()["result"])
            raise

    def _submit(self):
        try:
            width = self._in_flight or self._pool.width()
            while self._waiting and len(self._flying) < width and self._ended.empty():
                self._fly(self._waiting[0], False)
                self._waiting.popleft()
            if self._suspects and not self._flying:
                self._fly(self._suspects[0], True)
                self._suspects.popleft()
        except BrokenExecutor as e:
            self._broken(self._pool.generation, e)

    def _fly(self, number, alone):
        attempt = self._attempts.get(number, 0) + self._deaths.get(number, 0)
        cell, generation = json.loads(self._plan.texts[number]), self._pool.generation
        future = self._pool.executor().submit(_attempt, self._run, cell, self._plan.version, attempt)
        self._flying[future] = number, generation, alone
        future.add_done_callback(self._ended.put)

    def _take(self, future):
        number, generation, alone = self._flying.pop(future)
        try:
            said = future.result()
        except BrokenExecutor as e:
            self._deaths[number] = self._deaths.get(number, 0) + 1
            if alone:
                self._fail(number, _words(e), self._deaths[number])
            elif self._deaths[number] > self._retries:
                self._suspects.append(number)
            else:
                self._waiting.append(number)
            return self._broken(generation, e)
        except (Exception, CancelledError) as e:
            said = {"error": _words(e)}
        if "result" in said:
            self._lost = 0
            return self._finish(number, said["result"])
        self._attempts[number] = self._attempts.get(number, 0) + 1
        if self._attempts[number] > self._retries:
            self._fail(number, said["error"], self._attempts[number])
        else:
            self._waiting.append(number)

    def _broken(self, generation, e):
        """An executor has lost its workers, and with them all calls that it had."""
        if generation != self._pool.generation:
            return
        width = self._in_flight or self._pool.width()
        self._pool.lose()
        self._lost += 1
        # Each cell in flight may have been the cause once more than it may fail, and once by itself. Others are not.
        if not self._pool.can_renew:
            self._plan.hint = "as executor= a callable that makes one: it is called again when workers have died"
        if not self._pool.can_renew or self._lost > self._retries + 2 + width:
            error = _words(e)
            for number in [*self._waiting, *self._suspects]:
                self._fail(number, error, self._attempts.get(number, 0) + self._deaths.get(number, 0))
            self._waiting.clear()
            self._suspects.clear()

    def _finish(self, number, text):
        self._plan.done[number] = text
        if self._record:
            self._record.add(number, text)
        self._show.cell(failed=0)

    def _fail(self, number, error, attempts):
        self._plan.errors[number] = {**error, "attempts": attempts}
        self._show.cell(failed=1)


def _words(e):
    return {"type": type(e).__name__, "message": " ".join(str(e).split())}
