//! Reads one zone from record to record, across what a crash has torn.
//!
//! A record that is not whole may be one that a power cut tore, and the next session goes on behind it: so behind
//! something that is no record every place where one could begin is tried, up to the end.

use super::LogError;
use super::format::{ALIGN, HEADER_LEN, Header, Kind};
use super::io::Io;
use zoneplug_core::Sector;

/// Bytes that are read at a time.
const CHUNK: u64 = 256 << 10;

/// The next thing that a walk finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A record. `skipped`: between it and the one before is something that is none, from this byte of the disk on.
    Record { header: Header, data: Vec<u8>, skipped: Option<u64> },
    /// No more. `rest`: from this byte of the disk on is something that is no record.
    End { rest: Option<u64>, sealed: bool },
}

/// A walk through a zone.
#[derive(Debug)]
pub(super) struct Walk {
    log: u64,
    block: u64,
    generation: u64,
    /// Where the next record is looked for, in bytes of the disk.
    position: u64,
    /// Where to stop.
    end: u64,
    /// Bytes that were read, and where they begin.
    chunk: Vec<u8>,
    chunk_at: u64,
    bad: Option<u64>,
    session: u32,
}

impl Walk {
    /// From `position` to `end` in a zone that is in the use `generation` of the log `log`.
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

    /// The zone may have grown: returns whether it has. What was a torn record before may be whole now.
    pub(super) fn extend(&mut self, end: u64) -> bool {
        let more = end > self.end;
        if more {
            self.end = end;
            self.position = self.bad.take().unwrap_or(self.position);
            self.chunk.clear();
        }
        more
    }

    /// The largest session of a header that was seen, whether its record is whole or not.
    pub(super) fn seen_session(&self) -> u32 {
        self.session
    }

    /// `len` bytes at `at`, which are inside of the walk.
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

    /// The record or seal at `position`, if there is a whole one.
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

    /// The next record.
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
            // Behind the last record of a batch are zeroes up to the next block.
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
