//! `zoneplug-lab bench`: runs a workload. Without one, shows the costs and the benefits of plugging.
//!
//! | file | what it does |
//! | --- | --- |
//! | `suite.rs` | the published workloads on two disks, in mode `plug` beside `none` |
//! | `workload.rs` | one's own workload |
//! | `virtual_time.rs`, `blkparse.rs` | the same in virtual time, on a disk with the times of a drive; what was sent |
//! | `report.rs` | what a run found: as text, as JSON |
//! | `watch.rs` | a socket on which it is watched |
//!
//! Every figure that is printed comes from the run that prints it.

mod blkparse;
pub(crate) mod report;
mod suite;
mod virtual_time;
mod watch;
mod workload;

use crate::failure::Failure;
use crate::suggest::{self, Suggest};
use crate::virtual_disk::Ways;
use clap::builder::StringValueParser;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use zoneplug_core::Error;
use zoneplug_core::disk::Mode;
use zoneplug_core::form;
use zoneplug_host::Specification;
use zoneplug_models::VirtualDisk;
use zoneplug_models::time::Adapter;
use zoneplug_models::work::Rw;

/// The heading of the flags that describe a workload.
const OWN: &str = "A workload of your own (fio's words; any of these selects it)";

/// The heading of the flags for modelled disks.
const VIRTUAL: &str = "Virtual time: disks with the times of a drive (sim-smr30 and others)";

/// Flags of `zoneplug-lab bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,

    /// Print a line of comma-separated values for each row of the tables of workloads
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// The disk, as in mem,zones=64,zone-size=16M,latency=1ms,reorder=7 [default: null]
    #[arg(long, value_name = "SPEC", help_heading = OWN, value_parser = Suggest::new(StringValueParser::new(), suggest::disks), hide_possible_values = true)]
    disk: Option<String>,

    /// What to do [default: write]
    #[arg(long, value_name = "RW", value_parser = rw_parser(), help_heading = OWN)]
    rw: Option<Rw>,

    /// Length of a BIO: bytes, or with K, M [default: 4k]
    #[arg(long, value_name = "SIZE", value_parser = block_sectors, help_heading = OWN)]
    bs: Option<u32>,

    /// BIOs that each job keeps in flight [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535), help_heading = OWN)]
    iodepth: Option<u32>,

    /// Commands that each job may have at the disk [default: iodepth, at most 4096]; in virtual time all jobs together
    /// [default: as the drive has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096), help_heading = OWN)]
    tags: Option<u16>,

    /// Clients, each with zones of its own; from 2 on each with a thread of its own [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), help_heading = OWN)]
    numjobs: Option<u32>,

    /// How long, as in 500ms or 10s [default: 5s; in virtual time 60s of a hard disk]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = OWN)]
    runtime: Option<Duration>,

    /// How writes are ordered [default: plug]. In virtual time more than one: a row for each
    #[arg(long, value_name = "MODE", value_delimiter = ',', value_parser = mode_parser(), help_heading = OWN)]
    mode: Vec<Mode>,

    #[command(flatten, next_help_heading = OWN)]
    ways: Ways,

    /// Answer at this socket meanwhile: zoneplug top --socket PATH shows the disk at work
    #[arg(long, value_name = "PATH", help_heading = OWN)]
    socket: Option<PathBuf>,

    /// Afterwards run the workload again with a pattern in every BIO, read everything back and compare
    #[arg(long, help_heading = OWN)]
    verify: bool,

    /// Run a disk with the times of a drive (sim-smr30 and the like) in real time too
    #[arg(long, help_heading = VIRTUAL)]
    real_time: bool,

    /// Zones that random writes go to at a time, all jobs together, one each at least [default: 64, or what the disk
    /// allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = VIRTUAL)]
    zones: Option<u32>,

    /// Random writes as fio's zoned mode sends them: a job holds a zone's lock until its writes there are reaped
    #[arg(long, help_heading = VIRTUAL)]
    zone_lock: bool,

    /// Random reads of the whole disk that are kept in flight beside the jobs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535), help_heading = VIRTUAL)]
    reads: Option<u32>,

    /// Length of those reads [default: 4k]
    #[arg(long, value_name = "SIZE", value_parser = block_sectors, requires = "reads", help_heading = VIRTUAL)]
    read_bs: Option<u32>,

    /// So many of the disk, each opened by itself, each with its jobs and reads. More than one number: a row for each
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=240), help_heading = VIRTUAL)]
    drives: Vec<u32>,

    /// What all drives are behind, as in queue=1024,rate=4800MB/s,expander-drives=20,expander-rate=2400MB/s
    #[arg(long, value_name = "LIMITS", value_parser = Adapter::parse, help_heading = VIRTUAL)]
    adapter: Option<Adapter>,

    /// Also write what was sent, and when, as a trace that zoneplug-lab replay takes
    #[arg(long, value_name = "FILE", conflicts_with = "zone_lock", help_heading = VIRTUAL)]
    write_trace: Option<PathBuf>,

    #[command(flatten)]
    consent: crate::confirm::Consent,

    /// Seconds for each figure of the run without a workload: for tests
    #[arg(long, value_name = "S", hide = true, default_value_t = 1.0, value_parser = crate::demo::seconds)]
    seconds: f64,
}

/// Parses the value of a flag as a mode.
pub(crate) fn mode_parser() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(Mode::ALL.map(Mode::name))
        .map(|name| Mode::from_name(&name).unwrap_or_default())
}

/// Parses the value of a flag as a workload.
fn rw_parser() -> impl TypedValueParser<Value = Rw> {
    let value = |rw: Rw| {
        PossibleValue::new(rw.name()).help(match rw {
            Rw::Write => "Sequential writes, zone after zone",
            Rw::Randwrite => "Writes at the write pointers of random zones",
            Rw::Append => "Zone appends, zone after zone",
            Rw::Read => "Sequential reads",
            Rw::Randread => "Random reads",
        })
    };
    PossibleValuesParser::new(Rw::ALL.map(value))
        .map(|name| Rw::from_name(&name).unwrap_or(Rw::Write))
}

fn block_sectors(text: &str) -> Result<u32, Error> {
    form::parse_size(text)
        .filter(|n| *n > 0 && n % 512 == 0 && *n <= 1 << 30)
        .map(|n| (n / 512) as u32)
        .ok_or_else(|| {
            Error::invalid("not a length")
                .hint("a multiple of 512 bytes up to 1G, as in 4096, 4k, 128K or 1M")
        })
}

fn duration(text: &str) -> Result<Duration, Error> {
    form::parse_time(text)
        .filter(|n| (1_000_000..=86_400_000_000_000).contains(n))
        .map(Duration::from_nanos)
        .ok_or_else(|| {
            Error::invalid("not a time from 1ms to 24h")
                .hint("a number and ms, s, m (minutes) or h, as in 500ms or 10s")
        })
}

impl Args {
    fn is_own(&self) -> bool {
        self.disk.is_some()
            || self.rw.is_some()
            || self.bs.is_some()
            || self.iodepth.is_some()
            || self.tags.is_some()
            || self.numjobs.is_some()
            || self.runtime.is_some()
            || !self.mode.is_empty()
            || self.verify
            || self.socket.is_some()
            || self.ways.are_given()
            || self.only_virtual().is_some()
    }

    /// The name of a given flag that needs virtual time, if any.
    fn only_virtual(&self) -> Option<&'static str> {
        [
            (self.zones.is_some(), "--zones"),
            (self.zone_lock, "--zone-lock"),
            (self.reads.is_some(), "--reads"),
            (!self.drives.is_empty(), "--drives"),
            (self.adapter.is_some(), "--adapter"),
            (self.write_trace.is_some(), "--write-trace"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    if !args.is_own() {
        return suite::run(args, out);
    }
    let spec = Specification::parse(args.disk.as_deref().unwrap_or("null"))?;
    let modelled = if args.real_time { None } else { VirtualDisk::of(&spec)? };
    if let Some(mut modelled) = modelled {
        if args.socket.is_some() {
            return Err(Failure::usage("--socket needs a disk in real time")
                .hint("--real-time, or another disk: in virtual time there is nothing to watch"));
        }
        modelled.tags = args.tags.or(modelled.tags);
        return virtual_time::run(args, &modelled, out);
    }
    if let Some(flag) = args.only_virtual() {
        return Err(Failure::usage(format!("{flag} needs a disk in virtual time"))
            .hint("--disk sim-smr30, sim-smr20, sim-smr14, sim-zns1 or sim,profile=FILE, without --real-time"));
    }
    workload::run(args, spec, out)
}
