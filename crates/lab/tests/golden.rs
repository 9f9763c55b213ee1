//! The tables of `zoneplug-lab reproduce` that are simulated, as files: a change of any cell is seen in a review, and a
//! cell outside of its band fails.
//!
//! A release build runs all of them over all geometries and seeds, and compares with `golden/`; a debug build, which is
//! slow, one run of each cell of some, with `golden/quick/`. After an intended change, write both sets of files again:
//!
//!     ZONEPLUG_BLESS=1 cargo test -p zoneplug-cli --test golden
//!     ZONEPLUG_BLESS=1 cargo test --release -p zoneplug-cli --test golden

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Tables that a debug build runs.
const QUICK: [&str; 6] =
    ["smr30-seq", "smr30-random", "zns", "zns-serial", "append-zns", "smr30-xfs"];

fn golden() -> PathBuf {
    let quick = if cfg!(debug_assertions) { "quick" } else { "" };
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(quick)
}

/// Runs `zoneplug-lab reproduce`. Returns the name and the text of each table.
fn tables() -> Vec<(String, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zoneplug-lab"));
    command.args(["reproduce", "--simulated"]);
    if cfg!(debug_assertions) {
        command.arg("--quick").args(QUICK);
    }
    let out = command.output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let errors = String::from_utf8(out.stderr).unwrap();
    // The bands: a cell outside of one sets the exit code.
    assert!(out.status.success(), "{errors}{}", failures(&text));
    let mut tables: Vec<(String, String)> = Vec::new();
    for part in text.split("\n\n") {
        let name = part.split_whitespace().next().unwrap_or_default();
        // The last part is what all of it comes to.
        let name = if name == "Results:" { "results" } else { name };
        tables.push((name.to_owned(), format!("{}\n", part.trim_end())));
    }
    tables
}

fn failures(text: &str) -> String {
    let bad = text.lines().filter(|l| l.contains("FAIL"));
    bad.map(|l| format!("{l}\n")).collect()
}

/// Lines that differ, the old one with a minus and the new one with a plus.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let mut out = String::new();
    for i in 0..old.len().max(new.len()) {
        let (a, b) = (old.get(i), new.get(i));
        if a != b {
            out += &a.map_or(String::new(), |l| format!("- {l}\n"));
            out += &b.map_or(String::new(), |l| format!("+ {l}\n"));
        }
    }
    out
}

/// Q14, C4.
#[test]
fn simulated_tables_are_what_they_were_and_inside_their_bands() {
    let tables = tables();
    let wanted = if cfg!(debug_assertions) { QUICK.len() } else { 15 };
    // And what all of it comes to.
    assert_eq!(tables.len(), wanted + 1, "{:?}", tables.iter().map(|t| &t.0).collect::<Vec<_>>());
    if std::env::var_os("ZONEPLUG_BLESS").is_some() {
        std::fs::create_dir_all(golden()).unwrap();
        for (name, text) in &tables {
            std::fs::write(golden().join(format!("{name}.txt")), text).unwrap();
        }
        return;
    }
    let mut changed = String::new();
    for (name, text) in &tables {
        let path = golden().join(format!("{name}.txt"));
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        if old != *text {
            changed += &format!("{name}:\n{}", difference(&old, text));
        }
    }
    assert!(
        changed.is_empty(),
        "cells changed (see the head of this file for how to accept):\n{changed}"
    );
    // A file whose table is gone is no golden file any more.
    for file in std::fs::read_dir(golden()).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|e| e == "txt") {
            let stem = path.file_stem().unwrap().to_str().unwrap();
            assert!(tables.iter().any(|(name, _)| name == stem), "{stem} has no table");
        }
    }
}

#[test]
fn a_difference_shows_the_line_before_and_after() {
    assert_eq!(difference("a\nb\nc\n", "a\nB\nc\nd\n"), "- b\n+ B\n+ d\n");
    assert_eq!(difference("a\n", "a\n"), "");
}
