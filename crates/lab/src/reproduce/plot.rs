//! Plots as SVG: lines over a number, differences in percent, ratios, throughput beside latency. `html/svg.rs` has
//! their elements.

use super::text::figure;
use crate::html::svg::{COLOURS, STYLE, Svg, WIDTH, label, ticks, with_colours};
use std::fmt::Write;
use zoneplug_control::html::escape;
use zoneplug_models::reproduce::{CellReport, How, Layout, Report, TableReport, Verdict};

fn of(t: &TableReport, column: usize) -> impl Iterator<Item = (usize, &CellReport)> {
    (0..t.rows()).map(move |r| (r, t.cell(r, column)))
}

/// The lowest and the highest value of a cell's runs.
fn extent(c: &CellReport) -> (f64, f64) {
    let values = || c.runs.iter().map(|r| r.value);
    (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max))
}

fn says(t: &TableReport, c: &CellReport) -> String {
    let x = t.x.map_or(String::new(), |x| format!("{x} "));
    let mut text = format!("{x}{}, {}", c.row, c.column);
    if let Some(p) = c.published {
        let _ = write!(text, ": published {p} {}", c.unit);
    }
    if let (Some(o), Some(s)) = (c.ours, c.spread) {
        let _ = write!(text, "; ours {} {} (spread {})", figure(o), c.unit, figure(s));
    }
    text
}

/// The columns of a table that have figures, each with the class of its colour.
fn shown(t: &TableReport) -> Vec<(usize, usize)> {
    let has = |c: &usize| of(t, *c).any(|(_, c)| c.ours.is_some());
    (0..t.columns.len()).filter(has).enumerate().map(|(i, c)| (c, i % COLOURS)).collect()
}

/// Draws the names of columns with their colours and the mark of published figures, as many in a line as fit. Returns
/// the height of the lines.
fn legend(svg: &mut Svg, t: &TableReport, top: f64) -> f64 {
    let (mut x, mut y) = (8.0, top);
    let mut place = |width: f64, x: &mut f64| {
        if *x + width > WIDTH - 4.0 {
            (*x, y) = (8.0, y + 17.0);
        }
        let at = (*x, y);
        *x += width;
        at
    };
    for (c, colour) in shown(t) {
        let name = t.columns[c].name;
        let (left, y) = place(34.0 + name.chars().count() as f64 * 7.0, &mut x);
        svg.line(&format!("ours s{colour}"), left, y - 4.0, left + 18.0, y - 4.0);
        svg.mark(&format!("f{colour}"), false, left + 9.0, y - 4.0, name);
        svg.text("", left + 23.0, y, name);
    }
    let (left, y) = place(100.0, &mut x);
    svg.line("theirs axis", left, y - 4.0, left + 18.0, y - 4.0);
    svg.mark("axis", true, left + 9.0, y - 4.0, "published");
    svg.text("", left + 23.0, y, "published");
    y - top + 17.0
}

/// Draws figures as lines over the rows' number, with the range of geometries and seeds.
fn by_number(t: &TableReport) -> String {
    let mut svg = Svg::new(300.0, t.title);
    let top = 30.0 + legend(&mut svg, t, 16.0);
    let (left, right, bottom) = (44.0, WIDTH - 8.0, 262.0);
    let max = t
        .cells
        .iter()
        .filter(|c| c.ours.is_some())
        .map(|c| extent(c).1.max(c.published.unwrap_or(0.0)))
        .fold(1.0, f64::max);
    let ticks = ticks(0.0, max, 5.0);
    let highest = ticks.last().copied().unwrap_or(max);
    let y = |v: f64| bottom - v / highest * (bottom - top);
    let x =
        |r: usize| left + 16.0 + r as f64 * (right - left - 32.0) / (t.rows() - 1).max(1) as f64;
    for &tick in &ticks {
        svg.line("grid", left, y(tick), right, y(tick));
        svg.text("soft end", left - 6.0, y(tick) + 4.0, &label(tick));
    }
    svg.line("axis", left, bottom, right, bottom);
    for r in 0..t.rows() {
        svg.text("soft mid", x(r), bottom + 17.0, t.cell(r, 0).row);
    }
    let unit = t.cells.first().map_or("", |c| c.unit);
    svg.text("soft end", left - 6.0, top - 12.0, unit);
    svg.text("soft mid", f64::midpoint(left, right), bottom + 34.0, t.x.unwrap_or_default());
    for (c, colour) in shown(t) {
        let theirs: Vec<_> =
            of(t, c).filter_map(|(r, cell)| Some((x(r), y(cell.published?)))).collect();
        svg.path(&format!("theirs s{colour}"), &theirs);
        let ours: Vec<_> = of(t, c).filter_map(|(r, cell)| Some((x(r), y(cell.ours?)))).collect();
        svg.path(&format!("ours s{colour}"), &ours);
        for (r, cell) in of(t, c) {
            if let Some(p) = cell.published {
                svg.mark(&format!("s{colour}"), true, x(r), y(p), &says(t, cell));
            }
            if let Some(o) = cell.ours {
                let (low, high) = extent(cell);
                svg.span(&format!("bar s{colour}"), x(r), y(low), y(high));
                svg.mark(&format!("f{colour}"), false, x(r), y(o), &says(t, cell));
            }
        }
    }
    svg.finish()
}

fn class(v: Verdict) -> &'static str {
    match v {
        Verdict::Inside => "good",
        Verdict::Outside => "bad",
        _ => "none",
    }
}

/// The left edge of plots with named lines: about the width of the longest name.
fn names(cells: &[&CellReport]) -> f64 {
    let longest = cells.iter().map(|c| c.row.chars().count() + c.column.chars().count() + 1).max();
    longest.unwrap_or(0) as f64 * 7.0 + 18.0
}

/// Draws the differences of our figures from the published ones in percent: a line for each cell, with its band.
fn errors(t: &TableReport) -> Option<String> {
    let cells: Vec<&CellReport> = t.cells.iter().filter(|c| c.error_percent.is_some()).collect();
    if cells.is_empty() {
        return None;
    }
    let step = 17.0;
    let (top, left, right) = (30.0, names(&cells), WIDTH - 16.0);
    let bottom = top + cells.len() as f64 * step;
    let mut svg = Svg::new(bottom + 24.0, t.title);
    svg.text("soft", 8.0, 16.0, "ours against published, percent; shaded: the band");
    let reach = |c: &&CellReport| {
        let percent = |v: f64| c.published.map_or(0.0, |p| (v / p - 1.0).abs() * 100.0);
        let (low, high) = extent(c);
        percent(low).max(percent(high)).max(c.band_percent.unwrap_or(0.0))
    };
    let reach = cells.iter().map(reach).fold(5.0, f64::max).min(60.0);
    let ticks = ticks(-reach, reach, 4.0);
    let reach = ticks.iter().fold(reach, |r, t| r.max(t.abs()));
    let x =
        |e: f64| f64::midpoint(left, right) + e.clamp(-reach, reach) / reach * (right - left) / 2.0;
    for &tick in &ticks {
        svg.line(if tick == 0.0 { "axis" } else { "grid" }, x(tick), top - 4.0, x(tick), bottom);
        svg.text("soft mid", x(tick), bottom + 16.0, &label(tick));
    }
    for (i, c) in cells.iter().enumerate() {
        let y = top + (i as f64 + 0.5) * step;
        svg.text("end", left - 10.0, y + 4.0, &format!("{} {}", c.row, c.column));
        if let Some(band) = c.band_percent {
            svg.rect("band", x(-band), y - 6.0, x(band) - x(-band), 12.0);
        }
        let (Some(p), Some(e)) = (c.published, c.error_percent) else { continue };
        let (low, high) = extent(c);
        let class = class(c.verdict);
        svg.line(
            &format!("bar {class}"),
            x((low / p - 1.0) * 100.0),
            y,
            x((high / p - 1.0) * 100.0),
            y,
        );
        svg.mark(class, false, x(e), y, &says(t, c));
    }
    Some(svg.finish())
}

/// Draws published and own ratios to the first column, on an axis of powers of two.
fn ratios(t: &TableReport) -> Option<String> {
    let beside = |c: &&CellReport| c.column != t.columns[0].name && c.our_ratio.is_some();
    let cells: Vec<&CellReport> = t.cells.iter().filter(beside).collect();
    if cells.is_empty() {
        return None;
    }
    let step = 19.0;
    let (top, left, right) = (46.0, names(&cells), WIDTH - 16.0);
    let bottom = top + cells.len() as f64 * step;
    let mut svg = Svg::new(bottom + 24.0, t.title);
    svg.text("soft", 8.0, 16.0, &format!("times the figure of {}", t.columns[0].name));
    svg.mark("f1", false, 16.0, 30.0, "ours");
    svg.text("", 26.0, 34.0, "ours");
    if cells.iter().any(|c| c.published_ratio.is_some()) {
        svg.mark("s0", true, 74.0, 30.0, "published");
        svg.text("", 84.0, 34.0, "published");
    }
    let all = || cells.iter().flat_map(|c| [c.our_ratio, c.published_ratio]).flatten();
    let reach = all().map(|r| r.log2().abs()).fold(0.4, f64::max).min(6.0) * 1.08;
    let x = |r: f64| {
        let e = r.log2().clamp(-reach, reach) / reach;
        f64::midpoint(left, right) + e * (right - left) / 2.0
    };
    let marks = [0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0, 8.0, 16.0, 32.0];
    let wide = reach > 1.2;
    let fits = |m: &&f64| m.log2().abs() <= reach && (!wide || !matches!(**m, 0.8 | 1.25));
    for &m in marks.iter().filter(fits) {
        svg.line(if m == 1.0 { "axis" } else { "grid" }, x(m), top - 4.0, x(m), bottom);
        svg.text("soft mid", x(m), bottom + 16.0, &label(m));
    }
    for (i, c) in cells.iter().enumerate() {
        let y = top + (i as f64 + 0.5) * step;
        svg.text("end", left - 10.0, y + 4.0, &format!("{} {}", c.row, c.column));
        let ratio = |r: Option<f64>| r.map_or_else(|| "-".to_owned(), |r| format!("{r:.2}"));
        let text = format!(
            "{}, {}: published {} times, ours {} times",
            c.row,
            c.column,
            ratio(c.published_ratio),
            ratio(c.our_ratio)
        );
        if let (Some(p), Some(o)) = (c.published_ratio, c.our_ratio) {
            svg.line("grid", x(p), y, x(o), y);
        }
        if let Some([low, high]) = c.our_ratio_range {
            svg.line("bar s1", x(low), y, x(high), y);
        }
        if let Some(p) = c.published_ratio {
            svg.mark("s0", true, x(p), y, &text);
        }
        if let Some(o) = c.our_ratio {
            svg.mark("f1", false, x(o), y, &text);
        }
    }
    Some(svg.finish())
}

/// Draws throughput beside latency for one row; points to the lower right are better.
fn front(t: &TableReport, row: usize) -> String {
    let cells: Vec<(usize, &CellReport)> =
        shown(t).into_iter().map(|(c, colour)| (colour, t.cell(row, c))).collect();
    let what = format!("{} {}", t.cell(row, 0).row, t.x.unwrap_or_default());
    let mut svg = Svg::new(310.0, &what);
    svg.text("title", 8.0, 16.0, &what);
    let (left, right, top, bottom) = (50.0, WIDTH - 16.0, 54.0, 268.0);
    let rate = |c: &CellReport| c.ours.unwrap_or(0.0);
    let p99 = |c: &CellReport| c.p99_ms.unwrap_or(0.0);
    let rates = || cells.iter().map(|(_, c)| rate(c));
    let (low, high) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    // Wide enough that equal rates do not look different.
    let room = ((high - low) * 0.12).max(high * 0.02);
    let across = ticks(low - room, high + room, 5.0);
    let up = ticks(0.0, cells.iter().map(|(_, c)| p99(c)).fold(1.0, f64::max), 4.0);
    let ends = |v: &[f64]| (v.first().copied().unwrap_or(0.0), v.last().copied().unwrap_or(1.0));
    let ((a, b), (_, h)) = (ends(&across), ends(&up));
    let x = |v: f64| left + (v - a) / (b - a) * (right - left);
    let y = |v: f64| bottom - v / h * (bottom - top);
    for &tick in &up {
        svg.line("grid", left, y(tick), right, y(tick));
        svg.text("soft end", left - 6.0, y(tick) + 4.0, &label(tick));
    }
    for &tick in &across {
        svg.line("grid", x(tick), top, x(tick), bottom);
        svg.text("soft mid", x(tick), bottom + 17.0, &label(tick));
    }
    svg.text("soft mid", f64::midpoint(left, right), bottom + 34.0, "MB/s");
    svg.text("soft", 8.0, top - 14.0, "p99, ms");
    let mut points: Vec<(f64, f64, String)> = Vec::new();
    for (colour, c) in &cells {
        let (low, high) = extent(c);
        let says = format!(
            "{}: {} MB/s, p99 {:.0} ms, longest {:.0} ms",
            c.column,
            figure(rate(c)),
            p99(c),
            c.max_ms.unwrap_or(0.0)
        );
        let (px, py) = (x(rate(c)), y(p99(c)));
        svg.line(&format!("bar s{colour}"), x(low.max(a)), py, x(high.min(b)), py);
        svg.mark(&format!("f{colour}"), false, px, py, &says);
        // Points at almost the same place share one name.
        match points.iter_mut().find(|(ox, oy, _)| (px - ox).abs() < 7.0 && (py - oy).abs() < 7.0) {
            Some((.., name)) => *name += &format!(", {}", c.column),
            None => points.push((px, py, c.column.to_owned())),
        }
    }
    names_of_points(&mut svg, &points, left, right);
    svg.finish()
}

/// Draws the name of each point beside it where no other is. A name without room shows only when its point is pointed
/// at.
fn names_of_points(svg: &mut Svg, points: &[(f64, f64, String)], left: f64, right: f64) {
    // Left, top, right and bottom edges.
    let mut taken: Vec<[f64; 4]> =
        points.iter().map(|(x, y, _)| [x - 4.0, y - 4.0, x + 4.0, y + 4.0]).collect();
    for (x, y, name) in points {
        let width = name.chars().count() as f64 * 6.8;
        let middle = (x - width / 2.0).clamp(left + 2.0, (right - width).max(left + 2.0));
        let places = [
            (x + 7.0, y - 5.0),
            (x + 7.0, y + 13.0),
            (x - 7.0 - width, y - 5.0),
            (x - 7.0 - width, y + 13.0),
            (middle, y - 9.0),
            (middle, y + 18.0),
            (middle, y - 21.0),
            (middle, y + 30.0),
        ];
        let free = places.into_iter().find(|&(px, py)| {
            let inside = px >= left && px + width <= right + 12.0;
            let apart =
                |t: &[f64; 4]| px + width < t[0] || px > t[2] || py + 2.0 < t[1] || py - 9.0 > t[3];
            inside && taken.iter().all(apart)
        });
        if let Some((px, py)) = free {
            taken.push([px, py - 9.0, px + width, py + 2.0]);
            svg.text("tag", px, py, name);
        }
    }
}

/// The plots of a table.
pub(crate) fn plots(t: &TableReport) -> Vec<String> {
    match (t.layout, t.how) {
        (Layout::Front, _) => {
            // Rows in which all policies have the same rate are left out.
            let differs = |r: &usize| {
                let rates = || shown(t).into_iter().filter_map(|(c, _)| t.cell(*r, c).ours);
                let high = rates().fold(0.0, f64::max);
                rates().any(|x| x < high * 0.999)
            };
            (0..t.rows()).filter(differs).map(|r| front(t, r)).collect()
        }
        (_, How::Measure) => ratios(t).into_iter().collect(),
        _ if t.x.is_some() && t.rows() > 1 => vec![by_number(t)],
        _ => {
            // Figures without a published one are compared with each other.
            let alone = |c: &CellReport| c.ours.is_some() && c.error_percent.is_none();
            let alone = t.cells.iter().any(alone).then(|| ratios(t)).flatten();
            errors(t).into_iter().chain(alone).collect()
        }
    }
}

/// One picture for a README: the two tables of the single writer side by side.
pub(crate) fn picture(report: &Report) -> String {
    let tables = report.tables.iter().filter(|t| t.x.is_some() && t.layout == Layout::Beside);
    let (mut body, mut x) = (String::new(), 0.0);
    for t in tables.take(2) {
        let plot = by_number(t);
        let inner = plot.split_once('>').map_or("", |(_, rest)| rest);
        let inner = inner.strip_suffix("</svg>").unwrap_or(inner);
        let _ = write!(
            body,
            r#"<g transform="translate({x:.0} 26)"><text class="title" x="8" y="-8">{}</text>{inner}</g>"#,
            escape(t.title)
        );
        x += WIDTH + 20.0;
    }
    let (width, height) = ((x - 20.0).max(WIDTH), 330);
    let back = r#"<rect width="100%" height="100%" style="fill:var(--paper)"/>"#;
    with_colours(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height}\" role=\"img\" aria-label=\"Published and reproduced throughput of a 30 TB SMR disk\">\n<style>\n{STYLE}</style>\n{back}{body}\n</svg>\n"
    ))
}
