//! The tables of keys against the parser of specifications: every kind and every layer, key by key. A key in a table is
//! known under each of its names and within its bounds; a key in another table is refused.

#![cfg(all(feature = "file", feature = "drives", feature = "crypt"))]

use std::collections::BTreeSet;
use std::path::PathBuf;
use zoneplug_core::disk::{ATTRIBUTES, DiskConfig};
use zoneplug_core::form::{Edges, Form, Key};
use zoneplug_devices::emu::timing::{Profile, ZNS_KEYS};
use zoneplug_host::file::{CreateOptions, create};
use zoneplug_host::{DiskSpec, KINDS, Kind, LAYERS, disk_keys};

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let name = format!("spec-keys-{name}-{}", std::process::id());
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("key"), (0..64).collect::<Vec<u8>>()).unwrap();
        std::fs::write(dir.join("my.profile"), Profile::builtin_text("smr30").unwrap()).unwrap();
        let options =
            CreateOptions { zones: Some(8), zone_size: Some(64 << 10), ..CreateOptions::default() };
        create(&dir.join("disk.zbd"), &options, false).unwrap();
        Dir(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// The least that names a kind, and what follows its options.
    fn named(&self, kind: &Kind) -> (String, &'static str) {
        let layer = LAYERS.iter().any(|l| l.name == kind.name);
        let name = match kind.name {
            "FILE" => self.path("disk.zbd"),
            // A device of characters: its keys are read before it is found to be no drive.
            "DRIVE" => "/dev/null".to_owned(),
            "crypt" => format!("crypt,key-file={}", self.path("key")),
            "trace" => format!("trace,file={}", self.path("trace.txt")),
            "delay" => "delay,any=1ms".to_owned(),
            "sim" => format!("sim,profile={}", self.path("my.profile")),
            name => name.to_owned(),
        };
        (name, if layer { "@mem,zones=8,zone-size=64K" } else { "" })
    }

    /// What the parser says of a kind with an option.
    fn says(&self, kind: &Kind, option: &str) -> String {
        let (mut name, end) = self.named(kind);
        let key = option.split('=').next().unwrap();
        if name.contains(&format!(",{key}=")) {
            name = kind.name.to_owned();
        }
        match DiskSpec::parse(&format!("{name},{option}{end}")) {
            Ok(_) => String::new(),
            Err(e) => format!("{} | {}", e.what(), e.what_to_try().unwrap()),
        }
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn names(key: &Key) -> impl Iterator<Item = &'static str> {
    std::iter::once(key.name).chain(key.aliases.iter().copied())
}

/// A kind, and the keys that a specification of it may have before any layer's `@`. The profile of these tests is one
/// of an SMR disk.
fn kinds() -> impl Iterator<Item = (&'static Kind, Vec<&'static Key>)> {
    let has = |kind: &Kind, key: &&Key| kind.name != "sim" || !ZNS_KEYS.contains(key);
    let devices = KINDS
        .iter()
        .map(move |k| (k, k.keys().filter(|key| has(k, key)).chain(disk_keys()).collect()));
    devices.chain(LAYERS.iter().map(|l| (l, l.keys().collect())))
}

/// A value beyond a bound of the table is refused by the parser under the key's every name, with the table's bounds.
#[test]
fn the_parser_has_the_bounds_of_the_tables() {
    let dir = Dir::new("bounds");
    for (kind, keys) in kinds() {
        for key in keys {
            let Edges { good, bad } = key.form.edges();
            for name in names(key) {
                for value in &bad {
                    let e = dir.says(kind, &format!("{name}={value}"));
                    let what = format!("{name}={value} is not possible | {name} is ");
                    assert!(e.starts_with(&what), "{}: {e}", kind.name);
                    assert!(
                        e.ends_with(&format!("{}; see zoneplug help spec", key.form.allowed()))
                    );
                }
                // What a value at a bound does with the rest of the disk is another matter.
                for value in good.iter().filter(|_| !matches!(key.form, Form::Text(_))) {
                    if !opens_quickly(key, value) {
                        continue;
                    }
                    let e = dir.says(kind, &format!("{name}={value}"));
                    assert!(!e.contains(&key.form.allowed()), "{} {name}: {e}", kind.name);
                    assert!(!e.contains("has no option"), "{}: {e}", kind.name);
                }
            }
        }
    }
}

/// Disks of terabytes take memory and time, which is not what is looked for.
fn opens_quickly(key: &Key, value: &str) -> bool {
    !matches!(key.name, "zones" | "conv") || value.len() < 3
}

/// The parser knows no key that is missing in the table of its kind.
#[test]
fn a_key_of_another_kind_is_refused() {
    let dir = Dir::new("others");
    let all: BTreeSet<&str> =
        kinds().flat_map(|(_, keys)| keys).flat_map(names).chain(["surely-not"]).collect();
    assert!(all.len() > 80);
    for (kind, keys) in kinds() {
        let known: BTreeSet<&str> = keys.into_iter().flat_map(names).collect();
        for name in all.difference(&known) {
            let e = dir.says(kind, &format!("{name}=1"));
            assert!(e.contains(&format!("has no option {name} | ")), "{}: {name}: {e}", kind.name);
            assert!(e.contains("zoneplug help spec lists the options of "), "{e}");
        }
    }
}

/// No two keys of a kind share a name, and every key is explained in a sentence.
#[test]
fn the_tables_are_fit_to_be_read() {
    for (kind, keys) in kinds() {
        let all: Vec<&str> = keys.iter().copied().flat_map(names).collect();
        let distinct: BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "{}: {all:?}", kind.name);
        for key in keys {
            assert!(key.about.ends_with('.') && key.about.len() < 90, "{}", key.about);
        }
        assert!(kind.about.ends_with('.'), "{}", kind.about);
    }
}

/// The examples of the tables are specifications.
#[test]
fn the_examples_of_the_tables_open() {
    let dir = Dir::new("examples");
    for kind in KINDS.iter().chain(&LAYERS).filter(|k| k.name != "DRIVE") {
        let mut text = kind.example.to_owned();
        for file in ["disk.zbd", "my.profile", "out.txt"] {
            text = text.replace(file, &dir.path(file));
        }
        text = text.replace("key-file=key", &format!("key-file={}", dir.path("key")));
        let opened = DiskSpec::parse(&text);
        assert!(opened.is_ok(), "{text}: {:?}", opened.err());
        let start = kind.example.split(['@', ',']).next().unwrap();
        assert!(start == kind.name || kind.name == "FILE", "{text}");
    }
}

/// Attributes through a specification: every name, every bound, the same configuration as by hand.
#[test]
fn a_specification_sets_every_attribute_under_every_name() {
    for a in ATTRIBUTES.iter().filter(|a| a.is_key()) {
        for value in &a.key.form.edges().good {
            let mut by_hand = DiskConfig::default();
            a.set(&mut by_hand, a.key.form.read(value).unwrap());
            for name in names(&a.key) {
                let text = format!("null,zones=8,zone-size=64K,ordered=1,{name}={value}");
                assert_eq!(DiskSpec::parse(&text).unwrap().config, by_hand, "{text}");
            }
        }
    }
    let e = DiskSpec::parse("mem,qd1=1,zoned_qd1_writes=1").unwrap_err();
    assert_eq!(e.what(), "zoned_qd1_writes and qd1 are the same option");
}

/// On a modelled drive `queue-depth` is the attribute of the disk, and the drive keeps that of its profile.
#[test]
fn the_depth_of_a_scheduler_is_not_that_of_a_modelled_drive() {
    let plain = DiskSpec::parse("sim-smr30").unwrap();
    for name in ["queue-depth", "queue_depth"] {
        let spec = DiskSpec::parse(&format!("sim-smr30,scheduler=mq-deadline,{name}=8")).unwrap();
        assert_eq!((spec.config.queue_depth, spec.tags), (8, plain.tags));
    }
}
