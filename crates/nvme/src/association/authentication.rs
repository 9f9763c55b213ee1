//! The authentication of an association's host. Its Diffie-Hellman values are computed elsewhere
//! ([`Server::compute`]); the association meanwhile keeps the commands of authentication that follow.

use super::{Association, Role, Server, drop_data};
use crate::dhchap::MAX_MESSAGE;
use crate::io_queue::DiskClient;
use crate::spec::{Command, Completion, status};
use crate::target::Nqn;
use crate::target::auth::{AuthReply, Authentication, Begun, Change, Computed};
use crate::tcp::{Ended, Received};
use std::collections::VecDeque;
use zoneplug_core::Nanos;

/// The authentication of the host of a queue.
#[derive(Debug)]
pub(super) struct QueueAuthentication {
    /// The name of the host.
    host: Nqn,
    protocol: Authentication,
    /// The slot of the command whose value is being computed.
    computing: Option<u16>,
    /// Commands that wait until that value is there, in order.
    waiting: VecDeque<Received>,
    /// When an authentication that an admitted host has begun fails. Before a host is admitted, the connection has a
    /// deadline.
    again_until: Option<Nanos>,
}

impl QueueAuthentication {
    pub(super) fn new(protocol: Authentication, host: Nqn) -> Box<QueueAuthentication> {
        let (computing, waiting, again_until) = (None, VecDeque::new(), None);
        Box::new(QueueAuthentication { host, protocol, computing, waiting, again_until })
    }

    /// See [`Authentication::is_admitted`].
    pub(super) fn is_admitted(&self) -> bool {
        self.protocol.is_admitted()
    }

    /// See [`Authentication::concerns`].
    pub(super) fn concerns(&self, c: &Command) -> bool {
        self.protocol.concerns(c)
    }

    /// Returns when [`Association::expire`] fails an authentication. While this side computes, the host is not late.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.again_until.filter(|_| self.computing.is_none())
    }
}

impl<C: DiskClient> Association<C> {
    /// Executes a command of authentication, or one that comes before the host is admitted.
    #[cold]
    pub(super) fn authenticate<S: Server<C>>(&mut self, c: Received, server: &mut S) {
        let (Some(a), Role::Admin { .. } | Role::Io { .. }) =
            (&mut self.authentication, &self.role)
        else {
            return drop_data(c, server);
        };
        if a.computing.is_some() {
            return a.waiting.push_back(c);
        }
        let slot = c.slot;
        let message = c.data.as_ref().map_or(&[][..], |b| &b.as_slice()[..c.len as usize]);
        let begun = match server.random() {
            Some(random) => a.protocol.begin(&c.command, message, &random),
            None => Begun::Answer(AuthReply {
                completion: Completion { status: status::INTERNAL, ..Completion::default() },
                data: Vec::new(),
                change: None,
            }),
        };
        drop_data(c, server);
        match begun {
            Begun::Answer(reply) => self.authenticated(slot, reply, server),
            Begun::Job(job) => {
                a.computing = Some(slot);
                server.compute(*job);
            }
        }
    }

    /// Continues the authentication with the value that [`Server::compute`] was asked for.
    #[cold]
    pub fn computed<S: Server<C>>(&mut self, computed: Computed, server: &mut S) {
        let Some(a) = &mut self.authentication else { return };
        // The authentication has ended meanwhile.
        let Some(slot) = a.computing.take() else { return };
        let reply = a.protocol.finish(computed);
        self.authenticated(slot, reply, server);
        while let Some(a) = self.authentication.as_mut().filter(|a| a.computing.is_none())
            && let Some(c) = a.waiting.pop_front()
        {
            match self.takes_commands() {
                true => self.command(c, server),
                false => drop_data(c, server),
            }
        }
    }

    /// Answers a command, and applies the change that comes with the answer.
    fn authenticated<S: Server<C>>(&mut self, slot: u16, mut reply: AuthReply, server: &mut S) {
        let Some(a) = &mut self.authentication else { return };
        let mut is_over = a.protocol.is_over();
        let until = server.io().now.plus(self.config.connect);
        a.again_until = (a.protocol.is_admitted() && a.protocol.is_underway())
            .then(|| a.again_until.unwrap_or(until));
        if let Err(status) = self.changed(reply.change, server) {
            (reply.completion.status, is_over) = (status | status::DNR, true);
        }
        self.answer(slot, reply.completion, &reply.data, server);
        if is_over {
            self.take_no_more(server);
            self.ends = true;
        }
    }

    /// Applies a change to the connection and the target. If the queue is an admin queue, tells the target that its
    /// host is alive. The error is the status to answer instead: close the queue then.
    fn changed<S: Server<C>>(&mut self, change: Option<Change>, server: &mut S) -> Result<(), u16> {
        let (Role::Admin { queue, .. } | Role::Io { queue, .. }) = self.role else {
            return Ok(());
        };
        let now = server.io().now;
        match change {
            Some(Change::Admitted) => self.tcp.lift(),
            Some(Change::Failed) => {
                self.count_failure(server);
                self.tcp.restrict(MAX_MESSAGE, now);
            }
            None if queue.qid != 0 => return Ok(()),
            None => {}
        }
        let is_new = queue.qid == 0 || self.pending;
        let admitted = server.enter(|target| {
            let admitted = match change {
                Some(Change::Admitted) if is_new => target.admitted(queue, now),
                Some(Change::Failed) => {
                    target.refused(queue);
                    Ok(None)
                }
                _ => Ok(None),
            };
            if queue.qid == 0 {
                target.heard(queue.controller, now);
            }
            let entered = matches!(admitted, Ok(Some(_))).then_some(queue);
            (admitted, entered)
        });
        if let Some(all) = admitted? {
            self.pending = false;
            self.show(all, server);
        }
        Ok(())
    }

    /// Fails an authentication that an admitted host has begun too long ago.
    pub(super) fn expire_authentication<S: Server<C>>(&mut self, server: &mut S) {
        let Some(a) = &mut self.authentication else { return };
        if a.deadline().is_none_or(|at| server.io().now < at) {
            return;
        }
        a.again_until = None;
        let change = a.protocol.time_out();
        // The change admits no host, so there is no error.
        let _ = self.changed(change, server);
    }

    /// Counts a failure if the host has begun to authenticate and was too slow to be admitted.
    pub(super) fn authentication_ended<S: Server<C>>(&self, why: Ended, server: &mut S) {
        let of = self.authentication.as_ref().map(|a| &a.protocol);
        if matches!(why, Ended::Slow(_)) && of.is_some_and(|a| !a.is_admitted() && a.is_underway())
        {
            self.count_failure(server);
        }
    }

    fn count_failure<S: Server<C>>(&self, server: &mut S) {
        self.authentication.iter().for_each(|a| server.authentication_failed(&a.host));
    }

    /// Cancels the computation and drops the waiting commands, because the association ends.
    pub(super) fn end_authentication<S: Server<C>>(&mut self, server: &mut S) {
        let Some(a) = &mut self.authentication else { return };
        if a.computing.take().is_some() {
            server.cancel_computation();
        }
        a.waiting.drain(..).for_each(|c| drop_data(c, server));
    }
}
