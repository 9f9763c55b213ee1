//! Hosts with keys. Each authenticates on each of its queues (DH-HMAC-CHAP), and now and then again while its commands
//! are in flight. A host that then does not know its key loses the queue, and on the admin queue all of its queues.

use super::commands::{HostCommand, Purpose};
use super::keys::{RIGHT_KEY, WRONG_KEY, key, random};
use super::{NetworkWorld, SUBSYSTEM, trace};
use crate::class::Class;
use zoneplug_nvme::dhchap::MAX_MESSAGE;
use zoneplug_nvme::initiator::{Authenticate, Data};
use zoneplug_nvme::spec::{Completion, status};

/// Returns whether the target may refuse a command with this completion because its host has to authenticate: with the
/// status that says so, or as an invalid field if the data are longer than a message of the authentication.
pub(super) fn is_denied(completion: &Completion, data: &Data) -> bool {
    let len = match data {
        Data::None => 0,
        Data::Out(bytes) => bytes.len() as u32,
        Data::In(len) => *len,
    };
    match completion.status & !status::DNR {
        status::AUTHENTICATION_REQUIRED => true,
        status::INVALID_FIELD => len > MAX_MESSAGE,
        _ => false,
    }
}

impl NetworkWorld {
    /// Authenticates a host on a connection with this key. If the queue is connected already, sends other commands in
    /// between. Returns whether the target has admitted the host. Returns `None` if the connection was lost.
    pub(super) fn authenticate(&mut self, c: usize, key_text: &str) -> Option<bool> {
        let name = self.hosts[self.connections[c].host].name.clone();
        let (t_id, random) = (self.rng.draw() as u16, random(&mut self.rng));
        let mut steps = Authenticate::new(SUBSYSTEM, &name, &key(key_text), None, t_id, random);
        let mut received = Vec::new();
        loop {
            match steps.next(&received) {
                Ok(Some((command, data))) => {
                    received = self.ask_for(c, command, data)?.data;
                    if self.connections[c].ready {
                        self.load();
                    }
                }
                Ok(None) => return Some(true),
                Err(_) => return Some(false),
            }
        }
    }

    /// Sends some commands.
    fn load(&mut self) {
        for _ in 0..self.rng.below(4) {
            match self.rng.below(3) {
                0 => self.append(),
                1 => self.read(),
                _ => self.write_train(),
            }
        }
    }

    /// Authenticates a host again on one of its queues, perhaps with a wrong key: then the host loses access.
    pub(super) fn authenticate_again(&mut self) {
        let Some(c) = self.any_path() else { return };
        let h = self.connections[c].host;
        if self.room(c) == 0 {
            return;
        }
        let knows = self.rng.one_in(2);
        self.preferred = Some(c);
        self.load();
        trace!(self, "  host {h} authenticates again on connection {c}: {knows}");
        if knows {
            let busy = self.commands.values().any(|s| s.connection == c && !is_event(s));
            let admitted = self.authenticate(c, RIGHT_KEY);
            self.preferred = None;
            assert_ne!(admitted, Some(false), "J13: host {h} knows its key");
            if admitted.is_some() && busy {
                self.hit(Class::AuthenticatedAgain);
            }
            return;
        }
        self.troubles += 1;
        self.connections[c].denied = true;
        for other in self.connections.iter_mut().filter(|other| other.host == h) {
            other.troubled = true;
        }
        let on_admin = self.connections[c].qid == 0;
        if on_admin && self.commands.values().any(|s| self.is_on_io_queue_of(s, h)) {
            self.hit(Class::AccessLost);
        }
        let admitted = self.authenticate(c, WRONG_KEY);
        self.preferred = None;
        assert_ne!(admitted, Some(true), "J13: host {h} does not know its key");
        if admitted == Some(false) {
            // Connections with a smaller index than the admin queue's are of earlier associations: the target may not
            // know of their end yet.
            let later = if on_admin { self.connections.len() } else { c + 1 };
            for other in (c..later).filter(|&other| self.connections[other].host == h) {
                assert!(
                    !self.has_queue(other),
                    "J13: host {h} has failed, and has a queue: {other}"
                );
            }
        }
        self.load();
        let time = self.rng.below(5_000_000);
        self.pass_for(u64::from(time));
        self.lose_host(h);
    }

    /// Returns whether a command is in flight on an I/O queue of host `h`. A command of a connection that was lost is
    /// not.
    fn is_on_io_queue_of(&self, sent: &HostCommand, h: usize) -> bool {
        let c = &self.connections[sent.connection];
        !sent.ghost && c.host == h && c.qid > 0
    }

    /// Handles a command that the target has refused because its host has to authenticate: it was not carried out.
    pub(super) fn denied(&mut self, sent: HostCommand) {
        self.hit(Class::Denied);
        match sent.what {
            Purpose::Write { .. } | Purpose::Append { .. } => self.not_written(sent.what),
            Purpose::Report { zone, .. } => self.zones[zone].asked = false,
            // As after any management command that failed, the model counts the state of the zones as unknown.
            Purpose::Manage { zones, .. } => {
                for zone in zones {
                    let zone = &mut self.zones[zone];
                    zone.managed -= 1;
                    zone.activity += 1;
                    (zone.unsure, zone.fuzzy, zone.mixed) = (true, true, true);
                    zone.shadow.fill(None);
                }
            }
            Purpose::Refused { below, .. } => {
                below.into_iter().for_each(|z| self.zones[z].refused -= 1);
            }
            Purpose::Awaited => panic!("J13: a command of authentication: {:?}", sent.command),
            Purpose::Read { .. }
            | Purpose::Flush
            | Purpose::Deallocate
            | Purpose::Admin
            | Purpose::Event => {}
        }
    }
}

fn is_event(sent: &HostCommand) -> bool {
    matches!(sent.what, Purpose::Event)
}
