//! `zoneplug report`: the zones as a table, as JSON, as CSV, as `blkzone` prints them, or as a map.

pub(crate) mod map;

use crate::disk::{Opened, Use};
use crate::failure::Failure;
use crate::json;
use crate::term;
use crate::zones::{RangeArgs, has_wp, number};
use serde::{Serialize, Serializer};
use std::io::Write;
use zoneplug_core::ZoneNo;
use zoneplug_core::zone::{Condition, Geometry, ZoneInfo, ZoneType};

/// Zones of one query, so that a large disk is printed while it is read.
const AT_ONCE: u32 = 4096;

/// Flags of `zoneplug report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The disk: a file made by zoneplug create, or a specification such as mem,zones=64
    #[arg(value_name = "DISK")]
    spec: String,

    #[command(flatten)]
    range: RangeArgs,

    /// Only zones in this condition (zbd's -ro)
    #[arg(long, value_name = "CONDITION", value_parser = ["nw", "em", "oi", "oe", "cl", "fu", "ro", "ol"])]
    ro: Option<String>,

    /// Say first how many zones there are, as `blkzone report -v` does
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    form: Form,
}

/// How it is printed; one of them, or the table.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Form {
    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Print comma-separated values; addresses and lengths in bytes (zbd's -csv)
    #[arg(long)]
    csv: bool,

    /// Draw the whole disk, one glyph a zone, filled to its write pointer
    #[arg(long)]
    map: bool,

    /// Print the lines that `blkzone report` prints
    #[arg(long)]
    blkzone: bool,

    /// Print the number of zones only
    #[arg(short = 'n', long)]
    number: bool,
}

/// A zone in the JSON form.
#[derive(Debug, Serialize)]
struct Row {
    zone: u32,
    #[serde(rename = "start_sector")]
    start: u64,
    #[serde(rename = "len_sectors")]
    len: u64,
    #[serde(rename = "capacity_sectors")]
    cap: u64,
    /// The write pointer counted from the start of the zone, as in the table; null if there is none.
    #[serde(rename = "write_pointer_offset_sectors")]
    wptr: Option<u64>,
    /// The write pointer as a sector of the disk.
    #[serde(rename = "write_pointer_sector")]
    wp: Option<u64>,
    reset: u8,
    non_seq: u8,
    #[serde(rename = "condition_code")]
    zcond: u8,
    /// The two letters of `blkzone`.
    cond: &'static str,
    #[serde(rename = "type_code")]
    zone_type: u8,
    #[serde(rename = "type", serialize_with = "as_key")]
    type_name: &'static str,
}

impl Row {
    fn new(g: &Geometry, z: &ZoneInfo) -> Row {
        let wp = (has_wp(z) || z.cond == Condition::Full).then_some(z.wp.0);
        Row {
            zone: number(g, z),
            start: z.start.0,
            len: z.len_sectors,
            cap: z.capacity_sectors,
            wptr: wp.map(|wp| wp.saturating_sub(z.start.0)),
            wp,
            // No supported device recommends a reset or writes out of order.
            reset: 0,
            non_seq: 0,
            zcond: z.cond as u8,
            cond: z.cond.short_name(),
            zone_type: z.zone_type as u8,
            type_name: type_name(z.zone_type),
        }
    }
}

fn as_key<S: Serializer>(name: &&'static str, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&json::key(name))
}

fn type_name(t: ZoneType) -> &'static str {
    match t {
        ZoneType::Conventional => "CONVENTIONAL",
        ZoneType::SeqWriteRequired => "SEQ_WRITE_REQUIRED",
    }
}

/// Width of the table with all columns of `blkzone`. A narrower one leaves out columns that no disk here uses.
const ALL_COLUMNS: usize = 105;

/// Runs the command.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let mut disk = Opened::new(&args.spec, Use::Look)?;
    let g = disk.geometry;
    let range = args.range.zones(&g)?;
    let wanted = |z: &ZoneInfo| args.ro.as_ref().is_none_or(|c| z.cond.short_name() == c);
    if args.form.map {
        let zones = disk.report(range.clone())?;
        // The map leaves gaps for zones that are not wanted.
        let shown: Vec<bool> = zones.iter().map(wanted).collect();
        let picture = map::Map { first: range.start, zones: &zones, shown: &shown };
        return Ok(write!(out, "{}", picture.draw(term::columns(), term::colours()))?);
    }
    if args.verbose && !args.form.json && !args.form.csv {
        writeln!(
            out,
            "Found {} zones from {:#x}",
            range.len(),
            g.zone_start(ZoneNo(range.start)).0
        )?;
    }
    let narrow = term::width() < ALL_COLUMNS;
    let mut printer = Printer { form: &args.form, spec: &args.spec, narrow, rows: 0, out };
    let mut start = range.start;
    let mut failure = None;
    while start < range.end && failure.is_none() {
        let end = range.end.min(start + AT_ONCE);
        match disk.report(start..end) {
            Ok(zones) => {
                let mut zones = zones.iter().filter(|z| wanted(z));
                zones.try_for_each(|z| printer.zone(&Row::new(&g, z)))?;
            }
            Err(f) => failure = Some(f),
        }
        start = end;
    }
    printer.end(failure)
}

/// Prints zones as they arrive.
struct Printer<'a> {
    form: &'a Form,
    spec: &'a str,
    narrow: bool,
    rows: usize,
    out: &'a mut dyn Write,
}

impl Printer<'_> {
    fn head(&mut self) -> Result<(), Failure> {
        if self.form.json {
            let (schema, disk) = (json::SCHEMA, json::line(&self.spec)?);
            write!(self.out, "{{\"schema\":{schema},\"disk\":{disk},\"zones\":[")?;
        } else if self.form.csv {
            writeln!(self.out, "zone num, type, ofst, len, cap, wp, cond, non_seq, reset")?;
        } else if !self.form.blkzone && !self.form.number && self.narrow {
            writeln!(
                self.out,
                "{:>6}  {:>12}  {:>10}  {:>10}  {:>10}  {:<6}  type",
                "zone", "start", "len", "cap", "wptr", "zcond"
            )?;
        } else if !self.form.blkzone && !self.form.number {
            writeln!(
                self.out,
                "{:>6}  {:>12}  {:>10}  {:>10}  {:>10}  {:>5}  {:>7}  {:<7}  type",
                "zone", "start", "len", "cap", "wptr", "reset", "non-seq", "zcond"
            )?;
        }
        Ok(())
    }

    fn zone(&mut self, r: &Row) -> Result<(), Failure> {
        if self.rows == 0 {
            self.head()?;
        }
        self.rows += 1;
        let out = &mut *self.out;
        let (cond, wptr) = (format!("{}({})", r.zcond, r.cond), r.wptr.unwrap_or(0));
        if self.form.json {
            // A line for each zone.
            writeln!(out, "{}", if self.rows > 1 { "," } else { "" })?;
            serde_json::to_writer(out, r)?;
        } else if self.form.csv {
            let wp = r.wp.map_or(String::new(), |w| (w << 9).to_string());
            let (start, len, cap) = (r.start << 9, r.len << 9, r.cap << 9);
            writeln!(
                out,
                "{}, {}, {start}, {len}, {cap}, {wp}, {}, {}, {}",
                r.zone, r.zone_type, r.zcond, r.non_seq, r.reset
            )?;
        } else if self.form.blkzone {
            writeln!(
                out,
                "  start: 0x{:09x}, len 0x{:06x}, cap 0x{:06x}, wptr 0x{wptr:06x} reset:{} non-seq:{}, zcond:{:2}({}) [type: {}({})]",
                r.start,
                r.len,
                r.cap,
                r.reset,
                r.non_seq,
                r.zcond,
                r.cond,
                r.zone_type,
                r.type_name
            )?;
        } else if !self.form.number && self.narrow {
            let kind = if r.zone_type == 1 { "conv" } else { "seq" };
            writeln!(
                out,
                "{:>6}  {:#012x}  {:#010x}  {:#010x}  {wptr:#010x}  {cond:<6}  {}({kind})",
                r.zone, r.start, r.len, r.cap, r.zone_type
            )?;
        } else if !self.form.number {
            writeln!(
                out,
                "{:>6}  {:#012x}  {:#010x}  {:#010x}  {wptr:#010x}  {:>5}  {:>7}  {cond:<7}  {}({})",
                r.zone, r.start, r.len, r.cap, r.reset, r.non_seq, r.zone_type, r.type_name
            )?;
        }
        Ok(())
    }

    /// Ends the output, with the failure that stopped the report, if any.
    fn end(mut self, failure: Option<Failure>) -> Result<(), Failure> {
        if self.rows == 0 {
            self.head()?;
        }
        if self.form.json {
            write!(self.out, "\n]")?;
            if let Some(failure) = &failure {
                write!(self.out, ",\"error\":{}", json::error_value(failure)?)?;
            }
            writeln!(self.out, "}}")?;
            return failure.map_or(Ok(()), |f| Err(f.in_json()));
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        if self.form.number {
            writeln!(self.out, "{}", self.rows)?;
        }
        Ok(())
    }
}
