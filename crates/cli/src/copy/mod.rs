//! `zoneplug write | read | append`: streams of bytes on zones.
//!
//! A stream fills the capacity of each zone, one zone after the other, and skips the sectors between a zone's
//! capacity and the next zone. `read` reads it back in the same order.

mod append;
mod bar;
mod plan;
mod read;
mod write;

pub(crate) use append::{AppendArgs, append};
pub(crate) use read::{ReadArgs, read};
pub(crate) use write::{WriteArgs, write};

use crate::failure::{Attempt, Failure, Kind};
use crate::zones::parse_bytes;
use plan::Extent;
use serde::Serialize;
use std::io::{IsTerminal, Read};
use std::path::Path;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::Bytes;

/// How data moves.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Transfers {
    /// Bytes of one command
    #[arg(help_heading = "Transfers", long, visible_alias = "iosz", value_name = "BYTES", default_value = "1M", value_parser = parse_bytes)]
    bs: u64,

    /// Commands at the device at a time
    #[arg(help_heading = "Transfers", long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
}

/// Longest command: each command in flight has a buffer of this size.
const MAX: u64 = 64 << 20;

/// Refuses a disk whose block is longer than any command. An older version made such disks.
fn check_unit(unit: u64) -> Result<(), Failure> {
    if unit <= MAX {
        return Ok(());
    }
    let what = format!("a block of this disk has {}, and a command at most 64M", Bytes(unit));
    Err(Failure::new(Kind::NotSupported, what)
        .hint("a disk with a smaller --lba-size and --granularity"))
}

impl Transfers {
    /// Bytes of one command, a multiple of `unit` bytes.
    fn block(&self, unit: u64) -> Result<usize, Failure> {
        check_unit(unit)?;
        if self.bs == 0 || !self.bs.is_multiple_of(unit) || self.bs > MAX {
            return Err(Failure::usage(format!("--bs {} is not possible on this disk", self.bs))
                .hint(format!("a multiple of {unit} bytes up to 64M")));
        }
        Ok(self.bs as usize)
    }
}

/// The results of a copy, for JSON.
#[derive(Debug, Serialize)]
struct Copied {
    /// Bytes of the stream, without padding.
    bytes: u64,
    /// Bytes of zeroes added to fill the last block.
    #[serde(rename = "padding_bytes")]
    padding: u64,
    extents: Vec<Extent>,
}

/// The input of a copy.
struct Source {
    from: Box<dyn Read>,
    /// The length of the input, if known before it is read.
    len: Option<u64>,
    /// Bytes still to take at most.
    left: u64,
    name: String,
}

impl Source {
    fn open(path: &Path, limit: Option<u64>) -> Result<Source, Failure> {
        let name = path.display().to_string();
        let (from, len): (Box<dyn Read>, _) = if name == "-" {
            if std::io::stdin().is_terminal() {
                return Err(Failure::usage("no data: standard input is a terminal")
                    .hint("name a file, or pipe something into zoneplug"));
            }
            (Box::new(std::io::stdin()), None)
        } else {
            let fail = |e: std::io::Error| {
                Failure::of_system(Attempt::ReadFile, &name, e)
                    .hint("a file that can be read, or - for stdin")
            };
            let file = std::fs::File::open(path).map_err(fail)?;
            let meta = file.metadata().map_err(fail)?;
            if meta.is_dir() {
                return Err(Failure::usage(format!("{name} is a directory")).hint("name a file"));
            }
            // Files that the kernel makes as they are read, as in /proc, have the length 0.
            let len = (meta.is_file() && meta.len() > 0).then_some(meta.len());
            (Box::new(file), len)
        };
        let left = limit.unwrap_or(u64::MAX);
        Ok(Source { from, len: len.map(|l| l.min(left)), left, name })
    }

    /// Fills `into` from the input. Returns the number of bytes.
    fn fill(&mut self, into: &mut [u8]) -> Result<usize, Failure> {
        let want = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let mut got = 0;
        while got < want {
            match self.from.read(&mut into[got..want]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => {
                    return Err(Failure::io(format!("reading {}: {e}", self.name))
                        .hint("what was read before it is on the disk"));
                }
            }
        }
        self.left -= got as u64;
        Ok(got)
    }
}

/// Buffers for reuse.
#[derive(Default)]
struct Buffers(Vec<AlignedBuf>);

impl Buffers {
    fn take(&mut self, len: usize) -> AlignedBuf {
        match self.0.pop() {
            Some(buf) if buf.len() as usize == len => buf,
            _ => AlignedBuf::zeroed(len as u32),
        }
    }
}
