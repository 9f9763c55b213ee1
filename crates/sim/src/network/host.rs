//! The hosts' side: a host connects its queues, sends commands through them, and learns that a connection is lost.

use super::keys::{RIGHT_KEY, host_name};
use super::link::Link;
use super::served::Served;
use super::{NetworkWorld, SUBSYSTEM, trace};
use crate::class::Class;
use std::collections::BTreeMap;
use zoneplug_core::{Nanos, Random};
use zoneplug_nvme::initiator::{self, Data, Done, Initiator, Options};
use zoneplug_nvme::spec::fabrics::{ANY_CONTROLLER, Configuration, Connect, property};
use zoneplug_nvme::spec::{Command, admin};
use zoneplug_nvme::tcp::pdu::Digests;

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) queues: u16,
    /// Keep alive timeout in milliseconds; 0: none.
    pub(super) kato: u32,
    /// The time of its next sign of life. `None`: it sends none.
    pub(super) next_keep_alive: Option<Nanos>,
    /// Whether the host has a key, with which it must authenticate.
    pub(super) has_key: bool,
}

impl Host {
    pub(super) fn new(rng: &mut Random, number: u32, has_key: bool) -> Host {
        Host {
            name: host_name(number),
            has_key,
            queues: rng.range(1, 4) as u16,
            kato: rng.pick(&[0, 1000, 2500]),
            next_keep_alive: None,
        }
    }
}

/// A connection: its two sides and the links between them.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) host: usize,
    pub(super) qid: u16,
    /// Commands that may be in flight.
    pub(super) most: usize,
    /// The host's side; `None`: the host has closed it.
    pub(super) initiator: Option<Initiator>,
    /// Bytes that the host has written and the link has no room for.
    pub(super) out: Vec<u8>,
    /// The server's side; `None`: the server has closed it.
    pub(super) served: Option<Box<Served>>,
    pub(super) to_server: Link,
    pub(super) to_host: Link,
    /// The times at which the two sides see that the connection is cut.
    pub(super) host_sees: Option<Nanos>,
    pub(super) server_sees: Option<Nanos>,
    /// Bytes that the host's side has acknowledged to the server. `None`: all that have arrived.
    pub(super) acknowledged: Option<u64>,
    /// Whether an event has occurred for which the connection may end.
    pub(super) troubled: bool,
    /// The time at which its server began to end.
    pub(super) left: Option<Nanos>,
    /// Whether the connection has digests, so that bytes may change.
    pub(super) digests: bool,
    pub(super) corrupt: bool,
    /// Whether the host can use the queue.
    pub(super) ready: bool,
    /// Whether the host is failing to authenticate on the connection, so that the target refuses its commands.
    pub(super) denied: bool,
    /// Commands by their identifiers on the wire.
    pub(super) ids: BTreeMap<u16, u64>,
}

impl Connection {
    /// Returns the times at which one of its sides has something to do.
    pub(super) fn moments(&self) -> impl Iterator<Item = Nanos> {
        let served = self.served.iter().flat_map(|s| s.moments());
        let server = self.served.as_ref().and(self.to_server.next_arrival());
        let host = self.initiator.as_ref().and(self.to_host.next_arrival());
        let seen = [
            self.host_sees.filter(|_| self.initiator.is_some()),
            self.server_sees.filter(|_| self.served.is_some()),
        ];
        served.chain(server).chain(host).chain(seen.into_iter().flatten())
    }
}

impl NetworkWorld {
    /// Opens a new connection of a host.
    fn open_connection(&mut self, host: usize, qid: u16, entries: u16) -> usize {
        let digests = Digests { header: self.network.digests, data: self.network.digests };
        let digests = match self.rng.below(3) {
            // Bytes may change only where both digests are in use.
            _ if digests.header => digests,
            0 => Digests { header: true, data: false },
            1 => Digests { header: false, data: true },
            _ => digests,
        };
        let options = Options {
            digests,
            align: if self.rng.one_in(4) { self.rng.below(4) as u8 } else { 0 },
            in_capsule: self.rng.pick(&[0, 512, 4096, 8192]),
        };
        let tags = self.rng.range(1, 8) as u16;
        let served = Served::new(self.network.tcp, tags, self.now);
        let link = || Link::new(self.network.capacity, self.network.delay);
        self.connections.push(Connection {
            host,
            qid,
            most: usize::from(entries) - 1,
            initiator: Some(Initiator::new(options)),
            out: Vec::new(),
            to_server: link(),
            to_host: link(),
            served: Some(Box::new(served)),
            host_sees: None,
            server_sees: None,
            acknowledged: None,
            troubled: false,
            left: None,
            digests: self.network.digests,
            corrupt: false,
            ready: false,
            denied: false,
            ids: BTreeMap::new(),
        });
        self.connections.len() - 1
    }

    /// Connects a host: its admin queue and its I/O queues. Returns false if a connection was lost meanwhile.
    pub(super) fn connect_host(&mut self, h: usize) -> bool {
        trace!(self, "  host {h} connects");
        let (kato, queues) = (self.hosts[h].kato, self.hosts[h].queues);
        let Some((admin, cntlid)) = self.connect_queue(h, 0, ANY_CONTROLLER, kato) else {
            return false;
        };
        let enable = Command::property_set(property::CC, Configuration::START.encode());
        if self.ask(admin, enable, Data::None).is_none() {
            return false;
        }
        let (command, data) = initiator::set_queues(queues);
        if self.ask(admin, command, data).is_none() {
            return false;
        }
        // No event has occurred since the answer, so the connection still exists.
        self.send_admin(admin, Command::new(admin::ASYNC_EVENT_REQUEST));
        let every = Nanos(u64::from(kato) * 400_000);
        self.hosts[h].next_keep_alive = (kato != 0).then(|| self.now.plus(every));
        for qid in 1..=queues {
            if self.connect_queue(h, qid, cntlid as u16, 0).is_none() {
                return false;
            }
        }
        true
    }

    /// Connects one queue: its connection, and the number of the controller.
    fn connect_queue(
        &mut self,
        h: usize,
        qid: u16,
        cntlid: u16,
        kato: u32,
    ) -> Option<(usize, u64)> {
        let entries = if qid == 0 { 32 } else { self.rng.range(3, 24) as u16 };
        let c = self.open_connection(h, qid, entries);
        let host = &self.hosts[h].name;
        let (command, data) = initiator::connect(qid, entries, cntlid, SUBSYSTEM, host);
        let cattr = if self.rng.one_in(2) { Connect::NO_SQ_FLOW_CONTROL } else { 0 };
        let fields = Connect { kato, cattr, ..Connect::decode(&command) };
        let result = self.ask(c, fields.encode(), data)?;
        if self.hosts[h].has_key {
            let admitted = self.authenticate(c, RIGHT_KEY)?;
            assert!(admitted, "J13: host {h} knows its key, and is not admitted on connection {c}");
            self.hit(Class::Authenticated);
        }
        self.connections[c].ready = true;
        Some((c, result))
    }

    /// Sends an admin command, or a Connect, and waits for its answer, which must be success. Returns `None` if the
    /// connection was lost.
    fn ask(&mut self, c: usize, command: Command, data: Data) -> Option<u64> {
        self.ask_for(c, command, data).map(|done| done.completion.result)
    }

    /// Like `ask`. Returns the whole answer.
    pub(super) fn ask_for(&mut self, c: usize, command: Command, data: Data) -> Option<Done> {
        self.connections[c].initiator.as_ref()?;
        let id = self.send_awaited(c, command, data);
        // A queue full of reads of 100 KiB takes thousands of rounds if its link has room for 700 bytes.
        for _ in 0..100_000 {
            match self.awaited.remove(&id)? {
                Some(done) => {
                    assert_eq!(done.completion.status, 0, "{command:?} on connection {c}");
                    return Some(done);
                }
                None => self.awaited.insert(id, None),
            };
            assert!(
                self.run_to_next_event(),
                "hang: nothing happens, and {command:?} is not answered"
            );
        }
        panic!("hang: {command:?} is not answered");
    }

    /// Sends signs of life of hosts with a timeout. Returns false if none was due.
    pub(super) fn keep_alive(&mut self) -> bool {
        let mut any = false;
        for h in 0..self.hosts.len() {
            if self.hosts[h].next_keep_alive.is_none_or(|at| at > self.now) {
                continue;
            }
            let every = Nanos(u64::from(self.hosts[h].kato) * 400_000);
            self.hosts[h].next_keep_alive = Some(self.now.plus(every));
            let admin = self.admin_of(h);
            if let Some(c) = admin.filter(|&c| self.room(c) > 0) {
                self.send_admin(c, Command::new(admin::KEEP_ALIVE));
            }
            any = true;
        }
        any
    }

    /// Returns the admin queue of a host.
    pub(super) fn admin_of(&self, h: usize) -> Option<usize> {
        let mut all = self.connections.iter();
        all.position(|c| c.host == h && c.qid == 0 && c.ready && c.initiator.is_some())
    }

    /// Returns how many commands the host may send through a connection.
    pub(super) fn room(&self, c: usize) -> usize {
        let connection = &self.connections[c];
        let initiator = connection.initiator.as_ref().filter(|_| connection.ready);
        initiator.map_or(0, |i| connection.most.saturating_sub(i.in_flight()))
    }

    /// Runs the host's side of a connection: takes answers, sends commands. Returns false if nothing happened.
    pub(super) fn host_turn(&mut self, c: usize) -> bool {
        let now = self.now;
        let connection = &mut self.connections[c];
        let Some(initiator) = connection.initiator.as_mut() else { return false };
        if connection.host_sees.is_some_and(|at| at <= now) {
            self.host_closes(c);
            return true;
        }
        let mut progress = false;
        let arrived = connection.to_host.arrived(now);
        let part = arrived > 0 && self.rng.one_in(4);
        let n = if part { self.rng.range(1, arrived as u32) as usize } else { arrived };
        let mut bytes = vec![0; n];
        let n = connection.to_host.take(now, &mut bytes);
        let mut lost = false;
        if n > 0 {
            progress = true;
            if let Err(what) = initiator.received(&bytes[..n]) {
                assert!(connection.corrupt, "the host was told on connection {c}: {what}");
                lost = true;
            }
        }
        let mut done = Vec::new();
        while let Some(d) = initiator.done() {
            done.push(d);
        }
        connection.out.extend(initiator.take_output());
        let m = connection.to_server.room().min(connection.out.len());
        if m > 0 && !lost {
            let bytes: Vec<u8> = connection.out.drain(..m).collect();
            connection.to_server.send(&mut self.rng, now, &bytes);
            progress = true;
        }
        for d in done {
            let cid = d.completion.cid;
            let id = self.connections[c].ids.get(&cid).copied();
            self.answered(id.unwrap_or_else(|| panic!("no command {cid} on connection {c}")), d);
        }
        let connection = &self.connections[c];
        if lost || connection.to_host.is_over() && connection.initiator.is_some() {
            assert!(connection.troubled, "the server has ended connection {c} without a reason");
            self.host_closes(c);
            progress = true;
        }
        progress
    }

    /// Closes a connection on the host's side, or notes its loss. The outcome of commands in flight is unknown.
    pub(super) fn host_closes(&mut self, c: usize) {
        let connection = &mut self.connections[c];
        if connection.initiator.take().is_none() {
            return;
        }
        trace!(self, "  host {} loses connection {c}", self.connections[c].host);
        let connection = &mut self.connections[c];
        connection.to_server.end();
        connection.troubled = true;
        let ids: Vec<u64> =
            self.commands.iter().filter(|(_, s)| s.connection == c).map(|(&id, _)| id).collect();
        if !ids.is_empty() {
            self.hit(Class::LostAnswer);
        }
        for id in ids {
            self.unknown(id);
        }
        if self.connections[c].served.is_none() {
            return;
        }
        if self.connections[c].qid == 0 {
            // Without its admin queue a host has no controller.
            self.lose_host(self.connections[c].host);
        }
    }

    /// Gives up all connections of a host.
    pub(super) fn lose_host(&mut self, h: usize) {
        self.hosts[h].next_keep_alive = None;
        for c in 0..self.connections.len() {
            if self.connections[c].host == h {
                self.host_closes(c);
            }
        }
    }

    /// Reconnects hosts that have lost a connection.
    pub(super) fn reconnect(&mut self) {
        for h in 0..self.hosts.len() {
            let alive = |c: &&Connection| c.host == h && c.ready && c.initiator.is_some();
            let n = self.connections.iter().filter(alive).count();
            if n == usize::from(self.hosts[h].queues) + 1 {
                continue;
            }
            self.lose_host(h);
            for _ in 0..20 {
                if self.connect_host(h) {
                    break;
                }
                self.lose_host(h);
            }
        }
    }
}
