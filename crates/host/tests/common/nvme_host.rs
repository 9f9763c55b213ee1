//! A host that connects to a server through a real socket.

#![allow(dead_code)]

#[path = "soon.rs"]
mod soon;

pub(crate) use soon::soon;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use zoneplug_host::HostedDisk;
use zoneplug_host::nvme_tcp::{Disk, Key, NvmeTcp, NvmeTcpOptions};
use zoneplug_nvme::dhchap::Random;
use zoneplug_nvme::initiator::{
    Authenticate, Data, Done, Initiator, Options, connect, read, report_zones, set_queues, write,
    zone_append,
};
use zoneplug_nvme::spec::Command;
use zoneplug_nvme::spec::fabrics::{ANY_CONTROLLER, Configuration, property};

pub(crate) const NQN: &str = "nqn.2026-11.dev.zoneplug:test";
pub(crate) const HOST: &str =
    "nqn.2014-08.org.nvmexpress:uuid:5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a";
/// The key of the usual host.
pub(crate) const KEY: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
/// A key of the server, or a wrong one.
pub(crate) const OTHER_KEY: &str =
    "DHHC-1:02:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTvGwQfg==:";
/// Connect Invalid Host, with DNR.
pub(crate) const INVALID_HOST: u16 = 0x4184;
pub(crate) const MEM: &str = "mem,zones=8,zone-size=4M";
pub(crate) const BLOCK: u32 = 4096;
pub(crate) const ZONE: u64 = (4 << 20) / BLOCK as u64;

pub(crate) fn disk(spec: &str) -> Disk {
    let disk = HostedDisk::open_spec(spec).unwrap();
    Disk { disk, spec: spec.parse().unwrap(), tags: None, known: None }
}

pub(crate) fn options() -> NvmeTcpOptions {
    NvmeTcpOptions::new("127.0.0.1:0".parse().unwrap(), NQN)
}

pub(crate) fn server(specs: &[&str], threads: usize) -> NvmeTcp {
    let options = NvmeTcpOptions { threads, ..options() };
    NvmeTcp::start(&options, specs.iter().map(|s| disk(s)).collect(), || ()).unwrap()
}

/// The command that makes a controller ready.
pub(crate) fn enable() -> (Command, Data) {
    (Command::property_set(property::CC, Configuration::START.encode()), Data::None)
}

/// The steps of the usual host, which knows the key `own` and wants the controller to know `ctrl`, with these random bytes.
fn steps_with(own: &str, ctrl: Option<&str>, bytes: &[u8; 132]) -> Authenticate {
    let key = |text| Key::parse(text).unwrap();
    Authenticate::new(NQN, HOST, &key(own), ctrl.map(key).as_ref(), 5, Random::new(bytes))
}

/// The steps of the usual host with its key.
pub(crate) fn steps(ctrl: Option<&str>) -> Authenticate {
    steps_with(KEY, ctrl, &[7; 132])
}

/// A queue of a host.
pub(crate) struct Queue {
    pub(crate) stream: TcpStream,
    pub(crate) host: Initiator,
}

impl Queue {
    pub(crate) fn open(server: &NvmeTcp, options: Options) -> Queue {
        Queue::open_at(server.address(), options)
    }

    pub(crate) fn open_at(address: SocketAddr, options: Options) -> Queue {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Queue { stream, host: Initiator::new(options) }
    }

    pub(crate) fn send(&mut self, (command, data): (Command, Data)) -> u16 {
        self.host.send(command, data)
    }

    pub(crate) fn flush(&mut self) {
        let bytes = self.host.take_output();
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next command that is complete.
    pub(crate) fn next(&mut self) -> Done {
        let mut bytes = [0; 70_000];
        loop {
            self.flush();
            if let Some(done) = self.host.done() {
                return done;
            }
            let n = self.stream.read(&mut bytes).unwrap();
            assert!(n > 0, "the server has closed the connection");
            self.host.received(&bytes[..n]).unwrap();
        }
    }

    /// One command.
    pub(crate) fn run(&mut self, command: (Command, Data)) -> Done {
        let cid = self.send(command);
        let done = self.next();
        assert_eq!(done.completion.cid, cid);
        done
    }

    pub(crate) fn ok(&mut self, command: (Command, Data)) -> Done {
        let done = self.run(command);
        assert_eq!(done.completion.status, 0, "{:x}", done.completion.status);
        done
    }

    /// A queue of the usual host that is connected, and the result of that.
    pub(crate) fn connected_at(address: SocketAddr, qid: u16, id: u16) -> (Queue, u64) {
        let mut queue = Queue::open_at(address, Options::default());
        let result = queue.ok(connect(qid, 32, id, NQN, HOST)).completion.result;
        (queue, result)
    }

    /// Authenticates the usual host, which knows the key `own`, and wants the controller to know `ctrl`. The error is what
    /// the host or the server found wrong.
    pub(crate) fn authenticate(&mut self, own: &str, ctrl: Option<&str>) -> Result<(), String> {
        let mut bytes = [0; 132];
        for (i, b) in bytes.iter_mut().enumerate() {
            *b = (i as u8).wrapping_mul(37) ^ own.as_bytes()[i % own.len()];
        }
        let mut steps = steps_with(own, ctrl, &bytes);
        let mut received = Vec::new();
        while let Some(command) = steps.next(&received)? {
            received = self.ok(command).data;
        }
        Ok(())
    }

    /// Carries out the next `n` steps of authentication, the first of which needs no data of the controller. Returns the data
    /// of the last one.
    pub(crate) fn carry_out(&mut self, steps: &mut Authenticate, n: usize) -> Vec<u8> {
        let mut received = Vec::new();
        for _ in 0..n {
            received = self.ok(steps.next(&received).unwrap().unwrap()).data;
        }
        received
    }

    /// An admin queue of the usual host whose controller is ready, and the number of that.
    pub(crate) fn admin(server: &NvmeTcp, options: Options) -> (Queue, u16) {
        Queue::admin_of(server, HOST, options)
    }

    /// The same of another host.
    pub(crate) fn admin_of(server: &NvmeTcp, host: &str, options: Options) -> (Queue, u16) {
        Queue::open(server, options).into_admin(NQN, host)
    }

    /// An admin queue of the usual host whose controller is ready, and its first I/O queue, at the address of a subsystem.
    pub(crate) fn pair_at(address: &str, nqn: &str) -> (Queue, Queue) {
        let open = || Queue::open_at(address.parse().unwrap(), Options::default());
        let (admin, id) = open().into_admin(nqn, HOST);
        let mut io = open();
        io.ok(connect(1, 128, id, nqn, HOST));
        (admin, io)
    }

    /// Connects the admin queue of a subsystem and a host, and makes its controller ready.
    fn into_admin(mut self, nqn: &str, host: &str) -> (Queue, u16) {
        let id = self.ok(connect(0, 32, ANY_CONTROLLER, nqn, host)).completion.result as u16;
        self.ok(enable());
        self.ok(set_queues(16));
        (self, id)
    }

    pub(crate) fn io(server: &NvmeTcp, id: u16, qid: u16, options: Options) -> Queue {
        Queue::io_of(server, HOST, id, qid, options)
    }

    pub(crate) fn io_of(
        server: &NvmeTcp,
        host: &str,
        id: u16,
        qid: u16,
        options: Options,
    ) -> Queue {
        let mut queue = Queue::open(server, options);
        queue.ok(connect(qid, 128, id, NQN, host));
        queue
    }
}

pub(crate) fn replayed(server: &NvmeTcp) -> u64 {
    server.counters(0).replayed
}

pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 512) as u8 ^ (i as u8) ^ seed).collect()
}

/// A controller with one I/O queue.
pub(crate) struct Host {
    pub(crate) admin: Queue,
    pub(crate) io: Queue,
}

impl Host {
    pub(crate) fn new(server: &NvmeTcp, nqn: &str) -> Host {
        let (admin, id) = Queue::admin_of(server, nqn, Options::default());
        let io = Queue::io_of(server, nqn, id, 1, Options::default());
        Host { admin, io }
    }

    /// The write pointer of zone `n`, in blocks from its start.
    pub(crate) fn written(&mut self, n: u64) -> u64 {
        let report = self.io.ok(report_zones(1, n * ZONE, 128)).data;
        u64::from_le_bytes(report[64 + 24..64 + 32].try_into().unwrap()) - n * ZONE
    }

    pub(crate) fn write(&mut self, at: u64, data: &[u8]) -> u16 {
        self.io.run(write(1, at, data.to_vec(), BLOCK)).completion.status
    }

    pub(crate) fn append(&mut self, at: u64, data: &[u8]) -> u64 {
        self.append_to(1, at, data)
    }

    pub(crate) fn append_to(&mut self, nsid: u32, at: u64, data: &[u8]) -> u64 {
        self.io.ok(zone_append(nsid, at, data.to_vec(), BLOCK)).completion.result
    }

    pub(crate) fn read(&mut self, at: u64, blocks: u32) -> Vec<u8> {
        self.io.ok(read(1, at, blocks, BLOCK)).data
    }

    /// Sends these writes and appends to a disk, behind reads whose answers fill all buffers on the way, because nothing is read any more.
    /// They have landed then, and this host's machine acknowledges none of their answers.
    pub(crate) fn send_in_vain(
        &mut self,
        server: &NvmeTcp,
        disk: usize,
        commands: Vec<(Command, Data)>,
    ) {
        self.io.ok(write(1, ZONE, pattern(1 << 20, 5), BLOCK));
        let landed = server.counters(disk).writes + commands.len() as u64;
        let reads = (0..32).map(|_| read(1, ZONE, 256, BLOCK));
        reads.chain(commands).for_each(|c| _ = self.io.send(c));
        self.io.flush();
        soon("they have landed", || server.counters(disk).writes == landed);
    }

    /// Sends commands with data in their capsules, and ends both connections before they are answered. The server reads what
    /// was sent before it sees the end.
    pub(crate) fn lose(mut self, server: &NvmeTcp, commands: Vec<(Command, Data)>) {
        commands.into_iter().for_each(|c| _ = self.io.send(c));
        self.io.flush();
        let queues = || server.hosts().iter().map(|h| h.queues).sum::<usize>();
        let before = queues();
        drop(self.io);
        soon("its end was seen", || queues() < before);
        drop(self.admin);
    }
}
