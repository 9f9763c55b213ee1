//! What is measured of a drive, each by itself: the rate of zones, the time of a command, what the write cache takes, the
//! time of an access, and the rate with so many zones and commands. The same functions measure a real drive and a model.

use super::instrument::Instrument;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Error, ErrorKind, Nanos, Random};

/// Long enough for a drive to write what it has in its cache.
const REST: Nanos = Nanos(4_000_000_000);
/// The same of a drive without a head.
const SHORT_REST: Nanos = Nanos(100_000_000);
/// An access, at most.
const ACCESS: Nanos = Nanos(15_000_000);
/// Zones over which writes are scattered, at most.
const SCATTER: usize = 24;
/// Zones of which the rate is measured, and between which the head is sent.
const PLACES: usize = 12;
/// Reads between two places, in each direction.
const ACCESSES: usize = 96;
/// Bytes that are counted in a case, besides three times what the cache takes.
const COUNTED: u64 = 240 << 20;

/// `n` of the zones, spread over all of them.
fn spread(of: usize, n: usize) -> Vec<usize> {
    let n = n.min(of);
    (0..n).map(|i| if n == 1 { 0 } else { i * (of - 1) / (n - 1) }).collect()
}

/// How far the middle of a zone is from the start of the disk, from 0 to 1.
pub(super) fn place_of(zone: u32, g: &Geometry) -> f64 {
    (f64::from(zone) + 0.5) / f64::from(g.nr_zones())
}

/// The place of the `zone`th of the zones, as of [`place_of`].
fn place(on: &Instrument<'_>, zone: usize) -> f64 {
    place_of(on.zones()[zone], on.geometry())
}

/// Which of so many zones are the places whose rates are measured, and between which the head is sent.
pub(super) fn places(of: usize) -> Vec<usize> {
    spread(of, PLACES)
}

/// The median. The list is not empty.
fn median(list: &mut [f64]) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

/// Gives the drive time to write what is in its cache.
fn rest(on: &mut Instrument<'_>) {
    let scattered = u64::from(on.take_scattered());
    match on.limits().rotational {
        true => on.rest(REST.plus(Nanos(scattered * ACCESS.0))),
        false => on.rest(SHORT_REST),
    }
}

/// Empties zones and gives the drive time to write what is in its cache.
fn begin(on: &mut Instrument<'_>, zones: &[usize]) -> Result<(), Error> {
    on.flush()?;
    // A drive that saves its cache answers a flush at once. Each of many short writes takes an access.
    rest(on);
    zones.iter().try_for_each(|&zone| on.reset(zone))
}

/// The median of times, and by how much it may be off by chance, in nanoseconds.
struct Time {
    ns: f64,
    off_ns: f64,
}

impl Time {
    /// The list is not empty.
    fn of(mut list: Vec<f64>) -> Time {
        let ns = median(&mut list);
        let quarter = list.len() / 4;
        let spread = list[list.len() - 1 - quarter] - list[quarter];
        // The standard error of a median, from the quartiles of a normal distribution.
        Time { ns, off_ns: 0.93 * spread / (list.len() as f64).sqrt() }
    }
}

/// One write after the other to one zone of a drive that has been idle: the time of so many.
fn command(on: &mut Instrument<'_>, sectors: u32, writes: u32) -> Result<Time, Error> {
    begin(on, &[0])?;
    let writes = writes.min(on.room(0) / sectors).max(1);
    let mut times = Vec::new();
    for _ in 0..writes {
        on.write(0, sectors, 0)?;
        times.push(on.wait()?.took.0 as f64);
    }
    Ok(Time::of(times))
}

/// The time that a command takes, and how fast its data move: from times of short and of long writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer {
    /// A short write and a long one.
    pub(super) short_ns: f64,
    pub(super) long_ns: f64,
    /// Bytes a second, and by how much they may be off, in percent.
    pub(super) rate: f64,
    pub(super) rate_off: f64,
    /// The time of a command besides its data, and by how much that may be off, in percent.
    pub(super) command_ns: f64,
    pub(super) command_off: f64,
}

/// By how much the times of a short and a long write must differ, as a multiple of what they may be off by chance.
const CLEARLY: f64 = 2.0;
/// The fastest rate that a profile can have, in bytes a second.
const FASTEST: f64 = 1e11;

/// Measures so many short writes and so many long ones. Fails if long writes take no longer than short ones.
pub(super) fn transfer(
    on: &mut Instrument<'_>,
    short_writes: u32,
    long_writes: u32,
) -> Result<Transfer, Error> {
    let (short, long) = (on.sectors(4 << 10), on.sectors(1 << 20));
    let (s, l) = (command(on, short, short_writes)?, command(on, long, long_writes)?);
    let (more_ns, off_ns) = (l.ns - s.ns, s.off_ns.hypot(l.off_ns));
    let bytes = |sectors: u32| f64::from(sectors) * 512.0;
    let rate = bytes(long - short) / more_ns.max(f64::MIN_POSITIVE) * 1e9;
    if more_ns <= CLEARLY * off_ns || rate > FASTEST {
        return Err(Error::new(
            ErrorKind::NotSupported,
            "long writes take no longer than short ones: this disk has no rate that can be measured",
        )
        .hint("a drive, or a model of one such as sim-zns1; nothing else may use the drive meanwhile"));
    }
    let rate_off = off_ns / more_ns;
    let data_ns = bytes(short) / rate * 1e9;
    let command_ns = (s.ns - data_ns).max(0.0);
    let command_off = s.off_ns.hypot(data_ns * rate_off) / command_ns.max(1.0);
    let percent = |part: f64| 100.0 * part;
    Ok(Transfer {
        short_ns: s.ns,
        long_ns: l.ns,
        rate,
        rate_off: percent(rate_off),
        command_ns,
        command_off: percent(command_off),
    })
}

/// One read after the other of a zone that was written, at places far from each other: the median time in nanoseconds.
pub(super) fn read(on: &mut Instrument<'_>, bytes: u32, reads: u32) -> Result<f64, Error> {
    let sectors = on.sectors(bytes);
    let places = (on.room(0) / 2 / sectors).max(1);
    begin(on, &[0])?;
    while on.written(0) + on.longest() <= on.room(0) / 2 {
        on.write(0, on.longest(), 0)?;
        on.wait()?;
    }
    rest(on);
    let mut random = Random::new(5);
    let mut times = Vec::new();
    for _ in 0..reads {
        on.read(0, random.below(places) * sectors, sectors, 0)?;
        times.push(on.wait()?.took.0 as f64);
    }
    Ok(median(&mut times))
}

/// How often the cache is filled: what it takes depends on where the platter is.
pub(super) const FILLS: u32 = 5;
/// The same with short writes, which the drive then takes a minute to write.
pub(super) const FILLS_SHORT: u32 = 2;

/// Writes of so many bytes, one after the other and scattered, to a drive that has been idle: how many it acknowledges
/// before one of them waits for the medium, in so many tries together. `None`: none waited.
pub(super) fn until_full(
    on: &mut Instrument<'_>,
    bytes: u32,
    quick_ns: f64,
    fills: u32,
) -> Result<Option<u32>, Error> {
    let tries: Result<Option<Vec<u32>>, Error> =
        (0..fills).map(|_| fill(on, bytes, quick_ns)).collect();
    Ok(tries?.map(|all| all.iter().sum()))
}

/// The same, once.
pub(super) fn fill(
    on: &mut Instrument<'_>,
    bytes: u32,
    quick_ns: f64,
) -> Result<Option<u32>, Error> {
    let zones = spread(on.zones().len(), SCATTER);
    begin(on, &zones)?;
    let sectors = on.sectors(bytes);
    let most = zones.iter().map(|&z| on.room(z)).min().unwrap_or(0) / sectors * zones.len() as u32;
    // A write that waits alone was late by chance: by the host, not the medium.
    let soon = (12 << 20) / bytes;
    let mut late = None;
    // Far more than a drive's cache.
    for n in 0..most.min(24_000) {
        on.scattered(n + 1);
        on.write(zones[n as usize % zones.len()], sectors, 0)?;
        if on.wait()?.took.0 as f64 > 4.0 * quick_ns + 1e6 {
            if let Some(first) = late.filter(|first| n - first <= soon) {
                return Ok(Some(first));
            }
            late = Some(n);
        }
    }
    Ok(None)
}

/// How long a flush takes when the cache is full: in nanoseconds, [`FILLS`] of them together.
pub(super) fn flush_of_full(
    on: &mut Instrument<'_>,
    bytes: u32,
    quick_ns: f64,
) -> Result<f64, Error> {
    let mut sum = 0.0;
    for _ in 0..FILLS {
        fill(on, bytes, quick_ns)?;
        sum += on.flush()?.0 as f64;
    }
    Ok(sum)
}

/// The rate of a place: how far it is from the start of the disk, from 0 to 1, and bytes a second.
pub(super) type Rate = (f64, f64);

/// Writes zones in full, one command at a time, and measures the last quarter of each: what is acknowledged then makes room that the
/// medium made somewhere in this zone, not between two. The zones stay full.
pub(super) fn rates(on: &mut Instrument<'_>) -> Result<Vec<Rate>, Error> {
    let zones = places(on.zones().len());
    begin(on, &zones)?;
    let (sectors, last) = (on.longest(), zones[zones.len() - 1]);
    let mut found = Vec::new();
    // The first one is written twice: the cache has to be full.
    for (n, &zone) in [last].iter().chain(&zones).enumerate() {
        if n > 0 && zone == last {
            on.reset(zone)?;
        }
        let writes = on.room(zone) / sectors;
        let (first, mut start) = (writes - writes / 4, on.now());
        for i in 0..writes {
            if i == first {
                start = on.now();
            }
            on.write(zone, sectors, 0)?;
            on.wait()?;
        }
        let bytes = f64::from(writes - first) * f64::from(sectors << 9);
        let took = (on.now().0 - start.0) as f64 / 1e9;
        if n > 0 && took > 0.0 {
            found.push((place(on, zone), bytes / took));
        }
    }
    Ok(found)
}

/// Reads that go from one place to another and back: the places, and the times between which 80 % of the accesses are, in
/// nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Which of the zones the head is sent between: short and long distances.
pub(super) fn pairs(zones: &[u32]) -> Vec<(usize, usize)> {
    let places = places(zones.len());
    let mut pairs: Vec<(usize, usize)> = places.first().map(|&p| (p, p)).into_iter().collect();
    let all: Vec<(usize, usize)> = places
        .iter()
        .enumerate()
        .flat_map(|(i, &a)| places[i + 1..].iter().map(move |&b| (a, b)))
        .collect();
    let far = |&(a, b): &(usize, usize)| zones[b].abs_diff(zones[a]);
    let widest = all.iter().map(far).max().unwrap_or(0);
    for step in 1..=PLACES as u32 {
        let wanted = u64::from(widest) * u64::from(step) / PLACES as u64;
        let nearest = all.iter().min_by_key(|p| u64::from(far(p)).abs_diff(wanted));
        pairs.extend(nearest.filter(|p| !pairs.contains(p)).copied());
    }
    pairs
}

/// Sends the head between the places whose rates were measured, over short and long distances.
pub(super) fn accesses(on: &mut Instrument<'_>) -> Result<Vec<Access>, Error> {
    on.flush()?;
    rest(on);
    let sectors = on.sectors(4096);
    let mut random = Random::new(7);
    let mut found = Vec::new();
    for (a, b) in pairs(on.zones()) {
        let mut times = Vec::new();
        for n in 0..=2 * ACCESSES {
            let zone = if n % 2 == 0 { a } else { b };
            on.read(zone, random.below(on.room(zone) / sectors) * sectors, sectors, 0)?;
            let took = on.wait()?.took;
            // The first one comes from anywhere.
            if n > 0 {
                times.push(took.0 as f64);
            }
        }
        times.sort_by(f64::total_cmp);
        let (low, high) = (times[times.len() / 10], times[times.len() - 1 - times.len() / 10]);
        found.push(Access { from: place(on, a), to: place(on, b), low, high });
    }
    Ok(found)
}

/// Writes in turns to so many zones with so many in flight, one of a zone at most, and perhaps random reads beside them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Case {
    pub(super) zones: usize,
    pub(super) in_flight: usize,
    pub(super) bytes: u32,
    /// Reads of 4 KiB outstanding.
    pub(super) reads: u32,
}

/// What a case gives: of the writes in 10^6 bytes a second, and reads a second.
pub(super) type Figure = (f64, f64);

/// The token of reads; writes have the number of their zone.
const READ: u32 = u32::MAX;

/// Runs a case. `before`: bytes that are written before anything counts.
pub(super) fn case(on: &mut Instrument<'_>, case: Case, before: u64) -> Result<Figure, Error> {
    let zones = spread(on.zones().len(), case.zones);
    let n = zones.len();
    let sectors = on.sectors(case.bytes);
    begin(on, &zones)?;
    let room = zones.iter().map(|&z| on.room(z) / sectors).min().unwrap_or(0);
    // Zones are not written evenly if some are slower.
    let most = (room - room / 8) * n as u32;
    let writes_of = |bytes: u64| (bytes / u64::from(sectors << 9)).min(1 << 24) as u32;
    let warm_up = (writes_of(before) + 16).min(most / 2);
    let most = most.min(warm_up + writes_of(COUNTED + 3 * before));
    let (mut random, read_sectors) = (Random::new(11), on.sectors(4096));
    let mut busy = vec![false; n];
    let (mut next, mut writes_out, mut reads_out) = (0, 0, 0);
    let (mut writes, mut reads, mut start) = (0, 0u32, on.now());
    let mut figure = (0.0, 0.0);
    loop {
        while writes < most && writes_out < case.in_flight.min(n) {
            let has_room =
                |i: usize| !busy[i] && on.written(zones[i]) + sectors <= on.room(zones[i]);
            let Some(i) = (next..next + n).map(|i| i % n).find(|&i| has_room(i)) else { break };
            on.write(zones[i], sectors, i as u32)?;
            (busy[i], next, writes_out) = (true, i + 1, writes_out + 1);
        }
        while writes < most && writes >= warm_up && reads_out < case.reads {
            let zone = zones[random.below(n as u32) as usize];
            let places = (on.written(zone) / read_sectors).max(1);
            on.read(zone, random.below(places) * read_sectors, read_sectors, READ)?;
            reads_out += 1;
        }
        if writes_out == 0 && reads_out == 0 {
            break;
        }
        let token = on.wait()?.token;
        if token == READ {
            reads_out -= 1;
            reads += u32::from(writes < most);
            continue;
        }
        (busy[token as usize], writes_out) = (false, writes_out - 1);
        writes += 1;
        if writes == warm_up {
            (start, reads) = (on.now(), 0);
        } else if writes == most {
            let seconds = (on.now().0 - start.0) as f64 / 1e9;
            let bytes = f64::from(most - warm_up) * f64::from(sectors << 9);
            figure = (bytes / seconds / 1e6, f64::from(reads) / seconds);
        }
    }
    Ok(figure)
}
