//! docs/operating.md, as far as it needs neither systemd nor a kernel with ublk. The whole of it runs in a virtual machine.

use super::{Dir, ZONEPLUG, text};
use std::path::Path;
use std::process::Command;

const PAGE: &str = include_str!("../../../../docs/operating.md");
const UNIT: &str = include_str!("../../../../packaging/zoneplug@.service");
const DIRS: &str = include_str!("../../../../debian/zoneplug.dirs");

/// The text below a heading.
fn section(heading: &str) -> &'static str {
    let start = PAGE.find(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("{heading}"));
    let text = &PAGE[start + 4..];
    &text[..text.find("\n## ").unwrap_or(text.len())]
}

/// The lines of a text that stand between marks or are indented.
fn blocks(text: &'static str, indented: bool) -> Vec<&'static str> {
    let mut is_open = false;
    let mut all = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            is_open = !is_open;
        } else if is_open && !indented {
            all.push(line);
        } else if indented {
            all.extend(line.strip_prefix("    "));
        }
    }
    all
}

/// Runs lines of the page in a shell, with the directories of the page below `dir`. Lines of other programs are left out.
fn run(lines: &[&str], dir: &Dir) -> String {
    let others = ["systemctl", "journalctl", "btrfs", "mkfs.btrfs", "mount", "dpkg"];
    let is_ours = |line: &&&str| !others.contains(&line.split(' ').next().unwrap_or_default());
    let script: Vec<&str> = lines.iter().filter(is_ours).copied().collect();
    let script = script.join("\n").replace("/etc/zoneplug", &dir.path("etc"));
    let script = script.replace("/var/lib/zoneplug", &dir.path("lib"));
    let path = Path::new(&*ZONEPLUG).parent().unwrap().display();
    let path = format!("{path}:{}", std::env::var("PATH").unwrap());
    let out =
        Command::new("bash").args(["-euo", "pipefail", "-c", &script]).env("PATH", path).output();
    let out = out.unwrap();
    assert!(out.status.success(), "{script}\n{}", text(&out.stderr));
    text(&out.stdout)
}

#[test]
fn the_way_without_a_package_makes_what_the_unit_and_the_package_name() {
    let lines = blocks(section("Installing"), false);
    let has = |what: &str| assert!(lines.iter().any(|l| l.contains(what)), "{what}: {lines:?}");
    for dir in DIRS.lines() {
        has(&format!("install -d -m 7{} /{dir}", if dir.starts_with("etc") { "55" } else { "00" }));
    }
    let keys: Vec<_> = UNIT.lines().filter_map(|line| line.split_once('=')).collect();
    let of = |key| keys.iter().find(|(k, _)| *k == key).unwrap().1;
    has(of("ExecStart").split(' ').next().unwrap());
    has(&format!("groupadd --system {}", of("Group")));
    has("/etc/systemd/system/zoneplug@.service");
    has("61-zoneplug.rules");
}

#[test]
fn the_disks_of_the_page_have_numbers_of_their_own_and_grow() {
    let dir = Dir::new("operating");
    for made in ["etc", "lib"] {
        std::fs::create_dir(dir.path(made)).unwrap();
    }
    let serving = blocks(section("Serving disks from the start of the machine on"), true);
    let (status, serving): (Vec<_>, Vec<_>) =
        serving.iter().partition(|l| **l == "zoneplug status");
    assert_eq!(status.len(), 1);
    let said = run(&serving, &dir);
    assert!(said.contains("as /dev/ublkb0,") && said.contains("no errors"), "{said}");
    run(&blocks(section("Replacing a disk"), true), &dir);
    let check = "zoneplug serve --check-config /etc/zoneplug/disk1.toml";
    assert!(run(&[check], &dir).contains("as /dev/ublkb1,"));
    let grown = run(&blocks(section("Growing a disk"), true), &dir);
    assert!(grown.contains("120 sequential"), "{grown}");
}
