//! A thread that serves connections: it sleeps in epoll for their sockets, its mailbox and the devices of disks. The
//! first worker also accepts connections, gives them to all workers in turn, and checks the keep alive times of
//! hosts.

mod ending;

use super::connection::Connection;
use super::context::WorkerContext;
use super::io_queue::{ClosingQueue, QueueClient};
use super::mailbox::{ConnectionWaker, Mail, Mailbox};
use super::{Shared, io_queue};
use crate::network::listeners::{Accepted, ConnectionSlot, Listeners};
use crate::network::sys;
use crate::served::timing::Timing;
use ending::Ending;
use std::cell::RefCell;
use std::collections::VecDeque;
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
/// This bit and the key of a connection: the device of its queue. No generation has the bit.
const DEVICE_OF: u64 = 1 << 63;

/// The interval at which deadlines of connections are checked and unused memory is freed; that of keep alive times.
const SWEEP: Nanos = Nanos(1_000_000_000);
const KEEP_ALIVE: Nanos = Nanos(500_000_000);
/// The interval at which armed connections that wait for a descriptor are run.
const TICK: Nanos = Nanos(crate::runtime::client::TICK.as_nanos() as u64);
/// Most memory that a worker keeps for the next commands.
const FREE_BYTES: usize = 64 << 20;

/// A place for a connection. The key of a connection is the generation above the index of the place, so that mail for
/// an earlier connection does not reach it.
struct ConnectionPlace<T> {
    generation: u32,
    connection: Option<Box<Connection<T>>>,
    /// Wakes the worker when a disk has done work of the connection. Made when it first waits.
    waker: Option<(Arc<ConnectionWaker>, Waker)>,
    /// The connection's clients are armed. The worker runs it when it is woken.
    armed: bool,
    /// The place is in [`Worker::busy`].
    listed: bool,
}

impl<T> ConnectionPlace<T> {
    fn new() -> ConnectionPlace<T> {
        ConnectionPlace {
            generation: 0,
            connection: None,
            waker: None,
            armed: false,
            listed: false,
        }
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
    places: Vec<ConnectionPlace<T>>,
    free: Vec<usize>,
    /// Keys of connections whose hosts were not admitted at the last check, in order of arrival.
    strangers: VecDeque<u64>,
    /// Places of connections with work at a disk whose clients are not armed.
    busy: Vec<usize>,
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
    /// The worker of the next connection.
    next_worker: usize,
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
            places: Vec::new(),
            free: Vec::new(),
            strangers: VecDeque::new(),
            busy: Vec::new(),
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
            next_worker: 0,
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

    fn place(&self, n: usize) -> Option<&Connection<T>> {
        self.places.get(n)?.connection.as_deref()
    }

    /// Calls `f` with the connection of a key, and closes the connection if `f` returns false. Its clients are then
    /// not armed.
    fn with(
        &mut self,
        key: u64,
        f: impl FnOnce(&mut Connection<T>, &mut WorkerContext<'_, T>) -> bool,
    ) {
        let n = key as u32 as usize;
        let Some(place) = self.places.get_mut(n) else { return };
        if u64::from(place.generation) != key >> 32 {
            return;
        }
        let Some(connection) = place.connection.as_deref_mut() else { return };
        if std::mem::take(&mut place.armed)
            && let Some(clients) = connection.association().clients()
        {
            clients.for_each(QueueClient::disarm);
        }
        let mut ctx = context!(self);
        if !f(connection, &mut ctx) {
            place.connection.take().into_iter().for_each(|c| c.end(&mut ctx));
            place.waker = None;
            place.generation = place.generation.wrapping_add(1) & (u32::MAX >> 1);
            self.free.push(n);
        } else if !place.listed && connection.association().is_busy() {
            place.listed = true;
            self.busy.push(n);
        }
    }

    /// The connection of a key, if it is open.
    fn connection(&self, key: u64) -> Option<&Connection<T>> {
        let place = self.places.get(key as u32 as usize)?;
        place.connection.as_deref().filter(|_| u64::from(place.generation) == key >> 32)
    }

    /// Whether the connection of a key is open.
    fn lives(&self, key: u64) -> bool {
        self.connection(key).is_some()
    }

    fn key(&self, n: usize) -> u64 {
        u64::from(self.places[n].generation) << 32 | n as u64
    }

    /// Arms the clients of busy connections. Returns how long to sleep in milliseconds; -1: for ever.
    fn before_sleep(&mut self) -> i32 {
        let mut sleeps = self.mailbox.will_sleep();
        let (mut n, mut waits_watched) = (0, false);
        while let Some(place) = self.busy.get(n).copied() {
            let (armed, watched) = self.arm(place);
            // After arming, the connection is run once more: this sees what finished before; later completions wake.
            let progress = self.turn_disk(self.key(place));
            if self.unlist_if_idle(n) {
                sleeps &= !progress;
            } else if armed && !progress && self.waits(place) {
                // The connection stays listed: another queue wakes the worker when it can continue. A device that
                // answers a command late wakes no one.
                self.places[place].armed = true;
                let late = self.place(place).is_some_and(|c| c.association().waits_for_late());
                (waits_watched, n) = (waits_watched | watched | late, n + 1);
            } else if armed && !progress {
                let key = self.key(place);
                (self.places[place].armed, self.places[place].listed) = (true, false);
                self.busy.swap_remove(n);
                if watched {
                    if self.watched.is_empty() {
                        self.next_tick = self.now.plus(TICK);
                    }
                    self.watched.push(key);
                }
            } else {
                (sleeps, n) = (false, n + 1);
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
        let any = self.places.len() > self.free.len()
            || self.listeners.are_unwatched()
            || self.buffers.free_bytes() > 0;
        let sweep = any.then_some(self.next_sweep);
        let at = sweep.into_iter().chain(self.keep_alive).min();
        at.map_or(-1, |at| (at.0.saturating_sub(self.now.0) / 1_000_000 + 1) as i32)
    }

    /// Whether commands of a connection wait for other queues.
    fn waits(&self, n: usize) -> bool {
        self.place(n).is_some_and(|c| c.association().waits())
    }

    /// Arms the clients of a busy connection. Returns whether the connection can wait until it is woken, and whether
    /// it waits for a descriptor.
    fn arm(&mut self, n: usize) -> (bool, bool) {
        let key = self.key(n);
        let place = &mut self.places[n];
        let Some(clients) = place.connection.as_deref_mut().and_then(Connection::busy_clients)
        else {
            return (false, false);
        };
        let (connection_waker, waker) = place.waker.get_or_insert_with(|| {
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
        let (mut progress, mut n) = (false, 0);
        while let Some(place) = self.busy.get(n).copied() {
            progress |= self.turn_disk(self.key(place));
            n += usize::from(!self.unlist_if_idle(n));
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
            let (some, lives) = connection.turn_disks(ctx);
            progress = some;
            lives
        });
        progress
    }

    /// Removes the `n`th of the busy places from their list if it is no longer busy.
    fn unlist_if_idle(&mut self, n: usize) -> bool {
        let place = self.busy[n];
        if self.place(place).is_some_and(|c| c.association().is_busy()) {
            return false;
        }
        self.busy.swap_remove(n);
        self.places[place].listed = false;
        true
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

    fn accept(&mut self) {
        for _ in 0..sys::READY {
            match self.listeners.accept(&self.epoll, &self.shared.connections) {
                Accepted::Connection(stream, slot) => {
                    let worker = self.next_worker % self.shared.workers.len();
                    self.next_worker = worker + 1;
                    if worker == self.number {
                        self.add(stream, slot);
                    } else {
                        self.shared.workers[worker].put(Mail::Connection(stream, slot));
                    }
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
        let n = self.free.pop().unwrap_or_else(|| {
            self.places.push(ConnectionPlace::new());
            self.places.len() - 1
        });
        let key = self.key(n);
        let connection = Connection::new(stream, slot, key, &self.shared, self.now);
        let added = connection.and_then(|c| {
            self.epoll.add(c.fd(), sys::READ, key)?;
            Ok(c)
        });
        match added {
            Ok(connection) => {
                if self.places.len() - self.free.len() == 1 {
                    self.next_sweep = self.now.plus(SWEEP);
                }
                self.places[n].connection = Some(Box::new(connection));
                self.strangers.push_back(key);
            }
            Err(_) => self.free.push(n),
        }
    }

    /// Closes connections that are not admitted, the oldest first, while they crowd the table
    /// ([`ConnectionCount::is_crowded_by`](crate::network::listeners::ConnectionCount::is_crowded_by)). Hosts without keys
    /// may have three quarters of the table.
    fn make_room(&mut self) {
        let workers = self.shared.workers.len();
        while self.shared.connections.is_crowded_by(self.strangers.len(), workers)
            && let Some(key) = self.strangers.pop_front()
        {
            self.with(key, |connection, _| !connection.association().is_stranger());
        }
    }

    /// Checks the deadlines of all connections, and frees memory.
    fn sweep(&mut self) {
        self.next_sweep = self.now.plus(SWEEP);
        self.buffers.trim();
        for n in 0..self.places.len() {
            self.with(self.key(n), Connection::expire);
        }
        let mut strangers = std::mem::take(&mut self.strangers);
        strangers
            .retain(|key| self.connection(*key).is_some_and(|c| c.association().is_stranger()));
        self.strangers = strangers;
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
