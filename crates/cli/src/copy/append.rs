//! `zoneplug append`.

use super::bar::Bar;
use super::plan::{self, Extent};
use super::{Buffers, Source};
use crate::disk::{Opened, Use, warn_if_not_kept};
use crate::failure::Failure;
use crate::json;
use crate::window::Window;
use crate::zones::{RangeArgs, parse_bytes, size};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{Sector, ZoneNo};
use zoneplug_host::AsyncDisk;

/// Flags of `zoneplug append`.
#[derive(Debug, clap::Args)]
pub(crate) struct AppendArgs {
    /// The disk: a file made by zoneplug create, or a specification such as mem,zones=64
    #[arg(value_name = "DISK")]
    spec: String,

    /// What to append; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,

    #[command(flatten)]
    range: RangeArgs,

    /// Bytes of one append: the disk's longest, at most 1M, if not given
    #[arg(long, visible_alias = "iosz", value_name = "BYTES", value_parser = parse_bytes)]
    bs: Option<u64>,

    /// Appends at the device at a time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Appended {
    bytes: u64,
    #[serde(rename = "padding_bytes")]
    padding: u64,
    /// Where each append landed.
    pieces: Vec<Extent>,
}

/// Runs the command.
pub(crate) fn append(args: &AppendArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let mut source = Source::open(&args.file, args.range.bytes())?;
    let mut disk = Opened::new(&args.spec, Use::Change)?;
    let unit = u64::from(disk.disk.disk().limits().write_granularity_sectors) << 9;
    let attribute = disk.disk.disk().attribute("zone_append_max_bytes");
    let longest = attribute.and_then(|v| v.parse().ok()).unwrap_or(unit).max(unit);
    super::check_unit(unit)?;
    let block = args.bs.unwrap_or(longest.min(1 << 20) / unit * unit);
    if block == 0 || !block.is_multiple_of(unit) || block > longest.min(super::MAX) {
        return Err(Failure::usage(format!("--bs {block} is not possible on this disk"))
            .hint(format!("a multiple of {unit} bytes up to {longest}")));
    }
    let (zones, start) = plan::zones(&mut disk, &args.range)?;
    let room = plan::room(&disk.geometry, &zones, start, args.range.count, false)?;
    let room: Vec<Extent> =
        room.into_iter().filter(|e| !disk.geometry.is_conventional(ZoneNo(e.zone))).collect();
    if let Some(len) = source.len.filter(|len| *len > plan::bytes(&room)) {
        let (need, there) = (size(len), size(plan::bytes(&room)));
        return Err(Failure::io(format!("{need} of data, but room for {there}"))
            .hint("zoneplug reset, another range, or --len for a part of the data"));
    }
    let mut print = Printer { out, json: args.json, done: Appended::default() };
    let result = send(args, &disk, &mut source, &room, block as usize, unit as usize, &mut print);
    let result = result.and_then(|()| Ok(disk.io.flush()?));
    // Reports appends that succeeded even if a later one failed.
    print.done.bytes -= print.done.padding;
    let bytes = print.done.bytes;
    let failure = result.err().map(|e| e.after(&format!("{bytes} bytes were appended before")));
    let failed = failure.is_some();
    if args.json {
        json::end(print.out, &print.done, failure)?;
    } else if let Some(failure) = failure {
        return Err(failure);
    }
    if !failed {
        warn_if_not_kept(&disk.spec);
    }
    Ok(())
}

fn send(
    args: &AppendArgs,
    disk: &Opened,
    source: &mut Source,
    room: &[Extent],
    block: usize,
    unit: usize,
    print: &mut Printer<'_>,
) -> Result<(), Failure> {
    let io = AsyncDisk::new(&disk.disk, args.depth)?;
    let mut window: Window<(Sector, AlignedBuf)> = Window::new(usize::from(args.depth));
    let mut buffers = Buffers::default();
    let bar = Bar::new(source.len);
    let mut landed = |answer: Option<(Sector, AlignedBuf)>, buffers: &mut Buffers| {
        let Some((at, buf)) = answer else { return Ok(()) };
        bar.done(u64::from(buf.len()));
        let (zone, _) = disk.geometry.zone_of(at);
        let sectors = u64::from(buf.len() >> 9);
        buffers.0.push(buf);
        print.piece(Extent { zone: zone.0, sector: at.0, sectors })
    };
    let mut data = vec![0; block];
    let mut padding = 0;
    'all: for extent in room {
        let start = disk.geometry.zone_start(ZoneNo(extent.zone));
        let mut left = extent.sectors << 9;
        while left > 0 {
            let want = block.min(usize::try_from(left).unwrap_or(block));
            let got = source.fill(&mut data[..want])?;
            if got == 0 {
                break 'all;
            }
            let len = got.next_multiple_of(unit);
            data[got..len].fill(0);
            padding += (len - got) as u64;
            landed(window.make_room()?, &mut buffers)?;
            let mut buf = buffers.take(len);
            buf.write(0, &data[..len]);
            window.push(io.append(start, buf));
            left -= len as u64;
        }
        while let Some(answer) = window.next()? {
            landed(Some(answer), &mut buffers)?;
        }
    }
    while let Some(answer) = window.next()? {
        landed(Some(answer), &mut buffers)?;
    }
    print.done.padding = padding;
    if source.fill(&mut data[..1])? > 0 {
        return Err(
            Failure::io("no room is left for more").hint("another range, or zoneplug reset")
        );
    }
    Ok(())
}

/// Prints where each append landed as soon as it is known.
struct Printer<'a> {
    out: &'a mut dyn Write,
    json: bool,
    done: Appended,
}

impl Printer<'_> {
    fn piece(&mut self, e: Extent) -> Result<(), Failure> {
        self.done.bytes += e.sectors << 9;
        if self.json {
            self.done.pieces.push(e);
            return Ok(());
        }
        Ok(writeln!(self.out, "zone {} sector {} + {}", e.zone, e.sector, e.sectors)?)
    }
}
