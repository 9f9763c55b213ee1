//! `zoneplug-lab` and its command `bench` as users see them: output, exit codes, two lines for an error.

#[path = "../../cli/tests/common/error_form.rs"]
mod error_form;

use error_form::assert_error;
use serde_json::Value;
use std::process::{Command, Output};

fn lab(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zoneplug-lab"));
    command.args(args.split_whitespace()).output().expect("the command runs")
}

fn stdout(out: &Output) -> String {
    String::from_utf8(out.stdout.clone()).expect("UTF-8")
}

fn json(args: &str) -> Value {
    let out = lab(args);
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!((out.status.code(), &*err), (Some(0), ""), "{args}");
    serde_json::from_str(&stdout(&out)).expect("a JSON document")
}

fn number(v: &Value, path: &str) -> f64 {
    v.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {v:#}"))
}

/// `bench` without a workload, with short runs: all figures are there, and the three comparisons come out as they should.
#[test]
fn bench_measures_and_shows_the_three_cases() {
    let v = json("bench --json --seconds 0.05");
    let mut timed = 0;
    for disk in 0..2 {
        for row in 0..8 {
            for mode in ["plug", "none"] {
                let at = format!("/disks/{disk}/rows/{row}/{mode}");
                for positive in ["bios", "ns_per_bio", "kiops", "mb_per_s"] {
                    assert!(number(&v, &format!("{at}/{positive}")) > 0.0, "{at}/{positive}");
                }
                timed += u32::from(number(&v, &format!("{at}/latency/p99_ns")) > 0.0);
                assert_eq!(number(&v, &format!("{at}/refused")), 0.0, "{at}");
            }
        }
    }
    // Only some BIOs are timed, and a loaded machine does few BIOs in 0.05 s.
    assert!(timed >= 24, "{timed} of 32 have times");
    assert!(v["disks"][0]["verified_plug"].is_null(), "the null disk keeps no data");
    for mode in ["plug", "none"] {
        let at = format!("/disks/1/verified_{mode}");
        assert!(number(&v, &format!("{at}/bytes")) > 0.0);
        assert_eq!(number(&v, &format!("{at}/wrong")), 0.0);
        assert_eq!(number(&v, &format!("{at}/refused")), 0.0);
    }
    // Sequential writes at depth 16 merge in plug, and only there.
    assert!(number(&v, "/disks/0/rows/1/plug/merged_percent") > 50.0);
    assert_eq!(number(&v, "/disks/0/rows/1/none/merged_percent"), 0.0);

    assert_eq!(
        (v["order"][0]["mode"].as_str(), v["order"][1]["mode"].as_str()),
        (Some("none"), Some("plug"))
    );
    assert!(number(&v, "/order/0/refused") > 0.0, "mode none: a disk that reorders refuses writes");
    assert_eq!(number(&v, "/order/1/refused"), 0.0, "mode plug: it refuses no write");
    assert!(number(&v, "/order/1/writes") > 0.0);
    assert_eq!(number(&v, "/order/1/writes"), number(&v, "/order/1/verified/written"));
    assert_eq!(number(&v, "/order/1/verified/wrong"), 0.0);

    let (plug, lock) = (number(&v, "/tags/1/reads_per_s"), number(&v, "/tags/2/reads_per_s"));
    assert!(plug > 10.0 * lock, "reads beside waiting writes: plug {plug}, lock {lock}");

    let [one, merged, native] =
        [0, 1, 2].map(|i| number(&v, &format!("/append/{i}/appends_per_s")));
    assert!(one < merged && one < native, "appends: {one}, {merged}, {native}");
}

#[test]
fn bench_prints_aligned_tables_and_no_bar_in_a_pipe() {
    let out = lab("bench --seconds 0.01");
    assert_eq!((out.status.code(), out.stderr.len()), (Some(0), 0));
    let text = stdout(&out);
    assert!(!text.contains('\x1b') && !text.contains('\r'));
    let build = if cfg!(debug_assertions) { "debug build" } else { "release build" };
    assert!(text.contains(build));
    for word in [
        "seqw4K1 ",
        "rndw128K16",
        "append4K16",
        "rndr4K16",
        "0 wrong",
        "1. Why",
        "2. Tags",
        "3. App",
    ] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
}

#[test]
fn a_workload_of_ones_own_is_run_and_verified() {
    for (rw, jobs) in [("write", 1), ("randwrite", 3), ("append", 2), ("read", 1), ("randread", 2)]
    {
        let v = json(&format!(
            "bench --json --disk mem,zones=16,zone-size=1M,conv=2,max-open=5,reorder=1 --rw {rw} --bs 16k \
             --iodepth 8 --numjobs {jobs} --runtime 60ms --verify"
        ));
        assert_eq!((v["rw"].as_str(), v["mode"].as_str()), (Some(rw), Some("plug")));
        assert!(number(&v, "/measure/bios") > 0.0, "{rw}");
        assert_eq!(number(&v, "/measure/refused"), 0.0, "{rw}");
        assert!(number(&v, "/verified/bytes") > 0.0, "{rw}");
        assert_eq!(number(&v, "/verified/wrong"), 0.0, "{rw}");
    }
}

#[test]
fn a_disk_that_is_read_only_can_be_read() {
    let v = json("bench --json --disk mem,read-only=1 --rw randread --iodepth 4 --runtime 20ms");
    assert_eq!(number(&v, "/measure/refused"), 0.0);
    assert!(number(&v, "/measure/bios") > 0.0);
}

/// I/O that failed gives exit code 1; the figures are printed all the same.
#[test]
fn writes_that_the_disk_refused_are_a_failure() {
    let out = lab("bench --disk mem,reorder=1 --mode none --iodepth 16 --runtime 40ms");
    assert_eq!(out.status.code(), Some(1));
    assert!(stdout(&out).contains("device refused the write"), "{}", stdout(&out));
    assert!(String::from_utf8_lossy(&out.stderr).starts_with("error: "));
}

#[test]
fn bad_input_is_one_line_for_what_and_one_for_what_to_try() {
    for (args, code, what) in [
        ("bench --rw sideways", 2, "sideways"),
        ("bench --bs 5k", 2, "--bs 5K"),
        ("bench --bs 0", 2, "--bs"),
        ("bench --iodepth 0", 2, "--iodepth"),
        ("bench --numjobs 1000", 2, "--numjobs"),
        ("bench --runtime 5", 2, "--runtime"),
        ("bench --runtime 999999999999s", 2, "--runtime"),
        ("bench --mode fast", 2, "fast"),
        ("bench --verify", 2, "keeps no data"),
        ("bench --frob", 2, "--frob"),
        ("bench --disk mem,zones=0", 2, "zones=0"),
        ("bench --disk mem,zone-szie=1M", 2, "zone-szie"),
        ("bench --disk null,zones=2 --numjobs 3", 2, "client"),
        ("bench --disk mem,read-only=1", 2, "read-only"),
        ("bench --disk null,zones=8,zone-size=2G --rw randread --bs 1G --iodepth 2", 2, "1G"),
        ("bench --rw append --mode none", 4, "mode none has no zone append"),
        ("frob", 2, "frob"),
    ] {
        assert_error(&lab(args), code, what, args);
    }
}

#[test]
fn help_documents_the_exit_codes() {
    for args in ["--help", "bench --help"] {
        let out = lab(args);
        assert_eq!(out.status.code(), Some(0));
        assert!(stdout(&out).contains("Exit codes:"), "{args}");
    }
}

/// For a command of `zoneplug`, the error gives the command line that works.
#[test]
fn a_command_of_the_other_program_says_where_it_is() {
    for args in ["create disk.zbd --size 1G", "help create", "top"] {
        let out = lab(args);
        assert_eq!(out.status.code(), Some(2), "{args}");
        let name = args.split(' ').find(|word| *word != "help").expect("a command");
        let said = format!("error: {name} is a command of zoneplug\ntry: zoneplug {args}\n");
        assert_eq!(String::from_utf8_lossy(&out.stderr), said);
    }
    assert!(stdout(&lab("--help")).contains("zoneplug makes, serves and operates disks"));
}

#[test]
fn the_version_names_the_build() {
    let text = stdout(&lab("--version"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], format!("zoneplug-lab {}", env!("CARGO_PKG_VERSION")));
    assert!(lines[1].starts_with("build: ") && lines[2].starts_with("features: "), "{text}");
}
