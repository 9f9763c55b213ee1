"""Sweeps: equal results on every executor, cells that fail, workers that die, files that are resumed."""

import errno
import json
import os
import pty
import random
import signal
import subprocess
import sys
import termios
import textwrap
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import sweep_cells
from sweep_cells import cells_of, expected, figure, moody, noted, runs

import zoneplug
from zoneplug import sweeps
from zoneplug.sweeps import SerialExecutor


class Shuffled(ThreadPoolExecutor):
    """Ends calls in another order than they were submitted in."""

    def __init__(self, seed):
        super().__init__(8)
        self._random = random.Random(seed)

    def submit(self, fn, /, *args):
        pause = self._random.random() / 50

        def late():
            time.sleep(pause)
            return fn(*args)

        return super().submit(late)


def test_results_and_file_are_the_same_on_every_executor(tmp_path):
    cells = cells_of(40)
    executors = {
        "serial": SerialExecutor(),
        "threads": lambda: Shuffled(1),
        "threads in another order": lambda: Shuffled(2),
        "processes": None,
        "spawned processes": lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn")),
    }
    files = set()
    for name, executor in executors.items():
        file = tmp_path / f"{name}.jsonl"
        assert zoneplug.sweep(cells, run=figure, executor=executor, file=file) == expected(cells), name
        assert zoneplug.sweep(cells, run=figure, executor=executor) == expected(cells), name
        files.add(file.read_bytes())
    assert len(files) == 1
    lines = [json.loads(line) for line in files.pop().splitlines()]
    assert lines[0]["cells"] == 40 and [line["index"] for line in lines[1:]] == list(range(40))
    assert [{"cell": line["cell"], "result": line["result"]} for line in lines[1:]] == expected(cells)


def test_a_cell_may_have_paths_and_numbers_of_numpy_and_equal_cells_run_once(tmp_path):
    numpy = pytest.importorskip("numpy")
    cells = [{"n": n, "notes": tmp_path, "s": numpy.float32(0)} for n in numpy.array([3, 4, 3])]
    rows = zoneplug.sweep(cells, run=noted, executor=SerialExecutor())
    assert [row["cell"] for row in rows] == [{"n": n, "notes": str(tmp_path), "s": 0.0} for n in (3, 4, 3)]
    assert rows[0] == rows[2] and runs(tmp_path) == {3: 1, 4: 1}
    assert zoneplug.sweep([], run=figure) == []


def test_a_cell_that_fails_is_tried_again_and_then_named(tmp_path):
    cells = cells_of(8, notes=str(tmp_path))
    cells[2]["does"] = "raise"
    cells[4]["does"] = "fail twice"
    cells[5]["does"] = "unpicklable"
    for executor in (SerialExecutor(), None):
        for path in tmp_path.glob("failed.*"):
            path.unlink()
        with pytest.raises(zoneplug.SweepError) as e:
            zoneplug.sweep(cells, run=moody, executor=executor)
        e = e.value
        assert e.strerror.startswith("2 of 8 cells failed: ") and "\n" not in e.strerror and e.hint
        assert '"n":2' in e.strerror and "ValueError: 2 is no good" in e.strerror
        assert [row["cell"]["n"] for row in e.failures] == [2, 5]
        error = e.failures[0]["error"]
        assert (error["type"], error["message"], error["attempts"]) == ("ValueError", "2 is no good", 3)
        assert "sweep_cells.py" in error["traceback"] and e.failures[1]["error"]["type"] == "Unpicklable"
        others = [row for row in e.results if "result" in row]
        assert others == expected([cell for cell in cells if cell["n"] not in (2, 5)]) and len(e.results) == 8
    with pytest.raises(zoneplug.SweepError) as e:
        zoneplug.sweep(cells[2:3], run=moody, retries=0, executor=SerialExecutor())
    assert e.value.failures[0]["error"]["attempts"] == 1


def test_a_result_that_is_not_json_fails_its_cell():
    cells = [{"n": 0, "does": "nan"}, {"n": 1, "does": "set"}, {"n": 2}]
    with pytest.raises(zoneplug.SweepError) as e:
        zoneplug.sweep(cells, run=moody, executor=SerialExecutor())
    assert [row["error"]["type"] for row in e.value.failures] == ["ValueError", "TypeError"]


def test_workers_that_die_are_replaced(tmp_path):
    cells = cells_of(30, notes=str(tmp_path))
    for n in (3, 11, 12, 29):
        cells[n]["does"] = "die once"
    assert zoneplug.sweep(cells, run=moody) == expected(cells)
    for path in tmp_path.iterdir():
        path.unlink()
    assert zoneplug.sweep(cells, run=moody, executor=lambda: ProcessPoolExecutor(3)) == expected(cells)


@pytest.mark.parametrize("killers", [[7], [0, 1, 2, 3, 4, 5, 6, 7]])
@pytest.mark.parametrize("retries", [0, 2])
def test_a_cell_that_kills_its_worker_each_time_is_named_and_no_other(killers, retries):
    cells = cells_of(16)
    for n in killers:
        cells[n]["does"] = "die"
    with pytest.raises(zoneplug.SweepError) as e:
        zoneplug.sweep(cells, run=moody, executor=lambda: ProcessPoolExecutor(2), retries=retries)
    assert [row["cell"]["n"] for row in e.value.failures] == killers
    assert {row["error"]["type"] for row in e.value.failures} == {"BrokenProcessPool"}
    assert [row for row in e.value.results if "result" in row] == expected([c for c in cells if "does" not in c])


def test_a_sweep_whose_workers_all_die_at_once_ends():
    """Not after a new executor for each cell: there may be a million."""
    made = []

    def make():
        made.append(ProcessPoolExecutor(2, initializer=os._exit, initargs=(1,)))
        return made[-1]

    with pytest.raises(zoneplug.SweepError) as e:
        zoneplug.sweep(cells_of(1000), run=figure, executor=make)
    assert len(e.value.failures) == 1000 and len(made) < 20


def test_an_executor_of_the_caller_is_not_replaced_and_stays_open():
    cells = cells_of(6)
    with ProcessPoolExecutor(2) as executor:
        assert zoneplug.sweep(cells, run=figure, executor=executor) == expected(cells)
        assert executor.submit(abs, -3).result() == 3
        cells[1]["does"] = "die"
        with pytest.raises(zoneplug.SweepError) as e:
            zoneplug.sweep(cells, run=moody, executor=executor)
        assert 1 in [row["cell"]["n"] for row in e.value.failures] and "a callable" in e.value.hint
    with ThreadPoolExecutor(2) as executor:
        pass
    with pytest.raises(RuntimeError, match="after shutdown"):
        zoneplug.sweep(cells, run=figure, executor=executor)


class Counting(Executor):
    """Counts the calls that were submitted and have not ended."""

    def __init__(self, threads, tells):
        self._inner = ThreadPoolExecutor(threads)
        self._lock, self._now, self.most = threading.Lock(), 0, 0
        if tells:
            self._max_workers = threads

    def submit(self, fn, /, *args):
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        future = self._inner.submit(fn, *args)
        future.add_done_callback(self._less)
        return future

    def _less(self, _):
        with self._lock:
            self._now -= 1

    def shutdown(self, wait=True, *, cancel_futures=False):
        self._inner.shutdown(wait, cancel_futures=cancel_futures)


@pytest.mark.parametrize(
    ("threads", "tells", "in_flight", "most"), [(3, True, None, 6), (3, True, 5, 5), (64, False, None, 1024)]
)
def test_cells_are_submitted_as_workers_need_them(threads, tells, in_flight, most):
    with Counting(threads, tells) as executor:
        zoneplug.sweep(cells_of(threads * 40, s=0.01), run=figure, executor=executor, in_flight=in_flight)
        assert executor.most == most


def test_a_file_has_what_is_done_and_only_the_rest_runs(tmp_path):
    notes, file = tmp_path / "notes", tmp_path / "file"
    notes.mkdir()
    cells = cells_of(10, notes=str(notes))

    def each_is_there(done, *_):
        assert file.read_bytes().count(b"\n") == 1 + done

    zoneplug.sweep(cells[:6], run=noted, executor=SerialExecutor(), file=file, progress=each_is_there)
    # More cells, some of them in front.
    mixed = cells[6:8] + cells[:6] + cells[8:]
    assert zoneplug.sweep(mixed, run=noted, executor=SerialExecutor(), file=file) == expected(mixed)
    assert runs(notes) == dict.fromkeys(range(10), 1)
    fresh = tmp_path / "fresh"
    zoneplug.sweep(mixed, run=noted, executor=SerialExecutor(), file=fresh)
    assert file.read_bytes() == fresh.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["file", "fresh", "notes"]


def test_what_failed_is_not_in_the_file_and_runs_again(tmp_path):
    file, notes = tmp_path / "file", tmp_path / "notes"
    notes.mkdir()
    cells = cells_of(5, notes=str(notes))
    cells[3]["does"] = "fail twice"
    with pytest.raises(zoneplug.SweepError):
        zoneplug.sweep(cells, run=moody, executor=SerialExecutor(), retries=1, file=file)
    assert len(file.read_bytes().splitlines()) == 5
    assert zoneplug.sweep(cells, run=moody, executor=SerialExecutor(), retries=0, file=file) == expected(cells)


def test_a_torn_last_line_is_said_and_dropped(tmp_path):
    cells, file = cells_of(5), tmp_path / "file"
    zoneplug.sweep(cells, run=figure, executor=SerialExecutor(), file=file)
    whole = file.read_bytes()
    header = whole.index(b"\n")

    def whole_lines(*_):
        assert all(json.loads(line) for line in file.read_bytes().splitlines())

    for cut in (1, 2, 40, len(whole) - header - 10):
        file.write_bytes(whole[:-cut])
        with pytest.warns(UserWarning, match="the last line is torn"):
            rows = zoneplug.sweep(cells, run=figure, executor=SerialExecutor(), file=file, progress=whole_lines)
        assert rows == expected(cells)
        assert file.read_bytes() == whole
    # Torn in the header: nothing was done yet.
    file.write_bytes(whole[: header - 5])
    assert zoneplug.sweep(cells, run=figure, executor=SerialExecutor(), file=file) == expected(cells)
    assert file.read_bytes() == whole


def test_a_file_of_another_sweep_is_refused_and_left_as_it_is(tmp_path, monkeypatch):
    cells, file = cells_of(5), tmp_path / "file"
    zoneplug.sweep(cells, run=figure, executor=SerialExecutor(), file=file)
    whole = file.read_bytes()

    def refused(match, cells=cells, number=errno.EINVAL, **more):
        before = file.read_bytes()
        with pytest.raises(zoneplug.Error, match=match) as e:
            zoneplug.sweep(cells, **{"run": figure, "executor": SerialExecutor(), "file": file, **more})
        assert e.value.errno == number and e.value.hint and file.read_bytes() == before

    refused("of other cells.* line 6", cells=cells[:4])
    refused("results of sweep_cells:figure, not of sweep_cells:noted", run=noted)
    refused("has all cells, not shard 1 of 2", shard=(1, 2))
    monkeypatch.setattr(sweeps, "_version", lambda: "9.9")
    refused("made by zoneplug .*, and this is 9.9")
    monkeypatch.undo()
    for text in (b"results\n", b"results", b"[1]\n", b"{}\n", b'{"cells":1}'):
        file.write_bytes(text)
        refused("is not the file of a sweep")
    lines = whole.splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:3], b"what\n", *lines[3:]]))
    refused("line 4 is not one of a sweep")
    # While another sweep has it.
    file.write_bytes(whole)

    def meanwhile(*_):
        refused("in use by another sweep", number=errno.EBUSY)

    zoneplug.sweep(cells, run=figure, executor=SerialExecutor(), file=file, progress=meanwhile)


def test_cells_that_are_none_are_refused_before_any_runs():
    for cells, match in (([{"n": {1, 2}}], "not JSON"), ([{"n": float("inf")}], "not JSON")):
        with pytest.raises(zoneplug.Error, match=match):
            zoneplug.sweep(cells, run=figure)
    workload = {"rw": "write"}
    for cell in ({}, {"disk": "x", "workload": workload, "trace": "y"}, {"disk": "x", "polcy": "fifo"}):
        with pytest.raises(zoneplug.Error, match="cell"):
            zoneplug.sweep([{"disk": "sim-smr30", "workload": workload}, cell])
    for shard in ((0, 2), (3, 2)):
        with pytest.raises(zoneplug.Error, match="no shard"):
            zoneplug.sweep(cells_of(4), run=figure, shard=shard)


def test_run_cell_takes_a_workload_or_a_trace(monkeypatch):
    def answer(*args, **kwargs):
        return [{"args": args, **kwargs}]

    monkeypatch.setattr(zoneplug, "measure", lambda *a, **k: answer(*a, **k)[0], raising=False)
    monkeypatch.setattr(zoneplug, "replay", answer, raising=False)
    cell = {"disk": "sim-smr30", "workload": {"rw": "write"}, "policy": "fifo", "seed": 1}
    assert sweeps.run_cell(cell) == {"args": ("sim-smr30",), "rw": "write", "policy": "fifo", "seed": 1}
    cell = {"disk": "sim-smr30", "trace": "t", "policy": "fifo", "options": {"speed": "asap"}}
    assert sweeps.run_cell(cell) == {"args": ("t",), "disk": "sim-smr30", "policies": ["fifo"], "speed": "asap"}


def test_shards_are_all_cells_once(tmp_path):
    cells = cells_of(11)
    rows = {}
    for i in range(1, 5):
        part = zoneplug.sweep(cells, run=figure, executor=SerialExecutor(), shard=(i, 4), file=tmp_path / str(i))
        assert len(part) in (2, 3)
        rows |= {row["cell"]["n"]: row for row in part}
    assert [rows[n] for n in range(11)] == expected(cells)


def test_the_command_makes_one_file_of_shards(tmp_path):
    command = os.environ.get("ZONEPLUG_LAB")
    if not command:
        pytest.skip("ZONEPLUG_LAB names no command")
    cells, parts = cells_of(11), [str(tmp_path / str(i)) for i in (1, 2, 3)]
    for i, part in enumerate(parts, 1):
        zoneplug.sweep(cells, run=figure, executor=SerialExecutor(), shard=(i, 3), file=part)
    merged, whole = tmp_path / "merged", tmp_path / "whole"
    merged.write_bytes(subprocess.run([command, "merge", *parts], capture_output=True, check=True).stdout)
    zoneplug.sweep(cells, run=figure, executor=SerialExecutor(), file=whole)
    assert merged.read_bytes() == whole.read_bytes()
    assert zoneplug.sweep(cells, run=figure, executor=lambda: 1 / 0, file=merged) == expected(cells), "nothing runs"


def test_worker_and_sweep_have_one_version(monkeypatch):
    with ProcessPoolExecutor(1) as executor:
        executor.submit(sweeps._version).result()  # It is kept there.
        monkeypatch.setattr(sweeps, "_version", lambda: "9.9")
        with pytest.raises(zoneplug.SweepError, match="this worker has zoneplug .*, and not 9.9"):
            zoneplug.sweep(cells_of(1), run=figure, executor=executor)


def test_progress_is_a_call():
    seen = []
    cells = cells_of(4)
    cells[0]["does"] = "raise"
    with pytest.raises(zoneplug.SweepError):
        zoneplug.sweep(cells, run=moody, executor=SerialExecutor(), progress=lambda *now: seen.append(now))
    assert seen[0] == (0, 4, 0) and seen[-1] == (4, 4, 1) and len(seen) == 5


SCRIPT = """
    import sys
    sys.path.insert(0, sys.argv[1])
    if {without_tqdm}: sys.modules["tqdm"] = None
    import zoneplug
    from sweep_cells import noted
    if __name__ == "__main__":
        cells = [{{"n": n, "notes": sys.argv[2], "s": {pause}}} for n in range({count})]
        rows = zoneplug.sweep(cells, run=noted, file=sys.argv[3])
        print(len(rows))
"""


def script(tmp_path, *, pause=0.0, count=20, without_tqdm=True):
    """The command line of a sweep in a process of its own, and its directory of notes and its file."""
    notes, file, path = tmp_path / "notes", tmp_path / "file", tmp_path / "script.py"
    notes.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(SCRIPT).format(pause=pause, count=count, without_tqdm=without_tqdm))
    tests = str(Path(sweep_cells.__file__).parent)
    return [sys.executable, str(path), tests, str(notes), str(file)], notes, file


def test_a_bar_is_for_terminals(tmp_path):
    command, *_ = script(tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("20\n", ""), "silent in a pipe"
    for without_tqdm in (True, False):
        if not without_tqdm:
            pytest.importorskip("tqdm")
        here = tmp_path / str(without_tqdm)
        here.mkdir()
        command, *_ = script(here, without_tqdm=without_tqdm)
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 80))
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        seen = b""
        try:
            while piece := os.read(ours, 4096):
                seen += piece
        except OSError:
            pass  # The other side is closed.
        os.close(ours)
        assert process.wait() == 0
        assert b"20/20" in seen and (b"20/20 cells" in seen) == without_tqdm, seen


def alive(pids):
    """Those of some processes that still run."""
    found = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            found.add(pid)
    return found


def stopped_on_the_way(tmp_path, how):
    """A sweep that a signal ends after some results: its process, and what is then in the file."""
    command, notes, file = script(tmp_path, pause=0.05, count=60)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # These tests may run in the background of a shell, which ignores SIGINT there.
    command = ["env", "--default-signal", *command]
    process = subprocess.Popen(command, **pipes, text=True, start_new_session=True)
    until = time.monotonic() + 60
    while not file.exists() or file.read_bytes().count(b"\n") < 10:
        assert time.monotonic() < until and process.poll() is None, "it does not begin"
        time.sleep(0.01)
    # A terminal sends Ctrl-C to the workers too.
    (os.killpg if how == signal.SIGINT else os.kill)(process.pid, how)
    out, err = process.communicate(timeout=30)
    workers = {int(path.name.split(".")[2]) for path in notes.iterdir()}
    while still := alive(workers):
        assert time.monotonic() < until, f"workers go on: {still}"
        time.sleep(0.01)
    done = file.read_bytes().count(b"\n") - 1
    assert 9 <= done < 60 and out == ""
    return process, err, done


def resumed(tmp_path, done):
    """The same sweep again: only the rest runs, and the file is as after a sweep in one go."""
    command, notes, file = script(tmp_path, pause=0.05, count=60)
    before = runs(notes)
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout == "60\n"
    assert sum(runs(notes).values()) - sum(before.values()) == 60 - done
    whole = tmp_path / "whole"
    zoneplug.sweep(cells_of(60, notes=str(notes), s=0.05), run=noted, file=whole, executor=lambda: ThreadPoolExecutor(16))
    assert file.read_bytes() == whole.read_bytes()


def test_a_sweep_that_is_killed_goes_on_from_its_file(tmp_path):
    process, _, done = stopped_on_the_way(tmp_path, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    resumed(tmp_path, done)


def test_ctrl_c_ends_a_sweep_and_its_workers_and_leaves_the_file(tmp_path):
    process, err, done = stopped_on_the_way(tmp_path, signal.SIGINT)
    assert process.returncode == -signal.SIGINT and err.count("Traceback") == 1 and "KeyboardInterrupt" in err
    resumed(tmp_path, done)


class Interrupting(ThreadPoolExecutor):
    """Raises as Ctrl-C does, after some calls."""

    def __init__(self):
        super().__init__(1)
        self.futures: list[Future] = []

    def submit(self, fn, /, *args):
        if len(self.futures) == 8:
            raise KeyboardInterrupt
        self.futures.append(super().submit(fn, *args))
        return self.futures[-1]


def test_ctrl_c_cancels_what_is_not_begun(tmp_path):
    cells, file = cells_of(50, s=0.1), tmp_path / "file"
    with Interrupting() as executor:
        with pytest.raises(KeyboardInterrupt):
            zoneplug.sweep(cells, run=figure, executor=executor, in_flight=20, file=file)
        assert sum(future.cancelled() for future in executor.futures) >= 6
    done = file.read_bytes().count(b"\n") - 1
    assert done <= 2
    assert zoneplug.sweep(cells, run=figure, executor=lambda: ThreadPoolExecutor(50), file=file) == [
        {**row, "cell": cell} for row, cell in zip(expected(cells), cells, strict=True)
    ]


measure = pytest.mark.skipif(not hasattr(zoneplug, "measure"), reason="this build has no zoneplug.measure")
WORKLOAD = {"rw": "randwrite", "block_bytes": 65536, "iodepth": 4, "runtime_s": 1.0}


@measure
def test_a_measured_cell_is_what_measure_gives():
    cell = {"disk": "sim-smr30", "workload": WORKLOAD, "policy": "fifo", "seed": 1}
    (row,) = zoneplug.sweep([cell])
    assert row["result"] == json.loads(sweeps.canonical(zoneplug.measure("sim-smr30", policy="fifo", seed=1, **WORKLOAD)))


@measure
def test_measured_cells_are_the_same_in_processes_and_in_one_thread():
    cells = [
        {"disk": disk, "workload": WORKLOAD, "policy": policy, "seed": seed}
        for disk in ("sim-smr30", "sim-smr14") for policy in ("off", "fifo") for seed in (1, 2)
    ]
    assert zoneplug.sweep(cells) == zoneplug.sweep(cells, executor=SerialExecutor())
