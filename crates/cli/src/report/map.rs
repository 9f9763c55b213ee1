//! The picture of a disk for `report --map` and `info`: a glyph for each zone, coloured by its condition and filled
//! to its write pointer.
//!
//! Repeated rows are folded, as in a hex dump. If the map of a large disk would still fill pages, a glyph stands for
//! several zones.

use crate::term::paint;
use crate::zones::{count, size, written};
use zoneplug_core::zone::{Condition, ZoneInfo};

/// Conditions with their styles (SGR) and names. The first ones win if a glyph stands for several zones.
const CONDITIONS: [(Condition, &str, &str); 9] = [
    (Condition::Offline, "31;1", "offline"),
    (Condition::ReadOnly, "31", "read-only"),
    (Condition::ExpOpen, "33;1", "open, explicitly"),
    (Condition::ImpOpen, "33", "open, implicitly"),
    (Condition::Closed, "35", "closed"),
    (Condition::Active, "35", "active"),
    (Condition::Full, "32", "full"),
    (Condition::NotWp, "36", "conventional"),
    (Condition::Empty, "2", "empty"),
];

/// The glyphs from an empty to a full cell, in eighths.
const EIGHTHS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Most rows; a larger map has several zones in a glyph.
const ROWS: usize = 64;
/// A longer sequence of equal rows is folded.
const FOLD: usize = 3;

/// The zones to draw.
pub(crate) struct Map<'a> {
    /// The number of the first zone.
    pub(crate) first: u32,
    pub(crate) zones: &'a [ZoneInfo],
    /// Whether each zone is drawn; others leave a gap.
    pub(crate) shown: &'a [bool],
}

/// A position of the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    glyph: char,
    style: &'static str,
}

fn rank(cond: Condition) -> usize {
    CONDITIONS.iter().position(|c| c.0 == cond).unwrap_or(CONDITIONS.len() - 1)
}

/// The cell for consecutive zones.
fn cell(zones: &[ZoneInfo], shown: &[bool]) -> Cell {
    let mine = || zones.iter().zip(shown).filter(|(_, s)| **s).map(|(z, _)| z);
    let Some(top) = mine().map(|z| rank(z.cond)).min() else {
        return Cell { glyph: ' ', style: "" };
    };
    let (cond, style, _) = CONDITIONS[top];
    let room: u64 = mine().map(|z| z.capacity_sectors).sum();
    let fill: u64 = mine().map(written).sum();
    Cell { glyph: glyph(cond, fill, room), style }
}

/// The glyph of zones with this condition: `fill` of `room` sectors are written.
pub(crate) fn glyph(cond: Condition, fill: u64, room: u64) -> char {
    match cond {
        Condition::Offline => 'x',
        Condition::ReadOnly => 'r',
        Condition::NotWp => '░',
        _ => level(fill, room),
    }
}

/// The glyph for a part of a whole, in eighths: any part shows, and only a full cell looks full.
pub(crate) fn level(part: u64, whole: u64) -> char {
    match part {
        0 => EIGHTHS[0],
        _ if part >= whole => EIGHTHS[8],
        _ => EIGHTHS[(u128::from(part) * 8).div_ceil(u128::from(whole)).clamp(1, 7) as usize],
    }
}

/// The style (SGR) and the name of a condition.
#[cfg(feature = "top")]
pub(crate) fn style_and_name(cond: Condition) -> (&'static str, &'static str) {
    let (_, style, name) = CONDITIONS[rank(cond)];
    (style, name)
}

impl Map<'_> {
    /// The picture, at most `columns` wide.
    pub(crate) fn draw(&self, columns: usize, colours: bool) -> String {
        let digits = (self.first as usize + self.zones.len()).to_string().len();
        let room = columns.saturating_sub(digits + 3).max(8);
        let width = if room >= 16 { room / 8 * 8 } else { room };
        // Every zone with a glyph of its own, if the folded map is short.
        let mut per_cell = 1;
        if !Folded::of(self.rows(per_cell, width)).fit() {
            per_cell = self.zones.len().div_ceil(width * ROWS).max(2);
        }
        let mut text = String::new();
        let mut at = self.first as usize;
        for (row, same) in Folded::of(self.rows(per_cell, width)) {
            let folds = same > FOLD;
            for n in 0..if folds { 1 } else { same } {
                let at = at + n * width * per_cell;
                text += &format!("  {at:>digits$} {}\n", line(&row, colours));
            }
            if folds {
                text += &format!("  {:>digits$} {} more rows like it\n", "*", same - 1);
            }
            at += same * width * per_cell;
        }
        text + "\n" + &self.legend(per_cell, colours)
    }

    /// The rows of the picture. A disk may have so many that they are never all in memory.
    fn rows(&self, per_cell: usize, width: usize) -> impl Iterator<Item = Vec<Cell>> {
        let in_row = per_cell * width;
        self.zones.chunks(in_row).zip(self.shown.chunks(in_row)).map(move |(zones, shown)| {
            let cells = zones.chunks(per_cell).zip(shown.chunks(per_cell));
            cells.map(|(z, s)| cell(z, s)).collect()
        })
    }

    fn legend(&self, per_cell: usize, colours: bool) -> String {
        let mut text = String::new();
        for (cond, style, name) in CONDITIONS.iter().rev() {
            let zones = self.zones.iter().zip(self.shown);
            let mine = zones.filter(|(z, s)| **s && z.cond == *cond).count();
            if mine == 0 {
                continue;
            }
            let glyph = match cond {
                Condition::Full => "█",
                Condition::Empty => "·",
                Condition::NotWp => "░",
                Condition::ReadOnly => "r",
                Condition::Offline => "x",
                _ => "▁▄▇",
            };
            let pad = " ".repeat(3 - glyph.chars().count());
            let glyph = paint(glyph, style, colours) + &pad;
            text += &format!("  {glyph} {name:<17} {}\n", count(mine, "zone"));
        }
        let data: u64 = self.zones.iter().map(written).sum();
        let room: u64 = self
            .zones
            .iter()
            .filter(|z| z.cond != Condition::NotWp)
            .map(|z| z.capacity_sectors)
            .sum();
        text += &format!("  {} used of {} in sequential zones\n", size(data << 9), size(room << 9));
        if per_cell > 1 {
            text += &format!(
                "  one glyph for {per_cell} zones: how full they are together, coloured by the rarest condition\n"
            );
        }
        text
    }
}

/// Rows of a picture, each with the number of times that it is there in sequence.
struct Folded<I: Iterator>(std::iter::Peekable<I>);

impl<I: Iterator<Item: PartialEq>> Folded<I> {
    fn of(rows: I) -> Folded<I> {
        Folded(rows.peekable())
    }

    /// Whether the folded rows are at most [`ROWS`].
    fn fit(self) -> bool {
        let mut rows = self.map(|(_, same)| if same > FOLD { 2 } else { same });
        rows.try_fold(0, |all, more| (all + more <= ROWS).then_some(all + more)).is_some()
    }
}

impl<I: Iterator<Item: PartialEq>> Iterator for Folded<I> {
    type Item = (I::Item, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.0.next()?;
        let mut same = 1;
        while self.0.next_if_eq(&row).is_some() {
            same += 1;
        }
        Some((row, same))
    }
}

fn line(cells: &[Cell], colours: bool) -> String {
    cells
        .chunk_by(|a, b| a.style == b.style)
        .map(|same| {
            paint(&same.iter().map(|c| c.glyph).collect::<String>(), same[0].style, colours)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::Sector;
    use zoneplug_core::zone::ZoneType;

    fn zone(n: u64, cond: Condition, written: u64) -> ZoneInfo {
        ZoneInfo {
            start: Sector(n * 100),
            len_sectors: 100,
            capacity_sectors: 80,
            wp: Sector(n * 100 + written),
            zone_type: ZoneType::SeqWriteRequired,
            cond,
        }
    }

    fn draw(zones: &[ZoneInfo], columns: usize, colours: bool) -> String {
        let shown = vec![true; zones.len()];
        Map { first: 0, zones, shown: &shown }.draw(columns, colours)
    }

    #[test]
    fn a_zone_is_filled_to_its_write_pointer() {
        let zones: Vec<ZoneInfo> = [
            (Condition::Empty, 0),
            (Condition::ImpOpen, 1),
            (Condition::Closed, 10),
            (Condition::ExpOpen, 40),
            (Condition::ImpOpen, 79),
            (Condition::Full, 100),
            (Condition::ReadOnly, 0),
            (Condition::Offline, 0),
            (Condition::ExpOpen, 0),
        ]
        .iter()
        .enumerate()
        .map(|(n, (c, w))| zone(n as u64, *c, *w))
        .collect();
        let text = draw(&zones, 80, false);
        assert!(text.starts_with("  0 ·▁▁▄▇█rx·\n"), "{text}");
        assert!(text.contains("open, implicitly  2 zones"), "{text}");
        let text = draw(&zones, 80, true);
        assert!(text.contains("\x1b[33;1m▄\x1b[0m") && text.contains("\x1b[32m█\x1b[0m"), "{text}");
    }

    #[test]
    fn it_fits_any_terminal_and_any_disk() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 40
        };
        let conds = [Condition::Empty, Condition::ImpOpen, Condition::Full, Condition::Closed];
        for n in [1, 7, 100, 5_000, 52_156, 200_000] {
            let zones: Vec<ZoneInfo> =
                (0..n).map(|i| zone(i, conds[random() as usize % 4], random() % 80)).collect();
            for columns in [20, 60, 100, 237] {
                let text = draw(&zones, columns, false);
                let rows = text.lines().take_while(|l| !l.is_empty()).count();
                assert!(rows <= ROWS + 2, "{n} zones in {columns} columns: {rows} rows");
                for l in text.lines().take(rows) {
                    assert!(l.chars().count() <= columns, "{columns}: {l}");
                }
            }
            let empty: Vec<ZoneInfo> = (0..n).map(|i| zone(i, Condition::Empty, 0)).collect();
            assert!(draw(&empty, 60, false).lines().count() < 10);
        }
    }
}
