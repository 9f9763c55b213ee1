//! Makes all changes of a log, one group of requests at a time.

use super::format::{HEADER_LEN, Header, Kind, taken};
use super::io::Io;
use super::shared::{Answer, Ask, BATCH, Group, Request, Shared};
use super::table::{BatchPlace, Use};
use super::walk::{Found, Walk};
use super::{LogAddress, LogError, lock};
use std::sync::Arc;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Op, Sector, ZoneNo};

/// A record of the group that is not written yet.
struct UnwrittenRecord {
    /// The index of its request in the group.
    request: usize,
    data: Vec<u8>,
}

/// Carries out the requests of a group.
pub(super) async fn run<I: Io>(shared: Arc<Shared<I>>, mut group: Group<I>, list: Vec<Request>) {
    if lock(&shared.table).has_failed() {
        return list.iter().for_each(|(id, _)| group.answer(*id, Err(LogError::Failed)));
    }
    let mut ids = Vec::new();
    let mut syncs = Vec::new();
    let mut wanted = Vec::new();
    for (id, ask) in list {
        match ask {
            Ask::Trim(before) => return group.answer(id, reset(&*shared, Some(before)).await),
            Ask::ResetOldest => return group.answer(id, reset(&*shared, None).await),
            Ask::Append { records, sync } => {
                let request = ids.len();
                wanted.extend(records.into_iter().map(|data| UnwrittenRecord { request, data }));
                syncs.push(sync);
            }
            Ask::Sync => syncs.push(true),
        }
        ids.push(id);
    }
    let mut answers: Vec<Result<Vec<LogAddress>, LogError>> = vec![Ok(Vec::new()); ids.len()];
    let mut left = wanted.as_slice();
    while let [next, ..] = left {
        match write_some(&*shared, left).await {
            Ok(addresses) => {
                for (w, at) in left.iter().zip(&addresses) {
                    if let Ok(list) = &mut answers[w.request] {
                        list.push(*at);
                    }
                }
                left = &left[addresses.len()..];
            }
            // A shorter record of another request may still fit.
            Err(LogError::Full) => {
                let request = next.request;
                answers[request] = Err(LogError::Full);
                left = &left[left.iter().take_while(|w| w.request == request).count()..];
            }
            Err(e) => {
                left.iter().for_each(|w| answers[w.request] = Err(e.clone()));
                left = &[];
            }
        }
    }
    let mut durable = Ok(());
    for late in [false, true] {
        if late && syncs.iter().any(|s| *s) {
            durable = flush(&*shared).await;
        }
        for (i, answer) in answers.iter_mut().enumerate().filter(|(i, _)| syncs[*i] == late) {
            let answer = std::mem::replace(answer, Err(LogError::Aborted));
            let answer = answer.map(Answer::Addresses);
            let outcome =
                if late { answer.and_then(|a| durable.clone().map(|()| a)) } else { answer };
            group.answer(ids[i], outcome);
        }
    }
}

/// Makes acknowledged records durable.
async fn flush<I: Io>(shared: &Shared<I>) -> Result<(), LogError> {
    let (pool, log) = {
        let t = lock(&shared.table);
        if t.has_failed() {
            return Err(LogError::Failed);
        }
        (t.pool.clone(), t.log)
    };
    pool.flush(log, || shared.io.flush()).await?;
    lock(&shared.table).dirty = false;
    Ok(())
}

/// Writes as many records as fit into the head and into one batch, at least one.
async fn write_some<I: Io>(
    shared: &Shared<I>,
    records: &[UnwrittenRecord],
) -> Result<Vec<LogAddress>, LogError> {
    if lock(&shared.table).suspect {
        find_end(shared).await?;
    }
    let len = records.first().map_or(0, |r| r.data.len() as u64);
    let (position, room, generation) = loop {
        let place = lock(&shared.table).place(len)?;
        match place {
            BatchPlace::At { position, room, generation } => break (position, room, generation),
            BatchPlace::Next { seal } => {
                if let Err(e) = go_on(shared, seal).await {
                    lock(&shared.table).release();
                    return Err(e);
                }
            }
        }
    };
    let mut bytes = taken(len);
    let mut nr = 1;
    for r in &records[1..] {
        let more = bytes + taken(r.data.len() as u64);
        if more > room.min(BATCH as u64) {
            break;
        }
        (bytes, nr) = (more, nr + 1);
    }
    let (log, block, session, first) = {
        let t = lock(&shared.table);
        (t.log, t.block, t.session, t.next_sequence)
    };
    let mut buf = AlignedBuf::zeroed(bytes.next_multiple_of(block) as u32);
    let mut addresses = Vec::with_capacity(nr);
    let mut offset = 0;
    for (sequence, r) in (first..).zip(&records[..nr]) {
        let at = position + offset;
        let header = Header {
            kind: Kind::Record,
            log,
            sequence,
            generation,
            session,
            len: r.data.len() as u32,
            position: at,
            data_sum: crc32fast::hash(&r.data),
        };
        buf.write(offset as u32, &header.encode());
        buf.write(offset as u32 + HEADER_LEN as u32, &r.data);
        addresses.push(LogAddress::new(sequence, session, at));
        offset += header.taken();
    }
    let end = position + u64::from(buf.len());
    put(shared, position, buf).await?;
    let new_session = {
        let mut t = lock(&shared.table);
        t.head_reaches(end, first);
        t.next_sequence += nr as u64;
        t.dirty = true;
        !std::mem::replace(&mut t.session_durable, true)
    };
    if new_session {
        // Without this flush a crash could take the whole session, and the next session would reuse
        // its numbers for other records.
        flush(shared).await?;
    }
    Ok(addresses)
}

/// Writes at the end of the head. After an error the log knows the new end, or knows that it has to
/// ask for it.
async fn put<I: Io>(shared: &Shared<I>, position: u64, buf: AlignedBuf) -> Result<(), LogError> {
    // Set while the write is in flight, because this future may be dropped in the middle.
    lock(&shared.table).suspect = true;
    let result = shared.io.write(Sector(position >> 9), buf).await;
    match result {
        Ok(()) => {
            lock(&shared.table).suspect = false;
            Ok(())
        }
        Err(e) => match find_end(shared).await {
            Err(lost @ LogError::ZoneLost { .. }) => Err(lost),
            _ => Err(e),
        },
    }
}

/// Asks the device for the end of the head, and keeps records that are there although their write
/// was not acknowledged.
async fn find_end<I: Io>(shared: &Shared<I>) -> Result<(), LogError> {
    let (zone, held, mut walk) = {
        let mut t = lock(&shared.table);
        // A reader skips a torn record only if a record of a later session follows.
        t.session += 1;
        t.session_durable = false;
        let Some(head) = t.head else {
            t.suspect = false;
            return Ok(());
        };
        let (zone, held) = (t.zones[head], t.held(head));
        let (generation, end) =
            held.map_or((t.next_generation, zone.start), |h| (h.generation, h.end));
        (zone, held, Walk::new(t.log, t.block, generation, end, end))
    };
    let info = shared.io.zone(zone.sector()).await?;
    if matches!(info.cond, Condition::ReadOnly | Condition::Offline) {
        let mut t = lock(&shared.table);
        t.lose_head(info.cond);
        t.suspect = false;
        return Err(LogError::ZoneLost { zone: zone.no, condition: info.cond });
    }
    let end = match info.cond {
        Condition::Full => zone.limit(),
        _ => info.wp.0 << 9,
    };
    let known = held.map_or(zone.start, |h| h.end);
    if end < known {
        // Another program has reset the zone, or the device has lost acknowledged data.
        lock(&shared.table).failed = true;
        return Err(LogError::Failed);
    }
    walk.extend(end);
    let first = lock(&shared.table).next_sequence;
    let mut next = first;
    let sealed = loop {
        match walk.next(&shared.io).await? {
            Found::Record { header, .. } => next = next.max(header.sequence + 1),
            Found::End { sealed, .. } => break sealed,
        }
    };
    let mut t = lock(&shared.table);
    t.next_sequence = next;
    if end > known {
        t.dirty = true;
        t.head_reaches(end, first);
    }
    if sealed {
        t.seal_head();
    }
    t.suspect = false;
    Ok(())
}

/// Finishes the head and continues in the reserved zone. Everything before is then durable: if a
/// crash cuts the log in a later zone, all earlier zones are whole.
async fn go_on<I: Io>(shared: &Shared<I>, seal: Option<usize>) -> Result<(), LogError> {
    if let Some(head) = seal {
        let (zone, held, t) = {
            let t = lock(&shared.table);
            let Some(held) = t.held(head) else { return Err(LogError::Failed) };
            (t.zones[head], held, (t.log, t.block, t.session, t.next_sequence))
        };
        let (log, block, session, sequence) = t;
        let room = zone.limit() - held.end;
        if room > 0 && !held.sealed {
            let header = Header {
                kind: Kind::Seal,
                log,
                sequence,
                generation: held.generation,
                session,
                len: 0,
                position: held.end,
                data_sum: 0,
            };
            let mut buf = AlignedBuf::zeroed(block as u32);
            buf.write(0, &header.encode());
            put(shared, held.end, buf).await?;
            let mut t = lock(&shared.table);
            t.head_reaches(held.end + block, sequence);
            t.dirty = true;
            t.seal_head();
        }
        if lock(&shared.table).dirty {
            flush(shared).await?;
        }
        if room > 0
            && let Err(e) = shared.io.manage(Op::ZoneFinish, zone.sector(), zone.len_sectors).await
        {
            return match find_end(shared).await {
                Err(lost @ LogError::ZoneLost { .. }) => Err(lost),
                _ => Err(e),
            };
        }
    }
    lock(&shared.table).advance();
    Ok(())
}

/// Resets the oldest zone, or with an address all zones whose records are all older.
async fn reset<I: Io>(shared: &Shared<I>, before: Option<LogAddress>) -> Result<Answer, LogError> {
    let mut zones: Vec<ZoneNo> = Vec::new();
    loop {
        let oldest = {
            let t = lock(&shared.table);
            let oldest = match before {
                Some(before) => t.oldest_before(before),
                None if zones.is_empty() => t.oldest(),
                None => None,
            };
            oldest.map(|z| (z, t.zones[z], t.dirty))
        };
        let Some((index, zone, dirty)) = oldest else { return Ok(Answer::Zones(zones)) };
        if dirty {
            // The numbers of later records continue from the newest zone, so a crash must not take
            // it.
            flush(shared).await?;
        }
        let was = lock(&shared.table).begin_reset(index);
        let result = shared.io.manage(Op::ZoneReset, zone.sector(), zone.len_sectors).await;
        let mut state = Use::Free;
        if result.is_err() {
            // A read-only or offline zone cannot be used again. Any other zone may or may not have
            // been reset.
            let info = shared.io.zone(zone.sector()).await;
            state = match info.map(|z| z.cond) {
                Ok(cond @ (Condition::ReadOnly | Condition::Offline)) => Use::Lost(cond),
                Ok(Condition::Empty) => Use::Free,
                _ => was,
            };
        }
        lock(&shared.table).end_reset(index, state);
        if state == was {
            return result.map(|()| Answer::Zones(zones));
        }
        zones.push(zone.no);
    }
}
