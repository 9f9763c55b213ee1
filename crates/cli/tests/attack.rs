//! The attack of `scripts/attack`, in short: processes that work on durable disks are killed, and the power is cut
//! under them; a verifier in Python (`tests/attack`), which shares no code with the other tests, decides from its own
//! record what has to be there.
//!
//!     ZONEPLUG_ATTACK=500 cargo test --release -p zoneplug-cli --test attack      # so many of each
//!
//! The process that is killed is this very program, started again with what `victim.rs` takes as arguments.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/attack/victim.rs"]
mod victim;

use std::process::Command;

/// Runs the attack, or the victim if that is what this process was started for.
fn attack(test: &str, kind: &str, number: u32, more: &[&str]) {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a.contains('=')).collect();
    if args.iter().any(|a| a.starts_with("spec=")) {
        victim::run(&args);
        return;
    }
    let needs = ["python3", if kind == "cuts" { "cc" } else { "python3" }];
    if let Some(missing) = needs.iter().find(|n| Command::new(n).arg("--version").output().is_err())
    {
        eprintln!("not run: there is no {missing} here");
        return;
    }
    let number = std::env::var("ZONEPLUG_ATTACK").unwrap_or_else(|_| number.to_string());
    let victim =
        format!("'{}' {test} --exact --nocapture", std::env::current_exe().unwrap().display());
    let output = Command::new("python3")
        .args(["-B", concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/attack/attack.py")])
        .args(["--kills", if kind == "kills" { &number } else { "0" }])
        .args(["--cuts", if kind == "cuts" { &number } else { "0" }])
        .args(["--served", if kind == "served" { &number } else { "0" }])
        .args(["--zoneplug", env!("CARGO_BIN_EXE_zoneplug")])
        .args(["--target", env!("CARGO_TARGET_TMPDIR"), "--victim", &victim])
        .args(more)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("nothing lost"), "{said}");
    println!("{said}");
}

/// Take-overs, kills, copies and other files, below a host that writes.
#[test]
fn attacks_on_servers_lose_nothing() {
    attack("attacks_on_servers_lose_nothing", "served", 10, &["--seed", "4"]);
}

/// The verifier believes its record, which a kill may cut short anywhere.
#[test]
fn the_record_is_read_as_it_was_written() {
    let test = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/attack/test_record.py");
    match Command::new("python3").args(["-B", test]).output() {
        Err(e) => eprintln!("not run: python3: {e}"),
        Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr)),
    }
}

#[test]
fn kills_lose_nothing() {
    attack("kills_lose_nothing", "kills", 16, &[]);
}

#[test]
fn power_cuts_lose_nothing() {
    attack("power_cuts_lose_nothing", "cuts", 12, &["--no-failing-syncs"]);
}

#[test]
fn power_cuts_of_joined_disks_lose_nothing() {
    let more = ["--no-failing-syncs", "--stack", "stripe"];
    attack("power_cuts_of_joined_disks_lose_nothing", "cuts", 8, &more);
}

#[test]
fn power_cuts_after_a_failed_sync_lose_nothing() {
    attack("power_cuts_after_a_failed_sync_lose_nothing", "cuts", 6, &["--only-failing-syncs"]);
}
