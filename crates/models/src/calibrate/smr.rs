//! Calibration of an SMR disk. The numbers of platter and link follow from times and rates; the
//! rules of the write cache are those of the candidate model nearest to the drive.

use super::measure::{
    Case, FILLS, FILLS_SHORT, accesses, case, flush_of_full, rates, transfer, until_full,
};
use super::{Held, Instrument, Numbers, Progress, fit, how_sure, near, nearest, shown};
use zoneplug_core::Error;

const K: u32 = 1 << 10;
const M: u32 = 1 << 20;

const fn writes(zones: usize, in_flight: usize) -> Case {
    Case { zones, in_flight, bytes: M, reads: 0 }
}

/// The cases that show how long the head stays with a run: few zones, one command at a time.
const RUNS: [Case; 4] = [
    writes(2, 1),
    writes(3, 1),
    writes(4, 1),
    Case { zones: 5, in_flight: 1, bytes: 128 * K, reads: 0 },
];
/// The numbers of zones, with a write in flight to each, that show when the drive keeps the order
/// of arrival.
const QUEUED: [usize; 9] = [2, 3, 4, 5, 6, 8, 10, 12, 16];
/// The cases held back.
const HELD: [(Case, &str); 4] = [
    (writes(16, 1), "16 zones, one write at a time"),
    (writes(24, 20), "24 zones, 20 writes at a time"),
    (Case { zones: 6, in_flight: 1, bytes: 256 * K, reads: 0 }, "6 zones, one write of 256 KiB"),
    (Case { zones: 8, in_flight: 4, bytes: M, reads: 0 }, "8 zones, 4 writes at a time"),
];
/// Reads beside writes: the case that shows how the two take turns.
const MIXED: Case = Case { zones: 8, in_flight: 4, bytes: M, reads: 4 };

/// The orders in which the cache is emptied, by their number in the profile.
const SATF: u64 = 0;
const FIFO: u64 = 1;
/// The candidate values.
const LONGEST_RUNS: [u64; 12] =
    [0, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 32_768, 65_536];
const IN_ORDER_FROM: [u64; 12] = [0, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16];
const READ_BURSTS: [u64; 6] = [1, 2, 4, 8, 16, 32];
const WRITE_BURSTS: [u64; 5] = [1 << 10, 1 << 11, 1 << 13, 1 << 14, 1 << 15];

/// The rates of a candidate's medium, in millionths of the rate found. A candidate's figure is the
/// mean over them, because the drive's layout of tracks is unknown.
const LAYOUTS: [u32; 3] = [994_000, 1_000_000, 1_006_000];

/// The conditions under which candidates are measured.
struct Search<'a> {
    /// The zones of the drive that are written.
    zones: Vec<u32>,
    /// Bytes that a case writes before anything counts.
    before: u64,
    is_asked: &'a dyn Fn() -> bool,
}

/// Measures a candidate as the drive was measured. Fails if the measurement is asked to end.
fn of_model(
    numbers: &Numbers,
    search: &Search<'_>,
    mut measure: impl FnMut(&mut Instrument<'_>) -> Result<f64, Error>,
) -> Result<f64, Error> {
    let profile = numbers.profile()?;
    let mut sum = 0.0;
    for ppm in LAYOUTS {
        let profile = profile.with_rate(ppm);
        sum += measure(&mut Instrument::modelled(&profile, &search.zones, search.is_asked)?)?;
    }
    Ok(sum / LAYOUTS.len() as f64)
}

/// The number of writes until the cache was full, as a floating-point figure.
fn until(on: &mut Instrument<'_>, bytes: u32, quick_ns: f64, fills: u32) -> Result<f64, Error> {
    Ok(f64::from(until_full(on, bytes, quick_ns, fills)?.unwrap_or(u32::MAX)))
}

/// The figures of the drive.
struct Measured {
    quick_ns: f64,
    short_ns: f64,
    /// Writes of 256 KiB until the cache was full.
    full: Option<u32>,
    /// Writes of 4 KiB until the cache was full.
    full_short: Option<u32>,
    flush_ns: f64,
    runs: Vec<f64>,
    queued: Vec<(usize, f64)>,
}

/// The distance of two lists of rates.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a / b).ln().powi(2)).sum()
}

/// Measures the drive and finds its numbers.
pub(super) fn find(
    on: &mut Instrument<'_>,
    progress: &mut Progress<'_>,
) -> Result<(Numbers, Vec<Held>), Error> {
    let queued: Vec<usize> = QUEUED
        .into_iter()
        .filter(|&n| n <= on.zones().len() && n <= usize::from(on.tags()))
        .collect();
    let steps = 7 + RUNS.len() as u32 + queued.len() as u32 + HELD.len() as u32;
    let mut step = 0;
    let mut next = |what: &str| {
        step += 1;
        progress((step, steps), what);
    };
    let mut n = Numbers::reported(on, "smr");
    next("the time of a write");
    let t = transfer(on, 32, 6)?;
    let (short_ns, link, command_ns) = (t.short_ns, t.rate, t.command_ns);
    let quick_ns = command_ns + f64::from(256 * K) / link * 1e9;
    next("the write cache");
    let full = until_full(on, 256 * K, quick_ns, FILLS)?;
    next("the write cache, with short writes");
    let full_short = until_full(on, 4 * K, short_ns, FILLS_SHORT)?;
    next("a flush of a full cache");
    let flush_ns = flush_of_full(on, 256 * K, quick_ns)?;
    next("the rate from the outer to the inner edge");
    let rates = rates(on)?;
    let (outer, inner, off) = fit::platter(&rates).ok_or_else(|| {
        Error::invalid("the rate of one place tells nothing of the others")
            .hint("zones that are far from each other")
    })?;
    next("seeks and turns");
    let read_ns = f64::from(4 * K) / outer * 1e9;
    let head = fit::head(&accesses(on)?, inner, read_ns).ok_or_else(|| {
        Error::invalid("too few distances between the zones")
            .hint("eight zones or more, far from each other")
    })?;
    let before = u64::from(full.unwrap_or(512 * FILLS) / FILLS) * u64::from(256 * K) * 5 / 4;
    let mut m = Measured {
        quick_ns,
        short_ns,
        full,
        full_short,
        flush_ns,
        runs: Vec::new(),
        queued: Vec::new(),
    };
    for c in RUNS {
        next(&format!("{} zones, one write at a time", c.zones));
        m.runs.push(case(on, c, before)?.0);
    }
    for k in queued {
        next(&format!("{k} zones, a write in flight to each"));
        m.queued.push((k, case(on, writes(k, k), before)?.0));
    }
    next("reads beside writes");
    let mixed = case(on, MIXED, before)?;

    let off = format!("to {off:.1} %");
    n.measured("rpm", head.rpm, "a round number", "the spread of accesses");
    n.measured("outer-rate", outer as u64, &off, "sequential writes, by place");
    n.measured("inner-radius", (inner * 1e6) as u64, &off, "sequential writes, by place");
    let seek = format!("the curve to {:.1} ms", head.off_ns / 1e6);
    for (key, ns) in ["seek-settle", "seek-sqrt", "seek-linear"].into_iter().zip(head.seek_ns) {
        n.measured(key, ns as u64, &seek, "reads between places");
    }
    n.measured(
        "link-rate",
        link as u64,
        &near(3.0, t.rate_off),
        "writes of 4 KiB and 1 MiB that the cache takes",
    );
    n.measured(
        "command-time",
        command_ns as u64,
        &near(10.0, t.command_off),
        "writes that the cache takes; with the host's part",
    );
    let search = Search { zones: on.zones().to_vec(), before, is_asked: on.is_asked() };
    cache(&mut n, &m, &search)?;
    turns(&mut n, mixed, &search)?;
    let mut held = Vec::new();
    for (c, what) in HELD {
        next(what);
        let measured = case(on, c, before)?.0;
        let predicted = of_model(&n, &search, |on| Ok(case(on, c, before)?.0))?;
        held.push(Held { what: what.to_owned(), unit: "MB/s", measured, predicted });
    }
    Ok((n, held))
}

/// Finds the size of the cache and its rules: those of the candidate nearest to the drive.
fn cache(n: &mut Numbers, m: &Measured, search: &Search<'_>) -> Result<(), Error> {
    let block = u64::from(256 * K) >> 9;
    let Some(full) = m.full else {
        n.measured("cache", 1 << 21, "at least", "more was written, and no write waited");
        return Ok(());
    };
    let about = u64::from(full.div_ceil(FILLS));
    n.put("cache", about * block, "", "a first guess", false);
    // These numbers depend a little on each other, so they are fitted twice.
    for _ in 0..2 {
        let mut all = Vec::new();
        let step = (about / 64).max(1);
        for blocks in (about / 2..=about + 1).step_by(step as usize) {
            let candidate = n.with("cache", blocks.max(1) * block);
            let ours = of_model(&candidate, search, |on| until(on, 256 * K, m.quick_ns, FILLS))?;
            all.push((blocks.max(1) * block, (ours - f64::from(full)).abs()));
        }
        if let Some(best) = nearest(&all) {
            n.measured("cache", best, "to 5 %", "scattered writes of 256 KiB, until one waits");
        }
        let mut all = Vec::new();
        for (destage, run) in LONGEST_RUNS.map(|run| (SATF, run)).into_iter().chain([(FIFO, 0)]) {
            let candidate = n.with("destage", destage).with("max-run", run);
            let ours = rates_of(&candidate, search, &RUNS)?;
            all.push(((destage, run), apart(&ours, &m.runs)));
        }
        if let Some((destage, run)) = nearest(&all) {
            let how = "two to five zones, one write at a time";
            let name = |(destage, run)| match destage {
                FIFO => shown("destage", FIFO),
                _ => shown("max-run", run),
            };
            let sure = how_sure(&all, (destage, run), RUNS.len(), name);
            n.measured("destage", destage, "of those tried", how);
            n.measured("max-run", run, &sure, how);
        }
        if n.value("destage") == FIFO {
            n.measured("queued-fifo", 0, "", "the order is that of arrival in any case");
            continue;
        }
        let cases: Vec<Case> = m.queued.iter().map(|&(k, _)| writes(k, k)).collect();
        let theirs: Vec<f64> = m.queued.iter().map(|q| q.1).collect();
        let mut all = Vec::new();
        for from in IN_ORDER_FROM {
            let ours = rates_of(&n.with("queued-fifo", from), search, &cases)?;
            all.push((from, apart(&ours, &theirs)));
        }
        if let Some(best) = nearest(&all) {
            let how = "2 to 16 zones, a write in flight to each";
            let sure = how_sure(&all, best, cases.len(), |n| n.to_string());
            n.measured("queued-fifo", best, &sure, how);
        }
    }
    entries(n, m, search)?;
    let cached = n.value("cache");
    let mut all = Vec::new();
    for part in 0..=8 {
        let candidate = n.with("protected", cached * part / 8);
        let ns = of_model(&candidate, search, |on| flush_of_full(on, 256 * K, m.quick_ns))?;
        all.push((cached * part / 8, (ns - m.flush_ns).abs()));
    }
    if let Some(best) = nearest(&all) {
        let how = "how long a flush of a full cache takes";
        n.measured("protected", best, "to an eighth of the cache", how);
    }
    Ok(())
}

/// The rates of a candidate in these cases.
fn rates_of(n: &Numbers, search: &Search<'_>, cases: &[Case]) -> Result<Vec<f64>, Error> {
    cases.iter().map(|&c| of_model(n, search, |on| Ok(case(on, c, search.before)?.0))).collect()
}

/// Finds whether the cache limits the number of writes besides that of bytes.
fn entries(n: &mut Numbers, m: &Measured, search: &Search<'_>) -> Result<(), Error> {
    let short = |n: &Numbers| of_model(n, search, |on| until(on, 4 * K, m.short_ns, FILLS_SHORT));
    let unlimited = short(&n.with("cache-entries", 0))?;
    let Some(full) = m.full_short.filter(|f| f64::from(*f) < 0.8 * unlimited) else {
        n.measured("cache-entries", 0, "", "short writes fill the cache as long ones do");
        return Ok(());
    };
    let mut all = Vec::new();
    let about = full.div_ceil(FILLS_SHORT);
    let step = (about / 64).max(1);
    for entries in (about / 2..=about + 1).step_by(step as usize) {
        let ours = short(&n.with("cache-entries", u64::from(entries)))?;
        all.push((u64::from(entries), (ours - f64::from(full)).abs()));
    }
    if let Some(best) = nearest(&all) {
        n.measured("cache-entries", best, "to 5 %", "scattered writes of 4 KiB, until one waits");
    }
    Ok(())
}

/// Finds how many reads and writes the drive does in one turn of each.
fn turns(n: &mut Numbers, mixed: (f64, f64), search: &Search<'_>) -> Result<(), Error> {
    let theirs = [mixed.0, mixed.1.max(0.1)];
    let mut all = Vec::new();
    for reads in READ_BURSTS {
        for writes in WRITE_BURSTS {
            let candidate = n.with("read-burst", reads).with("write-burst", writes);
            let mut r = 0.0;
            let w = of_model(&candidate, search, |on| {
                let (w, reads) = case(on, MIXED, search.before)?;
                r += reads / LAYOUTS.len() as f64;
                Ok(w)
            })?;
            all.push(((reads, writes), apart(&[w, r.max(0.1)], &theirs)));
        }
    }
    let (reads, writes) = nearest(&all).unwrap_or((8, 1 << 13));
    let how = "four reads beside four writes";
    let name = |(reads, writes)| format!("{reads}:{}", shown("write-burst", writes));
    let sure = how_sure(&all, (reads, writes), 2, name);
    n.measured("read-burst", reads, &sure, how);
    n.measured("write-burst", writes, "with read-burst", how);
    Ok(())
}
