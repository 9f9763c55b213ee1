//! The interface between a server and a protocol, and the guard of a start.

use crate::compare::WantedDoor;
use crate::inherited::Inherited;
use crate::open_disks::{OpenDisks, flush};
use crate::served::{AddClients, Served};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use zoneplug_control::Failure;
use zoneplug_core::{Nanos, plain};
use zoneplug_host::Specification;
use zoneplug_host::signals::Notifier;

/// A protocol by which disks are served, such as block devices of Linux. A door knows its protocol and its disks; the
/// server knows only this trait.
///
/// A server starts a door, and later tells it to stop or to leave. A door that has left is started again if the next
/// server does not serve its disks.
pub trait Door: Send {
    /// The specifications of the door's disks.
    fn specs(&self) -> Vec<&Specification>;

    /// The door's disks and addresses, to compare with a running server.
    fn wanted(&self) -> WantedDoor<'_>;

    /// Whether only root can use it.
    fn needs_root(&self) -> bool {
        false
    }

    /// Whether clients may know its disks from a server that has ended.
    fn is_known(&self) -> bool {
        false
    }

    /// Examines its disks for a comparison, without opening them for writing. Changes nothing for a running server.
    fn prepare(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Checks that clients find what they know from the servers that hand over, or from one that has ended.
    fn prove(&self, _: &Inherited) -> Result<(), Failure> {
        Ok(())
    }

    /// Checks that no other server uses its name.
    fn check_name(&self, _: &Inherited) -> Result<(), Failure> {
        Ok(())
    }

    /// Claims its name, unless one of the servers that hand over has it. `patience`: how long to wait for another server that
    /// has it.
    fn claim_name(&mut self, _: &Inherited, _patience: Duration) -> Result<(), Failure> {
        Ok(())
    }

    /// Checks a disk that no server hands over, before it is opened for writing, which changes its file.
    fn check_disk(&self, _spec: &Specification) -> Result<(), Failure> {
        Ok(())
    }

    /// How long a write waits for writes that were sent before it and arrive later. `None`: as the specification
    /// says.
    fn order_window(&self, _spec: &Specification) -> Option<Nanos> {
        None
    }

    /// Listens at its addresses. Takes sockets of `given` that listen there already.
    fn listen(&mut self, _given: &mut Vec<TcpListener>) -> Result<(), Failure> {
        Ok(())
    }

    /// The sockets at which it listens.
    fn sockets(&self) -> Vec<&TcpListener> {
        Vec::new()
    }

    /// Serves its disks from now on. Notifies when [`Door::check_running`] may have something to report. After a
    /// failure the guard calls [`Door::undo`].
    fn start(
        &mut self,
        disks: &OpenDisks,
        inherited: &Inherited,
        notifier: &Notifier,
    ) -> Result<(), Failure>;

    /// Undoes a start after a later step failed. Leaves disks that were taken over as they were, because they may be
    /// in use.
    fn undo(&mut self) {
        self.leave_disks();
    }

    /// Called when the server serves and the servers before it have ended.
    fn serves(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// The served disks.
    fn served(&self) -> Vec<Served>;

    /// Adds the clients' knowledge to the record for the next server. `None`: clients know only the disks.
    fn of_clients(&self) -> Option<AddClients> {
        None
    }

    /// Lines for standard output: each disk, and how clients reach it.
    fn lines(&self) -> Vec<String> {
        let at = |s: &Served| {
            s.network.as_ref().map_or_else(String::new, |n| format!("{}  ", n.address))
        };
        self.served().iter().map(|s| format!("{}{}  {}", at(s), s.name, plain(&s.spec))).collect()
    }

    /// The addresses at which hosts reach its disks, if it is a door of the network.
    fn addresses(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Logs that its disks are served.
    fn log_start(&self) {
        for s in self.served() {
            log::info!(event = "disk-start", disk = &*s.name, spec = &*s.spec; "{}: {} is served", s.name, s.spec);
        }
    }

    /// Fails if the door has ended by itself.
    fn check_running(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Starts no further requests, and completes those it has begun, because its disks will be left to another
    /// server.
    fn ask_to_leave(&self) {}

    /// Waits until the begun requests are completed. The failure is the name of a disk that does not answer in time.
    fn drains_until(&self, _end: Instant) -> Result<(), String> {
        Ok(())
    }

    /// Goes on after [`Door::ask_to_leave`].
    fn stay(&self) {}

    /// Leaves its disks to the next server, and releases them.
    fn leave_disks(&mut self);

    /// Ends, and makes all data durable. `remove`: also removes devices in use that could stay for the next server.
    fn stop(&mut self, _remove: bool) -> Result<(), Failure> {
        leave_disks_and_flush(self)
    }
}

/// Tells a door to leave its disks, and makes their data durable.
pub fn leave_disks_and_flush<D: Door + ?Sized>(door: &mut D) -> Result<(), Failure> {
    let disks: Vec<_> = door.served().into_iter().map(|s| (s.name, s.disk)).collect();
    door.leave_disks();
    disks.iter().try_for_each(|(_, disk)| flush(disk))?;
    for (name, _) in &disks {
        let name = &**name;
        log::info!(event = "disk-stop", disk = name; "{name}: not served any more, and its data are durable");
    }
    Ok(())
}

/// Listens at an address. Takes a socket of `given` that listens there already; for port 0 any with the same IP
/// address.
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

/// Doors that are being started. If a later step fails, dropping this undoes the started ones.
pub(crate) struct Starting(Doors);

impl Starting {
    pub(crate) fn new(doors: Doors) -> Starting {
        Starting(doors)
    }

    /// Starts the doors one after the other.
    pub(crate) fn start(
        &mut self,
        disks: &OpenDisks,
        inherited: &Inherited,
        notifier: &Notifier,
    ) -> Result<(), Failure> {
        self.0.iter_mut().try_for_each(|door| door.start(disks, inherited, notifier))
    }

    /// Returns the doors once all steps of the start are done.
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
pub(crate) mod testing;
#[cfg(test)]
mod tests;
