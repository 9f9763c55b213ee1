//! Reads the bytes of a trace file: unpacks gzip, and ends early if the run is asked to end.

use crate::workers::Workers;
use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug_core::{Error, ErrorKind};

/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A buffered file, unpacked if it is gzip.
pub(super) type Input<'a> = BufReader<Interruptible<'a>>;

/// Makes the reader of an open file, with a buffer of `size` bytes. When it reaches the end, it adds the number of damaged
/// bytes after the gzip data to `behind`.
pub(super) fn reader<'a>(
    mut file: Box<dyn Read + 'a>,
    workers: Option<&'a Workers<'a>>,
    size: usize,
    behind: &Arc<AtomicU64>,
) -> Result<Input<'a>, Error> {
    let head = head(&mut file).map_err(|e| {
        Error::new(ErrorKind::Io, format!("reading the trace: {e}"))
            .hint("look at the file")
            .source(e)
    })?;
    let bytes: Box<dyn Read + 'a> = match head == GZIP {
        true => {
            let file = BufReader::with_capacity(64 << 10, file);
            let first = GzDecoder::new(Cursor::new(head).chain(file));
            Box::new(Members { member: Some(first), behind: behind.clone() })
        }
        false => Box::new(Cursor::new(head).chain(file)),
    };
    Ok(BufReader::with_capacity(size, Interruptible { bytes, workers }))
}

/// Reads the first bytes, which show whether a file, or the rest of one, is gzip.
fn head(file: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.take(GZIP.len() as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// Unpacks the members of a gzip file, one after the other. Like gzip(1), it leaves out everything from the first bytes
/// that begin no member, and keeps the data before them.
struct Members<R> {
    /// The current member. `None`: the data ended.
    member: Option<GzDecoder<Chain<Cursor<Vec<u8>>, R>>>,
    /// Bytes that were left out, if they are not all zero.
    behind: Arc<AtomicU64>,
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(member) = &mut self.member else { return Ok(0) };
            let n = member.read(buf)?;
            if n > 0 || buf.is_empty() {
                return Ok(n);
            }
            let Some((_, mut file)) = self.member.take().map(|m| m.into_inner().into_inner())
            else {
                return Ok(0);
            };
            let head = head(&mut file)?;
            if head == GZIP {
                self.member = Some(GzDecoder::new(Cursor::new(head).chain(file)));
                continue;
            }
            // Zeroes are no damage: programs pad the last block of a tape with them.
            let mut is_damage = head.iter().any(|b| *b != 0);
            let mut behind = head.len() as u64;
            loop {
                let piece = file.fill_buf()?;
                if piece.is_empty() {
                    break;
                }
                is_damage |= piece.iter().any(|b| *b != 0);
                let n = piece.len();
                behind += n as u64;
                file.consume(n);
            }
            if is_damage {
                self.behind.fetch_add(behind, Ordering::Relaxed);
            }
        }
    }
}

/// A reader whose data end early once the workers are asked to end.
pub(super) struct Interruptible<'a> {
    bytes: Box<dyn Read + 'a>,
    workers: Option<&'a Workers<'a>>,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.workers.is_some_and(Workers::is_asked) { Ok(0) } else { self.bytes.read(buf) }
    }
}
