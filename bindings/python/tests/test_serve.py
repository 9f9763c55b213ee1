"""Disks that a program serves."""

import errno
import functools
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


INITIATOR = "iqn.2026-11.org.example:initiator"


class Initiator:
    """A session of iSCSI with the first unit, as far as the tests need one."""

    def __init__(self, address):
        self.socket = socket.create_connection(("127.0.0.1", address[1]), timeout=20)
        self.answers = self.socket.makefile("rb")
        self.number = 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.answers.close()
        self.socket.close()

    def send(self, header, data=b""):
        header[5:8] = len(data).to_bytes(3, "big")
        self.socket.sendall(bytes(header) + data + bytes(-len(data) % 4))

    def receive(self):
        header = self.answers.read(48)
        length = int.from_bytes(header[5:8], "big")
        return header, self.answers.read(length + -length % 4)[:length]

    def log_in(self, target, initiator=INITIATOR, method=""):
        """Returns the class and detail of the answer, and its keys."""
        header = bytearray(48)
        header[0], header[1] = 0x43, 0x81 if method else 0x87
        header[13] = 1
        header[24:28] = self.number.to_bytes(4, "big")
        keys = f"InitiatorName={initiator}\0TargetName={target}\0"
        keys += f"AuthMethod={method}\0" if method else "InitialR2T=No\0"
        self.send(header, keys.encode())
        answer, text = self.receive()
        return (answer[36], answer[37]), text.decode()

    def command(self, cdb, expected=0, data=b""):
        """Returns the status and the data of a command."""
        header = bytearray(48)
        header[0], header[1] = 0x01, 0xA0 if data else 0xC0
        header[16:20] = self.number.to_bytes(4, "big")
        header[20:24] = (len(data) or expected).to_bytes(4, "big")
        header[24:28] = self.number.to_bytes(4, "big")
        header[32 : 32 + len(cdb)] = cdb
        self.number += 1
        self.send(header, data)
        read = b""
        while True:
            answer, text = self.receive()
            if answer[0] & 0x3F == 0x21:
                return answer[3], read or text
            assert answer[0] & 0x3F == 0x25
            read += text
            if answer[1] & 1:
                return answer[3], read


def blocks(code, lba, count):
    return struct.pack(">BBIBHB", code, 0, lba, 0, count, 0)


def test_a_disk_is_served_over_iscsi(tmp_path):
    path = tmp_path / "d.zbd"
    zoneplug.create(path, zones=4, zone_size="1M")
    data = bytes(range(256)) * 32
    with zoneplug.serve(path, iscsi="127.0.0.1:0", iqn="iqn.2026-11.org.example:test") as served:
        assert served.iqn in repr(served) and served.iqn in served.lines[0] and served.nqn == ""
        with pytest.raises(errors.Error, match="not served over NVMe/TCP"):
            print(served.address)
        with Initiator(served.iscsi_address) as initiator:
            assert initiator.log_in(served.iqn)[0] == (0, 0)
            assert initiator.command(bytes(6))[0] == 0
            assert initiator.command(blocks(0x2A, 0, 2), data=data)[0] == 0
            assert initiator.command(blocks(0x28, 0, 2), len(data)) == (0, data)
            with socket.socket(socket.AF_UNIX) as control:
                control.connect(str(served.socket))
                control.sendall(b'{"cmd":"status"}\n')
                assert INITIATOR in control.makefile().readline()
            served.stop()
            assert initiator.answers.read(1) == b""
    assert not connects(served.iscsi_address)
    with zoneplug.Disk(path) as disk:
        assert bytes(disk.read(0, len(data))) == data


def test_a_disk_is_served_over_both_protocols():
    with zoneplug.serve("mem,zones=4,conv=2", address="127.0.0.1:0", iscsi="127.0.0.1:0", conventional_only=True) as served:
        assert host_connects(served, "nqn.2026-11.org.example:host") == (0, False)
        with Initiator(served.iscsi_address) as initiator:
            assert initiator.log_in(served.iqn)[0] == (0, 0)
            assert initiator.command(bytes(6))[0] == 0
            status, inquiry = initiator.command(bytes([0x12, 0, 0, 0, 96, 0]), 96)
            assert (status, inquiry[0]) == (0, 0), "a plain disk"


def test_options_of_iscsi_arrive(tmp_path):
    def start(**arguments):
        return zoneplug.serve("mem,zones=8", **{"iscsi": "0.0.0.0:0", **arguments})

    def log_in(served, name, method=""):
        with Initiator(served.iscsi_address) as initiator:
            return initiator.log_in(served.iqn, name, method)

    other = "iqn.2026-11.org.example:other"
    with start(allow_initiator=[other, INITIATOR]) as served:
        assert log_in(served, INITIATOR)[0] == (0, 0)
        assert log_in(served, "iqn.2026-11.org.example:third")[0] == (2, 2)
    with start(allow_any_initiator=True) as served:
        assert log_in(served, other)[0] == (0, 0)
    secret, own = tmp_path / "secret", tmp_path / "own"
    secret.write_text("secret of a host")
    own.write_text("secret of the disk")
    for file in (secret, own):
        file.chmod(0o600)
    with start(chap_secret={INITIATOR: secret}, chap_target_secret=own) as served:
        status, keys = log_in(served, INITIATOR, "CHAP")
        assert status == (0, 0) and "AuthMethod=CHAP" in keys
        assert log_in(served, INITIATOR)[0] == (2, 1), "no proof"
        assert log_in(served, other)[0] == (2, 2)


def test_a_start_over_iscsi_that_fails_says_why(tmp_path):
    at = "127.0.0.1:0"
    for arguments, what in [
        ({"iscsi": "here"}, "'here' is no address"),
        ({"iscsi": at, "iqn": "x"}, "no name of iSCSI"),
        ({"iscsi": "0.0.0.0:0"}, "any initiator could log in"),
        ({"iscsi": at, "chap_secret": {INITIATOR: tmp_path / "none"}}, "none"),
        ({"allow_initiator": [INITIATOR]}, "options of iSCSI"),
        ({"conventional_only": True}, "options of iSCSI"),
        ({"iscsi": at, "allow_any_host": True}, "options of NVMe/TCP"),
    ]:
        with pytest.raises(errors.Error, match=what) as e:
            zoneplug.serve("mem,zones=8", **arguments)
        assert e.value.hint
        # The hint names arguments of Python.
        assert "--" not in e.value.hint


def test_hints_name_arguments_as_they_are_given():
    with pytest.raises(errors.Error) as e:
        zoneplug.serve("mem,zones=8", iscsi="0.0.0.0:0")
    assert "chap_secret={IQN: FILE}; allow_initiator=[IQN]" in e.value.hint
    assert e.value.hint.endswith("allow_any_initiator=True")
    assert e.value.reason == "Open"
    with pytest.raises(errors.Error) as e:
        zoneplug.serve("mem,zones=8", address="0.0.0.0:0")
    assert "dhchap_key={NQN: FILE}; allow_host=[NQN]" in e.value.hint
    assert e.value.hint.endswith("allow_any_host=True")


def test_one_name_in_place_of_a_list_is_refused():
    for arguments, hint in [
        ({"iscsi": "0.0.0.0:0", "allow_initiator": INITIATOR}, f"allow_initiator=['{INITIATOR}']"),
        ({"allow_host": "nqn.2026-11.org.example:a"}, "allow_host=['nqn.2026-11.org.example:a']"),
    ]:
        with pytest.raises(errors.Error, match="is a str") as e:
            zoneplug.serve("mem,zones=8", **arguments)
        assert (e.value.errno, e.value.hint) == (errno.EINVAL, hint)


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


def test_two_servers_without_names_have_names_of_their_own():
    start = functools.partial(zoneplug.serve, "mem,zones=8", address="127.0.0.1:0", iscsi="127.0.0.1:0")
    with start() as first, start() as second:
        for served in (first, second):
            assert served.nqn.startswith("nqn.") and served.iqn.startswith("iqn.")
        assert first.nqn != second.nqn and first.iqn != second.iqn
