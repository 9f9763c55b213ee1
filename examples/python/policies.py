"""Policies of the single writer, compared over the number of zones that are written at a time, on the model of a 30 TB disk.

    python examples/python/policies.py              # prints a table
    python examples/python/policies.py plot.png     # and draws it, with matplotlib

The cells are marked, so an editor or Jupyter runs them one by one. All times are virtual: the figures are the same on every
machine.
"""

# %% The policies: names that the library has, and one of our own.
import sys

import zoneplug


def elevator(view):
    """Up and down over the disk, as a lift goes: the next zone in the direction of the last move."""
    zones, last = view.zones, view.last or 0
    up = [i for i in range(len(view)) if zones[i] > last]
    down = [i for i in range(len(view)) if zones[i] < last]
    elevator.rises = bool(up) if elevator.rises else not down
    if elevator.rises:
        return min(up, key=lambda i: zones[i], default=0)
    return max(down, key=lambda i: zones[i], default=0)


POLICIES = {"off": "off", "fifo": "fifo", "clook": "clook", "steady+300us": "steady+300us", "elevator (ours)": elevator}
ZONES = [1, 2, 4, 8, 16, 32, 64, 128]

# %% The runs: fio's zoned mode, 16 jobs with 32 writes of 1 MiB each.
rows = []
for zones in ZONES:
    for name, policy in POLICIES.items():
        elevator.rises = True
        row = zoneplug.measure(
            "sim-smr30",
            block_bytes=1 << 20,
            iodepth=32,
            jobs=16,
            zones=zones,
            zone_lock=True,
            warm_up_s=5,
            runtime_s=20,
            policy=policy,
        )
        p99 = row["jobs"]["latency"]["p99_ns"] / 1e6
        rows.append({"policy": name, "zones": zones, "MB/s": row["jobs"]["mb_per_s"], "p99 ms": p99})

# %% A table; `pandas.DataFrame(rows)` takes the same rows.
for figure in ["MB/s", "p99 ms"]:
    print(f"{figure:>6}" + "".join(f"{name:>17}" for name in POLICIES))
    for zones in ZONES:
        of = {row["policy"]: row[figure] for row in rows if row["zones"] == zones}
        print(f"{zones:>6}" + "".join(f"{of[name]:>17.0f}" for name in POLICIES))

# %% A plot.
if len(sys.argv) > 1:
    try:
        import matplotlib
    except ImportError:
        sys.exit("error: there is no matplotlib\ntry: pip install matplotlib, or run it without a file")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for axis, key, title in zip(axes, ["MB/s", "p99 ms"], ["throughput, MB/s", "99 % of writes took less, ms"], strict=True):
        for name in POLICIES:
            axis.plot(ZONES, [row[key] for row in rows if row["policy"] == name], "o-", markersize=4, label=name)
        axis.set(title=title, xlabel="zones written at a time", xscale="log", ylim=(0, None))
        axis.set_xticks(ZONES, [str(n) for n in ZONES])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize="small")
    figure.suptitle("sim-smr30: 16 jobs, 32 writes of 1 MiB each")
    figure.savefig(sys.argv[1], dpi=120)
