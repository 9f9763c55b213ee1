//! Reads: a record by its address, and records in their order.

use super::format::{HEADER_LEN, Header, Kind, taken};
use super::io::Io;
use super::recover::Follow;
use super::shared::Shared;
use super::table::Held;
use super::walk::{Found, Walk};
use super::{LogAddress, LogError, Record, lock};
use zoneplug_core::Sector;

/// Bytes of a record read before its length is known.
const FIRST: u64 = 4096;

/// Reads the data of the record at `at`.
pub(super) async fn read<I: Io>(shared: &Shared<I>, at: LogAddress) -> Result<Vec<u8>, LogError> {
    let (zone, held, log, block) = {
        let t = lock(&shared.table);
        let (zone, held) = t.find(at)?;
        (zone, held, t.log, t.block)
    };
    let from = at.position() / block * block;
    let skip = (at.position() - from) as usize;
    let some = |len: u64| {
        let to = (at.position() + len).next_multiple_of(block).min(held.end);
        shared.io.read(Sector(from >> 9), ((to - from) >> 9) as u32)
    };
    let mut bytes = some(FIRST).await?;
    let header = bytes.get(skip..).and_then(Header::decode);
    let header = header.filter(|h| h.log == log && h.position == at.position());
    if let Some(h) = header
        && h.kind == Kind::Record
        && (h.sequence, h.session) == (at.sequence(), at.session())
        && h.taken() <= held.end - at.position()
    {
        let all = skip + HEADER_LEN + h.len as usize;
        if bytes.len() < all {
            bytes = some(taken(u64::from(h.len))).await?;
        }
        let data = bytes.get(skip + HEADER_LEN..all);
        if let Some(data) = data.filter(|d| crc32fast::hash(d) == h.data_sum) {
            let still = lock(&shared.table).still(zone, held.generation).is_some();
            return if still { Ok(data.to_vec()) } else { Err(LogError::Stale(at)) };
        }
    }
    Err(missing(shared, at, zone, held).await?)
}

/// Finds why there is no record at `at`: another record or a torn one is in its place, or the
/// record is damaged.
async fn missing<I: Io>(
    shared: &Shared<I>,
    at: LogAddress,
    zone: usize,
    held: Held,
) -> Result<LogError, LogError> {
    let mut walk = {
        let t = lock(&shared.table);
        // A later zone holds this number, so the address is stale.
        if t.after(held.generation).is_some_and(|(_, later)| later.first <= at.sequence()) {
            return Ok(LogError::Stale(at));
        }
        Walk::new(t.log, t.block, held.generation, t.zones[zone].start, held.end)
    };
    let mut taken = false;
    loop {
        let found = walk.next(&shared.io).await?;
        // A zone that was reset meanwhile may hold anything.
        let still = lock(&shared.table).still(zone, held.generation).is_some();
        match found {
            Found::Record { header, .. } if still => {
                let (begin, end) = (header.position, header.position + header.taken());
                // Numbers grow from record to record: the number of `at` is elsewhere, or its
                // position is inside a record.
                taken = if end <= at.position() {
                    header.sequence >= at.sequence()
                } else {
                    begin <= at.position() || header.sequence <= at.sequence()
                };
                if taken || end > at.position() {
                    break;
                }
            }
            Found::End { .. } if still => break,
            _ => {
                taken = true;
                break;
            }
        }
    }
    Ok(if taken { LogError::Stale(at) } else { LogError::Corrupted { sector: at.sector() } })
}

/// A place between two records.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    zone: Option<(usize, Walk)>,
    /// The generation of the last zone that was left.
    generation: u64,
    follow: Follow,
    /// A record whose preceding error was returned first.
    pending: Option<Record>,
}

impl Cursor {
    /// A cursor before the record at `at`.
    pub(super) async fn at<I: Io>(shared: &Shared<I>, at: LogAddress) -> Result<Cursor, LogError> {
        read(shared, at).await?;
        let t = lock(&shared.table);
        let (zone, held) = t.find(at)?;
        let walk = Walk::new(t.log, t.block, held.generation, at.position(), held.end);
        let follow = Follow::from(at.sequence(), at.session());
        Ok(Cursor { zone: Some((zone, walk)), follow, ..Cursor::default() })
    }

    /// Returns the next record, or the error before it. `None` if there are no more records so far.
    pub(super) async fn next<I: Io>(
        &mut self,
        shared: &Shared<I>,
    ) -> Option<Result<Record, LogError>> {
        if let Some(record) = self.pending.take() {
            return Some(Ok(record));
        }
        loop {
            let Some((index, walk)) = &mut self.zone else {
                let t = lock(&shared.table);
                let Some((index, held)) = t.after(self.generation) else {
                    let next = t.next_sequence;
                    drop(t);
                    return self.missing(next);
                };
                let start = t.zones[index].start;
                let walk = Walk::new(t.log, t.block, held.generation, start, held.end);
                self.zone = Some((index, walk));
                continue;
            };
            let (index, generation) = (*index, walk.generation());
            let found = walk.next(&shared.io).await;
            let (now, last, next) = {
                let t = lock(&shared.table);
                (t.still(index, generation), t.line.back() == Some(&index), t.next_sequence)
            };
            // The zone was reset meanwhile: the next zone's numbers show which records are missing.
            let Some(now) = now else {
                self.leave(generation);
                continue;
            };
            match found {
                Ok(Found::Record { header, data, skipped }) => {
                    let address = LogAddress::new(header.sequence, header.session, header.position);
                    let record = Record { address, data };
                    match self.follow.see(&header, skipped) {
                        None => return Some(Ok(record)),
                        Some(e) => {
                            self.pending = Some(record);
                            return Some(Err(e));
                        }
                    }
                }
                Ok(Found::End { .. }) if walk.extend(now.end) => {}
                Ok(Found::End { .. }) if last => return self.missing(next),
                Ok(Found::End { .. }) => self.leave(generation),
                Err(e) => {
                    self.leave(generation);
                    return Some(Err(e));
                }
            }
        }
    }

    fn leave(&mut self, generation: u64) {
        (self.zone, self.generation) = (None, generation);
    }

    /// Returns a hole if records are missing after the last zone.
    fn missing(&mut self, next: u64) -> Option<Result<Record, LogError>> {
        let first = self.follow.expected.filter(|e| *e < next)?;
        self.follow.expected = Some(next);
        Some(Err(LogError::Hole { first, next }))
    }
}
