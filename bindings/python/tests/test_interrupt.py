"""Ctrl-C while a call waits for a slow disk."""

import asyncio
import faulthandler
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

import zoneplug
import zoneplug.aio
from zoneplug import errors

SPEC = "mem,zones=8,zone-size=1M"

#: A disk that takes longer than any test for all but the report with which it is opened.
SLOW = SPEC + ",fault=any/delay=5m/skip=1/count=all"
CALLS = {
    "read": lambda disk: disk.read(0, 4096),
    "read_into": lambda disk: disk.read_into(0, bytearray(4096)),
    "write": lambda disk: disk.write(0, bytes(4096)),
    "append": lambda disk: disk.append(0, bytes(4096), fua=True),
    "flush": lambda disk: disk.flush(),
    "write_zeroes": lambda disk: disk.write_zeroes(0, 8),
    "reset": lambda disk: disk.reset(0),
    "finish": lambda disk: disk.finish(0),
    "report": lambda disk: disk.report(resync=True),
}


@pytest.fixture(autouse=True)
def ctrl_c():
    """These tests may run in the background of a shell, which ignores SIGINT there. One that hangs ends all."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.dump_traceback_later(100, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    signal.signal(signal.SIGINT, before)


def interrupt_after(seconds, number=signal.SIGINT):
    timer = threading.Timer(seconds, os.kill, (os.getpid(), number))
    timer.start()
    return timer


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_waits_is_interrupted(name):
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), zoneplug.Disk(SLOW) as disk:
        interrupt_after(0.3)
        CALLS[name](disk)
    # Closing has not waited either.
    assert 0.2 < time.monotonic() - begin < 5


def test_opening_is_interrupted():
    begin = time.monotonic()
    interrupt_after(0.3)
    with pytest.raises(KeyboardInterrupt):
        zoneplug.Disk(SPEC + ",latency=5m")
    assert time.monotonic() - begin < 5


def test_the_disk_goes_on_and_has_the_memory_meanwhile():
    with zoneplug.Disk(SPEC + ",fault=write/delay=700ms") as disk:
        buffer = zoneplug.Buffer(4096)
        with memoryview(buffer) as view:
            view[:3] = b"abc"
        interrupt_after(0.2)
        with pytest.raises(KeyboardInterrupt):
            disk.write(0, buffer)
        assert len(buffer) == 0, "the device may still read it"
        with pytest.raises(BufferError):
            disk.write(0, buffer)
        # The operation was not given up, only its answer: the next one of the zone comes behind it.
        assert disk.append(0, bytes(4096)) == 8
        assert bytes(disk.read(0, 4096))[:3] == b"abc"
        assert disk.append(2048, bytes(4096)) == 2048


def test_many_calls_that_were_interrupted_leave_room_for_more():
    with zoneplug.Disk(SPEC + ",fault=read/delay=1h/count=40") as disk:
        for _ in range(40):
            interrupt_after(0.05)
            with pytest.raises(KeyboardInterrupt):
                disk.read(0, 4096)
        assert len(disk.read(0, 4096)) == 4096
        assert disk.append(0, bytes(4096)) == 0


def test_a_handler_that_returns_interrupts_nothing():
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(time.monotonic()))
    try:
        with zoneplug.Disk(SPEC + ",fault=write/delay=600ms") as disk:
            interrupt_after(0.1, signal.SIGUSR1)
            disk.write(0, bytes(4096))
            assert seen and time.monotonic() - seen[0] > 0.2, "the handler ran while the call waited"
            assert disk.zone(0).wp == 8
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_other_threads_wait_for_is_not_interrupted():
    with zoneplug.Disk(SPEC + ",fault=any/delay=700ms/skip=1/count=2") as disk:
        at = []
        thread = threading.Thread(target=lambda: at.append(disk.append(0, bytes(4096))))
        thread.start()
        interrupt_after(0.2)
        with pytest.raises(KeyboardInterrupt):
            disk.read(0, 4096)
        thread.join()
        assert at == [0]


def test_a_change_that_waits_for_the_device_is_interrupted():
    with zoneplug.Disk(SPEC + ",fault=read/delay=3s") as disk:
        reader = threading.Thread(target=disk.read, args=(0, 4096))
        reader.start()
        time.sleep(0.1)
        begin = time.monotonic()
        interrupt_after(0.2)
        with pytest.raises(KeyboardInterrupt):
            disk.set_attribute("qd1", "1")
        assert time.monotonic() - begin < 2
        reader.join()
        assert len(disk.read(0, 4096)) == 4096


@pytest.mark.parametrize("by", ["a signal", "a timeout"])
def test_an_event_loop_ends_without_what_is_in_flight(by):
    buffer = zoneplug.Buffer(4096)

    async def main():
        async with zoneplug.aio.Disk(SLOW) as disk:
            await disk.append(0, buffer)

    begin = time.monotonic()
    if by == "a signal":
        interrupt_after(0.3)
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())
    else:
        with pytest.raises(TimeoutError):
            asyncio.run(asyncio.wait_for(main(), 0.3))
    assert time.monotonic() - begin < 5
    assert len(buffer) == 0


def test_a_program_ends():
    program = f"""
import signal, zoneplug
signal.signal(signal.SIGINT, signal.default_int_handler)
disk = zoneplug.Disk('{SLOW}')
print('waits', flush=True)
disk.append(0, bytes(4096))
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          cwd=pathlib.Path(zoneplug.__file__).parent.parent) as child:
        assert child.stdout.readline() == "waits\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        try:
            _, said = child.communicate(timeout=10)
        finally:
            child.kill()
    assert child.returncode == -signal.SIGINT and said.endswith("KeyboardInterrupt\n"), said


def peak():
    """The most memory that this process has had, in bytes."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def test_a_length_beyond_the_disk_costs_nothing():
    import mmap

    long = (4 << 30) - 512
    with mmap.mmap(-1, long, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)) as much, \
            zoneplug.Disk(SPEC) as disk:

        async def queued():
            async with zoneplug.aio.Disk(disk) as loop_disk:
                calls = (lambda: loop_disk.read(0, long), lambda: loop_disk.write(0, much), lambda: loop_disk.append(0, much))
                for call in calls:
                    with pytest.raises(errors.OutOfRange):
                        await call()
                assert await loop_disk.append(0, bytes(4096)) == 0

        before = peak()
        for call in (lambda: disk.read(0, long), lambda: disk.read_into(0, much), lambda: disk.write(0, much),
                     lambda: disk.append(0, much), lambda: disk.read(0, 1 << 60)):
            with pytest.raises(errors.OutOfRange):
                call()
        with pytest.raises(errors.AppendTooLarge):
            disk.append(0, bytes(2 << 20))
        asyncio.run(queued())
        assert peak() - before < 64 << 20
