"""A host of NVMe/TCP with one I/O queue, as much of one as an attack needs. Shares no code with zoneplug."""

import socket
import struct

NAME = "nqn.2014-08.org.nvmexpress:uuid:a77ac4a7-7ac4-a77a-c4a7-7ac4a77ac4a7"
BLOCK = 4096
FLUSH, WRITE, READ, ADMIN_IDENTIFY, SET_FEATURES, ZONE_SEND, ZONE_RECEIVE, APPEND, FABRICS = (
    0, 1, 2, 6, 9, 0x79, 0x7a, 0x7d, 0x7f)
IC_REQUEST, CAPSULE, RESPONSE, TO_CONTROLLER, TO_HOST, READY = 0, 4, 5, 6, 7, 9
# Enabled, all command sets, entries of 64 and 16 bytes.
CONFIGURATION = 0x00460061


class Lost(Exception):
    """The connection has ended."""


class Queue:
    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.next, self.out, self.data, self.done, self.capsule = 0, {}, {}, {}, 8192
        self.send(struct.pack("<BBBBIHBBI112x", IC_REQUEST, 0, 128, 0, 128, 0, 0, 0, 0))
        self.chunk = struct.unpack_from("<I", self.pdu()[1], 4)[0]

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError as e:
            raise Lost(str(e)) from None

    def receive(self, length):
        data = bytearray()
        while len(data) < length:
            try:
                more = self.socket.recv(length - len(data))
            except OSError as e:
                raise Lost(str(e)) from None
            if not more:
                raise Lost("the server has ended the connection")
            data += more
        return bytes(data)

    def pdu(self):
        """The kind of the next PDU, its header behind the common one, its data."""
        kind, _, head, start, length = struct.unpack("<BBBBI", self.receive(8))
        body = self.receive(length - 8)
        return kind, body[:head - 8], body[start - 8:] if start else b""

    def submit(self, opcode, nsid=0, data=b"", take=0, words=b"", fabrics=None):
        """Sends a command. `words`: its bytes from 40 on. Returns its number."""
        cid = self.next
        self.next = (cid + 1) & 0x7fff
        inside = bool(data) and len(data) <= self.capsule
        if inside:
            pointer = struct.pack("<QI3xB", 0, len(data), 0x01)
        else:
            pointer = struct.pack("<QI3xB", 0, len(data) or take, 0x5a)
        first = nsid if fabrics is None else fabrics
        entry = struct.pack("<BBHI16x16s24s", opcode, 0x40, cid, first, pointer, words)
        body = data if inside else b""
        self.out[cid], self.data[cid] = data, bytearray(take)
        self.send(struct.pack("<BBBBI", CAPSULE, 0, 72, 72 if body else 0, 72 + len(body)) + entry + body)
        return cid

    def step(self):
        """Takes one PDU."""
        kind, head, data = self.pdu()
        if kind == RESPONSE:
            result, status = struct.unpack("<Q4xHH", head[:16])[0], struct.unpack_from("<HH", head, 12)
            self.done[status[0]] = (status[1] >> 1, result)
        elif kind == TO_HOST:
            cid, _, at, length = struct.unpack_from("<HHII", head)
            self.data[cid][at:at + length] = data
        elif kind == READY:
            cid, tag, at, length = struct.unpack_from("<HHII", head)
            end = at + length
            while at < end:
                part = self.out[cid][at:min(end, at + self.chunk)]
                last = 4 if at + len(part) == end else 0
                self.send(struct.pack("<BBBBIHHII4x", TO_CONTROLLER, last, 24, 24, 24 + len(part), cid, tag, at, len(part)) + part)
                at += len(part)
        else:
            raise Lost(f"a PDU of kind {kind}")

    def wait(self, cid):
        """Status, result and data of a command."""
        while cid not in self.done:
            self.step()
        del self.out[cid]
        return (*self.done.pop(cid), bytes(self.data.pop(cid)))

    def ask(self, *args, **more):
        status, result, data = self.wait(self.submit(*args, **more))
        if status:
            raise Lost(f"status {status:#x} of command {args[0]:#x}")
        return result, data

    def connect(self, qid, controller, subsystem, entries):
        data = b"\xa7" * 16 + struct.pack("<H238x256s256s256x", controller, subsystem.encode(), NAME.encode())
        return self.ask(FABRICS, data=data, words=struct.pack("<HHHBxI", 0, qid, entries - 1, 0, 0), fabrics=1)[0] & 0xffff


class Host:
    """An admin queue and an I/O queue."""

    def __init__(self, address, subsystem):
        self.admin = Queue(address)
        controller = self.admin.connect(0, 0xffff, subsystem, 32)
        self.admin.ask(FABRICS, words=struct.pack("<B3xIQ", 0, 0x14, CONFIGURATION), fabrics=0)
        identity = self.admin.ask(ADMIN_IDENTIFY, take=4096, words=struct.pack("<I", 1))[1]
        self.admin.ask(SET_FEATURES, words=struct.pack("<II", 7, 0))
        self.io = Queue(address)
        self.io.connect(1, controller, subsystem, 128)
        # The most data that a capsule may have beside the command.
        self.capsule = self.io.capsule = struct.unpack_from("<I", identity, 1792)[0] * 16 - 64

    def namespaces(self):
        """The numbers that there are, and the UUID of each."""
        listed = self.admin.ask(ADMIN_IDENTIFY, take=4096, words=struct.pack("<I", 2))[1]
        return {n: self.uuid(n) for n in struct.unpack("<1024I", listed) if n}

    def uuid(self, nsid):
        text = self.admin.ask(ADMIN_IDENTIFY, nsid, take=4096, words=struct.pack("<I", 3))[1]
        at = 0
        while text[at]:
            if text[at] == 3:
                return text[at + 4:at + 20].hex()
            at += 4 + text[at + 1]
        return None

    def write(self, nsid, block, data, opcode=WRITE):
        return self.io.submit(opcode, nsid, data, words=struct.pack("<QI", block, len(data) // BLOCK - 1))

    def read(self, nsid, block, count):
        return self.io.ask(READ, nsid, take=count * BLOCK, words=struct.pack("<QI", block, count - 1))[1]

    def flush(self, nsid):
        self.io.ask(FLUSH, nsid)

    def reset(self, nsid, block):
        self.io.ask(ZONE_SEND, nsid, words=struct.pack("<QII", block, 0, 4))

    def pointer(self, nsid, block):
        """The write pointer of the zone that begins there."""
        report = self.io.ask(ZONE_RECEIVE, nsid, take=128, words=struct.pack("<QII", block, 31, 0))[1]
        return struct.unpack_from("<Q", report, 64 + 24)[0]

    def close(self):
        for queue in (self.io, self.admin):
            queue.socket.close()
