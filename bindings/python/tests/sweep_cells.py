"""Functions that sweeps of the tests run: at the top of a module of their own, so that processes of any kind find them."""

import hashlib
import json
import os
import signal
import time
from pathlib import Path


def figure(cell):
    """What a measurement gives: figures that follow from the cell. `s` is how long it takes, in seconds."""
    time.sleep(cell.get("s", 0))
    digest = hashlib.sha256(repr(cell["n"]).encode()).digest()
    return {"mb_per_s": int.from_bytes(digest[:6]) / 7, "counts": tuple(digest[:4]), "name": "zoné", "none": None}


def cells_of(count, **more):
    return [{"n": n, **more} for n in range(count)]


def expected(cells):
    """What a sweep over `figure` gives, by a loop."""
    return [{"cell": cell, "result": json.loads(json.dumps(figure({"n": cell["n"]})))} for cell in cells]


def noted(cell):
    """As `figure`, with a file named after the cell and this process in the directory `notes`."""
    number = len(list(Path(cell["notes"]).glob(f"{cell['n']}.*")))
    Path(cell["notes"], f"{cell['n']}.{number}.{os.getpid()}").touch()
    return figure(cell)


def runs(notes):
    """How often each cell was run, by its number, after `noted`."""
    count = {}
    for path in Path(notes).iterdir():
        number = int(path.name.split(".")[0])
        count[number] = count.get(number, 0) + 1
    return count


def killer(notes, after):
    """A progress that kills a process which runs a cell, of 0.2 s or more, once `after` cells have ended: that in `pids`."""
    def progress(done, _total, failed):
        until = time.monotonic() + 30
        while done == after and not progress.pids:
            assert not failed and time.monotonic() < until, "no cell is on its way"
            newest = max(Path(notes).iterdir(), key=lambda path: path.stat().st_mtime, default=None)
            # Each cell takes longer, so that one is on its way.
            if newest and time.time() - newest.stat().st_mtime < 0.1:
                progress.pids.append(int(newest.name.split(".")[2]))
                assert progress.pids != [os.getpid()]
                os.kill(progress.pids[0], signal.SIGKILL)
            time.sleep(0.01)

    progress.pids = []
    return progress


class Unpicklable(Exception):
    """Cannot be made from its text, so it does not come back from a process."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def moody(cell):
    """Does what the cell says."""
    match cell.get("does"):
        case "raise":
            raise ValueError(f"{cell['n']} is\nno good")
        case "unpicklable":
            raise Unpicklable(1, 2)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die once":
            try:
                Path(cell["notes"], f"dead.{cell['n']}").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        case "fail twice":
            for nr in range(2):
                try:
                    Path(cell["notes"], f"failed.{cell['n']}.{nr}").touch(exist_ok=False)
                except FileExistsError:
                    continue
                raise OSError("not yet")
        case "nan":
            return float("nan")
        case "set":
            return {1, 2}
    return figure(cell)
