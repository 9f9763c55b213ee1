//! The connected clients of a server's socket. Each connection has a thread, because a change of an attribute waits
//! for the disk. `Access` decides which processes may ask. The number of connections is limited; a silent one gives
//! its place to a new one.

use crate::access::{Access, Peer};
use crate::answer::{self, Answers, Reply};
use crate::client::{StateShown, Timed};
use crate::descriptors;
use crate::error::{ControlError, Forbidden};
use crate::pause::Pause;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

/// Longest request, in bytes.
pub const MAX_QUESTION: u64 = 64 << 10;

/// Time for a client to read an answer, however soon its pause ends.
const MIN_READ_TIME: Duration = Duration::from_millis(100);

/// The limits of connections.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Most connections at a time.
    pub most: usize,
    /// Time from the last answer to the end of the next request, and time for the client to read an answer.
    pub patience: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { most: 32, patience: Duration::from_secs(60) }
    }
}

/// The phase of a connection. To free a place, a client that is `Listening` is disconnected before one that is `Sending`; one that
/// is `Answering` never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ConnectionPhase {
    /// The client sends a request.
    Listening,
    /// The client reads its answer.
    Sending,
    /// A disk answers.
    Answering,
}

struct ConnectionPlace {
    id: u64,
    stream: UnixStream,
    phase: ConnectionPhase,
    since: Instant,
}

#[derive(Default)]
struct State {
    places: Vec<ConnectionPlace>,
    next: u64,
}

/// The connected clients.
struct Clients {
    state: Mutex<State>,
    bounds: Bounds,
}

/// Frees its place when it is dropped, even by a panic.
struct PlaceGuard {
    clients: Arc<Clients>,
    id: u64,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, State> {
        zoneplug_core::poison::lock(&self.state)
    }

    /// Takes a place for a new connection. If all are taken, disconnects the client whose request the server has
    /// awaited longest, or, if none is awaited, the one that has read its answer longest; never one whose request waits for a
    /// disk.
    fn take_place(self: &Arc<Self>, stream: &UnixStream) -> Option<PlaceGuard> {
        let stream = stream.try_clone().ok()?;
        let mut state = self.lock();
        if state.places.len() >= self.bounds.most {
            let waits = state
                .places
                .iter()
                .enumerate()
                .filter(|(_, p)| p.phase != ConnectionPhase::Answering);
            let (i, _) = waits.min_by_key(|(_, p)| (p.phase, p.since))?;
            let place = state.places.swap_remove(i);
            // The thread of that client sees the end of the stream. An error means that the client has gone.
            let _ = place.stream.shutdown(Shutdown::Both);
        }
        state.next += 1;
        let id = state.next;
        state.places.push(ConnectionPlace {
            id,
            stream,
            phase: ConnectionPhase::Listening,
            since: Instant::now(),
        });
        Some(PlaceGuard { clients: self.clone(), id })
    }

    /// Disconnects the clients that have no answer to come.
    fn disconnect_idle(&self) {
        for place in self.lock().places.iter().filter(|p| p.phase == ConnectionPhase::Listening) {
            // An error means that the client has gone.
            let _ = place.stream.shutdown(Shutdown::Both);
        }
    }
}

impl PlaceGuard {
    /// Notes what the connection waits for. False: the place belongs to another connection now.
    fn enter(&self, phase: ConnectionPhase) -> bool {
        let mut state = self.clients.lock();
        let place = state.places.iter_mut().find(|p| p.id == self.id);
        place.map(|p| (p.phase, p.since) = (phase, Instant::now())).is_some()
    }
}

impl Drop for PlaceGuard {
    fn drop(&mut self) {
        self.clients.lock().places.retain(|p| p.id != self.id);
    }
}

/// The source of a socket's answers. Empty once the server leaves the disks to another one, or ends.
pub(crate) struct AnswerSlot<A>(Mutex<AnswerSource<A>>);

enum AnswerSource<A> {
    Serves(Arc<A>),
    /// The record of the disks when they were left; `None`: they were not left to a server.
    Left(Option<Arc<StateShown>>),
}

impl<A> AnswerSlot<A> {
    pub(crate) fn new(serving: A) -> AnswerSlot<A> {
        AnswerSlot(Mutex::new(AnswerSource::Serves(Arc::new(serving))))
    }

    fn lock(&self) -> MutexGuard<'_, AnswerSource<A>> {
        zoneplug_core::poison::lock(&self.0)
    }

    pub(crate) fn get(&self) -> Option<Arc<A>> {
        match &*self.lock() {
            AnswerSource::Serves(serving) => Some(serving.clone()),
            AnswerSource::Left(_) => None,
        }
    }

    /// The record of the disks when they were left, if they were.
    fn left(&self) -> Option<Arc<StateShown>> {
        match &*self.lock() {
            AnswerSource::Serves(_) => None,
            AnswerSource::Left(state) => state.clone(),
        }
    }

    pub(crate) fn put(&self, serving: A) {
        *self.lock() = AnswerSource::Serves(Arc::new(serving));
    }

    /// Empties the slot. `left`: the record to answer with, if the disks are left to another server.
    pub(crate) fn take(&self, left: Option<StateShown>) -> Option<Arc<A>> {
        match std::mem::replace(&mut *self.lock(), AnswerSource::Left(left.map(Arc::new))) {
            AnswerSource::Serves(serving) => Some(serving),
            AnswerSource::Left(_) => None,
        }
    }
}

/// Answers on `listener` until it is shut down.
pub(crate) fn listen<A: Answers>(
    listener: &UnixListener,
    slot: &Weak<AnswerSlot<A>>,
    access: Access,
    bounds: Bounds,
) {
    let clients = Arc::new(Clients { state: Mutex::default(), bounds });
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => welcome(stream, &clients, access, slot),
            // The listener was shut down.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => return clients.disconnect_idle(),
            // Most likely too many files are open, so the next attempt waits.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// The process at the other end. `None`: the kernel does not know it, so it may not ask.
fn peer_of(stream: &UnixStream) -> Option<Peer> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    let mut groups = zoneplug_host::peer_groups(stream).ok()?;
    groups.push(peer.gid.as_raw());
    Some(Peer { uid: peer.uid.as_raw(), groups })
}

fn welcome<A: Answers>(
    stream: UnixStream,
    clients: &Arc<Clients>,
    access: Access,
    slot: &Weak<AnswerSlot<A>>,
) {
    // The write never blocks, and the empty socket buffer has room for a refusal.
    let refuse = |stream: &UnixStream, why: ControlError| {
        let _ = stream.set_nonblocking(true);
        let mut stream = stream;
        let _ = stream.write_all(&answer::refusal(&why.into()));
    };
    let peer = peer_of(&stream);
    if !peer.as_ref().is_some_and(|p| access.admits(p)) {
        let uid = peer.map_or_else(|| "an unknown user".to_owned(), |p| format!("user {}", p.uid));
        log::warn!(event = "client-refused", user = &*uid; "a client of {uid} was refused at the socket");
        return refuse(&stream, ControlError::NotPermitted { what: Forbidden::Server });
    }
    let Some(place) = clients.take_place(&stream) else {
        return refuse(&stream, ControlError::TooManyClients);
    };
    let Ok(for_refusal) = stream.try_clone() else { return };
    let (slot, is_owner) = (slot.clone(), peer.as_ref().is_some_and(Access::is_owner));
    let body = move || {
        // A client that has gone is no error.
        let _ = converse(stream, &slot, &place, is_owner);
    };
    if std::thread::Builder::new().name("zoneplug-client".to_owned()).spawn(body).is_err() {
        refuse(&for_refusal, ControlError::NoThread);
    }
}

/// Answers the requests of a connection. If it asks for the disks, the thread that leaves them gets the connection.
fn converse<A: Answers>(
    stream: UnixStream,
    slot: &Weak<AnswerSlot<A>>,
    place: &PlaceGuard,
    is_owner: bool,
) -> io::Result<()> {
    let patience = place.clients.bounds.patience;
    let mut stream = BufReader::new(Timed::new(stream, patience));
    let mut question = Vec::new();
    // The pause ends with the connection.
    let mut pause = None;
    loop {
        question.clear();
        stream.get_mut().again(pause.as_ref().map_or(patience, Pause::left));
        if (&mut stream).take(MAX_QUESTION).read_until(b'\n', &mut question)? == 0 {
            return Ok(());
        }
        let whole = question.ends_with(b"\n");
        if !place.enter(ConnectionPhase::Answering) {
            return Ok(());
        }
        let Some(serving) = slot.upgrade().and_then(|slot| slot.get()) else {
            let left = slot.upgrade().and_then(|slot| slot.left());
            return stream.get_mut().write_all(&answer::respond_left(&question, left.as_deref()));
        };
        let reply = answer::respond(&question, &*serving, &mut pause, is_owner);
        let (text, files) = match reply {
            Reply::Line(text, files) => (text, files),
            Reply::HandOver => {
                let asked = serving.hand_over(stream.into_inner().into_stream());
                return asked.or_else(|(by, why)| {
                    Timed::new(by, patience).write_all(&answer::refusal(&why))
                });
            }
        };
        drop(serving);
        if !place.enter(ConnectionPhase::Sending) {
            return Ok(());
        }
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        // A client that reads no answers does not prolong its pause.
        pause = pause.filter(|p| !p.left().is_zero());
        stream.get_mut().again(pause.as_ref().map_or(patience, |p| p.left().max(MIN_READ_TIME)));
        descriptors::send(stream.get_ref().stream(), &files)?;
        stream.get_mut().write_all(&text)?;
        if !whole || !place.enter(ConnectionPhase::Listening) {
            return Ok(());
        }
    }
}
