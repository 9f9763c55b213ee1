//! A world: a device with faults, a disk, its queues, what the client knows of each zone, and the BIOs that are in
//! flight.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `setup.rs` | geometry, limits, attributes, queues: all from the seed |
//! | `client.rs` | what a client does next: writes, appends, reads |
//! | `early.rs` | writes that come in another order, on a disk with an order window |
//! | `lists.rs` | lists that mix zones and mistakes, and the promises to a BIO besides its data |
//! | `join.rs` | the zones below a disk on a join |
//! | `manage.rs` | management, reports, freezes, mistakes |
//! | `faults.rs` | faults, power cuts, zones that die, queues that are closed |
//! | `completions.rs` | what a client concludes from a BIO that has come back |
//! | `error_oracle.rs` | a failure must have a reason |
//! | `medium.rs` | what may be on the medium |
//! | `quiescence.rs` | what must hold at rest |
//!
//! Each step draws from a sequence of its own, so leaving one out does not change the others.

mod client;
mod completions;
mod early;
mod error_oracle;
mod faults;
mod join;
mod lists;
mod manage;
mod medium;
mod quiescence;
mod setup;

use crate::class::{Class, Coverage};
use crate::client_zone::{ClientZone, Stamps};
use crate::device_pending::DevicePending;
use crate::seam_oracle::{Failures, SeamOracle};
use join::Join;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use zoneplug_core::Device;
use zoneplug_core::disk::{
    AttributeChange, Disk, DiskConfig, DiskQueue, Freeze, Mode, Revalidation,
};
use zoneplug_core::{Bio, Bios, Nanos, Op, Random, Status};
use zoneplug_devices::emu::EmuDisk;
use zoneplug_devices::stack::FaultDisk;

/// Adds a line to the trace, if there is one.
macro_rules! trace {
    ($world:expr, $($arg:tt)*) => {
        if $world.tracing {
            let line = format!($($arg)*);
            $world.trace.push(line);
        }
    };
}
pub(crate) use trace;

/// The client's knowledge of a zone, and what it has on its way there.
#[derive(Debug, Default)]
pub(crate) struct WorldZone {
    known: ClientZone,
    /// Writes and appends in flight.
    pub(crate) writes: u32,
    /// Native appends in flight; they count as writes too.
    pub(crate) appends: u32,
    /// Whether the last success was a native append.
    pub(crate) appended: bool,
    /// Whether a native append and a write were in flight at a time, so that any of them may have failed. Ends when
    /// the zone is at rest and its write pointer is known.
    pub(crate) crossed: bool,
    /// Management commands in flight.
    pub(crate) managed: u32,
    /// Writes of queues that were dropped. Only a freeze shows when they have finished.
    pub(crate) orphans: u32,
    /// Whether a write failed at some time.
    pub(crate) failed: bool,
    /// Whether the zone was made read-only or offline.
    pub(crate) dead: bool,
    /// Whether another program moved the write pointer: only a resync finds it (E10).
    pub(crate) moved: bool,
    /// Whether a command that the layer gave up may still change the zone.
    pub(crate) may_change: bool,
    /// Counts the moments at which the last such command had ended.
    pub(crate) late_ended: u64,
    /// Whether a reset or finish without `strict_management` met writes in flight, and may abort them.
    pub(crate) loose: bool,
    /// Whether a reset or finish of several zones failed and may have been carried out here, or a write to several
    /// zones failed and moved nothing here.
    pub(crate) half: bool,
    /// Writes to several zones in flight: they may fail because of another zone.
    pub(crate) spans: u32,
    /// Failures that the client knows of. Later failures have another reason.
    pub(crate) settled: Failures,
    /// The end of the acknowledged data that are durable, by a flush or FUA.
    pub(crate) durable: u32,
    /// The generation of a conventional zone that is durable as a whole.
    pub(crate) firm: Option<u64>,
    /// The queue of the last write or management, and the queues of the appends and writes in flight.
    pub(crate) last_queue: Option<usize>,
    pub(crate) queues: u64,
    pub(crate) append_failed: bool,
    pub(crate) limit_hit: bool,
    pub(crate) fault_hit: bool,
}

impl Deref for WorldZone {
    type Target = ClientZone;

    fn deref(&self) -> &ClientZone {
        &self.known
    }
}

impl DerefMut for WorldZone {
    fn deref_mut(&mut self) -> &mut ClientZone {
        &mut self.known
    }
}

impl WorldZone {
    pub(crate) fn quiet(&self) -> bool {
        self.writes == 0 && self.managed == 0 && self.orphans == 0
    }
}

/// The purpose of an outstanding BIO.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    /// A write or write-zeroes: zone, generation, offset and length of each part, and the stamp of the
    /// first sector (`None`: zeroes).
    Write { parts: Vec<(usize, u64, u32, u32)>, stamp: Option<u64> },
    /// An append of `len` sectors; it lands at `at` if nothing failed.
    Append { zone: usize, generation: u64, at: u32, len: u32, stamp: u64 },
    /// A read, and the expected content where nothing has changed meanwhile: zone, generation, stamp.
    Read { expect: Vec<(usize, u64, Option<u64>)>, crowded: bool },
    /// A reset, finish, open or close of zones. `quiet`: all were at rest. `late_ended`: the sum of that
    /// counter of the zones when it was sent.
    Manage { op: Op, zones: Vec<usize>, quiet: bool, again: bool, late_ended: u64 },
    /// A report. `quiet`: the zone was at rest. `activity`: the counter when it was sent.
    Report { zone: usize, quiet: bool, activity: u64 },
    /// A flush, and how far each zone was acknowledged when it was sent: zone, generation, sectors.
    Flush { covers: Vec<(usize, u64, u32)> },
    /// A write behind one that is lost. It is held, and refused when its time is over.
    Early { zone: usize, due: Nanos },
    /// A BIO that must be refused with one of these statuses.
    Bad { zone: usize, first: bool, statuses: Vec<Status> },
}

#[derive(Debug)]
pub(crate) struct Outstanding {
    pub(crate) queue: usize,
    pub(crate) asked: Asked,
}

/// A revalidation, its queue, and whether there was load when it began.
pub(crate) type Reading = (Revalidation, usize, bool);

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) rng: Random,
    pub(crate) mode: Mode,
    pub(crate) config: DiskConfig,
    pub(crate) emu: Arc<EmuDisk>,
    /// The device without faults, in the addresses of the disk: with the layer, if there is one.
    pub(crate) bare: Arc<dyn Device>,
    pub(crate) faults: Arc<FaultDisk>,
    pub(crate) seam: Arc<SeamOracle>,
    /// The device that the disk is opened on: the seam oracle, or the layer on it.
    pub(crate) device: Arc<dyn Device>,
    /// Commands that the device has not carried out yet. Only in worlds where a command may be carried out after the
    /// layer gave it up.
    pub(crate) device_pending: Option<Arc<DevicePending>>,
    pub(crate) disk: Disk,
    pub(crate) queues: Vec<Option<DiskQueue>>,
    pub(crate) tags: Vec<u16>,
    pub(crate) now: Nanos,
    pub(crate) inline: bool,
    pub(crate) zones: Vec<WorldZone>,
    pub(crate) outstanding: BTreeMap<u64, Outstanding>,
    pub(crate) next_token: u64,
    pub(crate) next_stamp: u64,
    pub(crate) stamps: Stamps,
    /// The zone of the sequential client.
    pub(crate) cursor: usize,
    /// The present attributes.
    pub(crate) nomerges: bool,
    pub(crate) strict: bool,
    pub(crate) max_transfer: u32,
    pub(crate) grain: u32,
    pub(crate) native: bool,
    /// Whether zones with native appends take writes as well.
    pub(crate) mixes: bool,
    pub(crate) freeze: Option<Freeze>,
    pub(crate) revalidation: Option<Reading>,
    pub(crate) change: Option<AttributeChange>,
    /// Whether faults may have been injected, so that any BIO may fail.
    pub(crate) has_faults: bool,
    pub(crate) gone: bool,
    /// Whether an event has occurred after which the device may see a misplaced write.
    pub(crate) spoiled: bool,
    /// Appends: where each landed, and where it had to land unless something before it failed.
    pub(crate) appends: Vec<(usize, u64, u32, u32)>,
    pub(crate) limited: bool,
    /// The statuses of failed BIOs, and whether failures were hidden from the client.
    pub(crate) seen: BTreeSet<Status>,
    pub(crate) hidden: bool,
    pub(crate) completions: u64,
    pub(crate) submitted: u64,
    /// Steps that disturbed the world instead of using the disk.
    pub(crate) troubles: u64,
    /// Reports with which zones recovered, as far as they were checked.
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
    /// Reports by the layer itself.
    pub(crate) own_reports: u64,
    /// Whether the last revalidation succeeded.
    pub(crate) is_read: bool,
    /// The join that the disk stands on, if there is one.
    pub(crate) join: Option<Join>,
    /// Whether the fault layer keeps account of durable data.
    pub(crate) cached: bool,
    /// Whether writes may have been torn in the middle of a block.
    pub(crate) spoiled_blocks: bool,
    /// The zone whose writes come in another order at the moment. No other zone is written, and no other write is
    /// held.
    pub(crate) shuffled: Option<usize>,
    /// Whether held writes may end before their time is over.
    pub(crate) early_troubled: bool,
    /// Reads that may not wait and were not sent at once.
    pub(crate) not_sent: BTreeSet<u64>,
}

impl World {
    /// Returns whether appends to zone `z` are sent: native ones go to every other zone.
    pub(crate) fn appends_to(&self, z: usize) -> bool {
        self.mode == Mode::Plug && !self.native || self.is_native(z)
    }

    /// Returns whether the device places appends to zone `z`.
    pub(crate) fn is_native(&self, z: usize) -> bool {
        self.native && z.is_multiple_of(2)
    }

    /// Returns whether writes to zone `z` are sent.
    pub(crate) fn writes_to(&self, z: usize) -> bool {
        self.mixes || !self.is_native(z)
    }

    pub(crate) fn hit(&mut self, class: Class) {
        self.cover.hit(class);
    }

    /// Submits BIOs to a queue that has room for them.
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
        let (at_once, held_up) = (self.promise(&list), self.seam.queueing().held_up);
        let queue = self.queues[q].as_mut().expect("an open queue");
        assert_eq!(queue.submit(now, &mut list), n, "a queue with room takes all");
        self.note_not_sent(at_once, held_up);
    }

    /// Polls every queue once, in random order. If nothing happened, advances the time to the next
    /// deadline. Returns whether anything happened or is due.
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
        self.end_late();
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
                            self.seam.revalidated();
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
            self.completions += u64::from(self.poll_for_owner_of(q));
            return;
        }
        let before = self.overdue();
        let Some(queue) = self.queues[q].as_mut() else { return };
        let mut done = Bios::new();
        queue.poll(self.now, &mut done);
        self.check_overdue(before);
        let reports = self.seam.ordered().reports;
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
            // The disk is drained, so the work of dropped queues has finished.
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
            let busy = self.seam.busy();
            if busy > self.busy_before {
                self.hit(Class::R12);
            }
        }
        self.busy_before = self.seam.busy();
    }

    /// Finds zones in which no command that was given up can be carried out any more. From now on a report of them is
    /// true.
    fn end_late(&mut self) {
        let Some(device_pending) = self.device_pending.clone() else { return };
        for z in 0..self.zones.len() {
            if self.zones[z].may_change && !device_pending.is_pending(z) {
                let zone = &mut self.zones[z];
                zone.may_change = false;
                zone.activity += 1;
                zone.late_ended += 1;
                self.hit(Class::Ghost);
            }
        }
    }

    /// Notes that a BIO to zone `z` failed, or that its result will never be known: the device may still carry it
    /// out. `given_up`: the layer had given the BIO up before its client heard of it, so the device may have carried
    /// it out after a report that was sent in between.
    pub(crate) fn note_late(&mut self, z: usize, given_up: bool) {
        let pending = self.device_pending.as_ref().is_some_and(|g| g.is_pending(z));
        if pending || given_up {
            let zone = &mut self.zones[z];
            zone.may_change |= pending;
            zone.late_ended += u64::from(!pending);
            (zone.mixed, zone.failed) = (true, true);
            zone.activity += 1;
            if !zone.conventional {
                (zone.unsure, zone.moved) = (true, true);
            }
        }
    }

    /// Tells the seam oracle which attributes hold for every command. An attribute that was switched on counts only
    /// when no older command is in flight.
    fn note_attributes(&mut self) {
        let rests = self.outstanding.is_empty() && !self.is_freezing();
        self.seam.asked_only.store(self.revalidation.is_none(), Relaxed);
        for (known, now) in [(&self.seam.nomerges, self.nomerges), (&self.seam.strict, self.strict)]
        {
            if rests || !now {
                known.store(now, Relaxed);
            }
        }
    }

    /// Runs until nothing is outstanding. A BIO that never comes back is a hang.
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
