"""Disks that a program serves."""

import gc
import json
import socket

import pytest

import zoneplug
from zoneplug import errors


def connects(address):
    try:
        socket.create_connection(address, timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_disk_is_served_and_ended(tmp_path):
    path = tmp_path / "a,b.zbd"
    zoneplug.create(path, zones=4, zone_size="1M")
    with zoneplug.serve(path, "mem,zones=8", nqn="nqn.2026-11.org.example:test") as served:
        assert served.is_served and connects(served.address) and served.nqn in repr(served)
        assert len(served.lines) >= 3 and served.nqn in served.lines[0]
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(served.socket))
            control.sendall(b'{"cmd":"status"}\n')
            status = json.loads(control.makefile().readline())
        assert served.nqn in json.dumps(status)
        with pytest.raises(errors.Error, match="open for writing"):
            zoneplug.Disk(path)
    assert not served.is_served and not connects(served.address) and not served.socket.exists()
    served.stop()
    with zoneplug.Disk(path) as disk:
        assert disk.append(0, bytes(4096)) == 0


def test_one_that_nobody_has_ends():
    served = zoneplug.serve("mem,zones=8")
    address = served.address
    assert connects(address)
    del served
    gc.collect()
    assert not connects(address)


def test_a_start_that_fails_says_why(tmp_path):
    with zoneplug.serve("mem,zones=8", socket=tmp_path / "socket") as served:
        host, port = served.address
        with pytest.raises(errors.Error) as e:
            zoneplug.serve("mem,zones=8", address=f"{host}:{port}")
        assert str(port) in str(e.value)
    for arguments in ({"address": "0.0.0.0:0"}, {"nqn": "x"}, {"address": "nowhere"}):
        with pytest.raises(errors.Error) as e:
            zoneplug.serve("mem,zones=8", **arguments)
        assert e.value.hint
    with pytest.raises(errors.Error):
        zoneplug.serve("mem,zones=0")
    with zoneplug.serve("mem,zones=8", address="0.0.0.0:0", allow_host=["nqn.2026-11.org.example:host"]):
        pass
