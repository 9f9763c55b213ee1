#!/usr/bin/env python3
# Computes vectors.txt: whole transactions of DH-HMAC-CHAP, by another implementation than the crate's. It uses hashlib, hmac,
# zlib, base64 and integers of Python, and computes the primes of RFC 7919 by their formula.
#
#   python3 crates/nvme/src/dhchap/vectors.py > crates/nvme/src/dhchap/vectors.txt
#
# Messages follow section 8.13 of the NVM Express Base Specification 2.0. Each side's random bytes are its challenge, its private
# value (the highest bit is set) and its sequence number, as `Random` takes them.
import base64, hashlib, hmac, struct, zlib

HOST = b"nqn.2014-08.org.nvmexpress:uuid:4d5a6c1e-0000-4000-8000-00000000cafe"
SUBSYSTEM = b"nqn.2026-11.dev.zoneplug:vectors"
HASHES = {1: ("sha256", 32), 2: ("sha384", 48), 3: ("sha512", 64)}
# X and bytes of a private value.
GROUPS = {0: None, 1: (2048, 560316, 32), 2: (3072, 2625351, 36), 3: (4096, 5736041, 42), 4: (6144, 15705020, 48), 5: (8192, 10965728, 52)}


def e_times_2_to(bits):
    """floor(e * 2^bits), from the series of e."""
    term, total, k = 1 << bits + 64, 0, 0
    while term:
        total += term
        k += 1
        term //= k
    return total >> 64


def prime(bits, x):
    return 2**bits - 2 ** (bits - 64) + (e_times_2_to(bits - 130) + x) * 2**64 - 1


def stream(seed, n):
    return b"".join(hashlib.sha256(f"{seed} {i}".encode()).digest() for i in range(n // 32 + 1))[:n]


def mac(name, key, *parts):
    return hmac.new(key, b"".join(parts), name).digest()


def text(secret, hh):
    return f"DHHC-1:{hh:02}:{base64.b64encode(secret + struct.pack('<I', zlib.crc32(secret))).decode()}:"


def key_of(secret, hh, nqn):
    return mac(HASHES[hh][0], secret, nqn, b"NVMe-over-Fabrics") if hh else secret


def transaction(number, hash_id, group, hh, two_ways):
    name, hl = HASHES[hash_id]
    t_id = 0x1200 + number
    host_secret, controller_secret = stream(f"host {number}", hl), stream(f"controller {number}", hl)
    host_random, controller_random = stream(f"host random {number}", 132), stream(f"controller random {number}", 132)
    c1, c2 = controller_random[:hl], host_random[:hl] if two_ways else bytes(hl)
    s1 = struct.unpack("<I", controller_random[128:])[0]
    s2 = struct.unpack("<I", host_random[128:])[0] if two_ways else 0
    host_value = controller_value = b""
    a1, a2 = c1, c2
    if group:
        bits, x, n = GROUPS[group]
        p = prime(bits, x)
        private = [int.from_bytes(bytes([r[64] | 0x80]) + r[65 : 64 + n], "big") for r in (host_random, controller_random)]
        host_value, controller_value = [pow(2, e, p).to_bytes(bits // 8, "big") for e in private]
        shared = pow(int.from_bytes(controller_value, "big"), private[0], p).to_bytes(bits // 8, "big")
        session = hashlib.new(name, shared).digest()
        a1, a2 = mac(name, session, c1), mac(name, session, c2)
    ids = struct.pack("<H", t_id) + b"\0"
    r1 = mac(name, key_of(host_secret, hh, HOST), a1, struct.pack("<I", s1), ids, b"HostHost", HOST, b"\0", SUBSYSTEM)
    r2 = mac(name, key_of(controller_secret, hh, SUBSYSTEM), a2, struct.pack("<I", s2), ids, b"Controller", SUBSYSTEM, b"\0", HOST)
    out = {
        "host_key": text(host_secret, hh),
        "controller_key": text(controller_secret, hh) if two_ways else "-",
        "group": str(group),
        "host_random": host_random.hex(),
        "controller_random": controller_random.hex(),
        "t_id": str(t_id),
        "negotiate": (struct.pack("<BBHHBB", 0, 0, 0, t_id, 0, 1) + struct.pack("<BBBB30s30s", 1, 0, 3, 6, bytes([1, 2, 3]), bytes(range(6)))).hex(),
        "challenge": (struct.pack("<BBHHBBBBHI", 1, 1, 0, t_id, hl, 0, hash_id, group, len(controller_value), s1) + c1 + controller_value).hex(),
        "reply": (struct.pack("<BBHHBBBBHI", 1, 2, 0, t_id, hl, 0, int(two_ways), 0, len(host_value), s2) + r1 + c2 + host_value).hex(),
        "success1": (struct.pack("<BBHHBBB7x", 1, 3, 0, t_id, hl, 0, int(two_ways)) + (r2 if two_ways else b"")).hex(),
        "success2": struct.pack("<BBHH10x", 1, 4, 0, t_id).hex() if two_ways else "-",
    }
    print(f"# {number}: {name}, group {group}, transform {hh}, {'two ways' if two_ways else 'one way'}")
    for k, v in out.items():
        print(k, v)
    print()


print("# Computed by vectors.py.")
print("host", HOST.decode())
print("subsystem", SUBSYSTEM.decode())
print()
cases = [(1, 0, 0, False), (1, 0, 1, True), (2, 0, 2, True), (3, 0, 3, True), (1, 1, 1, True), (1, 1, 0, False), (2, 2, 2, True),
         (3, 3, 3, True), (2, 4, 0, False), (3, 5, 3, True), (1, 1, 3, True)]
for i, case in enumerate(cases):
    transaction(i, *case)
