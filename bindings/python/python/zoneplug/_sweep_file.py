"""The file of a sweep: JSON lines, one for each cell that has its result. Only the process that sweeps writes it.

The first line is the header. Each other line has the number of its cell in the sweep, the key of the cell, the cell and
the result. Lines are written as results come. A sweep that ends puts them in the order of its cells.
"""

import errno
import fcntl
import json
import os
import warnings

from . import errors

#: The number of the file's form: it grows when a key goes or changes its meaning.
FORM = 1


def canonical(value):
    """The JSON text of a value: the same for equal values. Paths become text, and NumPy's scalars numbers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain)


def _plain(value):
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{value!r} of type {type(value).__name__} is not JSON")


def refusal(text, hint, number=errno.EINVAL):
    """The exception for a sweep that is not begun."""
    return errors._make(None, number, text, hint)


class SweepFile:
    """The file, locked for this process. `results` has the text of each result by the key of its cell."""

    def __init__(self, path, header, cells, keys):
        """`header`: what the first line says. `cells` are JSON texts, `keys` their keys, both in the order of the sweep."""
        self.path = os.fspath(path)
        self.results = {}
        self._header = canonical(header) + "\n"
        self._cells = cells
        self._keys = keys
        self._number = {key: n for n, key in keys.items()}
        self._file = self._open()
        try:
            self._read(header)
        except BaseException:
            self._file.close()
            raise

    def add(self, number, result):
        """Writes the result of a cell, a JSON text, and hands the line to the system."""
        self.results[self._keys[number]] = result
        self._file.write(self._line(number, result))
        self._file.flush()

    def sort(self):
        """Writes the lines in the order of the cells to a file beside this one, which then takes its place."""
        beside = f"{self.path}.{os.getpid()}.part"
        # Not truncated before it is locked: it is new.
        file = open(beside, "xb")
        try:
            _lock(file, self.path)
            file.write(self._header.encode())
            for number, key in self._keys.items():
                if key in self.results:
                    file.write(self._line(number, self.results[key]))
            file.flush()
            os.fsync(file.fileno())
            os.chmod(beside, os.fstat(self._file.fileno()).st_mode & 0o7777)
            os.replace(beside, self.path)
        except BaseException:
            file.close()
            os.unlink(beside)
            raise
        self._file.close()
        self._file = file

    def close(self):
        self._file.close()

    def _line(self, number, result):
        cell, key = self._cells[number], self._keys[number]
        return f'{{"cell":{cell},"index":{number},"key":"{key}","result":{result}}}\n'.encode()

    def _open(self):
        while True:
            file = open(self.path, "a+b")
            _lock(file, self.path)
            # Another sweep may have put a sorted file in its place meanwhile.
            if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                return file
            file.close()

    def _read(self, header):
        self._file.seek(0)
        lines = self._file.read().split(b"\n")
        torn = lines.pop()
        if not lines and self._header.encode().startswith(torn):
            # New, or ended within the header.
            self._file.truncate(0)
            self._file.write(self._header.encode())
            self._file.flush()
            return
        self._check(header, lines[0] if lines else torn)
        stale = lines[0] + b"\n" != self._header.encode()
        for nr, line in enumerate(lines[1:], 2):
            try:
                found = json.loads(line)
                key, number, result = found["key"], found["index"], canonical(found["result"])
            except (ValueError, TypeError, KeyError):
                raise refusal(f"{self.path}: line {nr} is not one of a sweep", "another file") from None
            here = self._number.get(key)
            if here is None:
                raise refusal(f"{self.path} is of other cells: this sweep does not have that of line {nr}",
                              "another file, or the cells with which it was begun and new ones")
            stale |= here != number
            self.results[key] = result
        if torn:
            warnings.warn(f"{self.path}: the last line is torn ({len(torn)} bytes): its cell is run again", stacklevel=5)
            self._file.truncate(sum(len(line) + 1 for line in lines))
        if stale:
            self.sort()

    def _check(self, ours, line):
        """Refuses the file of another sweep by its header."""
        try:
            theirs = json.loads(line)
            form = theirs["zoneplug_sweep"]
        except (ValueError, TypeError, KeyError):
            raise refusal(f"{self.path} is not the file of a sweep", "another file") from None
        if form != FORM or theirs.get("zoneplug") != ours["zoneplug"]:
            raise refusal(f"{self.path} was made by zoneplug {theirs.get('zoneplug')}, and this is {ours['zoneplug']}",
                          f"another file, or zoneplug {theirs.get('zoneplug')}")
        if theirs.get("run") != ours["run"]:
            raise refusal(f"{self.path} has results of {theirs.get('run')}, not of {ours['run']}", "another file")
        if theirs.get("shard") != ours["shard"]:
            raise refusal(f"{self.path} has {_part(theirs.get('shard'))}, not {_part(ours['shard'])}",
                          "a file for each shard")


def _part(shard):
    match shard:
        case {"number": number, "of": of}:
            return f"shard {number} of {of}"
    return "all cells"


def _lock(file, path):
    """Fails if another process has the file. Some network file systems have no locks; there it does nothing."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise refusal(f"{path} is in use by another sweep", "a file for each sweep", errno.EBUSY) from None
    except OSError:
        pass
