//! A session for its whole life, without I/O: its login, the full feature phase, its end. A session has one connection
//! (MaxConnections is 1), so the end of one is the end of the other (ErrorRecoveryLevel 0).
//!
//! The owner has the socket. It makes the calls in this order:
//!
//! | call | when |
//! | --- | --- |
//! | [`Session::new`] | a connection was accepted |
//! | [`Session::receive_with`] | bytes may have arrived, and [`Session::wants_input`]; then [`Session::run`] |
//! | [`Session::run`] | after bytes, after events, and when a disk may have finished something |
//! | [`Session::output`], [`Session::sent`] | after each of the other calls, while [`Session::has_output`] |
//! | [`Session::reset`], [`Session::notify`] | for events of the target; then [`Session::run`] |
//! | [`Session::expire`] | about each second |
//! | [`Session::stop`] | at most once: the server ends; [`Session::is_answered`] says when it can close |
//! | [`Session::end`] | once: the connection is to be closed, or has been |
//! | [`Session::run`], until [`Session::is_drained`] | after the end: commands that disks have |
//! | [`Session::into_clients`] | last |
//!
//! | file | what it owns |
//! | --- | --- |
//! | `mod.rs` | the life of a session |
//! | `receive.rs` | from PDUs to commands |
//! | `command.rs` | commands that arrive: their data, R2T, their order |
//! | `requests.rs` | commands at the disks |
//! | `resend.rs` | commands that were sent before, and writes whose answers may be lost |
//! | `answer.rs` | data and statuses to the initiator |
//! | `manage.rs` | all other requests: task management, text, NOP, logout |
//! | `window.rs` | CmdSN and StatSN |
//! | `output.rs` | PDUs on their way |

mod answer;
mod command;
mod manage;
mod output;
mod receive;
mod requests;
mod resend;
mod window;

use super::chap::CHALLENGE_LEN;
use super::framer::{FrameLimits, Framer};
use super::header::{Header, NO_TAG, opcode};
use super::login::{Login, LoginFailure};
use super::negotiation::{Negotiation, Offer};
use super::target::{Member, Target};
use command::Command;
use manage::Pending;
use output::Output;
use receive::Incoming;
use requests::Used;
use resend::{Answered, client_key};
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use window::Window;
use zoneplug_buf::{Buffers, ReadAhead};
use zoneplug_core::{BioPool, Bios, DiskClient, Nanos, Op, Sector, Sense};
use zoneplug_recovery::{ClientKey, DiskRecovery, LateWait};

/// Bytes of a challenge, and its number.
pub type Random = [u8; CHALLENGE_LEN + 1];

/// The longest data that are expected with their commands. Most bytes of longer ones go to their buffers anyway.
const EXPECTED_DATA: u32 = 16 << 10;
/// A session reads no more while so many bytes wait to be sent.
const MAX_OUTPUT: usize = 8 << 20;
/// Places for commands of immediate delivery, which need no place of the window.
const IMMEDIATE: u16 = 8;
/// The data of a PDU before both sides have agreed on a length (RFC 7143), with room for a long list of keys.
const LOGIN_DATA: usize = 8192;

/// The bounds of a session.
#[derive(Debug, Clone, Copy)]
pub struct SessionConfig {
    /// The values that the target offers.
    pub offer: Offer,
    /// Most commands that have not ended.
    pub commands: u16,
    /// Most bytes of memory of commands. Further ones are answered with TASK SET FULL.
    pub memory: u32,
    /// Most bytes of data of a command.
    pub max_transfer: u32,
    /// How long a login may take.
    pub login_time: Nanos,
    /// How long an initiator may be silent before it is asked for a sign of life, and then until it is gone.
    pub silence: Nanos,
}

impl Default for SessionConfig {
    fn default() -> SessionConfig {
        SessionConfig {
            offer: Offer {
                digests: true,
                immediate_data: true,
                unsolicited_data: true,
                max_data: 256 << 10,
                max_burst: 1 << 20,
                first_burst: 256 << 10,
                max_outstanding_r2t: 1,
            },
            commands: 128,
            memory: 128 << 20,
            max_transfer: 1 << 20,
            login_time: Nanos(15_000_000_000),
            silence: Nanos(30_000_000_000),
        }
    }
}

/// The server as a session sees it.
pub trait Server<C> {
    /// Returns memory for the data of commands.
    fn buffers(&mut self) -> &mut Buffers;

    /// Opens a client of the disk with this number, for so many commands. Returns `None` if the disk has no room for
    /// another client.
    fn open(&mut self, disk: u32, entries: u32) -> Option<C>;

    /// Returns whether a read of the disk writes each byte of its buffer.
    fn fills_buffers(&self, disk: u32) -> bool;

    /// Returns the notes about commands of a disk whose answers may be lost.
    fn recovery(&self, disk: u32) -> &DiskRecovery;

    /// Returns the time.
    fn now(&self) -> Nanos;

    /// Returns whether acknowledged writes of this disk were lost and the initiator has not been told. The session then
    /// answers its flush, or FUA write, with an error; that counts as telling it.
    fn owes(&self, _disk: u32, _initiator: ClientKey) -> bool {
        false
    }

    /// Returns whether a command that changes the zone of `at` was given up, and the device may still carry it out: then
    /// how long a resent write waits for that at most. For a disk whose commands have no deadline, `None` is right.
    fn late_limit(&self, _disk: u32, _at: Sector) -> Option<Nanos> {
        None
    }

    /// Counts a command that the disk had carried out already when its initiator sent it again.
    fn count_replayed(&mut self, _disk: u32) {}

    /// Counts a command that has ended.
    fn count(&mut self, disk: u32, op: Op, bytes: u32, ok: bool);

    /// Lends the target. The events that the call has made are for other sessions, or for this one.
    fn target<R>(&mut self, f: impl FnOnce(&mut Target) -> R) -> R;

    /// Returns unpredictable bytes. `None`: the system has none, and no initiator can log in.
    fn random(&mut self) -> Option<Random>;

    /// Takes a place for the connection of this initiator, which has logged in. `is_session`: to use units, and not for
    /// discovery alone. `is_proven`: the initiator has proven who it is. False: there is none, and the login fails.
    fn take_place(&mut self, _initiator: &str, _is_session: bool, _is_proven: bool) -> bool {
        true
    }

    /// Called when a login has failed.
    fn refused(&mut self, _initiator: Option<&str>, _why: LoginFailure) {}
}

/// How far a session is.
#[derive(Debug)]
enum Phase {
    /// The initiator logs in.
    Login(Box<Login>),
    /// Discovery: only text requests.
    Discovery,
    /// The full feature phase.
    Full(Member),
    /// The connection closes when the output was sent.
    Closing(Option<Member>),
}

/// A session.
#[derive(Debug)]
pub struct Session<C> {
    config: SessionConfig,
    /// The driver's key of the connection.
    key: u64,
    at: SocketAddr,
    phase: Phase,
    initiator: Option<String>,
    /// The key of the initiator in the notes about lost answers.
    client_key: ClientKey,
    isid: [u8; 6],
    agreed: Negotiation,
    framer: Framer,
    incoming: Incoming,
    ahead: ReadAhead,
    output: Output,
    window: Window,
    commands: Vec<Option<Command>>,
    /// The tag of each command, apart from it, so that a search reads little; [`NO_TAG`] for none.
    tags: Vec<u32>,
    free: Vec<u16>,
    /// A number for the next transfer tag, so that data for an earlier command of a slot are recognised.
    transfer: u16,
    /// Commands that have not begun, in their order.
    order: VecDeque<u16>,
    /// Whether commands may begin: no earlier session of the initiator port has any at the disks.
    open: bool,
    /// Task management that waits for commands at the disks.
    pending: Vec<Pending>,
    /// The rest of an answer to a text request.
    text: Vec<u8>,
    used: Vec<Used<C>>,
    /// Writes whose answers the initiator has not acknowledged.
    answered: Answered,
    /// Resent writes that wait for commands which their disk has given up.
    late: Vec<LateWait>,
    pool: BioPool,
    done: Bios,
    /// Bytes of buffers of commands and of the output.
    memory: u32,
    /// The time of the last bytes, and whether the initiator was asked for a sign of life after them.
    heard: Nanos,
    asked: bool,
    stops: bool,
    /// The connection cannot go on.
    failed: bool,
    /// The connection has ended.
    ended: bool,
}

impl<C: DiskClient> Session<C> {
    /// Begins a session. `key`: the owner's number of the connection, which events have. `at`: its own address.
    pub fn new(config: SessionConfig, key: u64, at: SocketAddr, now: Nanos) -> Session<C> {
        let limits = FrameLimits { max_data: LOGIN_DATA, header_digest: false, data_digest: false };
        let slots = config.commands + IMMEDIATE;
        Session {
            config,
            key,
            at,
            phase: Phase::Login(Box::new(Login::new(config.offer))),
            initiator: None,
            client_key: client_key(""),
            isid: [0; 6],
            agreed: Negotiation::default(),
            framer: Framer::new(limits),
            incoming: Incoming::default(),
            ahead: ReadAhead::new(),
            output: Output::new(limits),
            window: Window::new(config.commands),
            commands: (0..slots).map(|_| None).collect(),
            tags: vec![NO_TAG; usize::from(slots).next_multiple_of(8)],
            free: (0..slots).rev().collect(),
            transfer: 0,
            order: VecDeque::new(),
            open: false,
            pending: Vec::new(),
            text: Vec::new(),
            used: Vec::new(),
            answered: Answered::new(usize::from(slots)),
            late: Vec::new(),
            pool: BioPool::new(usize::from(slots)),
            done: Bios::new(),
            memory: 0,
            heard: now,
            asked: false,
            stops: false,
            failed: false,
            ended: false,
        }
    }

    /// Returns the name of the initiator, once it has logged in.
    pub fn initiator(&self) -> Option<&str> {
        self.initiator.as_deref()
    }

    /// Returns whether the initiator has not logged in.
    pub fn is_stranger(&self) -> bool {
        matches!(self.phase, Phase::Login(_))
    }

    /// Returns the place at the target.
    fn member(&self) -> Option<Member> {
        match self.phase {
            Phase::Full(member) | Phase::Closing(Some(member)) => Some(member),
            _ => None,
        }
    }

    /// Returns whether the session takes bytes. Not while the initiator does not read its answers, nor at the end.
    pub fn wants_input(&self) -> bool {
        !self.stops && !self.is_closing() && self.output.bytes() < MAX_OUTPUT
    }

    fn is_closing(&self) -> bool {
        self.failed || self.ended || matches!(self.phase, Phase::Closing(_))
    }

    /// Receives bytes: `read` fills the slices from their front. Returns how many bytes it has read, and whether they
    /// have filled the slices.
    pub fn receive_with<E>(
        &mut self,
        buffers: &mut Buffers,
        now: Nanos,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>,
    ) -> Result<(usize, bool), E> {
        let (left, before) = (self.framer.data_left(), self.framer.before_header());
        let (direct, before): (&mut [u8], _) = match self.incoming.buffer(&mut self.commands) {
            Some(buf) => (&mut buf[..left], before),
            None => (&mut [], before.filter(|_| left == 0)),
        };
        let received = self.ahead.receive(direct, before, buffers, read)?;
        if received.direct > 0
            && let Some(buf) = self.incoming.buffer(&mut self.commands)
        {
            self.framer.read_past(&buf[..received.direct]);
            self.incoming.advance(received.direct);
        }
        if received.bytes > 0 {
            (self.heard, self.asked) = (now, false);
        }
        Ok((received.bytes, received.full))
    }

    /// Takes PDUs from the received bytes, begins commands, and takes results from the disks. Returns false if there
    /// was nothing to do.
    pub fn run<S: Server<C>>(&mut self, server: &mut S) -> bool {
        let mut progress = self.take_bytes(server);
        if self.waits_for_late() {
            progress |= self.start_late(server);
        }
        progress |= self.begin_commands(server);
        progress | self.run_disks(server)
    }

    /// Returns whether there are bytes to send.
    pub fn has_output(&self) -> bool {
        self.output.bytes() > 0
    }

    /// Fills `slices` with the next bytes to send. Returns how many it has filled.
    pub fn output<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.output.fill(slices)
    }

    /// Notes that the next `n` bytes were sent.
    pub fn sent(&mut self, n: usize, buffers: &mut Buffers) {
        self.memory -= self.output.sent(n, buffers);
    }

    /// Returns whether the connection is to be closed: it cannot go on, or its last answer was sent.
    pub fn is_finished(&self) -> bool {
        self.failed || matches!(self.phase, Phase::Closing(_)) && !self.has_output()
    }

    /// Returns whether a disk has commands of this session, or has yet to take them.
    pub fn is_busy(&self) -> bool {
        self.waits_for_late() || self.used.iter().any(Used::is_busy)
    }

    /// Returns whether writes wait for commands that a disk has given up. Nothing signals that the device has answered
    /// these, so the owner calls [`Session::run`] again after a short time.
    pub fn waits_for_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Returns the clients of disks.
    pub fn clients(&self) -> impl Iterator<Item = &C> {
        self.used.iter().map(|u| &u.client)
    }

    /// Returns the clients of disks that have commands of this session.
    pub fn busy_clients(&mut self) -> impl Iterator<Item = &mut C> {
        self.used.iter_mut().filter(|u| u.is_busy()).map(|u| &mut u.client)
    }

    /// Checks the time. A silent initiator is asked for a sign of life. Returns false if the connection is to be
    /// closed.
    pub fn expire(&mut self, now: Nanos) -> bool {
        let silence = Nanos(now.0.saturating_sub(self.heard.0));
        if self.is_stranger() {
            return silence < self.config.login_time;
        }
        if silence < self.config.silence || !matches!(self.phase, Phase::Full(_)) {
            return true;
        }
        if !self.asked {
            // A tag of the target, for which the initiator sends a NOP-Out.
            let ping = Header::new(opcode::NOP_IN).with_flags(0x80).with_word(16, NO_TAG);
            let ping = self.window.number_next(ping);
            self.output.push(ping, Vec::new());
            self.asked = true;
        }
        silence.0 < 2 * self.config.silence.0
    }

    /// Aborts the commands of a unit that another session has reset.
    pub fn reset<S: Server<C>>(&mut self, lun: u16, server: &mut S) {
        self.abort_unit(Some(lun), server);
    }

    /// Tells the initiator of an event of a unit.
    pub fn notify(&mut self, lun: u16, sense: Sense) {
        if matches!(self.phase, Phase::Full(_)) {
            self.push_event(lun, sense);
        }
    }

    /// Takes no more commands, because the server ends. Those that have not begun are not carried out: the initiator
    /// sends them to the next server.
    pub fn stop<S: Server<C>>(&mut self, server: &mut S) {
        self.stops = true;
        self.drop_waiting(server);
        self.drop_late(server);
    }

    /// Returns whether all commands are answered and the answers were sent.
    pub fn is_answered(&self) -> bool {
        !self.has_output() && self.commands.iter().all(Option::is_none)
    }

    /// Ends the session: its connection is closed. Then call [`Session::run`] until [`Session::is_drained`].
    pub fn end<S: Server<C>>(&mut self, server: &mut S) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.drop_waiting(server);
        self.drop_late(server);
        self.lose_all(server);
        self.memory -= self.output.clear(server.buffers());
        self.busy_clients().for_each(DiskClient::refuse_held);
        if let Some(member) = self.member() {
            server.target(|target| target.leave(member));
        }
    }

    /// Returns whether no disk has commands of the ended session.
    pub fn is_drained(&self) -> bool {
        self.ended && !self.is_busy()
    }

    /// Ends the use of the disks. Call it once the session is drained, or when the server ends.
    pub fn into_clients<S: Server<C>>(mut self, server: &mut S) -> Vec<C> {
        if let Some(member) = self.member() {
            server.target(|target| target.drained(member));
        }
        let lent: Vec<_> = self
            .commands
            .iter_mut()
            .flatten()
            .filter_map(|c| Some((c.disk()?, c.lent.take()?)))
            .collect();
        for (disk, lent) in lent {
            if let Some(used) = self.used.iter_mut().find(|u| u.disk == disk) {
                used.client.keep_lent(std::iter::once(lent));
            }
        }
        self.used.into_iter().map(|u| u.client).collect()
    }
}
