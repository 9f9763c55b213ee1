//! One connection as a state machine.
//!
//! The owner has a socket, or a model of one. It reads in [`Connection::receive_with`], takes
//! [`Connection::next_event`] until there is none, answers commands, writes [`Connection::output`], and then asks for
//! events again: commands may have waited for the memory of those whose answers were sent.
//!
//! * Data go from the socket to the memory of their command, and from there to the disk, without a copy. Only data
//!   that were read ahead with a header are copied ([`ReadAhead`]). Outgoing data leave from the memory that the disk
//!   filled.
//! * Commands come up in the order of their capsules. A command whose data must be fetched comes up when they have
//!   arrived.
//! * The resources of a peer are limited (K3): commands by the size of the queue, memory by [`Config::max_bytes`],
//!   time by [`Config::patience`].
//!
//! Functions that a server calls for each wait or each command are always inlined. A server contains its code twice,
//! with and without measurement, and the compiler by itself inlines only functions with one caller.

#[cfg(test)]
mod ahead_tests;
mod output;
mod receive;
mod slots;
#[cfg(test)]
mod tests;

use super::digest::DIGEST_LEN;
use super::pdu::{Digests, FatalError};
use crate::spec::fabrics::ConnectData;
use crate::spec::{Command, Completion, status};
use output::{Body, Output};
use receive::Rx;
use slots::{SlotState, Slots};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{IoSlice, IoSliceMut};
use zoneplug_buf::{AlignedBuf, Buffers, ReadAhead};
use zoneplug_core::Nanos;

/// Limits of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Most bytes of a command's data. A command with more fails.
    pub max_data: u32,
    /// MAXH2CDATA: most bytes of data of an H2CData PDU; a multiple of 4, and at least 4096.
    pub max_h2c_data: u32,
    /// Most bytes of data of commands in flight together. Further commands wait, in their order; a single command is
    /// always let through. Data in capsules do not count, because the size of the queue limits them.
    pub max_bytes: u64,
    /// Time in which a PDU that has begun, requested data, and output must make progress.
    pub patience: Nanos,
    /// Time in which ICReq must arrive.
    pub handshake: Nanos,
    /// Time in which the connection must then become a queue, and its host must authenticate if required. An
    /// initiator opens the connections of all queues before it sends the first Connect.
    pub connect: Nanos,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            max_data: 1 << 20,
            max_h2c_data: 1 << 20,
            max_bytes: 64 << 20,
            patience: Nanos(30_000_000_000),
            handshake: Nanos(10_000_000_000),
            connect: Nanos(60_000_000_000),
        }
    }
}

/// The queue that a connection has become by a Connect command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// Entries of the submission queue: SQSIZE + 1. At most this many commands may be in flight.
    pub entries: u32,
    /// Whether the host uses the head of the submission queue: bit 2 of CATTR is clear. If not, successful reads are
    /// answered without a response capsule.
    pub sq_flow_control: bool,
}

/// A command with its data.
#[derive(Debug)]
pub struct Received {
    /// The handle for [`Connection::answer`].
    pub slot: u16,
    /// The command.
    pub command: Command,
    /// Data from the host: the first [`Received::len`] bytes. `None` if it sends none.
    pub data: Option<AlignedBuf>,
    /// Bytes of data, in either direction.
    pub len: u32,
}

/// An event for the owner of a connection.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// The owner must carry out and answer this command.
    Command(Received),
    /// The connection takes no more commands and sends no more answers. Any remaining output is an error for the
    /// peer. The owner writes it, discards input for a moment, and closes.
    Ended(Ended),
}

/// The reason for which a connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The peer broke the protocol. A C2HTermReq tells it so.
    Wrong(FatalError),
    /// The peer has terminated the connection by an H2CTermReq.
    Terminated(FatalError),
    /// The peer was too slow.
    Slow(TimedOut),
}

/// The part of the exchange that took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimedOut {
    /// ICReq, Connect, or authentication.
    Handshake,
    /// The rest of a PDU.
    Pdu,
    /// Data that were requested.
    Data,
    /// Sending output.
    Output,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    queue: Queue,
    /// The end of the handshake, while the connection does not take all commands yet, and most bytes of a command's
    /// data until then.
    handshake_until: Option<Nanos>,
    handshake_data: u32,
    initialized: bool,
    digests: Digests,
    /// HPDA: the alignment of outgoing data, in bytes.
    align: u32,
    ahead: ReadAhead,
    rx: Rx,
    slots: Slots,
    /// Commands that are complete, or whose data must be fetched, in their order.
    ready: VecDeque<u16>,
    /// Bytes of data of commands in flight.
    bytes: u64,
    output: Output,
    /// Answered commands, modulo the entries of the queue.
    sq_head: u32,
    ended: Option<Ended>,
    ended_told: bool,
    /// The time that the last call with a time argument gave.
    now: Nanos,
    /// The time at which the incomplete PDU began.
    pdu_since: Option<Nanos>,
    /// The number of commands whose data are being fetched, and the time of the last data or output.
    fetching: u32,
    fetch_progress: Nanos,
}

impl Connection {
    /// Makes the state of a connection that was just accepted.
    pub fn new(config: Config, now: Nanos) -> Connection {
        Connection {
            config,
            queue: Queue { entries: 2, sq_flow_control: true },
            handshake_until: Some(now.plus(config.handshake)),
            handshake_data: ConnectData::LEN as u32,
            initialized: false,
            digests: Digests::default(),
            align: 4,
            ahead: ReadAhead::new(),
            rx: Rx::Header,
            slots: Slots::default(),
            ready: VecDeque::new(),
            bytes: 0,
            output: Output::default(),
            sq_head: 0,
            ended: None,
            ended_told: false,
            now,
            pdu_since: None,
            fetching: 0,
            fetch_progress: now,
        }
    }

    /// Returns the most bytes of a command's data. Before the peer is known, those of Connect.
    fn max_data(&self) -> u32 {
        if self.handshake_until.is_some() { self.handshake_data } else { self.config.max_data }
    }

    /// Limits the connection while the host of a queue authenticates: commands have at most `max_data` bytes of data,
    /// and the connection ends unless [`Connection::lift`] is called in time.
    pub fn restrict(&mut self, max_data: u32, now: Nanos) {
        self.handshake_until = Some(now.plus(self.config.connect));
        self.handshake_data = max_data;
    }

    /// Lifts the limits, because the host has authenticated.
    pub fn lift(&mut self) {
        self.handshake_until = None;
    }

    /// Makes the connection a queue. Called after a successful Connect and before its answer.
    pub fn set_queue(&mut self, queue: Queue) {
        self.queue = Queue { entries: queue.entries.max(2), ..queue };
        self.handshake_until = None;
        self.ahead.grow();
    }

    /// Returns the end of the last answer in the byte stream to the peer: the number of bytes up to there.
    pub fn output_end(&self) -> u64 {
        self.output.pushed()
    }

    /// Returns how many bytes of that stream were sent.
    pub fn bytes_sent(&self) -> u64 {
        self.output.bytes_sent()
    }

    /// Receives bytes through `read`, which fills the slices in order and returns the number of bytes. The slices are
    /// the rest of a command's data, expected data, and a buffer for the bytes behind them. Returns that number, and
    /// whether all slices were filled.
    ///
    /// # Errors
    ///
    /// Those of `read`.
    pub fn receive_with<E>(
        &mut self,
        buffers: &mut Buffers,
        now: Nanos,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>,
    ) -> Result<(usize, bool), E> {
        self.now = now;
        let (mut direct, mut before): (&mut [u8], _) = (&mut [], Some(0));
        match self.rx {
            Rx::Header => {}
            Rx::Data { slot, left, .. } => {
                direct = self.slots.rest_of_data(slot, left);
                before = Some(if self.digests.data { DIGEST_LEN as isize } else { 0 });
            }
            Rx::DataDigest { .. } => before = Some(DIGEST_LEN as isize),
            Rx::Discard { .. } => before = None,
        }
        let received = self.ahead.receive(direct, before, buffers, read)?;
        if let Rx::Data { slot, .. } = self.rx {
            self.took_data(slot, received.direct);
        }
        Ok((received.bytes, received.full))
    }

    /// Receives the beginning of `bytes`, at most `limit`, for callers that have them in memory. Returns how many it
    /// took.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        limit: usize,
        buffers: &mut Buffers,
        now: Nanos,
    ) -> usize {
        let bytes = &bytes[..bytes.len().min(limit)];
        let received = self.receive_with(buffers, now, |slices| {
            let mut n = 0;
            for part in slices {
                let m = part.len().min(bytes.len() - n);
                part[..m].copy_from_slice(&bytes[n..n + m]);
                n += m;
            }
            Ok::<_, Infallible>(n)
        });
        match received {
            Ok((n, _)) => n,
            Err(e) => match e {},
        }
    }

    /// Returns the next event. After `None`, more events need more bytes or a sent answer.
    pub fn next_event(&mut self, buffers: &mut Buffers) -> Option<ConnectionEvent> {
        loop {
            if let Some(ended) = self.ended {
                self.ahead.clear();
                self.rx = Rx::Header;
                return (!std::mem::replace(&mut self.ended_told, true))
                    .then_some(ConnectionEvent::Ended(ended));
            }
            if let Some(received) = self.admit(buffers) {
                return Some(ConnectionEvent::Command(received));
            }
            if !self.step(buffers) {
                let incomplete = !matches!(self.rx, Rx::Header) || !self.ahead.is_empty();
                self.pdu_since = incomplete.then(|| self.pdu_since.unwrap_or(self.now));
                if self.ended.is_none() && !self.can_admit() {
                    return None;
                }
            }
        }
    }

    /// Answers a command. `data` are the memory and the number of its bytes that go to the host, at most the length
    /// of the command's data; they are sent if the completion is a success. The connection fills in the completion's
    /// command identifier and queue head.
    pub fn answer(
        &mut self,
        slot: u16,
        mut completion: Completion,
        data: Option<(AlignedBuf, u32)>,
        buffers: &mut Buffers,
        now: Nanos,
    ) {
        self.now = now;
        let Some(command) = self.slots.answered(slot) else {
            debug_assert!(false, "slot {slot} has no command that could be answered");
            return;
        };
        if self.ended.is_some() {
            data.into_iter().for_each(|(buf, _)| buffers.put(buf));
            return;
        }
        completion.cid = command.cid();
        self.sq_head = (self.sq_head + 1) % self.queue.entries;
        // FFFFh: the head is not reported (Fabrics, *Submission Queue Flow Control*).
        completion.sq_head =
            if self.queue.sq_flow_control { self.sq_head as u16 } else { u16::MAX };
        let was_empty = self.output.is_empty();
        match data {
            Some((buf, len)) if len > command.sgl().length || len > buf.len() => {
                debug_assert!(false, "{len} bytes for {} of {command:?}", command.sgl().length);
                buffers.put(buf);
                completion.status = status::INTERNAL;
            }
            Some((buf, len)) if completion.status == 0 && len > 0 => {
                let alone = !self.queue.sq_flow_control && completion.result == 0;
                let pdu = output::data(&command, buf, len, alone, self.digests, self.align);
                self.output.push(pdu, alone.then_some(slot));
                if alone {
                    self.output.began(was_empty, now);
                    return;
                }
            }
            Some((buf, _)) => buffers.put(buf),
            None => {}
        }
        self.output.push(output::response(&completion, self.digests), Some(slot));
        self.output.began(was_empty, now);
    }

    /// Returns the output in `slices`, in order, and how many of them it has filled.
    #[inline(always)]
    pub fn output<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.output.fill(slices)
    }

    /// Returns whether there is output.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Notes that the first `n` bytes of [`Connection::output`] were sent.
    #[inline(always)]
    pub fn sent(&mut self, n: usize, buffers: &mut Buffers, now: Nanos) {
        self.now = now;
        let (slots, bytes) = (&mut self.slots, &mut self.bytes);
        self.output.sent(n, buffers, now, |slot| *bytes -= slots.free(slot));
        if n > 0 && self.fetching > 0 {
            // The R2T may have waited behind these bytes.
            self.fetch_progress = now;
        }
    }

    /// Returns the commands that have not come up because some of their data are on the way. Commands that wait for
    /// memory are left out, because the connection's patience does not limit their wait.
    pub fn awaited(&self) -> impl Iterator<Item = &Command> {
        self.slots.awaited()
    }

    /// Returns the number of commands in flight: received in whole or in part, and answer not completely sent.
    pub fn in_flight(&self) -> usize {
        self.slots.used()
    }

    /// Returns the time at which [`Connection::expire`] must be called unless something happens before.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.deadline().map(|(at, _)| at)
    }

    fn deadline(&self) -> Option<(Nanos, TimedOut)> {
        if self.ended.is_some() {
            return None;
        }
        let patience = |since: Nanos| since.plus(self.config.patience);
        [
            self.handshake_until.map(|at| (at, TimedOut::Handshake)),
            self.pdu_since.map(|at| (patience(at), TimedOut::Pdu)),
            (self.fetching > 0).then(|| (patience(self.fetch_progress), TimedOut::Data)),
            self.output.progress().map(|at| (patience(at), TimedOut::Output)),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|(at, _)| *at)
    }

    /// Ends the connection if a deadline is over. [`Connection::next_event`] then reports it.
    pub fn expire(&mut self, now: Nanos) {
        self.now = now;
        if let Some((at, what)) = self.deadline()
            && now >= at
        {
            self.ended = Some(Ended::Slow(what));
        }
    }

    /// Returns the command that comes up next, if any. Requests data that must be fetched.
    fn admit(&mut self, buffers: &mut Buffers) -> Option<Received> {
        while self.can_admit() {
            let slot = self.ready.pop_front()?;
            let entry = self.slots.get_mut(slot)?;
            match entry.state {
                SlotState::WaitsToFetch => {
                    entry.state = SlotState::Fetching;
                    entry.data = Some(buffers.take(entry.len));
                    entry.holds = entry.len;
                    self.bytes += u64::from(entry.len);
                    let pdu =
                        output::ready_to_transfer(&entry.command, slot, entry.len, self.digests);
                    let was_empty = self.output.is_empty();
                    self.output.push(pdu, None);
                    self.output.began(was_empty, self.now);
                    if self.fetching == 0 {
                        self.fetch_progress = self.now;
                    }
                    self.fetching += 1;
                }
                SlotState::WaitsToSend => {
                    entry.holds = entry.len;
                    self.bytes += u64::from(entry.len);
                    return self.slots.come_up(slot);
                }
                _ if entry.spoilt => self.fail(slot, status::TRANSIENT_TRANSPORT),
                _ => return self.slots.come_up(slot),
            }
        }
        None
    }

    /// Returns whether a command is ready and has the memory that it may have waited for. [`Connection::next_event`]
    /// then returns it or requests its data.
    pub fn can_admit(&self) -> bool {
        let Some(entry) = self.ready.front().and_then(|slot| self.slots.get(*slot)) else {
            return false;
        };
        !matches!(entry.state, SlotState::WaitsToFetch | SlotState::WaitsToSend)
            || self.bytes == 0
            || self.bytes + u64::from(entry.len) <= self.config.max_bytes
    }

    /// Ends the connection because of the PDU with the header `wrong`.
    fn fatal(&mut self, error: FatalError, wrong: &[u8]) {
        let pdu = Body::Bytes(error.encode(super::pdu::Kind::C2hTerm, wrong).into());
        let was_empty = self.output.is_empty();
        self.output.push(output::whole(pdu), None);
        self.output.began(was_empty, self.now);
        self.ended = Some(Ended::Wrong(error));
    }
}
