//! Random sequences on a disk with an order window, compared with the model after every step: statuses, sectors, data,
//! counters, and the time of every refusal.

use super::common::{Make, Rig, append, flags, make, op, token, write_as};
use super::model::{Model, Write};
use std::collections::BTreeMap;
use zoneplug_core::disk::Freeze;
use zoneplug_core::sched::Scheduler;
use zoneplug_core::{Bio, Bios, Flags, Nanos, Op, Random, Sector, Status, lost_bios};

const ZONES: usize = 3;
const SIZE: u32 = 64;
const CAP: u32 = 48;
/// Longest command.
const MAX: u32 = 12;
const QUEUES: usize = 3;

struct Run {
    rig: Rig,
    model: Model,
    rng: Random,
    next: u64,
    /// What is outstanding: token and queue.
    out: BTreeMap<u64, usize>,
    freeze: Option<Freeze>,
    /// Writes of queues that were dropped may be in flight.
    orphans: bool,
    log: Vec<String>,
}

fn config(seed: u64, rng: &mut Random) -> Make {
    let queues: Vec<_> = (0..QUEUES).map(|_| (64, rng.range(1, 4) as u16)).collect();
    let mut m = make(ZONES as u64, SIZE, CAP).queues(&queues);
    m.emu.latency = Nanos(rng.pick(&[0, 0, 50, 300]));
    m.emu.limits.max_transfer_sectors = MAX;
    m.config.order_window = Nanos(1000);
    m.config.shards = rng.pick(&[1, 64]);
    m.config.nomerges = rng.one_in(4);
    match seed % 4 {
        1 => m.config.zoned_qd1_writes = Some(true),
        2 => m.config.scheduler = Scheduler::MqDeadline,
        3 => {
            m.emu.limits.keeps_write_order = true;
            m.config.zone_write_depth = rng.pick(&[2, 4]);
        }
        _ => {}
    }
    m
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = Random::new(seed);
        let rig = config(seed, &mut rng).rig();
        let model = Model::new(ZONES, CAP, 1000);
        Run {
            rig,
            model,
            rng,
            next: 1,
            out: BTreeMap::new(),
            freeze: None,
            orphans: false,
            log: Vec::new(),
        }
    }

    fn note(&mut self, what: String) {
        self.log.push(what);
    }

    /// Polls every queue twice, so that what one has completed for another is there, and compares.
    fn look(&mut self) {
        self.model.call(self.rig.now.0);
        if let Some(due) = self.model.next_due() {
            for q in &self.rig.queues {
                let next = q.next_deadline().expect("a held write has a time");
                assert!(next.0 <= due, "H5: {next:?} is after {due}");
            }
        }
        let mut back = BTreeMap::new();
        for q in (0..QUEUES).chain(0..QUEUES) {
            let mut done = Bios::new();
            self.rig.queues[q].poll(self.rig.now, &mut done);
            for bio in done {
                assert_eq!(self.out.remove(&bio.token()), Some(q), "I7: {bio:?}");
                self.came_back(&bio, &mut back);
            }
        }
        let wanted: BTreeMap<_, _> = self.model.refused.drain(..).collect();
        assert_eq!(back, wanted, "what is refused now");
        self.compare();
    }

    fn came_back(&mut self, bio: &Bio, refused: &mut BTreeMap<u64, Status>) {
        if !bio.status.is_ok() {
            refused.insert(bio.token(), bio.status);
        } else if matches!(bio.op, Op::Write | Op::WriteZeroes | Op::ZoneAppend) {
            let &(zone, offset) = &self.model.accepted[&bio.token()];
            let at = zone as u64 * u64::from(SIZE) + u64::from(offset);
            assert_eq!(bio.sector, Sector(at), "its place: {bio:?}");
        }
    }

    fn compare(&self) {
        for (z, zone) in self.model.zones.iter().enumerate() {
            let wp = if zone.wp >= CAP { SIZE } else { zone.wp };
            assert_eq!(self.rig.wp(z as u32), u64::from(wp), "I3, zone {z}");
        }
        let c = self.rig.disk.counters().window;
        let m = self.model.counts;
        assert_eq!(c.writes as usize, self.model.held(), "H12");
        assert_eq!(
            (c.held, c.admitted, c.expired, c.dropped),
            (m.held, m.admitted, m.expired, m.dropped),
            "H12"
        );
        assert_eq!(c.held, c.writes + c.admitted + c.expired + c.dropped, "H12");
        assert_eq!((c.over_zone, c.over_client, c.over_disk), (0, 0, 0));
    }

    /// Lets time pass until everything that was accepted has ended. Held writes may expire meanwhile.
    fn drain(&mut self) {
        for _ in 0..1000 {
            self.look();
            if self.out.len() == self.model.held() {
                return;
            }
            let next = self.rig.queues.iter().filter_map(|q| q.next_deadline()).min();
            self.rig.now = next.unwrap_or(self.rig.now).max(self.rig.now);
        }
        panic!("I4: {:?}", self.out);
    }

    /// Only a freeze says when the writes of queues that were dropped have ended.
    fn wait_for_orphans(&mut self) {
        if !std::mem::take(&mut self.orphans) {
            return;
        }
        let freeze = self.rig.disk.begin_freeze();
        self.model.freeze();
        while !freeze.poll() {
            self.look();
            let next = self.rig.queues.iter().filter_map(|q| q.next_deadline()).min();
            self.rig.now = next.unwrap_or(self.rig.now).max(self.rig.now);
        }
        self.look();
        drop(freeze);
        self.model.thaw();
        self.look();
    }

    fn submit(&mut self, q: usize, bios: Vec<Box<Bio>>) {
        for bio in &bios {
            self.out.insert(bio.token(), q);
        }
        // The engine looks at the window first, as the model does.
        self.model.call(self.rig.now.0);
        self.rig.submit(q, bios);
    }

    /// A list of writes, near the write pointer or behind what is held.
    fn writes(&mut self) {
        let (q, zone) = (self.rng.below(QUEUES as u32) as usize, self.rng.below(ZONES as u32));
        let nr = self.rng.range(1, 4);
        let mut list: Vec<Write> = Vec::new();
        for _ in 0..nr {
            let wp = self.model.zones[zone as usize].wp;
            let offset = match (list.last(), self.rng.below(3)) {
                (Some(last), 0 | 1) => last.offset + last.len,
                (_, 0) => wp,
                _ => (wp + self.rng.below(20)).saturating_sub(2),
            };
            let long = self.rng.one_in(6);
            let len = self.rng.range(1, if long { 2 * MAX } else { 6 });
            let nowait = self.rng.one_in(8);
            if offset + len <= SIZE {
                let token = self.next;
                self.next += 1;
                list.push(Write { token, queue: q, zone: zone as usize, offset, len, nowait });
            }
        }
        if list.is_empty() {
            return;
        }
        self.note(format!("writes {list:?}"));
        let bio = |w: &Write| {
            let sector = u64::from(zone * SIZE + w.offset);
            let bio = token(write_as(sector, w.len, w.token * 100), w.token);
            if w.nowait { flags(bio, Flags::NOWAIT) } else { bio }
        };
        let bios = list.iter().map(bio).collect();
        self.model.call(self.rig.now.0);
        // A BIO that is longer than a command is alone. The others continue each other if they are contiguous; NOWAIT
        // makes no difference.
        let mut rest = &list[..];
        while !rest.is_empty() {
            let mut n = 1;
            let mut end = rest[0].offset + rest[0].len;
            while rest[0].len <= MAX
                && n < rest.len()
                && rest[n].offset == end
                && rest[n].len <= MAX
            {
                end += rest[n].len;
                n += 1;
            }
            self.model.run(&rest[..n]);
            rest = &rest[n..];
        }
        self.submit(q, bios);
    }

    fn appends(&mut self) {
        let (q, zone) = (self.rng.below(QUEUES as u32) as usize, self.rng.below(ZONES as u32));
        let nr = self.rng.range(1, 2);
        let list: Vec<_> =
            (0..nr).map(|n| (self.next + u64::from(n), self.rng.range(1, 6))).collect();
        self.next += u64::from(nr);
        self.note(format!("appends to {zone}: {list:?}"));
        let start = u64::from(zone * SIZE);
        let bios = list.iter().map(|&(t, len)| token(append(start, len, t * 100), t)).collect();
        self.model.call(self.rig.now.0);
        self.model.appends(zone as usize, &list);
        self.submit(q, bios);
    }

    fn restart(&mut self) {
        let zone = self.rng.below(ZONES as u32);
        let finish = self.rng.one_in(4);
        self.drain();
        self.wait_for_orphans();
        self.note(format!("finish {finish} of {zone}"));
        let bio =
            op(if finish { Op::ZoneFinish } else { Op::ZoneReset }, u64::from(zone * SIZE), SIZE);
        self.next += 1;
        self.submit(0, vec![token(bio, self.next)]);
        self.next += 1;
        // The effect comes with the completion, and the poll that sees it looks at the window first.
        for _ in 0..100 {
            let sent = self.out[&(self.next - 1)];
            let mut done = Bios::new();
            self.model.call(self.rig.now.0);
            self.rig.queues[sent].poll(self.rig.now, &mut done);
            let over = done.iter().any(|b| b.token() == self.next - 1);
            if over {
                self.model.restart(zone as usize, finish);
            }
            let mut back = BTreeMap::new();
            for bio in done {
                self.out.remove(&bio.token()).expect("I7");
                self.came_back(&bio, &mut back);
            }
            self.model.refused.retain(|(token, status)| back.remove(token) != Some(*status));
            assert_eq!(back, BTreeMap::new());
            if over {
                return self.look();
            }
            self.look();
            let next = self.rig.queues.iter().filter_map(|q| q.next_deadline()).min();
            self.rig.now = next.unwrap_or(self.rig.now).max(self.rig.now);
        }
        panic!("a reset hangs");
    }

    fn drop_queue(&mut self) {
        let q = self.rng.below(QUEUES as u32) as usize;
        self.look();
        self.note(format!("queue {q} goes"));
        self.model.leave(q, false);
        self.out.retain(|_, owner| *owner != q);
        self.orphans = true;
        let tags = self.rng.range(1, 4) as u16;
        self.rig.queues[q] = self.rig.disk.open_polled_queue(64, tags).expect("a queue");
        self.look();
    }

    fn step(&mut self) {
        if self.freeze.is_some() {
            if self.rng.one_in(2) {
                self.note("thaw".to_owned());
                self.freeze = None;
                self.model.thaw();
            } else {
                self.rig.now.0 += u64::from(self.rng.range(0, 900));
            }
            return self.look();
        }
        match self.rng.below(40) {
            0..=19 => self.writes(),
            20..=23 => self.appends(),
            24 => self.restart(),
            25 => self.drop_queue(),
            26 => {
                let q = self.rng.below(QUEUES as u32) as usize;
                self.note(format!("queue {q} refuses what is held"));
                self.rig.queues[q].refuse_held();
                self.model.leave(q, true);
                self.look();
            }
            27 => {
                self.note("freeze".to_owned());
                self.freeze = Some(self.rig.disk.begin_freeze());
                self.model.call(self.rig.now.0);
                self.model.freeze();
                self.look();
            }
            28 => {
                self.model.window = self.rng.pick(&[0, 300, 1000, 1000]);
                self.note(format!("order_window={}", self.model.window));
                let text = format!("{}ns", self.model.window);
                self.rig.disk.set_attribute("order_window", &text).expect("an attribute");
            }
            29..=34 => {
                self.rig.now.0 += u64::from(self.rng.range(0, 400));
                self.look();
            }
            _ => self.look(),
        }
    }

    fn end(&mut self) {
        self.freeze = None;
        if self.model.frozen.is_some() {
            self.model.thaw();
        }
        self.wait_for_orphans();
        while !self.out.is_empty() {
            self.drain();
            self.rig.now = self.model.next_due().map_or(self.rig.now, Nanos);
            self.look();
        }
        assert_eq!(self.model.held(), 0, "every held write has ended");
        for (z, zone) in self.model.zones.iter().enumerate() {
            let medium = self.rig.medium(z as u64 * u64::from(SIZE), CAP);
            for &(offset, len, token) in &zone.accepted {
                for i in 0..len {
                    let stamp = token * 100 + u64::from(i);
                    assert_eq!(medium[(offset + i) as usize], stamp, "zone {z}, {offset}+{i}");
                }
            }
        }
        assert_eq!(lost_bios(), 0);
    }
}

/// H1-H5, H7-H12, W9.
#[test]
fn random_sequences_agree_with_the_model() {
    let mut all = [0; 4];
    for seed in 0..400 {
        let mut run = Run::new(seed);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..300).for_each(|_| run.step());
            run.end();
        }));
        if let Err(panic) = result {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            let last = run.log.len().saturating_sub(12);
            panic!("seed {seed}: {text:?}, after {:#?}", &run.log[last..]);
        }
        let c = run.model.counts;
        for (sum, n) in all.iter_mut().zip([c.held, c.admitted, c.expired, c.dropped]) {
            *sum += n;
        }
    }
    assert!(all.iter().all(|&n| n > 1000), "each way is taken often: {all:?}");
}
