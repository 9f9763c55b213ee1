//! The authentication of a connection's host. Another thread computes the Diffie-Hellman values.

use super::{Connection, Role};
use crate::nvme_tcp::context::WorkerContext;
use crate::served::timing::Timing;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use zoneplug_core::Nanos;
use zoneplug_core::poison::lock;
use zoneplug_nvme::dhchap::{MAX_MESSAGE, Random};
use zoneplug_nvme::spec::{Command, Completion, status};
use zoneplug_nvme::target::Nqn;
use zoneplug_nvme::target::auth::{AuthReply, Authentication, Begun, Change, Computed};
use zoneplug_nvme::tcp::{Ended, Received};

/// The authentication of the host of a queue.
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
}

impl<T: Timing> Connection<T> {
    /// Executes a command of authentication, or one that comes before the host is admitted.
    #[cold]
    pub(super) fn authenticate(&mut self, c: Received, ctx: &mut WorkerContext<'_, T>) {
        let (Some(a), Role::Admin { .. } | Role::Io { .. }) =
            (&mut self.authentication, &self.role)
        else {
            return ctx.buffers_put(c.data);
        };
        if a.computing.is_some() {
            return a.waiting.push_back(c);
        }
        let mut random = [0; 132];
        let message = c.data.as_ref().map_or(&[][..], |b| &b.as_slice()[..c.len as usize]);
        let begun = match getrandom::fill(&mut random) {
            Ok(()) => a.protocol.begin(&c.command, message, &Random::new(&random)),
            Err(_) => Begun::Answer(AuthReply {
                completion: Completion { status: status::INTERNAL, ..Completion::default() },
                data: Vec::new(),
                change: None,
            }),
        };
        ctx.buffers_put(c.data);
        match begun {
            Begun::Answer(reply) => self.authenticated(c.slot, reply, ctx),
            Begun::Job(job) => {
                a.computing = Some(c.slot);
                ctx.shared.key_exchange.put(ctx.worker, self.key, *job);
            }
        }
    }

    /// The value for a command has been computed.
    #[cold]
    pub(in crate::nvme_tcp) fn computed(
        &mut self,
        computed: Computed,
        ctx: &mut WorkerContext<'_, T>,
    ) {
        let Some(a) = &mut self.authentication else { return };
        // The authentication has ended meanwhile.
        let Some(slot) = a.computing.take() else { return };
        let reply = a.protocol.finish(computed);
        self.authenticated(slot, reply, ctx);
        while let Some(a) = self.authentication.as_mut().filter(|a| a.computing.is_none())
            && let Some(c) = a.waiting.pop_front()
        {
            self.command(c, ctx);
        }
    }

    /// Answers a command, and applies the change that comes with the answer.
    fn authenticated(&mut self, slot: u16, mut reply: AuthReply, ctx: &mut WorkerContext<'_, T>) {
        let Some(a) = &mut self.authentication else { return };
        let mut is_over = a.protocol.is_over();
        a.again_until = (a.protocol.is_admitted() && a.protocol.is_underway())
            .then(|| a.again_until.unwrap_or(ctx.now.plus(ctx.shared.tcp.connect)));
        if let Err(status) = self.changed(reply.change, ctx) {
            (reply.completion.status, is_over) = (status | status::DNR, true);
        }
        self.answer(slot, reply.completion, &reply.data, ctx);
        if is_over {
            self.end(ctx);
            self.ends = true;
        }
    }

    /// Applies a change to the connection and the target. If the queue is an admin queue, tells the target that its
    /// host is alive. The error is the status to answer instead: close the queue then.
    fn changed(
        &mut self,
        change: Option<Change>,
        ctx: &mut WorkerContext<'_, T>,
    ) -> Result<(), u16> {
        let (Role::Admin { queue, .. } | Role::Io { queue, .. }) = self.role else {
            return Ok(());
        };
        match change {
            Some(Change::Admitted) => self.tcp.lift(),
            Some(Change::Failed) => {
                self.count_failure(ctx);
                self.tcp.restrict(MAX_MESSAGE, ctx.now);
            }
            None if queue.qid != 0 => return Ok(()),
            None => {}
        }
        let mut target = lock(&ctx.shared.target);
        let mut result = Ok(());
        match change {
            Some(Change::Admitted) if queue.qid == 0 || self.pending => {
                match target.admitted(queue, ctx.now) {
                    Ok(None) => {}
                    Ok(Some(all)) => {
                        // The route is added before another thread can have mail for the connection.
                        ctx.shared.add_route(queue, ctx.worker, self.key);
                        self.pending = false;
                        if let Role::Io { io, .. } = &mut self.role {
                            io.show(all, &ctx.io().disks);
                        }
                    }
                    Err(status) => result = Err(status),
                }
            }
            Some(Change::Failed) => target.refused(queue),
            _ => {}
        }
        if queue.qid == 0 {
            target.heard(queue.controller, ctx.now);
        }
        ctx.shared.deliver(target.take_events());
        ctx.shared.note_keep_alive(&target);
        result
    }

    /// Fails an authentication that an admitted host has begun too long ago. While this side computes, the host is
    /// not late.
    pub(super) fn expire_authentication(&mut self, ctx: &mut WorkerContext<'_, T>) {
        let Some(a) = &mut self.authentication else { return };
        if a.computing.is_some() || a.again_until.is_none_or(|at| ctx.now < at) {
            return;
        }
        a.again_until = None;
        let change = a.protocol.time_out();
        // The change admits no host, so there is no error.
        let _ = self.changed(change, ctx);
    }

    /// Counts a failure if the host has begun to authenticate and was too slow to be admitted.
    pub(super) fn authentication_ended(&mut self, why: Ended, ctx: &WorkerContext<'_, T>) {
        let of = self.authentication.as_ref().map(|a| &a.protocol);
        if matches!(why, Ended::Slow(_)) && of.is_some_and(|a| !a.is_admitted() && a.is_underway())
        {
            self.count_failure(ctx);
        }
    }

    fn count_failure(&self, ctx: &WorkerContext<'_, T>) {
        ctx.shared.failed_authentications.fetch_add(1, Ordering::Relaxed);
        let host = self.authentication.as_ref().map(|a| &a.host);
        self.log_refused(host, "did not prove that it knows its key");
    }

    /// Cancels the computation and drops the waiting commands, because the connection ends.
    pub(super) fn end_authentication(&mut self, ctx: &mut WorkerContext<'_, T>) {
        let Some(a) = &mut self.authentication else { return };
        if a.computing.take().is_some() {
            ctx.shared.key_exchange.cancel(ctx.worker, self.key);
        }
        a.waiting.drain(..).for_each(|c| ctx.buffers_put(c.data));
    }
}
