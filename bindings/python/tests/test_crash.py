"""Power cuts of code in Python."""

import os
import pathlib
import subprocess
import sys

import pytest

from zoneplug import crash, errors

DISK = "mem,zones=4,zone-size=64K"
EXAMPLE = pathlib.Path(__file__).parent.parent.parent.parent / "examples/python/find_missing_flush.py"


def appends(flush):
    def work(work):
        for n in range(6):
            work.disk.append(0, bytes([n]) * 4096)
            if flush(n):
                work.disk.flush()
            work.promise(n)

    return work


def check(disk, promised):
    found = disk.read(0, 65536)
    for n in promised:
        assert bytes(found)[n * 4096] == n, f"block {n} is lost"
        assert disk.zone(0).wp >= 8 * (n + 1)


def test_code_that_flushes_passes():
    report = crash.test(appends(lambda n: True), check, disk=DISK, seeds=range(3), cuts=60)
    assert (report.runs, report.cuts) == (3, 60) and "60 power cuts" in str(report)
    every = crash.test(appends(lambda n: True), check, disk=DISK, seeds=range(1), every=True)
    assert every.cuts == every.points * 4


def test_a_flush_that_is_missing_is_found_and_repeated(monkeypatch):
    work = appends(lambda n: n != 4)
    with pytest.raises(errors.PowerCut) as found:
        crash.test(work, check, disk=DISK, every=True)
    e = found.value
    assert "kept" in str(e) and "ZONEPLUG_CRASH=" in str(e) and isinstance(e.__cause__, AssertionError)
    assert e.point and e.seed == 1 and "test_crash.py" in e.message
    monkeypatch.setenv("ZONEPLUG_CRASH", e.repeat)
    with pytest.raises(errors.PowerCut) as again:
        crash.test(work, check, disk=DISK)
    assert (again.value.message, again.value.repeat, again.value.nr) == (e.message, e.repeat, 1)
    assert crash.test(appends(lambda n: True), check, disk=DISK).cuts == 1


def test_what_is_wrong_is_said():
    def fails(work):
        raise KeyError("x")

    with pytest.raises(errors.PowerCut) as e:
        crash.test(fails, check, disk=DISK)
    assert "before any power cut: KeyError: 'x'" in str(e.value) and isinstance(e.value.__cause__, KeyError)
    with pytest.raises(errors.PowerCut, match="keeps no data"):
        crash.test(fails, check, disk="null,zones=4")
    with pytest.raises(TypeError):
        crash.test(fails, check, seeds=[1, 2])


def test_ctrl_c_ends_a_test():
    calls = []

    def interrupted(disk, promised):
        calls.append(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crash.test(appends(lambda n: True), interrupted, disk=DISK)
    assert len(calls) == 1


def test_a_disk_of_a_test_is_closed_after_it():
    kept = []
    crash.test(lambda work: kept.append(work), lambda disk, _: kept.append(disk), disk=DISK, seeds=range(1), cuts=2)
    assert kept[0].disk.closed and all(disk.closed for disk in kept[1:])
    kept[0].promise("late")


def test_a_power_cut_keeps_what_was_flushed():
    ends = set()
    for seed in range(12):
        with crash.Disk("mem,zones=4,zone-size=1M", seed=seed) as disk:
            disk.append(0, b"a" * 4096)
            disk.flush()
            disk.append(0, b"b" * 4096)
            disk.append(2048, b"c" * 4096, fua=True)
            disk.power_cut()
            assert bytes(disk.read(0, 4096)) == b"a" * 4096 and disk.zone(1).wp == 2056
            ends.add(disk.zone(0).wp)
            disk.append(0, b"goes on".ljust(4096))
            disk.flush()
            disk.power_cut()
            assert disk.zone(0).wp == max(disk.zone(0).wp, 16)
    assert ends == {8, 16}
    with pytest.raises(errors.Error, match="closed"):
        disk.power_cut()


def test_the_example_finds_the_missing_flush():
    env = {name: value for name, value in os.environ.items() if name != "ZONEPLUG_CRASH"}
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "passed" in done.stdout and "repeat it: ZONEPLUG_CRASH=" in done.stdout, done.stdout
