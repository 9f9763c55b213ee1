//! `zoneplug help spec` and zoneplug-spec(5): every kind, key and layer of the tables is there, and its examples do
//! what the page says.

use super::*;
use zoneplug_core::form::Key;
use zoneplug_devices::emu::timing::{PROFILE_KEYS, SMR_KEYS, ZNS_KEYS};
use zoneplug_devices::stack::FaultPlan;
use zoneplug_host::{KINDS, LAYERS, disk_keys};

/// Words with single blanks between them.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn keys() -> impl Iterator<Item = &'static Key> {
    let own = KINDS.iter().chain(&LAYERS).flat_map(|k| k.keys());
    own.chain(disk_keys()).chain(&PROFILE_KEYS).chain(&SMR_KEYS).chain(&ZNS_KEYS)
}

/// What must be on the page, each piece on a line of its own or in running text.
fn pieces() -> Vec<String> {
    let mut all = Vec::new();
    for kind in KINDS.iter().chain(&LAYERS) {
        all.extend([kind.name, kind.about, kind.example].map(str::to_owned));
    }
    for key in keys() {
        all.extend(std::iter::once(&key.name).chain(key.aliases).map(|n| format!("{n}=")));
        all.extend([key.form.range(), key.about.to_owned()]);
    }
    all.extend(FaultPlan::operations().map(str::to_owned));
    all.extend(FaultPlan::statuses().map(|(name, _)| name.to_owned()));
    for (form, about) in FaultPlan::actions().chain(FaultPlan::filters()) {
        all.extend([form.to_owned(), about.to_owned()]);
    }
    all
}

#[test]
fn the_page_has_every_kind_key_and_layer_in_80_columns() {
    let page = ok(&["help", "spec"]);
    assert!(page.lines().all(|l| l.chars().count() <= 80 && l.trim_end() == l), "{page}");
    assert!(page.lines().count() > 300);
    let (page, manual) =
        (flat(&page), flat(&ok(&["man", "--spec"]).replace("\\-", "-").replace("\\*(Aq", "'")));
    for piece in pieces() {
        assert!(page.contains(&piece), "'{piece}' is not on the page");
        assert!(manual.contains(&piece), "'{piece}' is not in the manual");
    }
}

/// The document for users has every key of the disk and of the emulated disks that a newcomer looks for.
#[test]
fn the_document_has_every_key_of_the_disk() {
    let document = include_str!("../../../../docs/commands.md");
    for key in disk_keys() {
        assert!(document.contains(&format!("`{}=", key.name)), "{}=", key.name);
    }
    for kind in KINDS.iter().chain(&LAYERS).filter(|k| !k.is_path()) {
        assert!(document.contains(&format!("`{}", kind.name)), "{}", kind.name);
    }
}

#[test]
fn the_manual_of_specifications_is_in_section_5() {
    let dir = Dir::new("spec5");
    let pages = ok(&["man", &dir.path("man")]);
    assert!(pages.lines().any(|l| l.ends_with("zoneplug-spec.5")), "{pages}");
    let written = std::fs::read_to_string(dir.path("man/zoneplug-spec.5")).unwrap();
    assert_eq!(written, ok(&["man", "--spec"]));
    assert!(written.contains(".TH zoneplug-spec 5 "));
    for section in ["SYNOPSIS", "KINDS", "LAYERS", "FAULTS"] {
        assert!(written.contains(&format!(".SH {section}\n")), "{section}");
    }
}

/// The examples of faults: the disks on the page, with what the page says of them seen on a disk.
#[test]
fn the_five_examples_of_faults_do_what_the_page_says() {
    let page = ok(&["help", "spec"]);
    let (_, examples) = page.split_once("Five examples:").unwrap();
    let specs: Vec<&str> = examples.split_whitespace().filter(|w| w.contains(",fault=")).collect();
    let [write, read, torn, flush, cut] = specs[..] else { panic!("five of {specs:?}") };

    // Zone 3 of `mem` begins at 48 MiB. The writes that fail are those of the first 2 commands.
    fails_with(&["write", write, "--offset", "98304"], &[1; 4096], 1, "I/O error");
    let out = feed(&["write", write, "--offset", "65536"], &[1; 4096]);
    assert_eq!(out.status.code(), Some(0), "another zone: {}", text(&out.stderr));

    // 5 ms for one of a hundred reads are 50 us for each, which is not the processor's time.
    let args = ["bench", "--disk", read, "--rw", "read", "--bs", "4K", "--runtime", "300ms"];
    let report = json(&[&args[..], &["--json"]].concat());
    let each = |key: &str| report["measure"][key].as_f64().unwrap();
    assert!(each("ns_per_bio") - each("cpu_ns_per_bio") > 25_000.0, "{report}");
    assert_eq!(report["measure"]["refused"], 0);

    let args = ["write", torn, "--bs", "8K", "--depth", "1"];
    fails_with(&args, &noise(64 << 10, 3), 1, "(16384 bytes were written before)");

    fails(&["flush", flush], 1, "medium error");
    // A busy append is sent again; the flush at the end fails.
    let disk = format!("{flush},append=native");
    fails_with(
        &["append", &disk, "--bs", "4K"],
        &[1; 8192],
        1,
        "(8192 bytes were appended before)",
    );

    fails(&["flush", cut], 3, "no device");
}

#[test]
fn help_shows_commands_and_the_page() {
    assert_eq!(ok(&["help", "attr"]), ok(&["attr", "--help"]));
    assert_eq!(ok(&["help"]), ok(&["--help"]));
    fails(&["help", "spce"], 2, "zoneplug spec");
    fails(&["help", "nothing-like-it"], 2, "zoneplug --help lists the commands");
}

/// What is wrong with a specification sends the reader to the page.
#[test]
fn errors_of_a_specification_name_the_page() {
    for spec in ["mem,zone=4", "mem,zones=0", "po2,x=1@mem", "mem,fault=write", "mem,fault=x/io"] {
        fails(&["info", spec], 2, "zoneplug help spec");
    }
    fails(&["info", "mem,policy=lifo"], 2, "fifo, clook, score, brief, steady; see zoneplug help");
    fails(&["attr", "mem", "qd1", "2"], 2, "zoneplug help spec");
}

/// `attr` takes aliases, and a value with its unit.
#[test]
fn attributes_have_aliases() {
    assert_eq!(ok(&["attr", "mem,rotational=1", "qd1"]), "1\n");
    assert_eq!(ok(&["attr", "mem,qd1=1,anticipation-us=1ms", "anticipation_us"]), "1000\n");
    let set = ok(&["attr", "mem", "policy", "clook"]);
    assert!(set.starts_with("zoned_qd1_policy: fifo -> clook, for as long as"), "{set}");
    fails(&["info", "mem,qd1=1,zoned_qd1_writes=1"], 2, "are the same option");
    let all = ok(&["attr", "mem,scheduler=mq-deadline"]);
    assert!(all.contains("rw anticipation_us          0            0..1000000 us\n"), "{all}");
    assert!(all.lines().all(|l| l.chars().count() <= 80), "{all}");
}
