//! A thread that serves connections: it sleeps in epoll for their sockets, for its mailbox and for the devices of disks.
//! The first one also accepts connections, which go round the workers, and looks when hosts have been silent too long.

use super::connection::Connection;
use super::context::WorkerContext;
use super::io_queue::{ClosingQueue, QueueClient, ToTell};
use super::listeners::Listeners;
use super::mailbox::{Mail, Mailbox};
use super::{Shared, io_queue, sys};
use std::cell::RefCell;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use zoneplug_core::Nanos;
use zoneplug_core::poison::lock;
use zoneplug_nvme::tcp::Buffers;

/// Numbers of descriptors that are no connections.
const MAIL: u64 = u64::MAX;
const LISTENERS: u64 = u64::MAX - 1;
const DEVICE: u64 = u64::MAX - 2;

/// How often connections are looked at for deadlines, and hosts for their keep alive time.
const SWEEP: Nanos = Nanos(1_000_000_000);
const KEEP_ALIVE: Nanos = Nanos(500_000_000);
/// Memory that a worker keeps for the next commands.
const FREE_BYTES: usize = 64 << 20;
/// Descriptors that are looked at after one wait, and connections that are accepted.
const READY: usize = 64;

/// A place for a connection. The key of a connection has the generation above the number of the place, so that what was
/// meant for an earlier one does not reach it.
#[derive(Default)]
struct Place {
    generation: u32,
    connection: Option<Box<Connection>>,
}

/// A worker.
pub(super) struct Worker {
    shared: Arc<Shared>,
    number: usize,
    mailbox: Arc<Mailbox>,
    waker: Waker,
    epoll: sys::Epoll,
    listeners: Listeners,
    places: Vec<Place>,
    free: Vec<usize>,
    /// Places of connections with work at a disk.
    busy: Vec<usize>,
    /// Queues whose connections have ended, with work at a disk.
    closing: Vec<ClosingQueue>,
    /// Appends of one connection whose answers are to be sent next, and that are not in the journal yet.
    to_tell: RefCell<Vec<ToTell>>,
    buffers: Buffers,
    /// It was told to stop.
    stops: bool,
    now: Nanos,
    /// When connections are looked at next, if there are any, and when hosts are, if one has a keep alive time.
    next_sweep: Nanos,
    keep_alive: Option<Nanos>,
    /// When a host was found late. Those that are late since then end at the next look.
    late: Option<Nanos>,
    /// The worker of the next connection.
    next_worker: usize,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        number: usize,
        mut listeners: Listeners,
    ) -> io::Result<Worker> {
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
            busy: Vec::new(),
            closing: Vec::new(),
            to_tell: RefCell::default(),
            buffers: Buffers::new(FREE_BYTES),
            stops: false,
            now: shared.clock.now(),
            next_sweep: Nanos(0),
            keep_alive: None,
            late: None,
            next_worker: 0,
            shared,
        })
    }

    /// Where [`Worker::step`] notes what is ready.
    pub(super) fn ready() -> sys::Ready {
        sys::Ready::new(READY)
    }

    /// Serves until it is told to stop.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut ready = Worker::ready();
        while self.step(&mut ready, None)? {}
        Ok(())
    }

    /// Sleeps, at most `millis` if that is given, and does what there is to do. False: the end.
    pub(super) fn step(&mut self, ready: &mut sys::Ready, millis: Option<i32>) -> io::Result<bool> {
        let until = self.before_sleep();
        self.shared.calls[self.number].waits.count();
        let waited = self.epoll.wait(ready, millis.unwrap_or(until));
        self.mailbox.is_awake();
        waited?;
        self.now = self.shared.clock.now();
        for n in 0..self.busy.len() {
            if let Some(io) = self.place(self.busy[n]).and_then(Connection::busy_queue) {
                io.clients().for_each(QueueClient::disarm);
            }
        }
        self.closing.iter_mut().flat_map(ClosingQueue::clients).for_each(|c| c.disarm());
        for key in ready.keys() {
            match key {
                MAIL | DEVICE => {}
                LISTENERS => self.accept(),
                key => self.with(key, Connection::turn),
            }
        }
        if !self.read_mail() {
            return Ok(false);
        }
        self.turn_disks();
        if self.now >= self.next_sweep {
            self.sweep();
        }
        if self.keep_alive.is_some_and(|at| self.now >= at) {
            self.look_at_hosts();
        }
        Ok(true)
    }

    fn place(&mut self, n: usize) -> Option<&mut Connection> {
        self.places.get_mut(n)?.connection.as_deref_mut()
    }

    /// Calls `f` with the connection of a key, and closes it if that says so.
    fn with(&mut self, key: u64, f: impl FnOnce(&mut Connection, &mut WorkerContext<'_>) -> bool) {
        let n = key as u32 as usize;
        let Some(place) = self.places.get_mut(n) else { return };
        if u64::from(place.generation) != key >> 32 {
            return;
        }
        let Some(connection) = place.connection.as_deref_mut() else { return };
        let mut ctx = WorkerContext {
            shared: &self.shared,
            worker: self.number,
            epoll: &self.epoll,
            buffers: &mut self.buffers,
            closing: &mut self.closing,
            to_tell: &self.to_tell,
            counters: &self.shared.counters[self.number],
            calls: &self.shared.calls[self.number],
            stops: self.stops,
            now: self.now,
        };
        if !f(connection, &mut ctx) {
            connection.end(&mut ctx);
            // These answers are never sent.
            ctx.to_tell.borrow_mut().clear();
            place.connection = None;
            place.generation = place.generation.wrapping_add(1) & (u32::MAX >> 1);
            self.free.push(n);
            self.shared.connections.fetch_sub(1, Ordering::Relaxed);
        } else if connection.busy_queue().is_some() && !self.busy.contains(&n) {
            self.busy.push(n);
        }
    }

    fn key(&self, n: usize) -> u64 {
        u64::from(self.places[n].generation) << 32 | n as u64
    }

    /// Arms the clients of busy connections. Returns how long to sleep in milliseconds; -1: for ever.
    fn before_sleep(&mut self) -> i32 {
        let mut sleeps = self.mailbox.will_sleep();
        let mut watched = false;
        for n in 0..self.busy.len() {
            let place = self.places.get_mut(self.busy[n]).and_then(|p| p.connection.as_deref_mut());
            if let Some(io) = place.and_then(Connection::busy_queue) {
                sleeps &= io_queue::arm(
                    io.busy_clients(),
                    &self.waker,
                    &self.epoll,
                    DEVICE,
                    &mut watched,
                );
            }
        }
        let closing = self.closing.iter_mut().flat_map(ClosingQueue::clients);
        sleeps &= io_queue::arm(closing, &self.waker, &self.epoll, DEVICE, &mut watched);
        // Once more, after arming: what finished before is seen here, what finishes later wakes.
        if self.turn_disks() || !sleeps {
            return 0;
        }
        if watched && !(self.busy.is_empty() && self.closing.is_empty()) {
            return crate::runtime::client::TICK.as_millis() as i32;
        }
        let any = self.places.len() > self.free.len() || self.listeners.are_unwatched();
        let sweep = any.then_some(self.next_sweep);
        let at = sweep.into_iter().chain(self.keep_alive).min();
        at.map_or(-1, |at| (at.0.saturating_sub(self.now.0) / 1_000_000 + 1) as i32)
    }

    /// Takes what the disks have done. False: nothing.
    fn turn_disks(&mut self) -> bool {
        let mut progress = false;
        let mut n = 0;
        while n < self.busy.len() {
            let place = self.busy[n];
            self.with(self.key(place), |connection, ctx| {
                let (some, lives) = connection.turn_disks(ctx);
                progress |= some;
                lives
            });
            if self.place(place).and_then(Connection::busy_queue).is_some() {
                n += 1;
            } else {
                self.busy.swap_remove(n);
            }
        }
        progress | (!self.closing.is_empty() && self.turn_closing())
    }

    /// Takes what the disks have done of queues whose connections have ended. False: nothing.
    fn turn_closing(&mut self) -> bool {
        let mut progress = false;
        let mut closing = std::mem::take(&mut self.closing);
        let mut ctx = WorkerContext {
            shared: &self.shared,
            worker: self.number,
            epoll: &self.epoll,
            buffers: &mut self.buffers,
            closing: &mut self.closing,
            to_tell: &self.to_tell,
            counters: &self.shared.counters[self.number],
            calls: &self.shared.calls[self.number],
            stops: self.stops,
            now: self.now,
        };
        for queue in &mut closing {
            let epoll = ctx.epoll;
            progress |= queue.run(|client| client.close(epoll), &mut ctx.io());
        }
        let ended = closing.iter().filter(|q| q.is_empty()).map(ClosingQueue::queue);
        self.shared.drained(ended);
        closing.retain(|q| !q.is_empty());
        self.closing = closing;
        progress
    }

    /// False: the end.
    fn read_mail(&mut self) -> bool {
        for mail in self.mailbox.take() {
            match mail {
                Mail::Connection(stream) => self.add(stream),
                Mail::Complete(key, completion) => self.with(key, |connection, ctx| {
                    connection.complete(completion, ctx);
                    connection.turn_disks(ctx).1
                }),
                Mail::Namespaces(key, all) => self.with(key, |connection, _| {
                    connection.show(all);
                    true
                }),
                Mail::Close(key) => self.with(key, |connection, ctx| {
                    connection.forget(ctx);
                    false
                }),
                Mail::KeepAlive => self.keep_alive = Some(self.now),
                Mail::Stop => {
                    self.stops = true;
                    for n in 0..self.places.len() {
                        self.with(self.key(n), |_, _| false);
                    }
                    self.closing.drain(..).for_each(ClosingQueue::abandon);
                    return false;
                }
            }
        }
        true
    }

    fn accept(&mut self) {
        for _ in 0..READY {
            match self.listeners.accept() {
                Ok(Some(stream)) => {
                    // One too many is closed at once.
                    let before = self.shared.connections.fetch_add(1, Ordering::Relaxed);
                    if before >= self.shared.max_connections {
                        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
                        continue;
                    }
                    let worker = self.next_worker % self.shared.workers.len();
                    self.next_worker = worker + 1;
                    if worker == self.number {
                        self.add(stream);
                    } else {
                        self.shared.workers[worker].put(Mail::Connection(stream));
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    // Too many files are open: not at once again.
                    self.listeners.unwatch(&self.epoll);
                    self.next_sweep = self.now.plus(SWEEP);
                    return;
                }
            }
        }
    }

    fn add(&mut self, stream: TcpStream) {
        let n = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        let key = self.key(n);
        let connection = Connection::new(stream, key, &self.shared, self.now);
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
            }
            Err(_) => {
                self.free.push(n);
                self.shared.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Looks at the deadlines of all connections.
    fn sweep(&mut self) {
        self.next_sweep = self.now.plus(SWEEP);
        for n in 0..self.places.len() {
            self.with(self.key(n), Connection::expire);
        }
        // What cannot be watched yet is tried again at the next look.
        if self.listeners.are_unwatched() && self.listeners.watch(&self.epoll, LISTENERS).is_err() {
            self.listeners.unwatch(&self.epoll);
        }
    }

    /// Ends the controllers of hosts that were silent for too long. One that is late for the first time gets until the
    /// next look: after a stall of this process, what it has sent may not have been read yet.
    fn look_at_hosts(&mut self) {
        let mut target = lock(&self.shared.target);
        if let Some(at) = self.late.take() {
            target.expire(at);
            self.shared.deliver(target.take_events());
        }
        let next = target.next_deadline();
        self.late = next.filter(|at| *at <= self.now).map(|_| self.now);
        self.keep_alive = next.map(|_| self.now.plus(KEEP_ALIVE));
        self.shared.keeps_alive.store(next.is_some(), Ordering::Relaxed);
    }
}
