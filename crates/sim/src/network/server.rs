//! The target's side of the connections: the work of a server's threads, without threads and sockets.

use super::disks::{DiskOfQueue, QueueClient};
use super::{NetworkWorld, trace};
use crate::class::Class;
use std::convert::Infallible;
use std::io::IoSlice;
use std::net::SocketAddr;
use zoneplug_core::Nanos;
use zoneplug_nvme::io_queue::{IoContext, IoQueue};
use zoneplug_nvme::target::{Connected, Event as TargetEvent, QueueId, Reply};
use zoneplug_nvme::tcp::{Connection as Tcp, Ended, Event, Queue, Received};

/// The time that the end of a connection waits for its peer to read the reason.
const LINGER: Nanos = Nanos(50_000_000);

/// The role of a connection at the target.
#[derive(Debug)]
enum Role {
    New,
    Admin {
        queue: QueueId,
        /// Identifiers and slots of commands that are answered later.
        later: Vec<(u16, u16)>,
    },
    Io {
        queue: QueueId,
        io: Box<IoQueue<QueueClient>>,
    },
    Ended,
}

/// The target's side of a connection.
#[derive(Debug)]
pub(super) struct Served {
    tcp: Tcp,
    role: Role,
    closes: Option<Nanos>,
    tags: u16,
}

impl Served {
    pub(super) fn new(tcp: Tcp, tags: u16) -> Served {
        Served { tcp, role: Role::New, closes: None, tags }
    }

    /// Returns the times at which it has something to do.
    pub(super) fn moments(&self) -> impl Iterator<Item = Nanos> {
        self.closes.into_iter().chain(self.tcp.next_deadline())
    }

    fn queue(&self) -> Option<QueueId> {
        match &self.role {
            Role::Admin { queue, .. } | Role::Io { queue, .. } => Some(*queue),
            _ => None,
        }
    }
}

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 4420))
}

impl NetworkWorld {
    /// Runs the server's side of a connection. Returns false if nothing happened.
    pub(super) fn serve(&mut self, c: usize) -> bool {
        let Some(mut s) = self.connections[c].served.take() else { return false };
        let now = self.now;
        let connection = &mut self.connections[c];
        let cut = connection.server_sees.is_some_and(|at| at <= now);
        let over = connection.to_server.is_over() && connection.server_sees.is_none();
        if cut || over || s.closes.is_some_and(|at| at <= now) {
            self.server_closes(c, *s);
            return true;
        }
        let arrived = if self.leaves { 0 } else { connection.to_server.arrived(now) as u32 };
        let mut progress = false;
        if arrived > 0 {
            let n = if self.rng.one_in(3) { self.rng.range(1, arrived) } else { arrived };
            let link = &mut connection.to_server;
            let received = s.tcp.receive_with(&mut self.buffers, now, |slices| {
                let mut got = 0;
                for slice in slices {
                    let room = slice.len().min(n as usize - got);
                    got += link.take(now, &mut slice[..room]);
                }
                Ok::<_, Infallible>(got)
            });
            let got = received.map_or_else(|e| match e {}, |(got, _)| got);
            progress = got > 0;
        }
        s.tcp.expire(now);
        progress |= self.run(c, &mut s);
        progress |= self.send_output(c, &mut s);
        self.connections[c].served = Some(s);
        self.take_notes();
        self.deliver();
        progress
    }

    /// Takes commands, and completions of the disk. Returns false if there were none.
    fn run(&mut self, c: usize, s: &mut Served) -> bool {
        let mut progress = false;
        loop {
            let mut again = false;
            while let Some(event) = s.tcp.next_event(&mut self.buffers) {
                again = true;
                match event {
                    Event::Command(command) => self.command(c, s, command),
                    Event::Ended(why) => self.ended(c, s, why),
                }
            }
            let mut ctx = self.io_context(s.tags);
            if let Role::Io { io, .. } = &mut s.role {
                io.asked(&s.tcp, &ctx);
                again |= io.run(&mut s.tcp, &mut ctx);
            }
            progress |= again;
            if !again {
                return progress;
            }
        }
    }

    fn io_context(&mut self, tags: u16) -> IoContext<'_, DiskOfQueue> {
        let disks = DiskOfQueue { served: self.served.clone(), tags };
        IoContext { disks, buffers: &mut self.buffers, now: self.now }
    }

    /// Handles a connection that takes no more commands, for a reason that the network gives.
    fn ended(&mut self, c: usize, s: &mut Served, why: Ended) {
        trace!(self, "  the server ends connection {c}: {why:?}");
        let connection = &mut self.connections[c];
        let right = match why {
            Ended::Wrong(_) => connection.corrupt,
            Ended::Slow(_) => connection.troubled,
            Ended::Terminated(_) => false,
        };
        assert!(right, "the server ends connection {c}: {why:?}");
        (connection.troubled, connection.corrupt) = (true, true);
        if matches!(why, Ended::Slow(_)) {
            self.hit(Class::Slow);
        }
        self.forget(c, s);
        s.closes = Some(self.now.plus(LINGER));
    }

    fn command(&mut self, c: usize, s: &mut Served, received: Received) {
        if self.leaves {
            return received.data.into_iter().for_each(|buf| self.buffers.put(buf));
        }
        self.came_up(c, &received);
        match &mut s.role {
            Role::New => self.connect(c, s, received),
            Role::Admin { queue, later } => {
                let reply = self.target.admin(queue.controller, &received.command, self.now);
                received.data.into_iter().for_each(|buf| self.buffers.put(buf));
                match reply {
                    Reply::Later => later.push((received.command.cid(), received.slot)),
                    Reply::Now(completion, bytes) => {
                        assert!(bytes.is_empty(), "no command of these hosts asks for data");
                        s.tcp.answer(received.slot, completion, None, &mut self.buffers, self.now);
                    }
                }
            }
            Role::Io { io, .. } => {
                let mut ctx = self.io_context(s.tags);
                io.begin(received, &mut s.tcp, &mut ctx);
            }
            Role::Ended => received.data.into_iter().for_each(|buf| self.buffers.put(buf)),
        }
    }

    fn connect(&mut self, c: usize, s: &mut Served, received: Received) {
        let data =
            received.data.as_ref().map_or(&[][..], |b| &b.as_slice()[..received.len as usize]);
        let connected = self.target.connect(&received.command, data, local(), self.now);
        received.data.into_iter().for_each(|buf| self.buffers.put(buf));
        let completion = match connected {
            Ok(connected) => {
                let Connected { completion, queue, entries, sq_flow_control, .. } = connected;
                let host = connected.host.key();
                let entries = u32::from(entries);
                s.tcp.set_queue(Queue { entries, sq_flow_control });
                s.role = match connected.namespaces {
                    Some(all) => {
                        let mut io = Box::new(IoQueue::new(queue, host, entries));
                        io.show(all, &self.io_context(s.tags).disks);
                        Role::Io { queue, io }
                    }
                    None => Role::Admin { queue, later: Vec::new() },
                };
                completion
            }
            Err(completion) => {
                // A controller may end while its host connects the next queue.
                assert!(self.connections[c].qid > 0, "refused: {completion:?}");
                (s.role, s.closes) = (Role::Ended, Some(self.now.plus(LINGER)));
                self.connections[c].troubled = true;
                completion
            }
        };
        s.tcp.answer(received.slot, completion, None, &mut self.buffers, self.now);
    }

    /// Sends output while there is room. Returns false if nothing was sent.
    fn send_output(&mut self, c: usize, s: &mut Served) -> bool {
        let mut progress = false;
        while s.tcp.has_output() {
            let link = &mut self.connections[c].to_host;
            let room = link.room();
            if room == 0 {
                break;
            }
            let mut slices = [IoSlice::new(&[]); 5];
            let filled = s.tcp.output(&mut slices);
            let mut bytes = Vec::new();
            slices[..filled].iter().for_each(|s| bytes.extend_from_slice(s));
            let most = room.min(bytes.len());
            let n = if self.rng.one_in(4) { self.rng.range(1, most as u32) as usize } else { most };
            link.send(&mut self.rng, self.now, &bytes[..n]);
            s.tcp.sent(n, &mut self.buffers, self.now);
            self.run(c, s);
            progress = true;
        }
        progress
    }

    /// Ends a connection at the server: the target is told, and commands in flight go on.
    fn forget(&mut self, c: usize, s: &mut Served) {
        let queue = s.queue();
        match (queue, self.drop_queue(c, s)) {
            (Some(queue), true) => self.target.draining(queue),
            (Some(queue), false) => self.target.disconnected(queue),
            (None, _) => {}
        }
    }

    /// Returns how many bytes the host's side has acknowledged to the server.
    fn acknowledged(&self, c: usize) -> u64 {
        let connection = &self.connections[c];
        connection.acknowledged.unwrap_or(connection.to_host.arrived_ever(self.now))
    }

    /// Ends the queue of a connection. Returns whether commands of it are still being carried out.
    fn drop_queue(&mut self, c: usize, s: &mut Served) -> bool {
        let Role::Io { io, .. } = std::mem::replace(&mut s.role, Role::Ended) else {
            return false;
        };
        let held = self.served.disk.counters().window.writes;
        let acknowledged = self.acknowledged(c);
        if acknowledged < s.tcp.output_end() {
            // These answers are to be lost: the host may send their commands again.
            self.connections[c].acknowledged = Some(acknowledged);
        }
        let mut ctx = self.io_context(s.tags);
        let closing = io.end(acknowledged, drop, &mut ctx);
        let drains = closing.is_some();
        self.closing.extend(closing.map(|queue| (c, s.tags, queue)));
        // Held writes are refused at once.
        self.run_closing();
        if self.served.disk.counters().window.writes < held {
            self.hit(Class::HeldLost);
        }
        self.held_are_gone(c);
        drains
    }

    /// Begins the end of the server: it takes no more commands, and answers those that it has begun.
    pub(super) fn stop_serving(&mut self) {
        self.leaves = true;
        for s in self.connections.iter_mut().filter_map(|c| c.served.as_mut()) {
            if let Role::Io { io, .. } = &mut s.role {
                io.stop();
            }
        }
    }

    /// Returns whether all commands that a connection has begun were answered, and its host has the answers.
    pub(super) fn is_answered(&self, c: usize) -> bool {
        let Some(s) = self.connections[c].served.as_deref() else { return true };
        let busy = matches!(&s.role, Role::Io { io, .. } if io.is_busy());
        !busy && self.acknowledged(c) >= s.tcp.output_end()
    }

    /// Returns whether one of the last answers of a connection is to an append.
    pub(super) fn has_answered_append(&self, c: usize) -> bool {
        let role = self.connections[c].served.as_deref().map(|s| &s.role);
        matches!(role, Some(Role::Io { io, .. }) if io.has_answered_append())
    }

    /// Takes completions for queues whose connections have ended. Returns false if there are none.
    pub(super) fn run_closing(&mut self) -> bool {
        let mut progress = false;
        let mut closing = std::mem::take(&mut self.closing);
        for (_, tags, queue) in &mut closing {
            let mut ctx = self.io_context(*tags);
            progress |= queue.run(drop, &mut ctx);
        }
        self.closing = closing;
        self.take_notes();
        progress
    }

    /// Tells the target of the queues that have no more commands in flight. Returns false if there are none.
    pub(super) fn end_closing(&mut self) -> bool {
        let mut any = false;
        for (_, _, queue) in self.closing.extract_if(.., |(_, _, q)| q.is_empty()) {
            self.target.drained(queue.queue());
            any = true;
        }
        self.deliver();
        any
    }

    /// Closes the server's side.
    pub(super) fn server_closes(&mut self, c: usize, mut s: Served) {
        trace!(self, "  the server closes connection {c}");
        self.forget(c, &mut s);
        self.hang_up(c);
        self.deliver();
    }

    /// Ends the controllers of hosts that are silent. Returns false if there are none.
    pub(super) fn expire_hosts(&mut self) -> bool {
        let late = self.target.next_deadline().is_some_and(|at| at <= self.now);
        if late {
            self.target.expire(self.now);
            self.deliver();
        }
        late
    }

    /// Closes the server's end. If answers are to be lost, bytes on the way may not arrive.
    fn hang_up(&mut self, c: usize) {
        let connection = &mut self.connections[c];
        match connection.acknowledged {
            Some(_) => connection.to_host.cut(&mut self.rng),
            None => connection.to_host.end(),
        }
        connection.troubled = true;
    }

    /// Carries out the requests of the target.
    fn deliver(&mut self) {
        for event in self.target.take_events() {
            match event {
                TargetEvent::Complete(id, completion) => {
                    let (buffers, now) = (&mut self.buffers, self.now);
                    for s in self.connections.iter_mut().filter_map(|c| c.served.as_mut()) {
                        if let Role::Admin { queue, later } = &mut s.role
                            && queue.controller == id
                            && let Some(n) = later.iter().position(|l| l.0 == completion.cid)
                        {
                            let (_, slot) = later.remove(n);
                            s.tcp.answer(slot, completion, None, buffers, now);
                        }
                    }
                }
                TargetEvent::Namespaces(id, all) => {
                    let served = &self.served;
                    for s in self.connections.iter_mut().filter_map(|c| c.served.as_mut()) {
                        if let Role::Io { queue, io } = &mut s.role
                            && queue.controller == id
                        {
                            let disks = DiskOfQueue { served: served.clone(), tags: s.tags };
                            io.show(all.clone(), &disks);
                        }
                    }
                }
                TargetEvent::CloseIo(id) => self.close_queues(id, false),
                TargetEvent::Close(id) => self.close_queues(id, true),
            }
        }
    }

    /// Closes queues of a controller that the target has ended.
    fn close_queues(&mut self, id: u16, admin: bool) {
        for c in 0..self.connections.len() {
            let of = |s: &Served| s.queue().filter(|q| q.controller == id);
            let queue = self.connections[c].served.as_deref().and_then(of);
            if !queue.is_some_and(|q| admin || q.qid > 0) {
                continue;
            }
            let Some(mut s) = self.connections[c].served.take() else { continue };
            trace!(self, "  the target ends connection {c}");
            assert!(self.connections.iter().any(|c| c.troubled), "no host is silent");
            let queue = s.queue();
            if let (Some(queue), false) = (queue, self.drop_queue(c, &mut s)) {
                self.target.drained(queue);
            }
            self.hang_up(c);
        }
    }
}
