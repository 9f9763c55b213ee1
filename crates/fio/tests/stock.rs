//! Stock fio, which appends and then verifies with its own checksums and headers. fio must be installed.

use std::path::PathBuf;
use std::process::Command;

/// The engine that cargo has built for this test.
fn engine() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let mut found = test.ancestors().skip(1).map(|dir| dir.join("libzoneplug_fio.so"));
    found.find(|file| file.exists()).expect("cargo builds the library for its tests")
}

/// Runs fio on a disk of eight zones of 256 KiB, two of them conventional. Returns whether it ended well, and what it
/// printed. `None`: there is no fio.
fn fio(disk: &str, more: &[&str]) -> Option<(bool, String)> {
    let mut command = Command::new("fio");
    command
        .arg(format!("--ioengine=external:{}", engine().display()))
        .arg(format!("--filename=mem,zones=8,zone-size=256K,conv=2,reorder=7,{disk}"))
        .args(["--thread", "--direct=1", "--zonemode=zbd", "--name=job"])
        .args(["--iodepth=16", "--bs=4k", "--verify=crc32c"])
        .args(more)
        .current_dir(std::env::temp_dir());
    match command.output() {
        Ok(out) => {
            let text = [out.stdout, out.stderr].concat();
            Some((out.status.success(), String::from_utf8_lossy(&text).into_owned()))
        }
        Err(e) => {
            assert!(std::env::var_os("ZONEPLUG_CI").is_none(), "fio: {e}");
            eprintln!("passed over, there is no fio: {e}");
            None
        }
    }
}

/// How many appends there were, and how many landed elsewhere than where fio would have written.
fn appends(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find(|l| l.contains("landed elsewhere"))?;
    let mut numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

#[test]
fn fio_verifies_appends_where_the_disk_put_them() {
    for rw in ["write", "randwrite"] {
        let disk = "append=native,zone_append=1";
        let Some((ok, text)) = fio(disk, &["--rw", rw, "--offset=512k"]) else { return };
        assert!(ok && !text.contains("verify:"), "{rw}: {text}");
        let (all, elsewhere) = appends(&text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(all, 6 * 64, "{rw}: six zones of 64 blocks: {text}");
        assert!(elsewhere > all / 2, "{rw}: the disk kept fio's order: {text}");
    }
}

#[test]
fn the_line_about_appends_is_not_in_the_results_of_fio() {
    let file = std::env::temp_dir().join(format!("zoneplug-fio-{}.json", std::process::id()));
    let out = format!("--output={}", file.display());
    let more = ["--rw=write", "--output-format=json", &out];
    let Some((ok, text)) = fio("append=native,zone_append=1", &more) else { return };
    let results = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(ok && appends(&text).is_some(), "{text}");
    assert!(results.trim_end().ends_with('}'), "{results}");
}

#[test]
fn fio_verifies_appends_that_the_layer_emulates_and_writes_beside_them() {
    let Some((ok, text)) = fio("zone_append=1", &["--rw=write"]) else { return };
    assert!(ok && !text.contains("verify:"), "{text}");
    assert_eq!(appends(&text).unwrap().0, 6 * 64, "conventional zones take no appends: {text}");
}

#[test]
fn a_file_name_without_the_option_writes() {
    let Some((ok, text)) = fio("append=native", &["--rw=write"]) else { return };
    assert!(ok && appends(&text).is_none(), "{text}");
    let (ok, text) = fio("zone_append=yes", &["--rw=write"]).unwrap();
    assert!(!ok && text.contains("zone_append=yes is not possible"), "{text}");
}
