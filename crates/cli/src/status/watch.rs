//! `zoneplug status --watch`: the activity of each disk in an interval, from two samples.

use super::{Seen, named};
use crate::failure::Failure;
use crate::server_client::{LatencyShown, OperationShown, Shown};
use crate::term;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use zoneplug_control::figures::{about, duration, rounded};
use zoneplug_core::plain;

/// Moves the cursor to the upper left corner and clears the screen.
const REDRAW: &str = "\x1b[H\x1b[J";

/// Takes samples with `sample` again and again, and prints each interval. On a terminal an interval replaces the one
/// before; elsewhere each adds a block of lines.
pub(super) fn watch(
    interval: Duration,
    sample: impl Fn() -> Result<Seen, Failure>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let redraws = std::io::stdout().is_terminal();
    let (mut before, mut taken) = (sample()?.disks, Instant::now());
    if redraws {
        write!(out, "{REDRAW}")?;
        term::print(out, &format!("measuring for {} s\n", interval.as_secs_f64()))?;
        out.flush()?;
    }
    loop {
        // The sleep subtracts the time that taking and printing a sample took.
        std::thread::sleep((taken + interval).saturating_duration_since(Instant::now()));
        let (Seen { disks: now, silent }, at) = (sample()?, Instant::now());
        let seconds = at.duration_since(taken).as_secs_f64();
        if redraws {
            write!(out, "{REDRAW}")?;
        }
        let mut text = String::new();
        for d in &now {
            text += &of_disk(&before, d, seconds);
            text.push('\n');
        }
        for s in &silent {
            text += &format!("{}\n", plain(s.what()));
        }
        if now.is_empty() && silent.is_empty() {
            text += "nothing is served\n";
        }
        term::print(out, &text)?;
        out.flush()?;
        (before, taken) = (now, at);
    }
}

/// Describes the activity of a disk since the samples before.
fn of_disk(before: &[Shown], now: &Shown, seconds: f64) -> String {
    // A disk has no interval yet if it is new or its server was started again.
    let same = |b: &&Shown| (&b.name, b.pid) == (&now.name, now.pid);
    match before.iter().find(same) {
        Some(before) => block(before, now, seconds),
        None => format!("{}  measuring\n", named(now)),
    }
}

/// Describes the activity of a disk between two samples.
fn block(before: &Shown, now: &Shown, seconds: f64) -> String {
    let mut text = format!("{}  {}  in {seconds:.1} s\n", named(now), plain(&now.spec));
    text += &format!(
        "  {:<14} {:>10} {:>10} {:>7} {:>8} {:>8} {:>8}\n",
        "operation", "/s", "bytes/s", "errors", "p50", "p99", "p99.9"
    );
    for o in &now.measured.operations {
        let was = before.measured.operations.iter().find(|b| b.op == o.op);
        text += &line(was, o, seconds);
    }
    let (m, b) = (&now.measured, &before.measured);
    let rate = |now: u64, was: u64| rounded(now.saturating_sub(was) as f64 / seconds);
    text += &format!(
        "  {} BIOs wait, {} plugs in use, {} parked/s, {} merged/s\n",
        now.waiting,
        now.live_plugs,
        rate(m.parked, b.parked),
        rate(m.merged, b.merged)
    );
    if now.held > 0 || now.held_total > before.held_total {
        let (total, expired) =
            (now.held_total - before.held_total, now.held_expired - before.held_expired);
        text += &format!("  {} early writes held, {total} new, {expired} expired\n", now.held);
    }
    let happened = m.events.iter().filter_map(|(event, n)| {
        let new = n.saturating_sub(b.events.get(event).copied().unwrap_or(0));
        (new > 0).then(|| format!("{new} {event}"))
    });
    let happened: Vec<String> = happened.collect();
    if !happened.is_empty() {
        text += &format!("  events: {}\n", plain(&happened.join(", ")));
    }
    text
}

fn line(before: Option<&OperationShown>, now: &OperationShown, seconds: f64) -> String {
    let of = |f: fn(&OperationShown) -> u64| f(now).saturating_sub(before.map_or(0, f));
    let bytes = (of(|o| o.bytes) as f64 / seconds).round() as u64;
    let none = LatencyShown::default();
    let was = before.and_then(|b| b.latency.as_ref()).unwrap_or(&none);
    let latency = now.latency.as_ref().map(|l| l.since(was));
    let quantile = |q| match latency.as_ref().and_then(|l| l.quantile_ns(q)) {
        Some(ns) => duration(ns),
        None => "-".to_owned(),
    };
    format!(
        "  {:<14} {:>10} {:>10} {:>7} {:>8} {:>8} {:>8}\n",
        plain(&now.op),
        rounded(of(|o| o.count) as f64 / seconds),
        if bytes > 0 { about(bytes) } else { "-".to_owned() },
        of(|o| o.errors),
        quantile(0.5),
        quantile(0.99),
        quantile(0.999)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_the_difference_of_two_samples() {
        let of = |text: &str| serde_json::from_str::<Shown>(text).unwrap();
        let before = of(r#"{"name":"ublkb0","spec":"mem","capacity_bytes":1073741824,"zones":4,
            "zone_bytes":268435456,"pid":1,"recovered":true,"reads":1,"read_bytes":4096,"writes":1,
            "written_bytes":4096,"others":0,"errors":0,"replayed":1,"waiting":1,"live_plugs":1,
            "parked":10,"merged":5,"events":{"stale":1,"failed":1},"operations":[
            {"op":"write","count":100,"bytes":409600,"errors":1,
             "latency":{"sum_ns":1,"buckets":[0,100]}}]}"#);
        let mut now = before.clone();
        (now.waiting, now.live_plugs, now.held, now.held_total) = (7, 3, 1, 4);
        (now.measured.parked, now.measured.merged) = (30, 9);
        now.measured.events.insert("stale".to_owned(), 3);
        let mut write = now.measured.operations[0].clone();
        (write.count, write.bytes, write.errors) = (2_100, 409_600 + (2_000 << 12), 4);
        let mut buckets = vec![0; 21];
        (buckets[1], buckets[14], buckets[20]) = (100, 1_980, 20);
        write.latency = Some(LatencyShown { sum_ns: 1, buckets });
        let flush =
            OperationShown { op: "flush".to_owned(), count: 3, bytes: 0, errors: 0, latency: None };
        now.measured.operations = vec![write, flush];
        let text = block(&before, &now, 2.0);
        let want = "/dev/ublkb0  mem  in 2.0 s
  operation              /s    bytes/s  errors      p50      p99    p99.9
  write                1.0k       3.9M       3    16 us    16 us   1.0 ms
  flush                 1.5          -       0        -        -        -
  7 BIOs wait, 3 plugs in use, 10 parked/s, 2 merged/s
  1 early writes held, 4 new, 0 expired
  events: 2 stale
";
        assert_eq!(text, want);
        assert!(text.lines().all(|l| l.len() <= 80));
        assert_eq!(of_disk(std::slice::from_ref(&before), &now, 2.0), text);
        // A server that was started again has new counters.
        now.pid += 1;
        assert_eq!(of_disk(&[before], &now, 2.0), "/dev/ublkb0  measuring\n");
    }
}
