"""The models and the simulation: figures, policies in Python, signals."""

import gzip
import io
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import zoneplug
from zoneplug import errors

COMMAND = os.environ.get("ZONEPLUG_LAB")
needs_command = pytest.mark.skipif(not COMMAND, reason="the command is not built")

# Random writes of four jobs over eight zones of a hard disk, for two seconds: the single writer has a choice.
LOAD = dict(block_bytes=1 << 20, iodepth=32, jobs=4, zones=8, zone_lock=True, runtime_s=2.0)
FLAGS = "--rw randwrite --bs 1M --iodepth 32 --numjobs 4 --zones 8 --zone-lock --runtime 2s"

TRACE = "fio version 2 iolog\nf write 0 65536\nf write 65536 65536\nf read 0 4096\n"


def command(line):
    """What the command prints as JSON."""
    done = subprocess.run([COMMAND, *line.split()], capture_output=True, text=True, timeout=300)
    return json.loads(done.stdout)


def figures(row):
    """A row without the name of the policy."""
    return {key: value for key, value in row.items() if key != "layer"}


def fifo(view):
    return 0


def nearest(view):
    zones, last = view.zones, view.last or 0
    return min(range(len(view)), key=lambda i: abs(zones[i] - last))


@needs_command
def test_measure_is_a_row_of_bench():
    for policy in ["off", "fifo", "clook", "steady+300us", "[-sweep;waits<2]+300us"]:
        ours = zoneplug.measure("sim-smr30", policy=policy, **LOAD)
        [row] = command(f"bench --disk sim-smr30 {FLAGS} --policy {policy} --json")["rows"]
        assert ours == row
    ours = zoneplug.measure(
        "sim-zns1", rw="append", block_bytes=131072, iodepth=8, jobs=2, reads=4, read_block_bytes=8192, runtime_s=0.2, mode="plug"
    )
    line = "bench --disk sim-zns1 --rw append --bs 128K --iodepth 8 --numjobs 2 --reads 4 --read-bs 8K --runtime 200ms --json"
    [row] = command(line)["rows"]
    assert ours == row and ours["reads"]["bios"] > 0
    ours = zoneplug.measure("sim-smr30", rw="randread", iodepth=16, scheduler="mq-deadline", tags=8, runtime_s=1)
    line = "bench --disk sim-smr30 --rw randread --iodepth 16 --scheduler mq-deadline --tags 8 --runtime 1s --json"
    assert ours == command(line)["rows"][0]
    layered = "delay,write=1ms@po2@sim-zns1,zone-size=96M,zone-capacity=96M"
    ours = zoneplug.measure(layered, rw="write", runtime_s=0.2)
    assert ours == command(f"bench --disk {layered} --rw write --runtime 200ms --json")["rows"][0]


def test_measure_is_deterministic_and_draws_from_its_seed():
    load = dict(LOAD, policy="fifo")
    for lock in [True, False]:
        load["zone_lock"] = lock
        one = zoneplug.measure("sim-smr30", **load)
        assert one == zoneplug.measure("sim-smr30", seed=1, **load)
        rates = {zoneplug.measure("sim-smr30", seed=s, **load)["jobs"]["latency"]["mean_ns"] for s in range(1, 5)}
        assert len(rates) > 1, f"seeds make no difference; zone_lock={lock}"


def test_times_are_what_was_asked_for():
    row = zoneplug.measure("sim-smr30", runtime_s=0.5)
    assert row["virtual_s"] == 0.5
    cold, warm = (zoneplug.measure("sim-smr30", runtime_s=0.5, iodepth=64, warm_up_s=s) for s in (0, 3))
    assert cold != warm, "the cache is not full yet"


def test_a_fifo_in_python_is_the_built_in_one():
    for zones in [2, 8, 128]:
        load = dict(LOAD, zones=zones)
        built_in = zoneplug.measure("sim-smr30", policy="fifo", **load)
        ours = zoneplug.measure("sim-smr30", policy=fifo, **load)
        assert figures(ours) == figures(built_in)
        assert ours["layer"] == "plug none qd1 fifo"


def test_a_policy_of_zones_in_python_is_the_built_in_one():
    def clook(view):
        last = -1 if view.last is None else view.last
        zones = view.zones
        return min(range(len(view)), key=lambda i: (zones[i] <= last, zones[i]))

    spec = "sim-smr30,anticipation-us=300"
    ours = zoneplug.measure(spec, policy=clook, **dict(LOAD, zones=32))
    built_in = zoneplug.measure("sim-smr30", policy="clook+300us", **dict(LOAD, zones=32))
    assert ours == built_in, "also the layer: it says how long the writer may wait"


def test_a_policy_of_bytes_in_python_sees_what_the_built_in_one_sees():
    def steady_pick(view):
        if len(view) < 5:
            return 0
        last = -1 if view.last is None else view.last
        return min(range(len(view)), key=lambda i: (view.zones[i] <= last, view.zones[i]))

    class Steady:
        """policy/steady.rs."""

        def pick(self, view):
            return steady_pick(view)

        def stay(self, view):
            n, turn = len(view), view.now_ns - view.turn_began_ns
            if n <= 1:
                return view.turn_waits < 6 and all(b < 16 << 20 for b in view.nbytes)
            if n <= 4:
                return view.now_ns - view.since_ns[0] < 200_000_000
            return turn < (30_000_000 if n >= 16 else 17_000_000)

    for zones in [2, 4, 8, 32]:
        load = dict(LOAD, zones=zones)
        ours = zoneplug.measure("sim-smr30,anticipation-us=300", policy=Steady(), **load)
        assert figures(ours) == figures(zoneplug.measure("sim-smr30", policy="steady+300us", **load))
        assert ours["layer"] == "plug none qd1 Steady +300us"


def test_the_nearest_zone_gives_other_figures():
    load = dict(LOAD, zones=32)
    first, near = (zoneplug.measure("sim-smr30", policy=p, **load) for p in (fifo, nearest))
    assert near["layer"].endswith("nearest")
    assert near["jobs"]["mb_per_s"] != first["jobs"]["mb_per_s"]


def test_a_view_shows_what_waits():
    seen = []

    def policy(view):
        seen.append(view)
        return len(view) - 1

    zoneplug.measure("sim-smr30", policy=policy, **dict(LOAD, zones=32))
    assert seen and all(isinstance(v, zoneplug.View) for v in seen)
    assert all(len(v) == len(v.zones) == len(v.sectors) == len(v.nbytes) == len(v.since_ns) >= 2 for v in seen)
    assert all(b > 0 for v in seen for b in v.nbytes), "what waits has bytes"
    assert all(v.since_ns == tuple(sorted(v.since_ns)) for v in seen), "first listed first"
    assert any(v.last not in v.zones for v in seen if v.last is not None)
    view = seen[-1]
    assert view.zones is view.zones and repr(view).startswith("<zoneplug.View of zones [")
    assert 0 < view.head < view.capacity and view.turn_began_ns <= view.now_ns and view.turn_nbytes > 0
    with pytest.raises(AttributeError):
        view.last = 3


def test_a_policy_that_raises_ends_the_run_with_that_exception():
    calls = []

    def wrong(view):
        calls.append(len(view))
        raise KeyError("mine")

    for run in [
        lambda: zoneplug.measure("sim-smr30", policy=wrong, **LOAD),
        lambda: zoneplug.replay(blkparse_of(40), disk="sim-smr30", policies=["off", wrong]),
    ]:
        calls.clear()
        with pytest.raises(KeyError, match="mine"):
            run()
        assert len(calls) == 1, "it is not called again"


def test_a_wrong_index_is_a_value_error():
    for index in [-1, 99, None, "0", 1.5]:
        with pytest.raises(ValueError, match="index below"):
            zoneplug.measure("sim-smr30", policy=lambda view, i=index: i, **LOAD)
    with pytest.raises(TypeError, match="policy"):
        zoneplug.measure("sim-smr30", policy=3, **LOAD)


def test_a_policy_may_measure_itself():
    inner = []

    def policy(view):
        if not inner:
            inner.append(zoneplug.measure("sim-smr30", policy=fifo, **dict(LOAD, runtime_s=0.2)))
        return nearest(view)

    outer = zoneplug.measure("sim-smr30", policy=policy, **LOAD)
    assert figures(outer) == figures(zoneplug.measure("sim-smr30", policy=nearest, **LOAD))
    assert inner[0] == zoneplug.measure("sim-smr30", policy=fifo, **dict(LOAD, runtime_s=0.2))


def test_policies_of_two_threads_do_not_meet():
    wanted = {p: zoneplug.measure("sim-smr30", policy=p, **LOAD) for p in (fifo, nearest)}
    got = {}
    threads = [
        threading.Thread(target=lambda p=p: got.update({p: zoneplug.measure("sim-smr30", policy=p, **LOAD)})) for p in wanted
    ]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert got == wanted


def test_wrong_arguments_say_what_to_try():
    for arguments, what in [
        (dict(disk="mem"), "no disk with the times"),
        (dict(disk="sim-smr30", rw="trim"), "'trim' is no workload"),
        (dict(disk="sim-smr30", policy="elevator"), "'elevator' is no policy"),
        (dict(disk="sim-smr30", block_bytes=1000), "no length of a BIO: 1000"),
        (dict(disk="sim-smr30", block_bytes=1024), "block_bytes 1K is not a multiple"),
        (dict(disk="sim-smr30", block_bytes=32 << 20), "more than 16M"),
        (dict(disk="sim-smr30", iodepth=0), "iodepth is from 1"),
        (dict(disk="sim-smr30", jobs=65), "jobs is from 1 to 64"),
        (dict(disk="sim-smr30", rw="write", zone_lock=True), "zone_lock with write"),
        (dict(disk="sim-smr30", runtime_s=0), "less than 1 ms"),
        (dict(disk="sim-smr30", warm_up_s=math.nan), "warm_up_s is from 0"),
        (dict(disk="sim-smr30", read_block_bytes=4096), "without reads"),
        (dict(disk="sim-smr30", mode="fast"), "'fast' is no mode"),
        (dict(disk="sim-smr30", scheduler="bfq"), "'bfq' is no scheduler"),
        (dict(disk="linear,first=1@sim-zns1"), "the layer linear in virtual time"),
    ]:
        with pytest.raises(zoneplug.Error, match=what) as e:
            zoneplug.measure(**arguments)
        assert e.value.hint, what
    with pytest.raises(OverflowError):
        zoneplug.measure("sim-smr30", iodepth=-1)


def blkparse_of(writes):
    """A trace of writes of 1 MiB that come faster than a disk takes them, in turns to eight zones of 256 MiB."""
    line = "8,0 1 {n} {s:.9f} 77 Q W {sector} + 2048 [x]\n"
    wp = [0] * 8
    lines = []
    for n in range(writes):
        zone = n * 5 % 8
        sector = (1500 + 100 * zone) * 524288 + wp[zone]
        wp[zone] += 2048
        lines.append(line.format(n=n + 1, s=n / 10000, sector=sector))
    return "".join(lines)


@needs_command
def test_replay_is_the_rows_of_the_command(tmp_path):
    path = tmp_path / "trace"
    path.write_text(blkparse_of(200))
    ours = zoneplug.replay(path, disk=["sim-smr30", "sim-zns1"], policies=["off", "fifo", "clook"], threads=2)
    line = f"replay {path} --disk sim-smr30 --disk sim-zns1 --policy off,fifo,clook --json"
    assert ours == command(line)["rows"] and len(ours) == 6
    ours = zoneplug.replay(
        path, disk="sim-smr30", policies=(), schedulers="mq-deadline", speed="asap", iodepth=4, map="log", device="8,0"
    )
    line = f"replay {path} --disk sim-smr30 --scheduler mq-deadline --speed asap --iodepth 4 --map log --device 8,0 --json"
    assert ours == command(line)["rows"]


def test_a_trace_may_be_a_path_a_file_or_a_text(tmp_path):
    path = tmp_path / "trace"
    path.write_text(TRACE)
    rows = zoneplug.replay(path, disk="sim-smr30")
    assert [r["layer"] for r in rows] == ["plug none", "plug none qd1 fifo"]
    assert rows[0]["writes"]["operations"] == 2 and rows[0]["refused"]["operations"] == 0
    for trace in [str(path), TRACE, TRACE.encode(), io.StringIO(TRACE), io.BytesIO(TRACE.encode()), path.open(), path.open("rb")]:
        assert zoneplug.replay(trace, disk="sim-smr30") == rows


def test_an_open_file_that_never_ends_is_no_trace(monkeypatch):
    monkeypatch.setattr("zoneplug.models._MOST", 1 << 20)
    with open("/dev/zero", "rb") as endless, pytest.raises(zoneplug.Error, match="more than 1G of trace") as e:
        zoneplug.replay(endless, disk="sim-smr30")
    assert e.value.hint == "the path of the file"


def test_a_table_may_have_any_order_and_columns_that_are_named():
    lines = ["9000000,W,131072,65536", "7000000,W,0,65536", "8000000,W,65536,65536"]
    names = "time_us,op,offset,length"
    want = zoneplug.replay("\n".join([names, *sorted(lines)]), disk="sim-smr30")
    assert want[0]["map"] == "exact" and want[0]["writes"]["operations"] == 3
    text = "\n".join(lines)
    for columns in [names, names.split(",")]:
        assert zoneplug.replay(text, disk="sim-smr30", columns=columns) == want
    assert zoneplug.replay(gzip.compress(text.encode()), disk="sim-smr30", columns=names) == want
    with pytest.raises(zoneplug.Error, match="no column for the length"):
        zoneplug.replay(text, disk="sim-smr30", columns="time_us,op,offset")


def test_a_policy_in_python_replays():
    trace = blkparse_of(200)
    off, built_in, ours, near = zoneplug.replay(trace, disk="sim-smr30", policies=["off", "fifo", fifo, nearest])
    assert figures(ours) == figures(built_in) != figures(off)
    assert figures(near) != figures(ours) and near["layer"] == "plug none qd1 nearest"


def test_a_trace_that_makes_no_sense_says_where():
    bad = "fio version 3 iolog\n5 /dev/sda add\n9 /dev/sda write 4096 99999999999999999999\n"
    with pytest.raises(zoneplug.Error, match="line 3 of the trace") as e:
        zoneplug.replay(bad, disk="sim-smr30")
    assert e.value.hint
    with pytest.raises(zoneplug.Error, match="line 1 is of no known format"):
        zoneplug.replay("this\nis no trace\n", disk="sim-smr30")
    with pytest.raises(zoneplug.Error, match="empty"):
        zoneplug.replay(b"", disk="sim-smr30")
    with pytest.raises(zoneplug.Error, match="reading /nowhere") as e:
        zoneplug.replay("/nowhere", disk="sim-smr30")
    for wrong in [dict(map="some"), dict(events="x"), dict(speed=0), dict(iodepth=0), dict(device="9,9")]:
        with pytest.raises(zoneplug.Error):
            zoneplug.replay(TRACE, disk="sim-smr30", **wrong)


def test_pandas_takes_rows():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(zoneplug.replay(TRACE, disk="sim-smr30"))
    assert list(frame["layer"]) == ["plug none", "plug none qd1 fifo"] and (frame["mb_per_s"] > 0).all()


@needs_command
def test_reproduce_is_the_document_of_the_command():
    for table, flags in [("append-zns", ""), ("append", " --quick"), (["zns", "smr20"], " --quick")]:
        words = table if isinstance(table, str) else " ".join(table)
        document = command(f"reproduce {words}{flags} --json")
        assert document.pop("schema") == 1
        assert zoneplug.reproduce(table, quick=bool(flags)) == document


def test_reproduce_has_what_is_simulated():
    report = zoneplug.reproduce(quick=True)
    assert {t["how"] for t in report["tables"]} == {"model"} and len(report["tables"]) > 8
    # How many threads simulate changes no figure.
    alone = zoneplug.reproduce(["zns", "smr20"], quick=True, threads=1)["tables"]
    names = {t["name"] for t in alone}
    assert {"zns", "smr20"} < names and alone == [t for t in report["tables"] if t["name"] in names]
    with pytest.raises(zoneplug.Error, match="processor time") as e:
        zoneplug.reproduce("null-zwp")
    assert e.value.hint == "zoneplug-lab reproduce null-zwp"
    with pytest.raises(zoneplug.Error, match="no table is called 'nix'"):
        zoneplug.reproduce("nix")


def test_worlds_by_seed():
    tally = zoneplug.simulate(range(1, 41))
    assert tally["worlds"] == 40 and tally["bios"] > 1000 and tally["broken"] == [] and tally["failed_seed"] is None
    backwards = zoneplug.simulate(range(40, 0, -1))
    times = {"elapsed_s", "worlds_per_minute", "bios_per_s"}
    assert {k: v for k, v in tally.items() if k not in times} == {k: v for k, v in backwards.items() if k not in times}
    assert zoneplug.simulate(7)["bios"] == zoneplug.simulate([7])["bios"] == zoneplug.simulate(iter([7]))["bios"]
    assert zoneplug.simulate(7)["worlds"] == 1 and zoneplug.simulate(range(0))["worlds"] == 0
    for wrong in [range(-3, 2), range(3, -2, -1)]:
        with pytest.raises(zoneplug.Error, match="below 0"):
            zoneplug.simulate(wrong)
    with pytest.raises(OverflowError):
        zoneplug.simulate([-1])


@needs_command
def test_worlds_are_those_of_the_command():
    ours, theirs = zoneplug.simulate(range(5, 105)), command("sim --seeds 5..104 --json")
    for key in ["worlds", "bios", "faults_per_world", "parked_percent", "classes"]:
        assert ours[key] == theirs[key], key


def test_a_broken_promise_is_raised_or_listed(monkeypatch):
    # A stand-in for a layer that breaks promises: this one keeps them.
    broken = [dict(seed=3, what="a write was lost", command="zoneplug-lab sim --seed 3")]
    monkeypatch.setattr(zoneplug._zoneplug, "_simulate", lambda seeds, stop: dict(worlds=2, broken=broken))
    with pytest.raises(errors.BrokenPromise, match="seed 3: a write was lost") as e:
        zoneplug.simulate(range(9))
    assert (e.value.seed, e.value.command) == (3, "zoneplug-lab sim --seed 3") and e.value.hint
    assert zoneplug.simulate(range(9), stop_at_first=False)["broken"] == broken


@pytest.mark.parametrize(
    "call",
    [
        "zoneplug.measure('sim-smr30', iodepth=16, runtime_s=86400)",
        "zoneplug.measure('sim-smr30', iodepth=16, zones=64, runtime_s=86400, policy=lambda view: 0)",
        "zoneplug.reproduce(threads=2)",
        "zoneplug.simulate(range(10**9))",
        "zoneplug.replay(text, disk='sim-smr30', speed=0.001)",
    ],
)
def test_ctrl_c_ends_a_call(call):
    program = f"""
import zoneplug
text = "fio version 2 iolog\\n" + "".join(f"f write {{i * 4096}} 4096\\n" for i in range(3_000_000))
print("ready", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted")
"""
    # These tests may run in the background of a shell, which ignores SIGINT there.
    command = ["env", "--default-signal", sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "ready\n"
            time.sleep(0.5)
            assert child.poll() is None, "it lasts"
            child.send_signal(signal.SIGINT)
            begin = time.monotonic()
            # About a second where nothing else runs.
            printed, _ = child.communicate(timeout=5)
            assert printed == "interrupted\n" and time.monotonic() - begin < 5
        finally:
            child.kill()


def test_the_interpreter_is_free_meanwhile():
    done = threading.Event()

    def count():
        nonlocal n
        while not done.is_set():
            n += 1
            time.sleep(0.001)

    n = 0
    thread = threading.Thread(target=count)
    thread.start()
    before = n
    begin = time.monotonic()
    zoneplug.measure("sim-smr30", rw="write", iodepth=16, runtime_s=60)
    took = time.monotonic() - begin
    counted = n - before
    done.set()
    thread.join()
    assert took > 0.02 and counted > took * 50, f"{counted} turns in {took} s"
