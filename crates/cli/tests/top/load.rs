//! A host that works on a served disk: bursts of writes to a few zones, some reads, resets of zones that are full.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use zoneplug_core::Random;
use zoneplug_nvme::initiator::{
    Data, Done, Initiator, Options, connect, read, reset_zone, set_queues, write,
};
use zoneplug_nvme::spec::Command;
use zoneplug_nvme::spec::fabrics::{ANY_CONTROLLER, Configuration, property};

pub(crate) const NQN: &str = "nqn.2026-11.dev.zoneplug:top";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a01";
const BLOCK: u32 = 4096;
const IN_FLIGHT: usize = 48;

/// A load in a thread, until it is dropped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What it works on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Disk {
    pub(crate) nsid: u32,
    /// Blocks of a zone.
    pub(crate) zone: u64,
    /// The zones that are written at a time, of all that there are.
    pub(crate) at_a_time: u64,
    pub(crate) zones: u64,
}

impl Load {
    pub(crate) fn start(address: &str, disk: Disk) -> Load {
        let (stop, address) = (Arc::new(AtomicBool::new(false)), address.to_owned());
        let stops = stop.clone();
        let thread = std::thread::spawn(move || work(&address, disk, &stops));
        Load { stop, thread: Some(thread) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the load failed");
    }
}

struct Queue {
    stream: TcpStream,
    host: Initiator,
    input: Vec<u8>,
}

impl Queue {
    fn open(address: &str) -> Queue {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        Queue { stream, host: Initiator::new(Options::default()), input: vec![0; 1 << 18] }
    }

    /// The next answer. `None`: none came for a while, or the server has gone.
    fn next(&mut self) -> Option<Done> {
        let bytes = self.host.take_output();
        self.stream.write_all(&bytes).ok()?;
        loop {
            if let Some(done) = self.host.done() {
                return Some(done);
            }
            match self.stream.read(&mut self.input) {
                Ok(0) => return None,
                Ok(n) => self.host.received(&self.input[..n]).unwrap(),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return None;
                }
                Err(_) => return None,
            }
            let bytes = self.host.take_output();
            self.stream.write_all(&bytes).ok()?;
        }
    }

    fn run(&mut self, (command, data): (Command, Data)) -> Done {
        self.host.send(command, data);
        let done = (0..500).find_map(|_| self.next()).expect("an answer in ten seconds");
        assert_eq!(done.completion.status, 0);
        done
    }
}

/// A zone that is written.
#[derive(Default, Clone, Copy)]
struct WrittenZone {
    number: u64,
    next: u64,
    in_flight: u32,
    resets: bool,
}

fn work(address: &str, disk: Disk, stop: &AtomicBool) {
    let mut admin = Queue::open(address);
    let id = admin.run(connect(0, 32, ANY_CONTROLLER, NQN, HOST)).completion.result as u16;
    let start = Command::property_set(property::CC, Configuration::START.encode());
    admin.run((start, Data::None));
    admin.run(set_queues(1));
    let mut io = Queue::open(address);
    io.run(connect(1, 128, id, NQN, HOST));
    let mut zones: Vec<WrittenZone> = (0..disk.at_a_time)
        .map(|i| WrittenZone { number: i * disk.zones / disk.at_a_time, ..WrittenZone::default() })
        .collect();
    let mut pending: HashMap<u16, Option<usize>> = HashMap::new();
    let mut state = Random::new(0);
    let mut random = move |n: u64| state.draw() % n;
    while !stop.load(Ordering::Relaxed) {
        while pending.len() < IN_FLIGHT {
            let i = random(disk.at_a_time) as usize;
            let z = &mut zones[i];
            let start = z.number * disk.zone;
            if z.next > 0 && random(4) == 0 {
                let (command, data) =
                    read(disk.nsid, start + random(z.next.max(8) / 8) * 8, 1, BLOCK);
                pending.insert(io.host.send(command, data), None);
                continue;
            }
            if z.resets || z.next + 8 * 4 > disk.zone {
                if z.in_flight == 0 && !z.resets {
                    // On to another zone, which is emptied first. Each writer has zones of its own.
                    let each = disk.zones / disk.at_a_time;
                    let first = i as u64 * disk.zones / disk.at_a_time;
                    z.number = first + (z.number - first + 1) % each;
                    (z.resets, z.in_flight) = (true, 1);
                    let (command, data) = reset_zone(disk.nsid, z.number * disk.zone);
                    pending.insert(io.host.send(command, data), Some(i));
                } else if pending.len() > IN_FLIGHT / 2 {
                    break;
                }
                continue;
            }
            for _ in 0..4 {
                let data = vec![i as u8; (8 * BLOCK) as usize];
                let (command, data) = write(disk.nsid, start + z.next, data, BLOCK);
                pending.insert(io.host.send(command, data), Some(i));
                z.next += 8;
                z.in_flight += 1;
            }
        }
        let Some(done) = io.next() else {
            if io.stream.peek(&mut [0]).is_ok_and(|n| n == 0) {
                return;
            }
            continue;
        };
        if let Some(Some(i)) = pending.remove(&done.completion.cid) {
            assert_eq!(done.completion.status, 0, "{:x}", done.completion.status);
            let z = &mut zones[i];
            z.in_flight -= 1;
            if z.resets {
                (z.resets, z.next) = (false, 0);
            }
        }
    }
}
