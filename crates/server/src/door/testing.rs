//! A door for tests: a client sends a byte, which appends a block, and reads its sector. A client that sends no byte
//! ends the thread.

use super::*;
use crate::{compare::WantedDisk, served::Network, served::OpenDisk};
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
        let served = Served::new("test", "test0", &self.spec, (disk, passed));
        vec![Served { network: Some(Network::at(self.at)), ..served }]
    }

    fn leave_disks(&mut self) {
        let Some((_, thread)) = self.serving.take() else { return };
        drop((TcpStream::connect(self.at).map(drop), thread.join(), self.listener.take()));
    }
}
