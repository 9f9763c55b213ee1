//! `zoneplug read`.

use super::Transfers;
use super::bar::Bar;
use super::plan;
use crate::disk::{Opened, Use};
use crate::failure::Failure;
use crate::output::{Output, Over};
use crate::window::Window;
use crate::zones::RangeArgs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::Sector;
use zoneplug_host::AsyncDisk;

/// Flags of `zoneplug read`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReadArgs {
    /// The disk: a file made by zoneplug create, or a specification such as mem,zones=64
    #[arg(value_name = "DISK")]
    spec: String,

    /// Where to put it; - is standard output
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,

    #[command(flatten)]
    range: RangeArgs,

    #[command(flatten)]
    transfers: Transfers,

    /// Overwrite FILE although it is a zoneplug disk or a block device, if it is not in use
    #[arg(short, long)]
    force: bool,
}

/// Runs the command.
pub(crate) fn read(args: &ReadArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let to_stdout = args.file.as_os_str() == "-";
    if to_stdout && io::stdout().is_terminal() {
        return Err(Failure::usage("this would fill the terminal with data")
            .hint("name a file, or pipe it into something"));
    }
    let mut disk = Opened::new(&args.spec, Use::Look)?;
    let unit = u64::from(disk.disk.disk().limits().logical_block_sectors) << 9;
    let block = args.transfers.block(unit)? as u64;
    let (zones, start) = plan::zones(&mut disk, &args.range)?;
    let len = args.range.bytes();
    let extents = plan::data(&disk.geometry, &zones, start, args.range.count, len)?;
    let total = len.unwrap_or_else(|| plan::bytes(&extents));
    let over = if args.force { Over::Disks } else { Over::FilesUnlessForced };
    let mut sink = match to_stdout {
        true => Sink::Out(out),
        false => Sink::File(Output::create(&args.file, over, disk.spec.files())?),
    };
    let io = AsyncDisk::new(&disk.disk, args.transfers.depth)?;
    let mut window: Window<AlignedBuf> = Window::new(usize::from(args.transfers.depth));
    let bar = Bar::new(Some(total));
    let mut left = total;
    let mut data = Vec::new();
    let mut put = |buf: Option<AlignedBuf>| -> Result<(), Failure> {
        let Some(buf) = buf else { return Ok(()) };
        // The last block may be longer than the rest of the data.
        let n = left.min(u64::from(buf.len())) as usize;
        left -= n as u64;
        data.resize(n, 0);
        buf.read(0, &mut data);
        sink.put(&data)?;
        bar.done(n as u64);
        Ok(())
    };
    for e in &extents {
        let (mut at, end) = (e.sector, e.sector + e.sectors);
        while at < end {
            // The device reads whole blocks.
            let len = (end - at).min(block >> 9).next_multiple_of(unit >> 9);
            put(window.make_room()?)?;
            window.push(io.read(Sector(at), len));
            at += len;
        }
    }
    while let Some(buf) = window.next()? {
        put(Some(buf))?;
    }
    drop(bar);
    sink.finish()
}

/// The destination of the data.
enum Sink<'a> {
    Out(&'a mut dyn Write),
    File(Output),
}

impl Sink<'_> {
    fn put(&mut self, data: &[u8]) -> Result<(), Failure> {
        match self {
            Sink::Out(out) => Ok(out.write_all(data)?),
            Sink::File(file) => file.write_all(data).map_err(|e| file.failed(&e)),
        }
    }

    fn finish(self) -> Result<(), Failure> {
        match self {
            Sink::Out(out) => Ok(out.flush()?),
            Sink::File(file) => file.finish(),
        }
    }
}
