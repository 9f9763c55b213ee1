"""Calls that wait."""

import array
import errno
import gc
import importlib.metadata
import os
import subprocess
import sys
import threading

import pytest

import zoneplug
from zoneplug import errors

SPEC = "mem,zones=8,zone-size=1M,conv=1"


@pytest.fixture
def disk():
    with zoneplug.Disk(SPEC) as disk:
        yield disk


def test_the_version_is_that_of_the_package():
    assert zoneplug.__version__ == importlib.metadata.version("zoneplug")


def test_data_goes_there_and_back(disk):
    disk.write(2048, b"a" * 4096)
    assert disk.append(2048, bytearray(b"b" * 4096), fua=True) == 2056
    disk.write(2064, memoryview(b"c" * 8192)[4096:], fua=True)
    disk.write_zeroes(2072, 8)
    back = disk.read(2048, 16384)
    assert bytes(back) == b"a" * 4096 + b"b" * 4096 + b"c" * 4096 + bytes(4096)
    mine = bytearray(8192)
    disk.read_into(2048, mine)
    assert mine == b"a" * 4096 + b"b" * 4096
    disk.flush()
    assert disk.zone(1).wp == 2080


def test_a_path_is_a_specification(tmp_path):
    """Whatever is in a path, it names a file, and no layer or option."""
    missing = tmp_path / "po2@a b,c=%d.zbd"
    for spec in (missing, f'"{missing}"'):
        with pytest.raises(errors.Error) as e:
            zoneplug.Disk(spec)
        assert str(missing) in str(e.value)


def test_a_buffer_is_not_copied_and_comes_back(disk):
    buffer = zoneplug.Buffer(4096)
    with memoryview(buffer) as view:
        view[:3] = b"abc"
        assert view.nbytes == 4096 and not view.readonly
        # With a view it is copied.
        disk.append(2048, buffer)
    disk.append(2048, buffer)
    assert len(buffer) == 4096 and bytes(buffer)[:3] == b"abc"
    with pytest.raises(errors.NotAtWritePointer):
        disk.write(2048, buffer)
    assert len(buffer) == 4096, "a failed write gives it back too"
    read = disk.read(2056, 4096)
    view = memoryview(read)
    del read
    gc.collect()
    assert view[:3] == b"abc", "a view keeps the memory"


def test_errors_have_numbers_words_and_what_to_try(disk):
    with pytest.raises(errors.NotAtWritePointer) as e:
        disk.write(2056, bytes(4096))
    assert (e.value.errno, e.value.status) == (errno.EIO, "not_at_write_pointer")
    assert (e.value.op, e.value.sector) == ("write", 2056)
    assert e.value.strerror == "write at sector 2056: not at the write pointer"
    assert e.value.hint == "append, or write where the zone's report says"
    assert isinstance(e.value, zoneplug.IoError) and isinstance(e.value, OSError)
    with pytest.raises(errors.ConventionalZone):
        disk.append(0, bytes(4096))
    with pytest.raises(errors.OutOfRange):
        disk.read(1 << 40, 4096)
    with pytest.raises(errors.Unaligned):
        disk.append(2048, bytes(512))
    with pytest.raises(ValueError):
        disk.read(0, 100)
    with pytest.raises(ValueError):
        disk.read_into(0, bytes(4096))
    with pytest.raises((TypeError, BufferError)):
        disk.append(2048, "text")
    with pytest.raises(zoneplug.Error) as e:
        zoneplug.Disk("mem,zone=4")
    assert e.value.errno == errno.EINVAL and "zones" in e.value.hint
    with pytest.raises(zoneplug.Error) as e:
        zoneplug.Disk("/nowhere/at.zbd")
    assert e.value.errno == errno.ENOENT
    assert disk.zone(1).wp == 2048, "nothing was written"


def test_every_status_has_an_exception():
    """The compiled module names classes by the engine's names."""
    classes = {c.__name__ for c in errors._BY_STATUS.values()}
    assert len(classes) == len(errors._BY_STATUS) == 32
    assert all(issubclass(c, zoneplug.IoError) and c.__doc__ for c in errors._BY_STATUS.values())


def test_zones_are_managed_and_reported(disk):
    disk.append(2048, bytes(4096))
    disk.open_zone(4096)
    disk.finish(6144)
    zones = disk.report()
    assert len(zones) == 8 and zones[0].type is zoneplug.ZoneType.CONVENTIONAL
    conditions = [z.cond for z in zones[:4]]
    assert conditions == [zoneplug.Condition.NOT_WP, zoneplug.Condition.IMP_OPEN, zoneplug.Condition.EXP_OPEN,
                          zoneplug.Condition.FULL]
    assert zones[1] == zoneplug.Zone(2048, 2048, 2056, zoneplug.ZoneType.SEQ_WRITE_REQUIRED,
                                     zoneplug.Condition.IMP_OPEN, 2048)
    disk.close_zone(2048)
    assert disk.report(2048, 1, resync=True)[0].cond is zoneplug.Condition.CLOSED
    disk.reset(2048)
    disk.reset_all()
    assert all(z.cond is zoneplug.Condition.EMPTY for z in disk.report(2048))
    disk.discard(0, 2048)


def test_a_report_is_an_array(disk):
    numpy = pytest.importorskip("numpy")
    disk.append(2048, bytes(8192))
    zones = disk.report_array()
    assert zones.dtype.names == ("start", "len", "wp", "type", "cond", "capacity")
    assert list(zones["start"]) == [n * 2048 for n in range(8)]
    written = (zones["wp"] - zones["start"])[zones["type"] == 2]
    assert written.sum() == 16
    assert numpy.array_equal(zones["capacity"], zones["len"])


def test_a_disk_says_what_it_is(disk):
    assert (disk.nr_zones, disk.zone_sectors, disk.sectors) == (8, 2048, 16384)
    assert repr(disk) == "<zoneplug.Disk of 8 zones of 2048 sectors>"
    with pytest.raises(AttributeError):
        disk.colour  # noqa: B018
    disk.append(2048, bytes(4096))
    with pytest.raises(errors.NotAtWritePointer):
        disk.write(2048, bytes(4096))
    counters = disk.counters()
    assert counters["issued"] == 1 and counters["rejected"] == {"not at the write pointer": 1}
    assert disk.zone_wplugs().startswith("Zone no: 1, ")
    disk.set_attribute("qd1", "1")
    assert disk.attributes()["zoned_qd1_writes"] == "1"
    with pytest.raises(zoneplug.Error):
        disk.set_attribute("qd1", "2")


def test_a_closed_disk_says_so():
    disk = zoneplug.Disk(SPEC)
    disk.close()
    disk.close()
    assert disk.closed
    with pytest.raises(zoneplug.Error, match="closed"):
        disk.append(0, bytes(4096))


def test_threads_run_side_by_side():
    """An operation of a slow disk does not hold the interpreter."""
    with zoneplug.Disk("mem,zones=8,zone-size=1M,fault=any/delay=100ms/count=all") as disk:
        at = []

        def work():
            for _ in range(2):
                at.append(disk.append(0, bytes(4096)))

        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        turns = 0
        while any(t.is_alive() for t in threads):
            turns += 1
        [t.join() for t in threads]
        assert sorted(at) == [n * 8 for n in range(8)]
        assert turns > 1000, "the interpreter was held"


def test_a_durable_disk_keeps_its_data(tmp_path):
    """Needs the command for `create`; without it the file is made by the test of the command."""
    command = os.environ.get("ZONEPLUG")
    if not command:
        pytest.skip("ZONEPLUG names no command")
    path = tmp_path / "disk.zbd"
    assert os.spawnv(os.P_WAIT, command, [command, "create", str(path), "--size", "16M", "--zone-size", "1M"]) == 0
    with zoneplug.Disk(str(path)) as disk:
        disk.append(2048, b"x" * 4096)
        disk.flush()
        with pytest.raises(zoneplug.Error) as e:
            zoneplug.Disk(str(path))
        assert e.value.errno == errno.EBUSY
    with zoneplug.Disk(str(path)) as disk:
        assert bytes(disk.read(2048, 4096)) == b"x" * 4096


def test_a_child_of_a_fork_is_refused_in_words():
    disk = zoneplug.Disk(SPEC)
    child = os.fork()
    if child == 0:
        try:
            disk.append(2048, bytes(4096))
        except zoneplug.Error as e:
            refused = e.errno == errno.EPERM and "forked" in e.strerror
        else:
            refused = False
        disk.close()
        own = zoneplug.Disk(SPEC).append(2048, bytes(4096)) == 2048
        os._exit(0 if refused and own else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert disk.append(2048, bytes(4096)) == 2048
    disk.close()


def test_events_tell_of_zones_and_failures():
    with zoneplug.Disk(SPEC + ",zone_recovery=client,fault=write/io/zone=2") as disk:
        disk.append(2048, bytes(4096))
        assert disk.events() == []
        with pytest.raises(errors.Error):
            disk.write(4096, bytes(4096))
        disk.reset(4096)
        seen = disk.events()
        assert [(e.sequence, e.kind, e.zone, e.sector) for e in seen] == [
            (1, "failed", 2, 4096), (2, "stale", 2, 4096), (3, "recovered", 2, 4096)]
        assert (seen[0].op, seen[0].status, seen[0].count, seen[0].aborted) == ("write", "I/O error", 1, 0)
        assert seen[1].op is None and disk.events(2) == seen[2:] and disk.events(3) == []


def run_with_little_memory(left, code):
    """Runs a program that has `left` bytes of memory once it has opened `disk`."""
    program = f"""
import resource, zoneplug
disk = zoneplug.Disk("null,zones=64,zone-size=1G")
def limit():
    now = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (now + {left}, now + {left}))
{code}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_too_little_memory_is_an_exception():
    run_with_little_memory(
        1 << 29,
        """
import asyncio, mmap, zoneplug.aio
much = mmap.mmap(-1, 1 << 30)
disk.read(0, 4096)
limit()
async def queued():
    await zoneplug.aio.Disk(disk).read(0, 1 << 30)
for call in (lambda: zoneplug.Buffer(1 << 30), lambda: disk.read(0, 1 << 30), lambda: disk.read_into(0, much),
             lambda: disk.write(0, much), lambda: disk.append(0, much), lambda: asyncio.run(queued())):
    try:
        call()
        raise SystemExit("no error")
    except MemoryError:
        pass
assert len(disk.read(0, 4096)) == 4096
""",
    )


def test_a_buffer_comes_back_if_the_system_refuses_a_thread():
    run_with_little_memory(
        1 << 20,
        """
buffer = zoneplug.Buffer(4096)
# Some get the memory of a thread that has ended.
disks = [zoneplug.Disk("null,zones=4,zone-size=1M") for _ in range(8)]
limit()
refused = 0
for disk in disks:
    try:
        disk.write(0, buffer)
    except zoneplug.Error as e:
        assert "thread" in str(e), e
        refused += 1
    assert len(buffer) == 4096
assert refused
""",
    )


def test_arrays_of_other_items_are_bytes_too(disk):
    numpy = pytest.importorskip("numpy")
    numbers = numpy.arange(1024, dtype="u4").reshape(32, 32)
    disk.write(2048, numbers)
    disk.append(2048, array.array("d", [0.5] * 512))
    back = numpy.zeros((32, 32), dtype="u4")
    disk.read_into(2048, back)
    assert (back == numbers).all()
    halves = array.array("d", [0] * 512)
    disk.read_into(2056, halves)
    assert set(halves) == {0.5}
    with pytest.raises(ValueError, match="cannot be written"):
        disk.read_into(2048, memoryview(bytes(4096)))
    with pytest.raises((BufferError, TypeError)):
        disk.read_into(2048, back[:, ::2])
    # Pieces that lie apart are gathered and scattered.
    wide = bytearray(8192)
    disk.read_into(2056, memoryview(wide)[::2])
    assert wide[::2] == halves.tobytes() and not any(wide[1::2])
    disk.write(2064, memoryview(wide)[::2])
    assert bytes(disk.read(2064, 4096)) == halves.tobytes()
