//! A test of `journal.rs`: random clients on servers that are killed one after the other, with a disk that is a list of write
//! pointers. A second list records which block a client was told of.
//!
//! Each start of a server is checked: the journal shows no block that a client was told of, and it shows every append that is on the
//! disk and was not answered, unless it has a reason to hide the zone. [`zoneplug_recovery`] has the test of what is found in the
//! space that is shown.

use super::tests::{JournalDir, about, request};
use super::{FoundZone, Journal};
use proptest::prelude::*;
use std::collections::BTreeSet;
use zoneplug_core::{Op, Sector};

const ZONES: u64 = 3;
const ZONE_SECTORS: u64 = 0x800;
const QUEUES: u16 = 4;
/// Appends that a queue acknowledges before an entry of its ring is overwritten.
const RING: usize = 16;

/// One step. Numbers are taken modulo what exists.
#[derive(Debug, Clone)]
enum ModelStep {
    /// A client sends an append of so many blocks.
    Send {
        zone: u64,
        blocks: u64,
    },
    /// An append lands on the disk.
    Land {
        nth: usize,
    },
    /// A queue acknowledges an append.
    Answer {
        nth: usize,
        queue: u16,
    },
    /// An append fails: its client is told no sector.
    Fail {
        nth: usize,
    },
    /// A write other than an append.
    Write {
        zone: u64,
    },
    Reset {
        zone: u64,
        works: bool,
    },
    /// The server is killed, after it has written some appends into the journal and not answered them.
    Kill {
        recorded: Option<usize>,
        order: u64,
    },
}

fn step() -> impl Strategy<Value = ModelStep> {
    let (zone, nth) = (0..ZONES, 0..8usize);
    prop_oneof![
        8 => (zone.clone(), 1..4u64).prop_map(|(zone, blocks)| ModelStep::Send { zone, blocks }),
        8 => nth.clone().prop_map(|nth| ModelStep::Land { nth }),
        8 => (nth.clone(), 0..QUEUES).prop_map(|(nth, queue)| ModelStep::Answer { nth, queue }),
        1 => nth.clone().prop_map(|nth| ModelStep::Fail { nth }),
        1 => zone.clone().prop_map(|zone| ModelStep::Write { zone }),
        1 => (zone, any::<bool>()).prop_map(|(zone, works)| ModelStep::Reset { zone, works }),
        2 => (proptest::option::weighted(0.2, nth), any::<u64>())
            .prop_map(|(recorded, order)| ModelStep::Kill { recorded, order }),
    ]
}

#[derive(Debug, Clone, Copy)]
struct Append {
    zone: u64,
    blocks: u64,
    /// The first sector, if it is on the disk.
    landed: Option<u64>,
}

struct World {
    place: JournalDir,
    journal: Journal,
    stamp: u64,
    /// The sectors of each zone that are written.
    written: [u64; ZONES as usize],
    in_flight: Vec<Append>,
    /// The blocks that a client was told of.
    told: BTreeSet<u64>,
    /// For each zone: the appends that each queue had acknowledged at its reset. Entries of later ones may be
    /// overwritten.
    acknowledged: [usize; QUEUES as usize],
    since: [[usize; QUEUES as usize]; ZONES as usize],
    /// The journal may hide a part of the zone.
    hides: [bool; ZONES as usize],
    found: u64,
    /// Second copies of data that is on the disk.
    copies: u64,
}

impl World {
    fn new() -> World {
        let place = JournalDir::new();
        let zones = [0; ZONES as usize];
        let journal =
            Journal::create(&place.record(), about(ZONES as u32, QUEUES), 1, zones.into_iter());
        World {
            journal: journal.unwrap(),
            place,
            stamp: 1,
            written: [0; ZONES as usize],
            in_flight: Vec::new(),
            told: BTreeSet::new(),
            acknowledged: [0; QUEUES as usize],
            since: [[0; QUEUES as usize]; ZONES as usize],
            hides: [false; ZONES as usize],
            found: 0,
            copies: 0,
        }
    }

    fn nth(&self, nth: usize) -> Option<usize> {
        (!self.in_flight.is_empty()).then(|| nth % self.in_flight.len())
    }

    /// Appends blocks to a zone, if it has room.
    fn append(&mut self, zone: u64, blocks: u64) -> Option<u64> {
        let written = &mut self.written[zone as usize];
        let at = zone * ZONE_SECTORS + *written;
        let end = *written + blocks * 8;
        (end <= ZONE_SECTORS).then(|| {
            *written = end;
            at
        })
    }

    fn record(&mut self, a: Append, at: u64, queue: u16) {
        self.journal.record(queue, Sector(at), a.blocks as u32 * 8);
        self.acknowledged[usize::from(queue)] += 1;
        for zone in 0..ZONES as usize {
            self.hides[zone] |=
                (0..QUEUES as usize).any(|q| self.acknowledged[q] - self.since[zone][q] > RING);
        }
    }

    /// An append is answered.
    fn answer(&mut self, a: Append, at: u64, queue: u16) {
        self.record(a, at, queue);
        self.tell(at, a.blocks);
    }

    fn tell(&mut self, at: u64, blocks: u64) {
        for block in at / 8..at / 8 + blocks {
            assert!(self.told.insert(block), "block {block} has an owner");
        }
    }

    fn step(&mut self, step: &ModelStep) {
        match *step {
            ModelStep::Send { zone, blocks } if self.in_flight.len() < usize::from(QUEUES) => {
                self.in_flight.push(Append { zone, blocks, landed: None });
            }
            ModelStep::Send { .. } => {}
            ModelStep::Land { nth } => {
                if let Some(i) = self.nth(nth).filter(|i| self.in_flight[*i].landed.is_none()) {
                    let Append { zone, blocks, .. } = self.in_flight[i];
                    self.in_flight[i].landed = self.append(zone, blocks);
                }
            }
            ModelStep::Answer { nth, queue } => {
                if let Some(i) = self.nth(nth)
                    && let Some(at) = self.in_flight[i].landed
                {
                    let a = self.in_flight.remove(i);
                    self.answer(a, at, queue);
                }
            }
            ModelStep::Fail { nth } => {
                if let Some(i) = self.nth(nth) {
                    self.in_flight.remove(i);
                }
            }
            ModelStep::Write { zone } => self.write(zone),
            // A client with appends in flight does not reset their zone.
            ModelStep::Reset { zone, works } if self.in_flight.iter().all(|a| a.zone != zone) => {
                self.reset(zone, works);
            }
            ModelStep::Reset { .. } => {}
            ModelStep::Kill { recorded, order } => {
                if let Some(i) = recorded.and_then(|nth| self.nth(nth))
                    && let Some(at) = self.in_flight[i].landed
                {
                    let a = self.in_flight[i];
                    self.record(a, at, 0);
                    self.hides[a.zone as usize] = true;
                }
                self.kill(order);
            }
        }
    }

    fn write(&mut self, zone: u64) {
        let at = zone * ZONE_SECTORS + self.written[zone as usize];
        if at < (zone + 1) * ZONE_SECTORS {
            self.journal.begin(&request(Op::Write, at, 8));
            self.append(zone, 1);
            self.tell(at, 1);
            self.hides[zone as usize] = true;
        }
    }

    fn reset(&mut self, zone: u64, works: bool) {
        let start = zone * ZONE_SECTORS;
        let reset = request(Op::ZoneReset, start, 0);
        self.journal.begin(&reset);
        if works {
            self.written[zone as usize] = 0;
            self.told.retain(|block| block * 8 / ZONE_SECTORS != zone);
            self.since[zone as usize] = self.acknowledged;
            self.hides[zone as usize] = false;
        }
        self.journal.end(&reset, works);
    }

    /// Starts the next server, which gets the requests that were in flight in any order.
    fn kill(&mut self, mut order: u64) {
        let about = about(ZONES as u32, QUEUES);
        let found = self.written.map(|n| FoundZone { written: n as u32, empty: n == 0 });
        let last = self.stamp;
        self.stamp += 1;
        self.journal =
            Journal::open(&self.place.record(), about, last, self.stamp, &found).unwrap();
        let mut shown = BTreeSet::new();
        for (zone, pieces) in self.journal.unacked(&found) {
            let start = u64::from(zone.0) * ZONE_SECTORS;
            let blocks = |p: std::ops::Range<u32>| u64::from(p.start) / 8..u64::from(p.end) / 8;
            shown.extend(pieces.into_iter().flat_map(blocks).map(|block| start / 8 + block));
        }
        assert!(shown.is_disjoint(&self.told), "{shown:?} of {:?}", self.told);
        let mut again = std::mem::take(&mut self.in_flight);
        while !again.is_empty() {
            let a = again.remove(order as usize % again.len());
            order = order.rotate_right(7);
            let is_shown = |at: &u64| (at / 8..at / 8 + a.blocks).all(|b| shown.contains(&b));
            let there = a.landed.filter(is_shown);
            let hides = self.hides[a.zone as usize];
            assert!(hides || a.landed.is_none() || there.is_some(), "{a:?} of {shown:?}");
            self.found += u64::from(there.is_some());
            self.copies += u64::from(there.is_none() && a.landed.is_some());
            // Some appends are still in flight at the next kill, at the disk or on their way to the client.
            match there.or_else(|| self.append(a.zone, a.blocks)) {
                Some(at) if !order.is_multiple_of(3) => self.answer(a, at, order as u16 % QUEUES),
                // The client was not told: the append is on the disk as before.
                Some(at) => self.in_flight.push(Append { landed: Some(at), ..a }),
                // The zone is full.
                None => {}
            }
        }
    }
}

fn run(steps: &[ModelStep]) -> World {
    let mut world = World::new();
    steps.iter().for_each(|step| world.step(step));
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// U6: no sector is given to two appends, and none is given up without a reason.
    #[test]
    fn no_sector_is_given_twice_and_none_is_given_up_without_a_reason(
        steps in proptest::collection::vec(step(), 1..400),
    ) {
        run(&steps);
    }
}

/// The histories of the test above contain appends that are found and appends that are not.
#[test]
fn such_histories_have_appends_that_are_found_and_such_that_are_not() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut found, mut copies) = (0, 0);
    for _ in 0..20 {
        let steps = proptest::collection::vec(step(), 300).new_tree(&mut runner).unwrap().current();
        let world = run(&steps);
        (found, copies) = (found + world.found, copies + world.copies);
    }
    assert!(found > 100 && copies > 100, "{found} found, {copies} appended again");
}
