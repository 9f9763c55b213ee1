//! The oracle: a list of records. Random work on a log, and what must be left of it after a crash.

use super::common::data;
use zoneplug::HostedDisk;
use zoneplug::crash::Random;
use zoneplug::zone_log::{LogAddress, LogError, LogOptions, ZoneLog};

/// What the client of a log knows.
#[derive(Debug, Clone)]
pub(crate) enum Known {
    /// The next record is about to be appended.
    Tried(Vec<u8>),
    /// It was not: the log was full.
    Refused,
    /// It was acknowledged.
    Acknowledged(LogAddress),
    /// Records up to this number are durable.
    Synced(u64),
    /// Records below this number may go.
    Given(u64),
}

/// So much work on an empty disk.
pub(crate) fn work(
    disk: &HostedDisk,
    seed: u64,
    steps: u32,
    tell: &dyn Fn(Known),
) -> Result<(), LogError> {
    let mut r = Random::new(seed);
    let mut log = ZoneLog::open(disk, LogOptions::new())?;
    let mut known: Vec<LogAddress> = Vec::new();
    let mut tried = 0;
    for _ in 0..steps {
        match r.below(20) {
            0..12 => {
                let long = if r.one_in(6) { 30_000 } else { 3_000 };
                let nr = if r.one_in(4) { 1 + r.below(5) } else { 1 };
                let records: Vec<_> = (0..nr)
                    .map(|i| data(seed + tried + u64::from(i), r.below(long) as usize))
                    .collect();
                let sync = r.one_in(5);
                for record in &records {
                    tell(Known::Tried(record.clone()));
                }
                let mut left = records.as_slice();
                while !left.is_empty() {
                    let result = match left {
                        [one] if sync => log.append_sync(one),
                        [one, ..] => log.append(one),
                        [] => break,
                    };
                    match result {
                        Ok(at) => {
                            left = &left[1..];
                            tried += 1;
                            tell(Known::Acknowledged(at));
                            if sync && left.is_empty() {
                                tell(Known::Synced(at.sequence()));
                            }
                            known.push(at);
                        }
                        Err(LogError::Full) => {
                            let before = *known.last().ok_or(LogError::Full)?;
                            tell(Known::Given(before.sequence()));
                            if log.trim(before)?.is_empty() {
                                return Err(LogError::Full);
                            }
                        }
                        Err(e) => return Err(e),
                    }
                }
            }
            12..15 => {
                log.sync()?;
                tell(Known::Synced(tried));
            }
            15 if known.len() > 1 => {
                let before = known[r.below(known.len() as u32) as usize];
                tell(Known::Given(before.sequence()));
                log.trim(before)?;
            }
            16 => {
                drop(log);
                log = ZoneLog::open(disk, LogOptions::new())?;
                if log.recovery().last.is_some_and(|last| last != tried) {
                    return Err(LogError::Setup(format!("{:?}, {tried} tried", log.recovery())));
                }
                // What opening shows is durable.
                tell(Known::Synced(tried));
            }
            17 => {
                let records: Vec<_> = (0..4).map(|i| data(seed + tried + i, 500)).collect();
                records.iter().for_each(|r| tell(Known::Tried(r.clone())));
                match log.append_batch(&records) {
                    Ok(at) => {
                        tried += 4;
                        at.iter().for_each(|at| tell(Known::Acknowledged(*at)));
                        known.extend(at);
                    }
                    // The first of them may be there: the end of this work.
                    Err(LogError::Full) => return Ok(()),
                    Err(e) => return Err(e),
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// One thing that a client may do with its log. `known`: what it has appended.
pub(crate) fn step(
    log: &ZoneLog,
    r: &mut Random,
    known: &mut Vec<LogAddress>,
    tell: &dyn Fn(Known),
) -> Result<(), LogError> {
    match r.below(12) {
        0..9 => {
            let long = if r.one_in(8) { 30_000 } else { 5_000 };
            let record = data(r.below(256).into(), r.below(long) as usize);
            let sync = r.one_in(8);
            // No other record gets this number: an append that fails here has written nothing.
            tell(Known::Tried(record.clone()));
            let append = || if sync { log.append_sync(&record) } else { log.append(&record) };
            let at = match append() {
                Err(LogError::Full) => {
                    tell(Known::Refused);
                    let before = *known.last().ok_or(LogError::Full)?;
                    tell(Known::Given(before.sequence()));
                    return log.trim(before).map(drop);
                }
                at => at?,
            };
            tell(Known::Acknowledged(at));
            known.push(at);
            if sync {
                tell(Known::Synced(at.sequence()));
            }
        }
        9 => {
            log.sync()?;
            tell(Known::Synced(known.len() as u64));
        }
        10 if !known.is_empty() => {
            let before = known[r.below(known.len() as u32) as usize];
            tell(Known::Given(before.sequence()));
            log.trim(before)?;
        }
        _ => {}
    }
    Ok(())
}

/// What is left of a log is what its client may expect.
pub(crate) fn check(disk: &HostedDisk, known: &[Known]) -> Result<(), String> {
    let log = ZoneLog::open(disk, LogOptions::new()).map_err(|e| format!("opening: {e}"))?;
    let (nr, more) = check_log(&log, known)?;
    drop(log);
    let log = ZoneLog::open(disk, LogOptions::new()).map_err(|e| format!("opening again: {e}"))?;
    let found = log.iter().filter(Result::is_ok).count();
    match more.map(|(at, data)| (at, log.read(at) == Ok(data))) {
        None | Some((_, true)) if found == nr => Ok(()),
        other => Err(format!("{nr} records, and {found} after opening again: {other:?}")),
    }
}

/// A record that a check has appended.
type New = (LogAddress, Vec<u8>);

/// What is left of a log that was opened is what its client may expect, and it takes one more record. Returns how many
/// records it has then, and that one; none if the log is full.
pub(crate) fn check_log(log: &ZoneLog, known: &[Known]) -> Result<(usize, Option<New>), String> {
    let (mut tried, mut addresses) = (Vec::new(), Vec::new());
    let (mut synced, mut given) = (0, 1);
    for k in known {
        match k {
            Known::Tried(data) => tried.push(data),
            Known::Refused => drop(tried.pop()),
            Known::Acknowledged(at) => addresses.push(*at),
            Known::Synced(n) => synced = synced.max(*n),
            Known::Given(n) => given = given.max(*n),
        }
    }
    let recovery = log.recovery().clone();
    if !recovery.holes.is_empty() || !recovery.foreign.is_empty() {
        return Err(format!("{recovery:?}"));
    }
    let found: Vec<_> = log
        .iter()
        .map(|r| r.map(|r| (r.address, r.data)))
        .collect::<Result<_, _>>()
        .map_err(|e| format!("reading: {e}"))?;
    let first = found.first().map_or(given, |(at, _)| at.sequence());
    let end = first + found.len() as u64;
    if first > given {
        return Err(format!("the first record is {first}, and {given} was not given up"));
    }
    if end <= synced {
        return Err(format!("the last record is {}, and {synced} was durable", end - 1));
    }
    for (n, (at, data)) in (first..).zip(&found) {
        if at.sequence() != n || tried.get(n as usize - 1) != Some(&data) {
            return Err(format!("record {n} is not what was appended: {at}"));
        }
        if log.read(*at).as_ref() != Ok(data) {
            return Err(format!("{at} cannot be read by its address"));
        }
    }
    for at in &addresses {
        let n = at.sequence();
        match log.read(*at) {
            Ok(data) if first <= n && n < end && tried.get(n as usize - 1) == Some(&&data) => {}
            Err(LogError::Stale(_)) if n < first || n > synced => {}
            other => return Err(format!("{at}: {other:?}")),
        }
    }
    // It goes on.
    let more = data(end, 700);
    let at = match log.append_sync(&more) {
        Ok(at) => at,
        Err(LogError::Full) => return Ok((found.len(), None)),
        Err(e) => return Err(format!("appending: {e}")),
    };
    if found.last().is_some_and(|(last, _)| last.sequence() + 1 != at.sequence()) {
        return Err(format!("{at} behind {end}"));
    }
    if at.sequence() <= synced {
        return Err(format!("{at} has a number of a durable record: {synced}"));
    }
    match log.read(at) {
        Ok(data) if data == more => Ok((found.len() + 1, Some((at, data)))),
        other => Err(format!("{at}: {other:?}")),
    }
}
