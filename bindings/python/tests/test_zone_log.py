"""Logs in zones."""

import errno
import pickle
import threading

import pytest

import zoneplug
from zoneplug import errors

SPEC = "mem,zones=4,zone-size=1M"


@pytest.fixture
def disk():
    with zoneplug.Disk(SPEC) as disk:
        yield disk


def test_records_come_back(disk):
    log = zoneplug.ZoneLog(disk, id=7)
    first = log.append(b"one")
    rest = log.append_batch([b"two", bytearray(b"three"), memoryview(b"four")], sync=True)
    assert log.read(first) == b"one" and log.read(rest[1]) == b"three"
    assert [r.data for r in log] == [b"one", b"two", b"three", b"four"]
    assert [r.address for r in log.records(rest[0])] == rest
    assert log.numbers == range(1, 5) and log.max_record_bytes == (1 << 20) - 64
    del log
    again = zoneplug.ZoneLog(disk, id=7)
    found = again.recovery
    assert (found.first, found.last, found.zones_in_use, found.torn_bytes, found.holes) == (1, 4, 1, 0, [])
    assert again.append(b"five", sync=True).sequence == 5


def test_an_address_is_stored_and_ordered(disk):
    log = zoneplug.ZoneLog(disk)
    a, b = log.append(b"a"), log.append(b"b")
    assert a < b and a != b and sorted([b, a]) == [a, b] and len({a, b, a}) == 2
    stored = bytes(a)
    assert len(stored) == 20 and zoneplug.LogAddress(stored) == a and pickle.loads(pickle.dumps(a)) == a
    assert a.sector == 0 and a.sequence == 1 and "record 1" in repr(a)
    with pytest.raises(ValueError, match="20 bytes"):
        zoneplug.LogAddress(b"x")


def test_a_full_log_is_trimmed(disk):
    log = zoneplug.ZoneLog(disk)
    at = []
    with pytest.raises(errors.LogFull) as e:
        while True:
            at.append(log.append(bytes(500_000)))
    assert e.value.errno == errno.ENOSPC and "trim" in e.value.hint
    assert log.trim(at[2]) == [0] and log.reset_oldest() == 1
    with pytest.raises(errors.StaleRecord):
        log.read(at[0])
    log.append(b"goes on")
    with pytest.raises(errors.RecordTooLong):
        log.append(bytes(2 << 20))
    with pytest.raises(errors.NotALog):
        zoneplug.ZoneLog(disk, id=99)
    assert zoneplug.ZoneLog.create(disk, id=99).numbers == range(1, 1)


def test_threads_share_a_log(disk):
    log = zoneplug.ZoneLog(disk)

    def work(n):
        for _ in range(20):
            log.append(bytes([n]) * 100, sync=True)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert sorted(r.data[0] for r in log) == sorted(list(range(4)) * 20)


def test_a_set_of_logs():
    with zoneplug.Disk("mem,zones=8,zone-size=64K") as disk:
        logs = zoneplug.ZoneLog.open_set(disk, 3)
        for n, log in enumerate(logs):
            log.append(bytes([n]), sync=True)
        assert [[r.data for r in log] for log in logs] == [[b"\0"], [b"\1"], [b"\2"]]
        with pytest.raises(errors.LogError):
            zoneplug.ZoneLog.open_set(disk, 9, id=50, zones=range(0, 2))
        with pytest.raises(TypeError):
            zoneplug.ZoneLog(disk, zones=(0, 2))
