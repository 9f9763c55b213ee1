//! `zoneplug replay`: repeats, and the page with plots.

use crate::*;

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/tests/data/traces/");

const FIGURES: [&str; 9] = [
    "/mb_per_s",
    "/writes/mean_ns",
    "/writes/p50_ns",
    "/writes/p99_ns",
    "/writes/max_ns",
    "/reads/mean_ns",
    "/reads/p50_ns",
    "/reads/p99_ns",
    "/reads/max_ns",
];

/// The rows of a replay.
fn rows(args: &[&str]) -> Vec<Value> {
    json(&[&["replay"], args, &["--json"]].concat())["rows"].as_array().unwrap().clone()
}

fn number(v: &Value, path: &str) -> f64 {
    v.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {v:#}"))
}

fn range(row: &Value, figure: &str) -> (f64, f64) {
    let at = format!("/spread{figure}");
    (number(row, &format!("{at}/0")), number(row, &format!("{at}/1")))
}

/// The trace of a run in which a disk with a head has much to choose from.
fn recorded(dir: &Dir) -> String {
    let path = dir.path("t");
    let load = "bench --json --disk sim-smr30 --rw randwrite --bs 1M --iodepth 4 --numjobs 8 --zones 8 --reads 1 --runtime 3s";
    let words: Vec<&str> = load.split(' ').chain(["--write-trace", &path]).collect();
    json(&words);
    path
}

/// Each row has its own runs, as many as were asked for; one of them is the run without `--repeat`. A figure is the median.
#[test]
fn repeats_spread_around_a_single_run() {
    let dir = Dir::new("repeat");
    let trace = recorded(&dir);
    let args = [&trace, "--disk", "sim-smr30", "--policy", "off,clook+300us/4s", "--speed", "asap"];
    let alone = rows(&args);
    assert!(alone.iter().all(|r| r.get("spread").is_none()), "{alone:?}");
    let repeated = |n: &str| rows(&[&args[..], &["--repeat", n]].concat());
    assert_eq!(repeated("1"), alone);
    let (three, five) = (repeated("3"), repeated("5"));
    assert_eq!(repeated("5"), five, "the same again");
    let mut wide = 0;
    for ((alone, three), five) in alone.iter().zip(&three).zip(&five) {
        for (row, n) in [(three, 3), (five, 5)] {
            assert_eq!(row["spread"]["runs"], n);
            let rates = row["spread"]["rates_ppm"].as_array().unwrap();
            assert_eq!((rates.len(), &rates[0]), (n, &1_000_000.into()));
            for figure in FIGURES {
                let ((low, high), median) = (range(row, figure), number(row, figure));
                let one = number(alone, figure);
                assert!((low..=high).contains(&one), "{figure}: {one} of {low} to {high}");
                assert!((low..=high).contains(&median), "{figure}: {median} of {low} to {high}");
                wide += usize::from(low < high);
            }
        }
        for figure in FIGURES {
            let ((low, high), (lowest, highest)) = (range(three, figure), range(five, figure));
            assert!(lowest <= low && high <= highest, "{figure} of three runs and of five");
        }
    }
    assert!(wide > 20, "{wide} figures have a spread");
    // A row's spread is of its own runs: alone it is the same.
    let off =
        [&trace, "--disk", "sim-smr30", "--policy", "off", "--speed", "asap", "--repeat", "5"];
    assert_eq!(rows(&off), five[..1]);
    let p99 = "/writes/p99_ns";
    let ((_, below), (above, _)) = (range(&five[0], p99), range(&five[1], p99));
    assert!(below < above, "policies differ by more than repeats: {below} and {above}");
}

/// A drive without a head has one run, and says so; it is not compared as if it had more.
#[test]
fn a_drive_without_a_head_has_nothing_to_draw() {
    let trace = format!("{TRACES}fio-v3.log");
    let args = [&trace, "--disk", "sim-zns1", "--policy", "off,fifo", "--repeat", "4"];
    for row in rows(&args) {
        assert_eq!(row["spread"]["runs"], 1);
        for figure in FIGURES {
            let (low, high) = range(&row, figure);
            assert_eq!((low, high), (number(&row, figure), number(&row, figure)), "{figure}");
        }
    }
    let said = ok(&[&["replay"], &args[..]].concat());
    assert!(said.contains("sim-zns1: one run, for a drive without a head"), "{said}");
    assert!(!said.contains("Lowest and highest") && !said.contains("epeats overlap"), "{said}");
}

/// What the repeats cannot tell apart is said, and what they can is not.
#[test]
fn figures_within_the_repeats_are_named() {
    let dir = Dir::new("overlap");
    let trace = recorded(&dir);
    let policies = "off,clook+300us/4s";
    let args = [
        "replay",
        &trace,
        "--disk",
        "sim-smr30",
        "--policy",
        policies,
        "--speed",
        "asap",
        "--repeat",
        "5",
    ];
    let v = json(&[&args[..], &["--json"]].concat());
    let rows = v["rows"].as_array().unwrap();
    let overlap = |figure: &str| {
        let ((a, b), (c, d)) = (range(&rows[0], figure), range(&rows[1], figure));
        a <= d && c <= b
    };
    let keys = FIGURES.iter().filter(|f| overlap(f)).map(|f| f[1..].replace('/', "_"));
    let keys: Vec<String> = keys.collect();
    assert!(!keys.is_empty() && keys.len() < FIGURES.len(), "{keys:?}");
    assert_eq!(v["overlaps"][0]["figures"], serde_json::json!(keys));
    let said = ok(&args);
    let (_, end) =
        said.split_once("Repeats overlap, so these differences may be chance:\n").unwrap();
    assert!(
        end.starts_with("  sim-smr30 plug none and plug none qd1 clook +300us 4000ms: "),
        "{end}"
    );
    assert_eq!(end.contains("p99 of writes"), keys.contains(&"writes_p99_ns".to_owned()), "{end}");
    assert!(
        said.contains("Medians of 5 runs on a disk with a head, with media at 98.5 to 101.5 %"),
        "{said}"
    );
    // Two rows that are the same cannot be told apart in anything; disks are not compared with each other.
    let same = [
        "replay",
        &trace,
        "--disk",
        "sim-smr30",
        "--disk",
        "sim-smr20",
        "--policy",
        "off,off",
        "--repeat",
        "2",
    ];
    let said = ok(&same);
    assert!(said.contains("  sim-smr30 plug none and plug none: every figure\n"), "{said}");
    assert_eq!(said.matches(" and plug none").count(), 2, "{said}");
    for (n, what) in [("0", "0"), ("21", "1..=20")] {
        fails(&["replay", &trace, "--disk", "sim-smr30", "--repeat", n], 2, what);
    }
}
