"""A program as mypy sees it: not run, but checked against the stubs."""

import zoneplug
import zoneplug.aio


def wait(disk: zoneplug.Disk) -> int:
    at: int = disk.append(0, b"x" * 4096, fua=True)
    disk.write(at + 8, memoryview(b"y" * 4096))
    disk.reset(0)
    zones: list[zoneplug.Zone] = disk.report(nr=3)
    return zones[0].wp + disk.nr_zones + len(disk.read(at, 4096))


def nearest(view: zoneplug.View) -> int:
    return view.zones.index(view.last) if view.last in view.zones else len(view) - 1


class Patient:
    def pick(self, view: zoneplug.View) -> int:
        return 0

    def stay(self, view: zoneplug.View) -> bool:
        return view.turn_waits < 3


def compare() -> float:
    rows = [zoneplug.measure("sim-smr30", zones=8, policy=p)["jobs"]["mb_per_s"] for p in (nearest, Patient(), "fifo")]
    replayed: list[dict[str, object]] = zoneplug.replay(b"..", disk=["sim-smr30"], policies=["off", nearest], speed="asap")
    tables: dict[str, object] = zoneplug.reproduce(["zns"], quick=True)
    worlds: int = zoneplug.simulate(range(9), stop_at_first=False)["worlds"]
    return max(*rows, len(replayed), len(tables), worlds)


async def together(disk: zoneplug.aio.Disk) -> bytes:
    at: int = await disk.append(0, bytes(4096))
    return bytes(await disk.read(at, 4096))
