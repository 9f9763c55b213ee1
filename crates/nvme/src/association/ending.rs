//! The end of an association: by the host, the target, the server, or a deadline.

use super::{Association, Role, Server};
use crate::io_queue::DiskClient;
use crate::target::QueueId;
use crate::tcp::Ended;
use zoneplug_core::Nanos;

/// How long an ended connection waits for its peer to read the reason.
const LINGER: Nanos = Nanos(1_000_000_000);
/// The longest delay of an acknowledgement of TCP (RFC 1122, 4.2.3.2).
const ACKNOWLEDGEMENT: Nanos = Nanos(500_000_000);
/// The longest time that a server waits at its end for disks and hosts that do not answer.
const END_LIMIT: Nanos = Nanos(1_000_000_000);
/// The time that a server gives a host, at its end, to read the answer to an append after the host's TCP acknowledged
/// it.
const END_LOOK: Nanos = Nanos(100_000_000);

impl<C: DiskClient> Association<C> {
    /// Notes that all output was sent. Returns whether the association has ended: the driver then shuts down the
    /// sending direction of the connection, and discards what it still receives until [`Association::expire`] returns
    /// false, or until the host has closed the connection too.
    #[inline(always)]
    pub fn all_sent(&mut self, now: Nanos) -> bool {
        if self.ends {
            self.ends = false;
            self.closes.get_or_insert(now.plus(LINGER));
        }
        self.closes.is_some()
    }

    /// Checks the deadlines. Returns false if the driver must close the connection.
    pub fn expire<S: Server<C>>(&mut self, server: &mut S) -> bool {
        let now = server.io().now;
        if self.closes.is_some_and(|at| now >= at) {
            return false;
        }
        self.tcp.expire(now);
        self.expire_authentication(server);
        true
    }

    /// Returns the time of the next deadline. Later calls may return an earlier one.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let authentication = self.authentication.as_ref().and_then(|a| a.deadline());
        let all = [self.closes, self.leaves, authentication, self.tcp.next_deadline()];
        all.into_iter().flatten().min()
    }

    /// Handles a connection that takes no more commands, for a reason that the transport gives.
    #[cold]
    pub(super) fn connection_ended<S: Server<C>>(&mut self, why: Ended, server: &mut S) {
        server.connection_ended(why);
        self.authentication_ended(why, server);
        self.take_no_more(server);
        self.closes = Some(server.io().now.plus(LINGER));
    }

    /// Takes no more commands, because the target has ended the queue. Returns false if the driver must close the
    /// connection.
    ///
    /// True: the host may have the answer of an append, and acknowledge it a little later. If the append counted as
    /// lost, a new append with the same data would get its sector. So the connection stays until the acknowledgement
    /// has come, until the host has closed it too, or until an acknowledgement would be too late: see
    /// [`Association::has_left`].
    #[cold]
    pub fn ended_by_target<S: Server<C>>(&mut self, server: &mut S) -> bool {
        debug_assert!(self.leaves.is_none(), "the target ends a queue once");
        let acknowledged = self.acknowledged(server);
        if let Role::Io { io, .. } = &mut self.role
            && !self.pending
            && io.leave(acknowledged, &server.io())
        {
            self.leaves = Some(server.io().now.plus(ACKNOWLEDGEMENT));
        }
        self.leaves.is_some()
    }

    /// Returns whether the target has ended the queue, and the connection need not wait any longer.
    #[inline(always)]
    pub fn has_left<S: Server<C>>(&self, server: &mut S) -> bool {
        self.leaves.is_some_and(|until| self.has_waited(until, server))
    }

    #[cold]
    fn has_waited<S: Server<C>>(&self, until: Nanos, server: &mut S) -> bool {
        let Role::Io { io, .. } = &self.role else { return true };
        server.io().now >= until || !io.waits_for_acknowledgement(self.acknowledged(server))
    }

    /// Accepts nothing more, because the server ends. Commands that have begun are answered, except writes that wait
    /// for others, which may not have been accepted.
    pub fn stop(&mut self) {
        self.stops = true;
        if let Role::Io { io, .. } = &mut self.role {
            io.stop();
        }
    }

    /// Returns whether [`Association::stop`] was called.
    #[inline(always)]
    pub fn has_stopped(&self) -> bool {
        self.stops
    }

    /// Returns whether all commands that have begun were answered, and the host's side of the transport has
    /// acknowledged the answers.
    pub fn is_answered<S: Server<C>>(&self, server: &mut S) -> bool {
        !self.is_busy() && self.acknowledged(server) >= self.tcp.output_end()
    }

    /// Returns whether one of the last answers is to an append.
    pub fn has_answered_append(&self) -> bool {
        matches!(&self.role, Role::Io { io, .. } if io.has_answered_append())
    }

    fn acknowledged<S: Server<C>>(&self, server: &mut S) -> u64 {
        server.acknowledged(self.tcp.bytes_sent())
    }

    /// Ends the association, because the driver closes the connection. Informs the target. Commands that the disks
    /// have go on ([`Server::put_closing`]).
    #[cold]
    pub fn end<S: Server<C>>(mut self, server: &mut S) {
        self.take_no_more(server);
    }

    /// Takes no more commands, and informs the target.
    #[cold]
    pub(super) fn take_no_more<S: Server<C>>(&mut self, server: &mut S) {
        server.ended();
        self.end_authentication(server);
        let Some((queue, drains)) = self.close_queue(server) else { return };
        // If the target has ended the queue itself, it knows that the connection ends.
        let is_known = server.leave(queue);
        match (is_known, drains) {
            (true, true) => server.with_target(|target| target.draining(queue)),
            (true, false) => server.with_target(|target| target.disconnected(queue)),
            (false, true) => {}
            (false, false) => server.with_target(|target| target.drained(queue)),
        }
    }

    /// Ends the role. Returns its queue, and whether commands of the queue are still being carried out. Returns
    /// `None` if the target does not know the queue, which has used no disk then.
    fn close_queue<S: Server<C>>(&mut self, server: &mut S) -> Option<(QueueId, bool)> {
        match std::mem::replace(&mut self.role, Role::Ended) {
            Role::New | Role::Ended => None,
            Role::Io { .. } if self.pending => None,
            Role::Admin { queue, .. } => Some((queue, false)),
            Role::Io { queue, io } => {
                let acknowledged = self.acknowledged(server);
                if acknowledged < self.tcp.output_end() {
                    server.discard_output(acknowledged);
                }
                let mut idle = Vec::new();
                let closing = io.end(acknowledged, |client| idle.push(client), &mut server.io());
                idle.into_iter().for_each(|client| server.put_client(client));
                let drains = closing.is_some();
                closing.into_iter().for_each(|queue| server.put_closing(queue));
                Some((queue, drains))
            }
        }
    }
}

/// The end of a server. Its associations were stopped ([`Association::stop`]); they stay until the host's side of the
/// transport has acknowledged all answers, and a little longer if one of the last answers is to an append: when a
/// connection ends, also that of the admin queue, Linux discards bytes that it has received and not read. It would then
/// send the commands again. A resent write is compared with the disk, but an append would be appended again.
#[derive(Debug, Clone, Copy)]
pub struct ServerEnd {
    /// The time at which the server ends even if answers are missing.
    limit: Nanos,
    /// Once the hosts have all answers: the time by which they have read them.
    read: Option<Nanos>,
}

impl ServerEnd {
    /// Begins the end of a server.
    pub fn new(now: Nanos) -> ServerEnd {
        ServerEnd { limit: now.plus(END_LIMIT), read: None }
    }

    /// Returns whether the server ends now even if answers are missing.
    pub fn is_late(&self, now: Nanos) -> bool {
        now >= self.limit
    }

    /// Returns whether the hosts have read all answers, or it is too late to wait for them. `answered` says whether
    /// all associations are answered ([`Association::is_answered`]) and, if so, whether one of the last answers is to
    /// an append ([`Association::has_answered_append`]). It is called until the hosts have all answers.
    pub fn is_done(&mut self, now: Nanos, answered: impl FnOnce() -> Option<bool>) -> bool {
        if self.read.is_none() {
            let answered = answered();
            let look = if answered == Some(true) { END_LOOK } else { Nanos(0) };
            self.read = answered.map(|_| now.plus(look));
        }
        self.is_late(now) || self.read.is_some_and(|at| now >= at)
    }

    /// Returns the time at which the answer of [`ServerEnd::is_done`] changes, unless the hosts acknowledge more.
    pub fn next_deadline(&self) -> Nanos {
        self.read.unwrap_or(self.limit).min(self.limit)
    }
}
