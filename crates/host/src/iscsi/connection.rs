//! A connection: its socket, and the session that the socket carries. A connection that was closed stays until its
//! commands have come back from the disks.

use super::Shared;
use crate::network::known::ClientPlace;
use crate::network::listeners::ConnectionSlot;
use crate::network::queue_client::QueueClient;
use crate::network::sys;
use crate::recovery::lost_writes::late_limit;
use crate::served::timing::Timing;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use zoneplug_buf::Buffers;
use zoneplug_core::poison::lock;
use zoneplug_core::{Nanos, Op, Sector};
use zoneplug_recovery::{ClientKey, DiskRecovery};
use zoneplug_scsi::iscsi::{LoginFailure, Random, Server, Session, Target};

/// The most pieces of one sendmsg(2).
const SLICES: usize = 64;
/// The most reads of a connection before the others have their turn.
const READS: usize = 4;

/// The parts of a worker that it lends a connection for a call.
pub(super) struct Context<'a> {
    pub(super) shared: &'a Shared,
    pub(super) worker: usize,
    pub(super) epoll: &'a sys::Epoll,
    pub(super) buffers: &'a mut Buffers,
    pub(super) now: Nanos,
}

/// A connection.
pub(super) struct Connection<T> {
    /// `None`: it was closed.
    stream: Option<TcpStream>,
    session: Session<QueueClient<T>>,
    key: u64,
    /// The events that epoll watches for.
    watches: u32,
    /// The sending direction was shut down, at the end of the server.
    shut: bool,
    /// Its place among the initiators, once it has logged in.
    place: Option<ClientPlace>,
    _slot: ConnectionSlot,
}

/// The server as a session sees it.
struct SessionServer<'c, 'a> {
    ctx: &'c mut Context<'a>,
    stream: Option<&'c TcpStream>,
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
        // Answers are small and the initiator waits for them, so TCP must not delay them.
        stream.set_nodelay(true)?;
        let session = Session::new(shared.session, key, stream.local_addr()?, now);
        Ok(Connection {
            stream: Some(stream),
            session,
            key,
            watches: sys::READ,
            shut: false,
            place: None,
            _slot: slot,
        })
    }

    /// Returns the session, and its server for a call.
    fn parts<'c, 'a>(
        &'c mut self,
        ctx: &'c mut Context<'a>,
    ) -> (&'c mut Session<QueueClient<T>>, SessionServer<'c, 'a>) {
        let Connection { session, stream, place, .. } = self;
        (session, SessionServer { ctx, stream: stream.as_ref(), place })
    }

    pub(super) fn fd(&self) -> Option<RawFd> {
        self.stream.as_ref().map(AsRawFd::as_raw_fd)
    }

    pub(super) fn session(&mut self) -> &mut Session<QueueClient<T>> {
        &mut self.session
    }

    /// Reads, executes and answers commands. Returns false if the connection is to be closed.
    pub(super) fn turn(&mut self, ctx: &mut Context<'_>) -> bool {
        for _ in 0..READS {
            let Some(stream) = &mut self.stream else { return true };
            let read = if self.shut {
                // The initiator reads its last answers. What it sends is for the next server.
                stream.read(&mut [0; 4096]).map(|n| (n, true))
            } else if self.session.wants_input() {
                let read = |slices: &mut [IoSliceMut<'_>]| stream.read_vectored(slices);
                self.session.receive_with(ctx.buffers, ctx.now, read)
            } else {
                break;
            };
            match read {
                Ok((0, _)) => return false,
                Ok((_, full)) => {
                    self.run(ctx);
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
    pub(super) fn turn_without_reading(&mut self, ctx: &mut Context<'_>) -> (bool, bool) {
        let progress = self.run(ctx);
        (progress, self.flush(ctx))
    }

    fn run(&mut self, ctx: &mut Context<'_>) -> bool {
        let (session, mut server) = self.parts(ctx);
        session.run(&mut server)
    }

    /// Sends output. Returns false if the connection is to be closed.
    fn flush(&mut self, ctx: &mut Context<'_>) -> bool {
        let Some(stream) = &self.stream else { return true };
        let mut blocked = false;
        while self.session.has_output() && !blocked {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = self.session.output(&mut slices);
            match sys::send(stream, &slices[..filled]) {
                Ok(n) => self.session.sent(n, ctx.buffers),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => blocked = true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        let read = self.shut || self.session.wants_input();
        let events = if read { sys::READ } else { 0 } | if blocked { sys::WRITE } else { 0 };
        if events != self.watches {
            self.watches = events;
            if ctx.epoll.change(stream.as_raw_fd(), events, self.key).is_err() {
                return false;
            }
        }
        !self.session.is_finished()
    }

    /// Takes no more commands, because the server ends.
    pub(super) fn stop(&mut self, ctx: &mut Context<'_>) -> bool {
        let (session, mut server) = self.parts(ctx);
        session.stop(&mut server);
        self.flush(ctx)
    }

    /// Continues the end of the server: the sending direction is shut down when all answers were sent, and the connection
    /// is closed when the initiator has closed its side.
    pub(super) fn continue_end(&mut self) -> bool {
        if !self.shut && self.session.is_answered() {
            self.shut = true;
            return self.stream.as_ref().is_some_and(|s| s.shutdown(Shutdown::Write).is_ok());
        }
        true
    }

    /// Aborts the commands of a unit that was reset.
    pub(super) fn reset(&mut self, lun: u16, ctx: &mut Context<'_>) {
        let (session, mut server) = self.parts(ctx);
        session.reset(lun, &mut server);
    }

    /// Closes the connection. Its commands at the disks go on.
    #[cold]
    pub(super) fn close(&mut self, ctx: &mut Context<'_>) {
        let (session, mut server) = self.parts(ctx);
        session.end(&mut server);
        self.stream = None;
    }

    /// Ends the session for good.
    #[cold]
    pub(super) fn end(self, ctx: &mut Context<'_>) {
        let Connection { session, mut place, .. } = self;
        let (epoll, shared, now) = (ctx.epoll, ctx.shared, ctx.now);
        let clients =
            session.into_clients(&mut SessionServer { ctx, stream: None, place: &mut place });
        clients.into_iter().for_each(|client| client.close(epoll));
        if let Some(place) = place {
            lock(&shared.known).free_place(place, false, now);
        }
    }
}

impl<T: Timing> Server<QueueClient<T>> for SessionServer<'_, '_> {
    fn buffers(&mut self) -> &mut Buffers {
        self.ctx.buffers
    }

    fn open(&mut self, disk: u32, entries: u32) -> Option<QueueClient<T>> {
        let shared = self.ctx.shared;
        let d = shared.disks.get(disk as usize)?;
        let tags = d.tags.unwrap_or(entries.min(u32::from(u16::MAX)) as u16);
        let client = d.disk.open_client(entries, tags).ok()?;
        let timing = T::of(shared.latencies[self.ctx.worker].get(disk as usize))?;
        Some(QueueClient::new(client, timing))
    }

    fn fills_buffers(&self, disk: u32) -> bool {
        self.ctx.shared.fills_buffers[disk as usize]
    }

    fn recovery(&self, disk: u32) -> &DiskRecovery {
        &self.ctx.shared.recovery[disk as usize]
    }

    fn now(&self) -> Nanos {
        self.ctx.now
    }

    fn owes(&self, disk: u32, initiator: ClientKey) -> bool {
        self.ctx.shared.disks[disk as usize].disk.owes(initiator.number())
    }

    fn late_limit(&self, disk: u32, at: Sector) -> Option<Nanos> {
        late_limit(&self.ctx.shared.disks[disk as usize].disk, at)
    }

    fn count_replayed(&mut self, disk: u32) {
        if let Some(counters) = self.ctx.shared.counters[self.ctx.worker].get(disk as usize) {
            counters.count_replayed();
        }
    }

    fn count(&mut self, disk: u32, op: Op, bytes: u32, ok: bool) {
        if let Some(counters) = self.ctx.shared.counters[self.ctx.worker].get(disk as usize) {
            counters.count(op, bytes, ok);
        }
    }

    fn target<R>(&mut self, f: impl FnOnce(&mut Target) -> R) -> R {
        let mut target = lock(&self.ctx.shared.target);
        let result = f(&mut target);
        let events = target.take_events();
        drop(target);
        if !events.is_empty() {
            self.ctx.shared.deliver(events);
        }
        result
    }

    fn random(&mut self) -> Option<Random> {
        let mut bytes = Random::default();
        getrandom::fill(&mut bytes).ok()?;
        Some(bytes)
    }

    fn take_place(&mut self, initiator: &str, is_session: bool, is_proven: bool) -> bool {
        // Without an address the socket is closed.
        let peer = self.stream.and_then(|s| s.peer_addr().ok());
        let place = match peer {
            Some(peer) if !is_proven => {
                let mut known = lock(&self.ctx.shared.known);
                known.enter(initiator, peer.ip(), is_session, self.ctx.now)
            }
            _ => Some(ClientPlace::Uncounted),
        };
        *self.place = place;
        place.is_some()
    }

    fn refused(&mut self, initiator: Option<&str>, why: LoginFailure) {
        if why == LoginFailure::Authentication {
            self.ctx.shared.failed_logins.fetch_add(1, Ordering::Relaxed);
        }
        let name = zoneplug_core::plain(initiator.unwrap_or("without a name")).into_owned();
        let name = &*name;
        let peer = self.stream.and_then(|s| s.peer_addr().ok());
        let peer = peer.map_or_else(String::new, |a| a.ip().to_string());
        log::warn!(
            event = "host-refused", host = name, peer = &*peer;
            "the initiator {name} at {peer} could not log in: {}", said(why)
        );
    }
}

/// Says why a login has failed.
fn said(why: LoginFailure) -> &'static str {
    match why {
        LoginFailure::Authentication => "it did not prove that it knows its secret",
        LoginFailure::Authorization => "it may not use the target",
        LoginFailure::NotFound => "there is no target of the name that it asked for",
        LoginFailure::NoSession => "it named a session, and a session has one connection",
        LoginFailure::NoRoom => "it has to wait: other initiators have all places",
        LoginFailure::Initiator | LoginFailure::Version | LoginFailure::Missing => {
            "its request is not one of RFC 7143"
        }
    }
}
