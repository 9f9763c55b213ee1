//! The interface between a server and a protocol by which it serves disks, and the guard of a start.

use crate::compare::WantedDoor;
use crate::failure::Failure;
use crate::inherited::Inherited;
use crate::open_disks::{OpenDisks, flush};
use crate::served::{OfClients, Served};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Instant;
use zoneplug_core::{Nanos, plain};
use zoneplug_host::Specification;
use zoneplug_host::signals::Notifier;

/// A protocol by which disks are served, such as block devices of Linux. A door knows its protocol and the disks that it is to
/// serve; the server knows what this trait says.
///
/// A server starts a door, and later lets it stop or leave. A door that has left is started again if the next server does not
/// serve its disks.
pub trait Door: Send {
    /// The specifications of its disks.
    fn specs(&self) -> Vec<&Specification>;

    /// The disks and addresses that it is to serve, for a comparison with a running server.
    fn wanted(&self) -> WantedDoor<'_>;

    /// Whether only root can have it.
    fn needs_root(&self) -> bool {
        false
    }

    /// Whether clients may know its disks from a server that has ended.
    fn is_known(&self) -> bool {
        false
    }

    /// Looks at its disks, without opening one, for a comparison. Nothing has changed for a running server yet.
    fn prepare(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Checks that clients would find what they know, from the servers that hand over or from one that has ended.
    fn prove(&self, _: &Inherited) -> Result<(), Failure> {
        Ok(())
    }

    /// Checks that no other server has its name.
    fn check_name(&self, _: &Inherited) -> Result<(), Failure> {
        Ok(())
    }

    /// Takes its name, unless one of the servers that hand over has it.
    fn claim_name(&mut self, _: &Inherited) -> Result<(), Failure> {
        Ok(())
    }

    /// Checks a disk before it is opened for writing, which changes its file. No other server hands the disk over.
    fn check_disk(&self, _spec: &Specification) -> Result<(), Failure> {
        Ok(())
    }

    /// How long a write of this disk waits for those that it has overtaken on the way here. `None`: as its specification says.
    fn order_window(&self, _spec: &Specification) -> Option<Nanos> {
        None
    }

    /// Listens where clients reach it. Takes sockets of `given` that listen there already.
    fn listen(&mut self, _given: &mut Vec<TcpListener>) -> Result<(), Failure> {
        Ok(())
    }

    /// The sockets at which it listens.
    fn sockets(&self) -> Vec<&TcpListener> {
        Vec::new()
    }

    /// Serves its disks from now on. Notifies when [`Door::look`] may have something to say. After a failure the guard calls
    /// [`Door::undo`].
    fn start(
        &mut self,
        disks: &OpenDisks,
        inherited: &Inherited,
        notifier: &Notifier,
    ) -> Result<(), Failure>;

    /// A later step of the start has failed. Leaves what was taken over as it was found, because it may be in use.
    fn undo(&mut self) {
        self.leave();
    }

    /// The server serves. The servers before it have ended.
    fn serves(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// The disks that are served.
    fn served(&self) -> Vec<Served>;

    /// Adds its clients to the record for the next server. `None`: clients know nothing but the disks.
    fn of_clients(&self) -> Option<OfClients> {
        None
    }

    /// Lines for standard output: each disk, and how it is reached.
    fn lines(&self) -> Vec<String> {
        let at = |s: &Served| {
            s.network.as_ref().map_or_else(String::new, |n| format!("{}  ", n.address))
        };
        self.served().iter().map(|s| format!("{}{}  {}", at(s), s.name, plain(&s.spec))).collect()
    }

    /// Logs that its disks are served.
    fn log_start(&self) {
        for s in self.served() {
            log::info!(event = "disk-start", disk = &*s.name, spec = &*s.spec; "{}: {} is served", s.name, s.spec);
        }
    }

    /// Whether it has ended by itself.
    fn look(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Begins nothing new, and answers what was begun. Its disks are to be left to another server.
    fn ask_to_leave(&self) {}

    /// Waits until what was begun is answered. The failure is the name of a disk that does not answer in time.
    fn drains_until(&self, _end: Instant) -> Result<(), String> {
        Ok(())
    }

    /// Goes on after [`Door::ask_to_leave`].
    fn stay(&self) {}

    /// Leaves its disks to the next server, and holds them no more.
    fn leave(&mut self);

    /// Ends, and makes everything durable. `remove`: also what is in use, and could stay for the next server.
    fn stop(&mut self, _remove: bool) -> Result<(), Failure> {
        leave_and_flush(self)
    }
}

/// Has a door leave its disks, and makes them durable.
pub fn leave_and_flush<D: Door + ?Sized>(door: &mut D) -> Result<(), Failure> {
    let disks: Vec<_> = door.served().into_iter().map(|s| (s.name, s.disk)).collect();
    door.leave();
    disks.iter().try_for_each(|(_, disk)| flush(disk))?;
    for (name, _) in &disks {
        let name = &**name;
        log::info!(event = "disk-stop", disk = name; "{name}: not served any more, and its data are durable");
    }
    Ok(())
}

/// Listens at an address. Takes a socket of `given` that listens there already; at port 0 any of the same IP address.
pub fn listen_at(address: SocketAddr, given: &mut Vec<TcpListener>) -> io::Result<TcpListener> {
    let is_there = |at: SocketAddr| {
        at.ip() == address.ip() && (address.port() == 0 || at.port() == address.port())
    };
    match given.iter().position(|l| l.local_addr().is_ok_and(is_there)) {
        Some(n) => Ok(given.remove(n)),
        None => TcpListener::bind(address),
    }
}

/// The doors of a server.
pub type Doors = Vec<Box<dyn Door>>;

/// Doors that are being started. If a later step fails, the drop of this undoes what was started.
pub(crate) struct Starting(Doors);

impl Starting {
    pub(crate) fn new(doors: Doors) -> Starting {
        Starting(doors)
    }

    /// Starts them, one after the other.
    pub(crate) fn start(
        &mut self,
        disks: &OpenDisks,
        inherited: &Inherited,
        notifier: &Notifier,
    ) -> Result<(), Failure> {
        self.0.iter_mut().try_for_each(|door| door.start(disks, inherited, notifier))
    }

    /// They are started.
    pub(crate) fn keep(mut self) -> Doors {
        std::mem::take(&mut self.0)
    }
}

impl std::ops::Deref for Starting {
    type Target = [Box<dyn Door>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.iter_mut().rev().for_each(|door| door.undo());
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
