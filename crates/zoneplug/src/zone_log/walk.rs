//! Reads one zone from record to record, across what a crash has torn.
//!
//! Data that form no whole record may be a record that a power cut tore, and the next session
//! writes behind it. So the walk tries every possible record position behind such data, up to the
//! end.

use super::LogError;
use super::format::{ALIGN, HEADER_LEN, Header, Kind};
use super::io::Io;
use zoneplug_core::Sector;

/// Bytes read at a time.
const CHUNK: u64 = 256 << 10;

/// The next result of a walk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A record. `skipped`: the first byte, on the disk, of data before it that form no record.
    Record { header: Header, data: Vec<u8>, skipped: Option<u64> },
    /// The end. `rest`: the first byte, on the disk, of data at the end that form no record.
    End { rest: Option<u64>, sealed: bool },
}

/// A walk through a zone.
#[derive(Debug)]
pub(super) struct Walk {
    log: u64,
    block: u64,
    generation: u64,
    /// The position of the next record, in bytes from the start of the disk.
    position: u64,
    /// The end of the walk.
    end: u64,
    /// Bytes read.
    chunk: Vec<u8>,
    /// The position of `chunk`, in bytes from the start of the disk.
    chunk_at: u64,
    bad: Option<u64>,
    session: u32,
}

impl Walk {
    /// A walk from `position` to `end` in a zone that the log `log` uses with `generation`.
    pub(super) fn new(log: u64, block: u64, generation: u64, position: u64, end: u64) -> Walk {
        Walk {
            log,
            block,
            generation,
            position,
            end,
            chunk: Vec::new(),
            chunk_at: 0,
            bad: None,
            session: 0,
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Extends the walk if the zone has grown, and returns whether it has. A record that looked
    /// torn may be whole now.
    pub(super) fn extend(&mut self, end: u64) -> bool {
        let more = end > self.end;
        if more {
            self.end = end;
            self.position = self.bad.take().unwrap_or(self.position);
            self.chunk.clear();
        }
        more
    }

    /// The largest session of a header seen, whether its record is whole or not.
    pub(super) fn seen_session(&self) -> u32 {
        self.session
    }

    /// Returns `len` bytes at `at`, which are inside the walk.
    async fn bytes<I: Io>(&mut self, io: &I, at: u64, len: u64) -> Result<&[u8], LogError> {
        let have = self.chunk_at..self.chunk_at + self.chunk.len() as u64;
        if at < have.start || at + len > have.end {
            let from = at / self.block * self.block;
            let to = (at + len.max(CHUNK)).next_multiple_of(self.block).min(self.end);
            self.chunk = io.read(Sector(from >> 9), ((to - from) >> 9) as u32).await?;
            self.chunk_at = from;
        }
        let offset = (at - self.chunk_at) as usize;
        let short = LogError::Corrupted { sector: Sector(at >> 9) };
        self.chunk.get(offset..offset + len as usize).ok_or(short)
    }

    /// Returns the record or seal at `position`, if it is whole.
    async fn here<I: Io>(&mut self, io: &I) -> Result<Option<(Header, Vec<u8>)>, LogError> {
        let (at, end) = (self.position, self.end);
        let (log, generation) = (self.log, self.generation);
        let Some(header) = Header::decode(self.bytes(io, at, HEADER_LEN as u64).await?) else {
            return Ok(None);
        };
        let ours = header.log == log && header.generation == generation && header.position == at;
        if ours {
            self.session = self.session.max(header.session);
        }
        if !ours || header.taken() > end - at {
            return Ok(None);
        }
        let len = u64::from(header.len);
        let data = self.bytes(io, at + HEADER_LEN as u64, len).await?.to_vec();
        Ok((crc32fast::hash(&data) == header.data_sum).then_some((header, data)))
    }

    /// Returns the next record or the end.
    pub(super) async fn next<I: Io>(&mut self, io: &I) -> Result<Found, LogError> {
        loop {
            if self.position + HEADER_LEN as u64 > self.end {
                return Ok(Found::End { rest: self.bad, sealed: false });
            }
            if let Some((header, data)) = self.here(io).await? {
                if header.kind == Kind::Seal {
                    return Ok(Found::End { rest: self.bad, sealed: true });
                }
                self.position += header.taken();
                return Ok(Found::Record { header, data, skipped: self.bad.take() });
            }
            // Zeroes follow the last record of a batch, up to the next block.
            let next = self.position.next_multiple_of(self.block).min(self.end);
            if self.bad.is_none() && next > self.position {
                let (at, len) = (self.position, next - self.position);
                if self.bytes(io, at, len).await?.iter().all(|b| *b == 0) {
                    self.position = next;
                    continue;
                }
            }
            self.bad.get_or_insert(self.position);
            self.position += ALIGN;
        }
    }
}
