//! Command lines for the help and the man pages.

/// The examples of the program. A build that has the demonstration alone shows no others.
const OF_PROGRAM: &[&str] = if cfg!(feature = "models") {
    &[
        "zoneplug-lab demo",
        "zoneplug-lab bench",
        "zoneplug-lab bench --disk mem,zones=64 --rw randwrite --bs 128k --iodepth 16",
        "zoneplug-lab bench --disk sim-smr30 --rw randwrite --bs 1M --policy off,clook",
        "zoneplug-lab replay trace.txt --disk sim-smr30 --policy off,fifo,clook+300us",
        "zoneplug-lab reproduce smr30 --html report.html",
        "zoneplug-lab help spec",
    ]
} else {
    &["zoneplug-lab demo", "zoneplug-lab help spec"]
};

pub(crate) const EXAMPLES: [(&str, &[&str]); 11] = [
    ("", OF_PROGRAM),
    ("demo", &["zoneplug-lab demo", "zoneplug-lab demo --seconds 5 --json"]),
    (
        "bench",
        &[
            "zoneplug-lab bench",
            "zoneplug-lab bench --disk mem,zones=64 --rw randwrite --bs 128k --iodepth 16",
            "zoneplug-lab bench --disk sim-smr30 --rw randwrite --bs 1M --policy off,clook",
        ],
    ),
    ("reproduce", &["zoneplug-lab reproduce", "zoneplug-lab reproduce smr30 --html report.html"]),
    (
        "replay",
        &[
            "zoneplug-lab replay trace.txt --disk sim-smr30 --policy off,fifo,clook+300us",
            "zoneplug-lab replay - --disk sim-zns1 --json",
        ],
    ),
    ("calibrate", &["zoneplug-lab calibrate sim-smr30"]),
    (
        "sim",
        &[
            "zoneplug-lab sim --seeds 1..100000",
            "zoneplug-lab sim --seed 42",
            "zoneplug-lab sim --shard 1/4 --json",
        ],
    ),
    ("merge", &["zoneplug-lab merge one.json two.json"]),
    ("completions", &["zoneplug-lab completions fish"]),
    ("man", &["zoneplug-lab man /usr/local/share/man/man1"]),
    ("help", &["zoneplug-lab help bench", "zoneplug-lab help spec"]),
];
