//! The manual of specifications: `zoneplug help spec` and zoneplug-spec(5), from the tables that the parser reads.

use crate::term;
use clap_mangen::roff::{Roff, bold, roman};
use zoneplug_core::disk::{Change, find_attribute};
use zoneplug_core::form::{DefaultValue, Key};
use zoneplug_devices::emu;
use zoneplug_devices::emu::timing::{PROFILE_KEYS, SMR_KEYS, ZNS_KEYS};
use zoneplug_devices::stack::FaultPlan;
use zoneplug_host::{KINDS, Kind, LAYERS, disk_keys};

/// A part of the page.
enum Part {
    /// The title of a section.
    Section(&'static str),
    /// A paragraph.
    Text(String),
    /// Lines that are shown unchanged.
    Code(Vec<String>),
    /// A term with paragraphs about it.
    Entry(String, Vec<String>),
}

use Part::{Code, Entry, Section, Text};

/// Examples of faults: a disk, and the fault's effect.
const FAULTS: [(&str, &str); 5] = [
    ("mem,fault=write/io/zone=3/count=2", "the first two writes to zone 3 fail with an I/O error"),
    ("mem,fault=read/delay=5ms/p=0.01", "one read in a hundred completes 5 ms later"),
    ("mem,fault=write/torn=4K/skip=2", "4 KiB of the third write are written, then it fails"),
    (
        "mem,fault=flush/medium+append/busy",
        "the first flush fails, and the first zone append is busy",
    ),
    ("mem,write-cache=1,fault=flush/cut+seed=7", "the power goes at the first flush"),
];

/// The parts of the page.
fn page() -> Vec<Part> {
    let mut all = vec![
        Section("SYNOPSIS"),
        Code(
            ["KIND[,KEY=VALUE]...", "LAYER[,KEY=VALUE]...@SPEC", "LAYER@SPEC%SPEC[%SPEC]..."]
                .map(str::to_owned)
                .to_vec(),
        ),
        Section("DESCRIPTION"),
        Text(
            "A specification names a disk: a kind of device or a path, then keys with values, separated by single \
             commas without blanks. All commands, the fio engine and the library take the same text."
                .to_owned(),
        ),
        Text(
            "A name that is exactly a kind is that kind; any other name is a path: ./mem is a file. A path or a value in \
             quotation marks has any characters: \"a,b@c.zbd\",qd1=1. In it, \\\" is a quotation mark and \\\\ a \
             backslash. For a shell, put the whole specification between ' and '."
                .to_owned(),
        ),
        Text(
            "Sizes are bytes, with K, M, G or T for powers of 1024 (or KiB to TiB). Times have a unit: ns, us, ms, s, \
             m or h. A key whose range has a unit after it takes a plain number of that unit; where that is a unit of \
             time, a time with its own unit too. Several names of a key mean the same."
                .to_owned(),
        ),
        Section("KINDS"),
    ];
    all.extend(KINDS.iter().map(|k| entry(k, k.name)));
    all.push(Section("KEYS OF EMULATED DISKS"));
    all.push(Text("Of mem and null.".to_owned()));
    all.extend(emu::KEYS.iter().map(key));
    for name in ["FILE", "DRIVE"] {
        let section = if name == "FILE" { "KEYS OF A DISK IN A FILE" } else { "KEYS OF A DRIVE" };
        all.push(Section(section));
        all.extend(KINDS.iter().filter(|k| k.name == name).flat_map(Kind::keys).map(key));
    }
    all.push(Section("KEYS OF MODELLED DRIVES"));
    all.push(Text(
        "Of sim and the kinds that begin with sim-. The keys of a profile, below, are keys of these kinds too: \
         sim-smr30,cache=128M is that drive with another cache."
            .to_owned(),
    ));
    let of_a_profile =
        |k: &&Key| [&PROFILE_KEYS[..], &SMR_KEYS, &ZNS_KEYS].iter().any(|table| table.contains(k));
    let sim = KINDS.iter().filter(|k| k.name == "sim").flat_map(Kind::keys);
    all.extend(sim.filter(|k| !of_a_profile(k)).map(key));
    all.push(Section("KEYS OF A PROFILE"));
    all.push(Text(
        "A profile is a file with a line for each key: key = value # where the number comes from."
            .to_owned(),
    ));
    all.extend(PROFILE_KEYS.iter().map(key));
    all.push(Text("Of an SMR disk:".to_owned()));
    all.extend(SMR_KEYS.iter().map(key));
    all.push(Text("Of a ZNS SSD:".to_owned()));
    all.extend(ZNS_KEYS.iter().map(key));
    all.push(Section("KEYS OF THE DISK"));
    all.push(Text(
        "These stand at the end of a specification, whatever the device is. Those marked with attr can also be \
         changed while the disk is in use: zoneplug attr DISK KEY VALUE."
            .to_owned(),
    ));
    all.extend(disk_keys().map(key));
    all.push(Section("LAYERS"));
    all.push(Text(
        "A layer stands in front of the device with an @ between them, the topmost layer first. Devices that are \
         joined are separated by %. What follows the name of a layer up to the @ is the layer's own. A layer of several \
         devices below another one is in brackets with its devices: stripe@[linear@A%B]%[linear@C%D]."
            .to_owned(),
    ));
    let fault = |k: &&Key| k.name == "fault";
    for layer in &LAYERS {
        all.push(entry(layer, &format!("{}@", layer.name)));
        all.extend(layer.keys().filter(|k| !fault(k)).map(key));
    }
    all.push(Text("Every layer has fault= too: faults on top of it.".to_owned()));
    all.extend(faults());
    all.push(Section("SEE ALSO"));
    all.push(Text(
        "zoneplug(1). zoneplug info SPEC shows the disk that a specification names, and zoneplug attr SPEC its \
         attributes."
            .to_owned(),
    ));
    all
}

fn faults() -> Vec<Part> {
    let plain = |(form, about): (&str, &str)| Entry(form.to_owned(), vec![about.to_owned()]);
    let mut all = vec![
        Section("FAULTS"),
        Text(
            "fault=OPERATION/WHAT/WHICH... makes commands of an operation fail. A + separates several faults; the \
             first that matches a command decides. +seed=N is the seed of everything random."
                .to_owned(),
        ),
        Text(format!(
            "OPERATION is one of {}.",
            FaultPlan::operations().collect::<Vec<_>>().join(", ")
        )),
        Text(format!(
            "WHAT is a status with which the command fails, {}, or one of these:",
            FaultPlan::statuses().map(|s| s.0).collect::<Vec<_>>().join(", ")
        )),
    ];
    all.extend(FaultPlan::actions().map(plain));
    all.push(Text("WHICH is nothing, or some of these:".to_owned()));
    all.extend(FaultPlan::filters().map(plain));
    all.push(Text("Five examples:".to_owned()));
    all.extend(FAULTS.map(|(spec, what)| Entry(spec.to_owned(), vec![sentence(what)])));
    all
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |c| format!("{}{}.", c.to_uppercase(), letters.as_str()))
}

/// The entry of a kind or a layer: its meaning and an example.
fn entry(kind: &Kind, name: &str) -> Part {
    Entry(name.to_owned(), vec![kind.about.to_owned(), format!("Example: {}", kind.example)])
}

/// The entry of a key: its names, range, default and meaning.
fn key(key: &Key) -> Part {
    let names: Vec<String> =
        std::iter::once(&key.name).chain(key.aliases).map(|n| format!("{n}=")).collect();
    let default = match key.default {
        DefaultValue::Required => "must be given".to_owned(),
        default => format!("default {default}"),
    };
    // `find_attribute` has only keys that every disk has. Another kind may have a different key of that name.
    let change = find_attribute(key.name).filter(|a| a.key == *key).map(|a| a.change);
    let attr = match change {
        Some(Change::InUse) => ", attr",
        Some(Change::Drained) => ", attr drains the disk",
        _ => "",
    };
    let range = format!("{} ({default}){attr}", key.form.range());
    Entry(names.join(", "), vec![range, key.about.to_owned()])
}

/// Appends `text`, broken at blanks so that no line is longer than `width`.
fn wrap(out: &mut String, text: &str, indent: usize, width: usize) {
    let mut used = 0;
    for word in text.split(' ') {
        let long = word.chars().count();
        if used > 0 && used + 1 + long > width {
            out.push('\n');
            used = 0;
        }
        if used == 0 {
            *out += &" ".repeat(indent);
            used = indent;
        } else {
            out.push(' ');
            used += 1;
        }
        *out += word;
        used += long;
    }
    out.push('\n');
}

/// The page as text for a terminal of at most 80 columns.
pub(crate) fn text() -> String {
    let (width, bright) = (term::width().min(80), term::colours());
    let mut out = String::new();
    wrap(&mut out, "zoneplug-spec - how a disk is written as text", 0, width);
    // There is no blank line between entries; a paragraph has one before it.
    let mut entries = false;
    for part in page() {
        let gap = !(entries && matches!(part, Entry(..)));
        entries = matches!(part, Entry(..));
        if gap {
            out.push('\n');
        }
        match part {
            Section(title) => {
                out += &term::paint(title, "1", bright);
                out.push('\n');
                // The first entry of a section follows its title without a blank line.
                entries = true;
            }
            Text(text) => wrap(&mut out, &text, 2, width),
            Code(lines) => lines.iter().for_each(|l| wrap(&mut out, l, 4, width)),
            Entry(term, lines) => {
                let mut name = String::new();
                wrap(&mut name, &term, 2, width);
                out += &term::paint(name.trim_end_matches('\n'), "1", bright);
                out.push('\n');
                lines.iter().for_each(|l| wrap(&mut out, l, 8, width));
            }
        }
    }
    out
}

/// The page as a manual page of section 5.
pub(crate) fn roff() -> Vec<u8> {
    let mut doc = Roff::new();
    let source = concat!("zoneplug ", env!("CARGO_PKG_VERSION"));
    doc.control("TH", ["zoneplug-spec", "5", env!("ZONEPLUG_DATE"), source]);
    doc.control("SH", ["NAME"]);
    doc.text([roman("zoneplug-spec - how a disk is written as text")]);
    for part in page() {
        match part {
            Section(title) => {
                doc.control("SH", [title]);
            }
            Text(text) => {
                doc.control("PP", []).text([roman(text)]);
            }
            Code(lines) => {
                doc.control("PP", []).control("nf", []);
                for line in lines {
                    doc.text([bold(line)]);
                }
                doc.control("fi", []);
            }
            Entry(term, lines) => {
                doc.control("TP", []).text([bold(term)]);
                for (i, line) in lines.into_iter().enumerate() {
                    if i > 0 {
                        doc.control("br", []);
                    }
                    doc.text([roman(line)]);
                }
            }
        }
    }
    doc.render().into_bytes()
}
