//! A world: a device with faults, a disk, queues, what the client knows of each zone, and what is outstanding.
//!
//! | file | what |
//! | --- | --- |
//! | `setup.rs` | geometry, limits, attributes, queues: all from the seed |
//! | `client.rs` | what a client does next: writes, appends, reads |
//! | `lists.rs` | lists that mix zones and mistakes, and what a BIO is promised besides its data |
//! | `join.rs` | what a disk on a join looks like below |
//! | `manage.rs` | management, reports, freezes, mistakes |
//! | `world/faults.rs` | faults, power cuts, zones that die, queues that go |
//! | `world/completions.rs` | what a client makes of a BIO that has come back |
//! | `world/error_oracle.rs` | who fails must have a reason |
//! | `medium.rs` | what may be on the medium |
//! | `world/quiescence.rs` | what must hold when everything rests |
//!
//! Each step draws from a sequence of its own, so that leaving one out changes nothing of what the others want.

mod client;
mod completions;
mod error_oracle;
mod faults;
mod join;
mod lists;
mod manage;
mod medium;
mod quiescence;
mod setup;

use crate::class::{Class, Coverage};
use crate::device_pending::Ground;
use crate::seam_oracle::{Failures, Spy};
use join::Join;
use medium::Stamped;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use zoneplug_core::Device;
use zoneplug_core::disk::{
    AttributeChange, Disk, DiskConfig, DiskQueue, Freeze, Mode, Revalidation,
};
use zoneplug_core::{Bio, Bios, Nanos, Op, Random, Status};
use zoneplug_devices::emu::EmuDisk;
use zoneplug_devices::stack::FaultDisk;

/// Adds a line to the trace, if one is wanted.
macro_rules! trace {
    ($world:expr, $($arg:tt)*) => {
        if $world.tracing {
            let line = format!($($arg)*);
            $world.trace.push(line);
        }
    };
}
pub(crate) use trace;

/// What the client knows of a zone.
#[derive(Debug, Default)]
pub(crate) struct Zone {
    pub(crate) start: u64,
    pub(crate) len: u32,
    pub(crate) cap: u32,
    pub(crate) conventional: bool,
    /// Where the next write goes, if nothing that is in flight fails.
    pub(crate) wp: u32,
    /// Writes and appends in flight.
    pub(crate) writes: u32,
    /// Management commands in flight.
    pub(crate) managed: u32,
    /// Orphans: writes of queues that were dropped. Nobody says when they finish, but a freeze.
    pub(crate) orphans: u32,
    /// A write failed: the write pointer must be asked for.
    pub(crate) unsure: bool,
    /// A write failed at some time.
    pub(crate) failed: bool,
    /// A reset or finish met writes in flight: nothing is promised until the next quiet reset (M4).
    pub(crate) fuzzy: bool,
    /// The zone was made read-only or offline.
    pub(crate) dead: bool,
    /// Something else than the disk moved the write pointer: only a resync tells (E10).
    pub(crate) moved: bool,
    /// Something that was given up may be carried out yet.
    pub(crate) ghost: bool,
    /// How often all of it had been carried out.
    pub(crate) laid: u64,
    /// Since the last reset, data of any time may lie past what was acknowledged.
    pub(crate) mixed: bool,
    /// A reset or finish that is not strict met writes in flight: they may be aborted by it.
    pub(crate) loose: bool,
    /// A reset or finish of several zones failed, and may have been carried out here; or a write to several, which
    /// moved nothing here.
    pub(crate) half: bool,
    /// Writes to several zones in flight: another zone may be why they fail.
    pub(crate) spans: u32,
    /// The first stamp of this generation.
    pub(crate) born: u64,
    /// Failures that the client has taken note of: what fails from now on has another reason.
    pub(crate) settled: Failures,
    /// Counts what was submitted: a report that met none of it describes the zone as it is.
    pub(crate) activity: u64,
    /// Changed by every reset and every conventional write: what a read compares with is of one generation.
    pub(crate) generation: u64,
    /// The stamps of what was acknowledged, by sector.
    pub(crate) shadow: Vec<Option<u64>>,
    /// How far acknowledged writes are durable: a flush covers them, or FUA.
    pub(crate) durable: u32,
    /// The generation of a conventional zone that is durable as a whole.
    pub(crate) firm: Option<u64>,
    /// Who wrote or managed last, and the queues of the appends and writes in flight.
    pub(crate) last_queue: Option<usize>,
    pub(crate) queues: u64,
    pub(crate) append_failed: bool,
    pub(crate) limit_hit: bool,
    pub(crate) fault_hit: bool,
}

impl Zone {
    pub(crate) fn quiet(&self) -> bool {
        self.writes == 0 && self.managed == 0 && self.orphans == 0
    }
}

/// What was asked for with a BIO that is outstanding.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    /// A write or write-zeroes: (zone, generation, offset, length) of each zone, and the stamp of the first sector
    /// (none: zeroes).
    Write { parts: Vec<(usize, u64, u32, u32)>, stamp: Option<u64> },
    /// An append of `len` sectors; `at` is where it must land if nothing failed.
    Append { zone: usize, generation: u64, at: u32, len: u32, stamp: u64 },
    /// A read: what must be found where nothing changed meanwhile (zone, generation, stamp).
    Read { expect: Vec<(usize, u64, Option<u64>)>, crowded: bool },
    /// Reset, finish, open or close of zones; whether all were quiet.
    /// `laid`: how often ghosts of these zones had been laid by then.
    Manage { op: Op, zones: Vec<usize>, quiet: bool, again: bool, laid: u64 },
    /// A report; `quiet` if the zone was; `activity` as it was then.
    Report { zone: usize, quiet: bool, activity: u64 },
    /// Flush: how far each zone had been acknowledged (zone, generation, sectors).
    Flush { covers: Vec<(usize, u64, u32)> },
    /// Something that must be refused, with one of these.
    Bad { zone: usize, first: bool, statuses: Vec<Status> },
}

#[derive(Debug)]
pub(crate) struct Outstanding {
    pub(crate) queue: usize,
    pub(crate) asked: Asked,
}

/// A disk that is read again: the revalidation, its queue, and whether there was load when it began.
pub(crate) type Reading = (Revalidation, usize, bool);

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) rng: Random,
    pub(crate) mode: Mode,
    pub(crate) config: DiskConfig,
    pub(crate) emu: Arc<EmuDisk>,
    /// The same in the addresses of the disk: with the layer that is between, if there is one, and without faults.
    pub(crate) bare: Arc<dyn Device>,
    pub(crate) faults: Arc<FaultDisk>,
    pub(crate) spy: Arc<Spy>,
    /// What the disk is opened on: the spy, or the layer on it.
    pub(crate) device: Arc<dyn Device>,
    /// If what was given up may be carried out later: what the device has not carried out.
    pub(crate) ground: Option<Arc<Ground>>,
    pub(crate) disk: Disk,
    pub(crate) queues: Vec<Option<DiskQueue>>,
    pub(crate) tags: Vec<u16>,
    pub(crate) now: Nanos,
    pub(crate) inline: bool,
    pub(crate) zones: Vec<Zone>,
    pub(crate) outstanding: BTreeMap<u64, Outstanding>,
    pub(crate) next_token: u64,
    pub(crate) next_stamp: u64,
    pub(crate) stamps: Vec<Stamped>,
    /// Where the sequential client is.
    pub(crate) cursor: usize,
    /// Attributes as they are now.
    pub(crate) nomerges: bool,
    pub(crate) strict: bool,
    pub(crate) max_transfer: u32,
    pub(crate) grain: u32,
    pub(crate) native: bool,
    pub(crate) freeze: Option<Freeze>,
    pub(crate) revalidation: Option<Reading>,
    pub(crate) change: Option<AttributeChange>,
    /// Faults may have been injected, so that any BIO may fail.
    pub(crate) has_faults: bool,
    pub(crate) gone: bool,
    /// Something happened after which the device may see a misplaced write.
    pub(crate) spoiled: bool,
    /// Where appends landed and where they had to, unless something before them failed.
    pub(crate) appends: Vec<(usize, u64, u32, u32)>,
    pub(crate) limited: bool,
    /// How BIOs failed; and whether some failures were not for the client to see.
    pub(crate) seen: BTreeSet<Status>,
    pub(crate) hidden: bool,
    pub(crate) completions: u64,
    pub(crate) submitted: u64,
    /// Steps in which something was done to the world rather than asked of it.
    pub(crate) troubles: u64,
    /// Reports that zones went on with after a failure, as far as they have been looked at.
    pub(crate) recoveries: u64,
    pub(crate) cover: Coverage,
    pub(crate) trace: Vec<String>,
    pub(crate) tracing: bool,
    /// Counters of disks that were closed.
    pub(crate) parked: u64,
    pub(crate) recovered: u64,
    pub(crate) split: bool,
    pub(crate) busy_before: u64,
    /// Commands that were given up and are not back.
    pub(crate) late: u32,
    /// Reports by the layer itself, of zones that it recovers.
    pub(crate) own_reports: u64,
    /// Whether the last revalidation went well.
    pub(crate) is_read: bool,
    /// How the zones of the disk lie on the device, if on a join.
    pub(crate) join: Option<Join>,
    /// The layer of faults keeps account of what is durable.
    pub(crate) cached: bool,
    /// Writes may have been torn in the middle of a block.
    pub(crate) spoiled_blocks: bool,
    /// Reads that may not wait and were not sent at once.
    pub(crate) not_sent: BTreeSet<u64>,
}

impl World {
    pub(crate) fn hit(&mut self, class: Class) {
        self.cover.hit(class);
    }

    /// Hands BIOs to a queue, which has room for them.
    pub(crate) fn submit(&mut self, q: usize, bios: Vec<(Box<Bio>, Asked)>) {
        let mut list = Bios::new();
        for (mut bio, asked) in bios {
            bio.set_token(self.next_token);
            self.next_token += 1;
            trace!(
                self,
                "  bio {} queue {q} {} at {} length {}{}",
                bio.token(),
                bio.op.name(),
                bio.sector.0,
                bio.len_sectors,
                flags_text(&bio)
            );
            self.outstanding.insert(bio.token(), Outstanding { queue: q, asked });
            list.push_back(bio);
        }
        let n = list.len();
        self.submitted += n as u64;
        let now = self.now;
        let (at_once, held_up) = (self.promise(&list), self.spy.queueing().held_up);
        let queue = self.queues[q].as_mut().expect("an open queue");
        assert_eq!(queue.submit(now, &mut list), n, "a queue with room takes all");
        self.kept(at_once, held_up);
    }

    /// Polls every queue once, in a random order, and lets time pass to the next deadline if nothing happened.
    /// Whether something happened or is due.
    pub(crate) fn poll_round(&mut self) -> bool {
        let before = self.completions;
        let n = self.queues.len() as u32;
        let mut order: Vec<usize> = (0..n as usize).collect();
        for i in (1..n).rev() {
            order.swap(i as usize, self.rng.below(i + 1) as usize);
        }
        for q in order {
            self.poll(q);
        }
        let next = self.queues.iter().flatten().filter_map(DiskQueue::next_deadline).min();
        if self.completions == before {
            self.now = next.unwrap_or(self.now).max(self.now);
        }
        self.poll_freeze();
        self.lay_ghosts();
        self.note_attributes();
        self.completions > before || next.is_some()
    }

    pub(crate) fn is_freezing(&self) -> bool {
        self.freeze.is_some() || self.revalidation.is_some() || self.change.is_some()
    }

    fn poll(&mut self, q: usize) {
        if let Some((mut r, rq, load)) = self.revalidation.take() {
            if rq != q {
                self.revalidation = Some((r, rq, load));
            } else {
                let queue = self.queues[q].as_mut().expect("a queue that revalidates is kept");
                match r.poll(queue, self.now) {
                    None => self.revalidation = Some((r, rq, load)),
                    Some(result) => {
                        trace!(self, "  revalidation: {result:?}");
                        assert!(result.is_ok() || self.has_faults, "{result:?}");
                        self.hidden |= result.is_err();
                        self.is_read = result.is_ok();
                        self.completions += 1;
                        if result.is_ok() {
                            self.spy.revalidated();
                            let shown = self.device.geometry();
                            assert_eq!(
                                self.disk.geometry(),
                                *shown,
                                "V7: the layout is the device's"
                            );
                            if load {
                                self.hit(Class::R30);
                            }
                            self.adopt_layout();
                        }
                    }
                }
                return;
            }
        }
        if self.rng.one_in(8) {
            self.completions += u64::from(self.helped(q));
            return;
        }
        let before = self.overdue();
        let Some(queue) = self.queues[q].as_mut() else { return };
        let mut done = Bios::new();
        queue.poll(self.now, &mut done);
        self.check_overdue(before);
        let reports = self.spy.ordered().reports;
        if reports > self.own_reports && self.is_freezing() {
            self.hit(Class::Thaw);
        }
        self.own_reports = reports;
        let late = self.queues.iter().flatten().map(DiskQueue::late).sum();
        if late < self.late {
            self.hit(Class::Late);
        }
        self.late = late;
        for bio in done {
            self.completions += 1;
            self.completed(q, bio);
        }
    }

    fn poll_freeze(&mut self) {
        if let Some(freeze) = &self.freeze
            && freeze.poll()
        {
            // Drained: what queues left behind has finished.
            for z in &mut self.zones {
                z.orphans = 0;
            }
            trace!(self, "  thawed");
            self.freeze = None;
            self.completions += 1;
        }
        if self.change.as_mut().is_some_and(AttributeChange::poll) {
            self.change = None;
            self.completions += 1;
            self.attribute_changed();
        }
        if self.is_freezing() {
            let busy = self.spy.busy();
            if busy > self.busy_before {
                self.hit(Class::R12);
            }
        }
        self.busy_before = self.spy.busy();
    }

    /// Zones in which nothing that was given up can be carried out any more: what a report says is true from now on.
    fn lay_ghosts(&mut self) {
        let Some(ground) = self.ground.clone() else { return };
        for z in 0..self.zones.len() {
            if self.zones[z].ghost && !ground.is_pending(z) {
                let zone = &mut self.zones[z];
                zone.ghost = false;
                zone.activity += 1;
                zone.laid += 1;
                self.hit(Class::Ghost);
            }
        }
    }

    /// A BIO to zone `z` failed, or nobody will tell: the device may have it still. `given_up`: or may have had it after a report
    /// that was sent when the layer gave it up, before the client heard of that.
    pub(crate) fn haunt(&mut self, z: usize, given_up: bool) {
        let pending = self.ground.as_ref().is_some_and(|g| g.is_pending(z));
        if pending || given_up {
            let zone = &mut self.zones[z];
            zone.ghost |= pending;
            zone.laid += u64::from(!pending);
            (zone.mixed, zone.failed) = (true, true);
            zone.activity += 1;
            if !zone.conventional {
                (zone.unsure, zone.moved) = (true, true);
            }
        }
    }

    /// What the client may count on for every command from now on, where nothing of before is left.
    fn note_attributes(&mut self) {
        let rests = self.outstanding.is_empty() && !self.is_freezing();
        self.spy.asked_only.store(self.revalidation.is_none(), Relaxed);
        for (known, now) in [(&self.spy.nomerges, self.nomerges), (&self.spy.strict, self.strict)] {
            if rests || !now {
                known.store(now, Relaxed);
            }
        }
    }

    /// Until nothing is outstanding. A BIO that waits for ever is a hang.
    pub(crate) fn drain(&mut self) {
        let (mut idle, mut rounds) = (0, 0);
        while !self.outstanding.is_empty() || self.is_freezing() {
            idle = if self.poll_round() { 0 } else { idle + 1 };
            rounds += 1;
            assert!(
                idle < 8 && rounds < 20_000,
                "hang: outstanding {:?}, queues {:?}",
                self.outstanding,
                self.queues
            );
        }
    }
}

fn flags_text(bio: &Bio) -> String {
    use zoneplug_core::Flags as F;
    let names = [
        (F::FUA, "fua"),
        (F::PREFLUSH, "preflush"),
        (F::NOMERGE, "nomerge"),
        (F::NOWAIT, "nowait"),
        (F::RESYNC, "resync"),
        (F::RT, "rt"),
    ];
    names.iter().filter(|(f, _)| bio.flags.contains(*f)).map(|(_, n)| format!(" {n}")).collect()
}
