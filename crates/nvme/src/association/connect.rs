//! The first command of an association, and the commands of admin queues.

use super::authentication::QueueAuthentication;
use super::{Association, Role, Server, drop_data};
use crate::dhchap::MAX_MESSAGE;
use crate::io_queue::{DiskClient, IoQueue};
use crate::spec::fabrics::{Connect, ConnectData};
use crate::spec::{Completion, status};
use crate::target::{Connected, Nqn, Reply, asks_for_activity};
use crate::tcp::{Queue, Received};

impl<C: DiskClient> Association<C> {
    /// Executes the first command.
    #[cold]
    pub(super) fn connect<S: Server<C>>(&mut self, c: Received, server: &mut S) {
        let (slot, now) = (c.slot, server.io().now);
        let data = c.data.as_ref().map_or(&[][..], |b| &b.as_slice()[..c.len as usize]);
        let names = data.first_chunk().map(ConnectData::decode);
        let host = names.and_then(|names| Nqn::decode(&names.hostnqn));
        let subsystem = names.and_then(|names| Nqn::decode(&names.subnqn));
        let is_admin = Connect::decode(&c.command).qid == 0;
        let has_key = match (&subsystem, &host) {
            (Some(subsystem), Some(host)) => {
                server.with_target(|target| target.has_key(subsystem, host))
            }
            _ => false,
        };
        // The subsystem itself has places for its hosts with keys.
        let place = if has_key { Some(true) } else { server.take_place(host.as_ref(), is_admin) };
        let connected = match place {
            Some(is_kept) => server.enter(|target| {
                let connected = target.connect_as(&c.command, data, self.local, is_kept, now);
                let is_known = |c: &&Connected| c.queue.qid == 0 || c.authentication.is_none();
                let queue = connected.as_ref().ok().filter(is_known).map(|c| c.queue);
                (connected, queue)
            }),
            None => Err(Completion {
                cid: c.command.cid(),
                status: status::CONNECT_BUSY,
                ..Completion::default()
            }),
        };
        drop_data(c, server);
        let completion = match connected {
            Ok(connected) => self.connected(connected, server),
            Err(completion) => {
                server.connect_refused(host.as_ref(), &completion);
                (self.role, self.ends) = (Role::Ended, true);
                completion
            }
        };
        self.answer(slot, completion, &[], server);
    }

    /// Makes the association a queue. Returns the completion of Connect.
    fn connected<S: Server<C>>(&mut self, connected: Connected, server: &mut S) -> Completion {
        let Connected { completion, queue, host, entries, sq_flow_control, .. } = connected;
        let (key, entries) = (host.key(), u32::from(entries));
        self.tcp.set_queue(Queue { entries, sq_flow_control });
        if let Some(protocol) = connected.authentication {
            self.tcp.restrict(MAX_MESSAGE, server.io().now);
            self.pending = queue.qid != 0;
            self.authentication = Some(QueueAuthentication::new(*protocol, host.nqn));
        }
        self.role = match connected.namespaces {
            Some(all) => {
                let mut io = Box::new(IoQueue::new(queue, key, entries));
                if !self.pending {
                    io.show(all, &server.io().disks);
                }
                Role::Io { queue, io }
            }
            None => Role::Admin { queue, later: Vec::new() },
        };
        completion
    }

    /// Executes a command of an admin queue.
    #[cold]
    pub(super) fn admin<S: Server<C>>(&mut self, c: Received, server: &mut S) {
        let (slot, now) = (c.slot, server.io().now);
        let Role::Admin { queue, later } = &mut self.role else { return drop_data(c, server) };
        let id = queue.controller;
        let activity = asks_for_activity(&c.command).then(|| server.activity());
        let reply = server.with_target(|target| {
            if let Some(activity) = activity {
                target.set_activity(id, activity);
            }
            target.admin(id, &c.command, now)
        });
        match reply {
            Reply::Later => {
                later.push((c.command.cid(), slot));
                drop_data(c, server);
            }
            Reply::Now(completion, bytes) => {
                drop_data(c, server);
                self.answer(slot, completion, &bytes, server);
            }
        }
    }
}
