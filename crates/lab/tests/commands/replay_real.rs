//! Traces on disks in real time: the same operations as in virtual time, at their times, and only the zones that the trace
//! changes.

use crate::*;

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/data/traces/");
const MEM: &str = "mem,zones=64,zone-size=16M";

/// What does not depend on the times of a disk.
fn counts(row: &Value) -> Vec<Value> {
    let keys = ["writes/operations", "writes/bytes", "reads/operations", "reads/bytes"];
    let more = ["refused/operations", "refused/by_status", "changed/discards_not_sent"];
    keys.iter().chain(&more).map(|k| row.pointer(&format!("/{k}")).unwrap().clone()).collect()
}

fn replay(trace: &str, line: &str) -> Value {
    let mut args = vec!["replay", trace, "--json"];
    args.extend(line.split_whitespace());
    json(&args)
}

/// A trace whose lines are `time in us, operation, offset in K, length in K`.
fn table(dir: &Dir, name: &str, lines: &[(u64, &str, u64, u64)]) -> String {
    let path = dir.path(name);
    let line = |(us, op, at, len): &(u64, &str, u64, u64)| {
        format!("{us},{op},{},{}\n", at << 10, len << 10)
    };
    let lines: String = lines.iter().map(line).collect();
    std::fs::write(&path, format!("time_us,op,offset,length\n{lines}")).unwrap();
    path
}

/// Every golden trace does in real time what it does in virtual time, on a disk in memory and on a model by the clock.
#[test]
fn the_same_operations_are_sent_as_in_virtual_time() {
    for name in
        ["fio-v2.log", "fio-v3.log", "fio-seq.log", "blkparse.txt", "blktrace/sdb.blktrace.1"]
    {
        let path = format!("{TRACES}{name}");
        let modelled = replay(&path, "--disk sim-zns1");
        let line = format!(
            "--real-time --disk {MEM} --disk sim-zns1 --policy off,clook --speed 10 --reset"
        );
        let real = replay(&path, &line);
        assert_eq!((&modelled["time"], &real["time"]), (&"virtual".into(), &"real".into()));
        assert_eq!(modelled["recorded"], real["recorded"]);
        let rows = real["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 4);
        for row in rows {
            assert_eq!(counts(row), counts(&modelled["rows"][0]), "{name}: {row:#}");
            assert!(row["drive_busy_percent"].is_null() && row["head_moves"].is_null());
            let s = |key: &str| row[key].as_f64().unwrap();
            assert!(s("makespan_s") > 0.0 && s("busy_s") <= s("makespan_s") * 1.000001);
        }
        assert!(modelled["rows"][0]["drive_busy_percent"].is_number());
    }
    let text = ok(&["replay", &format!("{TRACES}fio-seq.log"), "--real-time", "--disk", MEM]);
    assert!(text.contains(" replay, in real time\n") && text.contains("  -        0 "), "{text}");
}

/// Operations are sent at their times by the clock, ten times as fast with `--speed 10`, and at once with `asap`.
#[test]
fn recorded_times_are_kept() {
    let dir = Dir::new("real-times");
    let lines = [(0, "write", 0, 64), (100_000, "write", 64, 64), (200_000, "write", 128, 64)];
    let path = table(&dir, "t", &lines);
    for (speed, least, most) in [("1", 0.2, 60.0), ("10", 0.02, 0.19), ("asap", 0.0, 0.1)] {
        // Another process may have the processor for a while.
        let takes = || {
            let v = replay(&path, &format!("--real-time --disk {MEM} --speed {speed}"));
            v["rows"][0]["makespan_s"].as_f64().unwrap()
        };
        let mut seen = takes();
        for _ in 0..4 {
            if seen >= most {
                seen = takes();
            }
        }
        assert!((least..most).contains(&seen), "--speed {speed}: {seen} s");
    }
}

/// A file keeps what is in zones that the trace does not change; where it writes there are zeroes. Nothing is changed
/// without leave, and nothing in a zone that is not as the trace had it.
#[test]
fn only_the_zones_of_the_trace_are_changed_and_only_with_leave() {
    let dir = Dir::new("real-file");
    let disk = dir.disk("--zones 8 --zone-size 1M --conv 1");
    let data = noise(128 << 10, 3);
    for zone in 0..4u64 {
        ok_with(&["write", &disk, "-o", &(zone * 2048).to_string()], &data);
    }
    let read = |k: u64, len: u64| {
        ok_with(
            &["read", &disk, "--ofst", &(k << 10).to_string(), "--len", &(len << 10).to_string()],
            b"",
        )
    };
    let replay = |lines: &[(u64, &str, u64, u64)], more: &str| {
        let trace = table(&dir, "t", lines);
        let mut args =
            vec!["replay".to_owned(), trace, "--real-time".into(), "--disk".into(), disk.clone()];
        args.extend(more.split_whitespace().map(str::to_owned));
        args
    };
    // Opening a file marks it, so the file itself differs.
    let state =
        || (ok(&["report", &disk]), (0..4).map(|z| read(z * 1024, 128)).collect::<Vec<_>>());
    let refused = |args: Vec<String>, what: &str| {
        let before = state();
        fails(&args.iter().map(String::as_str).collect::<Vec<_>>(), 2, what);
        assert!(before == state(), "{args:?} changed the disk");
    };
    let goes = |args: Vec<String>| {
        json(&args.iter().map(String::as_str).chain(["--json"]).collect::<Vec<_>>())
    };
    // Zone 2 is written up to 128 K, and the trace begins at its start.
    let odd = [(0, "write", 2048, 64), (100, "read", 2048, 64)];
    refused(replay(&odd, "--yes"), "zone 2 is written up to sector 256, and the trace begins at 0");
    refused(
        replay(&odd, "--reset"),
        "not without --yes: this destroys or overwrites data of 1 zone",
    );
    refused(replay(&odd, "--map log"), "(2)");
    refused(replay(&odd, "--yes --policy [wait_us]"), "an expression, in real time");
    // A conventional zone, and a zone that the trace resets.
    refused(replay(&[(0, "write", 4, 4)], ""), "(0)");
    refused(replay(&[(0, "reset", 1024, 1024), (1, "write", 1024, 4)], ""), "(1)");
    // It goes on where the trace does, or is empty and filled up to there.
    refused(replay(&[(0, "write", 2048 + 128, 64)], "-y --policy off,fifo"), "more than one row");
    let lines = [(0, "write", 2048 + 128, 64), (0, "write", 4096 + 12, 4), (9, "read", 2048, 192)];
    let v = goes(replay(&lines, "--yes"));
    assert_eq!(
        (&v["rows"][0]["map"], &v["rows"][0]["refused"]["operations"]),
        (&"exact".into(), &0.into())
    );
    assert!(read(2048, 128) == data && read(2048 + 128, 64) == vec![0; 64 << 10]);
    assert_eq!(read(4096, 16), vec![0; 16 << 10]);
    // Emptied first, before each row.
    let v = goes(replay(&odd, "--yes --reset --policy off,fifo --mode plug,lock"));
    assert_eq!(v["rows"].as_array().unwrap().len(), 3);
    assert!(v["rows"].as_array().unwrap().iter().all(|r| r["refused"]["operations"] == 0), "{v:#}");
    let zones = json(&["report", &disk, "--json"]);
    assert_eq!(zones["zones"][2]["write_pointer_offset_sectors"], 128);
    assert_eq!(read(2048, 64), vec![0; 64 << 10]);
    // A log writes wherever, in the zone of the address.
    let v = goes(replay(&[(0, "write", 2048 + 700, 64), (1, "write", 2048 + 4, 4)], "--yes"));
    assert_eq!(
        (&v["rows"][0]["map"], &v["rows"][0]["changed"]["moved_writes"]),
        (&"log".into(), &2.into())
    );
    for zone in [0, 1, 3] {
        assert!(read(zone * 1024, 128) == data, "zone {zone}");
    }
}

/// What is refused is counted as in virtual time, and the exit code says so; flags that need real time say that.
#[test]
fn what_a_disk_refuses_is_counted() {
    let dir = Dir::new("real-refused");
    let path =
        table(&dir, "t", &[(0, "write", 64, 64), (1, "write", 0, 64), (2, "read", 1 << 20, 4)]);
    let line =
        ["replay", &path, "--real-time", "--map", "exact", "--disk", "mem,zones=4,zone-size=1M"];
    fails(&line, 1, "2 operations were refused on mem,zones=4,zone-size=1M; the first is write");
    fails(&["replay", &path, "--reset", "--disk", "sim-zns1"], 2, "--real-time");
    fails(&["replay", &path, "--disk", "mem"], 2, "or --real-time");
}
