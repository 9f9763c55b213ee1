//! A device that keeps the order of writes and says what it was sent; and a disk on it.

use crate::common::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use zoneplug_core::{Bio, Command, Commands, Nanos, Op, Queue, Status};
use zoneplug_devices::emu::EmuDisk;

/// What a device was sent.
#[derive(Default)]
pub(crate) struct Log {
    /// Writes: queue, first sector.
    pub(crate) writes: Vec<(usize, u64)>,
    /// Queue of each write of zone 0 that is at the device.
    pub(crate) flying: Vec<usize>,
    pub(crate) most: usize,
    /// Two queues had writes of zone 0 there at a time.
    pub(crate) two_homes: bool,
    /// Reports, with the writes that were at the device then.
    pub(crate) reports: Vec<usize>,
    /// Reports, or writes of zone 0, are kept until this is false.
    pub(crate) hold_reports: bool,
    pub(crate) hold_writes: bool,
}

pub(crate) struct LoggedQueue {
    queue: Box<dyn Queue>,
    id: usize,
    log: Arc<Mutex<Log>>,
    kept: Commands,
}

pub(crate) fn in_zone_0(c: &Command) -> bool {
    matches!(c.op, Op::Write | Op::WriteZeroes) && c.sector.0 < 64
}

impl Queue for LoggedQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        let mut log = self.log.lock().unwrap();
        for c in commands.iter() {
            if c.op == Op::ReportZones {
                let n = log.flying.len();
                log.reports.push(n);
            }
            if in_zone_0(c) {
                log.writes.push((self.id, c.sector.0));
                log.two_homes |= log.flying.iter().any(|&q| q != self.id);
                log.flying.push(self.id);
                log.most = log.most.max(log.flying.len());
            }
        }
        drop(log);
        self.queue.submit(now, commands);
        assert!(commands.is_empty());
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let mut back = Commands::new();
        self.queue.poll(now, &mut back);
        let mut log = self.log.lock().unwrap();
        for c in back.drain(..) {
            if in_zone_0(&c) {
                let at = log.flying.iter().position(|&q| q == self.id).unwrap();
                log.flying.remove(at);
            }
            if c.op == Op::ReportZones && log.hold_reports || in_zone_0(&c) && log.hold_writes {
                self.kept.push_back(c);
            } else {
                done.push_back(c);
            }
        }
        if !log.hold_reports && !log.hold_writes {
            done.append(&mut self.kept);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.queue.next_deadline()
    }

    fn arm(&mut self) {
        self.queue.arm();
    }
}

/// An ordered disk without merging, of which `n` writes of a zone may be in flight.
pub(crate) fn rig_with(
    n: u16,
    queues: &[(u32, u16)],
    f: impl FnOnce(&mut Make),
) -> (Rig, Arc<Mutex<Log>>) {
    let mut m = make(4, 64, 64).limits(|l| l.keeps_write_order = true).config(|c| {
        (c.nomerges, c.zone_write_depth) = (true, n);
    });
    f(&mut m);
    let dev = EmuDisk::new(m.emu).unwrap();
    let log = Arc::new(Mutex::new(Log::default()));
    let (shared, queues_opened) = (log.clone(), AtomicUsize::new(0));
    let device = wrapped(dev.clone(), move |queue| {
        let id = 1 + queues_opened.fetch_add(1, Ordering::Relaxed);
        Box::new(LoggedQueue { queue, id, log: shared.clone(), kept: Commands::new() })
    });
    let disk = open(device, m.config);
    let queues =
        queues.iter().map(|&(d, t)| disk.open_polled_queue(d, t).unwrap()).collect::<Vec<_>>();
    *log.lock().unwrap() = Log::default();
    (Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() }, log)
}

pub(crate) fn rig(n: u16) -> (Rig, Arc<Mutex<Log>>) {
    rig_with(n, &[(64, 16), (64, 16)], |_| {})
}

/// `n` writes of 4 sectors from `from` on, with their sectors as tokens.
pub(crate) fn writes(from: u64, n: u64) -> Vec<Box<Bio>> {
    (0..n).map(|i| token(write(from + 4 * i, 4), from + 4 * i)).collect()
}

pub(crate) fn statuses(done: &[Box<Bio>]) -> Vec<Status> {
    done.iter().map(|b| b.status).collect()
}

pub(crate) fn sent(log: &Arc<Mutex<Log>>) -> Vec<u64> {
    log.lock().unwrap().writes.iter().map(|w| w.1).collect()
}
