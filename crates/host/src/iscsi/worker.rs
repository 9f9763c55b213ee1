//! A thread that serves connections: it sleeps in epoll for their sockets, its mailbox and the devices of disks. The
//! first worker also accepts connections, and gives them to all workers in turn.

use super::connection::{Connection, Context};
use super::{END, Mail, Shared};
use crate::network::connection_table::ConnectionTable;
use crate::network::listeners::{Accepted, ConnectionSlot, Listeners};
use crate::network::mailbox::Mailbox;
use crate::network::queue_client::{QueueClient, arm};
use crate::network::sys;
use crate::served::timing::Timing;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_buf::Buffers;
use zoneplug_core::Nanos;
use zoneplug_scsi::iscsi::TargetEvent;

/// Keys of descriptors that are not connections.
const MAIL: u64 = u64::MAX;
const LISTENERS: u64 = u64::MAX - 1;
const DEVICE: u64 = u64::MAX - 2;
/// The interval at which deadlines of connections are checked and unused memory is freed.
const SWEEP: Nanos = Nanos(1_000_000_000);
/// Most memory that a worker keeps for the next commands.
const FREE_BYTES: usize = 64 << 20;

/// A worker.
pub(super) struct Worker<T> {
    shared: Arc<Shared>,
    number: usize,
    mailbox: Arc<Mailbox<Mail>>,
    waker: Waker,
    epoll: sys::Epoll,
    listeners: Listeners,
    /// The connections. An initiator is a stranger until it has logged in.
    table: ConnectionTable<Box<Connection<T>>>,
    /// Memory for mail.
    mail: Vec<Mail>,
    buffers: Buffers,
    /// When the worker ends at the latest, once it was told to stop.
    ends: Option<Nanos>,
    now: Nanos,
    next_sweep: Nanos,
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
            mail: Vec::new(),
            buffers: Buffers::new(FREE_BYTES),
            ends: None,
            now: shared.clock.now(),
            next_sweep: Nanos(0),
            shared,
        })
    }

    /// Serves until it is told to stop.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut ready = sys::Ready::default();
        while self.step(&mut ready, None)? {}
        Ok(())
    }

    /// Sleeps, for `millis` if that is given, and then does all work. Returns false if the worker has ended.
    pub(super) fn step(&mut self, ready: &mut sys::Ready, millis: Option<i32>) -> io::Result<bool> {
        let until = self.before_sleep();
        let waited = self.epoll.wait(ready, millis.unwrap_or(until));
        self.mailbox.is_awake();
        waited?;
        self.now = self.shared.clock.now();
        self.table.for_each_busy(|c| c.session().clients().for_each(QueueClient::disarm));
        for key in ready.keys() {
            match key {
                MAIL | DEVICE => {}
                LISTENERS => self.accept(),
                key => self.with(key, Connection::turn),
            }
        }
        self.read_mail();
        self.turn_disks();
        if self.now >= self.next_sweep {
            self.sweep();
        }
        Ok(self.ends.is_none() || !self.continue_end())
    }

    /// Arms the clients of busy connections. Returns how long to sleep in milliseconds; -1: for ever.
    fn before_sleep(&mut self) -> i32 {
        let (mut sleeps, mut watched) = (self.mailbox.will_sleep(), self.ends.is_some());
        self.table.for_each_busy(|c| {
            // A device that answers a command late wakes no thread.
            watched |= c.session().waits_for_late();
            let clients = c.session().busy_clients();
            sleeps &= arm(clients, &self.waker, &self.epoll, DEVICE, &mut watched);
        });
        // After arming, the connections are run once more: this sees what finished before; later completions wake.
        sleeps &= !self.turn_disks();
        if !sleeps {
            return 0;
        }
        if watched {
            return crate::runtime::client::TICK.as_millis() as i32;
        }
        let any =
            self.table.has_any() || self.listeners.are_unwatched() || self.buffers.free_bytes() > 0;
        let at = any.then_some(self.next_sweep);
        at.map_or(-1, |at| (at.0.saturating_sub(self.now.0) / 1_000_000 + 1) as i32)
    }

    /// Calls `f` with the connection of a key, and closes the connection if `f` returns false. It stays until its commands
    /// have come back.
    fn with(&mut self, key: u64, f: impl FnOnce(&mut Connection<T>, &mut Context<'_>) -> bool) {
        let Some(connection) = self.table.get_mut(key) else { return };
        let mut ctx = Context {
            shared: &self.shared,
            worker: self.number,
            epoll: &self.epoll,
            buffers: &mut self.buffers,
            now: self.now,
        };
        if !f(connection, &mut ctx) {
            connection.close(&mut ctx);
        }
        if connection.session().is_drained() {
            self.table.remove(key).into_iter().for_each(|c| c.end(&mut ctx));
        } else {
            self.table.mark_busy(key, |c| c.session().is_busy());
        }
    }

    /// Takes results of disks for busy connections. Returns false if there were none.
    fn turn_disks(&mut self) -> bool {
        let (mut progress, mut i) = (false, 0);
        while let Some(key) = self.table.busy(i) {
            self.with(key, |c, ctx| {
                let (some, lives) = c.turn_without_reading(ctx);
                progress |= some;
                lives
            });
            i += usize::from(!self.table.unmark_busy_unless(i, |c| c.session().is_busy()));
        }
        progress
    }

    fn read_mail(&mut self) {
        let mut all = std::mem::take(&mut self.mail);
        self.mailbox.take(&mut all);
        for mail in all.drain(..) {
            match mail {
                Mail::Connection(stream, slot) => self.add(stream, slot),
                Mail::Event(TargetEvent::Close(key)) => self.with(key, |_, _| false),
                Mail::Event(TargetEvent::Run(key)) => {
                    self.with(key, |c, ctx| c.turn_without_reading(ctx).1);
                }
                Mail::Event(TargetEvent::Reset(key, lun)) => self.with(key, |c, ctx| {
                    c.reset(lun, ctx);
                    c.turn_without_reading(ctx).1
                }),
                Mail::Event(TargetEvent::Notify(key, lun, sense)) => self.with(key, |c, ctx| {
                    c.session().notify(lun, sense);
                    c.turn_without_reading(ctx).1
                }),
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
        if self.ends.is_some() {
            return;
        }
        self.make_room();
        let is_only_one = self.table.add(|key| -> io::Result<_> {
            let connection = Connection::new(stream, slot, key, &self.shared, self.now)?;
            connection.fd().map_or(Ok(()), |fd| self.epoll.add(fd, sys::READ, key))?;
            Ok(Box::new(connection))
        });
        if is_only_one.is_ok_and(|only| only) {
            self.next_sweep = self.now.plus(SWEEP);
        }
    }

    /// Closes connections whose initiators have not logged in, the oldest first, while they crowd the table
    /// ([`ConnectionCount::is_crowded_by`](crate::network::listeners::ConnectionCount::is_crowded_by)).
    fn make_room(&mut self) {
        let workers = self.shared.workers.len();
        while let Some(key) = self.table.next_crowding(&self.shared.connections, workers) {
            self.with(key, |c, _| !c.session().is_stranger());
        }
    }

    /// Checks the deadlines of all connections, and frees memory.
    fn sweep(&mut self) {
        self.next_sweep = self.now.plus(SWEEP);
        self.buffers.trim();
        for n in 0..self.table.len() {
            let now = self.now;
            let key = self.table.key(n);
            self.with(key, |c, ctx| c.session().expire(now) && c.turn_without_reading(ctx).1);
        }
        self.table.retain_strangers(|c| c.session().is_stranger());
        self.listeners.watch_again(&self.epoll, LISTENERS);
    }

    /// Begins the end, after the worker was told to stop.
    #[cold]
    fn begin_end(&mut self) {
        self.listeners.close();
        self.ends = Some(self.shared.clock.now().plus(END));
        for n in 0..self.table.len() {
            self.with(self.table.key(n), Connection::stop);
        }
    }

    /// Continues the end. Returns true if the worker has ended: all initiators have their answers, or it is too late.
    #[cold]
    fn continue_end(&mut self) -> bool {
        for n in 0..self.table.len() {
            self.with(self.table.key(n), |c, _| c.continue_end());
        }
        if self.table.has_any() && self.ends.is_some_and(|at| self.now < at) {
            return false;
        }
        for n in 0..self.table.len() {
            let mut ctx = Context {
                shared: &self.shared,
                worker: self.number,
                epoll: &self.epoll,
                buffers: &mut self.buffers,
                now: self.now,
            };
            if let Some(mut connection) = self.table.remove(self.table.key(n)) {
                connection.close(&mut ctx);
                connection.end(&mut ctx);
            }
        }
        true
    }
}
