//! `zoneplug-lab reproduce` as its users see it. What its tables say is in `golden.rs`.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn reproduce(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zoneplug-lab"));
    command.arg("reproduce").args(args.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A book, that is a file of tables, with one table of one cell, whose figure is 185 MB/s on the ZNS drive.
fn book(name: &str, published: &str, claim: &str) -> PathBuf {
    let path = file(name);
    let text = format!(
        "source s | A source | then | there\ntable one | One cell\nof s\nmodel sim-zns1\n\
         column plug | mode=plug | plugging\nrow a | MB/s | seq,bs=4K,depth=1 | {published}\n{claim}\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// A claim must hold; an aim is only shown.
#[test]
fn a_cell_outside_of_its_band_gives_exit_code_1() {
    for (i, (published, claim, code)) in [
        ("190 band 6", "", 0),
        ("200 band 6", "", 1),
        ("190 band 6", "claim rate plug a >= 500", 1),
        ("190 band 6", "aim rate plug a >= 500", 0),
    ]
    .into_iter()
    .enumerate()
    {
        let path = book(&format!("band-{i}.txt"), published, claim);
        let out = reproduce(&format!("--book {}", path.display()));
        let (told, errors) = (text(&out.stdout), text(&out.stderr));
        assert_eq!(out.status.code(), Some(code), "{published} {claim}: {errors}");
        // The table is printed all the same, and shows which cell failed.
        assert_eq!(told.contains("FAIL"), code == 1, "{told}");
        assert_eq!(errors.lines().count(), if code == 1 { 2 } else { 0 }, "{errors}");
        assert!(code == 0 || errors.contains("\ntry: look for FAIL"), "{errors}");
    }
    // A single run is shown but not judged.
    let path = book("band-quick.txt", "200 band 6", "");
    assert_eq!(reproduce(&format!("--quick --book {}", path.display())).status.code(), Some(0));
}

#[test]
fn tables_are_listed_and_chosen_by_prefix() {
    let all = text(&reproduce("--list").stdout);
    for name in ["smr30-seq", "smr30-random", "smr20", "zns", "policies-fio", "null-zwp"] {
        assert!(all.lines().any(|l| l.split_whitespace().next() == Some(name)), "{name} in\n{all}");
    }
    let some = text(&reproduce("--list smr30 zns").stdout);
    assert!(some.contains("smr30-xfs") && some.contains("zns ") && !some.contains("smr20"));
    assert!(!text(&reproduce("--list --simulated").stdout).contains("null-zwp"));
}

/// No bar and no colours in a pipe; figures in three forms, and a page.
#[test]
fn figures_come_as_text_json_csv_and_a_page() {
    let page = file("report.html");
    let out = reproduce(&format!("append-zns --quick --html {}", page.display()));
    assert_eq!((out.status.code(), out.stderr.len()), (Some(0), 0));
    let told = text(&out.stdout);
    assert!(told.contains("append-zns") && !told.contains('\x1b') && !told.contains('\r'));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && page.contains("</html>"));

    let v: Value = serde_json::from_slice(&reproduce("append-zns --quick --json").stdout).unwrap();
    let cells = v["tables"][0]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 12);
    assert_eq!(cells[0]["published"].as_f64(), Some(1081.0));
    assert!(cells[0]["ours"].as_f64().unwrap() > 1000.0);
    assert!(cells[3]["published"].is_null());

    let csv = text(&reproduce("append-zns --quick --csv").stdout);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 12, "{csv}");
    assert!(lines[0].starts_with("table,row,column,unit"));
    let fields = lines[0].split(',').count();
    // Fields in quotes have commas.
    let commas = |l: &str| l.split('"').step_by(2).map(|p| p.matches(',').count()).sum::<usize>();
    assert!(lines[1..].iter().all(|l| commas(l) + 1 == fields), "{csv}");
}

/// Tables of processor time are measured on this machine, and show ratios.
#[test]
fn costs_are_measured_here() {
    let out = reproduce("null-append --quick --json");
    let v: Value = serde_json::from_slice(&out.stdout).unwrap();
    let cells = v["tables"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[0]["our_ratio"].as_f64(), Some(1.0));
    assert!(cells.iter().all(|c| c["our_ratio"].as_f64().unwrap() > 0.0));
    // The first column is what the others are compared with. The last has no published figure.
    let verdicts: Vec<&str> = cells.iter().map(|c| c["verdict"].as_str().unwrap()).collect();
    assert_eq!([verdicts[0], verdicts[3]], ["measured"; 2]);
    assert!(verdicts[1..3].iter().all(|v| ["inside", "unjudged"].contains(v)), "{verdicts:?}");
    for c in cells {
        let range: Vec<f64> =
            c["our_ratio_range"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        let ratio = c["our_ratio"].as_f64().unwrap();
        assert!(range[0] <= ratio && ratio <= range[1] && c["runs"].as_array().unwrap().len() > 1);
    }
    assert_eq!(v["headline"]["ratios"], 2);
}

/// The headline by itself, in each form.
#[test]
fn the_headline_can_be_had_alone() {
    let headline = |form| text(&reproduce(&format!("append-zns --quick --headline{form}")).stdout);
    let (words, csv, json) = (headline(""), headline(" --csv"), headline(" --json"));
    assert!(words.contains("Aims: ") && words.lines().all(|l| l.len() <= 80), "{words}");
    let json: Value = serde_json::from_str(&json).unwrap();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("what,count"));
    for line in lines {
        let (what, n) = line.split_once(',').unwrap();
        let of = &json[what];
        let count = of.as_u64().unwrap_or_else(|| of.as_array().unwrap().len() as u64);
        assert_eq!(count, n.parse::<u64>().unwrap(), "{what}");
    }
    // In a quick run a claim counts as an aim.
    assert_eq!(json["aims"], 1);
}

#[test]
fn what_cannot_be_done_is_said_in_two_lines() {
    let nonsense = file("nonsense.txt");
    std::fs::write(&nonsense, "table one | One\nrow a\n").unwrap();
    let misspelt = book("misspelt.txt", "190 band 6", "");
    let wrong = std::fs::read_to_string(&misspelt).unwrap().replace("depth=1", "dpeth=1");
    std::fs::write(&misspelt, wrong).unwrap();
    for (args, what) in [
        ("smr31".to_owned(), "smr31"),
        ("--json --csv".to_owned(), "--csv"),
        ("--book nowhere.txt".to_owned(), "nowhere.txt"),
        (format!("--book {}", nonsense.display()), "line 2"),
        (format!("--book {}", misspelt.display()), "depth"),
        ("zns --quick --html /nowhere/at/all.html".to_owned(), "/nowhere"),
    ] {
        let out = reproduce(&args);
        let errors = text(&out.stderr);
        assert!(!out.status.success(), "{args}");
        let lines: Vec<&str> = errors.lines().collect();
        assert_eq!(lines.len(), 2, "{args}: {errors}");
        assert!(lines[0].starts_with("error: ") && lines[0].contains(what), "{args}: {errors}");
        assert!(lines[1].starts_with("try: "), "{args}: {errors}");
    }
}

/// With `--quick` nothing is a failure, as the help says.
#[test]
fn a_quick_run_fails_nothing() {
    let path = book("quick.txt", "200 band 6", "claim rate plug a >= 500");
    let at = format!("--quick --book {}", path.display());
    let out = reproduce(&at);
    let told = text(&out.stdout);
    assert_eq!((out.status.code(), out.stderr.len()), (Some(0), 0), "{told}");
    assert!(
        !told.contains("FAIL") && told.contains("miss (") && told.contains("not held"),
        "{told}"
    );
    assert!(told.contains("Results: 0 of 1 ") && told.contains("Aims: 0 of 1."), "{told}");
    let v: Value = serde_json::from_slice(&reproduce(&format!("{at} --json")).stdout).unwrap();
    assert_eq!(
        (&v["failed"], &v["tables"][0]["cells"][0]["verdict"]),
        (&0.into(), &"unjudged".into())
    );
}

/// A page that cannot be made is refused before anything is computed.
#[test]
fn a_page_that_cannot_be_made_is_refused_at_once() {
    let start = std::time::Instant::now();
    let out = reproduce("--html /nowhere/at/all.html");
    assert_eq!((out.status.code(), out.stdout.len()), (Some(3), 0));
    assert!(text(&out.stderr).contains("/nowhere/at/all.html"));
    assert!(start.elapsed().as_secs() < 20, "all tables take minutes");
}
