//! The content of the medium at a power cut, and what the cut may leave of it.
//!
//! The rules are those of the fault layer (`FaultDisk::power_cut`). A sequential zone keeps a
//! prefix of its written data, at least what a flush or FUA covers. Each block of a conventional
//! zone that no flush covers holds the data of one of the writes since the flush, or the data
//! before them. Resets and finishes are durable when they are acknowledged; a command in flight may
//! have been carried out or not. Open zones are closed.

use super::record::{Change, Tape, TapeEvent};
use std::collections::BTreeMap;
use std::sync::Arc;
use zoneplug_core::bio::{Flags, Op};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Error, Random, Sector, ZoneNo};
use zoneplug_devices::emu::{EmuConfig, EmuDisk};

/// Bytes of a sector.
const SECTOR: usize = 512;

/// A power cut: its moment and its random choices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cut {
    /// The number of events before the cut.
    pub(super) point: usize,
    /// 0: all data that are not durable are lost. 1: all data stay. Otherwise the seed of random
    /// choices.
    pub(super) draw: u64,
    /// Sectors that these zones keep, whatever the draw says.
    pub(super) keep: BTreeMap<u32, u32>,
}

/// A sequential zone.
#[derive(Debug, Clone, Default)]
struct Zone {
    data: Vec<u8>,
    /// Acknowledged sectors.
    acknowledged: u32,
    /// Durable sectors.
    durable: u32,
    finished: bool,
}

impl Zone {
    fn written(&self) -> u32 {
        (self.data.len() / SECTOR) as u32
    }
}

/// A write to a conventional zone that no flush covers.
#[derive(Debug, Clone)]
struct Unflushed {
    sector: Sector,
    data: Vec<u8>,
    /// The event of its acknowledgement.
    acknowledged: Option<usize>,
}

/// The medium.
#[derive(Debug, Clone)]
pub(super) struct Image {
    zones: Vec<Zone>,
    /// Durable data of conventional zones.
    settled: BTreeMap<u32, Vec<u8>>,
    unflushed: Vec<Unflushed>,
}

/// The loss of a zone in a cut, in sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) zone: u32,
    pub(super) written: u32,
    pub(super) durable: u32,
    pub(super) kept: u32,
}

/// The writes that a flush in flight covers.
struct Covered {
    acknowledged: Vec<u32>,
    at: usize,
}

impl Image {
    /// An empty disk.
    pub(super) fn empty(g: &Geometry) -> Image {
        let zones = vec![Zone::default(); g.nr_zones() as usize];
        Image { zones, settled: BTreeMap::new(), unflushed: Vec::new() }
    }

    /// Applies the first `cut.point` events of the tape. Zone management in flight is carried out or
    /// not, as the draw says; writes in flight are, and [`Image::cut`] decides what stays of them.
    pub(super) fn after(mut self, g: &Geometry, tape: &Tape, cut: &Cut) -> Image {
        let mut chance = cut.chance(1);
        let mut covers: BTreeMap<usize, Covered> = BTreeMap::new();
        for (at, event) in tape.events.iter().take(cut.point).enumerate() {
            match *event {
                TapeEvent::Sent(nr) => {
                    let change = &tape.changes[nr];
                    // A command that the device refused changed nothing.
                    if change.done.is_some_and(|(_, status)| !status.is_ok()) {
                        continue;
                    }
                    if change.op == Op::Flush || change.flags.contains(Flags::PREFLUSH) {
                        let acknowledged = self.zones.iter().map(|z| z.acknowledged).collect();
                        covers.insert(nr, Covered { acknowledged, at });
                    }
                    let known = change.done.is_some_and(|(done, _)| done < cut.point);
                    let manages = change.op.is_zone_management();
                    if known || !manages || chance.as_mut().map_or(cut.draw == 1, |c| c.one_in(2)) {
                        self.carry_out(g, change);
                    }
                }
                TapeEvent::Done(nr) => {
                    if tape.changes[nr].done.is_some_and(|(_, status)| status.is_ok()) {
                        self.acknowledge(g, &tape.changes[nr], at, covers.remove(&nr));
                    }
                }
            }
        }
        self
    }

    fn carry_out(&mut self, g: &Geometry, c: &Change) {
        let (zone, offset) = g.zone_of(c.sector);
        let len = c.len_sectors as usize * SECTOR;
        match c.op {
            Op::ZoneResetAll => {
                for n in (0..g.nr_zones()).filter(|n| !g.is_conventional(ZoneNo(*n))) {
                    self.zones[n as usize] = Zone::default();
                }
            }
            Op::ZoneReset | Op::ZoneFinish => {
                let end = c.sector.plus(u64::from(c.len_sectors));
                for n in zone.0..g.nr_zones() {
                    if g.zone_start(ZoneNo(n)) >= end {
                        break;
                    }
                    match c.op {
                        Op::ZoneReset => self.zones[n as usize] = Zone::default(),
                        _ => self.zones[n as usize].finished = true,
                    }
                }
            }
            Op::Write | Op::ZoneAppend | Op::WriteZeroes | Op::Discard => {
                let mut data = c.data.clone();
                data.resize(len, 0);
                if g.is_conventional(zone) {
                    self.unflushed.push(Unflushed { sector: c.sector, data, acknowledged: None });
                    return;
                }
                let there = &mut self.zones[zone.0 as usize].data;
                let from = offset as usize * SECTOR;
                there.resize(there.len().max(from + len), 0);
                there[from..from + len].copy_from_slice(&data);
            }
            _ => {}
        }
    }

    fn acknowledge(&mut self, g: &Geometry, c: &Change, at: usize, covers: Option<Covered>) {
        if let Some(covers) = covers {
            for (zone, to) in self.zones.iter_mut().zip(covers.acknowledged) {
                zone.durable = zone.durable.max(to.min(zone.written()));
            }
            self.make_durable(g, covers.at);
        }
        let (zone, offset) = g.zone_of(c.sector);
        match c.op {
            Op::Write | Op::ZoneAppend | Op::WriteZeroes | Op::Discard => {
                let fua = c.flags.contains(Flags::FUA);
                if g.is_conventional(zone) {
                    let same =
                        |l: &&mut Unflushed| l.sector == c.sector && l.acknowledged.is_none();
                    if let Some(unflushed) = self.unflushed.iter_mut().find(same) {
                        unflushed.acknowledged = Some(at);
                    }
                    if fua {
                        self.make_durable(g, at + 1);
                    }
                } else {
                    let zone = &mut self.zones[zone.0 as usize];
                    zone.acknowledged = zone.acknowledged.max(offset + c.len_sectors);
                    if fua {
                        zone.durable = zone.durable.max(offset + c.len_sectors);
                    }
                }
            }
            Op::ZoneFinish => {
                let zone = &mut self.zones[zone.0 as usize];
                (zone.acknowledged, zone.durable) = (zone.written(), zone.written());
            }
            _ => {}
        }
    }

    /// Makes durable the writes to conventional zones that were acknowledged before event `before`.
    fn make_durable(&mut self, g: &Geometry, before: usize) {
        let durable = |l: &Unflushed| l.acknowledged.is_some_and(|at| at < before);
        // Up to the last durable write: earlier writes are overwritten or durable too.
        let last = self.unflushed.iter().rposition(durable).map_or(0, |i| i + 1);
        let (settled, rest): (Vec<_>, Vec<_>) =
            self.unflushed.drain(..).enumerate().partition(|(i, l)| *i < last && durable(l));
        for (_, unflushed) in settled {
            put(&mut self.settled, g, unflushed.sector, &unflushed.data);
        }
        self.unflushed = rest.into_iter().map(|(_, l)| l).collect();
    }

    /// Cuts the power: what is left is all durable. Also returns the losses of zones.
    pub(super) fn cut(mut self, config: &EmuConfig, cut: &Cut) -> (Image, Vec<Loss>) {
        let g = &config.geometry;
        let unit = config.limits.write_granularity_sectors;
        let mut chance = cut.chance(2);
        let mut losses = Vec::new();
        for (n, zone) in (0..).zip(&mut self.zones) {
            let (written, durable) = (zone.written(), zone.durable);
            let kept = match (&mut chance, cut.keep.get(&n)) {
                (_, Some(keep)) => (*keep).clamp(durable, written),
                (None, None) => {
                    if cut.draw == 0 {
                        durable
                    } else {
                        written
                    }
                }
                (Some(chance), None) => {
                    let keep = match chance.below(4) {
                        0 => durable,
                        1 => written,
                        _ => chance.range(durable / unit, written / unit) * unit,
                    };
                    keep.clamp(durable, written)
                }
            };
            // A full zone that loses data becomes active. Where active zones are limited, a full
            // zone keeps all or nothing.
            let full = zone.finished || written == g.capacity_of(ZoneNo(n));
            let limited = full && config.limits.max_active_zones != 0;
            let kept = if limited && kept > 0 { written } else { kept };
            if kept < written {
                losses.push(Loss { zone: n, written, durable, kept });
                zone.data.truncate(kept as usize * SECTOR);
                zone.finished = false;
            }
            (zone.acknowledged, zone.durable) = (kept, kept);
        }
        let block = config.limits.logical_block_sectors as usize * SECTOR;
        for unflushed in std::mem::take(&mut self.unflushed) {
            for (i, part) in unflushed.data.chunks(block).enumerate() {
                if chance.as_mut().map_or(cut.draw == 1, |c| c.one_in(2)) {
                    let at = unflushed.sector.plus((i * block / SECTOR) as u64);
                    put(&mut self.settled, g, at, part);
                }
            }
        }
        (self, losses)
    }

    /// A disk with this content.
    pub(super) fn disk(&self, config: &EmuConfig) -> Result<Arc<EmuDisk>, Error> {
        let disk = EmuDisk::new(config.clone())?;
        let g = &config.geometry;
        for (n, zone) in (0..).map(ZoneNo).zip(&self.zones) {
            let wp = if zone.finished { g.capacity_of(n) } else { zone.written() };
            if wp > 0 {
                disk.set_write_pointer(n, wp);
                disk.set_data(g.zone_start(n), &zone.data);
            }
        }
        for (n, data) in &self.settled {
            disk.set_data(g.zone_start(ZoneNo(*n)), data);
        }
        Ok(disk)
    }
}

fn put(settled: &mut BTreeMap<u32, Vec<u8>>, g: &Geometry, sector: Sector, data: &[u8]) {
    let (zone, offset) = g.zone_of(sector);
    let there = settled.entry(zone.0).or_default();
    let from = offset as usize * SECTOR;
    there.resize(there.len().max(from + data.len()), 0);
    there[from..from + data.len()].copy_from_slice(data);
}

impl Cut {
    /// The random generator of one kind of decision.
    fn chance(&self, kind: u64) -> Option<Random> {
        let seed = self.draw.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (self.point as u64) << 8 ^ kind;
        (self.draw > 1).then(|| Random::new(seed))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::record::{Recorded, Recorder};
    use super::*;
    use zoneplug_buf::AlignedBuf;
    use zoneplug_core::disk::DiskConfig;
    use zoneplug_devices::stack::{FaultDisk, FaultPlan};
    use zoneplug_host::{BlockingDisk, HostedDisk};

    /// A flush covers the writes acknowledged when it was sent, a write with FUA covers itself, and
    /// both only once acknowledged.
    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it() {
        use TapeEvent::{Done, Sent};
        let config: EmuConfig = "mem,zones=4,zone-size=64K".parse().unwrap();
        let change = |op, flags, sector| Change {
            op,
            flags,
            sector: Sector(sector),
            len_sectors: 8,
            data: if op == Op::Write { vec![1; 4096] } else { Vec::new() },
            done: None,
        };
        let durable = |flags, events: &[TapeEvent]| {
            let writes = [change(Op::Write, flags, 0), change(Op::Write, Flags::NONE, 128)];
            let mut changes = writes.to_vec();
            changes.push(change(Op::Flush, Flags::NONE, 0));
            for (at, event) in events.iter().enumerate() {
                if let Done(nr) = event {
                    changes[*nr].done = Some((at, zoneplug_core::Status::Ok));
                }
            }
            let tape = Tape { changes, events: events.to_vec() };
            let cut = Cut { point: events.len(), draw: 0, keep: BTreeMap::new() };
            let image = Image::empty(&config.geometry).after(&config.geometry, &tape, &cut);
            let kept =
                image.cut(&config, &cut).0.zones.iter().map(Zone::written).collect::<Vec<_>>();
            (kept[0], kept[1])
        };
        let none = Flags::NONE;
        assert_eq!(durable(none, &[Sent(0), Done(0), Sent(2), Done(2)]), (8, 0));
        assert_eq!(durable(none, &[Sent(0), Done(0), Sent(2)]), (0, 0));
        assert_eq!(durable(none, &[Sent(0), Sent(2), Done(0), Done(2)]), (0, 0));
        assert_eq!(durable(none, &[Sent(0), Done(0), Sent(2), Sent(1), Done(1), Done(2)]), (8, 0));
        assert_eq!(durable(Flags::FUA, &[Sent(0), Sent(1), Done(0), Done(1)]), (8, 0));
        assert_eq!(durable(Flags::FUA, &[Sent(0), Sent(1), Done(1)]), (0, 0));
        // A preflush covers the writes acknowledged before it, not the write that carries it.
        assert_eq!(durable(Flags::PREFLUSH, &[Sent(1), Done(1), Sent(0), Done(0)]), (0, 8));
    }

    /// The power cut of the fault layer leaves what this module allows, and both reach both
    /// extremes.
    #[test]
    fn a_cut_is_that_of_the_fault_layer() {
        let config: EmuConfig = "mem,zones=5,zone-size=64K,conv=1".parse().unwrap();
        let g = config.geometry;
        let (mut least, mut most) = (0, 0);
        for seed in 0..200 {
            let mut r = Random::new(seed);
            let emu = EmuDisk::new(config.clone()).unwrap();
            let faults =
                FaultDisk::new(emu.clone(), &FaultPlan { rules: Vec::new(), seed }).unwrap();
            faults.watch_cache().unwrap();
            let recorder = Recorder::default();
            let device = Recorded::new(faults.clone(), recorder.clone());
            let disk = HostedDisk::open(device, DiskConfig::default()).unwrap();
            let mut io = BlockingDisk::new(&disk).unwrap();
            for n in 0..20u8 {
                let start = g.zone_start(ZoneNo(1 + r.below(4)));
                match r.below(12) {
                    0 => io.flush().unwrap(),
                    1 => io.reset(start, 128).unwrap(),
                    2 => io.finish(start, 128).unwrap(),
                    _ => {
                        let mut buf = AlignedBuf::zeroed(4096 * (1 + r.below(3)));
                        buf.write(0, &[n + 1; 4096]);
                        // A full zone refuses the append, which changes nothing.
                        let _ = io.append(start, buf);
                    }
                }
            }
            drop(io);
            let tape = recorder.take();
            faults.power_cut().unwrap();
            let all = Cut { point: tape.events.len(), draw: 1, keep: BTreeMap::new() };
            let image = Image::empty(&g).after(&g, &tape, &all);
            let disk = HostedDisk::open(emu, DiskConfig::default()).unwrap();
            let mut io = BlockingDisk::new(&disk).unwrap();
            for (n, zone) in (0..).zip(&image.zones).skip(1) {
                let start = g.zone_start(ZoneNo(n));
                let info = io.report(start, 1).unwrap()[0];
                let found = io.read(start, 128).unwrap().to_vec();
                let wp = (info.wp.0 - start.0) as u32;
                if zone.finished {
                    assert_eq!(wp, 128, "seed {seed}, zone {n}");
                    assert_eq!(found[..zone.data.len()], zone.data, "seed {seed}, zone {n}");
                    continue;
                }
                let (durable, written) = (zone.durable, zone.written());
                assert!(
                    (durable..=written).contains(&wp),
                    "seed {seed}, zone {n}: {wp} of {zone:?}"
                );
                let kept = wp as usize * SECTOR;
                assert_eq!(found[..kept], zone.data[..kept], "seed {seed}, zone {n}");
                if durable < written {
                    (least, most) =
                        (least + u32::from(wp == durable), most + u32::from(wp == written));
                }
            }
        }
        assert!(least > 20 && most > 20, "{least} times nothing, {most} times all");
    }
}
