//! The bytes of a trace file: unpacks gzip, and ends early if the run is asked to end.

use crate::workers::Workers;
use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufReader, Cursor, Read};
use zoneplug_core::{Error, ErrorKind};

/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A buffered file, unpacked if it is gzip.
pub(super) type Input<'a> = BufReader<UntilAsked<'a>>;

/// Opens a file with a buffer of `size` bytes.
pub(super) fn of<'a>(
    mut file: Box<dyn Read + 'a>,
    workers: Option<&'a Workers<'a>>,
    size: usize,
) -> Result<Input<'a>, Error> {
    let mut head = Vec::new();
    file.by_ref().take(GZIP.len() as u64).read_to_end(&mut head).map_err(|e| {
        Error::new(ErrorKind::Io, format!("reading the trace: {e}"))
            .hint("look at the file")
            .source(e)
    })?;
    let is_packed = head == GZIP;
    let whole = Cursor::new(head).chain(file);
    let bytes: Box<dyn Read + 'a> = match is_packed {
        true => Box::new(MultiGzDecoder::new(BufReader::with_capacity(64 << 10, whole))),
        false => Box::new(whole),
    };
    Ok(BufReader::with_capacity(size, UntilAsked { bytes, workers }))
}

/// Bytes that end early when the workers are asked to end.
pub(super) struct UntilAsked<'a> {
    bytes: Box<dyn Read + 'a>,
    workers: Option<&'a Workers<'a>>,
}

impl Read for UntilAsked<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.workers.is_some_and(Workers::is_asked) { Ok(0) } else { self.bytes.read(buf) }
    }
}
