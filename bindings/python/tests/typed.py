"""A program as mypy sees it: not run, but checked against the stubs."""

import zoneplug
import zoneplug.aio


def wait(disk: zoneplug.Disk) -> int:
    at: int = disk.append(0, b"x" * 4096, fua=True)
    disk.write(at + 8, memoryview(b"y" * 4096))
    disk.reset(0)
    zones: list[zoneplug.Zone] = disk.report(nr=3)
    return zones[0].wp + disk.nr_zones + len(disk.read(at, 4096))


async def together(disk: zoneplug.aio.Disk) -> bytes:
    at: int = await disk.append(0, bytes(4096))
    return bytes(await disk.read(at, 4096))
