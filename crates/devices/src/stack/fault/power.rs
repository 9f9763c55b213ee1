//! The volatile cache that the fault injector gives to a device without one, and the effect of a power cut on it.
//!
//! For each zone this file notes how far acknowledged writes reach, and how far a flush or FUA has made them durable.
//! For conventional zones it keeps the content before writes that no flush covers. At a power cut it makes the device
//! below forget, with ordinary commands on a queue of its own. To keep a prefix of a sequential zone it reads the
//! prefix, resets the zone, and writes the prefix again. Resets and finishes are durable when they are acknowledged.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::task::Waker;
use zoneplug_buf::{IoBuf, Parts};
use zoneplug_core::Random;
use zoneplug_core::bio::{Bio, Command, Commands, Flags, Op, Status};
use zoneplug_core::device::{Device, Queue};
use zoneplug_core::poison::lock_soon;
use zoneplug_core::unit::{Nanos, SECTOR_SHIFT, Sector, ZoneNo};
use zoneplug_core::zone::{Condition, Geometry, ZoneInfo};
use zoneplug_core::{Error, ErrorKind};

/// Bytes that are moved at a time.
const CHUNK: u32 = 64 << 10;

/// Memory that power cuts use one after the other. Memory that a device keeps is lost, and so is that of a cut which
/// finds the list locked for long.
static MEMORY: Mutex<Vec<IoBuf>> = Mutex::new(Vec::new());

/// The extent of a zone's writes, in sectors.
#[derive(Debug, Clone, Copy, Default)]
struct Reach {
    acknowledged: u32,
    durable: u32,
    /// The number of acknowledged writes.
    acks: u64,
    /// The value of `acks` when the last reset was sent. If writes were acknowledged since then, the end of the reset
    /// does not clear `acknowledged` and `durable`.
    at_reset: u64,
}

impl Reach {
    fn was_reset(&mut self) {
        if self.acks == self.at_reset {
            (self.acknowledged, self.durable) = (0, 0);
        }
    }
}

/// The content of a conventional range before a write.
#[derive(Debug)]
struct Undo {
    sector: Sector,
    old: Vec<u8>,
}

/// The cache.
#[derive(Debug)]
pub(super) struct Cache {
    zones: Vec<Reach>,
    /// Old contents, the oldest first.
    undo: Vec<Undo>,
    /// Flushes in flight: the number of each, and how far each zone was acknowledged when it was sent.
    flushes: BTreeMap<u64, (Vec<u32>, usize)>,
    next_flush: u64,
    /// The number of entries of `undo` that were dropped from the front.
    dropped: usize,
}

/// A queue that carries out one command at a time, without regard to time.
struct SerialQueue<'a> {
    device: &'a dyn Device,
    queue: Box<dyn Queue>,
    buf: IoBuf,
}

impl<'a> SerialQueue<'a> {
    fn open(device: &'a dyn Device) -> Result<SerialQueue<'a>, Error> {
        let queue = device.open_queue(1, Waker::noop().clone())?;
        let free = lock_soon(&MEMORY).and_then(|mut free| free.pop());
        Ok(SerialQueue { device, queue, buf: free.unwrap_or_else(|| IoBuf::leaked(CHUNK)) })
    }

    fn run(&mut self, c: Box<Command>) -> Result<Box<Command>, Error> {
        let mut list = Commands::from([c]);
        let mut done = Commands::new();
        let mut now = Nanos(0);
        for _ in 0..100_000 {
            self.queue.submit(now, &mut list);
            now = self.queue.next_deadline().unwrap_or(now).max(now);
            self.queue.poll(now, &mut done);
            if let Some(c) = done.pop_front() {
                if c.status != Status::Busy {
                    return Ok(c);
                }
                list.push_back(c);
            }
        }
        Err(Error::new(ErrorKind::Io, "the device does not answer")
            .hint("power cuts are for emulated disks"))
    }

    fn report(&mut self) -> Result<Vec<ZoneInfo>, Error> {
        let mut c = Command::without_data(Op::ReportZones, Sector(0), 0);
        c.report_max = u32::MAX;
        let c = self.run(c)?;
        if !c.status.is_ok() {
            return Err(Error::new(ErrorKind::Io, format!("report zones failed: {}", c.status)));
        }
        Ok(c.report)
    }

    fn chunk(&self) -> u32 {
        let unit = self.device.limits().write_granularity_sectors;
        let max = self.device.limits().transfer_sectors().min(CHUNK >> SECTOR_SHIFT);
        (max / unit * unit).max(unit)
    }

    fn data(&mut self, op: Op, at: Sector, len: u32) -> Result<(), Error> {
        let mut parts = Parts::new(std::mem::take(&mut self.buf));
        let bio = Bio::with_buf(op, at, len, parts.take_front(len << SECTOR_SHIFT));
        let mut c = self.run(Command::of(bio))?;
        let back = c.bios.first_mut().map(|bio| parts.put_back(bio.take_buf()));
        let Some((Ok(()), Ok(buf))) = back.map(|b| (b, parts.join())) else {
            return Err(Error::new(ErrorKind::Io, "the device kept memory of a command")
                .hint("power cuts are for emulated disks"));
        };
        self.buf = buf;
        match c.status {
            Status::Ok => Ok(()),
            status => {
                let what = format!("{} at {at} after a power cut: {status}", op.name());
                Err(Error::new(ErrorKind::Io, what).hint("power cuts are for emulated disks"))
            }
        }
    }

    fn read(&mut self, from: Sector, sectors: u32) -> Result<Vec<u8>, Error> {
        let mut all = vec![0; (sectors as usize) << SECTOR_SHIFT];
        for (at, n) in self.pieces(sectors) {
            self.data(Op::Read, from.plus(u64::from(at)), n)?;
            let place = (at as usize) << SECTOR_SHIFT;
            self.buf.copy_to(0, &mut all[place..place + ((n as usize) << SECTOR_SHIFT)]);
        }
        Ok(all)
    }

    fn write(&mut self, at: Sector, bytes: &[u8]) -> Result<(), Error> {
        let sectors = (bytes.len() >> SECTOR_SHIFT) as u32;
        for (offset, n) in self.pieces(sectors) {
            let place = (offset as usize) << SECTOR_SHIFT;
            self.buf.copy_from(0, &bytes[place..place + ((n as usize) << SECTOR_SHIFT)]);
            self.data(Op::Write, at.plus(u64::from(offset)), n)?;
        }
        Ok(())
    }

    fn pieces(&self, sectors: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let chunk = self.chunk();
        (0..sectors.div_ceil(chunk)).map(move |i| (i * chunk, chunk.min(sectors - i * chunk)))
    }
}

impl Drop for SerialQueue<'_> {
    fn drop(&mut self) {
        // If the device has kept the memory, this is empty.
        let buf = std::mem::take(&mut self.buf);
        if !buf.is_empty()
            && let Some(mut free) = lock_soon(&MEMORY)
        {
            free.push(buf);
        }
    }
}

fn written(z: &ZoneInfo) -> u32 {
    match z.cond {
        Condition::Full => z.capacity_sectors as u32,
        Condition::NotWp | Condition::ReadOnly | Condition::Offline => 0,
        _ => (z.wp.0 - z.start.0) as u32,
    }
}

impl Cache {
    /// Makes a cache for `device`. All data of the device count as durable now.
    pub(super) fn new(device: &dyn Device) -> Result<Cache, Error> {
        let zones = SerialQueue::open(device)?.report()?;
        let reach = |z| Reach { acknowledged: written(z), durable: written(z), ..Reach::default() };
        Ok(Cache {
            zones: zones.iter().map(reach).collect(),
            undo: Vec::new(),
            flushes: BTreeMap::new(),
            next_flush: 0,
            dropped: 0,
        })
    }

    /// Prepares for `c` before it is sent: keeps the old content of a conventional range, and notes resets.
    pub(super) fn goes_down(&mut self, device: &dyn Device, c: &Command) {
        let g = device.geometry();
        match c.op {
            Op::ZoneResetAll => self.zones.iter_mut().for_each(|z| z.at_reset = z.acks),
            Op::ZoneReset if g.contains(c.sector, 1) => {
                if let Some(z) = self.zones.get_mut(g.zone_of(c.sector).0.0 as usize) {
                    z.at_reset = z.acks;
                }
            }
            _ => {}
        }
        let changes = matches!(c.op, Op::Write | Op::WriteZeroes | Op::Discard);
        if !changes || !g.contains(c.sector, c.len_sectors) {
            return;
        }
        let (zone, _) = g.zone_of(c.sector);
        if !g.is_conventional(zone) {
            return;
        }
        // If the device cannot be read, there is no old content to restore.
        if let Ok(old) = SerialQueue::open(device).and_then(|mut l| l.read(c.sector, c.len_sectors))
        {
            self.undo.push(Undo { sector: c.sector, old });
        }
    }

    /// Takes a snapshot when a flush is sent. Returns the number of the data that it covers.
    pub(super) fn snapshot(&mut self) -> u64 {
        let zones = self.zones.iter().map(|z| z.acknowledged).collect();
        self.next_flush += 1;
        self.flushes.insert(self.next_flush, (zones, self.dropped + self.undo.len()));
        self.next_flush
    }

    /// Notes the success of `c`, just before its sender is told.
    pub(super) fn acknowledged(&mut self, g: &Geometry, c: &Command, covers: Option<u64>) {
        if let Some((zones, undo)) = covers.and_then(|n| self.flushes.remove(&n)) {
            for (reach, to) in self.zones.iter_mut().zip(zones) {
                reach.durable = reach.durable.max(to);
            }
            let old = undo.saturating_sub(self.dropped).min(self.undo.len());
            self.undo.drain(..old);
            self.dropped += old;
        }
        if c.op == Op::ZoneResetAll {
            return self.zones.iter_mut().for_each(Reach::was_reset);
        }
        if !g.contains(c.sector, 1) {
            return;
        }
        let (zone, offset) = g.zone_of(c.sector);
        let Some(reach) = self.zones.get_mut(zone.0 as usize) else { return };
        match c.op {
            Op::Write | Op::WriteZeroes | Op::ZoneAppend => {
                reach.acks += 1;
                reach.acknowledged = reach.acknowledged.max(offset + c.len_sectors);
                if c.flags.contains(Flags::FUA) {
                    reach.durable = reach.durable.max(offset + c.len_sectors);
                    if g.is_conventional(zone) {
                        self.dropped += self.undo.len();
                        self.undo.clear();
                    }
                }
            }
            Op::ZoneReset => reach.was_reset(),
            Op::ZoneFinish => {
                let cap = g.capacity_of(zone);
                (reach.acknowledged, reach.durable) = (cap, cap);
            }
            _ => {}
        }
    }

    /// Makes the device forget, as chance decides, because the power fails.
    pub(super) fn cut(
        &mut self,
        device: &dyn Device,
        random: &mut Random,
        dead: &BTreeMap<u32, Condition>,
    ) -> Result<(), Error> {
        let mut queue = SerialQueue::open(device)?;
        let unit = device.limits().write_granularity_sectors;
        for u in std::mem::take(&mut self.undo).iter().rev() {
            if random.one_in(2) {
                queue.write(u.sector, &u.old)?;
            }
        }
        self.flushes.clear();
        let zones = queue.report()?;
        for z in zones.iter().filter(|z| z.cond.is_open()) {
            queue.run(Command::without_data(Op::ZoneClose, z.start, z.len_sectors as u32))?;
        }
        for (n, z) in zones.iter().enumerate() {
            let Some(reach) = self.zones.get_mut(n) else { break };
            let dead = dead.contains_key(&(n as u32))
                || matches!(z.cond, Condition::ReadOnly | Condition::Offline | Condition::NotWp);
            let has = written(z);
            if dead {
                continue;
            }
            let (low, all) = (reach.durable.min(has) / unit, has / unit);
            // A full zone may be the result of a finish that was not acknowledged. A finish is lost or kept as a
            // whole.
            let high = match z.cond {
                Condition::Full => (reach.acknowledged.min(has) / unit).max(low),
                _ => all,
            };
            let keep = match random.below(4) {
                0 => low,
                1 => all,
                _ => random.range(low, high),
            } * unit;
            // With a limit of active zones, a zone that is written again may be one too many. Such a zone keeps all
            // or nothing.
            let limited = device.limits().max_active_zones != 0;
            let keep = if limited && keep > 0 { has } else { keep };
            let len = device.geometry().zone_len_sectors(ZoneNo(n as u32));
            if keep < has {
                let data = queue.read(z.start, keep)?;
                queue.run(Command::without_data(Op::ZoneReset, z.start, len))?;
                queue.write(z.start, &data)?;
            }
            if keep < has && keep > 0 {
                queue.run(Command::without_data(Op::ZoneClose, z.start, len))?;
            }
            (reach.acknowledged, reach.durable) = (keep, keep);
        }
        Ok(())
    }
}
