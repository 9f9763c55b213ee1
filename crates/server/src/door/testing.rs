//! Doors for tests. Of the whole one, a client sends a byte, which appends a block, and reads its sector; a client that sends no byte
//! ends the thread. The other one has no disks, and fails where its test wants it to.

use super::*;
use crate::{compare::WantedDisk, served::Network, served::OpenDisk};
use std::sync::{Arc, atomic::AtomicU32, atomic::Ordering::Relaxed};
use std::{io::Read, io::Write, net::SocketAddr, net::TcpStream};
use zoneplug_core::Sector;
use zoneplug_host::BlockingDisk;

pub(super) struct TestDoor {
    pub(super) spec: Specification,
    pub(super) at: SocketAddr,
    pub(super) listener: Option<TcpListener>,
    pub(super) serving: Option<(OpenDisk, std::thread::JoinHandle<()>)>,
}

impl Door for TestDoor {
    fn specs(&self) -> Vec<&Specification> {
        vec![&self.spec]
    }

    fn wanted(&self) -> WantedDoor<'_> {
        WantedDoor::new("test", vec![WantedDisk::new(&self.spec, None, true)]).at(&[self.at])
    }

    fn listen(&mut self, given: &mut Vec<TcpListener>) -> Result<(), Failure> {
        let listener = self.listener.insert(listen_at(self.at, given)?);
        self.at = listener.local_addr()?;
        Ok(())
    }

    fn sockets(&self) -> Vec<&TcpListener> {
        self.listener.iter().collect()
    }

    fn start(&mut self, all: &OpenDisks, _: &Inherited, _: &Notifier) -> Result<(), Failure> {
        let (open, listener) = (all.get(&self.spec).unwrap(), self.listener.as_ref().unwrap());
        let (listener, mut io) = (listener.try_clone()?, BlockingDisk::new(&open.disk)?);
        let thread = std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let Ok(1) = stream.read(&mut [0]) else { return };
                let at = io.append_from(Sector(0), &[7; 4096]).unwrap();
                write!(stream, "{}", at.0).unwrap();
            }
        });
        self.serving = Some((open.clone(), thread));
        Ok(())
    }

    fn served(&self) -> Vec<Served> {
        let Some((OpenDisk { disk, passed, .. }, _)) = &self.serving else { return Vec::new() };
        let served = Served::new("test", "test0", &self.spec, disk, passed);
        vec![Served { network: Some(Network::at(self.at)), ..served }]
    }

    fn leave_disks(&mut self) {
        let Some((_, thread)) = self.serving.take() else { return };
        drop((TcpStream::connect(self.at).map(drop), thread.join(), self.listener.take()));
    }
}

/// A door without disks. Counts how often it was asked to leave and told to stay.
#[derive(Default)]
pub(crate) struct StubDoor {
    pub(crate) does_not_start: bool,
    pub(crate) has_ended: bool,
    /// The disk that does not answer when the door is to leave.
    pub(crate) hangs: Option<String>,
    pub(crate) asked: AtomicU32,
    pub(crate) stays: AtomicU32,
}

impl Door for Arc<StubDoor> {
    fn specs(&self) -> Vec<&Specification> {
        Vec::new()
    }

    fn wanted(&self) -> WantedDoor<'_> {
        WantedDoor::new("stub", Vec::new())
    }

    fn start(&mut self, _: &OpenDisks, _: &Inherited, _: &Notifier) -> Result<(), Failure> {
        if self.does_not_start { Err(Failure::io("this door does not start")) } else { Ok(()) }
    }

    fn served(&self) -> Vec<Served> {
        Vec::new()
    }

    fn check_running(&self) -> Result<(), Failure> {
        if self.has_ended { Err(Failure::io("this door has ended")) } else { Ok(()) }
    }

    fn ask_to_leave(&self) {
        self.asked.fetch_add(1, Relaxed);
    }

    fn drains_until(&self, _: Instant) -> Result<(), String> {
        self.hangs.clone().map_or(Ok(()), Err)
    }

    fn stay(&self) {
        self.stays.fetch_add(1, Relaxed);
    }

    fn leave_disks(&mut self) {}
}
