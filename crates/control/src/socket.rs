//! The control socket of a server, on which it answers `zoneplug status`, `attr`, `zone-wplugs` and others.

use crate::access::Access;
use crate::answer::Answers;
use crate::client::{self, StateShown};
use crate::connections::{self, AnswerSlot, Bounds};
use crate::error::ControlError;
use crate::failure::{Attempt, Failure};
use crate::place;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zoneplug_core::Error;

/// How long a socket that ends waits for requests that are being answered.
pub const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// A socket that answers requests until it is dropped. The threads of the socket hold the disks only while they answer,
/// so that a server that ends closes its disks.
pub struct Socket<A: Answers> {
    path: PathBuf,
    id: place::Id,
    access: Access,
    bounds: Bounds,
    slot: Arc<AnswerSlot<A>>,
    listener: Arc<UnixListener>,
}

/// The failure to make a socket at a path.
fn no_socket(path: &Path, e: io::Error) -> Failure {
    let (path, because) = (path.display().to_string(), e.to_string());
    let (kind, errno) = (e.kind(), e.raw_os_error());
    Failure::from(Error::from(ControlError::NoSocket { path, kind, errno, because }).source(e))
}

/// Checks whether a socket can be made at a path.
pub fn check(path: &Path) -> Result<(), Failure> {
    place::check(path).map_err(|e| no_socket(path, e))
}

impl<A: Answers> Socket<A> {
    /// Makes the socket, at `path` or in the usual place with the number of this process as its name, and answers on
    /// it from now on. Replaces a socket without a server.
    pub fn open(path: Option<&Path>, access: Access, serving: A) -> Result<Socket<A>, Failure> {
        Self::open_replacing(path, access, serving, &[])
    }

    /// Like [`Socket::open`], but also replaces a socket in `replaced`.
    pub fn open_replacing(
        path: Option<&Path>,
        access: Access,
        serving: A,
        replaced: &[place::Id],
    ) -> Result<Socket<A>, Failure> {
        Self::open_with(path, access, serving, replaced, Bounds::default())
    }

    /// Like [`Socket::open_replacing`], with limits of connections.
    pub fn open_with(
        path: Option<&Path>,
        access: Access,
        serving: A,
        replaced: &[place::Id],
        bounds: Bounds,
    ) -> Result<Socket<A>, Failure> {
        let usual = || PathBuf::from(format!("{}/{}.sock", client::DIRECTORY, std::process::id()));
        let path = path.map_or_else(usual, Path::to_owned);
        let failed = |e| no_socket(&path, e);
        place::make_directory(&path).map_err(failed)?;
        if path.parent() == Some(Path::new(client::DIRECTORY)) {
            remove_dead_sockets();
        }
        // Private directories of killed servers are removed from the usual place too: later servers may all use other places,
        // and would never clean it.
        place::sweep_private(Path::new(client::DIRECTORY));
        place::sweep_private(place::directory(&path));
        let (listener, id) = place::listen(&path, access, replaced).map_err(failed)?;
        let slot = Arc::new(AnswerSlot::new(serving));
        let socket = Socket { path, id, access, bounds, slot, listener: Arc::new(listener) };
        socket.listen()?;
        Ok(socket)
    }

    /// Answers at the listener, in a thread that ends with [`Socket::end_listening`].
    fn listen(&self) -> Result<(), Failure> {
        let (slot, access, bounds) = (Arc::downgrade(&self.slot), self.access, self.bounds);
        let listener = self.listener.clone();
        let body = move || connections::listen(&listener, &slot, access, bounds);
        let thread = std::thread::Builder::new().name("zoneplug-socket".to_owned());
        thread
            .spawn(body)
            .map(drop)
            .map_err(|e| Failure::of_system(Attempt::Thread, "no thread for the socket", e))
    }

    /// Makes the socket again if another server has replaced it and has ended.
    pub fn restore(&mut self) -> Result<(), Failure> {
        if place::Id::of(&self.path) == Some(self.id) {
            return Ok(());
        }
        let (listener, id) = place::listen(&self.path, self.access, &[])
            .map_err(|e| no_socket(&self.path, e).hint("end this server, and start it again"))?;
        self.end_listening();
        (self.id, self.listener) = (id, Arc::new(listener));
        self.listen()
    }

    /// Ends the thread of the listener, which waits for clients.
    fn end_listening(&self) {
        // An error means that it listens no more.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The source of the answers; `None` while it is withdrawn.
    pub fn serving(&self) -> Option<Arc<A>> {
        self.slot.get()
    }

    /// Answers from `serving` from now on.
    pub fn put(&self, serving: A) {
        self.slot.put(serving);
    }

    /// Takes the source of answers out, until [`Socket::put`]. Meanwhile the socket answers with `left`, the record of disks that are
    /// left to another server, or not at all. Waits at most [`LAST_ANSWERS`] for threads that still answer a client and so hold
    /// the disks.
    pub fn withdraw(&self, left: Option<StateShown>) {
        let end = Instant::now() + LAST_ANSWERS;
        let mut last = self.slot.take(left);
        while let Some(serving) = last {
            last = Arc::try_unwrap(serving).err().filter(|_| Instant::now() < end);
            if last.is_some() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl<A: Answers> Drop for Socket<A> {
    fn drop(&mut self) {
        self.id.remove(&self.path);
        self.withdraw(None);
        self.end_listening();
    }
}

/// Removes sockets of killed servers from the usual place.
fn remove_dead_sockets() {
    for path in client::sockets() {
        if let Some(id) = place::left_behind(&path) {
            id.remove(&path);
        }
    }
}
