//! `zoneplug-lab replay`: repeats, and the page with plots.

use crate::*;

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/data/traces/");

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
    for (n, what) in [("0", "0"), ("21", "--repeat is 1 to 20, not 21")] {
        fails(&["replay", &trace, "--disk", "sim-smr30", "--repeat", n], 2, what);
    }
}

/// How often tags of a kind open and close.
fn tags(page: &str, tag: &str) -> (usize, usize) {
    let open = [">", " "].map(|end| page.matches(&format!("<{tag}{end}")).count());
    (open[0] + open[1], page.matches(&format!("</{tag}>")).count())
}

/// The page is one file that fetches nothing. It has a row for each row of the table, plots of what there is, and the command
/// line; names from outside stay text.
#[test]
fn a_page_has_the_table_and_its_plots() {
    let dir = Dir::new("page");
    let (trace, html) = (dir.path("a <b>&.log"), dir.path("p.html"));
    std::fs::copy(format!("{TRACES}fio-v3.log"), &trace).unwrap();
    let policies = "off,fifo,[wait_us < 7]";
    let args =
        ["replay", &trace, "--disk", "sim-smr30", "--disk", "sim-zns1", "--policy", policies];
    let repeat = [&args[..], &["--repeat", "3"]].concat();
    let said = ok(&repeat);
    assert_eq!(ok(&[&repeat[..], &["--html", &html]].concat()), said, "the terminal has the same");
    let page = std::fs::read_to_string(&html).unwrap();
    for tag in [
        "html", "body", "figure", "svg", "table", "tr", "th", "td", "p", "pre", "code", "text",
        "title",
    ] {
        let (open, close) = tags(&page, tag);
        assert!(open > 0 && open == close, "{tag}: {open} and {close}");
    }
    assert_eq!(tags(&page, "tr").0, 1 + 6, "a line of titles, and a row for each disk and policy");
    // Throughput; of writes and of reads the latencies and their distribution.
    assert_eq!(tags(&page, "svg").0, 5);
    let foreign = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for what in [
        "http:",
        "https:",
        "<script",
        "<link",
        "<img",
        "src=",
        "url(",
        "@import",
        "<b>",
        "[wait_us < 7]",
    ] {
        assert!(!foreign.contains(what), "{what}");
    }
    let name = "a &lt;b&gt;&amp;.log";
    for what in [
        &format!("{name}: replayed by zoneplug</title>"),
        &format!("{name}</h1>"),
        &format!("{name}: fio iolog version 3, 36 operations in "),
        &format!(
            "{name}' --disk sim-smr30 --disk sim-zns1 --policy 'off,fifo,[wait_us &lt; 7]' --repeat 3 --html "
        ),
        "plug none qd1 [wait_us &lt; 7]</td>",
        "plug none qd1 fifo</text>",
        "sim-zns1: one run, for a drive without a head",
        "Repeats overlap",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(what), "{what} is not in {page}");
    }
    // The repeats of the disk with a head are in its rows and plots; those of the other are none.
    let rows: Vec<&str> =
        page.lines().filter(|l| l.starts_with("<tr") && l.contains("<td")).collect();
    let has_range = |row: &str| row.contains(" (");
    assert!(
        rows[..3].iter().all(|r| has_range(r)) && !rows[3..].iter().any(|r| has_range(r)),
        "{rows:#?}"
    );
    let bars = |page: &str| page.matches("class=\"bar ").count();
    assert!(bars(&page) > 0);
    // Without repeats there is nothing to span. Of writes alone there are no plots of reads.
    std::fs::write(&trace, "fio version 2 iolog\nd write 0 4096\nd write 4096 4096\n").unwrap();
    ok(&[&args[..], &["--html", &html]].concat());
    let page = std::fs::read_to_string(&html).unwrap();
    assert_eq!(
        (tags(&page, "svg").0, bars(&page), page.contains("reads")),
        (3, 0, false),
        "{page}"
    );
}

/// A page that cannot be made fails before any work, and neither a trace nor a disk is lost to one.
#[test]
fn a_page_goes_only_where_it_may() {
    let dir = Dir::new("page-place");
    let (trace, disk) = (dir.path("t"), dir.path("d"));
    std::fs::copy(format!("{TRACES}fio-v3.log"), &trace).unwrap();
    ok(&["create", &disk, "--zones", "4", "--zone-size", "1M"]);
    let to = |html: &str, code, what: &str| {
        fails(&["replay", &trace, "--disk", "sim-zns1", "--html", html], code, what);
    };
    to(&dir.path("none/p.html"), 3, "cannot be made");
    to(&trace, 2, "is what is read");
    to(&disk, 3, "is a zoneplug disk");
    assert_eq!(
        std::fs::read(&trace).unwrap(),
        std::fs::read(format!("{TRACES}fio-v3.log")).unwrap()
    );
}

/// A page on standard output is all that is there, and one that cannot be written does not take the figures with it.
#[test]
fn a_page_on_standard_output_is_alone() {
    let dir = Dir::new("page-alone");
    let trace = dir.path("t");
    std::fs::write(&trace, "time_us,op,offset,length\n0,write,0,4096\n").unwrap();
    let replay = ["replay", &trace, "--disk", "sim-smr30", "--html"];
    let page = ok(&[&replay[..], &["-"]].concat());
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{page}");
    for flag in ["--json", "--csv"] {
        let out = at_once(&[&replay[..], &["-", flag]].concat());
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{err}");
        assert!(err.contains(&format!("--html and {flag} would both be on standard output")));
    }
    let out = at_once(&["reproduce", "zns", "--simulated", "--html", "-", "--picture", "-"]);
    assert!(text(&out.stderr).contains("--html and --picture would both be on standard output"));
    let out = at_once(&[&replay[..], &["/dev/full"]].concat());
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{err}");
    assert!(err.starts_with("error: writing /dev/full: No space left"), "{err}");
    assert!(text(&out.stdout).contains("drive busy"), "{}", text(&out.stdout));
}
