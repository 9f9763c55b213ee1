//! A thread that serves connections: it sleeps in epoll for their sockets, its mailbox and the devices of disks. The
//! first worker also accepts connections, gives them to all workers in turn, and checks the keep alive times of
//! hosts.

mod ending;

use super::connection::Connection;
use super::context::WorkerContext;
use super::io_queue::{ClosingQueue, QueueClient};
use super::mailbox::{ConnectionWaker, Mail, Mailbox};
use super::{Shared, io_queue};
use crate::network::connection_table::ConnectionTable;
use crate::network::listeners::{Accepted, ConnectionSlot, Listeners};
use crate::network::sys;
use crate::served::timing::Timing;
use ending::Ending;
use std::cell::RefCell;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use zoneplug_buf::Buffers;
use zoneplug_core::Nanos;
use zoneplug_core::poison::lock;

/// Keys of descriptors that are not connections.
const MAIL: u64 = u64::MAX;
const LISTENERS: u64 = u64::MAX - 1;
/// The device of a queue whose connection has ended.
const DEVICE: u64 = u64::MAX - 2;
/// This bit and the key of a connection: the device of its queue. No key has the bit.
const DEVICE_OF: u64 = 1 << 63;

/// The interval at which deadlines of connections are checked and unused memory is freed; that of keep alive times.
const SWEEP: Nanos = Nanos(1_000_000_000);
const KEEP_ALIVE: Nanos = Nanos(500_000_000);
/// The interval at which armed connections that wait for a descriptor are run.
const TICK: Nanos = Nanos(crate::runtime::client::TICK.as_nanos() as u64);
/// Most memory that a worker keeps for the next commands.
const FREE_BYTES: usize = 64 << 20;

/// A connection, and how the worker waits for the disks of its queue.
struct WaitingConnection<T> {
    connection: Box<Connection<T>>,
    /// Wakes the worker when a disk has done work of the connection. Made when it first waits.
    waker: Option<(Arc<ConnectionWaker>, Waker)>,
    /// The connection's clients are armed. The worker runs it when it is woken.
    armed: bool,
}

impl<T: Timing> WaitingConnection<T> {
    fn is_busy(&self) -> bool {
        self.connection.association().is_busy()
    }
}

/// Collects the parts of a worker that it lends its connections. A macro, because it borrows some fields of the
/// worker while others are in use.
macro_rules! context {
    ($worker:ident) => {
        WorkerContext {
            shared: &$worker.shared,
            worker: $worker.number,
            epoll: &$worker.epoll,
            buffers: &mut $worker.buffers,
            closing: &mut $worker.closing,
            counters: &$worker.shared.counters[$worker.number],
            calls: &$worker.shared.calls[$worker.number],
            now: $worker.now,
        }
    };
}
use context;

/// A worker.
pub(super) struct Worker<T> {
    shared: Arc<Shared>,
    number: usize,
    mailbox: Arc<Mailbox>,
    waker: Waker,
    epoll: sys::Epoll,
    listeners: Listeners,
    /// The connections. A host is a stranger until it is admitted. The busy ones have work at a disk, and clients that are not armed.
    table: ConnectionTable<WaitingConnection<T>>,
    /// Keys of armed connections that wait for a descriptor. It does not report everything, so they are run each
    /// TICK.
    watched: Vec<u64>,
    next_tick: Nanos,
    /// Keys of connections whose queues the target has ended, and that wait for acknowledgements.
    leaving: Vec<u64>,
    /// Memory for mail.
    mail: Vec<Mail>,
    /// Queues with work at a disk whose connections have ended.
    closing: Vec<ClosingQueue<T>>,
    buffers: Buffers,
    /// The state of the worker's end, once it was told to stop.
    ending: Option<Ending>,
    now: Nanos,
    /// The next check of connections, if there are any, and of hosts, if one has a keep alive time.
    next_sweep: Nanos,
    keep_alive: Option<Nanos>,
}

impl<T: Timing> Worker<T> {
    pub(super) fn new(
        shared: Arc<Shared>,
        number: usize,
        mut listeners: Listeners,
    ) -> io::Result<Worker<T>> {
        let (mailbox, epoll) = (shared.workers[number].clone(), sys::Epoll::new()?);
        epoll.add(mailbox.fd(), sys::READ | sys::EDGE, MAIL)?;
        listeners.watch(&epoll, LISTENERS)?;
        Ok(Worker {
            number,
            waker: Waker::from(mailbox.clone()),
            mailbox,
            epoll,
            listeners,
            table: ConnectionTable::new(number),
            watched: Vec::new(),
            next_tick: Nanos(0),
            leaving: Vec::new(),
            mail: Vec::new(),
            closing: Vec::new(),
            buffers: Buffers::new(FREE_BYTES),
            ending: None,
            now: shared.clock.now(),
            next_sweep: Nanos(0),
            keep_alive: None,
            shared,
        })
    }

    /// Serves until it is told to stop.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut ready = sys::Ready::default();
        while self.step(&mut ready, None)? {}
        Ok(())
    }

    /// Sleeps, at most `millis` if that is given, and then does all work. False: the worker has ended.
    pub(super) fn step(&mut self, ready: &mut sys::Ready, millis: Option<i32>) -> io::Result<bool> {
        let until = self.before_sleep();
        self.shared.calls[self.number].waits.count();
        let waited = self.epoll.wait(ready, millis.unwrap_or(until));
        self.mailbox.is_awake();
        waited?;
        self.now = self.shared.clock.now();
        self.closing.iter_mut().flat_map(|c| c.queue.clients()).for_each(|c| c.disarm());
        for key in ready.keys() {
            match key {
                MAIL | DEVICE => {}
                LISTENERS => self.accept(),
                key if key & DEVICE_OF != 0 => drop(self.turn_disk(key & !DEVICE_OF)),
                key => self.with(key, Connection::turn),
            }
        }
        self.read_mail();
        if !self.watched.is_empty() && self.now >= self.next_tick {
            while let Some(key) = self.watched.pop() {
                self.turn_disk(key);
            }
        }
        self.turn_disks();
        if !self.leaving.is_empty() {
            self.turn_leaving();
        }
        if self.now >= self.next_sweep {
            self.sweep();
        }
        if self.keep_alive.is_some_and(|at| self.now >= at) {
            self.expire_silent_hosts();
        }
        Ok(self.ending.is_none() || !self.continue_end())
    }

    /// Calls `f` with the connection of a key, and closes the connection if `f` returns false. Its clients are then
    /// not armed.
    fn with(
        &mut self,
        key: u64,
        f: impl FnOnce(&mut Connection<T>, &mut WorkerContext<'_, T>) -> bool,
    ) {
        let Some(WaitingConnection { connection, armed, .. }) = self.table.get_mut(key) else {
            return;
        };
        if std::mem::take(armed)
            && let Some(clients) = connection.association().clients()
        {
            clients.for_each(QueueClient::disarm);
        }
        let mut ctx = context!(self);
        if !f(connection, &mut ctx) {
            self.table.remove(key).into_iter().for_each(|c| c.connection.end(&mut ctx));
        } else {
            self.table.mark_busy(key, |c| c.is_busy());
        }
    }

    /// Whether the connection of a key is open.
    fn lives(&self, key: u64) -> bool {
        self.table.get(key).is_some()
    }

    /// Arms the clients of busy connections. Returns how long to sleep in milliseconds; -1: for ever.
    fn before_sleep(&mut self) -> i32 {
        let mut sleeps = self.mailbox.will_sleep();
        let (mut i, mut waits_watched) = (0, false);
        while let Some(key) = self.table.busy(i) {
            let (can_wait, watched) = self.arm(key);
            // After arming, the connection is run once more: this sees what finished before; later completions wake.
            let progress = self.turn_disk(key);
            if self.table.unmark_busy_unless(i, |c| c.is_busy()) {
                sleeps &= !progress;
                continue;
            }
            let Some(c) = self.table.get_mut(key).filter(|_| can_wait && !progress) else {
                (sleeps, i) = (false, i + 1);
                continue;
            };
            c.armed = true;
            let association = c.connection.association();
            if association.waits() {
                // The connection stays listed: another queue wakes the worker when it can continue. A device that
                // answers a command late wakes no one.
                waits_watched |= watched | association.waits_for_late();
                i += 1;
                continue;
            }
            self.table.unmark_busy(i);
            if watched {
                if self.watched.is_empty() {
                    self.next_tick = self.now.plus(TICK);
                }
                self.watched.push(key);
            }
        }
        let mut watched = waits_watched
            || !self.watched.is_empty()
            || !self.leaving.is_empty()
            || self.ending.is_some();
        let closing = self.closing.iter_mut().flat_map(|c| c.queue.clients());
        sleeps &= io_queue::arm(closing, &self.waker, &self.epoll, DEVICE, &mut watched);
        // As for connections: this sees what finished before they were armed.
        sleeps &= !self.turn_closing();
        if !sleeps {
            return 0;
        }
        if watched {
            return crate::runtime::client::TICK.as_millis() as i32;
        }
        let any =
            self.table.has_any() || self.listeners.are_unwatched() || self.buffers.free_bytes() > 0;
        let sweep = any.then_some(self.next_sweep);
        let at = sweep.into_iter().chain(self.keep_alive).min();
        at.map_or(-1, |at| (at.0.saturating_sub(self.now.0) / 1_000_000 + 1) as i32)
    }

    /// Arms the clients of a busy connection. Returns whether the connection can wait until it is woken, and whether
    /// it waits for a descriptor.
    fn arm(&mut self, key: u64) -> (bool, bool) {
        let Some(WaitingConnection { connection, waker, .. }) = self.table.get_mut(key) else {
            return (false, false);
        };
        let Some(clients) = connection.busy_clients() else { return (false, false) };
        let (connection_waker, waker) = waker.get_or_insert_with(|| {
            let waker = ConnectionWaker::new(self.mailbox.clone(), key, Mail::Ready);
            (waker.clone(), Waker::from(waker))
        });
        connection_waker.clear_rung();
        let mut watched = false;
        let key = key | DEVICE_OF;
        let armed = io_queue::arm(clients, waker, &self.epoll, key, &mut watched);
        (armed, watched)
    }

    /// Takes results of disks for busy connections that are not armed. False: there were none.
    fn turn_disks(&mut self) -> bool {
        let (mut progress, mut i) = (false, 0);
        while let Some(key) = self.table.busy(i) {
            progress |= self.turn_disk(key);
            i += usize::from(!self.table.unmark_busy_unless(i, |c| c.is_busy()));
        }
        progress | self.turn_closing()
    }

    /// Runs connections that wait for acknowledgements.
    #[cold]
    fn turn_leaving(&mut self) {
        for key in std::mem::take(&mut self.leaving) {
            self.turn_disk(key);
            if self.lives(key) {
                self.leaving.push(key);
            }
        }
    }

    /// Takes results of disks for a connection. False: there were none.
    fn turn_disk(&mut self, key: u64) -> bool {
        let mut progress = false;
        self.with(key, |connection, ctx| {
            let (some, lives) = connection.turn_without_reading(ctx);
            progress = some;
            lives
        });
        progress
    }

    /// Takes results of disks for queues whose connections have ended. False: there were none.
    #[inline(always)]
    fn turn_closing(&mut self) -> bool {
        if self.closing.is_empty() {
            return false;
        }
        self.run_closing()
    }

    /// [`Worker::turn_closing`], if there are such queues.
    #[cold]
    fn run_closing(&mut self) -> bool {
        let mut progress = false;
        let mut closing = std::mem::take(&mut self.closing);
        let mut ctx = context!(self);
        let answers_none = RefCell::default();
        for ClosingQueue { queue, .. } in &mut closing {
            let epoll = ctx.epoll;
            progress |= queue.run(|client| client.close(epoll), &mut ctx.io(&answers_none));
        }
        let ended = closing.iter().map(|c| &c.queue).filter(|q| q.is_empty()).map(|q| q.queue());
        self.shared.drained(ended);
        closing.retain(|c| !c.queue.is_empty());
        self.closing = closing;
        progress
    }

    fn read_mail(&mut self) {
        let mut all = std::mem::take(&mut self.mail);
        self.mailbox.take(&mut all);
        for mail in all.drain(..) {
            match mail {
                Mail::Ready(key) => drop(self.turn_disk(key)),
                Mail::Connection(stream, slot) => self.add(stream, slot),
                Mail::Complete(key, completion) => {
                    self.with(key, |connection, ctx| connection.complete(completion, ctx));
                }
                Mail::Computed(key, computed) => {
                    self.with(key, |connection, ctx| connection.computed(*computed, ctx));
                }
                Mail::Asked(key) => self.with(key, Connection::asked),
                Mail::Namespaces(key, all) => self.with(key, |connection, ctx| {
                    connection.show(all, ctx);
                    true
                }),
                Mail::Close(key) => {
                    self.with(key, Connection::ended_by_target);
                    if self.lives(key) {
                        self.leaving.push(key);
                    }
                }
                Mail::KeepAlive => self.keep_alive = Some(self.now),
                Mail::Stop => self.begin_end(),
            }
        }
        self.mail = all;
    }

    /// Accepts connections. This worker adds its own before it accepts the next one, which may need the room that adding makes.
    fn accept(&mut self) {
        for _ in 0..sys::READY {
            let workers = &self.shared.workers;
            match self.listeners.accept(&self.epoll, &self.shared.connections, workers.len()) {
                Accepted::Connection(n, stream, slot) if n == self.number => {
                    self.add(stream, slot);
                }
                Accepted::Connection(n, stream, slot) => {
                    workers[n].put(Mail::Connection(stream, slot));
                }
                Accepted::Refused => {}
                Accepted::None => return,
                Accepted::Later => {
                    self.next_sweep = self.now.plus(SWEEP);
                    return;
                }
            }
        }
    }

    fn add(&mut self, stream: TcpStream, slot: ConnectionSlot) {
        if self.ending.is_some() {
            return;
        }
        self.make_room();
        let is_only_one = self.table.add(|key| -> io::Result<_> {
            let connection = Connection::new(stream, slot, key, &self.shared, self.now)?;
            self.epoll.add(connection.fd(), sys::READ, key)?;
            Ok(WaitingConnection { connection: Box::new(connection), waker: None, armed: false })
        });
        if is_only_one.is_ok_and(|only| only) {
            self.next_sweep = self.now.plus(SWEEP);
        }
    }

    /// Closes connections that are not admitted, the oldest first, while they crowd the table
    /// ([`ConnectionCount::is_crowded_by`](crate::network::listeners::ConnectionCount::is_crowded_by)). Hosts without keys
    /// may have three quarters of the table.
    fn make_room(&mut self) {
        let workers = self.shared.workers.len();
        while let Some(key) = self.table.next_crowding(&self.shared.connections, workers) {
            self.with(key, |connection, _| !connection.association().is_stranger());
        }
    }

    /// Checks the deadlines of all connections, and frees memory.
    fn sweep(&mut self) {
        self.next_sweep = self.now.plus(SWEEP);
        self.buffers.trim();
        for n in 0..self.table.len() {
            self.with(self.table.key(n), Connection::expire);
        }
        self.table.retain_strangers(|c| c.connection.association().is_stranger());
        self.listeners.watch_again(&self.epoll, LISTENERS);
    }

    /// Ends the controllers of hosts that were silent for too long.
    fn expire_silent_hosts(&mut self) {
        let mut target = lock(&self.shared.target);
        target.expire_at_second_look(self.now);
        self.shared.deliver(target.take_events());
        let next = target.next_deadline();
        self.keep_alive = next.map(|_| self.now.plus(KEEP_ALIVE));
        self.shared.keeps_alive.store(next.is_some(), Ordering::Relaxed);
    }
}
