//! A device that says what it was sent, keeps answers back, lies and panics; and what drives a disk on it.

use crate::common::*;
use std::sync::{Arc, Mutex};
use zoneplug_core::zone::{Condition, ZoneType};
use zoneplug_core::{Bio, Command, Commands, Nanos, Op, Queue, Status};
use zoneplug_devices::emu::{EmuDisk, Fault};

/// What the device was sent, and what it keeps back.
#[derive(Default)]
pub(crate) struct Log {
    /// Writes of zone 0 at the device.
    pub(crate) flying: u32,
    /// The layer's own reports: how many writes of the zone were at the device then.
    pub(crate) own: Vec<u32>,
    /// Reports that have been carried out are kept until this is false; also clients' reports; writes.
    pub(crate) hold_own: bool,
    pub(crate) hold_reports: bool,
    pub(crate) hold_writes: bool,
    /// Resets and finishes that have been carried out.
    pub(crate) hold_resets: bool,
    /// Resets and finishes that have arrived are not carried out until this is false.
    pub(crate) delay_resets: bool,
    /// Own reports say that the zone is conventional, or describe another.
    pub(crate) lies: Option<bool>,
    /// The next poll of a queue that has an own report panics.
    pub(crate) panics: bool,
}

pub(crate) struct LoggedQueue {
    queue: Box<dyn Queue>,
    log: Arc<Mutex<Log>>,
    kept: Commands,
    delayed: Commands,
}

pub(crate) fn is_own(c: &Command) -> bool {
    c.op == Op::ReportZones && c.bios.is_empty()
}

pub(crate) fn is_write(c: &Command) -> bool {
    matches!(c.op, Op::Write | Op::WriteZeroes | Op::ZoneAppend) && c.sector.0 < 64
}

fn is_reset(c: &Command) -> bool {
    matches!(c.op, Op::ZoneReset | Op::ZoneFinish | Op::ZoneResetAll)
}

impl LoggedQueue {
    fn keeps(log: &Log, c: &Command) -> bool {
        let report = c.op == Op::ReportZones;
        is_own(c) && log.hold_own
            || report && !is_own(c) && log.hold_reports
            || is_write(c) && log.hold_writes
            || is_reset(c) && log.hold_resets
    }
}

impl Queue for LoggedQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        let mut log = self.log.lock().unwrap();
        for c in commands.iter() {
            if is_own(c) {
                let n = log.flying;
                log.own.push(n);
            }
            log.flying += u32::from(is_write(c));
        }
        let delay = log.delay_resets;
        drop(log);
        if delay {
            let (resets, others) = commands.drain(..).partition(|c| is_reset(c));
            self.delayed.extend::<Commands>(resets);
            *commands = others;
        }
        self.queue.submit(now, commands);
        assert!(commands.is_empty());
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let mut back = std::mem::take(&mut self.kept);
        if !self.log.lock().unwrap().delay_resets && !self.delayed.is_empty() {
            self.queue.submit(now, &mut self.delayed);
        }
        self.queue.poll(now, &mut back);
        let mut log = self.log.lock().unwrap();
        if log.panics && back.iter().any(|c| is_own(c)) {
            drop(log);
            panic!("the device panics on purpose");
        }
        for mut c in back {
            if let (true, Some(other)) = (is_own(&c), log.lies) {
                let z = &mut c.report[0];
                if other {
                    z.start.0 += 64;
                } else {
                    (z.zone_type, z.cond) = (ZoneType::Conventional, Condition::NotWp);
                }
            }
            if Self::keeps(&log, &c) {
                self.kept.push_back(c);
            } else {
                log.flying -= u32::from(is_write(&c));
                done.push_back(c);
            }
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.queue.next_deadline()
    }

    fn arm(&mut self) {
        self.queue.arm();
    }
}

pub(crate) type SharedLog = Arc<Mutex<Log>>;

/// Four zones of 64 sectors that recover by themselves.
pub(crate) fn rig_with(queues: &[(u32, u16)], f: impl FnOnce(&mut Make)) -> (Rig, SharedLog) {
    let mut m = make(4, 64, 64).config(|c| c.zone_recovery = None);
    f(&mut m);
    let dev = EmuDisk::new(m.emu).unwrap();
    let log = SharedLog::default();
    let shared = log.clone();
    let device = wrapped(dev.clone(), move |queue| {
        let (kept, delayed) = (Commands::new(), Commands::new());
        Box::new(LoggedQueue { queue, log: shared.clone(), kept, delayed })
    });
    let disk = open(device, m.config);
    let queues =
        queues.iter().map(|&(d, t)| disk.open_polled_queue(d, t).unwrap()).collect::<Vec<_>>();
    log.lock().unwrap().own.clear();
    (Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() }, log)
}

pub(crate) fn rig() -> (Rig, SharedLog) {
    rig_with(&[(64, 8), (64, 8)], |_| {})
}

pub(crate) fn own(log: &SharedLog) -> Vec<u32> {
    log.lock().unwrap().own.clone()
}

pub(crate) fn torn(r: &Rig, status: Status, sectors: u32) {
    r.dev.fail_next(Fault { torn_sectors: Some(sectors), ..Fault::next(Op::Write, status) });
}

/// One write is acknowledged, the next fails after `sectors`; the layer's report is at the device and stays there.
pub(crate) fn until_asked(r: &mut Rig, log: &SharedLog, sectors: u32) {
    log.lock().unwrap().hold_own = true;
    assert_eq!(r.status(write(0, 8)), Status::Ok);
    torn(r, Status::Io, sectors);
    assert_eq!(r.status(write(8, 8)), Status::Io);
    assert_eq!(own(log), [0], "sent once, with nothing of the zone at the device");
    assert_eq!(r.cached(0), None, "nothing is believed before the answer");
}

/// Submits one BIO and steps until it is back; others may wait on.
pub(crate) fn one_of(r: &mut Rig, q: usize, bio: Box<Bio>) -> Box<Bio> {
    let token = bio.token();
    r.submit(q, [bio]);
    for _ in 0..20 {
        if let Some(i) = r.done.iter().position(|b| b.token() == token) {
            return r.done.remove(i);
        }
        r.step();
    }
    panic!("BIO {token} does not come back: {:?}", r.queues);
}

/// Until the layer's own reports are back as well.
pub(crate) fn settle(r: &mut Rig) {
    for _ in 0..20 {
        if r.queues.iter().all(|q| !q.is_busy()) {
            return;
        }
        r.step();
    }
    panic!("a queue stays busy: {:?}", r.queues);
}

pub(crate) fn let_go(r: &mut Rig, log: &SharedLog) {
    log.lock().unwrap().hold_own = false;
    r.step();
    r.step();
}
