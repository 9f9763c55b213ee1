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


def record(disk: zoneplug.Disk) -> bytes:
    log: zoneplug.ZoneLog = zoneplug.ZoneLog(disk, zones=range(0, 4))
    at: zoneplug.LogAddress = log.append(b"hello", sync=True)
    names: list[bytes] = [record.data for record in log.records(at)]
    return log.read(zoneplug.LogAddress(bytes(at))) + names[0]


def files() -> bool:
    identity: zoneplug.Identity = zoneplug.create("disk.zbd", zones=8, zone_size="1M")
    with zoneplug.Disk("disk.zbd") as disk:
        copied: int = disk.snapshot("copy.zbd").copied_bytes
    with zoneplug.serve("disk.zbd") as served:
        port: int = served.address[1]
    with zoneplug.serve("disk.zbd", iscsi="127.0.0.1:0", chap_secret={"iqn.2026-11.org.example:a": "file"}) as served:
        port = served.iscsi_address[1]
    return bool(zoneplug.check("copy.zbd")) and len(identity.uuid) < copied + port


def cuts(work: zoneplug.crash.Work) -> None:
    work.promise(work.disk.append(0, bytes(4096), fua=True))


def cut() -> int:
    with zoneplug.crash.Disk("mem,zones=4", seed=3) as disk:
        disk.power_cut()
    return zoneplug.crash.test(cuts, lambda disk, promised: None, seeds=range(3)).cuts


async def together(disk: zoneplug.aio.Disk) -> bytes:
    at: int = await disk.append(0, bytes(4096))
    return bytes(await disk.read(at, 4096))
