//! The zones of a disk on the screen, as a map with the glyphs of `zoneplug report --map` or as a list.

use super::model::{Cell, Heat, Model};
use super::sample::key_of;
use super::theme::Theme;
use crate::report::map::{glyph, level, style_and_name};
use crate::zones::size;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use zoneplug_control::figures::rounded;
use zoneplug_core::zone::Condition;

/// The glyph and the style of a zone with an unknown write pointer.
pub(crate) const STALE: (char, &str) = ('?', "31;1");

/// Width of the numbers at the left of the map.
fn digits(m: &Model) -> u16 {
    m.range().end.max(1).ilog10() as u16 + 1
}

/// The columns and rows of cells that fit. If many columns fit, their number is a multiple of four or eight.
pub(crate) fn room(m: &Model, area: Rect) -> (u16, u16) {
    let Grid { columns, rows, .. } = Grid::of(m, area);
    (columns, rows)
}

/// The layout of the cells.
struct Grid {
    columns: u16,
    rows: u16,
    /// Screen columns of a cell: more than one if all zones still fit.
    wide: u16,
}

impl Grid {
    fn of(m: &Model, area: Rect) -> Grid {
        let (room, rows) = (area.width.saturating_sub(digits(m) + 2), area.height.max(1));
        let columns = |wide: u16| match room / wide {
            n @ 16.. if wide == 4 => n / 4 * 4,
            n @ 16.. => n / 8 * 8,
            n => n.max(1),
        };
        let zones = m.range().len();
        let fits = |wide: &u16| zones <= usize::from(columns(*wide)) * usize::from(rows);
        let wide = [4, 2].into_iter().find(fits).unwrap_or(1);
        Grid { columns: columns(wide), rows, wide }
    }
}

/// The title of the map: its zones, and what the glyphs measure.
pub(crate) fn title(m: &Model) -> String {
    let zones = m.range();
    let per_cell = match m.map.table.per_cell {
        0 | 1 => String::new(),
        n => format!(", {n} zones a cell"),
    };
    let last = zones.end.saturating_sub(1);
    format!("zones {}-{last}: {}{per_cell}", zones.start, m.heat.name())
}

/// The glyph and the style of a cell.
fn glyph_and_style(cell: &Cell, heat: Heat, most: (u32, f64), theme: Theme) -> (char, Style) {
    let z = &cell.zone;
    let (sign, sgr) = match z.condition {
        None => STALE,
        Some(c) => (glyph(c, z.written_sectors, z.capacity_sectors), style_and_name(c).0),
    };
    let mut style = theme.sgr(sgr);
    let sign = match heat {
        Heat::Fill => sign,
        Heat::Waiting => level(u64::from(z.waiting), u64::from(most.0)),
        Heat::Rate => match cell.rate {
            None => ' ',
            Some(rate) => level(rate as u64, most.1.max(1.0) as u64),
        },
    };
    if heat != Heat::Fill {
        let is_any = sign != '·' && sign != ' ';
        style = theme.sgr(if is_any { "33;1" } else { "2" });
    } else if z.waiting > 0 {
        style = theme.waiting(style);
    } else if cell.rate.is_some_and(|r| r > 0.0) {
        style = style.add_modifier(Modifier::BOLD);
    }
    (sign, style)
}

/// Draws the map.
pub(crate) fn draw(m: &Model, area: Rect, theme: Theme, buf: &mut Buffer) {
    if let Some(why) = &m.map.trouble {
        return Line::from(format!(" no map: {why}")).style(theme.dim()).render(area, buf);
    }
    if m.selected.as_ref() != Some(&m.map.key) {
        return Line::from(" ...").style(theme.dim()).render(area, buf);
    }
    let Grid { columns, rows, wide } = Grid::of(m, area);
    let most = most(m);
    let turn = m.map.table.writers.iter().filter_map(|w| w.turn);
    let turns: Vec<u32> = turn.collect();
    let width = usize::from(digits(m));
    // After the screen has shrunk, the cursor may be below the last row: the rows scroll up until a sample has fewer cells.
    let cursor_row = m.cursor / u32::from(columns);
    let first_row = cursor_row.saturating_sub(u32::from(rows) - 1);
    for row in 0..rows {
        let first = (first_row + u32::from(row)) * u32::from(columns);
        if first as usize >= m.map.cells.len() {
            break;
        }
        let y = area.y + row;
        let number = m.map.table.zones_of(first).start;
        buf.set_stringn(area.x + 1, y, format!("{number:>width$}"), width, theme.dim());
        let cells = m.map.cells.iter().zip(0u32..).skip(first as usize);
        for ((cell, i), column) in cells.take(usize::from(columns)).zip(0u16..) {
            let (sign, mut style) = glyph_and_style(cell, m.heat, most, theme);
            let zones = m.map.table.zones_of(i);
            if turns.iter().any(|t| zones.contains(t)) {
                style = style.add_modifier(Modifier::UNDERLINED);
            }
            if i == m.cursor {
                style = style.add_modifier(Modifier::REVERSED);
            }
            let x = area.x + digits(m) + 2 + column * wide;
            let text: String = std::iter::repeat_n(sign, usize::from((wide - 1).max(1))).collect();
            let left = area.right().saturating_sub(x);
            buf.set_stringn(x, y, text, usize::from(left), style);
        }
    }
}

/// The highest number of waiting BIOs and the highest rate of any cell.
fn most(m: &Model) -> (u32, f64) {
    let waiting = m.map.cells.iter().map(|c| c.zone.waiting).max().unwrap_or(0);
    let rate = m.map.cells.iter().filter_map(|c| c.rate).fold(0.0, f64::max);
    (waiting, rate)
}

/// The meaning of the glyphs, with the number of zones in each condition if known.
pub(crate) fn legend(m: &Model, theme: Theme) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    match m.heat {
        Heat::Fill => {
            let known = m.disk().map(|d| &d.shown.measured.conditions);
            let n = |key: &str| known.and_then(|k| k.get(key)).copied();
            let all = [
                (Some(Condition::Empty), "·", "empty", "empty"),
                (Some(Condition::Active), "▁▄▇", "active", "active"),
                (Some(Condition::ImpOpen), "▁▄▇", "open", "open"),
                (Some(Condition::Closed), "▁▄▇", "closed", "closed"),
                (Some(Condition::Full), "█", "full", "full"),
                (Some(Condition::NotWp), "░", "conventional", "conv"),
                (Some(Condition::ReadOnly), "r", "read_only", "read-only"),
                (Some(Condition::Offline), "x", "offline", "offline"),
                (None, "?", "stale", "stale"),
            ];
            for (condition, sign, key, name) in all {
                let is = |c: &Cell| c.zone.condition.map(key_of) == condition.map(key_of);
                let seen = m.map.cells.iter().any(is);
                let count = n(key).filter(|n| *n > 0);
                if !seen && count.is_none() {
                    continue;
                }
                let sgr = condition.map_or(STALE.1, |c| style_and_name(c).0);
                spans.push(Span::styled(sign, theme.sgr(sgr)));
                let count = count.map_or_else(String::new, |n| format!(" {n}"));
                spans.push(Span::raw(format!("{count} {name}  ")));
            }
            if m.map.cells.iter().any(|c| c.zone.waiting > 0) {
                spans.push(Span::styled("▄", theme.waiting(Style::new())));
                spans.push(Span::raw(" waits"));
            }
        }
        Heat::Waiting => {
            spans.push(Span::styled("█", theme.sgr("33;1")));
            spans.push(Span::raw(format!(" {} BIOs wait in the cell with the most", most(m).0)));
        }
        Heat::Rate => {
            spans.push(Span::styled("█", theme.sgr("33;1")));
            spans.push(Span::raw(format!(" {}B/s in the cell with the most", rounded(most(m).1))));
        }
    }
    Line::from(spans)
}

/// The name of a condition.
pub(crate) fn name(condition: Option<Condition>) -> &'static str {
    condition.map_or("stale", |c| style_and_name(c).1)
}

/// Draws the list.
pub(crate) fn list(m: &Model, area: Rect, theme: Theme, buf: &mut Buffer) {
    if m.map.trouble.is_some() || m.selected.as_ref() != Some(&m.map.key) {
        return draw(m, area, theme, buf);
    }
    let head = format!(
        " {:>13}  {:<16} {:>16} {:>4} {:>6} {:>6} {:>6}",
        "ZONE", "CONDITION", "WRITTEN", "", "WAIT", "DISP", "B/s"
    );
    buf.set_stringn(area.x, area.y, head, usize::from(area.width), theme.head());
    let listed = m.listed();
    let rows = usize::from(area.height.saturating_sub(1));
    let at = listed.iter().position(|(i, _)| *i == m.cursor).unwrap_or(0);
    let first = (at + 1).saturating_sub(rows);
    for ((i, cell), row) in listed.iter().skip(first).take(rows).zip(1u16..) {
        let zones = m.map.table.zones_of(*i);
        let number = match zones.len() {
            0 | 1 => zones.start.to_string(),
            _ => format!("{}-{}", zones.start, zones.end - 1),
        };
        let z = &cell.zone;
        let (written, share) = match z.capacity_sectors {
            0 => ("-".to_owned(), String::new()),
            room => {
                let share = z.written_sectors * 100 / room;
                let of = format!("{} of {}", size(z.written_sectors << 9), size(room << 9));
                (of, format!("{share}%"))
            }
        };
        let rate = cell.rate.map_or_else(|| "-".to_owned(), rounded);
        let (waiting, out) = (z.waiting, z.in_flight);
        let text = format!(
            " {number:>13}  {:<16} {written:>16} {share:>4} {waiting:>6} {out:>6} {rate:>6}",
            name(z.condition)
        );
        let sgr = z.condition.map_or(STALE.1, |c| style_and_name(c).0);
        let mut style = theme.sgr(sgr);
        if *i == m.cursor {
            style = style.add_modifier(Modifier::REVERSED);
        }
        buf.set_stringn(area.x, area.y + row, text, usize::from(area.width), style);
    }
}
