//! What a person at a terminal sees and is asked.

#[path = "../common/pty.rs"]
pub(crate) mod pty;

use crate::*;
use std::fs::File;
use std::process::Child;

/// Starts zoneplug on a terminal of `columns`, of which it returns the other side.
pub(crate) fn start_on_a_terminal(args: &[&str], columns: u16) -> (Child, File) {
    let mut command = Command::new(program(args));
    command.args(args);
    on_terminal(command, columns)
}

/// Starts a command on a terminal of `columns`, of which it returns the other side.
pub(crate) fn on_terminal(mut command: Command, columns: u16) -> (Child, File) {
    let (pty, side) = pty::open(24, columns);
    let child = command
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .stdin(side())
        .stdout(side())
        .stderr(side())
        .spawn()
        .unwrap();
    (child, pty)
}

/// Runs the command on a terminal of `columns`, types `keys`, and returns what the terminal was sent.
fn on_a_terminal(args: &[&str], columns: u16, keys: &str) -> (Option<i32>, String) {
    let (mut child, mut master) = start_on_a_terminal(args, columns);
    master.write_all(keys.as_bytes()).unwrap();
    // Reading ends with an error once the child's ends are closed.
    let mut seen = Vec::new();
    let mut some = [0; 4096];
    while let Ok(n @ 1..) = master.read(&mut some) {
        seen.extend(&some[..n]);
    }
    (child.wait().unwrap().code(), text(&seen))
}

#[test]
fn a_terminal_is_asked_and_sees_bars_and_colours() {
    let dir = Dir::new("terminal");
    let disk = dir.disk("--zones 200 --zone-size 1M");
    let file = dir.path("data");
    std::fs::write(&file, noise(40 << 20, 3)).unwrap();
    let (code, seen) = on_a_terminal(&["write", &disk, &file, "--bs", "64K"], 100, "");
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("MiB/40.00 MiB") && seen.contains("41943040 bytes written"), "{seen}");

    let (_, map) = on_a_terminal(&["report", "--map", &disk], 60, "");
    assert!(
        map.contains(&format!("\x1b[32m{}\x1b[0m\x1b[2m········\x1b[0m", "█".repeat(40))),
        "{map}"
    );

    let (code, seen) = on_a_terminal(&["reset", &disk], 100, "n\n");
    assert!(
        code == Some(2) && seen.contains("40 zones (0-39): 40M written. Go on? [y/N]"),
        "{seen}"
    );
    assert!(seen.contains("nothing was changed"), "{seen}");
    assert!(conditions(&disk).starts_with("fu fu"));
    let (code, seen) = on_a_terminal(&["reset", &disk, "-v"], 100, "y\n");
    assert!(code == Some(0) && seen.contains("reset: 200 zones (0-199)"), "{seen}");
    assert!(conditions(&disk).starts_with("em em"));

    let (code, seen) = on_a_terminal(&["read", &disk], 100, "");
    assert!(code == Some(2) && seen.contains("fill the terminal"), "{seen}");
    let (code, seen) = on_a_terminal(&["write", &disk], 100, "");
    assert!(code == Some(2) && seen.contains("standard input is a terminal"), "{seen}");
}

/// What a terminal shows at the end: without the escapes, and without what was drawn and erased on the way.
fn shown(seen: &str) -> Vec<String> {
    let line = |l: &str| {
        let last = l.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
        let mut parts = last.split('\x1b');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |i| i + 1);
            text += &part[end..];
        }
        text
    };
    seen.split('\n').map(line).collect()
}

#[test]
fn nothing_wraps_on_a_terminal_of_80_columns() {
    let runs: [&[&str]; 5] = [
        &["demo", "--seconds", "0.02"],
        &["info", "mem,zone=64"],
        &["reproduce", "zns", "--quick"],
        &["report", "mem,zones=5"],
        &["bench", "--disk", "sim-zns1", "--runtime", "50ms", "--mode", "plug,lock"],
    ];
    for args in runs {
        let (_, seen) = on_a_terminal(args, 80, "");
        let lines = shown(&seen);
        assert!(lines.len() >= 3, "{args:?}: {seen}");
        for line in lines {
            assert!(line.chars().count() <= 80, "{args:?}: {line:?}");
        }
    }
    let (code, seen) = on_a_terminal(&["demo", "--seconds", "0.02"], 80, "");
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("1. writes stay in order") && seen.contains("\x1b[32m"), "{seen}");
}

/// How far a job says that it is, at last. Its bar is drawn some times a second, so the end itself may not be drawn.
fn percent(seen: &str) -> u32 {
    let mut shown = seen.split('%').filter_map(|s| s.rsplit(' ').next()?.parse().ok());
    shown.next_back().unwrap_or(0)
}

#[test]
fn a_long_job_shows_how_far_it_is() {
    let (code, seen) = on_a_terminal(&["reproduce", "zns", "--quick"], 100, "");
    assert_eq!(code, Some(0), "{seen}");
    // The verdicts behind it are percentages too.
    let bar = seen.rsplit_once("in virtual time").map_or("", |(bar, _)| bar);
    assert!(percent(bar) > 50, "{seen}");
    assert!(seen.contains("rndw128K16"), "{seen}");
    let (code, seen) =
        on_a_terminal(&["bench", "--disk", "sim-zns1", "--runtime", "200ms"], 100, "");
    assert!(code == Some(0) && seen.contains("write on sim-zns1, in virtual time"), "{seen}");
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/data/traces/fio-seq.log");
    let (code, seen) = on_a_terminal(&["replay", trace, "--disk", "sim-zns1"], 100, "");
    assert!(code == Some(0) && seen.contains("100%") && seen.contains("takes"), "{seen}");
}
