//! A compact table of zones, for a map: each cell is one or several zones, and each property is a column.

use serde::{Deserialize, Serialize};
use zoneplug_core::zone::Condition;

/// Most cells of an answer. Its line is then about 100 KB long.
pub const MOST_CELLS: u32 = 8192;

/// Conditions with their letters, those that deserve most attention first. `None`: the write pointer is unknown.
const LETTERS: [(Option<Condition>, char); 10] = [
    (None, 's'),
    (Some(Condition::Offline), 'x'),
    (Some(Condition::ReadOnly), 'r'),
    (Some(Condition::ExpOpen), 'o'),
    (Some(Condition::ImpOpen), 'i'),
    (Some(Condition::Closed), 'c'),
    (Some(Condition::Active), 'a'),
    (Some(Condition::Full), 'f'),
    (Some(Condition::NotWp), 'n'),
    (Some(Condition::Empty), 'e'),
];

/// Zones of a disk. Each list has an element for each cell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ZonesShown {
    /// The first zone, and the number of zones.
    pub first: u32,
    pub zones: u32,
    /// Zones in a cell. The last cell may have fewer.
    pub per_cell: u32,
    /// Letters: `e`mpty, implicitly open (`i`), explicitly `o`pen, `c`losed, `a`ctive (open or closed), `f`ull,
    /// conventional (`n`, no write pointer), `r`ead-only, offline (`x`), `s`tale (unknown write pointer). A cell of
    /// several zones has the letter that deserves most attention.
    pub conditions: String,
    /// Sectors before the write pointers of sequential zones, and the capacity of these zones. A full zone counts as
    /// written to its capacity.
    pub written_sectors: Vec<u64>,
    pub capacity_sectors: Vec<u64>,
    /// BIOs that wait in plugs, and writes at the device.
    pub waiting: Vec<u32>,
    pub in_flight: Vec<u32>,
    /// Requests that wait in the scheduler of the whole disk.
    pub scheduled: u32,
    /// The single writers of the disk, one for each spindle.
    pub writers: Vec<WriterShown>,
}

/// A single writer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WriterShown {
    pub spindle: usize,
    /// The zone that has its turn.
    pub turn: Option<u32>,
    /// Number of zones that wait for their turns.
    pub listed: u32,
    /// Number of turns since the disk was opened, and of those that a deadline ended.
    pub turns: u64,
    pub cut_off: u64,
    /// The longest time that a zone has waited for its turn.
    pub longest_wait_ns: u64,
}

/// A zone or a cell of zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneShown {
    /// `None`: the write pointer is unknown.
    pub condition: Option<Condition>,
    pub written_sectors: u64,
    pub capacity_sectors: u64,
    pub waiting: u32,
    pub in_flight: u32,
}

fn rank(condition: Option<Condition>) -> usize {
    LETTERS.iter().position(|(c, _)| *c == condition).unwrap_or(LETTERS.len() - 1)
}

impl ZonesShown {
    /// An empty table for `zones` zones from `first` on, in at most `cells` cells. The caller adds the zones in
    /// order.
    pub fn new(first: u32, zones: u32, cells: u32) -> ZonesShown {
        let per_cell = zones.div_ceil(cells.clamp(1, MOST_CELLS)).max(1);
        ZonesShown { first, per_cell, ..ZonesShown::default() }
    }

    /// Adds the next zone.
    pub fn push(&mut self, z: ZoneShown) {
        let letter = LETTERS[rank(z.condition)].1;
        let room = if z.condition == Some(Condition::NotWp) { 0 } else { z.capacity_sectors };
        let written = z.written_sectors.min(room);
        let begins = self.zones.is_multiple_of(self.per_cell.max(1));
        self.zones += 1;
        if begins {
            self.conditions.push(letter);
            self.written_sectors.push(written);
            self.capacity_sectors.push(room);
            self.waiting.push(z.waiting);
            self.in_flight.push(z.in_flight);
            return;
        }
        if let Some(last) = self.conditions.pop() {
            self.conditions.push(if rank(z.condition) < rank(of_letter(last)) {
                letter
            } else {
                last
            });
        }
        add(&mut self.written_sectors, written);
        add(&mut self.capacity_sectors, room);
        add(&mut self.waiting, z.waiting);
        add(&mut self.in_flight, z.in_flight);
    }

    /// The cells.
    pub fn cells(&self) -> impl Iterator<Item = ZoneShown> + '_ {
        let n = |list: &[u32], i: usize| list.get(i).copied().unwrap_or(0);
        let long = |list: &[u64], i: usize| list.get(i).copied().unwrap_or(0);
        self.conditions.chars().enumerate().map(move |(i, letter)| ZoneShown {
            condition: of_letter(letter),
            written_sectors: long(&self.written_sectors, i),
            capacity_sectors: long(&self.capacity_sectors, i),
            waiting: n(&self.waiting, i),
            in_flight: n(&self.in_flight, i),
        })
    }

    /// The zones of a cell.
    pub fn zones_of(&self, cell: u32) -> std::ops::Range<u32> {
        let first = self.first.saturating_add(cell.saturating_mul(self.per_cell));
        first..first.saturating_add(self.per_cell).min(self.first.saturating_add(self.zones))
    }
}

fn add<T: Copy + std::ops::Add<Output = T>>(list: &mut [T], n: T) {
    if let Some(last) = list.last_mut() {
        *last = *last + n;
    }
}

/// The condition of a letter. An unknown letter is from a newer server, and is shown like an unknown write pointer.
fn of_letter(letter: char) -> Option<Condition> {
    LETTERS.iter().find(|(_, l)| *l == letter).and_then(|(c, _)| *c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(condition: Option<Condition>, written: u64, waiting: u32) -> ZoneShown {
        ZoneShown {
            condition,
            written_sectors: written,
            capacity_sectors: 100,
            waiting,
            in_flight: u32::from(waiting > 0),
        }
    }

    #[test]
    fn cells_have_the_most_pressing_condition_and_sums() {
        use Condition::{Empty, Full, NotWp, Offline};
        let mut table = ZonesShown::new(4, 7, 3);
        let all = [
            zone(Some(Empty), 0, 0),
            zone(Some(Full), 2048, 0),
            zone(Some(NotWp), 0, 0),
            zone(Some(Empty), 0, 2),
            zone(None, 7, 3),
            zone(Some(Offline), 0, 0),
            zone(Some(Empty), 0, 0),
        ];
        all.into_iter().for_each(|z| table.push(z));
        assert_eq!((table.per_cell, &*table.conditions), (3, "fse"));
        // A conventional zone has no write pointer and no room; a full zone is written to its capacity.
        assert_eq!(table.written_sectors, [100, 7, 0]);
        assert_eq!(table.capacity_sectors, [200, 300, 100]);
        assert_eq!(
            (table.waiting.clone(), table.in_flight.clone()),
            (vec![0, 5, 0], vec![0, 2, 0])
        );
        assert_eq!((table.zones_of(0), table.zones_of(2)), (4..7, 10..11));
        assert_eq!(table.cells().nth(1).map(|c| (c.condition, c.waiting)), Some((None, 5)));
    }

    /// Even for a very large disk, the answer is much shorter than the longest line that a client reads.
    #[test]
    fn an_answer_is_short_whatever_the_disk() {
        let mut table = ZonesShown::new(0, 1_000_000, u32::MAX);
        for _ in 0..1_000_000 {
            table.push(ZoneShown {
                condition: Some(Condition::Active),
                written_sectors: 1 << 32,
                capacity_sectors: 1 << 32,
                waiting: 65_535,
                in_flight: 65_535,
            });
        }
        assert_eq!(table.per_cell, 123);
        let line = serde_json::to_string(&table).unwrap();
        assert!(line.len() < 1 << 20, "{}", line.len());
        let back: ZonesShown = serde_json::from_str(&line).unwrap();
        assert_eq!(back, table);
    }
}
