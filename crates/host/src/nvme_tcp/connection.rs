//! A connection: its socket, and the association that the socket carries.

use super::Shared;
use super::context::WorkerContext;
use super::io_queue::{ClosingQueue, QueueClient, ServedDisks, ToTell};
use crate::network::known::ClientPlace;
use crate::network::listeners::ConnectionSlot;
use crate::network::sys;
use crate::served::timing::Timing;
use std::cell::RefCell;
use std::io::{self, IoSlice, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zoneplug_core::Nanos;
use zoneplug_core::poison::lock;
use zoneplug_nvme::association::{Association, Server};
use zoneplug_nvme::dhchap::Random;
use zoneplug_nvme::io_queue::{self, IoContext};
use zoneplug_nvme::spec::fabrics::connect_offset;
use zoneplug_nvme::spec::{Completion, status};
use zoneplug_nvme::target::auth::{Computed, Job};
use zoneplug_nvme::target::{Activity, Namespaces, Nqn, QueueId, Target};

/// The most pieces of one sendmsg(2).
const SLICES: usize = 64;
/// The most reads of a connection before the others have their turn.
const READS: usize = 4;

/// A connection.
pub(super) struct Connection<T> {
    stream: TcpStream,
    association: Association<QueueClient<T>>,
    /// Appends whose answers are to be sent next, and that are not in the journal yet. The list ends with the
    /// connection: answers that were not sent by then are never sent.
    to_tell: RefCell<Vec<ToTell>>,
    /// Identifies the connection for its worker and in mail.
    key: u64,
    /// Its place among the hosts, once it is a queue.
    place: Option<ClientPlace>,
    /// Whether epoll watches for room to write.
    watches_room: bool,
    _slot: ConnectionSlot,
}

/// The server as the association of one connection sees it.
struct ConnectionServer<'c, 'a, T> {
    ctx: &'c mut WorkerContext<'a, T>,
    stream: &'c TcpStream,
    to_tell: &'c RefCell<Vec<ToTell>>,
    key: u64,
    place: &'c mut Option<ClientPlace>,
}

impl<T: Timing> Connection<T> {
    pub(super) fn new(
        stream: TcpStream,
        slot: ConnectionSlot,
        key: u64,
        shared: &Shared,
        now: Nanos,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // Answers are small and the host waits for them, so TCP must not delay them.
        stream.set_nodelay(true)?;
        let association = Association::new(shared.tcp, stream.local_addr()?, now);
        let to_tell = RefCell::default();
        Ok(Connection {
            stream,
            association,
            to_tell,
            key,
            place: None,
            watches_room: false,
            _slot: slot,
        })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Returns the association, and its server for a call.
    #[inline(always)]
    fn parts<'c, 'a>(
        &'c mut self,
        ctx: &'c mut WorkerContext<'a, T>,
    ) -> (&'c mut Association<QueueClient<T>>, ConnectionServer<'c, 'a, T>) {
        let Connection { stream, association, to_tell, key, place, .. } = self;
        (association, ConnectionServer { ctx, stream, to_tell, key: *key, place })
    }

    /// Reads, executes and answers commands. False: close the connection.
    pub(super) fn turn(&mut self, ctx: &mut WorkerContext<'_, T>) -> bool {
        if self.association.has_stopped() {
            // At most room to write is watched after the stop. Any other event means that the peer has gone.
            return self.watches_room && self.flush(ctx);
        }
        for _ in 0..READS {
            match self.receive(ctx) {
                Ok((0, _)) => return false,
                Ok((_, full)) => {
                    self.run(ctx);
                    // The read did not fill its buffers, so no bytes are left.
                    if !full {
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.flush(ctx)
    }

    /// Like [`Connection::turn`], without reading the socket. Returns whether anything happened, and whether the
    /// connection stays open.
    pub(super) fn turn_without_reading(&mut self, ctx: &mut WorkerContext<'_, T>) -> (bool, bool) {
        let progress = self.run(ctx);
        if !self.flush(ctx) {
            return (progress, false);
        }
        let (association, mut server) = self.parts(ctx);
        (progress, !association.has_left(&mut server))
    }

    /// Reads from the socket. Returns the number of bytes, and whether they have filled the buffers.
    fn receive(&mut self, ctx: &mut WorkerContext<'_, T>) -> io::Result<(usize, bool)> {
        ctx.calls.receives.count();
        self.association
            .receive_with(ctx.buffers, ctx.now, |slices| self.stream.read_vectored(slices))
    }

    /// Takes commands from the received bytes, and results from the disks. False: there were none.
    fn run(&mut self, ctx: &mut WorkerContext<'_, T>) -> bool {
        let (association, mut server) = self.parts(ctx);
        association.run(&mut server)
    }

    /// Sends output. False: close the connection.
    fn flush(&mut self, ctx: &mut WorkerContext<'_, T>) -> bool {
        while self.association.has_output() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = self.association.output(&mut slices);
            ctx.tell(&self.to_tell);
            ctx.calls.sends.count();
            match sys::send(&self.stream, &slices[..filled]) {
                Ok(n) => {
                    let (association, mut server) = self.parts(ctx);
                    association.sent(n, &mut server);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return self.watch(true, ctx),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        if self.association.all_sent(ctx.now) && self.stream.shutdown(Shutdown::Write).is_err() {
            return false;
        }
        self.watch(false, ctx)
    }

    /// Starts or stops watching for room to write.
    fn watch(&mut self, room: bool, ctx: &WorkerContext<'_, T>) -> bool {
        if self.watches_room == room {
            return true;
        }
        self.watches_room = room;
        self.set_events(ctx)
    }

    /// Sets the events that epoll watches for. False: epoll fails.
    fn set_events(&self, ctx: &WorkerContext<'_, T>) -> bool {
        let read = if self.association.has_stopped() { 0 } else { sys::READ };
        let write = if self.watches_room { sys::WRITE } else { 0 };
        ctx.epoll.change(self.fd(), read | write, self.key).is_ok()
    }

    /// See [`Association::complete`]. False: close the connection.
    pub(super) fn complete(
        &mut self,
        completion: Completion,
        ctx: &mut WorkerContext<'_, T>,
    ) -> bool {
        let (association, mut server) = self.parts(ctx);
        association.complete(completion, &mut server);
        self.turn_without_reading(ctx).1
    }

    /// See [`Association::computed`]. False: close the connection.
    pub(super) fn computed(&mut self, computed: Computed, ctx: &mut WorkerContext<'_, T>) -> bool {
        let (association, mut server) = self.parts(ctx);
        association.computed(computed, &mut server);
        self.turn_without_reading(ctx).1
    }

    /// See [`Association::show`].
    pub(super) fn show(&mut self, namespaces: Arc<Namespaces>, ctx: &mut WorkerContext<'_, T>) {
        let (association, mut server) = self.parts(ctx);
        association.show(namespaces, &mut server);
    }

    /// Answers the query of another queue, after it has taken everything that has arrived by now. False: close the
    /// connection.
    #[cold]
    pub(super) fn asked(&mut self, ctx: &mut WorkerContext<'_, T>) -> bool {
        let lives = self.association.has_stopped() || self.turn(ctx);
        let (association, mut server) = self.parts(ctx);
        association.asked(&mut server);
        lives && self.turn_without_reading(ctx).1
    }

    /// See [`Association::stop`]. False: close the connection.
    pub(super) fn stop(&mut self, ctx: &mut WorkerContext<'_, T>) -> bool {
        self.association.stop();
        self.set_events(ctx)
    }

    /// Checks the deadlines. False: close the connection.
    pub(super) fn expire(&mut self, ctx: &mut WorkerContext<'_, T>) -> bool {
        let (association, mut server) = self.parts(ctx);
        association.expire(&mut server) && self.turn_without_reading(ctx).1
    }

    /// See [`Association::ended_by_target`]. False: close the connection.
    pub(super) fn ended_by_target(&mut self, ctx: &mut WorkerContext<'_, T>) -> bool {
        let (association, mut server) = self.parts(ctx);
        association.ended_by_target(&mut server)
    }

    /// See [`Association::is_answered`].
    pub(super) fn is_answered(&mut self, ctx: &mut WorkerContext<'_, T>) -> bool {
        let (association, mut server) = self.parts(ctx);
        association.is_answered(&mut server)
    }

    /// The association, to ask it for its state.
    pub(super) fn association(&self) -> &Association<QueueClient<T>> {
        &self.association
    }

    /// See [`Association::busy_clients`].
    pub(super) fn busy_clients(&mut self) -> Option<impl Iterator<Item = &mut QueueClient<T>>> {
        self.association.busy_clients()
    }

    /// Ends the association and closes the connection.
    #[cold]
    pub(super) fn end(self, ctx: &mut WorkerContext<'_, T>) {
        let Connection { stream, association, to_tell, key, mut place, .. } = self;
        let (stream, to_tell, place) = (&stream, &to_tell, &mut place);
        association.end(&mut ConnectionServer { ctx, stream, to_tell, key, place });
    }
}

impl<T> ConnectionServer<'_, '_, T> {
    /// Logs that a host was refused.
    #[cold]
    fn log_refused(&self, host: Option<&Nqn>, why: &str) {
        let name = host.map_or("", Nqn::as_str);
        let who = if host.is_some() { format!("the host {name}") } else { "a host".to_owned() };
        let peer = self.stream.peer_addr().map_or_else(|_| String::new(), |a| a.ip().to_string());
        log::warn!(event = "host-refused", host = name, peer = &*peer; "{who} at {peer} {why}");
    }

    fn free_place(&mut self, refused: bool) {
        if let Some(place) = self.place.take() {
            lock(&self.ctx.shared.known).free_place(place, refused, self.ctx.now);
        }
    }
}

impl<'c, T: Timing> Server<QueueClient<T>> for ConnectionServer<'c, '_, T> {
    type Disks = ServedDisks<'c, T>;

    #[inline(always)]
    fn io(&mut self) -> IoContext<'_, ServedDisks<'c, T>> {
        self.ctx.io(self.to_tell)
    }

    fn enter<R>(&mut self, f: impl FnOnce(&mut Target) -> (R, Option<QueueId>)) -> R {
        let shared = self.ctx.shared;
        let mut target = lock(&shared.target);
        let (result, queue) = f(&mut target);
        if let Some(queue) = queue {
            // The route is added before another thread can have mail for the connection.
            shared.add_route(queue, self.key);
        }
        shared.deliver(target.take_events());
        // A command may have set the first keep alive time.
        shared.note_keep_alive(&target);
        result
    }

    fn leave(&mut self, queue: QueueId) -> bool {
        self.ctx.shared.remove_route(queue, self.key)
    }

    fn activity(&mut self) -> Activity {
        self.ctx.shared.activity()
    }

    fn take_place(&mut self, host: Option<&Nqn>, is_admin: bool) -> Option<bool> {
        // Without a name the target refuses the host. A socket without a peer address is closed already.
        let place = match (host, self.stream.peer_addr()) {
            (Some(host), Ok(peer)) => lock(&self.ctx.shared.known).enter(
                host.as_str(),
                peer.ip(),
                is_admin,
                self.ctx.now,
            )?,
            _ => ClientPlace::Uncounted,
        };
        *self.place = Some(place);
        Some(place.is_kept())
    }

    fn connect_refused(&mut self, host: Option<&Nqn>, refused: &Completion) {
        use connect_offset::{HOSTNQN, IN_DATA, SUBNQN};
        const HOST_NAME: u64 = IN_DATA | HOSTNQN as u64;
        const SUBSYSTEM: u64 = IN_DATA | SUBNQN as u64;
        self.free_place(true);
        let why = match (refused.status & !status::DNR, refused.result) {
            (status::CONNECT_HOST, _) => "may not connect",
            (status::CONNECT_BUSY, _) => "has to wait: other hosts have all places",
            (status::CONNECT_PARAMETERS, HOST_NAME) if host.is_none() => {
                "gave a name that is no NQN"
            }
            (status::CONNECT_PARAMETERS, SUBSYSTEM) => "asked for a subsystem that is not here",
            _ => return,
        };
        self.log_refused(host, why);
    }

    fn ended(&mut self) {
        self.free_place(false);
    }

    fn acknowledged(&mut self, sent: u64) -> u64 {
        // All, if the kernel does not say.
        sent.saturating_sub(sys::not_acknowledged(self.stream).unwrap_or(0))
    }

    fn discard_output(&mut self, _: u64) {
        sys::discard_at_end(self.stream);
    }

    fn put_client(&mut self, client: QueueClient<T>) {
        client.close(self.ctx.epoll);
    }

    fn put_closing(&mut self, queue: io_queue::ClosingQueue<QueueClient<T>>) {
        let slot = self.ctx.shared.connections.stay();
        self.ctx.closing.push(ClosingQueue { queue, _slot: slot });
    }

    fn random(&mut self) -> Option<Random> {
        let mut bytes = [0; 132];
        getrandom::fill(&mut bytes).ok()?;
        Some(Random::new(&bytes))
    }

    fn compute(&mut self, job: Job) {
        self.ctx.shared.key_exchange.put(self.key, job);
    }

    fn cancel_computation(&mut self) {
        self.ctx.shared.key_exchange.cancel(self.key);
    }

    fn authentication_failed(&mut self, host: &Nqn) {
        self.ctx.shared.failed_authentications.fetch_add(1, Ordering::Relaxed);
        self.log_refused(Some(host), "did not prove that it knows its key");
    }
}
