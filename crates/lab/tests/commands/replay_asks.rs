//! Traces that empty more zones than they write: leave is asked for each of them.

use super::{Dir, fails, noise, ok, ok_with};

/// What a trace on a real disk asks for, and that it changes nothing without leave.
#[test]
fn leave_is_asked_for_every_zone_that_is_emptied() {
    let dir = Dir::new("real-asks");
    let disk = dir.disk("--zones 8 --zone-size 1M --conv 1");
    let data = noise(128 << 10, 3);
    for zone in 0..5u64 {
        ok_with(&["write", &disk, "-o", &(zone * 2048).to_string()], &data);
    }
    let state = || (ok(&["report", &disk]), ok_with(&["read", &disk, "--len", "5M"], b""));
    let before = state();
    let traces = [
        // A reset of all zones, after a write to one.
        (
            "all.txt",
            "  8,0    0        1     0.000000000   10  Q   W 14336 + 8 [x]\n  8,0    0        2     0.000000500   10  Q  ZRA [x]\n",
            "data of 4 zones",
            "(1-4)",
        ),
        // A reset of all zones that is the whole trace.
        (
            "only.txt",
            "  8,0    0        1     0.000000000   10  Q  ZRA [x]\n",
            "data of 4 zones",
            "(1-4)",
        ),
        // A discard of two whole zones and of a part of the next, which is not sent.
        (
            "discard.csv",
            "time_us,op,offset,length\n0,discard,2097152,3000320\n",
            "data of 2 zones",
            "(2-3)",
        ),
        ("reset.csv", "time_us,op,offset,length\n0,reset,4194304,0\n", "data of 1 zone", "(4)"),
    ];
    for (name, trace, how_many, which) in traces {
        let path = dir.path(name);
        std::fs::write(&path, trace).unwrap();
        let args = ["replay", &path, "--real-time", "--disk", &disk];
        for text in [how_many, which, "not without --yes"] {
            fails(&args, 2, text);
        }
        assert!(before == state(), "{name} changed the disk");
    }
}
