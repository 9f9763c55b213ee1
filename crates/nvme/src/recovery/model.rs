//! A test of `resend_ledger.rs` and `resend.rs`: hosts that lose their connections at random and send again what has no answer, on a
//! disk that is a list of blocks, against a list of the owner of each block.
//!
//! At every answer it checks that no block has two owners, and that an owner finds its data. A command whose zone was not
//! reset is on the disk once, and succeeds.

use super::host_key::HostKey;
use super::resend::{Outcome, Resend, ResendStep, Sent};
use super::resend_ledger::{AppendData, Landed, ResendLedger};
use crate::target::{HostId, Nqn};
use proptest::prelude::*;
use std::collections::BTreeMap;
use zoneplug_core::zone::{Condition, Geometry, ZoneInfo};
use zoneplug_core::{Nanos, Sector, Status, ZoneNo};

const ZONES: u64 = 3;
const BLOCKS: u64 = 64;
/// Sectors of a block, and of a zone.
const BLOCK: u64 = 8;
const ZONE: u64 = BLOCKS * BLOCK;
const NOW: Nanos = Nanos(5);

/// One step. Numbers are taken modulo what exists.
#[derive(Debug, Clone)]
enum Step {
    /// A host sends a write at the end of what it has written, or an append. Zone 0 is written by the first host; the others
    /// get appends of both. `kind` decides content and length.
    Send {
        host: usize,
        zone: u64,
        kind: u32,
    },
    Land {
        nth: usize,
    },
    /// What has landed is answered. The answer arrives and is acknowledged, or only that is not known yet.
    Answer {
        nth: usize,
        acknowledged: bool,
    },
    /// The connection of a host ends. So many of its answers that were not acknowledged have arrived. A part of what has not
    /// landed still does. The host sends again what has no answer.
    Lose {
        host: usize,
        arrived: usize,
        lands: u64,
        order: u64,
    },
    Reset {
        zone: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (host, nth) = (0..2usize, 0..16usize);
    prop_oneof![
        8 => (host.clone(), 0..ZONES, 0..4u32).prop_map(|(host, zone, kind)| Step::Send { host, zone, kind }),
        6 => nth.clone().prop_map(|nth| Step::Land { nth }),
        6 => (nth, any::<bool>()).prop_map(|(nth, acknowledged)| Step::Answer { nth, acknowledged }),
        2 => (host, 0..4usize, any::<u64>(), any::<u64>())
            .prop_map(|(host, arrived, lands, order)| Step::Lose { host, arrived, lands, order }),
        1 => (0..ZONES).prop_map(|zone| Step::Reset { zone }),
    ]
}

#[derive(Debug, Clone)]
struct Sending {
    host: usize,
    zone: u64,
    /// Where a write begins, in blocks. `None`: an append.
    at: Option<u64>,
    content: u32,
    blocks: u64,
    /// Where it is on the disk, in blocks.
    landed: Option<u64>,
    /// Resets of its zone when it was sent.
    resets: u64,
}

#[derive(Default)]
struct World {
    disk: BTreeMap<u64, u32>,
    written: [u64; ZONES as usize],
    resets: [u64; ZONES as usize],
    /// The end of what the first host has sent to zone 0.
    next: u64,
    in_flight: Vec<Sending>,
    /// Answers that were sent and not acknowledged, by host, in their order.
    answered: [Vec<Sending>; 2],
    /// The content of each block that a host was told of.
    owners: BTreeMap<u64, u32>,
    /// Losses so far: data are not the same before and after one.
    losses: u32,
    replayed: u64,
    /// Commands that were sent again and were not there.
    repeated: u64,
}

fn key(host: usize) -> HostKey {
    HostKey::of(&HostId { nqn: Nqn::new("nqn.x").unwrap(), id: [host as u8; 16] })
}

impl World {
    fn land(&mut self, s: &mut Sending) -> Status {
        let wp = self.written[s.zone as usize];
        if s.at.is_some_and(|at| at != s.zone * BLOCKS + wp) {
            return Status::NotAtWritePointer;
        }
        if wp + s.blocks > BLOCKS {
            return Status::ZoneFull;
        }
        let at = s.zone * BLOCKS + wp;
        for block in at..at + s.blocks {
            assert_eq!(self.disk.insert(block, s.content), None);
        }
        self.written[s.zone as usize] += s.blocks;
        s.landed = Some(at);
        Status::Ok
    }

    /// The host has the answer.
    fn told(&mut self, s: &Sending, at: u64) {
        if s.resets != self.resets[s.zone as usize] {
            return;
        }
        assert!(s.at.is_none_or(|of| of == at));
        for block in at..at + s.blocks {
            assert_eq!(self.disk.get(&block), Some(&s.content), "{s:?}");
            assert_eq!(self.owners.insert(block, s.content), None, "{block} has an owner: {s:?}");
        }
    }

    fn step(&mut self, ledger: &mut ResendLedger, step: &Step) {
        match *step {
            Step::Send { host, zone, kind } => self.send(host, zone, kind),
            Step::Land { nth } => {
                if let Some(i) = self.pick(nth).filter(|i| self.in_flight[*i].landed.is_none()) {
                    let mut s = self.in_flight[i].clone();
                    // An order window would hold a write that comes too early.
                    if self.land(&mut s).is_ok() {
                        self.in_flight[i] = s;
                    }
                }
            }
            Step::Answer { nth, acknowledged } => {
                if let Some(i) = self.pick(nth)
                    && let Some(at) = self.in_flight[i].landed
                {
                    let s = self.in_flight.remove(i);
                    let before = &mut self.answered[s.host];
                    if !acknowledged {
                        return before.push(s);
                    }
                    // Answers are acknowledged in their order.
                    let host = s.host;
                    for s in std::mem::take(&mut self.answered[host]) {
                        self.told(&s, s.landed.unwrap());
                    }
                    self.told(&s, at);
                }
            }
            Step::Lose { host, arrived, lands, order } => {
                self.lose(ledger, host, arrived, lands, order);
            }
            Step::Reset { zone } => self.reset(ledger, zone),
        }
    }

    fn pick(&self, nth: usize) -> Option<usize> {
        (!self.in_flight.is_empty()).then(|| nth % self.in_flight.len())
    }

    fn send(&mut self, host: usize, zone: u64, kind: u32) {
        let blocks = u64::from(kind % 2) + 1;
        let host = if zone == 0 { 0 } else { host };
        let at = (zone == 0).then_some(self.next);
        if zone == 0 {
            if self.next + blocks > BLOCKS {
                return;
            }
            self.next += blocks;
        }
        let content = self.losses * 4 + kind;
        let resets = self.resets[zone as usize];
        self.in_flight.push(Sending { host, zone, at, content, blocks, landed: None, resets });
    }

    fn reset(&mut self, ledger: &mut ResendLedger, zone: u64) {
        // Nothing of the one host that writes is on its way: it would not reset the zone then.
        let busy = |s: &Sending| s.zone == 0;
        if zone == 0 && (self.in_flight.iter().any(busy) || self.answered[0].iter().any(busy)) {
            return;
        }
        let of = zone * BLOCKS..(zone + 1) * BLOCKS;
        self.disk.retain(|block, _| !of.contains(block));
        self.owners.retain(|block, _| !of.contains(block));
        self.written[zone as usize] = 0;
        self.resets[zone as usize] += 1;
        if zone == 0 {
            self.next = 0;
        }
        // Appends to the old zone that have not landed land in the new one; their hosts do not care.
        for s in self.in_flight.iter_mut().filter(|s| s.zone == zone && s.landed.is_none()) {
            s.resets += 1;
        }
        ledger.forget_zone(Sector(zone * ZONE));
    }

    fn lose(
        &mut self,
        ledger: &mut ResendLedger,
        host: usize,
        arrived: usize,
        mut lands: u64,
        mut order: u64,
    ) {
        let sectors = |s: &Sending| (s.blocks * BLOCK) as u32;
        let is_new = |w: &World, s: &Sending| s.resets == w.resets[s.zone as usize];
        let all = std::mem::take(&mut self.in_flight);
        let (mut own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|s| s.host == host);
        self.in_flight = others;
        for s in own.iter_mut().filter(|s| s.landed.is_none()) {
            lands = lands.rotate_right(1);
            if lands & 1 != 0 {
                self.land(s);
            }
        }
        let answered = std::mem::take(&mut self.answered[host]);
        let missing: Vec<(u64, u32)> = own
            .iter()
            .chain(&answered)
            .filter(|s| s.landed.is_none() || !is_new(self, s))
            .map(|s| (s.zone, s.content))
            .collect();
        let mut again = Vec::new();
        for (i, s) in answered.into_iter().enumerate() {
            let at = s.landed.unwrap();
            if is_new(self, &s) {
                let (sector, len_sectors) = (Sector(at * BLOCK), sectors(&s));
                match s.at {
                    Some(_) => ledger.lose_write(key(host), sector, len_sectors),
                    None => {
                        let landed = Landed { at: sector, len_sectors, hash: None };
                        ledger.lose_append(key(host), landed);
                    }
                }
            }
            // An append that is not there could get the place of this one, if that has arrived although its acknowledgement was
            // lost. Nothing tells the two apart.
            let equal = missing.contains(&(s.zone, s.content));
            if again.is_empty() && i < arrived && !equal {
                self.told(&s, at);
            } else {
                again.push(s);
            }
        }
        for s in own {
            if let Some(at) = s.at {
                ledger.lose_write(key(host), Sector(at * BLOCK), sectors(&s));
            } else if let Some(at) = s.landed.filter(|_| is_new(self, &s)) {
                let hash = Some(u64::from(s.content));
                let (at, len_sectors) = (Sector(at * BLOCK), sectors(&s));
                ledger.lose_append(key(host), Landed { at, len_sectors, hash });
            }
            again.push(s);
        }
        ledger.is_back(key(host), NOW);
        self.losses += 1;
        // Writes that have not landed are sent in their order, as if the disk held those that come early.
        again.sort_by_key(|s| (s.landed.is_none(), s.at));
        let old = again.iter().take_while(|s| s.landed.is_some()).count();
        // Of commands with the same data: how many were on the disk, and how many were found there. Either of two appends may get
        // the place of the other.
        let mut counts: BTreeMap<(u64, u32), (u32, u32)> = BTreeMap::new();
        for first in 0..again.len() {
            if first < old {
                let other = first + order as usize % (old - first);
                again.swap(first, other);
                order = order.rotate_right(7);
            }
            let s = again[first].clone();
            let was_there = s.landed.is_some() && is_new(self, &s);
            let count = counts.entry((s.zone, s.content)).or_default();
            count.0 += u32::from(was_there);
            count.1 += u32::from(self.resend(ledger, s));
        }
        for (of, (there, found)) in counts {
            assert!(found >= there, "{of:?}: {found} found of {there} that were there");
        }
    }

    /// Whether it was found on the disk.
    fn resend(&mut self, ledger: &mut ResendLedger, mut s: Sending) -> bool {
        let zone = s.zone as usize;
        let sector = Sector(s.at.unwrap_or(s.zone * BLOCKS) * BLOCK);
        let (len_sectors, host) = ((s.blocks * BLOCK) as u32, key(s.host));
        let sent = Sent { host, sector, len_sectors, fua: s.content.is_multiple_of(3) };
        s.resets = self.resets[zone];
        s.landed = None;
        let (begun, refused) = match s.at {
            Some(_) => match self.land(&mut s) {
                Status::Ok => (None, None),
                status => (Resend::of_write(sent, status, false, ledger, NOW), Some(status)),
            },
            None => {
                let data = AppendData { hash: u64::from(s.content), blocks: Vec::new() };
                (Resend::of_append(sent, data, ledger, NOW), None)
            }
        };
        let result = match (begun, refused) {
            (Some((resend, step)), _) => self.carry_out(ledger, &mut s, resend, step),
            (None, Some(status)) => Err(status),
            (None, None) if s.at.is_some() => Ok(s.landed.unwrap()),
            (None, None) => match self.land(&mut s) {
                Status::Ok => Ok(s.landed.unwrap()),
                status => Err(status),
            },
        };
        match result {
            Ok(at) => {
                let found = s.landed.is_none();
                self.replayed += u64::from(found);
                self.repeated += u64::from(!found);
                self.told(&s, at);
                found
            }
            Err(_) => false,
        }
    }

    fn carry_out(
        &mut self,
        ledger: &mut ResendLedger,
        s: &mut Sending,
        mut resend: Resend,
        mut step: ResendStep,
    ) -> Result<u64, Status> {
        loop {
            let outcome = match step {
                ResendStep::Report => {
                    let start = Sector(s.zone * ZONE);
                    let zone = ZoneInfo {
                        start,
                        len_sectors: ZONE,
                        capacity_sectors: ZONE,
                        wp: start.plus(self.written[s.zone as usize] * BLOCK),
                        zone_type: geometry().zone_type(ZoneNo(s.zone as u32)),
                        cond: Condition::ImpOpen,
                    };
                    Outcome::Zone(Some(zone))
                }
                ResendStep::Compare { at, len_sectors, .. } => {
                    let blocks = at.0 / BLOCK..(at.0 + u64::from(len_sectors)) / BLOCK;
                    Outcome::Compared(
                        blocks.into_iter().all(|b| self.disk.get(&b) == Some(&s.content)),
                    )
                }
                ResendStep::Flush => Outcome::Ended(Status::Ok),
                ResendStep::WriteRest(done) => panic!("{done}: a write lands as a whole here"),
                ResendStep::Append => {
                    return match self.land(s) {
                        Status::Ok => Ok(s.landed.unwrap()),
                        status => Err(status),
                    };
                }
                ResendStep::Done(at) => return Ok(at.0 / BLOCK),
                ResendStep::Failed(status) => return Err(status),
            };
            step = resend.next(outcome, ledger, NOW);
        }
    }
}

fn geometry() -> Geometry {
    Geometry::new(ZONES, ZONE as u32, ZONE as u32).unwrap()
}

fn run(steps: &[Step]) -> World {
    let (mut world, mut ledger) = (World::default(), ResendLedger::new(geometry()));
    for step in steps {
        world.step(&mut ledger, step);
    }
    for (block, content) in &world.owners {
        assert_eq!(world.disk.get(block), Some(content));
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// L2, L4, L5.
    #[test]
    fn l4_what_is_sent_again_is_on_the_disk_once_and_has_one_owner(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        run(&steps);
    }
}

/// The histories of the test above contain commands that are found, and some that are not.
#[test]
fn such_histories_have_commands_that_are_found() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut replayed, mut repeated) = (0, 0);
    for _ in 0..50 {
        let steps = proptest::collection::vec(step(), 150).new_tree(&mut runner).unwrap().current();
        let world = run(&steps);
        (replayed, repeated) = (replayed + world.replayed, repeated + world.repeated);
    }
    assert!(replayed > 200 && repeated > 200, "{replayed} found, {repeated} not there");
}
