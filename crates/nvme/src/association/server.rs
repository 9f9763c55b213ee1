//! The parts of a server that an association uses: its target, its disks, the transport, random numbers. A server
//! has threads, sockets and locks for them; a simulation has a model of each.

use crate::dhchap::Random;
use crate::io_queue::{ClosingQueue, DiskClient, Disks, IoContext};
use crate::spec::Completion;
use crate::target::auth::Job;
use crate::target::{Activity, Nqn, QueueId, Target};
use crate::tcp::{Ended, Received};

/// The server of an association, for the time of a call. `C` is a client of one of its disks.
///
/// No method calls the association: the requests of the target for this association reach it after the call.
pub trait Server<C: DiskClient> {
    /// The disks of the server.
    type Disks: Disks<Client = C>;

    /// Lends the disks, memory and the time.
    fn io(&mut self) -> IoContext<'_, Self::Disks>;

    /// Calls `f` with the target, which all associations of the server share. Then passes the target's events
    /// ([`Target::take_events`]) to the associations that they concern.
    fn with_target<R>(&mut self, f: impl FnOnce(&mut Target) -> R) -> R {
        self.enter(|target| (f(target), None))
    }

    /// Like [`Server::with_target`]. If `f` also returns a queue, this association carries the queue from now on.
    /// Events for the queue reach the association, beginning with those of the next call of the target.
    fn enter<R>(&mut self, f: impl FnOnce(&mut Target) -> (R, Option<QueueId>)) -> R;

    /// Notes that the association no longer carries this queue. Returns false if the target has ended the queue
    /// before: the events for the queue may reach this association no more, or may be on their way to it.
    fn leave(&mut self, queue: QueueId) -> bool;

    /// Returns the work of all disks, for a log page.
    fn activity(&mut self) -> Activity;

    /// Takes a place for a host without a key, before its Connect. `host` is `None` if it has no valid name. Returns
    /// whether the place is one that the server keeps for this host ([`Target::connect_as`]). Returns `None` if no
    /// place is free.
    fn take_place(&mut self, host: Option<&Nqn>, is_admin: bool) -> Option<bool>;

    /// Notes that a Connect was refused with this completion. The host's place is free again.
    fn connect_refused(&mut self, host: Option<&Nqn>, refused: &Completion);

    /// Notes that the association takes no more commands. Its place is free again. May be called more than once.
    fn ended(&mut self);

    /// Returns how many of the first `sent` bytes of the output the host's side of the transport has acknowledged.
    fn acknowledged(&mut self, sent: u64) -> u64;

    /// Discards the output behind the first `acknowledged` bytes when the connection closes: none of it may arrive
    /// later, because the host may send the commands again.
    fn discard_output(&mut self, acknowledged: u64);

    /// Receives a client that the association no longer uses.
    fn put_client(&mut self, client: C);

    /// Receives a queue whose commands are still being carried out. The server runs it until it is empty, and then
    /// calls [`Target::drained`].
    fn put_closing(&mut self, queue: ClosingQueue<C>);

    /// Returns random bytes that nothing else uses. Returns `None` if there are none.
    fn random(&mut self) -> Option<Random>;

    /// Has a value computed. The server calls [`Association::computed`](super::Association::computed) with the
    /// result. The association has at most one computation at a time.
    fn compute(&mut self, job: Job);

    /// Cancels the computation, or drops its result.
    fn cancel_computation(&mut self);

    /// Notes that a host has failed to authenticate, for the first time or again.
    fn authentication_failed(&mut self, host: &Nqn);

    /// Called with each command that the association is about to begin.
    #[inline(always)]
    fn received(&mut self, _: &Received) {}

    /// Called when the connection takes no more commands, for a reason that the transport gives.
    fn connection_ended(&mut self, _: Ended) {}
}
