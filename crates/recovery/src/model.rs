//! A test of `ledger.rs`, `last_server.rs` and `resend.rs`. Clients lose their connections and their servers at random, and send
//! the commands that were not answered again. The disk is a list of blocks, and a second list has the content of each block that a
//! client owns.
//!
//! After the loss of a server, the next one has either of its rules: it looks for the commands that each client sends within a time
//! ([`Rule::Window`]), or for the first write and the first appends of each zone ([`Rule::First`]).
//!
//! At every answer the test checks that no block has two owned, and that an owner finds its data. A command whose
//! zone was not reset is on the disk once, and succeeds.

use crate::client_key::ClientKey;
use crate::last_server::Rule;
use crate::ledger::{AppendData, Landed, ResendLedger};
use crate::resend::{Outcome, Resend, ResendStep, Search, SentCommand, StepIo};
use crate::space::Space;
use proptest::prelude::*;
use std::collections::BTreeMap;
use zoneplug_core::zone::{Condition, Geometry, ZoneInfo};
use zoneplug_core::{Nanos, Op, Sector, Status, ZoneNo};

const ZONES: u64 = 3;
const BLOCKS: u64 = 64;
/// Sectors of a block, and of a zone.
const BLOCK: u64 = 8;
const ZONE: u64 = BLOCKS * BLOCK;
const NOW: Nanos = Nanos(5);

/// One step of a history. Numbers are taken modulo the number of existing things.
#[derive(Debug, Clone)]
enum Step {
    /// In zone 0, the first client sends a write behind its earlier ones. In the other zones, `client` sends an append.
    /// `kind` decides content and length.
    Send {
        client: usize,
        zone: u64,
        kind: u32,
    },
    Land {
        nth: usize,
    },
    /// The server answers a command that has landed. `acknowledged`: the answer has arrived at the client, and the
    /// server knows it.
    Answer {
        nth: usize,
        acknowledged: bool,
    },
    /// The connection of a client ends. `arrived` of the unacknowledged answers have reached it. Bit n of `lands`:
    /// whether the nth command in flight still lands. The client sends all commands that were not answered again; `order` is the
    /// seed of their order.
    Lose {
        client: usize,
        arrived: usize,
        lands: u64,
        order: u64,
    },
    Reset {
        zone: u64,
    },
    /// The server is killed. Some of the commands in flight still land, and the clients send all of them to the next server.
    Kill {
        lands: u64,
        order: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (client, nth) = (0..2usize, 0..16usize);
    prop_oneof![
        8 => (client.clone(), 0..ZONES, 0..4u32).prop_map(|(client, zone, kind)| Step::Send { client, zone, kind }),
        6 => nth.clone().prop_map(|nth| Step::Land { nth }),
        6 => (nth, any::<bool>()).prop_map(|(nth, acknowledged)| Step::Answer { nth, acknowledged }),
        2 => (client, 0..4usize, any::<u64>(), any::<u64>())
            .prop_map(|(client, arrived, lands, order)| Step::Lose { client, arrived, lands, order }),
        1 => (0..ZONES).prop_map(|zone| Step::Reset { zone }),
        1 => (any::<u64>(), any::<u64>()).prop_map(|(lands, order)| Step::Kill { lands, order }),
    ]
}

#[derive(Debug, Clone)]
struct Sending {
    client: usize,
    zone: u64,
    /// The first block of a write. `None`: an append.
    at: Option<u64>,
    content: u32,
    blocks: u64,
    /// The first block on the disk, after it landed.
    landed: Option<u64>,
    /// Resets of its zone when it was sent.
    resets: u64,
}

impl Sending {
    fn hashes(&self) -> impl Iterator<Item = u64> {
        let content = u64::from(self.content);
        (0..self.blocks).map(move |i| content * 2 + i)
    }
}

#[derive(Default)]
struct World {
    disk: BTreeMap<u64, u32>,
    written: [u64; ZONES as usize],
    resets: [u64; ZONES as usize],
    /// The end of the first client's writes to zone 0, sent or landed.
    next: u64,
    in_flight: Vec<Sending>,
    /// Answers that were sent and not acknowledged, by client, in their order.
    answered: [Vec<Sending>; 2],
    /// The content of each block whose place a client knows.
    owned: BTreeMap<u64, u32>,
    /// Losses so far. Commands sent before and after a loss never have equal data.
    losses: u32,
    /// Commands that were sent again and found on the disk.
    found: u64,
    /// Commands that were sent again and not found on the disk.
    not_found: u64,
    /// Commands that a server found by the rule of first commands.
    found_first: u64,
}

fn key(client: usize) -> ClientKey {
    ClientKey(client as u64)
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

    /// Gives the client its answer.
    fn told(&mut self, s: &Sending, at: u64) {
        if s.resets != self.resets[s.zone as usize] {
            return;
        }
        assert!(s.at.is_none_or(|of| of == at));
        for block in at..at + s.blocks {
            assert_eq!(self.disk.get(&block), Some(&s.content), "{s:?}");
            assert_eq!(self.owned.insert(block, s.content), None, "{block} has an owner: {s:?}");
        }
    }

    fn step(&mut self, ledger: &mut ResendLedger, step: &Step) {
        match *step {
            Step::Send { client, zone, kind } => self.send(client, zone, kind),
            Step::Land { nth } => {
                if let Some(i) = self.pick(nth).filter(|i| self.in_flight[*i].landed.is_none()) {
                    let mut s = self.in_flight[i].clone();
                    // Here a write that comes too early just does not land; a real order window would hold it.
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
                    let before = &mut self.answered[s.client];
                    if !acknowledged {
                        return before.push(s);
                    }
                    // Answers are acknowledged in their order.
                    let client = s.client;
                    for s in std::mem::take(&mut self.answered[client]) {
                        self.told(&s, s.landed.unwrap());
                    }
                    self.told(&s, at);
                }
            }
            Step::Lose { client, arrived, lands, order } => {
                self.lose(ledger, client, arrived, lands, order);
            }
            Step::Reset { zone } => self.reset(ledger, zone),
            Step::Kill { lands, order } => self.kill(ledger, lands, order),
        }
    }

    fn pick(&self, nth: usize) -> Option<usize> {
        (!self.in_flight.is_empty()).then(|| nth % self.in_flight.len())
    }

    fn send(&mut self, client: usize, zone: u64, kind: u32) {
        let blocks = u64::from(kind % 2) + 1;
        let client = if zone == 0 { 0 } else { client };
        let at = (zone == 0).then_some(self.next);
        if zone == 0 {
            if self.next + blocks > BLOCKS {
                return;
            }
            self.next += blocks;
        }
        let content = self.losses * 4 + kind;
        let resets = self.resets[zone as usize];
        self.in_flight.push(Sending { client, zone, at, content, blocks, landed: None, resets });
    }

    fn reset(&mut self, ledger: &mut ResendLedger, zone: u64) {
        // A client does not reset a zone while its own writes to it are in flight.
        let busy = |s: &Sending| s.zone == 0;
        if zone == 0 && (self.in_flight.iter().any(busy) || self.answered[0].iter().any(busy)) {
            return;
        }
        let of = zone * BLOCKS..(zone + 1) * BLOCKS;
        self.disk.retain(|block, _| !of.contains(block));
        self.owned.retain(|block, _| !of.contains(block));
        self.written[zone as usize] = 0;
        self.resets[zone as usize] += 1;
        if zone == 0 {
            self.next = 0;
        }
        // Appends in flight land in the reset zone; their clients accept that.
        for s in self.in_flight.iter_mut().filter(|s| s.zone == zone && s.landed.is_none()) {
            s.resets += 1;
        }
        ledger.forget_zone(Sector(zone * ZONE));
    }

    /// Lands those of the commands that have not landed yet and whose bit in `lands` is set.
    fn land_some(&mut self, of: &mut [Sending], mut lands: u64) {
        for s in of.iter_mut().filter(|s| s.landed.is_none()) {
            lands = lands.rotate_right(1);
            if lands & 1 != 0 {
                self.land(s);
            }
        }
    }

    fn kill(&mut self, ledger: &mut ResendLedger, lands: u64, order: u64) {
        let mut again = std::mem::take(&mut self.in_flight);
        self.land_some(&mut again, lands);
        // The journal has the answers that were sent. They count as arrived.
        for s in std::mem::take(&mut self.answered).into_iter().flatten() {
            self.told(&s, s.landed.unwrap());
        }
        let mut written = self.written.map(|blocks| (blocks * BLOCK) as u32);
        *ledger = ResendLedger::new(geometry());
        let writes = again.iter().filter(|s| s.at.is_some()).count();
        let first = writes <= 1 && order.is_multiple_of(2);
        if first {
            ledger.set_rule(Rule::First { appends: again.len() as u32 });
            written[1..].fill(0);
        }
        ledger.set_written_at_start(written.to_vec(), NOW);
        ledger.set_spaces(self.unanswered_spaces(&again), BLOCK as u32);
        (0..2).for_each(|client| ledger.is_back(key(client), NOW));
        let found = self.resend_all(ledger, again, order);
        self.found_first += u64::from(first) * found;
    }

    /// The space of the appends among `all`, which were not answered.
    fn unanswered_spaces(&self, all: &[Sending]) -> BTreeMap<u32, Space> {
        let is_append = |s: &&Sending| s.at.is_none() && s.resets == self.resets[s.zone as usize];
        let mut hashes = BTreeMap::new();
        for s in all.iter().filter(is_append) {
            hashes.extend(s.landed.iter().flat_map(|at| *at..).zip(s.hashes()));
        }
        let mut spaces: BTreeMap<u32, Space> = BTreeMap::new();
        while let Some((first, _)) = hashes.first_key_value() {
            let (first, mut piece) = (*first, Vec::new());
            while let Some(hash) = hashes.remove(&(first + piece.len() as u64)) {
                piece.push(hash);
            }
            let (zone, offset) = geometry().zone_of(Sector(first * BLOCK));
            let space = spaces.entry(zone.0).or_insert_with(|| Space::new(BLOCK as u32));
            space.add(offset, piece);
        }
        spaces
    }

    fn lose(
        &mut self,
        ledger: &mut ResendLedger,
        client: usize,
        arrived: usize,
        lands: u64,
        order: u64,
    ) {
        let sectors = |s: &Sending| (s.blocks * BLOCK) as u32;
        let is_new = |w: &World, s: &Sending| s.resets == w.resets[s.zone as usize];
        let all = std::mem::take(&mut self.in_flight);
        let (mut own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|s| s.client == client);
        self.in_flight = others;
        self.land_some(&mut own, lands);
        let answered = std::mem::take(&mut self.answered[client]);
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
                    Some(_) => ledger.lose_write(key(client), sector, len_sectors),
                    None => {
                        let landed = Landed { at: sector, len_sectors, hash: None };
                        ledger.lose_append(key(client), landed);
                    }
                }
            }
            // If this answer arrived and only its acknowledgement was lost, a missing append with the same data could
            // get its place. The server cannot tell the two apart, so the model does not let such an answer arrive.
            let equal = missing.contains(&(s.zone, s.content));
            if again.is_empty() && i < arrived && !equal {
                self.told(&s, at);
            } else {
                again.push(s);
            }
        }
        for s in own {
            if let Some(at) = s.at {
                ledger.lose_write(key(client), Sector(at * BLOCK), sectors(&s));
            } else if let Some(at) = s.landed.filter(|_| is_new(self, &s)) {
                let hash = Some(u64::from(s.content));
                let (at, len_sectors) = (Sector(at * BLOCK), sectors(&s));
                ledger.lose_append(key(client), Landed { at, len_sectors, hash });
            }
            again.push(s);
        }
        ledger.is_back(key(client), NOW);
        self.resend_all(ledger, again, order);
    }

    /// Sends commands again. Returns how many were found on the disk.
    fn resend_all(
        &mut self,
        ledger: &mut ResendLedger,
        mut again: Vec<Sending>,
        mut order: u64,
    ) -> u64 {
        self.losses += 1;
        // Writes that have not landed go last, in order: a real disk's order window would hold early ones.
        again.sort_by_key(|s| (s.landed.is_none(), s.at));
        let old = again.iter().take_while(|s| s.landed.is_some()).count();
        // For commands with equal data, counts those that were on the disk and those that were found there. Two
        // appends with equal data may swap their places.
        let mut counts: BTreeMap<(u64, u32), (u32, u32)> = BTreeMap::new();
        for first in 0..again.len() {
            if first < old {
                let other = first + order as usize % (old - first);
                again.swap(first, other);
                order = order.rotate_right(7);
            }
            let s = again[first].clone();
            let was_there = s.landed.is_some() && s.resets == self.resets[s.zone as usize];
            let count = counts.entry((s.zone, s.content)).or_default();
            count.0 += u32::from(was_there);
            count.1 += u32::from(self.resend(ledger, s));
        }
        for (of, (there, found)) in &counts {
            assert!(found >= there, "{of:?}: {found} found of {there} that were there");
        }
        counts.values().map(|(_, found)| u64::from(*found)).sum()
    }

    /// Sends a command again. Returns whether it was found on the disk.
    fn resend(&mut self, ledger: &mut ResendLedger, mut s: Sending) -> bool {
        let zone = s.zone as usize;
        let sector = Sector(s.at.unwrap_or(s.zone * BLOCKS) * BLOCK);
        let (len_sectors, client) = ((s.blocks * BLOCK) as u32, key(s.client));
        let sent = SentCommand { client, sector, len_sectors, fua: s.content.is_multiple_of(3) };
        s.resets = self.resets[zone];
        s.landed = None;
        let (begun, refused) = match s.at {
            Some(_) => match Resend::of_first_write(sent, ledger) {
                Some(begun) => (Some(begun), None),
                None => match self.land(&mut s) {
                    Status::Ok => (None, None),
                    status => (Resend::of_write(sent, status, false, ledger, NOW), Some(status)),
                },
            },
            None => {
                let data = AppendData { hash: u64::from(s.content), blocks: s.hashes().collect() };
                (Resend::of_append(sent, data, ledger, NOW), None)
            }
        };
        let result = match (begun, refused) {
            (Some(search), _) => self.carry_out(ledger, &mut s, search),
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
                self.found += u64::from(found);
                self.not_found += u64::from(!found);
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
        search: Search,
    ) -> Result<u64, Status> {
        let Search { mut resend, mut step } = search;
        loop {
            let outcome = match step {
                ResendStep::Ask(StepIo { op: Op::ReportZones, .. }) => {
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
                ResendStep::Ask(StepIo { op: Op::Read, sector: at, len_sectors, .. }) => {
                    let blocks = at.0 / BLOCK..(at.0 + u64::from(len_sectors)) / BLOCK;
                    Outcome::Compared(
                        blocks.into_iter().all(|b| self.disk.get(&b) == Some(&s.content)),
                    )
                }
                // Nothing is late in this world.
                ResendStep::Ask(_) | ResendStep::AwaitLate => Outcome::Ended(Status::Ok),
                ResendStep::WriteRest(done) => panic!("{done}: a write lands as a whole here"),
                ResendStep::CarryOut => {
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
    for (block, content) in &world.owned {
        assert_eq!(world.disk.get(block), Some(content));
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// L2, L4, L5, L7, L9, U6. A command that is sent again is on the disk once and has one owner.
    #[test]
    fn l4_what_is_sent_again_is_on_the_disk_once_and_has_one_owner(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        run(&steps);
    }
}

/// The histories of the test above contain both commands that are found and commands that are not.
#[test]
fn such_histories_have_commands_that_are_found() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut replayed, mut not_found, mut first) = (0, 0, 0);
    for _ in 0..50 {
        let steps = proptest::collection::vec(step(), 150).new_tree(&mut runner).unwrap().current();
        let world = run(&steps);
        (replayed, not_found) = (replayed + world.found, not_found + world.not_found);
        first += world.found_first;
    }
    assert!(replayed > 200 && not_found > 200, "{replayed} found, {not_found} not there");
    assert!(first > 50, "{first} found by their order");
}
