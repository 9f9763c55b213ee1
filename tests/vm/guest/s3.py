# A client of the object store (AWS signature, version 4), for tests/vm/guest/garage: puts objects, then gets and compares them.
#   s3.py KEY SECRET BUCKET put|get COUNT PROGRESS PORT...
# Object N always has the same data, which follow from N. One line for each that is wrong; exit status 1 if there was one.
import datetime
import hashlib
import hmac
import http.client
import os
import random
import sys
import threading
import time

key, secret, bucket, what, count, progress = sys.argv[1:7]
count, ports = int(count), [int(p) for p in sys.argv[7:]]
THREADS, PATIENCE = 6, 240


def data(n):
    # From some bytes, which are stored in the metadata, to several blocks of 1 MiB.
    r = random.Random(n)
    size = 1 << 20 | 5000 if n % 100 == 7 else r.choice([100, 3000, 4096, 20000, 65536, 200000])
    return r.randbytes(size + n)


def sign(k, text):
    return hmac.new(k, text.encode(), hashlib.sha256).digest()


def request(port, method, path, body):
    now = datetime.datetime.now(datetime.timezone.utc)
    day, moment = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    host = f"127.0.0.1:{port}"
    signed = "host;x-amz-content-sha256;x-amz-date"
    canonical = f"{method}\n{path}\n\nhost:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{moment}\n\n{signed}\n{digest}"
    scope = f"{day}/garage/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    k = sign(("AWS4" + secret).encode(), day)
    for part in ("garage", "s3", "aws4_request"):
        k = sign(k, part)
    signature = hmac.new(k, text.encode(), hashlib.sha256).hexdigest()
    headers = {
        "x-amz-content-sha256": digest,
        "x-amz-date": moment,
        "Authorization": f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={signed}, Signature={signature}",
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def one(n):
    """None, or what is wrong. Asks the nodes in turn until one answers, for PATIENCE seconds."""
    global again
    path, body, until, last, turn = f"/{bucket}/object-{n:04}", data(n), time.monotonic() + PATIENCE, "", n
    while time.monotonic() < until:
        try:
            status, got = request(ports[turn % len(ports)], "PUT" if what == "put" else "GET", path, body if what == "put" else b"")
            if status == 200 and what == "put":
                return None
            if status == 200:
                return None if got == body else f"{len(got)} bytes, which are not those that were put ({len(body)})"
            if status == 404:
                return "is not there"
            last = f"status {status}: {got[:200]!r}"
        except (OSError, http.client.HTTPException) as e:
            last = repr(e)
        turn, again = turn + 1, again + 1
        time.sleep(0.2)
    return last


lock, todo, done, wrong, again = threading.Lock(), iter(range(count)), 0, [], 0


def work():
    global done
    while True:
        with lock:
            n = next(todo, None)
        if n is None:
            return
        error = one(n)
        with lock:
            done += 1
            if error:
                wrong.append(f"object {n}: {error}")
            # Renamed: a reader finds a whole number.
            with open(progress + ".new", "w") as f:
                f.write(f"{done}\n")
            os.rename(progress + ".new", progress)


threads = [threading.Thread(target=work) for _ in range(THREADS)]
[t.start() for t in threads]
[t.join() for t in threads]
print("\n".join(wrong[:10]))
print(f"{what}: {count - len(wrong)} of {count}, {again} requests repeated")
sys.exit(bool(wrong))
