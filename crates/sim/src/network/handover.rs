//! A server that ends, and the next one. The old server takes no more commands, answers those that it has begun,
//! waits until its hosts have the answers, and closes its connections. The next server opens the disk anew, and the
//! hosts connect to it.
//!
//! Order and times are those of [`ServerEnd`], as in a server of the host crate.

use super::commands::{HostCommand, Purpose};
use super::disks::ServedDisk;
use super::{NetworkWorld, setup, trace};
use crate::class::Class;
use zoneplug_core::ZoneNo;
use zoneplug_core::zone::Condition;
use zoneplug_nvme::association::ServerEnd;

impl NetworkWorld {
    /// Hands the disk over to the next server.
    pub(super) fn hand_over(&mut self) {
        trace!(self, "  the server hands over");
        self.troubles += 1;
        let waiting = self.commands.values().any(|s| !s.ghost && !matches!(s.what, Purpose::Event));
        if waiting {
            self.hit(Class::HandOver);
        }
        if self.served.disk.counters().window.writes > 0 {
            self.hit(Class::HandOverHeld);
        }
        let is_append = |s: &HostCommand| !s.ghost && matches!(s.what, Purpose::Append { .. });
        if self.commands.values().any(is_append) {
            self.hit(Class::HandOverAppend);
        }
        let since = self.now;
        self.stop_serving();
        for c in self.connections.iter_mut().filter(|c| c.served.is_some()) {
            (c.troubled, c.left) = (true, Some(since));
        }
        let mut end = ServerEnd::new(since);
        self.waited_rounds = 0;
        loop {
            let answered = self.hosts_have_answers();
            if end.is_done(self.now, || answered) {
                break;
            }
            self.pass_until(end.next_deadline());
        }
        let all = 0..self.connections.len();
        for c in all.clone() {
            while self.host_turn(c) {}
            let connection = &self.connections[c];
            // A host waits in vain where the length of an answer has changed on its way.
            if connection.served.is_some() && !connection.corrupt && self.is_answered(c) {
                self.check_answered(c);
            }
        }
        for c in all {
            if let Some(s) = self.connections[c].served.take() {
                self.server_closes(c, *s);
            }
        }
        self.deliver();
        self.next_server();
    }

    /// Returns whether all connections are answered and, if so, whether one of their last answers is to an append.
    fn hosts_have_answers(&mut self) -> Option<bool> {
        let all = 0..self.connections.len();
        let answered = all.clone().all(|c| self.is_answered(c));
        answered.then(|| all.clone().any(|c| self.has_answered_append(c)))
    }

    /// Checks that all commands that a connection has begun were answered, except writes that the disk has refused
    /// for their place: such a write may have waited for one that was not taken any more.
    fn check_answered(&self, c: usize) {
        let begun = |s: &&HostCommand| s.connection == c && s.came_up && !s.ghost;
        for sent in self.commands.values().filter(begun) {
            let refused = match sent.what {
                Purpose::Event => true,
                Purpose::Write { zone, offset, .. } => {
                    let z = &self.zones[zone];
                    let info = self.served.disk.cached_zone(ZoneNo(zone as u32));
                    let is_behind = info.is_ok_and(|i| {
                        i.cond != Condition::Full && u64::from(offset) >= i.wp.0 - i.start.0
                    });
                    !z.conventional && (is_behind || z.fuzzy || !self.is_calm())
                }
                Purpose::Refused { below, .. } => below.is_some(),
                _ => false,
            };
            assert!(refused, "L11: it was begun, and is not answered: {sent:?}");
        }
    }

    /// Lets the disk come to rest after the old server has closed its connections, and has the next server open it.
    fn next_server(&mut self) {
        let mut rounds = 0;
        while !self.closing.is_empty() || self.freeze.is_some() || self.served.needs_polls() {
            let any = self.run_to_next_event();
            rounds += 1;
            assert!(any && rounds < 20_000, "hang: the server does not end: {:?}", self.served);
        }
        self.check_disk();
        self.parked |= self.served.disk.counters().plugs.parked > 0;
        self.seam.restart();
        let disk = (0..10).find_map(|_| {
            // If a server cannot open the disk because a report of its zones fails, another server, or the old one,
            // opens it.
            setup::open(&self.seam, &self.config, self.now).ok()
        });
        let disk = disk.expect("a server opens the disk");
        (self.target, _) = setup::target(&disk, self.network.max_data, self.keys);
        self.served = ServedDisk::new(disk);
        self.served.now.set(self.now);
        trace!(self, "  the next server serves");
    }
}
