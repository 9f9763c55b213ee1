//! `zoneplug info`: what a disk is, and a map of its zones.

use crate::disk::{Opened, Use};
use crate::failure::Failure;
use crate::plain::plain;
use crate::term::{self, paint};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::io::Write;
use zoneplug_core::disk::Disk;
use zoneplug_core::zone::{Condition, Limits};
use zoneplug_core::{Bytes, Sector};
use zoneplug_host::file::{Access, FileDisk, Identity};
use zoneplug_host::{Level, file_of, takes_writes};

/// Flags of `zoneplug info`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The disk, as in mem,zones=64,zone-size=16M,conv=4,max-open=8
    #[arg(value_name = "SPEC")]
    spec: String,

    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// A condition, its glyph in the map and its style (SGR).
const GLYPHS: [(Condition, char, &str, &str); 8] = [
    (Condition::NotWp, 'c', "conventional", "36"),
    (Condition::Empty, '.', "empty", "2"),
    (Condition::ImpOpen, 'o', "open, implicitly", "33"),
    (Condition::ExpOpen, 'O', "open, explicitly", "33;1"),
    (Condition::Closed, '-', "closed", "35"),
    (Condition::Full, '#', "full", "32"),
    (Condition::ReadOnly, 'r', "read-only", "31"),
    (Condition::Offline, 'x', "offline", "31;1"),
];

fn glyph(cond: Condition) -> (char, &'static str, &'static str) {
    GLYPHS
        .iter()
        .find(|g| g.0 == cond)
        .map_or(('?', "unknown", ""), |&(_, glyph, name, style)| (glyph, name, style))
}

/// A level of a stack.
#[derive(Debug, Serialize)]
struct Layer {
    depth: usize,
    spec: String,
    zones: u32,
    zone_bytes: u64,
    zone_capacity_bytes: u64,
}

impl Layer {
    fn of(level: &Level) -> Layer {
        let (g, bytes) = (&level.geometry, |n: u32| u64::from(n) * 512);
        Layer {
            depth: level.depth,
            spec: level.text.clone(),
            zones: g.nr_zones(),
            zone_bytes: bytes(g.zone_sectors()),
            zone_capacity_bytes: bytes(g.zone_capacity_sectors()),
        }
    }
}

/// Zones next to each other that are alike.
#[derive(Debug, Serialize)]
struct Run {
    first: u32,
    zones: u32,
    condition: &'static str,
}

#[derive(Debug, Serialize)]
struct Info {
    spec: String,
    /// Of a durable disk only.
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<Identity>,
    capacity_bytes: u64,
    zones: u32,
    conventional_zones: u32,
    zone_bytes: u64,
    zone_capacity_bytes: u64,
    last_zone_bytes: u64,
    last_zone_capacity_bytes: u64,
    /// Layers and devices, topmost first; a device alone is left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stack: Vec<Layer>,
    /// What the device declares, as it is shown.
    #[serde(serialize_with = "as_map")]
    limits: Vec<(&'static str, String)>,
    /// By the names that Linux gives them in sysfs.
    attributes: BTreeMap<&'static str, String>,
    conditions: BTreeMap<&'static str, u32>,
    map: Vec<Run>,
}

fn as_map<S: Serializer>(pairs: &[(&'static str, String)], s: S) -> Result<S::Ok, S::Error> {
    s.collect_map(pairs.iter().map(|(k, v)| (k, v)))
}

/// Who a durable disk is.
fn identity(spec: &str) -> Result<Option<Identity>, Failure> {
    let Some(path) = file_of(spec) else { return Ok(None) };
    Ok(Some(FileDisk::open(path, Access::ReadOnly)?.identity()))
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let mut disk = Opened::new(&args.spec, Use::Look)?;
    let g = disk.geometry.clone();
    let zones = disk.report(0..g.nr_zones())?;
    let stack = disk.stack;
    let disk = disk.disk.disk();
    let mut conditions = BTreeMap::new();
    let mut map: Vec<Run> = Vec::new();
    for (i, z) in zones.iter().enumerate() {
        let name = z.cond.name();
        *conditions.entry(name).or_default() += 1;
        match map.last_mut() {
            Some(run) if run.condition == name => run.zones += 1,
            _ => map.push(Run { first: i as u32, zones: 1, condition: name }),
        }
    }
    let bytes = |sectors: u64| Sector(sectors).to_bytes().0;
    let last = zones.last();
    let info = Info {
        spec: args.spec.clone(),
        identity: identity(&args.spec)?,
        capacity_bytes: g.capacity_bytes().0,
        zones: g.nr_zones(),
        conventional_zones: g.nr_conventional(),
        zone_bytes: bytes(u64::from(g.zone_sectors())),
        zone_capacity_bytes: bytes(u64::from(g.zone_capacity_sectors())),
        last_zone_bytes: last.map_or(0, |z| bytes(z.len_sectors)),
        last_zone_capacity_bytes: last.map_or(0, |z| bytes(z.capacity_sectors)),
        stack: match &stack[..] {
            [_] => Vec::new(),
            levels => levels.iter().map(Layer::of).collect(),
        },
        limits: limits(&Limits {
            // This command opens files and drives to look at them.
            read_only: disk.limits().read_only && !takes_writes(&args.spec),
            ..disk.limits()
        }),
        attributes: disk.attributes().into_iter().map(|a| (a.name, a.value)).collect(),
        conditions,
        map,
    };
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &info)?;
        return Ok(writeln!(out)?);
    }
    write!(out, "{}", text(&info, disk))?;
    let conds: Vec<Condition> = zones.iter().map(|z| z.cond).collect();
    Ok(write!(out, "\n{}", zone_map(&conds, term::columns(), term::colours()))?)
}

/// A size for people, with the exact one where that is another.
fn size(bytes: u64) -> String {
    let exact = Bytes(bytes).to_string();
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let round = units.iter().find(|(s, _)| bytes >> s > 0);
    match round {
        Some((s, unit)) if bytes.trailing_zeros() < *s => {
            format!("{:.1}{unit} ({exact})", bytes as f64 / (1u64 << s) as f64)
        }
        _ => exact,
    }
}

fn text(info: &Info, disk: &Disk) -> String {
    let mut t = paint(&plain(&info.spec), "1", term::colours()) + "\n";
    let mut line = |name: &str, value: &str| t += &format!("  {name:<26}{value}\n");
    if let Some(id) = &info.identity {
        line("UUID", &id.uuid);
        if !id.label.is_empty() {
            line("label", &plain(&id.label));
        }
        line("format", &format!("version {}", id.version));
        line("opened for writing", &id.opened.to_string());
    }
    line("capacity", &size(info.capacity_bytes));
    let (all, conv) = (info.zones, info.conventional_zones);
    line("zones", &format!("{all} ({} sequential, {conv} conventional)", all - conv));
    line("zone size", &size(info.zone_bytes));
    line("zone capacity", &size(info.zone_capacity_bytes));
    let (len, cap) = (info.last_zone_bytes, info.last_zone_capacity_bytes);
    if len != info.zone_bytes || cap != info.zone_capacity_bytes {
        line("last zone", &format!("size {}, capacity {}", size(len), size(cap)));
    }
    if !info.stack.is_empty() {
        line("stack", "(topmost first)");
    }
    let width = info.stack.iter().map(|l| 2 * l.depth + l.spec.chars().count()).max().unwrap_or(0);
    for l in &info.stack {
        let (size, capacity) = (Bytes(l.zone_bytes), Bytes(l.zone_capacity_bytes));
        let gap = if size == capacity { String::new() } else { format!(" in {size}") };
        let (indent, rest) = (2 * l.depth, width - 2 * l.depth);
        t += &format!(
            "    {:indent$}{:<rest$}  {} zones of {capacity}{gap}\n",
            "",
            plain(&l.spec),
            l.zones
        );
    }
    let mut line = |name: &str, value: &str| t += &format!("  {name:<26}{value}\n");
    line("limits of the device", "(0: none)");
    for (name, value) in &info.limits {
        line(&format!("  {name}"), value);
    }
    line("attributes of the disk", "(by their Linux names)");
    for a in disk.attributes() {
        line(&format!("  {}", a.name), &a.value);
    }
    t
}

/// What the device declares. Lengths in bytes.
fn limits(l: &Limits) -> Vec<(&'static str, String)> {
    let bytes = |sectors: u32| Bytes(u64::from(sectors) * 512).to_string();
    let yes = |b: bool| if b { "yes" } else { "no" }.to_owned();
    vec![
        ("logical block", bytes(l.logical_block_sectors)),
        ("write granularity", bytes(l.write_granularity_sectors)),
        ("longest command", bytes(l.max_transfer_sectors)),
        ("BIOs in a command", l.max_bios.to_string()),
        (
            "native append",
            match l.zone_append_max_sectors {
                0 => "no, emulated".to_owned(),
                n => format!("up to {}", bytes(n)),
            },
        ),
        ("open zones", l.max_open_zones.to_string()),
        ("active zones", l.max_active_zones.to_string()),
        ("write cache", yes(l.write_cache)),
        ("rotational", yes(l.rotational)),
        ("read-only", yes(l.read_only)),
    ]
}

/// A row that is like those before it stands for them, as in a hex dump.
const FOLD: usize = 3;

/// One glyph for each zone, in rows with the number of their first, and what the glyphs mean.
fn zone_map(conds: &[Condition], columns: usize, colours: bool) -> String {
    let digits = conds.len().saturating_sub(1).to_string().len();
    // Rows of a round number, in groups of eight.
    let room = columns.saturating_sub(digits + 3);
    let per_row = (room / 9).max(1) * 8;
    let per_row = if per_row > 64 { per_row / 32 * 32 } else { per_row };
    let mut text = String::from("zones\n");
    let rows: Vec<&[Condition]> = conds.chunks(per_row).collect();
    let mut i = 0;
    while i < rows.len() {
        let same = rows[i..].iter().take_while(|r| **r == rows[i]).count();
        text += &row(i * per_row, rows[i], digits, colours);
        if same > FOLD {
            text += &format!("  {:>digits$} {} more rows like it\n", "*", same - 1);
            i += same;
        } else {
            i += 1;
        }
    }
    for (cond, g, name, style) in GLYPHS {
        let n = conds.iter().filter(|c| **c == cond).count();
        if n > 0 {
            text += &format!("  {} {name}: {n}\n", paint(&g.to_string(), style, colours));
        }
    }
    text
}

fn row(first: usize, conds: &[Condition], digits: usize, colours: bool) -> String {
    let mut text = format!("  {first:>digits$}");
    for group in conds.chunks(8) {
        text.push(' ');
        for same in group.chunk_by(|a, b| a == b) {
            let (g, _, style) = glyph(same[0]);
            text += &paint(&g.to_string().repeat(same.len()), style, colours);
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_fits_the_terminal_and_says_what_it_shows() {
        let mut conds = vec![Condition::Empty; 1000];
        conds[0] = Condition::NotWp;
        conds[9] = Condition::Full;
        for columns in [40, 80, 100, 200] {
            let map = zone_map(&conds, columns, false);
            assert!(map.lines().all(|l| l.chars().count() <= columns), "{columns}:\n{map}");
            assert!(map.contains("c conventional: 1") && map.contains("# full: 1"));
            assert!(map.contains(". empty: 998") && map.contains("more rows like it"));
        }
        assert!(!zone_map(&conds, 80, false).contains('\x1b'));
        assert!(zone_map(&conds, 80, true).contains("\x1b[32m#\x1b[0m"));
    }

    #[test]
    fn every_condition_of_a_device_has_a_glyph_of_its_own() {
        for c in (0..=0xf).filter_map(Condition::from_u8) {
            assert_ne!(glyph(c).0, '?', "{c}");
        }
        let mut all: Vec<char> = GLYPHS.iter().map(|g| g.1).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), GLYPHS.len());
    }

    #[test]
    fn a_size_is_round_and_exact() {
        assert_eq!(size(1 << 40), "1T");
        assert_eq!(size(48 << 20), "48M");
        assert_eq!(size((1 << 30) + (1 << 20)), "1.0G (1025M)");
    }
}
