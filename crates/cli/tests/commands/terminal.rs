//! What a person at a terminal sees and is asked.

use crate::*;

/// Runs the command on a terminal of `columns`, types `keys`, and returns what the terminal was sent.
fn on_a_terminal(args: &[&str], columns: u16, keys: &str) -> (Option<i32>, String) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let pty = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&pty).unwrap();
    unlockpt(&pty).unwrap();
    let name = ptsname(&pty, Vec::new()).unwrap().into_string().unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&pty, size).unwrap();
    let side = || std::fs::OpenOptions::new().read(true).write(true).open(&name).unwrap();
    let mut master = std::fs::File::from(pty);
    let mut child = Command::new(ZONEPLUG)
        .args(args)
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .stdin(side())
        .stdout(side())
        .stderr(side())
        .spawn()
        .unwrap();
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

#[test]
fn a_long_job_shows_how_far_it_is() {
    let (code, seen) = on_a_terminal(&["reproduce", "zns", "--quick"], 100, "");
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("in virtual time") && seen.contains("100%"), "{seen}");
    assert!(seen.contains("rndw128K16"), "{seen}");
    let (code, seen) =
        on_a_terminal(&["bench", "--disk", "sim-zns1", "--runtime", "200ms"], 100, "");
    assert!(code == Some(0) && seen.contains("write on sim-zns1, in virtual time"), "{seen}");
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/tests/data/traces/fio-seq.log");
    let (code, seen) = on_a_terminal(&["replay", trace, "--disk", "sim-zns1"], 100, "");
    assert!(code == Some(0) && seen.contains("100%") && seen.contains("takes"), "{seen}");
}
