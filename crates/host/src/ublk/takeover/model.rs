//! A test of `journal.rs`, `unacked.rs` and `replay.rs`: random clients on servers that are killed one after the
//! other, with a disk in memory. A list records which client was told of which block.
//!
//! Each answer is checked: no block has two owners, and an owner finds its data. Each start of a server is checked:
//! the journal shows every append that is on the disk and was not answered, unless it has a reason to hide the zone,
//! and as many appends are found as are shown.

use super::replay::{Replay, find};
use crate::BlockingDisk;
use crate::recovery::journal::Journal;
use crate::recovery::journal::tests::{self, Place, about};
use crate::runtime::hosted::HostedDisk;
use crate::ublk::abi::{self, IoDesc, Params};
use crate::ublk::request::Request;
use proptest::prelude::*;
use std::collections::BTreeMap;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{Op, Sector};

const ZONES: u64 = 3;
const ZONE_SECTORS: u64 = 0x800;
const QUEUES: u16 = 4;
/// Appends that a queue acknowledges before an entry of its ring is overwritten.
const RING: usize = 16;

/// One step. Numbers are taken modulo what exists.
#[derive(Debug, Clone)]
enum Step {
    /// A client sends an append. The content determines its length.
    Send {
        zone: u64,
        content: u8,
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

fn step() -> impl Strategy<Value = Step> {
    let (zone, nth) = (0..ZONES, 0..8usize);
    prop_oneof![
        8 => (zone.clone(), 1..4u8).prop_map(|(zone, content)| Step::Send { zone, content }),
        8 => nth.clone().prop_map(|nth| Step::Land { nth }),
        8 => (nth.clone(), 0..QUEUES).prop_map(|(nth, queue)| Step::Answer { nth, queue }),
        1 => nth.clone().prop_map(|nth| Step::Fail { nth }),
        1 => zone.clone().prop_map(|zone| Step::Write { zone }),
        1 => (zone, any::<bool>()).prop_map(|(zone, works)| Step::Reset { zone, works }),
        2 => (proptest::option::weighted(0.2, nth), any::<u64>())
            .prop_map(|(recorded, order)| Step::Kill { recorded, order }),
    ]
}

#[derive(Debug, Clone)]
struct Append {
    zone: u64,
    content: u8,
    landed: Option<Sector>,
}

impl Append {
    fn blocks(&self) -> u64 {
        u64::from(self.content)
    }

    fn data(&self) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(self.blocks() as u32 * 4096);
        buf.write(0, &vec![self.content; buf.len() as usize]);
        buf
    }
}

struct World {
    place: Place,
    disk: HostedDisk,
    journal: Journal,
    stamp: u64,
    in_flight: Vec<Append>,
    /// The content of each block that a client was told of.
    owners: BTreeMap<u64, u8>,
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
    fn new(emulated: bool) -> World {
        let append = if emulated { "emulated" } else { "native" };
        let spec = format!("mem,zones={ZONES},zone-size=1M,append={append}");
        let place = Place::new();
        let zones = [0; ZONES as usize];
        let journal =
            Journal::create(&place.record(), about(ZONES as u32, QUEUES), 1, zones.into_iter());
        World {
            journal: journal.unwrap(),
            place,
            disk: HostedDisk::open_spec(&spec).unwrap(),
            stamp: 1,
            in_flight: Vec::new(),
            owners: BTreeMap::new(),
            acknowledged: [0; QUEUES as usize],
            since: [[0; QUEUES as usize]; ZONES as usize],
            hides: [false; ZONES as usize],
            found: 0,
            copies: 0,
        }
    }

    fn io(&self) -> BlockingDisk {
        BlockingDisk::new(&self.disk).unwrap()
    }

    fn nth(&self, nth: usize) -> Option<usize> {
        (!self.in_flight.is_empty()).then(|| nth % self.in_flight.len())
    }

    /// Appends on the disk, if the zone has room.
    fn append(&self, a: &Append) -> Option<Sector> {
        self.io().append(Sector(a.zone * ZONE_SECTORS), a.data()).ok().map(|(at, _)| at)
    }

    fn record(&mut self, a: &Append, at: Sector, queue: u16) {
        self.journal.record(queue, at, a.blocks() as u32 * 8);
        self.acknowledged[usize::from(queue)] += 1;
        for zone in 0..ZONES as usize {
            self.hides[zone] |=
                (0..QUEUES as usize).any(|q| self.acknowledged[q] - self.since[zone][q] > RING);
        }
    }

    /// An append is answered.
    fn answer(&mut self, a: &Append, at: Sector, queue: u16) {
        self.record(a, at, queue);
        let block = at.0 / 8;
        for block in block..block + a.blocks() {
            assert_eq!(self.owners.insert(block, a.content), None, "block {block} has an owner");
        }
        self.look(block, a.blocks());
    }

    fn look(&self, block: u64, blocks: u64) {
        let found = self.io().read(Sector(block * 8), blocks * 8).unwrap().to_vec();
        for (i, bytes) in found.chunks(4096).enumerate() {
            let owner = self.owners[&(block + i as u64)];
            assert!(bytes.iter().all(|b| *b == owner), "block {block} + {i}");
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Send { zone, content } if self.in_flight.len() < usize::from(QUEUES) => {
                self.in_flight.push(Append { zone, content, landed: None });
            }
            Step::Send { .. } => {}
            Step::Land { nth } => {
                if let Some(i) = self.nth(nth).filter(|i| self.in_flight[*i].landed.is_none()) {
                    self.in_flight[i].landed = self.append(&self.in_flight[i]);
                }
            }
            Step::Answer { nth, queue } => {
                if let Some(i) = self.nth(nth)
                    && let Some(at) = self.in_flight[i].landed
                {
                    let a = self.in_flight.remove(i);
                    self.answer(&a, at, queue);
                }
            }
            Step::Fail { nth } => {
                if let Some(i) = self.nth(nth) {
                    self.in_flight.remove(i);
                }
            }
            Step::Write { zone } => self.write(zone),
            // A client with appends in flight does not reset their zone.
            Step::Reset { zone, works } if self.in_flight.iter().all(|a| a.zone != zone) => {
                self.reset(zone, works);
            }
            Step::Reset { .. } => {}
            Step::Kill { recorded, order } => {
                if let Some(i) = recorded.and_then(|nth| self.nth(nth))
                    && let Some(at) = self.in_flight[i].landed
                {
                    let a = self.in_flight[i].clone();
                    self.record(&a, at, 0);
                    self.hides[a.zone as usize] = true;
                }
                self.kill(order);
            }
        }
    }

    fn write(&mut self, zone: u64) {
        let start = zone * ZONE_SECTORS;
        let wp = self.io().report(Sector(start), 1).unwrap()[0].wp;
        if wp.0 >= start + ZONE_SECTORS {
            return;
        }
        self.journal.begin(&tests::request(Op::Write, wp.0, 8));
        let a = Append { zone, content: 1, landed: None };
        self.io().write(wp, a.data()).unwrap();
        assert_eq!(self.owners.insert(wp.0 / 8, 1), None);
        self.hides[zone as usize] = true;
    }

    fn reset(&mut self, zone: u64, works: bool) {
        let start = zone * ZONE_SECTORS;
        let reset = tests::request(Op::ZoneReset, start, 0);
        self.journal.begin(&reset);
        if works {
            self.io().reset(Sector(start), ZONE_SECTORS).unwrap();
            self.owners.retain(|block, _| block * 8 / ZONE_SECTORS != zone);
            self.since[zone as usize] = self.acknowledged;
            self.hides[zone as usize] = false;
        }
        self.journal.end(&reset, works);
    }

    /// Starts the next server, which gets the requests that were in flight in any order.
    fn kill(&mut self, mut order: u64) {
        let about = about(ZONES as u32, QUEUES);
        let found = find(&self.disk, 0..ZONES as u32).unwrap();
        let servers = (self.stamp, self.stamp + 1);
        self.journal = Journal::open(&self.place.record(), about, servers, &found).unwrap();
        self.stamp += 1;
        let shown = self.journal.unacked(&found);
        let is_shown = |a: &Append| {
            let at = a.landed?.0 - a.zone * ZONE_SECTORS;
            let (_, pieces) = shown.iter().find(|z| u64::from(z.0.0) == a.zone)?;
            let inside = |p: &std::ops::Range<u32>| {
                u64::from(p.start) <= at && at + a.blocks() * 8 <= u64::from(p.end)
            };
            pieces.iter().any(inside).then_some(())
        };
        let mut expected = BTreeMap::new();
        for a in &self.in_flight {
            let hides = self.hides[a.zone as usize];
            assert!(hides || a.landed.is_none() || is_shown(a).is_some(), "{a:?} of {shown:?}");
            let copies: &mut (u64, u64) = expected.entry((a.zone, a.content)).or_default();
            copies.0 += u64::from(is_shown(a).is_some());
        }
        let replay = Replay::new(
            &self.disk,
            0..ZONES as u32,
            &found,
            Some(&self.journal),
            u32::from(QUEUES),
        );
        let mut again = std::mem::take(&mut self.in_flight);
        while !again.is_empty() {
            let a = again.remove(order as usize % again.len());
            order = order.rotate_right(7);
            let r = request(abi::OP_ZONE_APPEND, a.zone * ZONE_SECTORS, a.blocks() as u32 * 8);
            let there = replay.append_before(&r, Some(&a.data()), &self.disk);
            if there.is_some() {
                expected.get_mut(&(a.zone, a.content)).unwrap().1 += 1;
                self.found += 1;
            }
            self.copies += u64::from(there.is_none() && a.landed.is_some());
            // Some appends are still in flight at the next kill, at the disk or on their way to the client.
            let at = there.or_else(|| self.append(&a));
            match at {
                Some(at) if !order.is_multiple_of(3) => self.answer(&a, at, order as u16 % QUEUES),
                // The append was found, and its client was not told: it is on the disk as before.
                Some(at) => self.in_flight.push(Append { landed: Some(at), ..a }),
                // The zone is full.
                None => {}
            }
        }
        for (of, (shown, found)) in expected {
            assert!(found >= shown, "{of:?}: {found} found of {shown} that are there");
        }
    }
}

fn request(op: u8, sector: u64, len: u32) -> Request {
    let params = Params { zone_sectors: ZONE_SECTORS as u32, ..Params::default() };
    Request::of(IoDesc { op, fua: false, len, sector }, &params).unwrap()
}

fn run(emulated: bool, steps: &[Step]) -> World {
    let mut world = World::new(emulated);
    for step in steps {
        world.step(step);
    }
    for (block, _) in world.owners.clone() {
        world.look(block, 1);
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// U6: no sector is given to two appends, and none is given up without a reason.
    #[test]
    fn no_sector_is_given_twice_and_none_is_given_up_without_a_reason(
        emulated: bool,
        steps in proptest::collection::vec(step(), 1..400),
    ) {
        run(emulated, &steps);
    }
}

/// The histories of the test above contain appends that are found and appends that are not.
#[test]
fn such_histories_have_appends_that_are_found_and_such_that_are_not() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut found, mut copies) = (0, 0);
    for i in 0..20 {
        let steps = proptest::collection::vec(step(), 300).new_tree(&mut runner).unwrap().current();
        let world = run(i % 2 == 0, &steps);
        (found, copies) = (found + world.found, copies + world.copies);
    }
    assert!(found > 100 && copies > 100, "{found} found, {copies} appended again");
}
