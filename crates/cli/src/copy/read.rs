//! `zoneplug read`.

use super::Transfers;
use super::bar::Bar;
use super::plan;
use crate::disk::{Opened, Use};
use crate::failure::{Failure, Kind};
use crate::window::Window;
use crate::zones::RangeArgs;
use std::fs::File;
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
    let name = args.file.display().to_string();
    let mut sink: Box<dyn Write + '_> = if to_stdout {
        Box::new(out)
    } else {
        let file = File::create(&args.file).map_err(|e| {
            Failure::usage(format!("{name}: {e}")).hint("a file that can be written")
        })?;
        Box::new(file)
    };
    let io = AsyncDisk::new(&disk.disk, args.transfers.depth)?;
    let mut window: Window<AlignedBuf> = Window::new(usize::from(args.transfers.depth));
    let bar = Bar::new(Some(total));
    let mut left = total;
    let mut data = Vec::new();
    let mut put = |buf: Option<AlignedBuf>| -> Result<(), Failure> {
        let Some(buf) = buf else { return Ok(()) };
        // The last block may be longer than what was asked for.
        let n = left.min(u64::from(buf.len())) as usize;
        left -= n as u64;
        data.resize(n, 0);
        buf.read(0, &mut data);
        sink.write_all(&data).map_err(|e| failed(&name, e))?;
        bar.done(n as u64);
        Ok(())
    };
    for e in &extents {
        let (mut at, end) = (e.sector, e.sector + e.sectors);
        while at < end {
            // In whole blocks of the disk.
            let len = (end - at).min(block >> 9).next_multiple_of(unit >> 9);
            put(window.make_room()?)?;
            window.push(io.read(Sector(at), len as u32));
            at += len;
        }
    }
    while let Some(buf) = window.next()? {
        put(Some(buf))?;
    }
    drop(bar);
    sink.flush().map_err(|e| failed(&name, e))
}

fn failed(name: &str, e: io::Error) -> Failure {
    if e.kind() == io::ErrorKind::BrokenPipe {
        return Failure::new(Kind::BrokenPipe, "");
    }
    Failure::io(format!("writing {name}: {e}")).hint("look at the room and the rights there")
}
