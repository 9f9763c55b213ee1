//! The state of `zoneplug top`: disks with their rates, the part of a disk that its map shows, and the zone in the
//! detail view. Samples and keys change it; it reads no clock, socket or terminal.

use super::rates::Rates;
use crate::failure::Failure;
use crate::server_client::Shown;
use crate::server_client::zones::{ZoneShown, ZonesShown};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// Most changes and rates that are kept of the zone in the detail view.
const HISTORY: usize = 240;

/// The state of the disks at one time.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// Time since the start of the command.
    pub(crate) at: Duration,
    pub(crate) disks: Vec<DiskSample>,
    /// The error of a server or a disk that could not be read.
    pub(crate) trouble: Option<Failure>,
    /// The zones of the selected disk.
    pub(crate) zones: Option<ZonesSample>,
}

/// A disk in a sample.
#[derive(Debug, Clone)]
pub(crate) struct DiskSample {
    /// Identifies the disk from sample to sample, even if another process serves it later.
    pub(crate) key: String,
    pub(crate) shown: Shown,
    /// Whether the disk has counters, because a server has it open.
    pub(crate) counts: bool,
}

/// The zones of a disk in a sample.
#[derive(Debug, Clone)]
pub(crate) struct ZonesSample {
    pub(crate) key: String,
    pub(crate) table: Result<ZonesShown, String>,
    /// The zone in the detail view.
    pub(crate) zone: Option<(u32, ZoneShown)>,
}

/// The contents of the next sample, beside the disks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) key: Option<String>,
    pub(crate) zones: Range<u32>,
    pub(crate) cells: u32,
    pub(crate) zone: Option<u32>,
}

/// A disk of the table.
#[derive(Debug, Clone)]
pub(crate) struct DiskRow {
    pub(crate) key: String,
    pub(crate) shown: Shown,
    pub(crate) counts: bool,
    pub(crate) rates: Option<Rates>,
    /// Time of the last sample with this disk.
    pub(crate) seen: Duration,
    pub(crate) gone: bool,
}

/// The order of the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Sort {
    #[default]
    Name,
    Iops,
    Bytes,
    P99,
    Waiting,
    Errors,
}

impl Sort {
    pub(crate) const ALL: [Sort; 6] =
        [Sort::Name, Sort::Iops, Sort::Bytes, Sort::P99, Sort::Waiting, Sort::Errors];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Iops => "I/O per second",
            Sort::Bytes => "bytes per second",
            Sort::P99 => "p99",
            Sort::Waiting => "waiting BIOs",
            Sort::Errors => "errors",
        }
    }

    fn of(self, d: &DiskRow) -> f64 {
        let rate = |f: fn(&Rates) -> f64| d.rates.as_ref().map_or(0.0, f);
        match self {
            Sort::Name => 0.0,
            Sort::Iops => rate(Rates::iops),
            Sort::Bytes => rate(Rates::bytes_per_s),
            Sort::P99 => rate(|r| r.latency.p99_ns.unwrap_or(0) as f64),
            Sort::Waiting => d.shown.waiting as f64,
            Sort::Errors => d.shown.errors as f64,
        }
    }
}

/// The order of the list of zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ZoneSort {
    #[default]
    Waiting,
    Rate,
    Fill,
    Number,
}

impl ZoneSort {
    pub(crate) const ALL: [ZoneSort; 4] =
        [ZoneSort::Waiting, ZoneSort::Rate, ZoneSort::Fill, ZoneSort::Number];

    pub(crate) fn name(self) -> &'static str {
        match self {
            ZoneSort::Waiting => "waiting BIOs",
            ZoneSort::Rate => "bytes per second",
            ZoneSort::Fill => "how full",
            ZoneSort::Number => "number",
        }
    }
}

/// The meaning of the map's glyphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Heat {
    #[default]
    Fill,
    Waiting,
    Rate,
}

impl Heat {
    pub(crate) const ALL: [Heat; 3] = [Heat::Fill, Heat::Waiting, Heat::Rate];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Heat::Fill => "filled to the write pointer",
            Heat::Waiting => "waiting BIOs",
            Heat::Rate => "written per second",
        }
    }
}

/// The element after `of` in a list, in a circle.
pub(crate) fn next<T: Copy + PartialEq>(all: &[T], of: T) -> T {
    let at = all.iter().position(|x| *x == of).map_or(0, |i| (i + 1) % all.len());
    all.get(at).copied().unwrap_or(of)
}

/// A cell of the map.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cell {
    pub(crate) zone: ZoneShown,
    /// Bytes written per second, by the write pointers. `None`: not known yet.
    pub(crate) rate: Option<f64>,
}

/// The zones in the map.
#[derive(Debug, Clone, Default)]
pub(crate) struct MapData {
    pub(crate) key: String,
    pub(crate) at: Duration,
    pub(crate) table: ZonesShown,
    pub(crate) cells: Vec<Cell>,
    /// The reason if there are none.
    pub(crate) trouble: Option<String>,
    /// Turns of the single writers per second.
    pub(crate) turns_per_s: Option<f64>,
}

/// A change of the zone in the detail view.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) at: Duration,
    pub(crate) before: ZoneShown,
    pub(crate) after: ZoneShown,
}

/// The zone in the detail view.
#[derive(Debug, Clone, Default)]
pub(crate) struct Look {
    pub(crate) zone: u32,
    pub(crate) now: Option<(Duration, ZoneShown)>,
    /// Bytes written per second, the latest last.
    pub(crate) rates: VecDeque<f64>,
    pub(crate) changes: VecDeque<Change>,
}

impl Look {
    fn see(&mut self, at: Duration, zone: ZoneShown) {
        if let Some((before_at, before)) = self.now.replace((at, zone)) {
            let s = at.saturating_sub(before_at).as_secs_f64();
            self.rates.push_back(written_between(&before, &zone) / s.max(1e-9));
            let what = |z: &ZoneShown| (z.condition, z.written_sectors);
            if what(&before) != what(&zone) {
                self.changes.push_back(Change { at, before, after: zone });
            }
        }
        self.rates.drain(..self.rates.len().saturating_sub(HISTORY));
        self.changes.drain(..self.changes.len().saturating_sub(HISTORY));
    }
}

/// Bytes written to a cell between two samples, by its write pointers. Data written before a reset in between is not
/// counted.
fn written_between(before: &ZoneShown, after: &ZoneShown) -> f64 {
    let from =
        if after.written_sectors < before.written_sectors { 0 } else { before.written_sectors };
    ((after.written_sectors - from) << 9) as f64
}

/// The kind of the lower part of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Pane {
    #[default]
    Map,
    List,
}

/// The whole state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    /// The disks in the order on the screen.
    pub(crate) disks: Vec<DiskRow>,
    /// The key of the selected disk.
    pub(crate) selected: Option<String>,
    pub(crate) sort: Sort,
    pub(crate) zone_sort: ZoneSort,
    pub(crate) reverse: bool,
    pub(crate) heat: Heat,
    pub(crate) pane: Pane,
    /// The ranges of zones to which the user has narrowed the map; the last one is shown.
    pub(crate) zoom: Vec<Range<u32>>,
    /// The cell under the cursor, and the map's columns and rows in the last picture.
    pub(crate) cursor: u32,
    pub(crate) room: (u16, u16),
    pub(crate) look: Option<Look>,
    pub(crate) help: bool,
    pub(crate) paused: bool,
    pub(crate) quits: bool,
    /// Milliseconds between samples.
    pub(crate) interval_ms: u64,
    pub(crate) map: MapData,
    pub(crate) trouble: Option<String>,
    pub(crate) at: Duration,
    /// Number of samples so far.
    pub(crate) samples: u64,
}

impl Model {
    pub(crate) fn new(interval_ms: u64) -> Model {
        Model { interval_ms, room: (64, 8), ..Model::default() }
    }

    /// The selected disk.
    pub(crate) fn disk(&self) -> Option<&DiskRow> {
        self.disks.iter().find(|d| Some(&d.key) == self.selected.as_ref())
    }

    /// Zones that the map shows.
    pub(crate) fn range(&self) -> Range<u32> {
        let all = 0..self.disk().map_or(0, |d| d.shown.zones);
        self.zoom.last().cloned().unwrap_or(all)
    }

    /// The contents of the next sample.
    pub(crate) fn want(&self) -> Want {
        Want {
            key: self.selected.clone(),
            zones: self.range(),
            cells: u32::from(self.room.0) * u32::from(self.room.1),
            zone: self.look.as_ref().map(|l| l.zone),
        }
    }

    /// Updates the model with a sample.
    pub(crate) fn see(&mut self, sample: Sample) {
        if self.paused {
            return;
        }
        self.samples += 1;
        (self.at, self.trouble) = (sample.at, sample.trouble.map(|f| f.parts().what.to_owned()));
        for row in &mut self.disks {
            row.gone = true;
        }
        for d in sample.disks {
            self.see_disk(sample.at, d);
        }
        self.sort();
        if self.disk().is_none() {
            self.select(self.disks.first().map(|d| d.key.clone()));
        }
        if let Some(zones) = sample.zones {
            self.see_zones(sample.at, zones);
        }
    }

    fn see_disk(&mut self, at: Duration, d: DiskSample) {
        let DiskSample { key, shown, counts } = d;
        match self.disks.iter_mut().find(|row| row.key == key) {
            Some(row) => {
                row.rates = Rates::between(&row.shown, &shown, at.saturating_sub(row.seen))
                    .filter(|_| counts);
                (row.shown, row.counts, row.seen, row.gone) = (shown, counts, at, false);
            }
            None => {
                let seen = at;
                self.disks.push(DiskRow { key, shown, counts, rates: None, seen, gone: false });
            }
        }
    }

    fn see_zones(&mut self, at: Duration, new: ZonesSample) {
        if Some(&new.key) != self.selected.as_ref() {
            return;
        }
        match new.table {
            Ok(table) => {
                let old = &self.map;
                let s = at.saturating_sub(old.at).as_secs_f64();
                let place = |t: &ZonesShown| (t.first, t.zones, t.per_cell);
                let same = old.key == new.key && place(&old.table) == place(&table) && s > 0.0;
                let before: Vec<ZoneShown> = old.table.cells().filter(|_| same).collect();
                let mut before = before.into_iter();
                let cells = table.cells().map(|zone| Cell {
                    zone,
                    rate: before.next().map(|b| written_between(&b, &zone) / s),
                });
                let cells = cells.collect();
                let turns = |t: &ZonesShown| t.writers.iter().map(|w| w.turns).sum::<u64>();
                let turned = turns(&table).checked_sub(turns(&old.table));
                let same_disk = old.key == new.key && s > 0.0;
                let turns_per_s = turned.filter(|_| same_disk).map(|n| n as f64 / s);
                self.map = MapData { key: new.key, at, table, cells, trouble: None, turns_per_s };
                let last = (self.map.cells.len() as u32).saturating_sub(1);
                self.cursor = self.cursor.min(last);
            }
            Err(why) => {
                self.map = MapData { key: new.key, at, trouble: Some(why), ..MapData::default() };
            }
        }
        if let (Some(look), Some((zone, state))) = (&mut self.look, new.zone)
            && look.zone == zone
        {
            look.see(at, state);
        }
    }

    pub(crate) fn sort(&mut self) {
        let (sort, reverse) = (self.sort, self.reverse);
        let name = |d: &DiskRow| (d.shown.name.len(), d.shown.name.clone(), d.key.clone());
        self.disks.sort_by(|a, b| {
            let most_first = sort.of(b).total_cmp(&sort.of(a)).then_with(|| name(a).cmp(&name(b)));
            if reverse { most_first.reverse() } else { most_first }
        });
    }

    /// Selects another disk.
    pub(crate) fn select(&mut self, key: Option<String>) {
        if self.selected != key {
            (self.selected, self.look, self.cursor) = (key, None, 0);
            self.zoom.clear();
        }
    }

    /// The cells in the order of the list, each with its index in the map.
    pub(crate) fn listed(&self) -> Vec<(u32, Cell)> {
        let mut all: Vec<(u32, Cell)> = (0..).zip(self.map.cells.iter().copied()).collect();
        let fill = |c: &Cell| c.zone.written_sectors as f64 / c.zone.capacity_sectors.max(1) as f64;
        let by = |c: &Cell| match self.zone_sort {
            ZoneSort::Waiting => f64::from(c.zone.waiting),
            ZoneSort::Rate => c.rate.unwrap_or(0.0),
            ZoneSort::Fill => fill(c),
            ZoneSort::Number => 0.0,
        };
        all.sort_by(|(i, a), (j, b)| {
            let most_first = by(b).total_cmp(&by(a)).then(i.cmp(j));
            if self.reverse { most_first.reverse() } else { most_first }
        });
        all
    }
}
