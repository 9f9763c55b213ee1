"""What scripts/nvme-cost and scripts/iscsi-cost share: each counts what a server of disks executes for a command.

A case is a workload of `zoneplug-lab bench` (seqw4K16: writes in order, 4 KiB, 16 in flight) and the number of connections,
each with so many in flight: seqw4K16x64. The server and its client take turns on one thread over loopback sockets, so the counts
do not depend on what else the machine does. Only the server is counted, in user space:

instr     instructions (callgrind)
alloc     allocations of memory
copied    bytes that it copies by memcpy or memmove (dhat). The system calls copy the data once more, from the socket to
          memory or back. A disk in memory copies them once, so the bytes of a command are the least there
calls     system calls: epoll_wait, readv or read, sendmsg

Each case runs twice, with few and with many commands; the difference leaves out the start."""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
COUNTED = "*served_by_turns*"
ALLOCATES = re.compile(r"malloc|calloc|realloc|posix_memalign|aligned_alloc")
# The functions of libc by which a server asks the kernel for descriptors, data and room.
CALLS = re.compile(r"epoll_wait|epoll_pwait|readv|read|recv|sendmsg|writev|write")


def build(name):
    """The path of a benchmark."""
    command = f"cargo bench -q -p zoneplug-host --bench {name} --no-run --message-format=json"
    built = subprocess.run(command, shell=True, cwd=ROOT, text=True, stdout=subprocess.PIPE)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == name:
            return message["executable"]
    sys.exit("error: the benchmark did not build")


def commands(case):
    """Few and many commands of a case: whole rounds of all that it has in flight."""
    size, depth, queues = re.fullmatch(r"(?:timed-)?[a-z]+(\d+[KM])(\d+)(?:x(\d+))?(?:\+\d+)?", case).groups()
    few = {"4K": 4096, "128K": 512, "1M": 64}[size]
    return max(few, int(depth) * int(queues or 1)), 3 * few


def run(tool, options, bench, disk, case, n, out):
    command = ["valgrind", f"--tool={tool}", *options, f"--{tool}-out-file={out}", bench, "--count", disk, case, str(n)]
    p = subprocess.run(command, text=True, capture_output=True)
    if p.returncode != 0:
        sys.exit(f"error: {disk} {case} failed under {tool}:\n{p.stderr}")
    return p


def profile(bench, disk, case, n, out):
    """Instructions, allocations and system calls of n commands."""
    options = [f"--toggle-collect={COUNTED}", "--compress-strings=no", "--compress-pos=no"]
    p = run("callgrind", options, bench, disk, case, n, out)
    instructions = int(re.search(r"Collected : (\d+)", p.stderr)[1])
    allocations, calls, callee = 0, 0, ""
    for line in out.read_text().splitlines():
        if line.startswith("cfn="):
            callee = line[4:].split("@")[0]
        elif line.startswith("calls="):
            made = int(line[6:].split()[0])
            allocations += made if ALLOCATES.fullmatch(callee) else 0
            calls += made if CALLS.fullmatch(callee) else 0
    return [instructions, allocations, calls]


def copied(bench, disk, case, n, out):
    """Bytes that n commands have the server copy."""
    run("dhat", ["--mode=copy"], bench, disk, case, n, out)
    d = json.loads(out.read_text())
    served = {i for i, frame in enumerate(d["ftbl"]) if "served_by_turns" in frame}
    return sum(p["tb"] for p in d["pps"] if served & set(p["fs"]))


def per_command(case, counted):
    """What `counted` has for a number of commands, for one of them. The start is left out."""
    few, many = commands(case)
    with tempfile.TemporaryDirectory() as where:
        a, b = (counted(n, pathlib.Path(where, "out")) for n in (few, many))
    return [(y - x) / (many - few) for x, y in zip(a, b)]


def count(bench, disk, case):
    return per_command(case, lambda n, out: [*profile(bench, disk, case, n, out), copied(bench, disk, case, n, out)])


def instructions(bench, disk, case):
    return per_command(case, lambda n, out: profile(bench, disk, case, n, out))[0]


def latency(bench, disk, cases):
    """Every case of 4 KiB, without and with latencies."""
    cases = [c for c in cases if "4K" in c and "+" not in c]
    print(f"{'case':<12} {'without':>8} {'with':>8} {'more':>6}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        pairs = pool.map(lambda c: [instructions(bench, disk, f"{how}{c}") for how in ("", "timed-")], cases)
        for case, (without, timed) in zip(cases, pairs):
            print(f"{case:<12} {without:>8.1f} {timed:>8.1f} {timed - without:>6.1f}", flush=True)


def main(doc, name, disks, all_cases):
    """The command. doc: its help; name: of the benchmark, which has costs.txt beside it; disks: specifications by name;
    all_cases: the cases by the name of the disk."""
    arguments = sys.argv[1:]
    file = ROOT / f"crates/host/benches/{name}/costs.txt"
    if arguments not in ([], ["--check"], ["--update"], ["--latency"]) and (len(arguments) != 4 or arguments[0] != "-o"):
        sys.exit(doc)
    bench = build(name)
    if arguments == ["--latency"]:
        latency(bench, disks["null"], all_cases["null"].split())
        return
    if arguments[:1] == ["-o"]:
        disk, case = arguments[2:]
        profile(bench, disks[disk], case, commands(case)[1], pathlib.Path(arguments[1]).absolute())
        return
    was = {}
    if file.exists():
        for line in file.read_text().splitlines():
            disk, case, *values = line.split()
            was[disk, case] = [float(v) for v in values]
    failed, lines = False, []
    print(f"{'disk':<5} {'case':<12} {'instr':>7} {'in file':>8} {'alloc':>6} {'in file':>8} {'calls':>6} {'in file':>8} "
          f"{'copied':>9} {'in file':>9}")
    wanted = [(disk, case) for disk, cases in all_cases.items() for case in cases.split()]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = pool.map(lambda w: count(bench, disks[w[0]], w[1]), wanted)
        for (disk, case), (instructions, allocations, calls, copies) in zip(wanted, counts):
            before = was.get((disk, case))
            marks = [] if before else ["not in the file"]
            if before:
                # TCP cuts long data as it likes, which changes the number of calls most.
                far, calls_far = (1.02, 1.02) if "4K" in case else (1.1, 2)
                grown = [
                    ("instructions", instructions > before[0] * far),
                    ("allocations", allocations > before[1] + 0.05),
                    ("system calls", calls > before[2] * calls_far + 0.02),
                    ("copied bytes", copies > before[3] * 1.02 + 64),
                ]
                marks = [f"more {what}" for what, more in grown if more]
            failed |= bool(marks)
            b = before or [float("nan")] * 4
            print(f"{disk:<5} {case:<12} {instructions:>7.0f} {b[0]:>8.0f} {allocations:>6.2f} {b[1]:>8.2f} {calls:>6.2f} "
                  f"{b[2]:>8.2f} {copies:>9.0f} {b[3]:>9.0f}" + "".join(f"  {m}" for m in marks), flush=True)
            lines.append(f"{disk} {case} {instructions:.0f} {allocations:.2f} {calls:.3f} {copies:.0f}\n")
    if arguments == ["--update"]:
        file.write_text("".join(lines))
        print(f"written: {file.relative_to(ROOT)}")
    elif arguments == ["--check"]:
        sys.exit(failed)
