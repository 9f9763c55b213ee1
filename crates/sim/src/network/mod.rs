//! A world whose clients are hosts that reach the disk over NVMe/TCP. Between the hosts and the target is a network in
//! virtual time: it cuts the streams of several connections into pieces with delays of their own, stalls, changes bytes and
//! loses connections. The target and its associations are the code of a server; only sockets and threads are modelled.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `setup.rs` | disk, target and hosts: all from the seed |
//! | `link.rs` | one direction of a connection |
//! | `disks.rs` | the disk as the I/O queues of the target see it |
//! | `served.rs` | the target's side of a connection: its association |
//! | `server.rs` | what a server does with its associations: bytes, events of the target, closing |
//! | `handover.rs` | a server that ends, and the next one |
//! | `host.rs` | the hosts' side: connecting, losing connections |
//! | `authentication.rs` | hosts that authenticate, at first and again, and fail |
//! | `keys.rs` | the names and keys of hosts |
//! | `commands.rs` | what a command asks for, and how it is sent |
//! | `client.rs` | what the hosts do next: writes, appends, reads |
//! | `manage.rs` | zone management, reports, commands that must be refused |
//! | `trouble.rs` | what goes wrong in the network and at the disk |
//! | `answers.rs` | what a host concludes from an answer |
//! | `order.rs` | when a write may be refused for its place |
//! | `medium.rs` | what may be on the medium |
//! | `rest.rs` | what must hold at rest |
//!
//! A connection that is lost leaves commands of which no host knows whether they were carried out. Their zones take no more
//! commands until the server has done with these; then a report says where the write pointer is, and the medium what
//! is in front of it: each of the unknown writes is there as a whole or not at all, in its place, once. A write of
//! which the server had not received everything, or which was held when its connection ended, is not there.
//!
//! As in the other worlds each step draws from a sequence of its own.

mod answers;
mod authentication;
mod client;
mod commands;
mod disks;
mod handover;
mod host;
mod keys;
mod link;
mod manage;
mod medium;
mod order;
mod rest;
mod served;
mod server;
mod setup;
mod trouble;

use crate::class::{Class, Coverage};
use crate::client_zone::{ClientZone, Stamps};
use crate::seam_oracle::SeamOracle;
use crate::world::trace;
use commands::HostCommand;
use disks::{QueueClient, ServedDisk};
use host::{Connection, Host};
use order::Placed;
use setup::NetworkConfig;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;
use zoneplug_buf::Buffers;
use zoneplug_core::disk::{DiskConfig, Freeze};
use zoneplug_core::{Nanos, Queue, Random, Status};
use zoneplug_devices::emu::EmuDisk;
use zoneplug_devices::stack::FaultDisk;
use zoneplug_nvme::dhchap::DhGroup;
use zoneplug_nvme::initiator::Done;
use zoneplug_nvme::io_queue::ClosingQueue;
use zoneplug_nvme::target::Target;

/// The name of the subsystem.
const SUBSYSTEM: &str = "nqn.2026-11.dev.zoneplug:world";

/// The hosts' knowledge of a zone. All hosts share it: they are one client with several ways to the disk.
#[derive(Debug, Default)]
pub(crate) struct NetworkZone {
    known: ClientZone,
    /// Writes, appends and management commands in flight.
    writes: u32,
    appends: u32,
    managed: u32,
    /// Misplaced writes in flight.
    refused: u32,
    /// Commands of lost connections that the server may still carry out.
    ghosts: u32,
    /// Whether there may be zeroes that a host wrote.
    zeroed: bool,
    /// The writes since the zone was last known to be at rest, in the order of their places.
    train: Vec<Placed>,
    /// Whether a report is in flight from which the hosts will know the zone again.
    asked: bool,
}

impl Deref for NetworkZone {
    type Target = ClientZone;

    fn deref(&self) -> &ClientZone {
        &self.known
    }
}

impl DerefMut for NetworkZone {
    fn deref_mut(&mut self) -> &mut ClientZone {
        &mut self.known
    }
}

impl NetworkZone {
    fn is_quiet(&self) -> bool {
        let calm = self.managed == 0 && self.refused == 0 && self.ghosts == 0;
        calm && self.writes == 0 && self.appends == 0
    }
}

pub(crate) struct NetworkWorld {
    seed: u64,
    rng: Random,
    now: Nanos,
    /// The rounds of the present wait.
    waited_rounds: u32,
    config: DiskConfig,
    network: NetworkConfig,
    emu: Arc<EmuDisk>,
    faults: Arc<FaultDisk>,
    seam: Arc<SeamOracle>,
    served: Rc<ServedDisk>,
    /// Reads the medium without faults, layers and time.
    checker: Box<dyn Queue>,
    target: Target,
    buffers: Buffers,
    hosts: Vec<Host>,
    connections: Vec<Connection>,
    /// Queues of connections that have ended, with the tags of their clients.
    closing: Vec<(usize, u16, ClosingQueue<QueueClient>)>,
    zones: Vec<NetworkZone>,
    /// Sectors of a block.
    block: u32,
    /// Commands in flight, and those of lost connections that may still be carried out.
    commands: BTreeMap<u64, HostCommand>,
    next_id: u64,
    /// Answers that a step waits for.
    awaited: BTreeMap<u64, Option<Done>>,
    stamps: Stamps,
    next_stamp: u64,
    freeze: Option<Freeze>,
    /// Whether writes waited in plugs of servers that have ended.
    parked: bool,
    /// Whether commands may fail at the device.
    has_faults: bool,
    limited: bool,
    /// Whether hosts have keys, and the weakest Diffie-Hellman group for them.
    keys: Option<DhGroup>,
    /// The connection that takes half of the next commands, if it can.
    preferred: Option<usize>,
    pub(crate) failed: bool,
    pub(crate) submitted: u64,
    pub(crate) troubles: u64,
    pub(crate) cover: Coverage,
    pub(crate) trace: Vec<String>,
    pub(crate) tracing: bool,
}

impl NetworkWorld {
    fn hit(&mut self, class: Class) {
        self.cover.hit(class);
    }

    /// Returns whether commands fail only for their place.
    fn is_calm(&self) -> bool {
        !self.has_faults && !self.limited
    }

    /// Draws the number of steps, between these limits.
    pub(crate) fn draw_steps(&mut self) -> u32 {
        self.rng.range(300, 900)
    }

    /// Runs step `n`, which draws from its own sequence.
    pub(crate) fn step(&mut self, n: u32) {
        self.rng = Random::new(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(n) << 40);
        trace!(self, "step {n} at {}", self.now.0);
        match self.rng.below(5) {
            0..=1 => self.act(),
            n => (0..n).for_each(|_| {
                self.run_to_next_event();
            }),
        }
    }

    /// Returns whether writes waited in plugs, whether some were merged, and whether zones recovered.
    pub(crate) fn what_happened(&self) -> [bool; 3] {
        let parked = self.parked || self.served.disk.counters().plugs.parked > 0;
        [parked, self.seam.merged().0, self.seam.ordered().reports > 0]
    }

    /// Runs until an event occurs, or the time of the next one has come. Returns false if no event will ever come.
    fn run_to_next_event(&mut self) -> bool {
        for _ in 0..2 {
            if self.round() || self.served.run_for_clients() {
                return true;
            }
        }
        let Some(next) = self.next_moment() else {
            // The last poll of the queues may have been the one that froze the disk.
            let frozen = self.freeze.as_ref().is_some_and(Freeze::poll);
            return frozen || self.served.needs_polls();
        };
        self.now = next;
        self.served.now.set(next);
        true
    }

    /// Lets time pass.
    fn pass_for(&mut self, time: u64) {
        let until = self.now.plus(Nanos(time));
        self.waited_rounds = 0;
        while self.now < until {
            self.pass_until(until);
        }
    }

    /// Like [`NetworkWorld::pass`], if that does not take longer than `until`. Otherwise lets the time come. Each wait begins
    /// with `waited_rounds` at 0.
    fn pass_until(&mut self, until: Nanos) {
        if self.next_moment().is_none_or(|at| at > until) && !self.round() {
            self.now = until;
            self.served.now.set(until);
        } else {
            self.run_to_next_event();
        }
        self.waited_rounds += 1;
        assert!(self.waited_rounds < 20_000, "hang: something happens, and no time passes");
    }

    /// Runs both sides of each connection once, in random order. Returns false if nothing happened.
    fn round(&mut self) -> bool {
        let mut order: Vec<usize> = (0..self.connections.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, self.rng.below(i as u32 + 1) as usize);
        }
        let mut progress = false;
        for c in order {
            progress |= self.serve(c);
            progress |= self.host_turn(c);
        }
        progress |= self.run_closing();
        progress |= self.end_closing();
        progress |= self.served.run_left();
        progress |= self.rng.one_in(8) && self.served.run_for_clients();
        self.take_notes();
        progress |= self.keep_alive();
        progress |= self.expire_hosts();
        progress |= self.end_ghosts();
        if self.freeze.as_ref().is_some_and(Freeze::poll) {
            trace!(self, "  thawed");
            (self.freeze, progress) = (None, true);
        }
        progress
    }

    fn next_moment(&self) -> Option<Nanos> {
        let now = self.now;
        let connections = self.connections.iter().flat_map(Connection::moments);
        let hosts = self.hosts.iter().filter_map(|h| h.next_keep_alive);
        let others = [self.served.next_deadline(), self.target.next_deadline()];
        let all = connections.chain(hosts).chain(others.into_iter().flatten());
        all.filter(|at| *at > now).min()
    }

    /// Notes the requests to the disk and its answers since the last time.
    fn take_notes(&mut self) {
        let notes = std::mem::take(&mut *self.served.notes.borrow_mut());
        for note in notes {
            if note.ended.is_some_and(|s| s >= Status::OpenLimit) {
                self.failed = true;
            }
            self.note_place(&note);
        }
    }
}
