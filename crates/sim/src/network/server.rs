//! The target's side of the connections: what a server does with its associations, without threads and sockets.

use super::commands::{self, HostCommand, Purpose};
use super::disks::{DiskOfQueue, QueueClient};
use super::host::Connection;
use super::served::{Association, Served, Side};
use super::{NetworkWorld, keys, trace};
use crate::class::Class;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::IoSlice;
use std::ops::RangeInclusive;
use zoneplug_buf::Buffers;
use zoneplug_core::{Nanos, Random};
use zoneplug_nvme::association::Server;
use zoneplug_nvme::dhchap;
use zoneplug_nvme::initiator::Data;
use zoneplug_nvme::io_queue::{ClosingQueue, IoContext};
use zoneplug_nvme::spec::Completion;
use zoneplug_nvme::target::auth::Job;
use zoneplug_nvme::target::{Activity, Nqn, QueueId, Target, TargetEvent};
use zoneplug_nvme::tcp::{Ended, Received};

/// The most time for a value of Diffie-Hellman.
const COMPUTING: u32 = 50_000_000;

/// The server as one association sees it.
struct ServerSide<'a> {
    side: &'a mut Side,
    c: usize,
    connection: &'a mut Connection,
    disks: DiskOfQueue,
    buffers: &'a mut Buffers,
    now: Nanos,
    target: &'a mut Target,
    closing: &'a mut Vec<(usize, u16, ClosingQueue<QueueClient>)>,
    commands: &'a mut BTreeMap<u64, HostCommand>,
    rng: &'a mut Random,
}

impl Server<QueueClient> for ServerSide<'_> {
    type Disks = DiskOfQueue;

    fn io(&mut self) -> IoContext<'_, DiskOfQueue> {
        IoContext { disks: self.disks.clone(), buffers: self.buffers, now: self.now }
    }

    fn enter<R>(&mut self, f: impl FnOnce(&mut Target) -> (R, Option<QueueId>)) -> R {
        // The world takes the target's events after the call.
        let (result, queue) = f(self.target);
        self.side.carries = queue.or(self.side.carries);
        result
    }

    fn leave(&mut self, queue: QueueId) -> bool {
        self.side.carries.take() == Some(queue)
    }

    fn activity(&mut self) -> Activity {
        Activity::default()
    }

    fn take_place(&mut self, _: Option<&Nqn>, _: bool) -> Option<bool> {
        Some(true)
    }

    fn connect_refused(&mut self, _: Option<&Nqn>, refused: &Completion) {
        // A controller may end while its host connects the next queue.
        assert!(self.connection.qid > 0, "refused: {refused:?}");
        self.connection.troubled = true;
    }

    fn ended(&mut self) {
        self.side.held = self.disks.served.disk.counters().window.writes;
    }

    fn acknowledged(&mut self, _: u64) -> u64 {
        let connection = &self.connection;
        connection.acknowledged.unwrap_or(connection.to_host.arrived_ever(self.now))
    }

    fn discard_output(&mut self, acknowledged: u64) {
        self.connection.acknowledged = Some(acknowledged);
    }

    fn put_client(&mut self, _: QueueClient) {}

    fn put_closing(&mut self, queue: ClosingQueue<QueueClient>) {
        self.closing.push((self.c, self.side.tags, queue));
    }

    fn random(&mut self) -> Option<dhchap::Random> {
        Some(keys::random(self.rng))
    }

    fn compute(&mut self, job: Job) {
        let time = Nanos(u64::from(self.rng.below(COMPUTING)));
        self.side.computing = Some((self.now.plus(time), job));
    }

    fn cancel_computation(&mut self) {
        self.side.computing = None;
    }

    fn authentication_failed(&mut self, _: &Nqn) {}

    fn received(&mut self, received: &Received) {
        commands::came_up(&self.connection.ids, self.commands, received);
    }

    fn connection_ended(&mut self, why: Ended) {
        self.side.ended = Some(why);
    }
}

impl NetworkWorld {
    /// Returns the server of an association for a call.
    fn server<'a>(&'a mut self, c: usize, side: &'a mut Side) -> ServerSide<'a> {
        ServerSide {
            c,
            connection: &mut self.connections[c],
            disks: DiskOfQueue { served: self.served.clone(), tags: side.tags },
            buffers: &mut self.buffers,
            now: self.now,
            target: &mut self.target,
            closing: &mut self.closing,
            commands: &mut self.commands,
            rng: &mut self.rng,
            side,
        }
    }

    /// Calls an association. Then does what follows from the end of its queue, if the call ends that.
    fn call<R>(
        &mut self,
        c: usize,
        served: &mut Served,
        f: impl FnOnce(&mut Association, &mut ServerSide<'_>) -> R,
    ) -> R {
        let before = served.association.queue();
        let result = f(&mut served.association, &mut self.server(c, &mut served.side));
        if let Some(why) = served.side.ended.take() {
            self.ended(c, why);
        }
        if before.is_some() && served.association.queue().is_none() {
            self.queue_ended(c, served.side.held);
        }
        result
    }

    /// Runs the server's side of a connection. Returns false if nothing happened.
    pub(super) fn serve(&mut self, c: usize) -> bool {
        let Some(mut s) = self.connections[c].served.take() else { return false };
        let now = self.now;
        let connection = &mut self.connections[c];
        let cut = connection.server_sees.is_some_and(|at| at <= now);
        let over = connection.to_server.is_over() && connection.server_sees.is_none();
        if cut || over {
            self.server_closes(c, *s);
            self.deliver();
            return true;
        }
        let mut progress = self.receive(c, &mut s);
        if let Some((_, job)) = s.side.computing.take_if(|(at, _)| *at <= now) {
            self.call(c, &mut s, |a, server| a.computed(job.run(), server));
            self.hit(Class::KeyExchange);
            progress = true;
        }
        let lives = self.call(c, &mut s, |a, server| a.expire(server));
        progress |= self.call(c, &mut s, |a, server| a.run(server));
        progress |= self.call(c, &mut s, |a, server| a.asked(server));
        progress |= self.send_output(c, &mut s);
        if lives && !self.call(c, &mut s, |a, server| a.has_left(server)) {
            self.connections[c].served = Some(s);
        } else {
            self.server_closes(c, *s);
            progress = true;
        }
        self.take_notes();
        self.deliver();
        progress
    }

    /// Receives bytes that have arrived. Returns false if there are none.
    fn receive(&mut self, c: usize, s: &mut Served) -> bool {
        let connection = &mut self.connections[c];
        let arrived = connection.to_server.arrived(self.now) as u32;
        if s.association.has_stopped() || arrived == 0 {
            return false;
        }
        let n = if self.rng.one_in(3) { self.rng.range(1, arrived) } else { arrived };
        let (link, now) = (&mut connection.to_server, self.now);
        let received = s.association.receive_with(&mut self.buffers, now, |slices| {
            let mut got = 0;
            for slice in slices {
                let room = slice.len().min(n as usize - got);
                got += link.take(now, &mut slice[..room]);
            }
            Ok::<_, Infallible>(got)
        });
        let got = received.map_or_else(|e| match e {}, |(got, _)| got);
        got > 0
    }

    /// Handles a connection that takes no more commands, for a reason that the network gives.
    fn ended(&mut self, c: usize, why: Ended) {
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
    }

    /// Sends output while there is room, and then ends the stream if the association has ended. Returns false if
    /// nothing was sent.
    fn send_output(&mut self, c: usize, s: &mut Served) -> bool {
        let mut progress = false;
        while s.association.has_output() {
            let link = &mut self.connections[c].to_host;
            let room = link.room();
            if room == 0 {
                return progress;
            }
            let mut slices = [IoSlice::new(&[]); 5];
            let filled = s.association.output(&mut slices);
            let mut bytes = Vec::new();
            slices[..filled].iter().for_each(|s| bytes.extend_from_slice(s));
            let most = room.min(bytes.len());
            let n = if self.rng.one_in(4) { self.rng.range(1, most as u32) as usize } else { most };
            link.send(&mut self.rng, self.now, &bytes[..n]);
            self.call(c, s, |a, server| a.sent(n, server));
            progress = true;
        }
        if s.association.all_sent(self.now) {
            self.connections[c].to_host.end();
        }
        progress
    }

    /// Handles the end of a connection's queue. The disk had `held` held writes before it.
    fn queue_ended(&mut self, c: usize, held: u64) {
        let own = |s: &&HostCommand| s.connection == c;
        if self.commands.values().filter(own).any(|s| matches!(s.what, Purpose::Append { .. })) {
            self.hit(Class::AppendOpen);
        }
        let is_fetched = |s: &HostCommand| !s.came_up && matches!(s.data, Data::Out(_));
        if self.commands.values().filter(own).any(is_fetched) {
            self.hit(Class::DataOpen);
        }
        // Held writes are refused at once.
        self.run_closing();
        if self.served.disk.counters().window.writes < held {
            self.hit(Class::HeldLost);
        }
        self.held_are_gone(c);
    }

    /// Begins the end of the server: it takes no more commands, and answers those that it has begun.
    pub(super) fn stop_serving(&mut self) {
        let all = self.connections.iter_mut().filter_map(|c| c.served.as_mut());
        all.for_each(|s| s.association.stop());
    }

    /// Returns whether all commands that a connection has begun were answered, and its host has the answers.
    pub(super) fn is_answered(&mut self, c: usize) -> bool {
        let Some(mut s) = self.connections[c].served.take() else { return true };
        let answered = self.call(c, &mut s, |a, server| a.is_answered(server));
        self.connections[c].served = Some(s);
        answered
    }

    /// Returns whether the target gives a connection's queue events.
    pub(super) fn has_queue(&self, c: usize) -> bool {
        self.connections[c].served.as_ref().is_some_and(|s| s.side.carries.is_some())
    }

    /// Returns whether one of the last answers of a connection is to an append.
    pub(super) fn has_answered_append(&self, c: usize) -> bool {
        self.connections[c].served.as_ref().is_some_and(|s| s.association.has_answered_append())
    }

    /// Takes completions for queues whose connections have ended. Returns false if there are none.
    pub(super) fn run_closing(&mut self) -> bool {
        let mut progress = false;
        let mut closing = std::mem::take(&mut self.closing);
        for (_, tags, queue) in &mut closing {
            let disks = DiskOfQueue { served: self.served.clone(), tags: *tags };
            let mut ctx = IoContext { disks, buffers: &mut self.buffers, now: self.now };
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

    /// Closes the server's side. If answers are to be lost, bytes on the way may not arrive.
    pub(super) fn server_closes(&mut self, c: usize, s: Served) {
        trace!(self, "  the server closes connection {c}");
        let Served { association, mut side } = s;
        let had_queue = association.queue().is_some();
        association.end(&mut self.server(c, &mut side));
        if had_queue {
            self.queue_ended(c, side.held);
        }
        let connection = &mut self.connections[c];
        match connection.acknowledged {
            Some(_) => connection.to_host.cut(&mut self.rng),
            None => connection.to_host.end(),
        }
        connection.troubled = true;
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

    /// Carries out the requests of the target.
    pub(super) fn deliver(&mut self) {
        loop {
            let events = self.target.take_events();
            if events.is_empty() {
                return;
            }
            for event in events {
                match event {
                    TargetEvent::Complete(id, completion) => {
                        for c in self.carrying(id, 0..=0) {
                            self.pass_on(c, |a, server| a.complete(completion, server));
                        }
                    }
                    TargetEvent::Namespaces(id, all) => {
                        for c in self.carrying(id, 1..=u16::MAX) {
                            self.pass_on(c, |a, server| a.show(all.clone(), server));
                        }
                    }
                    TargetEvent::CloseIo(id) => self.close_queues(id, 1..=u16::MAX),
                    TargetEvent::Close(id) => self.close_queues(id, 0..=u16::MAX),
                }
            }
        }
    }

    /// Returns the connections that carry queues of a controller.
    fn carrying(&self, id: u16, qids: RangeInclusive<u16>) -> Vec<usize> {
        let carries = |c: &usize| {
            let queue = self.connections[*c].served.as_ref().and_then(|s| s.side.carries);
            queue.is_some_and(|q| q.controller == id && qids.contains(&q.qid))
        };
        (0..self.connections.len()).filter(carries).collect()
    }

    /// Calls the association of a connection.
    fn pass_on(&mut self, c: usize, f: impl FnOnce(&mut Association, &mut ServerSide<'_>)) {
        if let Some(mut s) = self.connections[c].served.take() {
            self.call(c, &mut s, f);
            self.connections[c].served = Some(s);
        }
    }

    /// Closes queues of a controller that the target has ended, or lets them wait for acknowledgements.
    fn close_queues(&mut self, id: u16, qids: RangeInclusive<u16>) {
        for c in self.carrying(id, qids) {
            let Some(mut s) = self.connections[c].served.take() else { continue };
            trace!(self, "  the target ends connection {c}");
            assert!(self.connections.iter().any(|c| c.troubled), "no host is silent");
            s.side.carries = None;
            if self.call(c, &mut s, |a, server| a.ended_by_target(server)) {
                self.hit(Class::Awaited);
                self.connections[c].served = Some(s);
                self.connections[c].troubled = true;
            } else {
                self.server_closes(c, *s);
            }
        }
    }
}
