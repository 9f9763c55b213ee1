//! The commands of hosts: their purpose, and how they are sent.

use super::{NetworkWorld, trace};
use crate::memory::stamp_bytes;
use std::collections::BTreeMap;
use zoneplug_core::Op;
use zoneplug_nvme::initiator::Data;
use zoneplug_nvme::spec::{Command, FUA, opcode};
use zoneplug_nvme::tcp::Received;

/// The purpose of a command.
#[derive(Debug, Clone)]
pub(super) enum Purpose {
    /// A write, or a write of zeroes (`stamp` is `None`).
    Write {
        zone: usize,
        generation: u64,
        offset: u32,
        len: u32,
        stamp: Option<u64>,
    },
    Append {
        zone: usize,
        generation: u64,
        len: u32,
        stamp: u64,
    },
    /// A read, and the expected content where the zone has not changed meanwhile: zone, generation, stamp.
    Read {
        expect: Vec<(usize, u64, Option<u64>)>,
    },
    /// A report of one zone. `activity`: the counter when it was sent. `quiet`: no other command of the zone was in
    /// flight.
    Report {
        zone: usize,
        activity: u64,
        quiet: bool,
    },
    /// A reset, finish, open or close. `quiet`: the zones were at rest.
    Manage {
        op: Op,
        zones: Vec<usize>,
        quiet: bool,
    },
    Flush,
    Deallocate,
    /// A command that must be refused with this status. It may be a write below the write pointer of a zone, which must not
    /// be reset meanwhile.
    Refused {
        status: u16,
        below: Option<usize>,
    },
    /// A command of the admin queue that succeeds.
    Admin,
    /// An asynchronous event request, which stays in flight.
    Event,
    /// A step waits for the answer.
    Awaited,
}

/// A command in flight.
#[derive(Debug, Clone)]
pub(super) struct HostCommand {
    pub(super) connection: usize,
    pub(super) what: Purpose,
    pub(super) command: Command,
    pub(super) data: Data,
    /// Whether the server has received it with all of its data.
    pub(super) came_up: bool,
    /// Whether its host has lost the connection.
    pub(super) ghost: bool,
}

impl NetworkWorld {
    pub(super) fn send(&mut self, c: usize, what: Purpose, command: Command, data: Data) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        trace!(self, "  command {id} on connection {c}: {what:?}");
        self.submitted += 1;
        let connection = &mut self.connections[c];
        let initiator = connection.initiator.as_mut().expect("a connection that the host has");
        let cid = initiator.send(command, data.clone());
        connection.ids.insert(cid, id);
        let sent = HostCommand { connection: c, what, command, data, came_up: false, ghost: false };
        self.commands.insert(id, sent);
        id
    }

    pub(super) fn send_awaited(&mut self, c: usize, command: Command, data: Data) -> u64 {
        let id = self.send(c, Purpose::Awaited, command, data);
        self.awaited.insert(id, None);
        id
    }

    pub(super) fn send_admin(&mut self, c: usize, command: Command) {
        let events = command.opcode() == zoneplug_nvme::spec::admin::ASYNC_EVENT_REQUEST;
        let what = if events { Purpose::Event } else { Purpose::Admin };
        self.send(c, what, command, Data::None);
    }

    /// Returns a connection with room for a command.
    pub(super) fn any_connection(&mut self) -> Option<usize> {
        let preferred = self.preferred.filter(|&c| self.connections[c].qid > 0 && self.room(c) > 0);
        if preferred.is_some() && self.rng.one_in(2) {
            return preferred;
        }
        let all: Vec<usize> = (0..self.connections.len())
            .filter(|&c| self.connections[c].qid > 0 && self.room(c) > 0)
            .collect();
        (!all.is_empty()).then(|| self.rng.pick(&all))
    }

    /// Returns the namespace of a zone, and the number of a block in it.
    pub(super) fn address(&self, z: usize, offset: u32) -> (u32, u64) {
        let zone = &self.zones[z];
        let sector = zone.start + u64::from(offset);
        let block = u64::from(self.block);
        match self.network.conventional.filter(|_| zone.conventional) {
            Some(nsid) => (nsid, sector / block),
            None => (self.network.zoned, (sector - self.network.zoned_start) / block),
        }
    }

    /// Makes a command for `len` sectors of a zone.
    pub(super) fn command_at(&self, code: u8, z: usize, offset: u32, len: u32) -> Command {
        let (nsid, lba) = self.address(z, offset);
        let c = Command::new(code).with_nsid(nsid).with_cdw_pair(10, lba);
        c.with_cdw(12, (len / self.block).saturating_sub(1))
    }

    /// Adds FUA to some commands.
    pub(super) fn with_flags(&mut self, c: Command) -> Command {
        if self.rng.one_in(8) { c.with_cdw(12, c.cdw(12) | FUA) } else { c }
    }

    /// Makes a write of `len` sectors at `offset`, whose first sector has this stamp.
    pub(super) fn write_command(
        &mut self,
        z: usize,
        offset: u32,
        len: u32,
        stamp: u64,
    ) -> (Command, Data) {
        let command = self.command_at(opcode::WRITE, z, offset, len);
        (self.with_flags(command), Data::Out(stamp_bytes(len, stamp)))
    }

    pub(super) fn stamp(&mut self, sectors: u32) -> u64 {
        self.next_stamp += u64::from(sectors);
        self.next_stamp - u64::from(sectors)
    }

    /// Notes that the outcome of a command is unknown, because its host has lost the connection.
    pub(super) fn unknown(&mut self, id: u64) {
        let sent = self.commands.get_mut(&id).expect("a command in flight");
        sent.ghost = true;
        let what = sent.what.clone();
        match what {
            Purpose::Write { zone, .. } => {
                let z = &mut self.zones[zone];
                z.writes -= 1;
                z.ghosts += 1;
                z.activity += 1;
                z.unsure |= !z.conventional;
            }
            Purpose::Append { zone, .. } => {
                let z = &mut self.zones[zone];
                z.appends -= 1;
                z.ghosts += 1;
                z.activity += 1;
                z.unsure = true;
            }
            Purpose::Manage { zones, quiet, .. } => {
                for zone in zones {
                    let z = &mut self.zones[zone];
                    z.managed -= 1;
                    z.ghosts += 1;
                    z.activity += 1;
                    (z.unsure, z.fuzzy, z.mixed) = (true, z.fuzzy || !quiet, true);
                    z.shadow.fill(None);
                }
            }
            Purpose::Report { zone, .. } => self.zones[zone].asked = false,
            Purpose::Refused { below: Some(zone), .. } => {
                let z = &mut self.zones[zone];
                z.refused -= 1;
                z.ghosts += 1;
            }
            Purpose::Awaited => {
                self.awaited.remove(&id);
            }
            _ => {}
        }
    }

    /// Forgets the commands of lost connections that the server can no longer carry out. Returns false if there are
    /// none.
    pub(super) fn end_ghosts(&mut self) -> bool {
        let over = |s: &HostCommand| {
            let gone = s.ghost && self.connections[s.connection].served.is_none();
            gone && self.closing.iter().all(|(c, ..)| *c != s.connection)
        };
        let all: Vec<u64> =
            self.commands.iter().filter(|(_, s)| over(s)).map(|(&id, _)| id).collect();
        for &id in &all {
            let Some(sent) = self.commands.remove(&id) else { continue };
            let zones = match sent.what {
                Purpose::Write { zone, .. } | Purpose::Append { zone, .. } => vec![zone],
                Purpose::Manage { zones, .. } => zones,
                Purpose::Refused { below, .. } => below.into_iter().collect(),
                _ => Vec::new(),
            };
            zones.into_iter().for_each(|z| self.zones[z].ghosts -= 1);
        }
        !all.is_empty()
    }
}

/// Checks a command that the server has received: its data must be those that the host has sent (K4). `ids` has the
/// commands of its connection by their identifiers on the wire.
pub(super) fn came_up(
    ids: &BTreeMap<u16, u64>,
    commands: &mut BTreeMap<u64, HostCommand>,
    received: &Received,
) {
    let id = ids.get(&received.command.cid());
    let id = *id.unwrap_or_else(|| panic!("K1: no host has sent {:?}", received.command));
    let sent = commands.get_mut(&id).unwrap_or_else(|| panic!("command {id} comes again"));
    assert!(!sent.came_up, "command {id} comes again");
    sent.came_up = true;
    let (ours, theirs) = (&sent.command.0, &received.command.0);
    let same = ours[0] == theirs[0] && ours[4..8] == theirs[4..8] && ours[40..] == theirs[40..];
    assert!(same, "K1: command {id} is another: {sent:?}, {:?}", received.command);
    let came = received.data.as_ref().map_or(&[][..], |d| &d.as_slice()[..received.len as usize]);
    match &sent.data {
        Data::Out(data) => assert!(came == data, "K4: the data of command {id} are others"),
        _ => assert!(came.is_empty(), "K4: command {id} has data"),
    }
}
