"""Disks for asyncio: many operations at a time in one event loop, which waits for a descriptor of the disk.

    >>> import asyncio, zoneplug.aio
    >>> async def main():
    ...     async with zoneplug.aio.Disk("mem,zones=4,zone-size=1M") as disk:
    ...         return sorted(await asyncio.gather(*(disk.append(0, bytes(4096)) for _ in range(3))))
    >>> asyncio.run(main())
    [0, 8, 16]
"""

import asyncio
import functools
import os

from . import _PROPERTIES, _zoneplug
from . import Disk as _Disk

__all__ = ["Disk"]


class Disk:
    """A disk whose operations are awaitables: that of a specification, or one that is open already.

    Operations are submitted in the order of the calls, not of the awaits, as writes to one zone need; up to `depth` are
    at the device, more wait in order. Cancelling an await gives up its answer, not the operation. It belongs to the event
    loop that runs when it is made.
    """

    def __init__(self, disk, depth=64):
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._own = isinstance(disk, (str, os.PathLike))
        #: The disk, for threads beside the event loop.
        self.disk = _Disk(disk) if self._own else disk
        self._queue = _zoneplug.Queue(self.disk, depth)
        #: Futures of operations that have not ended, by number.
        self._waiting = {}
        #: For each drain the numbers that it waits for, and its future.
        self._drains = []
        self._loop.add_reader(self._queue.fileno(), self._ended)

    def __getattr__(self, name):
        # The numbers of the disk, such as `nr_zones`.
        if name in _PROPERTIES:
            return getattr(self.disk, name)
        raise AttributeError(f"a disk has no {name!r}")

    def read(self, sector, nbytes):
        """Reads `nbytes` at `sector`: the answer is a `Buffer`."""
        return self._answer(self._queue.read(sector, nbytes))

    async def read_into(self, sector, buffer):
        """Reads at `sector` as many bytes as `buffer` has, into it."""
        with memoryview(buffer) as view:
            if view.readonly:
                raise ValueError("the buffer cannot be written")
            with view.cast("B") as target:
                target[:] = await self.read(sector, target.nbytes)

    def write(self, sector, data, *, fua=False):
        """Writes `data` at `sector`, the write pointer once the writes before are done: the answer is the sector."""
        return self._answer(self._queue.write(sector, data, False, fua))

    def append(self, zone_start, data, *, fua=False):
        """Appends `data` to the zone that starts at `zone_start`: the answer is the sector at which they landed."""
        return self._answer(self._queue.write(zone_start, data, True, fua))

    def flush(self):
        """Makes durable what was acknowledged before."""
        return self._answer(self._queue.manage("flush", 0, 0))

    def discard(self, sector, nr_sectors):
        """Forgets the data of a range of conventional zones."""
        return self._answer(self._queue.manage("discard", sector, nr_sectors))

    def write_zeroes(self, sector, nr_sectors):
        """Writes zeroes, in order like a write."""
        return self._answer(self._queue.manage("write_zeroes", sector, nr_sectors))

    def reset(self, sector, nr_sectors=None):
        """Empties the zones of a range; without a length the zone at `sector`."""
        return self._manage("zone_reset", sector, nr_sectors)

    def reset_all(self):
        """Empties every sequential zone."""
        return self._answer(self._queue.manage("zone_reset_all", 0, 0))

    def finish(self, sector, nr_sectors=None):
        """Makes the zones of a range full; without a length the zone at `sector`."""
        return self._manage("zone_finish", sector, nr_sectors)

    def open_zone(self, sector, nr_sectors=None):
        """Opens the zones of a range explicitly; without a length the zone at `sector`."""
        return self._manage("zone_open", sector, nr_sectors)

    def close_zone(self, sector, nr_sectors=None):
        """Closes the open zones of a range; without a length the zone at `sector`."""
        return self._manage("zone_close", sector, nr_sectors)

    async def report(self, sector=0, nr=None, *, resync=False):
        """A list of up to `nr` `Zone`s from the one that holds `sector` on, as the device reports them."""
        return await self._in_thread(self.disk.report, sector, nr, resync=resync)

    async def report_array(self, sector=0, nr=None, *, resync=False):
        """As `report`, as a NumPy structured array."""
        return await self._in_thread(self.disk.report_array, sector, nr, resync=resync)

    async def zone(self, nr):
        """The zone of this number, as the device reports it."""
        return await self._in_thread(self.disk.zone, nr)

    async def snapshot(self, path, *, keep_uuid=False):
        """Copies the disk to the new file `path` while it is in use, and returns a `Snapshot`."""
        return await self._in_thread(self.disk.snapshot, path, keep_uuid=keep_uuid)

    async def set_attribute(self, name, value):
        """Changes an attribute, and returns when it has taken effect."""
        await self._in_thread(self.disk.set_attribute, name, value)

    def counters(self):
        """What the disk has counted since it was opened. Does not wait."""
        return self.disk.counters()

    def events(self, after=0):
        """A list of the `Event`s with numbers above `after`, the oldest first. Does not wait."""
        return self.disk.events(after)

    def attributes(self):
        """The attributes of the disk. Does not wait."""
        return self.disk.attributes()

    def zone_wplugs(self):
        """The plug dump, in the form of Linux's `zone_wplugs`. Does not wait."""
        return self.disk.zone_wplugs()

    @property
    def closed(self):
        """Whether the queue of operations or the disk is closed."""
        return self._is_closed or self.disk.closed

    async def drain(self):
        """Waits until nothing that was submitted before is in flight."""
        # Not for the futures: those that were cancelled are done, and their operations are not.
        numbers = set(self._waiting)
        if not numbers:
            return
        drain = (numbers, self._loop.create_future())
        self._drains.append(drain)
        try:
            await drain[1]
        finally:
            self._drains.remove(drain)

    async def aclose(self):
        """Waits for what is in flight, and closes the queue; a disk that was opened here is closed too.

        Operations that are submitted meanwhile go on, and their awaits are cancelled.
        """
        await self.drain()
        self._close()

    def _close(self):
        self._is_closed = True
        self._loop.remove_reader(self._queue.fileno())
        self._queue.close()
        # No answer comes any more, so nothing else would end these awaits.
        for future in [*self._waiting.values(), *(drained for _, drained in self._drains)]:
            future.cancel()
        if self._own:
            self.disk.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, *_):
        if kind is not None and not issubclass(kind, Exception):
            # Cancelled, for example by Ctrl-C: the task must not wait for a slow disk. Operations in flight go on.
            self._close()
        else:
            await self.aclose()

    async def _in_thread(self, call, *arguments, **keywords):
        # For calls that wait and that a queue does not have.
        return await self._loop.run_in_executor(None, functools.partial(call, *arguments, **keywords))

    def _manage(self, op, sector, nr_sectors):
        length = self.disk.zone_sectors if nr_sectors is None else nr_sectors
        return self._answer(self._queue.manage(op, sector, length))

    def _answer(self, number):
        future = self._waiting[number] = self._loop.create_future()
        return future

    def _ended(self):
        for number, answer in self._queue.poll():
            future = self._waiting.pop(number)
            for numbers, drained in self._drains:
                numbers.discard(number)
                if not numbers and not drained.done():
                    drained.set_result(None)
            if future.done():
                continue  # Cancelled.
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
