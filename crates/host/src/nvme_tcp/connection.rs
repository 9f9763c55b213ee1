//! A connection: its socket, its protocol state, and its role for the target.

mod authentication;

use super::context::WorkerContext;
use super::io_queue::{IoQueue, QueueClient};
use super::known::HostPlace;
use super::{Shared, sys};
use crate::served::timing::Timing;
use authentication::QueueAuthentication;
use std::io::{self, IoSlice, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zoneplug_core::Nanos;
use zoneplug_core::poison::lock;
use zoneplug_nvme::dhchap::MAX_MESSAGE;
use zoneplug_nvme::spec::fabrics::{Connect, ConnectData};
use zoneplug_nvme::spec::{Completion, status};
use zoneplug_nvme::target::{Connected, Namespaces, Nqn, QueueId, Reply, asks_for_activity};
use zoneplug_nvme::tcp::{Connection as Tcp, Event, Queue, Received};

/// The most pieces of one sendmsg(2).
const SLICES: usize = 64;
/// The most reads of a connection before the others have their turn.
const READS: usize = 4;
/// How long an ended connection waits for its peer to read the reason.
const LINGER: Nanos = Nanos(1_000_000_000);
/// The longest delay of an acknowledgement of TCP (RFC 1122, 4.2.3.2).
const ACKNOWLEDGEMENT: Nanos = Nanos(500_000_000);

/// The role of a connection for the target.
enum Role<T> {
    /// Unknown: the first command is Connect.
    New,
    Admin {
        queue: QueueId,
        /// Identifiers and slots of commands that are answered later.
        later: Vec<(u16, u16)>,
    },
    Io {
        queue: QueueId,
        io: Box<IoQueue<T>>,
    },
    /// The connection takes no more commands.
    Ended,
}

/// A connection.
pub(super) struct Connection<T> {
    stream: TcpStream,
    local: SocketAddr,
    tcp: Tcp,
    role: Role<T>,
    /// Takes the commands of authentication, and all commands until the host is admitted. `None`: the host need not
    /// authenticate.
    authentication: Option<Box<QueueAuthentication>>,
    /// Whether this is an I/O queue whose host has yet to authenticate for the first time. The target does not know
    /// it yet.
    pending: bool,
    /// Identifies the connection for its worker and in mail.
    key: u64,
    /// Its place among the hosts, once it is a queue.
    place: Option<HostPlace>,
    /// When to close the connection, if it has ended.
    closes: Option<Nanos>,
    /// Whether it accepts nothing more, because the server ends.
    stops: bool,
    /// Until when it waits for acknowledgements, if the target has ended the queue: see [`Connection::forget`].
    leaves: Option<Nanos>,
    /// Whether to end the connection once everything is sent.
    ends: bool,
    /// Whether epoll watches for room to write.
    watches_room: bool,
}

impl<T: Timing> Connection<T> {
    pub(super) fn new(
        stream: TcpStream,
        key: u64,
        shared: &Shared,
        now: Nanos,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // Answers are small and the host waits for them, so TCP must not delay them.
        stream.set_nodelay(true)?;
        let local = stream.local_addr()?;
        let tcp = Tcp::new(shared.tcp, now);
        let (role, closes, ends, watches_room) = (Role::New, None, false, false);
        let (authentication, pending, stops, leaves) = (None, false, false, None);
        Ok(Connection {
            stream,
            local,
            tcp,
            role,
            authentication,
            pending,
            key,
            place: None,
            closes,
            stops,
            leaves,
            ends,
            watches_room,
        })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Reads, executes and answers commands. False: close the connection.
    pub(super) fn turn(&mut self, ctx: &mut WorkerContext<'_, T>) -> bool {
        if self.stops {
            // Only room to write is watched. If it is not, the event means that the peer has gone.
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
    pub(super) fn turn_disks(&mut self, ctx: &mut WorkerContext<'_, T>) -> (bool, bool) {
        let progress = self.run(ctx);
        (progress, self.flush(ctx) && !self.has_left(ctx))
    }

    /// Reads from the socket. Returns the number of bytes, and whether they have filled the buffers.
    fn receive(&mut self, ctx: &mut WorkerContext<'_, T>) -> io::Result<(usize, bool)> {
        ctx.calls.receives.count();
        self.tcp.receive_with(ctx.buffers, ctx.now, |slices| self.stream.read_vectored(slices))
    }

    /// Takes commands from the received bytes, and results from the disks. False: there were none.
    fn run(&mut self, ctx: &mut WorkerContext<'_, T>) -> bool {
        let mut progress = false;
        loop {
            let mut again = false;
            while let Some(event) = self.tcp.next_event(ctx.buffers) {
                again = true;
                match event {
                    Event::Command(command) => self.command(command, ctx),
                    Event::Ended(why) => {
                        self.authentication_ended(why, ctx);
                        self.end(ctx);
                        self.closes = Some(ctx.now.plus(LINGER));
                    }
                }
            }
            if let Role::Io { io, .. } = &mut self.role {
                again |= io.run(&mut self.tcp, &mut ctx.io());
            }
            progress |= again;
            if !again {
                return progress;
            }
        }
    }

    fn command(&mut self, c: Received, ctx: &mut WorkerContext<'_, T>) {
        if self.leaves.is_some() || self.stops {
            return ctx.buffers_put(c.data);
        }
        if self.authentication.as_ref().is_some_and(|a| a.concerns(&c.command)) {
            return self.authenticate(c, ctx);
        }
        match &mut self.role {
            Role::Io { io, .. } => io.begin(c, &mut self.tcp, &mut ctx.io()),
            Role::Admin { .. } => self.admin(c, ctx),
            Role::New => self.connect(c, ctx),
            Role::Ended => ctx.buffers_put(c.data),
        }
    }

    /// Executes a command of an admin queue.
    #[cold]
    fn admin(&mut self, c: Received, ctx: &mut WorkerContext<'_, T>) {
        let Role::Admin { queue, later } = &mut self.role else { return ctx.buffers_put(c.data) };
        let id = queue.controller;
        let reply = {
            let activity = asks_for_activity(&c.command).then(|| ctx.shared.activity());
            let mut target = lock(&ctx.shared.target);
            if let Some(activity) = activity {
                target.set_activity(id, activity);
            }
            let reply = target.admin(id, &c.command, ctx.now);
            ctx.shared.deliver(target.take_events());
            // The command may have set the first keep alive time, or ended the last.
            ctx.shared.note_keep_alive(&target);
            reply
        };
        ctx.buffers_put(c.data);
        match reply {
            Reply::Later => later.push((c.command.cid(), c.slot)),
            Reply::Now(completion, bytes) => self.answer(c.slot, completion, &bytes, ctx),
        }
    }

    /// Answers a command that went to no disk.
    fn answer(
        &mut self,
        slot: u16,
        completion: Completion,
        bytes: &[u8],
        ctx: &mut WorkerContext<'_, T>,
    ) {
        let mut data = None;
        if !bytes.is_empty() {
            let mut buf = ctx.buffers.take(bytes.len() as u32);
            buf.write(0, bytes);
            data = Some((buf, bytes.len() as u32));
        }
        self.tcp.answer(slot, completion, data, ctx.buffers, ctx.now);
    }

    /// Executes the first command.
    #[cold]
    fn connect(&mut self, c: Received, ctx: &mut WorkerContext<'_, T>) {
        let data = c.data.as_ref().map_or(&[][..], |b| &b.as_slice()[..c.len as usize]);
        let names = data.first_chunk().map(ConnectData::decode);
        let host = names.and_then(|names| Nqn::decode(&names.hostnqn));
        let subsystem = names.and_then(|names| Nqn::decode(&names.subnqn));
        let is_admin = Connect::decode(&c.command).qid == 0;
        let connected = {
            let mut target = lock(&ctx.shared.target);
            let has_key = match (&subsystem, &host) {
                (Some(subsystem), Some(host)) => target.has_key(subsystem, host),
                _ => false,
            };
            let place = if has_key {
                Some(HostPlace::Uncounted)
            } else {
                self.place_of(host.as_ref(), is_admin, ctx)
            };
            let connected = match place {
                Some(place) => {
                    let kept = place.is_kept();
                    target.connect_as(&c.command, data, self.local, kept, ctx.now)
                }
                None => Err(Completion {
                    cid: c.command.cid(),
                    status: status::CONNECT_BUSY,
                    ..Completion::default()
                }),
            };
            match (place, &connected) {
                (Some(place), Err(_)) => lock(&ctx.shared.known).leave(place, true, ctx.now),
                (place, _) => self.place = place,
            }
            if let Ok(Connected { queue, authentication, .. }) = &connected {
                self.pending = queue.qid != 0 && authentication.is_some();
                if !self.pending {
                    // The route is added before another thread can have mail for the connection.
                    ctx.shared.add_route(*queue, ctx.worker, self.key);
                }
            }
            ctx.shared.deliver(target.take_events());
            ctx.shared.note_keep_alive(&target);
            connected
        };
        ctx.buffers_put(c.data);
        let completion = match connected {
            Ok(connected) => {
                let Connected { completion, queue, entries, sq_flow_control, .. } = connected;
                let host = connected.host.key();
                let entries = u32::from(entries);
                self.tcp.set_queue(Queue { entries, sq_flow_control });
                if connected.authentication.is_some() {
                    self.tcp.restrict(MAX_MESSAGE, ctx.now);
                }
                let nqn = connected.host.nqn;
                self.authentication =
                    connected.authentication.map(|a| QueueAuthentication::new(*a, nqn));
                self.role = match connected.namespaces {
                    Some(all) => {
                        let mut io = Box::new(IoQueue::new(queue, host, entries));
                        if !self.pending {
                            io.show(all, &ctx.io().disks);
                        }
                        Role::Io { queue, io }
                    }
                    None => Role::Admin { queue, later: Vec::new() },
                };
                completion
            }
            Err(completion) => {
                match completion.status & !status::DNR {
                    status::CONNECT_HOST => self.log_refused(host.as_ref(), "may not connect"),
                    status::CONNECT_BUSY => {
                        self.log_refused(host.as_ref(), "has to wait: other hosts have all places");
                    }
                    _ => {}
                }
                (self.role, self.ends) = (Role::Ended, true);
                completion
            }
        };
        self.tcp.answer(c.slot, completion, None, ctx.buffers, ctx.now);
    }

    /// The place of a queue of a host without a key. `None`: no place is free.
    fn place_of(
        &self,
        host: Option<&Nqn>,
        is_admin: bool,
        ctx: &WorkerContext<'_, T>,
    ) -> Option<HostPlace> {
        // Without a name the target refuses the host; without an address its socket is closed.
        let (Some(host), Ok(peer)) = (host, self.stream.peer_addr()) else {
            return Some(HostPlace::Uncounted);
        };
        lock(&ctx.shared.known).enter(host, peer.ip(), is_admin, ctx.now)
    }

    /// Logs that a host was refused.
    #[cold]
    fn log_refused(&self, host: Option<&Nqn>, why: &str) {
        let name = host.map_or("of an unknown name", Nqn::as_str);
        let peer = self.stream.peer_addr().map_or_else(|_| String::new(), |a| a.ip().to_string());
        log::warn!(event = "host-refused", host = name, peer = &*peer; "the host {name} at {peer} {why}");
    }

    /// Sends the answer to a command that the target answers later.
    pub(super) fn complete(&mut self, completion: Completion, ctx: &mut WorkerContext<'_, T>) {
        let Role::Admin { later, .. } = &mut self.role else { return };
        let Some(n) = later.iter().position(|(cid, _)| *cid == completion.cid) else { return };
        let (_, slot) = later.remove(n);
        self.tcp.answer(slot, completion, None, ctx.buffers, ctx.now);
    }

    /// Sets the namespaces that an I/O queue shows from now on.
    pub(super) fn show(&mut self, namespaces: Arc<Namespaces>, ctx: &mut WorkerContext<'_, T>) {
        if let Role::Io { io, .. } = &mut self.role {
            io.show(namespaces, &ctx.io().disks);
        }
    }

    /// Answers the query of another queue, after it has taken everything that has arrived by now. False: close the
    /// connection.
    #[cold]
    pub(super) fn asked(&mut self, ctx: &mut WorkerContext<'_, T>) -> bool {
        let lives = self.stops || self.turn(ctx);
        if let Role::Io { io, .. } = &mut self.role {
            io.asked(&self.tcp, &ctx.io());
        }
        lives && self.turn_disks(ctx).1
    }

    /// Sends output. False: close the connection.
    fn flush(&mut self, ctx: &mut WorkerContext<'_, T>) -> bool {
        while self.tcp.has_output() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = self.tcp.output(&mut slices);
            ctx.tell();
            ctx.calls.sends.count();
            match sys::send(&self.stream, &slices[..filled]) {
                Ok(n) => {
                    self.tcp.sent(n, ctx.buffers, ctx.now);
                    if !self.tcp.has_output() && self.tcp.can_admit() {
                        self.run(ctx);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return self.watch(true, ctx),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        if (self.ends || self.closes.is_some()) && self.stream.shutdown(Shutdown::Write).is_err() {
            return false;
        }
        if self.ends {
            self.ends = false;
            self.closes.get_or_insert(ctx.now.plus(LINGER));
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
        let read = if self.stops { 0 } else { sys::READ };
        let write = if self.watches_room { sys::WRITE } else { 0 };
        ctx.epoll.change(self.fd(), read | write, self.key).is_ok()
    }

    /// Accepts nothing more, because the server ends. Commands that have begun are answered, except writes that wait
    /// for others, which may not have been accepted. False: close the connection.
    pub(super) fn stop(&mut self, ctx: &mut WorkerContext<'_, T>) -> bool {
        self.stops = true;
        if let Role::Io { io, .. } = &mut self.role {
            io.stop();
        }
        self.set_events(ctx)
    }

    /// Whether the host has not connected yet, or has yet to prove that it knows its key.
    pub(super) fn is_stranger(&self) -> bool {
        let is_admitted = self.authentication.as_ref().is_none_or(|a| a.is_admitted());
        matches!(self.role, Role::New | Role::Ended) || !is_admitted
    }

    /// Whether all commands that have begun were answered, and the host's TCP has acknowledged the answers.
    pub(super) fn is_answered(&mut self) -> bool {
        let acknowledged = self.acknowledged();
        self.busy_queue().is_none() && acknowledged >= self.tcp.output_end()
    }

    /// Whether one of the last answers is to an append.
    pub(super) fn has_answered_append(&self) -> bool {
        matches!(&self.role, Role::Io { io, .. } if io.has_answered_append())
    }

    /// Checks the deadlines. False: close the connection.
    pub(super) fn expire(&mut self, ctx: &mut WorkerContext<'_, T>) -> bool {
        if self.closes.is_some_and(|at| ctx.now >= at) {
            return false;
        }
        self.tcp.expire(ctx.now);
        self.expire_authentication(ctx);
        self.turn_disks(ctx).1
    }

    /// The I/O queue, if it has work at a disk.
    pub(super) fn busy_queue(&mut self) -> Option<&mut IoQueue<T>> {
        match &mut self.role {
            Role::Io { io, .. } if io.is_busy() => Some(io),
            _ => None,
        }
    }

    /// Takes no more commands: the target has ended the queue. False: close the connection.
    ///
    /// True: the host may have the answer of an append, and acknowledge it a little later. If the append counted as
    /// lost, a new append with the same data would get its sector. So the connection stays until the acknowledgement
    /// has come, until the host has closed it too, or until an acknowledgement would be too late.
    pub(super) fn forget(&mut self, ctx: &mut WorkerContext<'_, T>) -> bool {
        let acknowledged = self.acknowledged();
        if let Role::Io { io, .. } = &mut self.role
            && !self.pending
            && io.leave(acknowledged, &ctx.io())
        {
            self.leaves = Some(ctx.now.plus(ACKNOWLEDGEMENT));
            return true;
        }
        if let Some((queue, false)) = self.close_queue(ctx) {
            ctx.shared.drained([queue].into_iter());
        }
        false
    }

    /// Whether the target has ended the queue, and the connection need not wait any longer.
    fn has_left(&self, ctx: &WorkerContext<'_, T>) -> bool {
        let Some(until) = self.leaves else { return false };
        let Role::Io { io, .. } = &self.role else { return true };
        ctx.now >= until || !io.waits_for_acknowledgement(self.acknowledged())
    }

    /// The bytes that the host's TCP has acknowledged; all, if the kernel does not say.
    fn acknowledged(&self) -> u64 {
        let left = sys::not_acknowledged(&self.stream).unwrap_or(0);
        self.tcp.bytes_sent().saturating_sub(left)
    }

    /// Takes no more commands, and informs the target.
    #[cold]
    pub(super) fn end(&mut self, ctx: &mut WorkerContext<'_, T>) {
        if let Some(place) = self.place.take() {
            lock(&ctx.shared.known).leave(place, false, ctx.now);
        }
        self.end_authentication(ctx);
        let Some((queue, drains)) = self.close_queue(ctx) else { return };
        if !ctx.shared.remove_route(queue, self.key) {
            // The target has ended the queue before.
            if !drains {
                ctx.shared.drained([queue].into_iter());
            }
            return;
        }
        let mut target = lock(&ctx.shared.target);
        match drains {
            true => target.draining(queue),
            false => target.disconnected(queue),
        }
        ctx.shared.deliver(target.take_events());
    }

    /// Ends the role. Returns its queue, and whether commands of the queue are still being carried out.
    fn close_queue(&mut self, ctx: &mut WorkerContext<'_, T>) -> Option<(QueueId, bool)> {
        match std::mem::replace(&mut self.role, Role::Ended) {
            Role::New | Role::Ended => None,
            // The queue has used no disk.
            Role::Io { .. } if self.pending => None,
            Role::Admin { queue, .. } => Some((queue, false)),
            Role::Io { queue, io } => {
                let acknowledged = self.acknowledged();
                if acknowledged < self.tcp.output_end() {
                    // These answers must not arrive later: the host may send their commands again.
                    sys::discard_at_end(&self.stream);
                }
                let epoll = ctx.epoll;
                let idle = |client: QueueClient<T>| client.close(epoll);
                let closing = io.end(acknowledged, idle, &mut ctx.io());
                let drains = closing.is_some();
                if drains {
                    // The queue keeps its memory, so it counts as a connection until its commands have ended.
                    ctx.shared.connections.fetch_add(1, Ordering::Relaxed);
                }
                ctx.closing.extend(closing);
                Some((queue, drains))
            }
        }
    }
}
