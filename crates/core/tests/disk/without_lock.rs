//! A write that takes no lock has the effect of one that does (I1-I4). A disk with counts of each zone keeps every plug
//! under the lock; such a disk and an ordinary one are given the same work.

use crate::common::*;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug_core::disk::Mode;
use zoneplug_core::zone::Condition;
use zoneplug_core::{
    Bio, Bios, Command, Commands, Flags, Nanos, Op, Queue, Random, Status, ZoneNo,
};
use zoneplug_devices::emu::{EmuDisk, Fault};

const ZONES: u32 = 8;
const SIZE: u32 = 256;

/// A queue that keeps some commands for longer than a disk waits, and may give them back changed.
struct OddQueue {
    inner: Box<dyn Queue>,
    rng: Random,
    faulty: bool,
    kept: Vec<(Nanos, Box<Command>)>,
}

impl OddQueue {
    fn harm(&mut self, cmd: &mut Command, other: Option<&mut Box<Command>>) {
        let r = &mut self.rng;
        match (r.below(8), other) {
            (0, _) => drop(cmd.bios.pop()),
            (1, _) => cmd.len_sectors ^= r.below(16),
            (2, _) => cmd.sector.0 = r.draw(),
            (3, _) => cmd.op = r.pick(&Op::ALL),
            (4, _) => cmd.status = r.pick(&[Status::Ok, Status::Io, Status::Busy, Status::Timeout]),
            (5, Some(other)) => std::mem::swap(&mut cmd.bios, &mut other.bios),
            (6, Some(other)) => std::mem::swap(cmd, other),
            (7, Some(other)) => cmd.bios.extend(other.bios.pop()),
            _ => {}
        }
    }
}

impl Queue for OddQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.inner.submit(now, commands);
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let mut back = Commands::new();
        self.inner.poll(now, &mut back);
        for (due, cmd) in std::mem::take(&mut self.kept) {
            if due <= now {
                back.push_back(cmd);
            } else {
                self.kept.push((due, cmd));
            }
        }
        while let Some(mut cmd) = back.pop_front() {
            if self.rng.one_in(20) {
                let late = u64::from(self.rng.below(6000));
                self.kept.push((now.plus(Nanos(late)), cmd));
                continue;
            }
            if self.faulty && self.rng.one_in(40) {
                self.harm(&mut cmd, back.front_mut());
            }
            done.push_back(cmd);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.kept.iter().map(|k| k.0).chain(self.inner.next_deadline()).min()
    }

    fn arm(&mut self) {
        self.inner.arm();
    }
}

/// One disk, driven by random numbers, and what it has shown so far.
struct World {
    rig: Rig,
    rng: Random,
    /// Where a client of positional writes believes that it is.
    next: [u32; ZONES as usize],
    said: Vec<String>,
    tokens: u64,
    /// Whether its device loses and exchanges BIOs.
    faulty: bool,
    /// Whether a scheduler was on at some time.
    had_scheduler: bool,
}

impl World {
    fn new(seed: u64, locked: bool) -> World {
        let mut rng = Random::new(seed);
        let odd = rng.one_in(2);
        let faulty = odd && rng.one_in(4);
        let mut m = make(u64::from(ZONES), SIZE, 250).queues(&[(16, 2), (8, 1), (32, 4)]);
        if rng.one_in(2) {
            m = m.conventional(&[0, 5]);
        }
        if rng.one_in(2) {
            m = m.last_zone(100, 90);
        }
        m.emu.limits.keeps_write_order = rng.one_in(4);
        m.emu.limits.max_transfer_sectors = rng.pick(&[0, 8, 16]);
        m.emu.limits.max_write_zeroes_sectors = rng.pick(&[0, 8, 64]);
        m.emu.limits.max_open_zones = rng.pick(&[0, 0, 3]);
        m.emu.limits.zone_append_max_sectors = rng.pick(&[0, 0, 8]);
        m.emu.limits.max_bios = rng.pick(&[0, 2]);
        m.config.emulate_append = rng.one_in(2);
        m.config.nomerges = rng.one_in(4);
        m.config.strict_management = rng.one_in(4);
        m.config.zone_recovery = None;
        m.config.shards = rng.pick(&[1, 2, 64]);
        if rng.one_in(8) {
            m.config.mode = Mode::None;
        }
        m.config.zone_counters = locked;
        let rig = if odd { Self::odd(m, seed, faulty, rng.one_in(2)) } else { m.rig() };
        World {
            rig,
            rng,
            next: [0; ZONES as usize],
            said: Vec::new(),
            tokens: 0,
            faulty,
            had_scheduler: false,
        }
    }

    /// A disk on a device of odd queues.
    fn odd(mut m: Make, seed: u64, faulty: bool, timeout: bool) -> Rig {
        m.config.timeout = timeout.then_some(Nanos(2000));
        m.emu.paranoid = false;
        let dev = EmuDisk::new(m.emu).unwrap();
        let queues = AtomicU64::new(seed << 20);
        let odd = wrapped(dev.clone(), move |inner| {
            let n = queues.fetch_add(1, Ordering::Relaxed);
            if n == seed << 20 {
                return inner; // the disk opens with it
            }
            Box::new(OddQueue { inner, rng: Random::new(n), faulty, kept: Vec::new() })
        });
        let disk = open(odd, m.config);
        let queues = m.queues.iter().map(|&(d, t)| disk.open_polled_queue(d, t).unwrap()).collect();
        Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() }
    }

    fn bio(&mut self) -> Box<Bio> {
        let r = &mut self.rng;
        let zones = if r.one_in(3) { ZONES } else { 3 };
        let z = r.below(zones);
        let start = u64::from(z * SIZE);
        let longest = if r.one_in(8) { 40 } else { 8 };
        let len = r.range(1, longest);
        let mut bio = match r.below(32) {
            0..12 => append(start, len.min(8), 7),
            12..24 => {
                let at = self.next[z as usize] + if r.one_in(16) { 1 } else { 0 };
                self.next[z as usize] = (at + len) % SIZE;
                write(start + u64::from(at), len)
            }
            24..26 => {
                let at = self.next[z as usize];
                self.next[z as usize] = (at + len) % SIZE;
                op(Op::WriteZeroes, start + u64::from(at), len)
            }
            26 => op(Op::ZoneReset, start, SIZE),
            27 => op(Op::ZoneFinish, start, SIZE),
            28 => match r.one_in(4) {
                true => op(Op::ZoneResetAll, 0, 0),
                false => op(Op::ZoneReset, start, SIZE * 2),
            },
            29 => report(start, r.range(1, ZONES)),
            30 => flags(report(start, r.range(1, ZONES)), Flags::RESYNC),
            _ => read(start, len),
        };
        if bio.op == Op::Write && r.one_in(8) {
            bio.flags = r.pick(&[Flags::FUA, Flags::PREFLUSH, Flags::NOMERGE, Flags::NOWAIT]);
        }
        bio.set_token(self.tokens);
        self.tokens += 1;
        bio
    }

    fn take_done(&mut self) {
        for bio in std::mem::take(&mut self.rig.done) {
            let (t, s, n) = (bio.token(), bio.sector, bio.result);
            self.said.push(format!("{t} {:?} {s} {:?} {n}", bio.op, bio.status));
        }
    }

    /// Notes what the disk shows, and tells the client where its zones are.
    fn look(&mut self) {
        let mut dump = String::new();
        self.rig.disk.zone_wplugs(&mut dump).unwrap();
        let mut counters = self.rig.disk.counters();
        if counters.writer.turns > 0 || self.had_scheduler {
            // A short turn of the single writer parks nothing, nor does a write that finds nothing waiting in a scheduler; with
            // the lock, each such write waits in the plug first.
            counters.plugs.parked = 0;
        }
        let _ = write!(dump, "{counters:?}");
        for z in 0..ZONES {
            let known = self.rig.cached(z);
            if let Some((_, wp)) = known {
                self.next[z as usize] = wp.min(u64::from(SIZE) - 1) as u32;
            }
            let _ = write!(dump, " {known:?}");
        }
        self.said.push(dump);
    }

    fn change(&mut self) {
        let (name, values) = self.rng.pick(&[
            ("zoned_qd1_writes", ["0", "1"]),
            ("zoned_qd1_policy", ["fifo", "score"]),
            ("anticipation_us", ["0", "20"]),
            ("scheduler", ["none", "mq-deadline"]),
            ("zone_write_depth", ["1", "3"]),
            ("nomerges", ["0", "1"]),
            ("strict_management", ["0", "1"]),
            ("zone_recovery", ["auto", "client"]),
        ]);
        let value = self.rng.pick(&values);
        match self.rig.disk.change_attribute(name, value) {
            Err(e) => self.said.push(format!("{name}={value}: {}", e.what())),
            Ok(mut change) => {
                let mut rounds = 0;
                while !change.poll() {
                    self.rig.step();
                    rounds += 1;
                    if self.faulty && rounds > 500 {
                        break; // the device has kept something
                    }
                    assert!(rounds < 10_000, "the disk does not drain: {:?}", self.rig.queues);
                }
                self.had_scheduler |= value == "mq-deadline";
                self.said.push(format!("{name}={value} after {rounds}"));
            }
        }
    }

    fn revalidate(&mut self) {
        let mut v = self.rig.disk.revalidate();
        for _ in 0..10_000 {
            if let Some(result) = v.poll(&mut self.rig.queues[0], self.rig.now) {
                return self.said.push(format!("revalidated: {}", result.is_ok()));
            }
            self.rig.step();
        }
        assert!(self.faulty, "a revalidation that does not end");
    }

    fn step(&mut self) {
        let q = self.rng.below(3) as usize;
        match self.rng.below(64) {
            0..24 => {
                let n = self.rng.range(1, 5);
                let mut list: Bios = (0..n).map(|_| self.bio()).collect();
                let taken = self.rig.queues[q].submit(self.rig.now, &mut list);
                self.said.push(format!("{taken}"));
            }
            24..44 => self.rig.poll(q),
            44..52 => self.rig.now.0 += u64::from(self.rng.below(120)),
            52 => {
                let status = self.rng.pick(&[
                    Status::Io,
                    Status::Medium,
                    Status::UnalignedWrite,
                    Status::ZoneReadOnly,
                    Status::InvalidField,
                    Status::NoSpace,
                    Status::Busy,
                ]);
                let torn_sectors = self
                    .rng
                    .one_in(2)
                    .then(|| self.rng.below(8))
                    .filter(|_| status != Status::Busy);
                let op = self.rng.pick(&[
                    Op::Write,
                    Op::Write,
                    Op::Write,
                    Op::ZoneReset,
                    Op::ReportZones,
                    Op::ZoneFinish,
                ]);
                let skip = u64::from(self.rng.below(3));
                self.rig.dev.fail_next(Fault { skip, op: Some(op), status, torn_sectors });
            }
            53 => self.rig.dev.force_busy(u64::from(self.rng.below(3))),
            54 => self.change(),
            55 => {
                if self.rng.one_in(4) {
                    self.revalidate();
                }
            }
            56 => {
                if self.rng.one_in(2) {
                    // With work in flight it becomes an orphan.
                    let new = self.rig.disk.open_polled_queue(16, self.rng.range(1, 3) as u16);
                    self.rig.queues[q] = new.unwrap();
                }
            }
            57 => {
                let cond = self.rng.pick(&[Condition::ReadOnly, Condition::Offline]);
                if self.rng.one_in(8) {
                    let zone = ZoneNo(self.rng.range(1, 3));
                    let done = self.rig.dev.set_condition(zone, cond);
                    self.said.push(format!("{zone} {cond} {done}"));
                }
            }
            58..60 => self.look(),
            _ => {
                self.rig.step();
            }
        }
        self.take_done();
    }
}

/// Statuses, sectors, the order of completions, plugs and counters are the same, whatever is done to the disk.
#[test]
fn i3_a_write_without_the_lock_is_as_one_with_it() {
    for seed in 0..100 {
        let mut worlds = [false, true].map(|locked| World::new(seed, locked));
        for n in 0..600 {
            for w in &mut worlds {
                w.step();
            }
            let [a, b] = worlds.each_ref().map(|w| &w.said);
            let differ = a.iter().zip(b).find(|(a, b)| a != b);
            assert!(differ.is_none() && a.len() == b.len(), "seed {seed}, step {n}: {differ:?}");
            worlds.iter_mut().for_each(|w| w.said.clear());
        }
        for w in &mut worlds {
            w.rig.now = Nanos(w.rig.now.0 + 1_000_000);
            if w.faulty {
                for _ in 0..100 {
                    w.rig.step();
                }
            } else {
                w.rig.drain();
            }
            w.take_done();
            w.look();
            if !w.faulty && w.rig.disk.attribute("mode").as_deref() == Some("plug") {
                assert_eq!(w.rig.dev.stats().overlaps, 0, "I1: seed {seed}");
            }
        }
        assert_eq!(worlds[0].said, worlds[1].said, "seed {seed}");
        drop(worlds);
        recycle_buffers();
    }
}
