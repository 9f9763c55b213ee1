"""Disks in files: made, checked, copied while they are in use."""

import errno

import pytest

import zoneplug
from zoneplug import errors


def test_a_disk_is_made_used_and_checked(tmp_path):
    path = tmp_path / "a b,c.zbd"
    made = zoneplug.create(path, zones=6, zone_size="1M", zone_capacity=768 << 10, conv=1, max_open=3, label="mine")
    assert (made.label, made.opened_for_writing, len(made.uuid)) == ("mine", 0, 36)
    with zoneplug.Disk(path) as disk:
        assert (disk.nr_zones, disk.zone_sectors, disk.zone_capacity_sectors) == (6, 2048, 1536)
        assert (disk.nr_conventional_zones, disk.max_open_zones) == (1, 3)
        disk.append(2048, b"a" * 4096)
        with pytest.raises(errors.Error) as e:
            zoneplug.check(path, repair=True)
        assert e.value.errno == errno.EBUSY and e.value.hint
    report = zoneplug.check(path, repair=True)
    assert report and (report.problems, report.zones, report.left) == (0, 6, 0), str(report)


def test_every_option_of_create_is_in_the_disk(tmp_path):
    path, sized = tmp_path / "disk.zbd", tmp_path / "sized.zbd"
    sizes = {"zone_size": "1M", "zone_capacity": "768K", "last_zone_size": "512K", "last_zone_capacity": "256K"}
    limits = {"max_open": 3, "max_active": 4, "lba_size": 512, "granularity": "8K", "zone_append_max": "32K"}
    zoneplug.create(path, zones=8, conv=2, label="mine", **sizes, **limits)
    with zoneplug.Disk(path) as disk:
        assert (disk.nr_zones, disk.zone_sectors, disk.zone_capacity_sectors) == (8, 2048, 1536)
        assert (disk.nr_conventional_zones, disk.max_open_zones, disk.max_active_zones) == (2, 3, 4)
        assert (disk.logical_block_sectors, disk.write_granularity_sectors) == (1, 16)
        assert disk.zone_append_max_sectors == 64
        last = disk.report()[-1]
        assert (last.len, last.capacity) == (1024, 512)
    for allocated in (False, True):
        zoneplug.create(sized, size="16M", zone_size="4M", preallocate=allocated, force=True)
        assert (sized.stat().st_blocks * 512 >= 16 << 20) == allocated
    with zoneplug.Disk(sized) as disk:
        assert (disk.nr_zones, disk.zone_sectors) == (4, 8192)


def test_a_damaged_disk_is_found_and_repaired(tmp_path):
    path = tmp_path / "disk.zbd"
    zoneplug.create(path, zones=4, zone_size="1M")
    with open(path, "r+b") as file:
        file.write(bytes(512))
    report = zoneplug.check(path)
    assert not report and report.left == 1 and "superblock is damaged" in str(report)
    assert zoneplug.check(path, repair=True).repaired == 1
    assert zoneplug.check(path)


def test_a_snapshot_of_a_disk_in_use_has_what_was_acknowledged(tmp_path):
    path, copy = tmp_path / "disk.zbd", tmp_path / "copy.zbd"
    made = zoneplug.create(path, zones=4, zone_size="1M")
    with zoneplug.Disk(path) as disk:
        disk.append(0, b"a" * 4096)
        snapshot = disk.snapshot(copy)
        disk.append(0, b"b" * 4096)
        with pytest.raises(errors.Error) as e:
            disk.snapshot(copy)
        assert e.value.errno == errno.EBUSY and "copy.zbd exists" in str(e.value)
        assert bytes(disk.read(8, 4096)) == b"b" * 4096
        kept = disk.snapshot(tmp_path / "same.zbd", keep_uuid=True)
    assert snapshot.identity.uuid != made.uuid == kept.identity.uuid
    assert zoneplug.check(copy)
    with zoneplug.Disk(copy) as disk:
        assert disk.zone(0).wp == 8 and bytes(disk.read(0, 4096)) == b"a" * 4096
    with zoneplug.Disk("mem,zones=4") as disk, pytest.raises(errors.Error) as e:
        disk.snapshot(tmp_path / "none.zbd")
    assert e.value.errno == errno.EOPNOTSUPP


def _hints(tmp_path):
    """Calls that fail each in another way, with the hints of their errors."""
    path = tmp_path / "disk.zbd"
    zoneplug.create(path, zones=4, zone_size="1M")
    (tmp_path / "other").write_bytes(bytes(8192))
    with zoneplug.Disk(path), zoneplug.Disk("mem,zones=4,zone-size=1M") as disk:
        for call in (
            lambda: zoneplug.create(path, zones=4),
            lambda: zoneplug.create(tmp_path / "x", size="1G", zones=4),
            lambda: zoneplug.create(tmp_path / "x"),
            lambda: zoneplug.create(tmp_path / "x", size="much"),
            lambda: zoneplug.create(tmp_path / "x", zones=4, zone_size=1000),
            lambda: zoneplug.create(tmp_path / "x", zones=4, zone_size="1M", zone_capacity="2M"),
            lambda: zoneplug.create(tmp_path / "x", zones=1 << 40),
            lambda: zoneplug.create(tmp_path / "x", zones=1 << 20, zone_size="1G", preallocate=True),
            lambda: zoneplug.check(tmp_path / "other"),
            lambda: zoneplug.check(path, repair=True),
            lambda: zoneplug.Disk(tmp_path / "other"),
            lambda: zoneplug.Disk(tmp_path / "missing"),
            lambda: zoneplug.Disk(path),
            lambda: zoneplug.Disk("mem,zone=4"),
            lambda: disk.snapshot(path),
            lambda: disk.set_attribute("zoned_qd", "1"),
            lambda: disk.write(8, bytes(4096)),
            lambda: zoneplug.ZoneLog(disk, zones=range(3, 4)),
            lambda: zoneplug.serve("mem,zones=4", address="0.0.0.0:0"),
            lambda: zoneplug.serve("mem,zones=4", allow_host=["nqn.2026-11.org.example:a"], allow_any_host=True),
            lambda: zoneplug.serve("mem,zones=4", nqn="x"),
            lambda: zoneplug.serve("mem,zones=4", address="here"),
            lambda: zoneplug.serve(),
            lambda: zoneplug.crash.Disk("null,zones=4"),
        ):
            with pytest.raises(errors.Error) as e:
                call()
            yield str(e.value), e.value.hint


def test_hints_speak_python(tmp_path):
    hints = list(_hints(tmp_path))
    wrong = [(text, hint) for text, hint in hints if hint and ("--" in hint or "zp_" in hint)]
    assert not wrong
    said = dict(hints)
    assert "choose another name, or say force=True to lose what is in it" in said.values(), said
    assert any(hint and "zoneplug.create(path" in hint for hint in said.values()), said
    assert any(hint and "allow_any_host=True" in hint for hint in said.values()), said


def test_reasons_are_names(tmp_path):
    path = tmp_path / "disk"
    zoneplug.create(path, zones=4, zone_size="1M")
    for call, reason in (
        (lambda: zoneplug.create(path, zones=4), "Exists"),
        (lambda: zoneplug.Disk("mem,zonse=4"), "UnknownKey"),
        (lambda: zoneplug.Disk("mem,zones=0"), "Value"),
        (lambda: zoneplug.serve("mem,zones=4", address="0.0.0.0:0"), "Open"),
        (lambda: zoneplug.Disk("mem,zones=4").write(1 << 20, bytes(4096)), "OutOfRange"),
    ):
        with pytest.raises(errors.Error) as e:
            call()
        assert e.value.reason == reason, e.value
