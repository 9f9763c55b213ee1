//! The plots of a replay: throughput, latencies of writes and reads, and their distribution. Each row of the report has
//! a place of its own below its name.

use super::text::Report;
use crate::figures::{figure, time};
use crate::html::svg::{COLOURS, Svg, WIDTH, decades, label, ticks};
use crate::virtual_disk::short;
use zoneplug_models::replay::{Kind, Latencies, Row};

/// Height of a row: its name with its marks below.
const STEP: f64 = 36.0;
const LEFT: f64 = 16.0;
const RIGHT: f64 = WIDTH - 24.0;
/// Number of characters of a name that fit the width.
const LONGEST: usize = 62;

/// All plots of a replay, as SVG.
pub(super) fn plots(report: &Report) -> Vec<String> {
    let mut all = vec![throughput(report)];
    let kinds: Vec<_> = report.kinds().collect();
    all.extend(kinds.iter().filter_map(|kind| latencies(report, kind)));
    all.extend(kinds.iter().filter_map(|kind| distribution(report, kind)));
    all
}

/// The name of a row. It includes the disk if there are several.
fn name(report: &Report, row: &Row) -> String {
    let several = report.rows.iter().any(|r| r.disk != row.disk);
    let name =
        if several { format!("{} {}", row.disk, short(&row.layer)) } else { short(&row.layer) };
    shortened(name)
}

/// Cuts a name that does not fit the width, so that it fits with the dots.
fn shortened(name: String) -> String {
    if name.chars().count() <= LONGEST {
        return name;
    }
    let kept: String = name.chars().take(LONGEST - 3).collect();
    format!("{kept}...")
}

/// Draws the names of rows from `top` on. Returns a function from a row's number to the y position of
/// the row's figures, below the name.
fn row_names<'a>(svg: &mut Svg, names: &'a [String], top: f64) -> impl Fn(usize) -> f64 + 'a {
    for (i, name) in names.iter().enumerate() {
        svg.text("tag", LEFT, top + i as f64 * STEP + 12.0, name);
    }
    move |i| top + i as f64 * STEP + 24.0
}

/// The lowest and highest figure of a row's repeats; `None` for a single run.
fn extent(
    row: &Row,
    of: impl Fn(&zoneplug_models::replay::Spread) -> [f64; 2],
) -> Option<[f64; 2]> {
    row.spread.as_ref().filter(|s| s.runs > 1).map(of)
}

/// Draws throughput as bars from 0, with the range of the repeats.
fn throughput(report: &Report) -> String {
    let names: Vec<String> = report.rows.iter().map(|r| name(report, r)).collect();
    let top = 26.0;
    let bottom = top + names.len() as f64 * STEP + 4.0;
    let mut svg = Svg::new(bottom + 24.0, "throughput");
    svg.text("title", 8.0, 16.0, "Throughput, MB/s");
    let high = |r: &Row| extent(r, |s| s.mb_per_s).map_or(r.mb_per_s, |[_, high]| high);
    let ticks = ticks(0.0, report.rows.iter().map(high).fold(0.0, f64::max), 4.0);
    let highest = ticks.last().copied().unwrap_or(1.0);
    let x = |v: f64| LEFT + v / highest * (RIGHT - LEFT);
    for &tick in &ticks {
        svg.line(if tick == 0.0 { "axis" } else { "grid" }, x(tick), top, x(tick), bottom);
        svg.text("soft mid", x(tick), bottom + 16.0, &label(tick));
    }
    let y = row_names(&mut svg, &names, top);
    for (i, (row, name)) in report.rows.iter().zip(&names).enumerate() {
        svg.rect("f1", x(0.0), y(i) - 6.0, x(row.mb_per_s) - x(0.0), 12.0);
        let mut says = format!("{name}: {} MB/s", figure(row.mb_per_s));
        if let Some([low, high]) = extent(row, |s| s.mb_per_s) {
            svg.reach("bar s0", y(i), x(low), x(high));
            says += &format!(", {} to {}", figure(low), figure(high));
        }
        svg.mark("f0", false, x(row.mb_per_s), y(i), &says);
    }
    svg.finish()
}

fn kind<'a>(row: &'a Row, name: &str) -> &'a Kind {
    if name == "writes" { &row.writes } else { &row.reads }
}

/// The latencies that are drawn, each with the class of its colour.
const MARKS: [(&str, usize); 3] = [("p50", 1), ("p99", 0), ("max", 2)];

/// Draws latencies on a logarithmic axis, with the range of the repeats.
fn latencies(report: &Report, of: &str) -> Option<String> {
    let rows: Vec<&Row> = report.rows.iter().filter(|r| kind(r, of).operations > 0).collect();
    if rows.is_empty() {
        return None;
    }
    let names: Vec<String> = rows.iter().map(|r| name(report, r)).collect();
    let top = 44.0;
    let bottom = top + names.len() as f64 * STEP + 4.0;
    let mut svg = Svg::new(bottom + 24.0, &format!("latency of {of}"));
    svg.text("title", 8.0, 16.0, &format!("Latency of {of}"));
    for (i, (name, colour)) in MARKS.iter().enumerate() {
        let x = 16.0 + i as f64 * 58.0;
        svg.mark(&format!("f{colour}"), false, x, 32.0, name);
        svg.text("", x + 9.0, 36.0, name);
    }
    let figures = |row: &Row| {
        let k = kind(row, of);
        [k.p50_ns, k.p99_ns, k.max_ns].map(|ns| ns as f64)
    };
    let ranges = |row: &Row| {
        let spread = row.spread.as_ref().filter(|s| s.runs > 1)?;
        let l: &Latencies = if of == "writes" { &spread.writes } else { &spread.reads };
        Some([l.p50_ns, l.p99_ns, l.max_ns])
    };
    let all = rows.iter().flat_map(|r| {
        let ends = ranges(r).into_iter().flatten().flatten().map(|ns| ns as f64);
        figures(r).into_iter().chain(ends).collect::<Vec<_>>()
    });
    let powers = decades(all);
    let x = logarithmic(&powers, LEFT, RIGHT);
    for &power in &powers {
        svg.line("grid", x(power), top, x(power), bottom);
        svg.text("soft mid", x(power), bottom + 16.0, &power_of_time(power));
    }
    let y = row_names(&mut svg, &names, top);
    for (i, (row, name)) in rows.iter().zip(&names).enumerate() {
        let y = y(i);
        let figures = figures(row);
        svg.line("grid", x(figures[0]), y, x(figures[2]), y);
        for (m, (mark, colour)) in MARKS.iter().enumerate() {
            let mut says = format!("{name}: {mark} {}", time(figures[m] as u64));
            if let Some(ranges) = ranges(row) {
                let [low, high] = ranges[m];
                svg.reach(&format!("bar s{colour}"), y, x(low as f64), x(high as f64));
                says += &format!(", {} to {}", time(low), time(high));
            }
            svg.mark(&format!("f{colour}"), false, x(figures[m]), y, &says);
        }
    }
    Some(svg.finish())
}

/// Draws the latency within which 50, 90, 99 and 99.9 % end, and the longest: a line for each row.
fn distribution(report: &Report, of: &str) -> Option<String> {
    let rows: Vec<&Row> = report.rows.iter().filter(|r| kind(r, of).operations > 0).collect();
    if rows.is_empty() {
        return None;
    }
    let points = |row: &Row| {
        let k = kind(row, of);
        [k.p50_ns, k.p90_ns, k.p99_ns, k.p999_ns, k.max_ns]
    };
    let top = 32.0 + rows.len() as f64 * 17.0;
    let (left, bottom) = (58.0, top + 200.0);
    let mut svg = Svg::new(bottom + 24.0, &format!("distribution of latencies of {of}"));
    svg.text("title", 8.0, 16.0, &format!("How the latencies of {of} are distributed"));
    let powers = decades(rows.iter().flat_map(|r| points(r)).map(|ns| ns as f64));
    let y = logarithmic(&powers, bottom, top);
    for &power in &powers {
        svg.line("grid", left, y(power), RIGHT, y(power));
        svg.text("soft end", left - 6.0, y(power) + 4.0, &power_of_time(power));
    }
    let percentiles = ["p50", "p90", "p99", "p99.9", "max"];
    let x = |i: usize| left + 16.0 + i as f64 * (RIGHT - left - 32.0) / 4.0;
    for (i, percentile) in percentiles.iter().enumerate() {
        svg.text("soft mid", x(i), bottom + 17.0, percentile);
    }
    for (i, row) in rows.iter().enumerate() {
        let (name, colour) = (name(report, row), i % COLOURS);
        let above = 34.0 + i as f64 * 17.0;
        svg.line(&format!("ours s{colour}"), 8.0, above - 4.0, 26.0, above - 4.0);
        svg.text("", 31.0, above, &name);
        let at: Vec<(f64, f64)> =
            points(row).iter().enumerate().map(|(p, ns)| (x(p), y(*ns as f64))).collect();
        svg.path(&format!("ours s{colour}"), &at);
        for ((x, y), (percentile, ns)) in at.iter().zip(percentiles.iter().zip(points(row))) {
            let says = format!("{name}: {percentile} {}", time(ns));
            svg.mark(&format!("f{colour}"), false, *x, *y, &says);
        }
    }
    Some(svg.finish())
}

/// Maps values to positions on a logarithmic axis over these powers of ten.
fn logarithmic(powers: &[f64], from: f64, to: f64) -> impl Fn(f64) -> f64 + use<> {
    let end = |p: Option<&f64>| p.map_or(0.0, |p| p.log10());
    let (first, last) = (end(powers.first()), end(powers.last()));
    move |v| {
        from + (v.max(1.0).log10() - first).clamp(0.0, last - first) / (last - first) * (to - from)
    }
}

/// Formats a power of ten as a time: `10 ms`.
fn power_of_time(ns: f64) -> String {
    time(ns as u64).replace(".0", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_cut_fits_the_width() {
        for len in 0..=LONGEST + 5 {
            let name = "ä".repeat(len);
            let short = shortened(name.clone());
            assert!(short.chars().count() <= LONGEST, "{len}: {short}");
            assert_eq!(short == name, len <= LONGEST, "{len}: {short}");
        }
    }
}
