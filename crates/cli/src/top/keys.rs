//! The keys of `zoneplug top` and their effects.

use super::model::{Heat, Look, Model, Pane, Sort, ZoneSort, next};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The keys, for the help and for `docs/top.md`.
pub(crate) const KEYS: [(&str, &str); 14] = [
    ("q  Ctrl-C", "end"),
    ("?", "this help; any key closes it"),
    ("[  ]  Tab", "the disk before, the next disk"),
    ("arrows  hjkl", "move on the map or the list; Home and End go to its ends"),
    ("Enter", "look into the cell: first its zones, then the zone"),
    ("Esc  Backspace", "back out of it"),
    ("m", "the map shows: fill, waiting BIOs, written per second"),
    ("v", "the zones as a map or as a list"),
    ("s", "sort the disks, or the zones of the list, by the next thing"),
    ("r", "the other way round"),
    ("w", "go to the zone that the single writer serves"),
    ("+  -", "look more often, less often: 100 ms to 10 s"),
    ("space", "pause, go on"),
    ("Ctrl-L  Ctrl-Z", "draw again; suspend"),
];

/// The intervals between samples that + and - select, in milliseconds.
const INTERVALS: [u64; 7] = [100, 200, 500, 1000, 2000, 5000, 10_000];

/// The caller's task after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyEffect {
    /// Draw.
    Draw,
    /// Draw, and take a sample as soon as possible, because the view shows other things.
    Sample,
    /// Clear the screen and draw all of it.
    Redraw,
    /// Stop as a job of the shell.
    Suspend,
}

impl Model {
    /// Handles a key.
    pub(crate) fn key(&mut self, key: KeyEvent) -> KeyEffect {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => {
                self.quits = true;
                return KeyEffect::Draw;
            }
            KeyCode::Char('l') if control => return KeyEffect::Redraw,
            KeyCode::Char('z') if control => return KeyEffect::Suspend,
            _ if control => return KeyEffect::Draw,
            _ => {}
        }
        if self.help {
            self.help = false;
            return KeyEffect::Draw;
        }
        match key.code {
            KeyCode::Char('q') => self.quits = true,
            KeyCode::Char('?') => self.help = true,
            KeyCode::Char(']') | KeyCode::Tab => return self.step_disk(1),
            KeyCode::Char('[') | KeyCode::BackTab => return self.step_disk(-1),
            KeyCode::Left | KeyCode::Char('h') => self.step(-1),
            KeyCode::Right | KeyCode::Char('l') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-self.line()),
            KeyCode::Down | KeyCode::Char('j') => self.step(self.line()),
            KeyCode::PageUp => self.step(-self.line() * 8),
            KeyCode::PageDown => self.step(self.line() * 8),
            KeyCode::Home => self.step(i64::MIN),
            KeyCode::End => self.step(i64::MAX),
            KeyCode::Enter => return self.open_cell(),
            KeyCode::Esc | KeyCode::Backspace => return self.back(),
            KeyCode::Char('m') => self.heat = next(&Heat::ALL, self.heat),
            KeyCode::Char('v') => {
                self.pane = if self.pane == Pane::Map { Pane::List } else { Pane::Map };
            }
            KeyCode::Char('s') if self.pane == Pane::List => {
                self.zone_sort = next(&ZoneSort::ALL, self.zone_sort);
            }
            KeyCode::Char('s') => {
                self.sort = next(&Sort::ALL, self.sort);
                self.sort();
            }
            KeyCode::Char('r') => {
                self.reverse = !self.reverse;
                self.sort();
            }
            KeyCode::Char('w') => return self.go_to_writer(),
            KeyCode::Char('+') => self.pace(-1),
            KeyCode::Char('-') => self.pace(1),
            KeyCode::Char(' ') => {
                self.paused = !self.paused;
                return KeyEffect::Sample;
            }
            _ => {}
        }
        KeyEffect::Draw
    }

    fn step_disk(&mut self, by: i64) -> KeyEffect {
        let n = self.disks.len() as i64;
        if n > 0 {
            let at = self.disks.iter().position(|d| Some(&d.key) == self.selected.as_ref());
            let to = (at.unwrap_or(0) as i64 + by).rem_euclid(n) as usize;
            self.select(self.disks.get(to).map(|d| d.key.clone()));
        }
        KeyEffect::Sample
    }

    /// Number of cells from one line to the next.
    fn line(&self) -> i64 {
        match self.pane {
            Pane::Map => i64::from(self.room.0.max(1)),
            Pane::List => 1,
        }
    }

    fn step(&mut self, by: i64) {
        let last = self.map.cells.len() as i64 - 1;
        if last < 0 {
            return;
        }
        if self.pane == Pane::Map {
            let to = i64::from(self.cursor).saturating_add(by);
            // A step up or down stays in its column, or does nothing.
            let is_step = by.unsigned_abs() == self.line() as u64 && by.abs() != 1;
            if !is_step || (0..=last).contains(&to) {
                self.cursor = to.clamp(0, last) as u32;
            }
        } else {
            let list = self.listed();
            let at = list.iter().position(|(i, _)| *i == self.cursor).unwrap_or(0) as i64;
            let to = at.saturating_add(by).clamp(0, last) as usize;
            self.cursor = list.get(to).map_or(0, |(i, _)| *i);
        }
    }

    fn open_cell(&mut self) -> KeyEffect {
        if self.map.cells.is_empty() || self.selected.as_ref() != Some(&self.map.key) {
            return KeyEffect::Draw;
        }
        let zones = self.map.table.zones_of(self.cursor);
        if zones.len() > 1 {
            self.zoom.push(zones);
            (self.cursor, self.look) = (0, None);
        } else {
            self.look = Some(Look { zone: zones.start, ..Look::default() });
        }
        KeyEffect::Sample
    }

    fn back(&mut self) -> KeyEffect {
        if self.look.take().is_none()
            && let Some(zones) = self.zoom.pop()
        {
            let outer = self.range();
            let cells = (u32::from(self.room.0) * u32::from(self.room.1)).max(1);
            let per_cell = (outer.len() as u32).div_ceil(cells).max(1);
            self.cursor = zones.start.saturating_sub(outer.start) / per_cell;
        }
        KeyEffect::Sample
    }

    /// Shows the zone whose turn it is, of the first single writer that has one.
    fn go_to_writer(&mut self) -> KeyEffect {
        let turn = self.map.table.writers.iter().find_map(|w| w.turn);
        if let Some(zone) = turn.filter(|_| self.selected.as_ref() == Some(&self.map.key)) {
            self.look = Some(Look { zone, ..Look::default() });
            let table = &self.map.table;
            if let Some(offset) = zone.checked_sub(table.first).filter(|o| *o < table.zones) {
                self.cursor = offset / table.per_cell.max(1);
            }
        }
        KeyEffect::Sample
    }

    fn pace(&mut self, by: i64) {
        let at =
            INTERVALS.iter().position(|i| *i >= self.interval_ms).unwrap_or(INTERVALS.len() - 1);
        let to = (at as i64 + by).clamp(0, INTERVALS.len() as i64 - 1) as usize;
        self.interval_ms = INTERVALS.get(to).copied().unwrap_or(1000);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{sample, trouble};
    use super::*;
    use std::time::Duration;

    fn press(m: &mut Model, keys: &str) -> KeyEffect {
        let mut effect = KeyEffect::Draw;
        for c in keys.chars() {
            let code = match c {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                '>' => KeyCode::End,
                c => KeyCode::Char(c),
            };
            effect = m.key(KeyEvent::new(code, KeyModifiers::NONE));
        }
        effect
    }

    /// A model after two samples of disks with 96 zones, in 8 cells of 12 zones.
    fn model() -> Model {
        let mut m = Model { room: (4, 2), ..Model::new(1000) };
        m.see(sample(1, 0..96, 8, None));
        m.selected = Some("tcp4420n1".to_owned());
        m.see(sample(2, 0..96, 8, None));
        m
    }

    /// Gives the model the sample that it wants.
    fn again(m: &mut Model, n: u64) {
        let want = m.want();
        m.see(sample(n, want.zones, want.cells, want.zone));
    }

    #[test]
    fn enter_goes_from_a_cell_to_its_zones_to_a_zone_and_escape_back() {
        let mut m = model();
        assert_eq!((m.map.cells.len(), m.map.table.per_cell), (8, 12));
        press(&mut m, "lj");
        assert_eq!(m.cursor, 5);
        // Another step down would leave the map.
        press(&mut m, "j");
        assert_eq!(m.cursor, 5);
        press(&mut m, "hh");
        assert_eq!(press(&mut m, "\n"), KeyEffect::Sample);
        assert_eq!((m.range(), m.look.is_some()), (36..48, false));
        again(&mut m, 3);
        assert_eq!(m.map.table.per_cell, 2);
        press(&mut m, "l\n");
        assert_eq!(m.range(), 38..40);
        again(&mut m, 4);
        press(&mut m, "l\n");
        assert_eq!(m.want().zone, Some(39));
        again(&mut m, 5);
        again(&mut m, 6);
        let look = m.look.clone().unwrap();
        assert_eq!(look.now.map(|(_, z)| z.waiting), Some(4));
        assert_eq!(look.rates, [f64::from(1 << 20)]);
        assert_eq!(look.changes.len(), 1);
        press(&mut m, "\x1b");
        assert_eq!((m.look.is_none(), m.range()), (true, 38..40));
        press(&mut m, "\x1b");
        assert_eq!((m.range(), m.cursor), (36..48, 1));
        press(&mut m, "\x1b\x1b\x1b");
        assert_eq!((m.range(), m.cursor), (0..96, 3));
        // The view of another disk starts with all of its zones.
        again(&mut m, 7);
        press(&mut m, "\n");
        assert_eq!(m.range(), 36..48);
        press(&mut m, "]");
        assert!(m.zoom.is_empty());
    }

    #[test]
    fn disks_are_sorted_and_chosen() {
        let mut m = model();
        let names = |m: &Model| m.disks.iter().map(|d| d.shown.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&m), ["ublkb0", "tcp4420n1"]);
        press(&mut m, "s");
        assert_eq!((m.sort, names(&m)), (Sort::Iops, vec!["tcp4420n1".into(), "ublkb0".into()]));
        press(&mut m, "r");
        assert_eq!(names(&m), ["ublkb0", "tcp4420n1"]);
        press(&mut m, "]");
        assert_eq!(m.selected.as_deref(), Some("ublkb0"));
        // The model still has the zones of the other disk, so the key has no effect.
        press(&mut m, "\n");
        assert!(m.zoom.is_empty() && m.look.is_none());
        press(&mut m, "[");
        assert_eq!(m.selected.as_deref(), Some("tcp4420n1"));
    }

    #[test]
    fn the_list_is_sorted_and_walked_in_its_order() {
        let mut m = model();
        m.room = (96, 1);
        again(&mut m, 3);
        again(&mut m, 4);
        press(&mut m, "v");
        let first = |m: &Model| m.listed().iter().map(|(i, _)| *i).take(3).collect::<Vec<_>>();
        assert_eq!((m.zone_sort, first(&m)), (ZoneSort::Waiting, vec![42, 41, 40]));
        m.cursor = 42;
        press(&mut m, "jj");
        assert_eq!(m.cursor, 40);
        press(&mut m, "s");
        assert_eq!((m.zone_sort, first(&m)), (ZoneSort::Rate, vec![33, 34, 35]));
        press(&mut m, "ss>");
        assert_eq!((m.zone_sort, m.cursor), (ZoneSort::Number, 95));
        press(&mut m, "r");
        assert_eq!(first(&m), [95, 94, 93]);
    }

    #[test]
    fn the_zone_of_the_single_writer_is_one_key_away() {
        let mut m = model();
        press(&mut m, "w");
        assert_eq!((m.want().zone, m.cursor), (Some(40), 3));
    }

    #[test]
    fn pause_holds_everything_and_the_pace_has_bounds() {
        let mut m = model();
        press(&mut m, " ");
        again(&mut m, 9);
        assert_eq!(m.at, Duration::from_secs(2));
        press(&mut m, " ");
        again(&mut m, 9);
        assert_eq!(m.at, Duration::from_secs(9));
        press(&mut m, "+++++++");
        assert_eq!(m.interval_ms, 100);
        press(&mut m, "---------");
        assert_eq!(m.interval_ms, 10_000);
        assert!(!m.quits);
        press(&mut m, "?q");
        assert!(!m.quits && !m.help, "a key closes the help, and does nothing else");
        press(&mut m, "q");
        assert!(m.quits);
    }

    /// A server ends, and another process serves the disk again.
    #[test]
    fn a_disk_that_goes_and_comes_back_keeps_its_place() {
        let mut m = model();
        press(&mut m, "\n");
        let mut none = sample(3, 0..1, 1, None);
        (none.disks, none.zones, none.trouble) = (Vec::new(), None, Some(trouble("gone")));
        m.see(none);
        assert!(m.disks.iter().all(|d| d.gone) && m.trouble.is_some());
        assert_eq!(m.disk().unwrap().shown.name, "tcp4420n1");
        let mut back = sample(1, 0..12, 8, None);
        back.at = Duration::from_secs(9);
        back.disks.iter_mut().for_each(|d| d.shown.pid += 1);
        m.see(back);
        let d = m.disk().unwrap();
        assert!(!d.gone && d.rates.is_none() && m.trouble.is_none());
        assert_eq!(m.range(), 0..12, "the map still shows the part that it showed");
    }
}
