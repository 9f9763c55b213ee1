//! `zoneplug top --once`: one picture as text, or its figures as JSON.

use super::model::{Model, Sample};
use super::rates::Rates;
use super::theme::Theme;
use super::view;
use crate::failure::Failure;
use crate::server_client::zones::ZonesShown;
use crate::{json, term};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use serde::Serialize;
use std::io::Write;

/// Width if stdout is no terminal.
const COLUMNS: usize = 80;

#[derive(Serialize)]
struct Document<'a> {
    /// Time between the two samples.
    interval_s: f64,
    disks: Vec<Disk<'a>>,
    /// The map of the named disk, or else of the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<&'a ZonesShown>,
}

#[derive(Serialize)]
struct Disk<'a> {
    name: &'a str,
    spec: &'a str,
    capacity_bytes: u64,
    zones: u32,
    zone_bytes: u64,
    /// Null if no server has the disk, or if its server was started again between the samples.
    rates: Option<&'a Rates>,
    waiting: u64,
    errors: u64,
}

/// Prints the figures as JSON.
pub(crate) fn print_json(m: &Model, interval_s: f64, out: &mut dyn Write) -> Result<(), Failure> {
    let disks = m.disks.iter().map(|d| Disk {
        name: &d.shown.name,
        spec: &d.shown.spec,
        capacity_bytes: d.shown.capacity_bytes,
        zones: d.shown.zones,
        zone_bytes: d.shown.zone_bytes,
        rates: d.rates.as_ref(),
        waiting: d.shown.waiting,
        errors: d.shown.errors,
    });
    let has_map = !m.map.key.is_empty() && m.map.trouble.is_none();
    let map = has_map.then_some(&m.map.table);
    json::print(out, &Document { interval_s, disks: disks.collect(), map })
}

/// Prints the picture, at most as wide as the terminal.
pub(crate) fn print(m: &mut Model, out: &mut dyn Write) -> Result<(), Failure> {
    let width = match term::width() {
        usize::MAX => COLUMNS,
        width => width.clamp(20, 200),
    };
    let colours = term::colours();
    Ok(out.write_all(text(m, width as u16, colours).as_bytes())?)
}

/// The picture as lines.
pub(crate) fn text(m: &mut Model, width: u16, colours: bool) -> String {
    let disks = u16::try_from(m.disks.len()).unwrap_or(u16::MAX);
    let area = Rect::new(0, 0, width, disks.saturating_add(60));
    let mut buf = Buffer::empty(area);
    view::snapshot(m, area, Theme { colours }, &mut buf);
    let mut lines: Vec<String> = (0..area.height).map(|y| line(&buf, y, colours)).collect();
    let used = lines.iter().rposition(|l| !l.is_empty()).map_or(0, |i| i + 1);
    lines.truncate(used);
    lines.join("\n") + "\n"
}

/// A row of the picture, without blanks at its end.
fn line(buf: &Buffer, y: u16, colours: bool) -> String {
    let cells: Vec<_> = (0..buf.area.width).filter_map(|x| buf.cell((x, y))).collect();
    let used = cells.iter().rposition(|c| c.symbol() != " ").map_or(0, |i| i + 1);
    let runs = cells[..used].chunk_by(|a, b| a.style() == b.style());
    runs.map(|run| {
        let text: String = run.iter().map(|c| c.symbol()).collect();
        run.first().map_or(String::new(), |c| term::paint(&text, &sgr(c.style()), colours))
    })
    .collect()
}

/// The SGR numbers of a style.
fn sgr(style: Style) -> String {
    let modifiers = [
        (Modifier::BOLD, "1"),
        (Modifier::DIM, "2"),
        (Modifier::UNDERLINED, "4"),
        (Modifier::REVERSED, "7"),
    ];
    let mut parts: Vec<&str> = modifiers
        .iter()
        .filter(|(m, _)| style.add_modifier.contains(*m))
        .map(|(_, n)| *n)
        .collect();
    parts.extend(match style.fg {
        Some(Color::Black) => Some("30"),
        Some(Color::Red) => Some("31"),
        Some(Color::Green) => Some("32"),
        Some(Color::Yellow) => Some("33"),
        Some(Color::Magenta) => Some("35"),
        Some(Color::Cyan) => Some("36"),
        _ => None,
    });
    parts.extend((style.bg == Some(Color::Yellow)).then_some("43"));
    parts.join(";")
}

/// Returns the sample. Fails with its error if it has no disk.
pub(crate) fn checked(mut sample: Sample) -> Result<Sample, Failure> {
    match sample.trouble.take_if(|_| sample.disks.is_empty()) {
        Some(failure) => Err(failure),
        None => Ok(sample),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::sample;
    use super::*;

    fn model(disks: usize) -> Model {
        let mut m = Model { selected: Some("tcp4420n1".to_owned()), ..Model::new(1000) };
        for n in 1..3 {
            let mut s = sample(n, 0..96, 512, None);
            s.disks.truncate(disks);
            m.see(s);
        }
        m
    }

    /// Lines fit the width, colours appear only if allowed, and the text is the same with them.
    #[test]
    fn a_snapshot_is_plain_text() {
        for disks in [1, 2] {
            for width in [80, 30, 200] {
                let plain = text(&mut model(disks), width, false);
                assert!(plain.lines().all(|l| l.chars().count() <= usize::from(width)), "{plain}");
                assert!(!plain.contains('\x1b') && plain.contains("tcp4420n"), "{plain}");
                let coloured = text(&mut model(disks), width, true);
                let mut without = String::new();
                let mut parts = coloured.split("\x1b[");
                without += parts.next().unwrap();
                for part in parts {
                    without += part.split_once('m').unwrap().1;
                }
                assert_ne!(coloured, plain);
                assert_eq!(without, plain);
            }
        }
        let one = text(&mut model(1), 80, false);
        for what in [
            "WR B/s",
            "single writer serves zone 40",
            "zone_reset",
            "░",
            "events: 3 failed, 1 stale",
        ] {
            assert!(one.contains(what), "{what}: {one}");
        }
        assert!(text(&mut model(2), 80, false).contains("zoneplug top DISK --once"));
    }

    #[test]
    fn the_document_has_rates_and_zones() {
        let mut out = Vec::new();
        print_json(&model(2), 1.0, &mut out).unwrap();
        let v: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&v["schema"], &v["map"]["zones"]), (&1.into(), &96.into()));
        assert_eq!(v["disks"][1]["rates"]["writes_per_s"], 23_400.0);
        assert_eq!(v["disks"][1]["rates"]["operations"][1]["latency"]["p50_ns"], 16_384);
    }
}
