//! `zoneplug create | check`: the file of a durable disk.

use crate::failure::{Failure, FailureParts, Kind};
use crate::zones::{parse_bytes, size};
use crate::{interrupt, json, term};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoneplug_core::zone::MAX_ZONES;
use zoneplug_core::{Error, plain};
use zoneplug_host::Specification;
use zoneplug_host::file::{self, CheckReport, CreateOptions, Identity, NewDisk};

/// Flags of `zoneplug create`. Sizes take K, M, G and T for powers of 1024.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("extent").required(true).args(["size", "zones"])))]
pub(crate) struct CreateArgs {
    /// The file to make; sparse, so that it takes the room of what is written only
    #[arg(value_name = "FILE")]
    path: PathBuf,

    /// Bytes of the whole disk; what is left after whole zones becomes a short last one
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    size: Option<u64>,

    /// Number of zones, instead of --size
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_ZONES))]
    zones: Option<u64>,

    /// Bytes of a zone; any multiple of the block [default: 256M]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    zone_size: Option<u64>,

    /// Bytes of a zone that can be written [default: all]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    zone_capacity: Option<u64>,

    /// Bytes of the last zone, with --zones
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "zones")]
    last_zone_size: Option<u64>,

    /// Bytes of the last zone that can be written
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    last_zone_capacity: Option<u64>,

    /// Conventional zones, at the start of the disk
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..MAX_ZONES as i64))]
    conv: u32,

    /// Most open zones; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_open: u32,

    /// Most active zones; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_active: u32,

    /// Bytes of a logical block [default: 4096]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    lba_size: Option<u64>,

    /// Writes to sequential zones are multiples of this [default: a logical block]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    granularity: Option<u64>,

    /// Longest append of the device itself; without it the layer emulates appends
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    zone_append_max: Option<u64>,

    /// A name, up to 63 bytes
    #[arg(long, value_name = "TEXT", default_value = "")]
    label: String,

    /// Find space for all data now, and keep it when zones are reset: no write fails for want of space
    #[arg(long)]
    preallocate: bool,

    /// Replace a file that exists
    #[arg(short, long)]
    force: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Created {
    path: String,
    #[serde(flatten)]
    identity: Identity,
    capacity_bytes: u64,
    zones: u32,
    conventional_zones: u32,
    zone_bytes: u64,
    zone_capacity_bytes: u64,
}

/// Makes a disk.
pub(crate) fn create(args: &CreateArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let spec = Specification::of_new_file(&args.path)?;
    if args.path.to_str().is_some_and(zoneplug_control::names::is_name) {
        let name = args.path.display();
        return Err(Failure::usage(format!("{name} is the name of a served disk"))
            .hint(format!("{name}.zbd")));
    }
    let options = CreateOptions {
        size: args.size,
        zones: args.zones,
        zone_size: args.zone_size,
        zone_capacity: args.zone_capacity,
        last_zone_size: args.last_zone_size,
        last_zone_capacity: args.last_zone_capacity,
        conv: args.conv,
        max_open: args.max_open,
        max_active: args.max_active,
        lba_size: args.lba_size,
        granularity: args.granularity,
        zone_append_max: args.zone_append_max,
        label: args.label.clone(),
        preallocate: args.preallocate,
    };
    let mut new = NewDisk::begin(&args.path, &options, args.force).map_err(in_flags)?;
    new.write()?;
    let g = *new.geometry();
    interrupt::completes();
    let identity = new.finish()?;
    let created = Created {
        path: args.path.display().to_string(),
        identity,
        capacity_bytes: g.capacity_bytes().0,
        zones: g.nr_zones(),
        conventional_zones: g.nr_conventional(),
        zone_bytes: u64::from(g.zone_sectors()) << 9,
        zone_capacity_bytes: u64::from(g.zone_capacity_sectors()) << 9,
    };
    if args.json {
        return json::print(out, &created);
    }
    let Created { path, identity, zones, .. } = &created;
    let path = plain(path);
    let (all, zone) = (size(created.capacity_bytes), size(created.zone_bytes));
    let uuid = &identity.uuid;
    term::print(out, &format!("{path}: {all} in {zones} zones of {zone}, UUID {uuid}\n"))?;
    say_how_it_is_named(&args.path, &spec);
    Ok(())
}

/// Notes how a specification has to name a new disk, if it cannot use the path as it is.
pub(crate) fn say_how_it_is_named(path: &Path, spec: &Specification) {
    let plain_name = path.to_str().and_then(|path| Specification::parse(path).ok());
    if plain_name.is_none_or(|name| name.root() != spec.root()) {
        term::note(&format!("a specification has this path in quotation marks: {}", plain(spec)));
    }
}

/// A word without the punctuation behind it.
fn bare(word: &str) -> &str {
    word.trim_end_matches([',', ':', ';'])
}

/// Turns the keys of a specification in a failure into flags. The flags have the names of the keys, except for the
/// longest append.
fn in_flags(e: Error) -> Failure {
    let failure = Failure::from(e);
    let FailureParts { kind, what, hint: way } = failure.parts();
    if kind != Kind::Usage {
        return failure;
    }
    let flag = |key: &str| match key {
        "append-max" => "--zone-append-max".to_owned(),
        key => format!("--{key}"),
    };
    let is_key = |word: &str| {
        let mut keys = zoneplug_devices::emu::KEYS.iter();
        keys.any(|key| key.name == word)
    };
    let in_flags = |text: &str| {
        let all: Vec<&str> = text.split(' ').collect();
        let is_key_at = |n: usize| all.get(n).is_some_and(|word| is_key(bare(word)));
        // Whether a comma and a key follow a word.
        let goes_on = |n: usize| all[n].ends_with(',') && is_key_at(n + 1);
        let words = all.iter().enumerate().map(|(n, word)| {
            let is_in_list = goes_on(n) || n > 0 && is_key_at(n - 1) && goes_on(n - 1);
            let bare = bare(word);
            match bare.split_once('=') {
                Some((key, value)) if is_key(key) => {
                    format!("{} {value}{}", flag(key), &word[bare.len()..])
                }
                // A key of one word may also be a plain word of the sentence, unless it comes first or in a list.
                None if is_key(bare) && (n == 0 || bare.contains('-') || is_in_list) => {
                    format!("{}{}", flag(bare), &word[bare.len()..])
                }
                _ => (*word).to_owned(),
            }
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let way = way.strip_suffix("; see zoneplug help spec").unwrap_or(way);
    Failure::new(kind, in_flags(what)).hint(in_flags(way))
}

/// Flags of `zoneplug check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The file of a disk
    #[arg(value_name = "DISK")]
    spec: String,

    /// Repair what can be repaired
    #[arg(long)]
    repair: bool,

    /// Give the disk a UUID of its own: a copy of a file has that of the original
    #[arg(long)]
    new_uuid: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Checks a disk. Fails if problems are left.
pub(crate) fn check(args: &CheckArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let spec = Specification::parse(&args.spec)?;
    let Some(path) = spec.file() else {
        // If the specification names no disk, opening it reports that error.
        spec.open()?;
        return Err(Failure::new(
            Kind::NotSupported,
            format!("{} has no file to check", args.spec),
        )
        .hint("the file of a disk that zoneplug create made"));
    };
    let mut report: CheckReport = file::check(path, args.repair)?;
    if args.new_uuid {
        let id = file::new_uuid(path)?;
        report.lines.push(format!("its UUID is {} from now on", id.uuid));
    }
    let left = report.problems.saturating_sub(report.repaired);
    let failure = (left > 0).then(|| {
        let hint = match args.repair {
            true => "a copy of the file, or zoneplug create",
            false => "zoneplug check --repair",
        };
        Failure::io(format!("{left} of {} problems are left", report.problems)).hint(hint)
    });
    if args.json {
        return json::end(out, &report, failure);
    }
    // The label comes from the file, so it is made harmless for a terminal.
    for line in report.to_string().lines() {
        term::print(out, &format!("{}\n", plain(line)))?;
    }
    out.flush()?;
    failure.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_hint_become_flags() {
        for (keys, flags) in [
            ("see zones, size, zone-size, conv", "see --zones, --size, --zone-size, --conv"),
            (
                "zone-capacity is from one block to the zone size, 256M",
                "--zone-capacity is from one block to the zone size, 256M",
            ),
            ("append-max=4K is too long", "--zone-append-max 4K is too long"),
        ] {
            let e = Error::invalid("nothing").hint(keys);
            assert_eq!(in_flags(e).parts().hint, flags);
        }
    }
}
