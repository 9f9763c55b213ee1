//! `zoneplug info`: the properties of a disk, and a map of its zones.

use crate::attr::value_of;
use crate::disk::{Opened, Use};
use crate::failure::Failure;
use crate::json;
use crate::report::map::Map;
use crate::server_client::IoShown;
use crate::term::{self, paint};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use zoneplug_core::disk::Disk;
use zoneplug_core::plain;
use zoneplug_core::zone::Limits;
use zoneplug_core::{Bytes, Sector};
use zoneplug_host::Level;
use zoneplug_host::file::Identity;

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

fn as_key<S: Serializer>(name: &&'static str, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&json::key(name))
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

/// Consecutive zones with the same condition.
#[derive(Debug, Serialize)]
struct Run {
    first_zone: u32,
    zones: u32,
    #[serde(serialize_with = "as_key")]
    condition: &'static str,
}

#[derive(Debug, Serialize)]
struct Info {
    spec: String,
    /// Present for a durable disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<Identity>,
    capacity_bytes: u64,
    zones: u32,
    conventional_zones: u32,
    zone_bytes: u64,
    zone_capacity_bytes: u64,
    last_zone_bytes: u64,
    last_zone_capacity_bytes: u64,
    /// Layers and devices, topmost first; empty for a device without layers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stack: Vec<Layer>,
    /// The data path of each file and drive.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    io: Vec<IoShown>,
    limits: Declared,
    /// Attributes by their names in Linux's sysfs.
    attributes: BTreeMap<&'static str, Value>,
    /// Number of zones by condition.
    conditions: BTreeMap<String, u32>,
    map: Vec<Run>,
}

/// The limits that the device declares. 0 means no limit.
#[derive(Debug, Serialize)]
struct Declared {
    logical_block_bytes: u64,
    write_granularity_bytes: u64,
    max_transfer_bytes: u64,
    max_bios: u32,
    /// 0 if the device has no zone append of its own.
    native_append_max_bytes: u64,
    max_open_zones: u32,
    max_active_zones: u32,
    write_cache: bool,
    fua: bool,
    rotational: bool,
    read_only: bool,
}

impl Declared {
    fn of(l: &Limits, read_only: bool) -> Declared {
        let bytes = |sectors: u32| u64::from(sectors) * 512;
        Declared {
            logical_block_bytes: bytes(l.logical_block_sectors),
            write_granularity_bytes: bytes(l.write_granularity_sectors),
            max_transfer_bytes: bytes(l.max_transfer_sectors),
            max_bios: l.max_bios,
            native_append_max_bytes: bytes(l.zone_append_max_sectors),
            max_open_zones: l.max_open_zones,
            max_active_zones: l.max_active_zones,
            write_cache: l.write_cache,
            fua: l.fua,
            rotational: l.rotational,
            read_only,
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let mut disk = Opened::new(&args.spec, Use::Look)?;
    let g = disk.geometry;
    let zones = disk.report(0..g.nr_zones())?;
    let (spec, stack) = (disk.spec, disk.stack);
    // A disk that is joined of several has no identity.
    let identity = spec.file().and_then(|_| disk.disk.identities().next());
    let disk = disk.disk.disk();
    let mut conditions = BTreeMap::new();
    let mut map: Vec<Run> = Vec::new();
    for (i, z) in zones.iter().enumerate() {
        let name = z.cond.name();
        *conditions.entry(json::key(name)).or_default() += 1;
        match map.last_mut() {
            Some(run) if run.condition == name => run.zones += 1,
            _ => map.push(Run { first_zone: i as u32, zones: 1, condition: name }),
        }
    }
    let bytes = |sectors: u64| Sector(sectors).to_bytes().0;
    let last = zones.last();
    let info = Info {
        spec: args.spec.clone(),
        identity,
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
        io: IoShown::of(&stack),
        // The disk is open for reading only here. The specification tells whether it takes writes otherwise.
        limits: Declared::of(&disk.limits(), disk.limits().read_only && !spec.takes_writes()),
        attributes: disk.attributes().iter().map(|a| (a.name, value_of(&a.value))).collect(),
        conditions,
        map,
    };
    if args.json {
        return json::print(out, &info);
    }
    term::print(out, &text(&info, disk))?;
    let picture = Map { first: 0, zones: &zones, shown: &vec![true; zones.len()] };
    Ok(write!(out, "\nzones\n{}", picture.draw(term::columns(), term::colours()))?)
}

/// A rounded size, with the exact one in brackets if they differ.
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
    for io in &info.io {
        let of =
            if info.io.len() > 1 { format!("  ({})", plain(&io.device)) } else { String::new() };
        line("I/O", &format!("{}{of}", io.shown()));
    }
    line("limits of the device", "(0: none)");
    for (name, value) in limits(&info.limits) {
        line(&format!("  {name}"), &value);
    }
    line("attributes of the disk", "(by their Linux names)");
    for a in disk.attributes() {
        line(&format!("  {}", a.name), &a.value);
    }
    t
}

/// The declared limits as text.
fn limits(l: &Declared) -> Vec<(&'static str, String)> {
    let bytes = |n: u64| Bytes(n).to_string();
    let yes = |b: bool| if b { "yes" } else { "no" }.to_owned();
    vec![
        ("logical block", bytes(l.logical_block_bytes)),
        ("write granularity", bytes(l.write_granularity_bytes)),
        ("longest command", bytes(l.max_transfer_bytes)),
        ("BIOs in a command", l.max_bios.to_string()),
        (
            "native append",
            match l.native_append_max_bytes {
                0 => "no".to_owned(),
                n => format!("up to {}", bytes(n)),
            },
        ),
        ("open zones", l.max_open_zones.to_string()),
        ("active zones", l.max_active_zones.to_string()),
        ("write cache", yes(l.write_cache)),
        ("FUA", yes(l.fua)),
        ("rotational", yes(l.rotational)),
        ("read-only", yes(l.read_only)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_round_and_exact() {
        assert_eq!(size(1 << 40), "1T");
        assert_eq!(size(48 << 20), "48M");
        assert_eq!(size((1 << 30) + (1 << 20)), "1.0G (1025M)");
    }
}
