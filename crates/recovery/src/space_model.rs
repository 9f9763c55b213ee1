//! A test of appends that are looked for in the space of the last server, several at a time: places are compared in any
//! order, and may have the hashes of an append without its data. Reads fail, and connections end.
//!
//! The last server has carried out a list of appends of which no client was told. The clients send all of them again, and some that
//! never landed. Each that has landed gets a place with its data, which no other gets, and is not appended anew.

use crate::client_key::ClientKey;
use crate::last_server::Rule;
use crate::ledger::{AppendData, ResendLedger};
use crate::resend::{Outcome, Resend, ResendStep, Search, SentCommand, StepIo};
use crate::space::Space;
use proptest::prelude::*;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Nanos, Sector, Status};

const NOW: Nanos = Nanos(5);
/// Sectors of a block, and of the zone.
const BLOCK: u32 = 8;
const ZONE: u32 = 256 * BLOCK;

/// The data of an append. Two whose `content` differs only in the last bit have the same hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Append {
    blocks: u32,
    content: u32,
}

impl Append {
    fn hashes(self) -> Vec<u64> {
        let hash = |i| u64::from(self.content / 2 * 100 + self.blocks * 10 + i);
        (0..self.blocks).map(hash).collect()
    }

    fn len_sectors(self) -> u32 {
        self.blocks * BLOCK
    }
}

fn append() -> impl Strategy<Value = Append> {
    (1..4u32, 0..4u32).prop_map(|(blocks, content)| Append { blocks, content })
}

/// An event for an append that is being compared, or for the next one if none is.
#[derive(Debug, Clone)]
enum Turn {
    Begin,
    Compared,
    NotRead,
    Lost,
    /// The limit of the space expires for appends that begin later.
    Late,
}

fn turn() -> impl Strategy<Value = (usize, Turn)> {
    let turn = prop_oneof![
        6 => Just(Turn::Begin),
        6 => Just(Turn::Compared),
        1 => Just(Turn::NotRead),
        1 => Just(Turn::Lost),
    ];
    (0..64usize, turn)
}

struct World {
    ledger: ResendLedger,
    now: Nanos,
    /// The appends that landed, with their sectors.
    landed: Vec<(u32, Append)>,
    /// The appends to send.
    waiting: Vec<Append>,
    /// The appends in comparison, with the sector that each is compared with.
    compared: Vec<(Append, Resend, Sector)>,
    /// The appends that got a place, with their sectors.
    found: Vec<(u32, Append)>,
    anew: Vec<Append>,
}

impl World {
    fn new(landed: &[Append], others: &[Append], rule: Rule) -> World {
        let client = ClientKey(1);
        let mut ledger = ResendLedger::new(Geometry::new(1, ZONE, ZONE).unwrap());
        let mut at = 0;
        let places: Vec<_> = landed
            .iter()
            .map(|a| {
                at += a.len_sectors();
                (at - a.len_sectors(), *a)
            })
            .collect();
        let mut space = Space::new(BLOCK);
        space.add(0, landed.iter().flat_map(|a| a.hashes()).collect());
        ledger.set_rule(rule);
        ledger.set_written_at_start(vec![at], NOW);
        ledger.set_spaces([(0, space)].into(), BLOCK);
        ledger.is_back(client, NOW);
        World {
            ledger,
            now: NOW,
            landed: places,
            waiting: landed.iter().chain(others).copied().collect(),
            compared: Vec::new(),
            found: Vec::new(),
            anew: Vec::new(),
        }
    }

    fn turn(&mut self, n: usize, turn: &Turn) {
        match turn {
            Turn::Late => {
                self.now = Nanos(4_000_000_000_000);
                self.ledger.is_back(ClientKey(2), self.now);
            }
            Turn::Begin if !self.waiting.is_empty() => {
                let a = self.waiting.swap_remove(n % self.waiting.len());
                let sent = SentCommand {
                    client: ClientKey(1),
                    sector: Sector(0),
                    len_sectors: a.len_sectors(),
                    fua: false,
                };
                let data = AppendData { hash: 0, blocks: a.hashes() };
                match Resend::of_append(sent, data, &mut self.ledger, self.now) {
                    Some(Search { resend, step }) => self.step(a, resend, step),
                    None => self.anew.push(a),
                }
            }
            _ if self.compared.is_empty() => {}
            turn => {
                let (a, mut resend, at) = self.compared.swap_remove(n % self.compared.len());
                let outcome = match turn {
                    Turn::Lost => {
                        resend.abandon(&mut self.ledger);
                        return self.waiting.push(a);
                    }
                    Turn::NotRead => Outcome::Ended(Status::Medium),
                    _ => Outcome::Compared(self.landed.contains(&(at.0 as u32, a))),
                };
                let step = resend.next(outcome, &mut self.ledger, self.now);
                self.step(a, resend, step);
            }
        }
    }

    fn step(&mut self, a: Append, resend: Resend, step: ResendStep) {
        match step {
            ResendStep::Ask(io) if io == StepIo::compare(io.sector, a.len_sectors(), 0) => {
                self.compared.push((a, resend, io.sector));
            }
            ResendStep::CarryOut => self.anew.push(a),
            ResendStep::Done(at) => self.found.push((at.0 as u32, a)),
            ResendStep::Failed(Status::Medium) => self.waiting.push(a),
            step => panic!("{step:?}"),
        }
    }

    /// Runs until no append waits or is compared.
    fn end(&mut self) {
        while !self.waiting.is_empty() || !self.compared.is_empty() {
            self.turn(0, &Turn::Compared);
            self.turn(0, &Turn::Begin);
        }
        self.found.sort_unstable();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// L4, L9, U6. Each append that landed is found once.
    #[test]
    fn l9_each_append_that_landed_is_found_once(
        landed in proptest::collection::vec(append(), 0..12),
        others in proptest::collection::vec(append(), 0..6),
        turns in proptest::collection::vec(turn(), 0..100),
        first: bool,
    ) {
        let again = turns.iter().filter(|(_, turn)| matches!(turn, Turn::NotRead | Turn::Lost)).count();
        let appends = (landed.len() + others.len() + again) as u32;
        let rule = if first { Rule::First { appends } } else { Rule::Window };
        let mut world = World::new(&landed, &others, rule);
        turns.iter().for_each(|(n, turn)| world.turn(*n, turn));
        world.end();
        prop_assert_eq!(&world.found, &world.landed);
        prop_assert_eq!(world.anew.len(), others.len());
    }
}

/// L9. Of two appends with the same hashes that are compared with one place at the same time, the second is the one
/// that landed.
#[test]
fn l9_an_append_finds_its_place_though_another_is_compared_with_it() {
    let (landed, other) = (Append { blocks: 1, content: 0 }, Append { blocks: 1, content: 1 });
    let mut world = World::new(&[landed], &[other], Rule::Window);
    world.turn(1, &Turn::Begin);
    world.turn(0, &Turn::Begin);
    world.end();
    assert_eq!((world.found, world.anew), (vec![(0, landed)], vec![other]));
}

/// L9. A comparison that runs when the limit of the space expires can still confirm its place.
#[test]
fn l9_a_place_that_is_compared_does_not_become_too_old() {
    let landed = Append { blocks: 2, content: 0 };
    let mut world = World::new(&[landed, landed], &[], Rule::Window);
    world.turn(0, &Turn::Begin);
    world.turn(0, &Turn::Late);
    world.turn(0, &Turn::Compared);
    world.end();
    assert_eq!((world.found.len(), world.anew.len()), (1, 1));
    world.turn(0, &Turn::Late);
    assert!(world.ledger.is_empty());
}
