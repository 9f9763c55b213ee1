"""Disks in an event loop."""

import asyncio
import time

import pytest

import zoneplug
import zoneplug.aio
from zoneplug import errors

SPEC = "mem,zones=8,zone-size=1M"


def test_appends_land_each_in_its_place():
    async def main():
        async with zoneplug.aio.Disk(SPEC + ",reorder=3", depth=16) as disk:
            at = await asyncio.gather(*(disk.append(0, bytes([n]) * 4096) for n in range(100)))
            assert sorted(at) == [n * 8 for n in range(100)]
            back = await asyncio.gather(*(disk.read(s, 4096) for s in at))
            assert [bytes(b)[0] for b in back] == list(range(100))
            assert disk.disk.zone(0).wp == 800

    asyncio.run(main())


def test_writes_are_in_the_order_of_the_calls():
    async def main():
        async with zoneplug.aio.Disk(SPEC + ",reorder=5") as disk:
            writes = [disk.write(n * 8, bytes([n]) * 4096) for n in range(64)]
            assert await asyncio.gather(*reversed(writes)) == [n * 8 for n in reversed(range(64))]
            await disk.flush()
            await disk.finish(0)
            await disk.reset(0)
            await disk.open_zone(2048)
            await disk.close_zone(2048)
            await disk.write_zeroes(2048, 8)
            assert disk.disk.zone(1).wp == 2056

    asyncio.run(main())


def test_the_loop_goes_on_meanwhile():
    async def main():
        async with zoneplug.aio.Disk(SPEC + ",fault=any/delay=150ms/count=all") as disk:
            begin = time.monotonic()
            operation = asyncio.ensure_future(disk.append(0, bytes(4096)))
            turns = 0
            while not operation.done():
                turns += 1
                await asyncio.sleep(0.001)
            assert await operation == 0
            assert time.monotonic() - begin >= 0.1 and turns > 20

    asyncio.run(main())


def test_errors_and_cancelled_operations():
    async def main():
        async with zoneplug.aio.Disk(SPEC + ",fault=read/delay=50ms/count=all") as disk:
            buffer = zoneplug.Buffer(4096)
            with pytest.raises(errors.NotAtWritePointer) as e:
                await disk.write(8, buffer)
            assert e.value.sector == 8 and len(buffer) == 4096, "the buffer is back"
            with pytest.raises(ValueError):
                disk.read(0, 7)
            read = disk.read(0, 4096)
            read.cancel()
            with pytest.raises(asyncio.CancelledError):
                await read
            # The answer of what was cancelled harms nobody.
            assert len(await disk.read(0, 4096)) == 4096

    asyncio.run(main())


def test_what_is_refused_at_once_is_answered_at_once():
    async def main():
        async with zoneplug.aio.Disk(SPEC) as disk:
            for refused in (lambda: disk.read(0, 0), lambda: disk.read(0, 1 << 30), lambda: disk.append(0, b"")):
                with pytest.raises(errors.OutOfRange):
                    await asyncio.wait_for(refused(), 10)

    asyncio.run(main())


def test_a_range_means_what_it_means_to_a_disk():
    """No length is a whole zone; a length of 0 is none, and changes nothing."""

    async def main():
        async with zoneplug.aio.Disk(SPEC) as disk:
            for n in range(4):
                await disk.append(n * 2048, bytes(4096))
            for name in "reset", "finish", "open_zone", "close_zone":
                outcomes = []
                for zones in disk.disk, disk:
                    try:
                        ended = getattr(zones, name)(0, 0)
                        outcomes.append(await ended if zones is disk else ended)
                    except errors.Error as e:
                        outcomes.append(type(e))
                assert outcomes[0] == outcomes[1], name
                assert disk.disk.zone(0).wp == 8, name
            await disk.reset(2048, 4096)
            assert [disk.disk.zone(n).wp for n in range(4)] == [8, 2048, 4096, 6152]
            await disk.reset(0)
            assert disk.disk.zone(0).wp == 0

    asyncio.run(main())


def test_a_buffer_is_with_the_disk_meanwhile():
    async def main():
        async with zoneplug.aio.Disk(SPEC + ",fault=any/delay=50ms/count=all") as disk:
            buffer = zoneplug.Buffer(4096)
            first = disk.append(0, buffer)
            assert len(buffer) == 0
            with pytest.raises(BufferError):
                disk.append(0, buffer)
            assert await first == 0
            assert len(buffer) == 4096

    asyncio.run(main())


def test_a_disk_that_was_open_stays_open():
    disk = zoneplug.Disk(SPEC)

    async def main():
        async with zoneplug.aio.Disk(disk) as first, zoneplug.aio.Disk(disk) as second:
            return await asyncio.gather(first.append(0, bytes(4096)), second.append(0, bytes(4096)))

    assert sorted(asyncio.run(main())) == [0, 8]
    assert disk.append(0, bytes(4096)) == 16
    disk.close()


SLOW = ",fault=any/delay=100ms/count=all"


def test_closing_waits_for_operations_whose_await_was_cancelled():
    disk = zoneplug.Disk(SPEC + SLOW)

    async def main():
        async with zoneplug.aio.Disk(disk, depth=1) as loop_disk:
            writes = [loop_disk.write(n * 8, bytes(4096)) for n in range(3)]
            for write in writes:
                write.cancel()

    asyncio.run(main())
    assert disk.zone(0).wp == 24, "an operation is not given up, only its answer"
    disk.close()


def test_a_drain_that_is_cancelled_cancels_no_operation():
    async def main():
        async with zoneplug.aio.Disk(SPEC + SLOW) as disk:
            buffer = zoneplug.Buffer(4096)
            append = disk.append(0, buffer)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(disk.drain(), 0.02)
            # Closing in vain leaves the disk open.
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(disk.aclose(), 0.02)
            assert await append == 0 and len(buffer) == 4096

    asyncio.run(main())


def test_a_disk_that_is_left_by_a_cancellation_ends_all_awaits():
    async def main():
        begun, operations = asyncio.Event(), []

        async def leave():
            async with zoneplug.aio.Disk(SPEC + ",fault=any/delay=1s/count=all") as disk:
                operations.append(asyncio.ensure_future(disk.append(0, bytes(4096))))
                operations.append(asyncio.ensure_future(disk.drain()))
                begun.set()
                await asyncio.sleep(60)

        task = asyncio.ensure_future(leave())
        await begun.wait()
        await asyncio.sleep(0)
        task.cancel()
        ended = await asyncio.wait_for(asyncio.gather(task, *operations, return_exceptions=True), 5)
        assert [type(e) for e in ended] == [asyncio.CancelledError] * 3

    asyncio.run(main())


def test_an_operation_that_comes_while_the_disk_closes_ends():
    async def main():
        disk = zoneplug.aio.Disk(SPEC + SLOW)
        first = disk.append(0, bytes(4096))
        closing = asyncio.ensure_future(disk.aclose())
        await asyncio.sleep(0.05)
        late = disk.append(0, bytes(4096))
        await closing
        assert first.done()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(late, 5)

    asyncio.run(main())


def test_a_drain_waits_for_what_came_before_it_only():
    async def main():
        async with zoneplug.aio.Disk(SPEC + ",fault=writes/delay=300ms/count=all") as disk:
            read = disk.read(0, 4096)
            drained = asyncio.ensure_future(disk.drain())
            await asyncio.sleep(0)
            later = disk.append(0, bytes(4096))
            await drained
            assert read.done() and not later.done()
            await disk.drain()
            assert later.done()

    asyncio.run(main())


#: Public names of `zoneplug.Disk` that `zoneplug.aio.Disk` has not, and why.
ONLY_BLOCKING = {"close": "aclose waits for what is in flight, without blocking the event loop"}


def test_it_has_what_a_disk_has():
    async def main():
        async with zoneplug.aio.Disk(SPEC) as disk:
            with zoneplug.Disk(SPEC) as other:
                public = {name for name in dir(other) if not name.startswith("_")} | zoneplug._PROPERTIES
            assert {name for name in public if not hasattr(disk, name)} == set(ONLY_BLOCKING)
            for name in zoneplug._PROPERTIES:
                assert getattr(disk, name) == getattr(disk.disk, name)
            with pytest.raises(AttributeError, match="a disk has no 'nothing'"):
                disk.nothing  # noqa: B018

    asyncio.run(main())


def test_what_a_disk_says_of_itself(tmp_path):
    path = tmp_path / "disk.zbd"
    zoneplug.create(path, zones=4, zone_size="1M")

    async def main():
        async with zoneplug.aio.Disk(path) as disk:
            await disk.append(0, b"a" * 4096)
            mine = bytearray(4096)
            await disk.read_into(0, mine)
            assert mine == b"a" * 4096
            with pytest.raises(ValueError):
                await disk.read_into(0, bytes(4096))
            assert (await disk.zone(0)).wp == 8 and len(await disk.report()) == 4 and len(await disk.report(2048, 2)) == 2
            assert (await disk.report_array())["wp"][0] == 8
            assert (await disk.snapshot(tmp_path / "copy.zbd")).identity.uuid
            assert disk.counters()["issued"] >= 1 and disk.events() == [] and "zoned_qd1_writes" in disk.attributes()
            await disk.set_attribute("zoned_qd1_writes", "1")
            assert disk.attributes()["zoned_qd1_writes"] == "1"
            await disk.reset_all()
            assert (await disk.zone(0)).wp == 0 and disk.zone_wplugs() == ""
            assert not disk.closed
        assert disk.closed

    asyncio.run(main())
