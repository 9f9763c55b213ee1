//! The single measurements: the rate of zones, the time of a command, the size of the write cache,
//! the time of an access, and the rate with several zones and commands. The same functions measure
//! a real drive and a model.

use super::instrument::Instrument;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Error, ErrorKind, Nanos, Random};

/// A rest long enough for a disk to write out its cache.
const REST: Nanos = Nanos(4_000_000_000);
/// The rest for a drive without a head.
const SHORT_REST: Nanos = Nanos(100_000_000);
/// The longest access of a scattered write.
const ACCESS: Nanos = Nanos(15_000_000);
/// The most zones over which writes are scattered.
const SCATTER: usize = 24;
/// The number of zones whose rates are measured and between which the head is sent.
const PLACES: usize = 12;
/// Reads between two places, in each direction.
const ACCESSES: usize = 96;
/// Bytes counted in a case, besides three times the size of the cache.
const COUNTED: u64 = 240 << 20;

/// Picks `n` of `of` zones, spread evenly.
fn spread(of: usize, n: usize) -> Vec<usize> {
    let n = n.min(of);
    (0..n).map(|i| if n == 1 { 0 } else { i * (of - 1) / (n - 1) }).collect()
}

/// The distance of a zone's middle from the start of the disk, from 0 to 1.
pub(super) fn place_of(zone: u32, g: &Geometry) -> f64 {
    (f64::from(zone) + 0.5) / f64::from(g.nr_zones())
}

/// The place of the `zone`th zone, as [`place_of`] gives it.
fn place(on: &Instrument<'_>, zone: usize) -> f64 {
    place_of(on.zones()[zone], on.geometry())
}

/// The zones, of `of`, whose rates are measured and between which the head is sent.
pub(super) fn places(of: usize) -> Vec<usize> {
    spread(of, PLACES)
}

/// The median. The list must not be empty.
fn median(list: &mut [f64]) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

/// Gives the drive time to write out its cache.
fn rest(on: &mut Instrument<'_>) {
    let scattered = u64::from(on.take_scattered());
    match on.limits().rotational {
        true => on.rest(REST.plus(Nanos(scattered * ACCESS.0))),
        false => on.rest(SHORT_REST),
    }
}

/// Gives the drive time to write out its cache, then resets the zones.
fn begin(on: &mut Instrument<'_>, zones: &[usize]) -> Result<(), Error> {
    on.flush()?;
    // A drive with a protected cache answers a flush at once, and each scattered write costs an
    // access.
    rest(on);
    zones.iter().try_for_each(|&zone| on.reset(zone))
}

/// The median of some times and its standard error, in nanoseconds.
struct Time {
    ns: f64,
    off_ns: f64,
}

impl Time {
    /// The list must not be empty.
    fn of(mut list: Vec<f64>) -> Time {
        let ns = median(&mut list);
        let quarter = list.len() / 4;
        let spread = list[list.len() - 1 - quarter] - list[quarter];
        // The standard error of a median, from the quartiles of a normal distribution.
        Time { ns, off_ns: 0.93 * spread / (list.len() as f64).sqrt() }
    }
}

/// The time of a write to one zone of an idle drive, one write at a time.
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

/// The time of a command and the rate of its data, from the times of short and long writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer {
    /// The time of a short write.
    pub(super) short_ns: f64,
    /// The time of a long write.
    pub(super) long_ns: f64,
    /// The rate in bytes a second.
    pub(super) rate: f64,
    /// The error of the rate in percent.
    pub(super) rate_off: f64,
    /// The time of a command without its data.
    pub(super) command_ns: f64,
    /// The error of that time in percent.
    pub(super) command_off: f64,
}

/// The times of a short and a long write must differ by this many standard errors.
const CLEARLY: f64 = 2.0;
/// The fastest rate that a profile can have, in bytes a second.
const FASTEST: f64 = 1e11;

/// Measures this many short and long writes. Fails if long writes take no longer than short ones.
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

/// The median time of a read of a written zone at random places, one read at a time, in
/// nanoseconds.
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

/// Fills of the cache in one measurement: how much the cache takes depends on the angle of the
/// platter.
pub(super) const FILLS: u32 = 5;
/// Fills with short writes. The drive then needs a minute to write them out.
pub(super) const FILLS_SHORT: u32 = 2;

/// Fills an idle drive's cache with scattered writes of this many bytes, one at a time, and counts
/// those acknowledged before one waits for the medium. Returns the sum over all fills; `None` if no
/// write waited in one of them.
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

/// Fills the cache once, as [`until_full`] does.
pub(super) fn fill(
    on: &mut Instrument<'_>,
    bytes: u32,
    quick_ns: f64,
) -> Result<Option<u32>, Error> {
    let zones = spread(on.zones().len(), SCATTER);
    begin(on, &zones)?;
    let sectors = on.sectors(bytes);
    let most = zones.iter().map(|&z| on.room(z)).min().unwrap_or(0) / sectors * zones.len() as u32;
    // A single slow write was delayed by the host, not by the medium.
    let soon = (12 << 20) / bytes;
    let mut late = None;
    // More writes than any drive caches.
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

/// The time of a flush with a full cache in nanoseconds, summed over [`FILLS`] fills.
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

/// A place, from 0 to 1 of the capacity, and its rate in bytes a second.
pub(super) type Rate = (f64, f64);

/// Writes zones in full, one command at a time, and measures the last quarter of each: by then
/// acknowledgements wait for cache room that this zone's own writes make. The zones stay full.
pub(super) fn rates(on: &mut Instrument<'_>) -> Result<Vec<Rate>, Error> {
    let zones = places(on.zones().len());
    begin(on, &zones)?;
    let (sectors, last) = (on.longest(), zones[zones.len() - 1]);
    let mut found = Vec::new();
    // The last zone is written first as well, without being counted: the cache has to be full.
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

/// Reads that alternate between two places: the places, and the times that enclose 80 % of the
/// accesses, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The pairs of zones between which the head is sent, over short and long distances.
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

/// Measures accesses between the places whose rates were measured, over short and long distances.
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
            // The first read comes from an unknown place.
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

/// A case: writes to several zones in turns, at most one in flight to each, with optional random
/// reads beside them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Case {
    pub(super) zones: usize,
    pub(super) in_flight: usize,
    pub(super) bytes: u32,
    /// Outstanding reads of 4 KiB.
    pub(super) reads: u32,
}

/// The figures of a case: writes in 10^6 bytes a second, and reads a second.
pub(super) type Figure = (f64, f64);

/// The token of reads; a write has the number of its zone.
const READ: u32 = u32::MAX;

/// Runs a case. `before` is the number of bytes written before anything counts.
pub(super) fn case(on: &mut Instrument<'_>, case: Case, before: u64) -> Result<Figure, Error> {
    let zones = spread(on.zones().len(), case.zones);
    let n = zones.len();
    let sectors = on.sectors(case.bytes);
    begin(on, &zones)?;
    let room = zones.iter().map(|&z| on.room(z) / sectors).min().unwrap_or(0);
    // Some zones may be slower than others and fill later.
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
