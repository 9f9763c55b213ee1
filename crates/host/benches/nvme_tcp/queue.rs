//! The host's side of an I/O queue, made to cost little: commands have no memory of their own, and what is read is not
//! looked at. `zoneplug_nvme::initiator` checks more and copies more.

use crate::case::{Access, BLOCK};
use crate::pipe::{Packet, Pipe};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Instant;
use zoneplug_nvme::initiator::{Data, connect, set_queues};
use zoneplug_nvme::spec::fabrics::{ANY_CONTROLLER, Configuration, property};
use zoneplug_nvme::spec::{COMPLETION_LEN, Command, Completion, opcode};
use zoneplug_nvme::tcp::IN_CAPSULE_MAX;
use zoneplug_nvme::tcp::pdu::{
    COMMON_LEN, Common, DATA_LEN, INITIALIZE_LEN, Initialize, Kind, Transfer, flag,
};

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a";
/// Entries of a queue.
pub(crate) const ENTRIES: u16 = 128;

fn packet(kind: Kind, rest: &[u8], body: usize, last: bool) -> Packet {
    let head_len = COMMON_LEN + rest.len();
    let plen = (head_len + body) as u32;
    let pdo = if body > 0 { head_len as u8 } else { 0 };
    let flags = if last { flag::LAST } else { 0 };
    let common = Common { kind: kind as u8, flags, hlen: head_len as u8, pdo, plen };
    Packet::new(&[&common.encode(), rest], body)
}

/// A connection and its commands.
pub(crate) struct Queue {
    pub(crate) pipe: Pipe<DATA_LEN>,
    commands: Commands,
}

/// The commands of a connection, as far as answers concern them.
struct Commands {
    max_h2c_data: u32,
    /// By identifier: bytes that a write has, and when it began.
    begun: Vec<(u32, Option<Instant>)>,
    free: Vec<u16>,
    last: Option<Completion>,
}

impl Queue {
    /// Connects a socket, and agrees on the protocol. `pump` has the server run.
    fn open(at: SocketAddr, pump: &mut dyn FnMut()) -> io::Result<Queue> {
        let mut pipe = Pipe::connect(at)?;
        let ask = Initialize { version: 0, align: 0, digests: 0, max: 0 };
        pipe.stream.write_all(&ask.encode(Kind::IcReq))?;
        let (mut answer, mut have) = ([0; INITIALIZE_LEN], 0);
        while have < answer.len() {
            pump();
            match pipe.stream.read(&mut answer[have..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => have += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        let commands = Commands {
            max_h2c_data: Initialize::decode(&answer).max,
            begun: vec![(0, None); usize::from(ENTRIES)],
            free: (0..ENTRIES).rev().collect(),
            last: None,
        };
        Ok(Queue { pipe, commands })
    }

    /// A command that is awaited.
    fn run(&mut self, (c, data): (Command, Data), pump: &mut dyn FnMut()) -> io::Result<u64> {
        let c = c.with_cid(0);
        let (c, body) = match &data {
            Data::Out(bytes) => (c.with_data_in_capsule(bytes.len() as u32), &bytes[..]),
            _ => (c.with_data_apart(0), &[][..]),
        };
        let pdu = packet(Kind::CapsuleCmd, &c.0, body.len(), false);
        self.pipe.stream.write_all(&[pdu.head(), body].concat())?;
        let cid = self.commands.free.pop().ok_or(ErrorKind::InvalidInput)?;
        assert_eq!(cid, 0, "nothing is in flight");
        let mut scratch = [0; 256];
        loop {
            pump();
            self.receive(&mut scratch, &mut |_| ())?;
            if let Some(completion) = self.commands.last.take() {
                return Ok(completion.result);
            }
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        usize::from(ENTRIES) - self.commands.free.len()
    }

    /// Queues a read or a write.
    pub(crate) fn push(&mut self, access: Access, begun: Option<Instant>) {
        let cid = self.commands.free.pop().expect("a free identifier");
        let bytes = access.blocks * BLOCK;
        self.commands.begun[usize::from(cid)] = (bytes, begun);
        let op = if access.is_read { opcode::READ } else { opcode::WRITE };
        let c = Command::new(op).with_nsid(access.disk + 1).with_cdw_pair(10, access.lba);
        let c = c.with_cdw(12, access.blocks - 1).with_cid(cid);
        let in_capsule = c.opcode() == opcode::WRITE && bytes <= IN_CAPSULE_MAX;
        let pdu = if in_capsule {
            let c = c.with_data_in_capsule(bytes);
            packet(Kind::CapsuleCmd, &c.0, bytes as usize, false)
        } else {
            packet(Kind::CapsuleCmd, &c.with_data_apart(bytes).0, 0, false)
        };
        self.pipe.output.push_back(pdu);
    }

    /// Reads what there is. Calls `done` with the beginning of each command that is complete.
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        done: &mut dyn FnMut(Option<Instant>),
    ) -> io::Result<()> {
        let Queue { pipe, commands } = self;
        pipe.receive(scratch, &mut |head, output| commands.header(head, output, done))
    }
}

impl Commands {
    /// Takes a header. Returns how many bytes of data follow.
    fn header(
        &mut self,
        head: &[u8; DATA_LEN],
        output: &mut VecDeque<Packet>,
        done: &mut dyn FnMut(Option<Instant>),
    ) -> usize {
        let common = Common::decode(head.first_chunk().expect("8 of 24 bytes"));
        let transfer = Transfer::decode(head);
        match Kind::from_u8(common.kind) {
            Some(Kind::CapsuleResp) => {
                let entry: [u8; COMPLETION_LEN] =
                    head[COMMON_LEN..].try_into().expect("16 of 24 bytes");
                let completion = Completion::decode(&entry);
                assert_eq!(completion.status, 0, "{completion:x?}");
                self.free.push(completion.cid);
                self.last = Some(completion);
                done(self.begun[usize::from(completion.cid)].1);
            }
            Some(Kind::C2hData) => return common.plen as usize - DATA_LEN,
            Some(Kind::R2t) => {
                let mut t = transfer;
                let end = t.offset + t.len;
                assert!(end <= self.begun[usize::from(t.cid)].0, "{t:?}");
                while t.offset < end {
                    t.len = (end - t.offset).min(self.max_h2c_data);
                    let none = Common { kind: 0, flags: 0, hlen: 0, pdo: 0, plen: 0 };
                    let rest = &t.encode(none)[COMMON_LEN..];
                    let last = t.offset + t.len == end;
                    output.push_back(packet(Kind::H2cData, rest, t.len as usize, last));
                    t.offset += t.len;
                }
            }
            kind => panic!("the server sent {kind:?} {common:?}"),
        }
        0
    }
}

/// The queues of a host: an admin queue, which keeps its controller, and I/O queues.
pub(crate) struct Host {
    _admin: Queue,
    pub(crate) queues: Vec<Queue>,
}

impl Host {
    /// Connects `queues` I/O queues. `pump` has the server run.
    pub(crate) fn connect(
        at: SocketAddr,
        nqn: &str,
        queues: u16,
        mut pump: impl FnMut(),
    ) -> io::Result<Host> {
        let pump: &mut dyn FnMut() = &mut pump;
        let mut admin = Queue::open(at, pump)?;
        let id = admin.run(connect(0, 32, ANY_CONTROLLER, nqn, HOST), pump)? as u16;
        let start = Command::property_set(property::CC, Configuration::START.encode());
        admin.run((start, Data::None), pump)?;
        admin.run(set_queues(queues), pump)?;
        let io = |qid| {
            let mut q = Queue::open(at, pump)?;
            q.run(connect(qid, ENTRIES, id, nqn, HOST), pump)?;
            Ok(q)
        };
        let queues = (1..=queues).map(io).collect::<io::Result<_>>()?;
        Ok(Host { _admin: admin, queues })
    }
}
