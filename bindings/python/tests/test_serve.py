"""Disks that a program serves."""

import errno
import gc
import json
import socket
import struct
import urllib.request

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
    with pytest.raises(errors.Error) as e:
        zoneplug.serve("mem,zones=8", "mem,zones=8")
    assert e.value.reason == "DiskTwice"
    with pytest.raises(errors.Error) as e:
        zoneplug.serve(tmp_path / "missing.zbd")
    assert e.value.errno == errno.ENOENT
    with zoneplug.serve("mem,zones=8", address="0.0.0.0:0", allow_host=["nqn.2026-11.org.example:host"]):
        pass


def host_connects(served, host):
    """Connects as a host. Returns the status of the connect command, and whether the host must authenticate."""
    connection = socket.create_connection(("127.0.0.1", served.address[1]), timeout=5)
    with connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack("<BBBBIHBBI112x", 0, 0, 128, 0, 128, 0, 0, 0, 0))
        assert answers.read(128)[0] == 1
        # Connect with 1,024 bytes in the capsule: the admin queue of any controller.
        command = struct.pack("<BBHB19xQIHBBHHHBxI12x", 0x7F, 0x40, 1, 1, 0, 1024, 0, 0, 1, 0, 0, 31, 0, 0)
        data = struct.pack("<16sH238x256s256s256x", bytes(16), 0xFFFF, served.nqn.encode(), host.encode())
        connection.sendall(struct.pack("<BBBBI", 4, 0, 72, 72, 72 + 1024) + command + data)
        answer = answers.read(24)
        result, status = struct.unpack("<Q6xH", answer[8:])
        return status >> 1, result >> 17 & 1 == 1


def test_options_arrive(tmp_path):
    def start(**arguments):
        return zoneplug.serve("mem,zones=8", **{"address": "0.0.0.0:0", **arguments})

    host, other = (f"nqn.2026-11.org.example:{name}" for name in ("host", "other"))
    invalid_host = 0x4184
    with start(allow_host=["nqn.2026-11.org.example:first", host]) as served:
        assert host_connects(served, host) == (0, False)
        assert host_connects(served, other) == (invalid_host, False)
    with start(allow_any_host=True) as served:
        assert host_connects(served, other) == (0, False)
    key, own = tmp_path / "key", tmp_path / "own"
    key.write_text("DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:")
    own.write_text("DHHC-1:02:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTvGwQfg==:")
    for file in (key, own):
        file.chmod(0o600)
    for ctrl in (None, own):
        with start(dhchap_key={host: key}, dhchap_ctrl_key=ctrl) as served:
            assert host_connects(served, host) == (0, True)
            assert host_connects(served, other) == (invalid_host, False)
            assert "--dhchap-secret" in served.lines[2]
            assert ("--dhchap-ctrl-secret" in served.lines[2]) == (ctrl is not None)
    with start(address="127.0.0.2:0", metrics="127.0.0.1:0") as served:
        assert served.address[0] == "127.0.0.2"
        (url,) = (line.removeprefix("metrics at ") for line in served.lines if line.startswith("metrics at "))
        with urllib.request.urlopen(url, timeout=5) as page:
            assert b"zoneplug_build_info" in page.read()
