//! Every command closes the disk that it used: the next one finds no writer that died.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::process::{Command, Stdio};

/// Runs `zoneplug` with `input` on its standard input; it must succeed.
fn run(args: &[&str], input: &[u8]) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_zoneplug"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "zoneplug {args:?}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn every_command_closes_the_disk() {
    let dir = std::env::temp_dir().join(format!("zoneplug-cli-closing-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("disk.zbd");
    let disk = path.to_str().unwrap();
    run(&["create", disk, "--zones", "8", "--zone-size", "1M"], b"");
    assert!(run(&["check", disk], b"").contains("it was never opened for writing"));
    let data = vec![0xa5; 3 << 20];
    let commands: [(&[&str], &[u8]); 6] = [
        (&["write", disk], &data),
        (&["append", disk, "-o", "8192"], &data[..8192]),
        (&["finish", disk, "-o", "8192", "-c", "1"], b""),
        (&["reset", disk, "-o", "8192", "-c", "1"], b""),
        (&["resync", disk], b""),
        (&["flush", disk], b""),
    ];
    for (args, input) in commands {
        run(args, input);
        let check = run(&["check", disk], b"");
        assert!(check.contains("it was closed"), "after {}: {check}", args[0]);
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
