//! `zoneplug write`.

use super::bar::Bar;
use super::plan::{self, Extent};
use super::{Buffers, Copied, Source, Transfers};
use crate::confirm::Consent;
use crate::disk::{Opened, Use, forced, warn_if_not_kept};
use crate::failure::Failure;
use crate::window::{Window, block_on};
use crate::zones::{RangeArgs, count, holds_data, numbers, size};
use crate::{json, term};
use std::io::Write;
use std::path::PathBuf;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Op, Sector, ZoneNo};
use zoneplug_host::AsyncDisk;

/// Flags of `zoneplug write`.
#[derive(Debug, clap::Args)]
pub(crate) struct WriteArgs {
    /// The disk: a file made by zoneplug create, or a specification such as mem,zones=64
    #[arg(value_name = "DISK")]
    spec: String,

    /// What to write; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,

    #[command(flatten)]
    range: RangeArgs,

    #[command(flatten)]
    transfers: Transfers,

    /// Reset the zones that the data go to, and write them from their start
    #[arg(long)]
    reset: bool,

    #[command(flatten)]
    consent: Consent,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn write(args: &WriteArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let mut source = Source::open(&args.file, args.range.bytes())?;
    let mut disk = Opened::of(forced(args.spec.parse()?, args.consent)?, Use::Change)?;
    let unit = u64::from(disk.disk.disk().limits().write_granularity_sectors) << 9;
    let block = args.transfers.block(unit)?;
    let (zones, start) = plan::zones(&mut disk, &args.range)?;
    let room = plan::room(&disk.geometry, &zones, start, args.range.count, args.reset)?;
    let extents = match source.len {
        Some(len) if len > plan::bytes(&room) => {
            let (need, there) = (size(len), size(plan::bytes(&room)));
            return Err(Failure::io(format!("{need} of data, but room for {there}"))
                .hint("zoneplug reset, another range, or --len for a part of the data"));
        }
        Some(len) => plan::prefix(&room, len.next_multiple_of(unit)),
        None => room,
    };
    if args.reset {
        let lost: Vec<u32> = extents
            .iter()
            .map(|e| e.zone)
            .filter(|n| {
                zones
                    .iter()
                    .any(|z| disk.geometry.zone_start(ZoneNo(*n)) == z.start && holds_data(z))
            })
            .collect();
        let most = if source.len.is_none() { "up to " } else { "" };
        let what = format!(
            "resets {most}{} that hold data ({})",
            count(lost.len(), "zone"),
            numbers(&lost)
        );
        args.consent.ask(&what, lost.len())?;
    }
    let mut writer = Writer {
        bar: Bar::new(source.len),
        io: AsyncDisk::new(&disk.disk, args.transfers.depth)?,
        window: Window::new(usize::from(args.transfers.depth)),
        buffers: Buffers::default(),
        unit: unit as usize,
        geometry: disk.geometry,
        reset: args.reset,
        bytes: 0,
        padding: 0,
        extents: Vec::new(),
    };
    let result = writer.copy(&mut source, &extents, block);
    let Writer { bar, bytes, padding, extents, window, .. } = writer;
    drop((bar, window));
    let copied = Copied { bytes, padding, extents };
    if let Err(e) = result {
        let failure = e.after(&format!("{bytes} bytes were written before"));
        return if args.json { json::end(out, &copied, Some(failure)) } else { Err(failure) };
    }
    disk.io.flush()?;
    say(&copied, args.json, out)?;
    warn_if_not_kept(&disk.spec);
    Ok(())
}

fn say(copied: &Copied, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    if json {
        return json::print(out, copied);
    }
    let zones: Vec<u32> = copied.extents.iter().map(|e| e.zone).collect();
    let mut text = format!("{} bytes written", copied.bytes);
    if copied.padding > 0 {
        text += &format!(" and {} of padding", copied.padding);
    }
    if let (Some(first), Some(last)) = (copied.extents.first(), copied.extents.last()) {
        let end = last.sector + last.sectors;
        let name = if zones.len() == 1 { "zone" } else { "zones" };
        let (zones, start) = (numbers(&zones), first.sector);
        text += &format!(": {name} {zones}, from sector {start} to {end}");
    }
    term::print(out, &(text + "\n"))
}

/// A copy under way.
struct Writer {
    bar: Bar,
    io: AsyncDisk,
    window: Window<AlignedBuf>,
    buffers: Buffers,
    unit: usize,
    geometry: Geometry,
    reset: bool,
    /// Acknowledged bytes, without padding.
    bytes: u64,
    padding: u64,
    extents: Vec<Extent>,
}

impl Writer {
    fn copy(&mut self, source: &mut Source, room: &[Extent], block: usize) -> Result<(), Failure> {
        let mut data = vec![0; block];
        let mut read = 0;
        for extent in room {
            let (mut at, mut left) = (Sector(extent.sector), extent.sectors);
            while left > 0 {
                let want = block.min(usize::try_from(left << 9).unwrap_or(block));
                let got = source.fill(&mut data[..want])?;
                read += got as u64;
                if got == 0 {
                    break;
                }
                if left == extent.sectors {
                    self.begin(extent)?;
                }
                let len = got.next_multiple_of(self.unit);
                data[got..len].fill(0);
                self.padding += (len - got) as u64;
                let answer = self.window.make_room()?;
                self.acknowledged(answer);
                let mut buf = self.buffers.take(len);
                buf.write(0, &data[..len]);
                self.window.push(self.io.write(at, buf));
                at = at.plus(len as u64 >> 9);
                left -= len as u64 >> 9;
                if let Some(e) = self.extents.last_mut() {
                    e.sectors += len as u64 >> 9;
                }
                if got < want {
                    break;
                }
            }
            // Fills each zone before it begins the next: a disk may allow only one open zone.
            while let Some(buf) = self.window.next()? {
                self.acknowledged(Some(buf));
            }
            if left > 0 {
                self.bytes = read;
                return Ok(());
            }
        }
        self.bytes = read;
        if source.fill(&mut data[..1])? > 0 {
            return Err(
                Failure::io("no room is left for more").hint("another range, or zoneplug reset")
            );
        }
        Ok(())
    }

    /// Prepares the zone of `extent` when the first data for it has been read.
    fn begin(&mut self, extent: &Extent) -> Result<(), Failure> {
        let zone = ZoneNo(extent.zone);
        if self.reset && !self.geometry.is_conventional(zone) {
            let (start, len) =
                (self.geometry.zone_start(zone), self.geometry.zone_len_sectors(zone));
            block_on(self.io.manage(Op::ZoneReset, start, u64::from(len)))?;
        }
        self.extents.push(Extent { sectors: 0, ..*extent });
        Ok(())
    }

    fn acknowledged(&mut self, buf: Option<AlignedBuf>) {
        if let Some(buf) = buf {
            self.bytes += u64::from(buf.len());
            self.bar.done(u64::from(buf.len()));
            self.buffers.0.push(buf);
        }
    }
}
