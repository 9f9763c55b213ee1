//! Virtual time: workloads of one's own, and traces, on models of drives.

use crate::*;
use std::time::Instant;

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/data/traces/");

fn number(v: &Value, path: &str) -> f64 {
    v.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {v:#}"))
}

/// Runs words of a command line.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// The mean time of an operation, one at a time, in microseconds.
fn each_us(disk: &str, rw: &str) -> f64 {
    let v = json(&words(&format!(
        "bench --json --disk {disk} --rw {rw} --bs 4k --iodepth 1 --runtime 1s"
    )));
    assert_eq!(v["time"], "virtual");
    1e6 / number(&v, "/rows/0/jobs/iops")
}

/// Layers on a modelled drive take their time in virtual time too: a path, two paths of which one is slow, zones that are padded,
/// a fault that delays. Two drives as a stripe give twice the rate of one.
#[test]
fn layers_are_in_virtual_time() {
    let near = |is: f64, of: f64| (is / of - 1.0).abs() < 0.01;
    for (rw, key) in [("write", "write"), ("randread", "read")] {
        let alone = each_us("sim-zns1", rw);
        let far = each_us(&format!("delay,{key}=2ms@sim-zns1"), rw);
        assert!(near(far - alone, 2000.0), "{rw}: {far} after {alone} us");
        let faulty = each_us(&format!("sim-zns1,fault={key}/delay=1ms/count=all"), rw);
        assert!(near(faulty - alone, 1000.0), "{rw}: {faulty} after {alone} us");
        let other = if key == "read" { "write" } else { "read" };
        assert!(near(each_us(&format!("delay,{other}=2ms@sim-zns1"), rw), alone));
        let odd = "sim-zns1,zone-size=96M,zone-capacity=96M";
        assert!(near(each_us(&format!("po2@{odd}"), rw), each_us(odd, rw)), "{rw}");
    }
    let rate = |disk: &str, jobs| {
        let line = format!(
            "bench --json --disk {disk} --rw write --bs 1M --iodepth 8 --numjobs {jobs} --runtime 1s"
        );
        number(&json(&words(&line)), "/rows/0/jobs/mb_per_s")
    };
    let (one, two) = (rate("sim-zns1", 8), rate("stripe@sim-zns1%sim-zns1", 16));
    assert!(near(two, 2.0 * one), "{two} of {one} MB/s");
    // A trace fits the padded zones of the layer.
    let v = json(&words(&format!(
        "replay {TRACES}blkparse.txt --json --map log --disk po2@sim-zns1,zone-size=96M,zone-capacity=96M"
    )));
    assert!(number(&v, "/rows/0/writes/operations") > 0.0, "{v:#}");
}

/// The same but for what depends on the machine.
fn without_real_time(text: &str) -> String {
    let lines =
        text.lines().filter(|l| !l.contains("real_s") && !l.contains("as fast as the drive"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Every workload of `bench` has a rate and latencies, and two runs are the same.
#[test]
fn a_workload_runs_in_virtual_time() {
    for rw in ["write", "randwrite", "append", "read", "randread"] {
        for disk in ["sim-smr30", "sim-zns1"] {
            let line = format!(
                "bench --json --disk {disk} --rw {rw} --bs 256k --iodepth 8 --numjobs 2 --runtime 2s {}",
                // A disk that always finds a sequential read nearest has no time for others.
                if rw == "read" { "" } else { "--reads 1" }
            );
            let v = json(&words(&line));
            assert_eq!((&v["time"], &v["rw"]), (&"virtual".into(), &rw.into()));
            assert_eq!(number(&v, "/virtual_s"), 2.0);
            for part in ["jobs", "reads"].into_iter().take(if rw == "read" { 1 } else { 2 }) {
                let at = format!("/rows/0/{part}");
                let of = |what: &str| number(&v, &format!("{at}/{what}"));
                assert!(
                    of("bios") > 5.0 && of("mb_per_s") > 0.0 && of("iops") > 0.0,
                    "{line}: {v:#}"
                );
                let order: Vec<f64> = ["p50_ns", "p99_ns", "p999_ns", "max_ns"]
                    .map(|p| of(&format!("latency/{p}")))
                    .into();
                assert!(order[0] > 0.0 && order.is_sorted(), "{line}: {order:?}");
                assert_eq!(of("refused"), 0.0);
            }
            let turns = disk == "sim-smr30";
            assert_eq!(v["rows"][0]["head_moves_per_s"].is_number(), turns);
            assert!((0.1..=100.0).contains(&number(&v, "/rows/0/drive_busy_percent")), "{v:#}");
            // What has no meaning in virtual time is not there.
            assert!(!v.to_string().contains("cpu"));
            let again = ok(&words(&line));
            assert_eq!(without_real_time(&again), without_real_time(&ok(&words(&line))));
        }
    }
}

/// C1, C4, Q14: the published comparison as a workload of one's own: the single writer against each zone by itself,
/// locking.
#[test]
fn ways_to_open_a_disk_are_compared_in_rows() {
    let line = "bench --disk sim-smr30 --rw randwrite --bs 1M --iodepth 32 --numjobs 16 --zones 64 --zone-lock \
                --policy off,fifo,clook+300us/4s --mode plug,lock";
    let start = Instant::now();
    let text = ok(&words(line));
    let real = start.elapsed().as_secs_f64();
    let rows: Vec<&str> =
        text.lines().filter_map(|l| Some(l.split_once(" writes ")?.0.trim())).collect();
    let want =
        ["plug none", "plug none qd1 fifo", "plug none qd1 clook +300us 4000ms", "lock none"];
    assert_eq!(rows, want, "{text}");
    assert!(
        text.contains("in virtual time") && text.contains("260 s of virtual time in "),
        "{text}"
    );
    assert!(text.contains("fio's lock on zones") && !text.contains("ns/BIO"), "{text}");
    // 260 s in less than one, where the compiler optimises.
    assert!(cfg!(debug_assertions) || real < 1.0, "{real} s");
    let v = json(&[&words(line)[..], &["--json"]].concat());
    let rate = |i: usize| number(&v, &format!("/rows/{i}/jobs/mb_per_s"));
    assert!((95.0..107.0).contains(&rate(1)) && (52.0..64.0).contains(&rate(0)), "{v:#}");
    assert!(rate(2) > 1.1 * rate(1), "clook {} and fifo {}", rate(2), rate(1));
}

#[test]
fn a_policy_that_starves_says_so() {
    let line = "bench --disk sim-smr30 --rw randwrite --bs 1M --iodepth 32 --numjobs 16 --zones 8 --policy clook+300us";
    let text = ok(&words(line));
    assert!(text.contains("still wait at the end, the oldest for 65.0 s"), "{text}");
}

#[test]
fn what_is_not_possible_in_virtual_time_is_said() {
    for (line, code, what) in [
        ("bench --disk sim-smr30 --verify", 2, "--verify in virtual time"),
        ("bench --disk sim-smr30 --bs 32M", 2, "more than 16M"),
        ("bench --disk sim-smr30 --zone-lock", 2, "--rw randwrite"),
        (
            "bench --disk sim-smr30,fault=write/io",
            2,
            "fault= in virtual time with more than a delay",
        ),
        (
            "bench --disk stripe@sim-zns1%sim-smr30",
            2,
            "a stripe of different drives in virtual time",
        ),
        ("bench --disk linear,first=1@sim-zns1", 2, "the layer linear in virtual time"),
        ("bench --disk sim-smr30 --policy fast", 2, "'fast' is no policy"),
        ("bench --disk sim-smr30 --scheduler bfq", 2, "none, mq-deadline"),
        ("bench --disk sim-smr30 --policy off,fifo --write-trace t", 2, "a trace is of one run"),
        ("bench --disk mem --reads 4", 2, "--reads needs a disk in virtual time"),
        ("bench --disk mem --policy off,fifo", 2, "in real time"),
        ("bench --disk sim-smr30 --real-time --zones 4", 2, "--zones needs"),
        ("bench --disk sim-smr30 --rw append --mode none", 4, "no zone append"),
        ("replay x.txt --disk sim-smr30", 3, "x.txt"),
        ("replay . --disk sim-smr30", 2, "is no file"),
        ("replay x.txt --disk mem", 2, "no disk with the times of a drive"),
        ("replay x.txt", 2, "--disk"),
        ("replay x.txt --disk sim-smr30 --speed fast", 2, "'fast' is no speed"),
    ] {
        fails(&words(line), code, what);
    }
}

#[test]
fn a_timed_disk_runs_in_real_time_if_asked() {
    let v = json(&words(
        "bench --json --disk sim-zns1 --real-time --runtime 50ms --bs 64k --policy off",
    ));
    assert!(v.get("time").is_none() && number(&v, "/measure/bios") > 0.0, "{v:#}");
}

/// Every golden trace on every built-in drive: a row for each way, nothing refused, the same bytes again.
#[test]
fn traces_are_replayed_against_drives_and_policies() {
    for (name, format, operations) in [
        ("fio-v2.log", "fio iolog version 2", 36),
        ("fio-v3.log", "fio iolog version 3", 36),
        ("fio-seq.log", "fio iolog version 3", 35),
        ("blkparse.txt", "blkparse", 18),
        ("blktrace/sdb.txt", "blkparse", 23),
        ("blktrace/sdb.blktrace.1", "blktrace", 23),
    ] {
        let path = format!("{TRACES}{name}");
        let mut args = vec!["replay", &path];
        args.extend(words(
            "--disk sim-smr30 --disk sim-smr20 --disk sim-smr14 --disk sim-zns1 --policy off,fifo --scheduler none,mq-deadline",
        ));
        let text = ok(&args);
        assert_eq!(text, ok(&args), "{name}");
        let (_, rest) = text.split_once(name).unwrap();
        let files = if format == "blktrace" { " (2 files)" } else { "" };
        assert!(rest.starts_with(&format!("{files}: {format}, {operations} operations")), "{text}");
        args.push("--json");
        let v = json(&args);
        assert_eq!(ok(&args), ok(&args), "{name}");
        assert_eq!(number(&v, "/recorded/operations") as u64, operations);
        let rows = v["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 16);
        for r in rows {
            assert_eq!(number(r, "/refused/operations"), 0.0, "{name}: {r:#}");
            assert!(number(r, "/writes/mb_per_s") > 0.0 && number(r, "/makespan_s") > 0.0);
            assert!(number(r, "/busy_s") <= number(r, "/makespan_s") * 1.000001);
            let sum = number(r, "/writes/operations") + number(r, "/reads/operations");
            assert!(sum <= operations as f64);
        }
    }
}

/// A table of the same operations gives the same as the log that it was made of, in any order of columns; one that was cut off
/// says so.
#[test]
fn a_table_is_a_trace() {
    let log = std::fs::read_to_string(format!("{TRACES}fio-v3.log")).unwrap();
    let mut table = "length,who,op,time_ms,offset\n".to_owned();
    for line in log.lines().skip(1) {
        let f: Vec<&str> = line.split_whitespace().collect();
        let (us, op) = (f[0].parse::<f64>().unwrap(), f[2]);
        match op {
            "read" | "write" => table += &format!("{},me,{op},{:.3},{}\n", f[4], us / 1e3, f[3]),
            "trim" => table += &format!("{},me,discard,{:.3},{}\n", f[4], us / 1e3, f[3]),
            "sync" | "datasync" => table += &format!(",me,flush,{:.3}\n", us / 1e3),
            _ => {}
        }
    }
    let dir = Dir::new("table");
    let path = dir.path("trace.csv");
    let rows = |trace: &str| {
        let v = json(&["replay", trace, "--json", "--disk", "sim-smr30", "--policy", "off,fifo"]);
        v["rows"].to_string()
    };
    std::fs::write(&path, &table).unwrap();
    assert_eq!(rows(&path), rows(&format!("{TRACES}fio-v3.log")));
    let said = ok(&["replay", &path, "--disk", "sim-smr30"]);
    assert!(said.contains("trace.csv: CSV, 36 operations"), "{said}");
    // Cut off in its last line, and with a time that goes back.
    let end = table.trim_end().rfind('\n').unwrap();
    std::fs::write(&path, format!("{}\n4096,me,read,0.001,0\n4096,me", &table[..end])).unwrap();
    let said = ok(&["replay", &path, "--disk", "sim-smr30"]);
    assert!(said.contains("1 line is nothing of this format; the first is line 38"), "{said}");
    assert!(said.contains("1 event stands behind later ones"), "{said}");
    std::fs::write(&path, "time_us,op,offset,length\n1,write,x,512\n").unwrap();
    fails(
        &["replay", &path, "--disk", "sim-smr30"],
        2,
        "line 2 of the trace: 'x' '512' is no place",
    );
}

/// A write that is at no write pointer is refused and named, or moved; `auto` knows which traces need that.
#[test]
fn writes_of_conventional_disks_are_named_or_moved() {
    let random = format!("{TRACES}fio-v3.log");
    fails(
        &["replay", &random, "--disk", "sim-smr30", "--map", "exact"],
        1,
        "in line 10: not at the write pointer",
    );
    let out = feed(&["replay", &random, "--disk", "sim-smr30", "--map", "exact"], b"");
    let said = text(&out.stdout);
    assert!(said.contains("refused (not at the write pointer); the first in line 10"), "{said}");
    let auto = ok(&["replay", &random, "--disk", "sim-smr30"]);
    assert!(
        auto.contains("--map log") && auto.contains("17: writes moved within their zone"),
        "{auto}"
    );
    let zoned = format!("{TRACES}fio-seq.log");
    let auto = ok(&["replay", &zoned, "--disk", "sim-smr30"]);
    assert!(auto.contains("every operation where it was recorded"), "{auto}");
    let asap = json(&["replay", &zoned, "--disk", "sim-smr30", "--speed", "asap", "--json"]);
    assert_eq!((&asap["speed"], &asap["outstanding"]), (&Value::Null, &32.into()));
    let slow = json(&["replay", &zoned, "--disk", "sim-smr30", "--speed", "0.1", "--json"]);
    let (asap, slow) = (number(&asap, "/rows/0/makespan_s"), number(&slow, "/rows/0/makespan_s"));
    assert!(slow > 0.26 && asap < 0.025, "{slow} {asap}");
}

/// Lines that are wrong are named by their number; lines that are nothing are counted.
#[test]
fn what_is_wrong_with_a_trace_is_said_with_its_line() {
    let dir = Dir::new("traces");
    let path = dir.path("t");
    let replay = ["replay", &path, "--disk", "sim-zns1"];
    for (content, what) in [
        ("", "the trace is empty"),
        (
            "fio version 3 iolog\n7 d write 0 4k\n",
            "line 2 of the trace: '0' '4k' is no place on a disk",
        ),
        ("nothing\n", "no operation in 1 line"),
        ("\x1f\u{8b}", "no operation"),
        ("fio version 2 iolog\na write 0 4096\nb write 0 4096\n", "--device a"),
    ] {
        std::fs::write(&path, content).unwrap();
        fails(&replay, 2, what);
    }
    std::fs::write(&path, "fio version 2 iolog\n\nd write 0 4096\n?\n!\nd write 4096 4096\n")
        .unwrap();
    let said = ok(&replay);
    assert!(said.contains("2 lines are nothing of this format; the first is line 4"), "{said}");
    assert!(said.contains("2 writes (0.01 MB)"), "{said}");
}

/// A trace of blktrace's own gives what blkparse's text of it gives, by whichever name its files are called.
#[test]
fn files_of_blktrace_are_one_trace() {
    let rows = |name: &str, flags: &str| {
        let line = format!("replay {TRACES}blktrace/{name} --disk sim-smr30 --json {flags}");
        let mut v = json(&words(&line));
        let keys = ["operations", "reads", "written_bytes", "makespan_s", "unclear_management"];
        let recorded = keys.map(|k| v["recorded"][k].take());
        for row in v["rows"].as_array_mut().unwrap() {
            // The numbers of lines differ.
            row["refused"].take();
        }
        (recorded, v["rows"].take())
    };
    for flags in ["", "--events d", "--device 8,16 --map log"] {
        let text = rows("sdb.txt", flags);
        for name in ["sdb", "sdb.blktrace", "sdb.blktrace.0", "sdb.blktrace.2"] {
            assert_eq!(rows(name, flags), text, "{name} {flags}");
        }
    }
    let dir = Dir::new("blktrace");
    let path = dir.path("t");
    let replay = ["replay", &path, "--disk", "sim-smr30"];
    // One file of a processor, under a name of its own: some bytes are missing, or its end.
    let bytes = std::fs::read(format!("{TRACES}blktrace/sdb.blktrace.1")).unwrap();
    let issued = [&replay[..], &["--events", "d"]].concat();
    std::fs::write(&path, [&bytes[..1000], &bytes[1050..]].concat()).unwrap();
    fails(&issued, 2, "the file is damaged");
    std::fs::write(&path, &bytes[..2000]).unwrap();
    let said = ok(&issued);
    assert!(said.contains("1 record is cut off where a file ends"), "{said}");
    let v = json(&[&issued[..], &["--json"]].concat());
    assert_eq!(
        (number(&v, "/recorded/cut_off_records"), number(&v, "/recorded/files")),
        (1.0, 1.0)
    );
    // Without the tenth record.
    let at = bytes.len() - 48 * 30;
    std::fs::write(&path, [&bytes[..at], &bytes[at + 48..]].concat()).unwrap();
    assert!(ok(&issued).contains("1 event was lost while it was recorded"));
    fails(&[&issued[..], &["--device", "8,17"]].concat(), 2, "none of that device");
    fails(&["replay", &dir.path("sdc"), "--disk", "sim-smr30"], 3, "sdc: No such file");
}

/// The trace of a run, replayed, gives that run: throughput within 2 %, on the disk on which it was recorded.
#[test]
fn a_replay_of_a_run_gives_the_throughput_of_that_run() {
    let dir = Dir::new("record");
    let path = dir.path("t");
    for (disk, load) in [
        ("sim-smr30", "--rw write --bs 1M --iodepth 8"),
        ("sim-smr30,qd1=0", "--rw randwrite --bs 1M --iodepth 2 --numjobs 4 --zones 8"),
        ("sim-smr30,policy=clook", "--rw randwrite --bs 1M --iodepth 2 --numjobs 4 --reads 1"),
        ("sim-zns1", "--rw randwrite --bs 128k --iodepth 16 --zones 14 --runtime 1s"),
        ("sim-zns1", "--rw append --bs 64k --iodepth 4 --runtime 1s"),
    ] {
        let mut args = vec!["bench", "--json", "--disk", disk, "--write-trace", &path];
        args.extend(words(load));
        let bench = json(&args);
        let replay = json(&["replay", &path, "--json", "--disk", disk]);
        let rate = |p: &str| bench.pointer(p).and_then(Value::as_f64).unwrap_or(0.0);
        let recorded = rate("/rows/0/jobs/mb_per_s") + rate("/rows/0/reads/mb_per_s");
        let replayed = number(&replay, "/rows/0/mb_per_s");
        let error = 100.0 * (replayed / recorded - 1.0);
        assert!(
            error.abs() < 2.0,
            "{disk} {load}: {recorded} MB/s, replayed {replayed}: {error:+.1} %"
        );
        assert_eq!(replay["rows"][0]["map"], "exact", "{disk} {load}");
        // So is its latency, but for the first seconds, which the run does not count.
        let p99 = |v: &Value, p: &str| number(v, p);
        let (a, b) =
            (p99(&bench, "/rows/0/jobs/latency/p99_ns"), p99(&replay, "/rows/0/writes/p99_ns"));
        assert!((b / a - 1.0).abs() < 0.05, "{disk} {load}: p99 {a} and {b}");
    }
}
