//! The screen of `zoneplug top`, drawn from the model.

use super::keys::KEYS;
use super::model::{DiskRow, Look, Model, Pane};
use super::rates::{Quantiles, Rates};
use super::theme::Theme;
use super::zone_map;
use crate::zones::{count, size};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Clear, Widget};
use zoneplug_control::figures::{rounded, short_duration};
use zoneplug_core::plain;

/// The least columns and rows for more than a list of disks.
const SMALL: (u16, u16) = (40, 10);
/// Columns from which a row of the table also shows the disk's specification.
const WIDE: u16 = 110;

/// Rows of the map of a snapshot.
const ROWS_ONCE: u16 = 16;

/// The parts of the screen.
struct Areas {
    table: Rect,
    about: Rect,
    operations: Rect,
    detail: Rect,
    title: Rect,
    map: Rect,
    legend: Rect,
}

/// Cuts `rows` off the top of `left`.
fn take(left: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(left.height);
    let taken = Rect { height: rows, ..*left };
    left.y += rows;
    left.height -= rows;
    taken
}

impl Areas {
    fn of(m: &Model, area: Rect) -> Areas {
        let mut left = area;
        take(&mut left, 1);
        left.height = left.height.saturating_sub(1);
        let disks = (m.disks.len() as u16).clamp(1, (area.height / 4).max(2));
        let table = take(&mut left, disks + 1);
        let lines = m.disk().map_or(0, |d| about(m, d, Theme { colours: false }).len() as u16);
        let about = take(&mut left, if area.height < 16 { 0 } else { lines });
        let served = m.disk().is_some_and(|d| d.counts);
        let shown = m.disk().and_then(|d| d.rates.as_ref()).map_or(0, |r| r.operations.len());
        let rows = (shown as u16).clamp(1, (area.height / 8).max(2)) + 1;
        let operations = take(&mut left, if area.height < 20 || !served { 0 } else { rows });
        let title = take(&mut left, 1);
        let detail = match m.look {
            None => 0,
            // Some rows of the map or list stay visible above it.
            Some(_) => left.height.saturating_sub(5).clamp(6, 10).min(left.height),
        };
        let detail = Rect { y: left.bottom() - detail, height: detail, ..left };
        left.height -= detail.height;
        let rows = left.height.saturating_sub(1);
        let map = take(&mut left, rows);
        Areas { table, about, operations, detail, title, map, legend: left }
    }
}

/// Draws the screen, and notes in the model how many cells the map has room for.
pub(crate) fn draw(m: &mut Model, area: Rect, theme: Theme, buf: &mut Buffer) {
    if area.width == 0 || area.height == 0 {
        return;
    }
    Clear.render(area, buf);
    head(m, Rect { height: 1, ..area }, theme, buf);
    if area.width < SMALL.0 || area.height < SMALL.1 {
        small(m, area, theme, buf);
    } else {
        // The width of the map's row numbers does not depend on `m.room`.
        let areas = Areas::of(m, area);
        m.room = zone_map::room(m, areas.map);
        body(m, &areas, theme, buf);
        foot(m, Rect { y: area.bottom() - 1, height: 1, ..area }, theme, buf);
    }
    if m.help {
        help(area, theme, buf);
    }
}

/// Draws the picture of `--once`: all disks, and the details if there is only one.
pub(crate) fn snapshot(m: &mut Model, area: Rect, theme: Theme, buf: &mut Buffer) {
    let mut left = area;
    table(m, take(&mut left, (m.disks.len() as u16).max(1) + 1), theme, buf);
    let Some(d) = m.disk() else { return };
    if m.disks.len() > 1 {
        take(&mut left, 1);
        let text = " zoneplug top DISK --once shows more of one.";
        let width = usize::from(area.width);
        buf.set_stringn(left.x, left.y, text, width, theme.dim());
        return;
    }
    take(&mut left, 1);
    let lines = about(m, d, theme);
    let at = take(&mut left, lines.len() as u16 + 1);
    for ((text, style), row) in lines.into_iter().zip(at.rows()) {
        let width = usize::from(row.width);
        buf.set_stringn(row.x, row.y, fit(&text, width), width, style);
    }
    if let Some(rates) = &d.rates {
        let rows = rates.operations.len() as u16 + 2;
        operations(d, take(&mut left, rows), theme, buf);
    }
    rule(&zone_map::title(m), take(&mut left, 1), theme, buf);
    let mut at = Rect { height: left.height.min(ROWS_ONCE), ..left };
    let (columns, rows) = zone_map::room(m, at);
    m.room = (columns, rows);
    at.height = (m.map.cells.len().div_ceil(usize::from(columns)) as u16).clamp(1, rows);
    take(&mut left, at.height);
    zone_map::draw(m, at, theme, buf);
    zone_map::legend(m, theme).render(take(&mut left, 1), buf);
}

fn body(m: &Model, areas: &Areas, theme: Theme, buf: &mut Buffer) {
    table(m, areas.table, theme, buf);
    let Some(d) = m.disk() else { return };
    for ((text, style), row) in about(m, d, theme).into_iter().zip(areas.about.rows()) {
        let width = usize::from(row.width);
        buf.set_stringn(row.x, row.y, fit(&text, width), width, style);
    }
    operations(d, areas.operations, theme, buf);
    let what = match m.pane {
        Pane::Map => zone_map::title(m),
        Pane::List => format!("zones, sorted by {}{}", m.zone_sort.name(), reversed(m)),
    };
    rule(&what, areas.title, theme, buf);
    match m.pane {
        Pane::Map => {
            zone_map::draw(m, areas.map, theme, buf);
            // The legend stands directly below the last row of cells.
            let rows = m.map.cells.len().div_ceil(usize::from(m.room.0.max(1)));
            let y = areas.map.y + (rows as u16).clamp(1, areas.map.height.max(1));
            zone_map::legend(m, theme).render(Rect { y, ..areas.legend }, buf);
        }
        Pane::List => zone_map::list(m, areas.map, theme, buf),
    }
    if let Some(look) = &m.look {
        detail(m, d, look, areas.detail, theme, buf);
    }
}

/// Cuts a text to `width`, with a mark at the cut.
pub(crate) fn fit(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Draws a line across the screen with a text in it.
fn rule(text: &str, area: Rect, theme: Theme, buf: &mut Buffer) {
    if area.height > 0 {
        let line = "─".repeat(usize::from(area.width));
        buf.set_stringn(area.x, area.y, line, usize::from(area.width), theme.dim());
        let room = usize::from(area.width).saturating_sub(4);
        let text = format!(" {text} ");
        buf.set_stringn(area.x + 2, area.y, text, room, theme.head());
    }
}

fn reversed(m: &Model) -> &'static str {
    if m.reverse { ", the other way round" } else { "" }
}

fn head(m: &Model, area: Rect, theme: Theme, buf: &mut Buffer) {
    let gone = m.disks.iter().filter(|d| d.gone).count();
    let mut text = format!(" zoneplug top  {}", count(m.disks.len(), "disk"));
    if gone > 0 {
        text += &format!(", {gone} gone");
    }
    if m.disks.len() > 1 {
        text += &format!("  by {}{}", m.sort.name(), reversed(m));
    }
    buf.set_stringn(area.x, area.y, text, usize::from(area.width), theme.head());
    let every = if m.interval_ms < 1000 {
        format!("every {} ms", m.interval_ms)
    } else {
        format!("every {} s", m.interval_ms / 1000)
    };
    let right = if m.paused { "PAUSED ".to_owned() } else { format!("{every} ") };
    let at = area.width.saturating_sub(right.len() as u16);
    if at > 30 {
        let style = if m.paused { theme.sgr("33;1") } else { theme.dim() };
        buf.set_stringn(area.x + at, area.y, right, usize::from(area.width - at), style);
    }
}

fn foot(m: &Model, area: Rect, theme: Theme, buf: &mut Buffer) {
    if let Some(trouble) = &m.trouble {
        let text = fit(&format!(" {}", plain(trouble)), usize::from(area.width));
        buf.set_stringn(area.x, area.y, text, usize::from(area.width), theme.wrong());
        return;
    }
    let keys = " q quit  ? help  [ ] disk  arrows Enter Esc zones  m map  v list  s sort  space";
    buf.set_stringn(area.x, area.y, keys, usize::from(area.width), theme.dim());
}

/// Draws a line for each disk, for a small terminal.
fn small(m: &Model, area: Rect, theme: Theme, buf: &mut Buffer) {
    let mut left = area;
    take(&mut left, 1);
    let rows = left.height.saturating_sub(u16::from(left.height > 1));
    for (d, row) in visible(m, usize::from(rows)).zip(left.rows()) {
        let name = plain(&d.shown.name).chars().count();
        let fits = |text: &String| name + 1 + text.len() <= usize::from(row.width);
        let numbers = match &d.rates {
            _ if d.gone => "gone".to_owned(),
            Some(r) => Some(format!("{}/s {}B/s", rounded(r.iops()), rounded(r.bytes_per_s())))
                .filter(fits)
                .unwrap_or_else(|| format!("{}/s", rounded(r.iops()))),
            None => size(d.shown.capacity_bytes),
        };
        let room = usize::from(row.width).saturating_sub(numbers.len() + 1);
        buf.set_stringn(row.x, row.y, plain(&d.shown.name), room, row_style(m, d, theme));
        let at = row.width.saturating_sub(numbers.len() as u16);
        buf.set_stringn(row.x + at, row.y, numbers, usize::from(row.width), Style::new());
    }
    if left.height > 1 {
        let y = area.bottom() - 1;
        match &m.trouble {
            Some(t) => buf.set_stringn(area.x, y, plain(t), usize::from(area.width), theme.wrong()),
            None => buf.set_stringn(area.x, y, "q quit", usize::from(area.width), theme.dim()),
        };
    }
}

/// The disks that fit, including the selected one.
fn visible(m: &Model, rows: usize) -> impl Iterator<Item = &DiskRow> {
    let at = m.disks.iter().position(|d| Some(&d.key) == m.selected.as_ref()).unwrap_or(0);
    let first = (at + 1).saturating_sub(rows.max(1));
    m.disks.iter().skip(first).take(rows)
}

fn row_style(m: &Model, d: &DiskRow, theme: Theme) -> Style {
    let style = if d.gone { theme.dim() } else { Style::new() };
    if Some(&d.key) == m.selected.as_ref() && m.disks.len() > 1 {
        return style.add_modifier(Modifier::REVERSED);
    }
    style
}

/// Columns of the table of disks: heading, and width with a blank before it.
const COLUMNS: [(&str, usize); 11] = [
    ("RD/s", 6),
    ("WR/s", 6),
    ("RD B/s", 7),
    ("WR B/s", 7),
    ("p50", 6),
    ("p99", 6),
    ("p99.9", 6),
    ("DEPTH", 6),
    ("WAIT", 5),
    ("MRG/s", 6),
    ("ERR", 5),
];

fn table(m: &Model, area: Rect, theme: Theme, buf: &mut Buffer) {
    let taken: usize = COLUMNS.iter().map(|(_, w)| w).sum();
    let extra = area.width >= WIDE;
    let name =
        if extra { 16 } else { usize::from(area.width).saturating_sub(taken + 1).clamp(8, 16) };
    let mut line = format!(" {:<name$}", "DISK");
    COLUMNS.iter().for_each(|(head, w)| line += &format!("{head:>w$}"));
    if extra {
        line += &format!("{:>7}  SPECIFICATION", "HOSTS");
    }
    buf.set_stringn(area.x, area.y, line, usize::from(area.width), theme.head());
    let rows = area.rows().skip(1);
    for (d, row) in visible(m, usize::from(area.height.saturating_sub(1))).zip(rows) {
        buf.set_style(row, row_style(m, d, theme));
        let width = usize::from(row.width);
        let shown = plain(&d.shown.name).into_owned();
        buf.set_stringn(row.x + 1, row.y, shown, name.min(width.saturating_sub(1)), Style::new());
        let mut x = row.x + 1 + name as u16;
        for ((_, w), (text, wrong)) in COLUMNS.iter().zip(values(d)) {
            let style = if wrong { theme.wrong() } else { Style::new() };
            let room = usize::from(row.right().saturating_sub(x));
            buf.set_stringn(x, row.y, format!("{text:>w$}"), room, style);
            x += *w as u16;
        }
        if extra {
            let hosts =
                d.shown.hosts.as_ref().map_or_else(|| "-".to_owned(), |h| h.len().to_string());
            let text = format!("{hosts:>7}  {}", plain(&d.shown.spec));
            let room = usize::from(row.right().saturating_sub(x));
            buf.set_stringn(x, row.y, fit(&text, room), room, Style::new());
        }
    }
    if m.disks.is_empty() {
        let text = match m.samples {
            0 => " ...",
            _ => " nothing is served; zoneplug serve serves a disk",
        };
        let mut left = area;
        take(&mut left, 1);
        if left.height > 0 {
            buf.set_stringn(left.x, left.y, text, usize::from(left.width), Style::new());
        }
    }
}

/// The cells of a row, and whether each is a bad sign.
pub(crate) fn values(d: &DiskRow) -> [(String, bool); 11] {
    let rate =
        |f: fn(&Rates) -> f64| d.rates.as_ref().map_or_else(|| "-".to_owned(), |r| rounded(f(r)));
    let p = |f: fn(&Quantiles) -> Option<u64>| {
        (maybe_duration(d.rates.as_ref().and_then(|r| f(&r.latency))), false)
    };
    let depth = d.rates.as_ref().and_then(|r| r.depth).map_or_else(|| "-".to_owned(), rounded);
    let counter = |n: u64| if d.counts { rounded(n as f64) } else { "-".to_owned() };
    let plainly = |text: String| (text, false);
    if d.gone {
        let mut all = std::array::from_fn(|_| plainly("-".to_owned()));
        all[0] = ("gone".to_owned(), true);
        return all;
    }
    [
        plainly(rate(|r| r.reads_per_s)),
        plainly(rate(|r| r.writes_per_s)),
        plainly(rate(|r| r.read_bytes_per_s)),
        plainly(rate(|r| r.written_bytes_per_s)),
        p(|l| l.p50_ns),
        p(|l| l.p99_ns),
        p(|l| l.p99_9_ns),
        plainly(depth),
        plainly(counter(d.shown.waiting)),
        plainly(rate(|r| r.merged_per_s)),
        (counter(d.shown.errors), d.shown.errors > 0),
    ]
}

/// Lines about a disk.
pub(crate) fn about(m: &Model, d: &DiskRow, theme: Theme) -> Vec<(String, Style)> {
    let s = &d.shown;
    let mut lines = Vec::new();
    let text = |t: String| (format!(" {t}"), Style::new());
    let what = format!(
        "{}  {}  {} of {}",
        plain(&s.name),
        size(s.capacity_bytes),
        count(s.zones as usize, "zone"),
        size(s.zone_bytes)
    );
    lines.push((format!(" {what}  {}", plain(&s.spec)), theme.head()));
    if !d.counts {
        return lines;
    }
    if let Some(address) = &s.address {
        let hosts = s.hosts.as_deref().unwrap_or_default();
        let queues: u32 = hosts.iter().map(|h| h.queues).sum();
        let names: Vec<String> = hosts.iter().map(|h| plain(&h.nqn).into_owned()).collect();
        let all = match &names[..] {
            [] => "no host".to_owned(),
            [..] => format!(
                "{} with {}: {}",
                count(hosts.len(), "host"),
                count(queues as usize, "queue"),
                names.join(", ")
            ),
        };
        lines.push(text(format!("at {}: {all}", plain(address))));
    }
    let k = &s.measured;
    let mut plugs = format!("plugs: {} live, {} BIOs wait", s.live_plugs, s.waiting);
    if m.map.key == d.key && m.map.trouble.is_none() {
        let out: u32 = m.map.table.in_flight.iter().sum();
        let of = if m.zoom.is_empty() { "" } else { " of these zones" };
        plugs += &format!(", {out} writes{of} dispatched, {} scheduled", m.map.table.scheduled);
    }
    if let Some(r) = &d.rates {
        plugs += &format!(", {} parked/s", rounded(r.parked_per_s));
    }
    lines.push(text(plugs));
    if let Some(line) = writers(m, d) {
        lines.push(text(line));
    }
    let events: Vec<String> = k
        .events
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(kind, n)| format!("{n} {}", plain(kind).replace('_', " ")))
        .collect();
    let mut wrong = events;
    if k.timeouts > 0 {
        wrong.push(format!("{} timeouts", k.timeouts));
    }
    if !wrong.is_empty() {
        let line = format!(" events: {}", wrong.join(", "));
        lines.push((line, theme.wrong()));
    }
    lines
}

/// The zones that the single writers serve; `None` if they are idle.
fn writers(m: &Model, d: &DiskRow) -> Option<String> {
    let all = &m.map.table.writers;
    if m.map.key != d.key || all.iter().all(|w| w.turns == 0 && w.turn.is_none()) {
        return None;
    }
    let of = |w: &crate::server_client::zones::WriterShown| {
        let turn = w.turn.map_or_else(|| "none".to_owned(), |z| z.to_string());
        format!("{turn} ({} wait)", count(w.listed as usize, "zone"))
    };
    let turns = m.map.turns_per_s.map_or_else(String::new, |n| format!(", {} turns/s", rounded(n)));
    let longest = all.iter().map(|w| w.longest_wait_ns).max().unwrap_or(0);
    let served: Vec<String> = all.iter().map(of).collect();
    let longest = short_duration(longest);
    Some(format!("single writer serves zone {}{turns}, longest wait {longest}", served.join(", ")))
}

fn operations(d: &DiskRow, area: Rect, theme: Theme, buf: &mut Buffer) {
    let width = usize::from(area.width);
    let rows = area.rows();
    let head = format!(
        " {:<14}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}",
        "OPERATION", "/s", "B/s", "p50", "p99", "p99.9", "ERR/s"
    );
    let Some(rates) = &d.rates else {
        if let Some(row) = rows.into_iter().next() {
            buf.set_stringn(row.x, row.y, " rates come with the next sample", width, theme.dim());
        }
        return;
    };
    let lines = rates.operations.iter().map(|o| {
        let l = o.latency;
        format!(
            " {:<14}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}",
            plain(&o.op),
            rounded(o.per_s),
            rounded(o.bytes_per_s),
            maybe_duration(l.p50_ns),
            maybe_duration(l.p99_ns),
            maybe_duration(l.p99_9_ns),
            rounded(o.errors_per_s)
        )
    });
    for ((text, i), row) in std::iter::once(head).chain(lines).zip(0..).zip(rows) {
        let style = if i == 0 { theme.head() } else { Style::new() };
        buf.set_stringn(row.x, row.y, text, width, style);
    }
}

/// Draws the detail view of a zone.
fn detail(m: &Model, d: &DiskRow, look: &Look, area: Rect, theme: Theme, buf: &mut Buffer) {
    Clear.render(area, buf);
    rule(&format!("zone {}", look.zone), area, theme, buf);
    let mut left = area;
    take(&mut left, 1);
    let width = usize::from(area.width);
    let mut rows = left.rows();
    let mut say = |text: String, style: Style| {
        if let Some(row) = rows.next() {
            buf.set_stringn(row.x, row.y, text, width, style);
        }
    };
    let Some((_, z)) = &look.now else { return say(" ...".to_owned(), theme.dim()) };
    let start = u64::from(look.zone) * (d.shown.zone_bytes >> 9);
    let mut text = format!(" {}, starts at sector {start}", zone_map::name(z.condition));
    let served = m.map.table.writers.iter().any(|w| w.turn == Some(look.zone));
    if served && m.map.key == d.key {
        text += ", the single writer serves it";
    }
    say(text, Style::new());
    // Only a full zone shows 100%.
    if let Some(share) = (z.written_sectors * 1000).checked_div(z.capacity_sectors) {
        let share = share as f64 / 10.0;
        say(
            format!(
                " write pointer {} = start + {} sectors: {} of {} ({share:.1}%)",
                start + z.written_sectors,
                z.written_sectors,
                size(z.written_sectors << 9),
                size(z.capacity_sectors << 9),
            ),
            Style::new(),
        );
    }
    let slow = d.shown.measured.slow_zones.iter().find(|s| s.zone == look.zone);
    let slow = slow.map_or_else(String::new, |s| {
        format!("; slowest of the last minute: {} {}", short_duration(s.longest_ns), plain(&s.op))
    });
    say(format!(" {} BIOs wait, {} dispatched{slow}", z.waiting, z.in_flight), Style::new());
    let most = look.rates.iter().copied().fold(0.0, f64::max);
    let now = look.rates.back().copied().unwrap_or(0.0);
    let room = width.saturating_sub(40).min(look.rates.len());
    let bars: String = look
        .rates
        .iter()
        .skip(look.rates.len() - room)
        .map(|r| crate::report::map::level(*r as u64, (most as u64).max(1)))
        .collect();
    say(
        format!(" written {}B/s, at most {}B/s  {bars}", rounded(now), rounded(most)),
        Style::new(),
    );
    for change in look.changes.iter().rev() {
        say(format!(" {}", changed(m, change)), theme.dim());
    }
}

/// A time that may be unknown.
fn maybe_duration(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), short_duration)
}

fn changed(m: &Model, c: &super::model::Change) -> String {
    let ago = m.at.saturating_sub(c.at).as_secs_f64();
    let (a, b) = (&c.before, &c.after);
    let mut text = format!("{ago:>5.1} s ago  ");
    if a.condition != b.condition {
        text += &format!("{} -> {}  ", zone_map::name(a.condition), zone_map::name(b.condition));
    }
    if a.written_sectors != b.written_sectors {
        text += &format!("write pointer + {} -> + {}", a.written_sectors, b.written_sectors);
    }
    if let Some(more) = b.written_sectors.checked_sub(a.written_sectors).filter(|n| *n > 0) {
        text += &format!("  ({} written)", size(more << 9));
    }
    text
}

fn help(area: Rect, theme: Theme, buf: &mut Buffer) {
    let keys = KEYS.iter().map(|(_, what)| what.len()).max().unwrap_or(0);
    let width = (keys as u16 + 22).min(area.width);
    let height = (KEYS.len() as u16 + 8).min(area.height);
    let at = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    Clear.render(area, buf);
    let more = [
        "",
        "Latencies are upper ends of buckets: at most twice the true ones.",
        "They and DEPTH (operations under way) need serve --latency.",
        "WAIT: BIOs in plugs. MRG/s: merged. ERR: failed since the start.",
        "Dispatched: at the device, or next to go there.",
        "Underlined: the zone that the single writer serves.",
    ];
    rule("keys", Rect { height: 1, ..at }, theme, buf);
    let keys = KEYS.iter().map(|(key, what)| format!(" {key:<16} {what}"));
    let lines = keys.chain(more.iter().map(|l| format!(" {l}")));
    for (text, row) in lines.zip(at.rows().skip(1)) {
        buf.set_stringn(row.x, row.y, text, usize::from(row.width), Style::new());
    }
}

#[cfg(test)]
mod tests;
