//! The host's side of an I/O queue, made to cost little: commands have no memory of their own, and what is read is not
//! looked at. `zoneplug_nvme::initiator` checks more and copies more.

use crate::case::{Access, BLOCK};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;
use zoneplug_nvme::initiator::{Data, connect, set_queues};
use zoneplug_nvme::spec::fabrics::{ANY_CONTROLLER, Configuration, property};
use zoneplug_nvme::spec::{COMPLETION_LEN, Command, Completion, opcode};
use zoneplug_nvme::tcp::IN_CAPSULE_MAX;
use zoneplug_nvme::tcp::pdu::{
    CAPSULE_COMMAND_LEN, COMMON_LEN, Common, DATA_LEN, INITIALIZE_LEN, Initialize, Kind, Transfer,
    flag,
};

/// What all writes write. The longest transfer.
static DATA: [u8; 1 << 20] = [0x5a; 1 << 20];
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a";
/// Entries of a queue.
pub(crate) const ENTRIES: u16 = 128;
const SLICES: usize = 64;

/// A PDU that is to be sent, followed by the first `body` bytes of [`DATA`].
struct Pdu {
    head: [u8; CAPSULE_COMMAND_LEN],
    head_len: usize,
    body: usize,
}

impl Pdu {
    fn new(kind: Kind, rest: &[u8], body: usize, last: bool) -> Pdu {
        let head_len = COMMON_LEN + rest.len();
        let plen = (head_len + body) as u32;
        let pdo = if body > 0 { head_len as u8 } else { 0 };
        let flags = if last { flag::LAST } else { 0 };
        let common = Common { kind: kind as u8, flags, hlen: head_len as u8, pdo, plen };
        let mut head = [0; CAPSULE_COMMAND_LEN];
        head[..COMMON_LEN].copy_from_slice(&common.encode());
        head[COMMON_LEN..head_len].copy_from_slice(rest);
        Pdu { head, head_len, body }
    }
}

/// A connection and its commands.
pub(crate) struct Queue {
    stream: TcpStream,
    max_h2c_data: u32,
    output: VecDeque<Pdu>,
    /// Bytes of the first PDU that were sent.
    sent: usize,
    /// The header that is being read, and how much of it is there.
    head: [u8; DATA_LEN],
    have: usize,
    /// Bytes of data that come before the next header.
    skip: usize,
    /// By identifier: bytes that a write has, and when it began.
    commands: Vec<(u32, Option<Instant>)>,
    free: Vec<u16>,
    last: Option<Completion>,
}

impl Queue {
    /// Connects a socket, and agrees on the protocol. `pump` has the server run.
    fn open(at: SocketAddr, pump: &mut dyn FnMut()) -> io::Result<Queue> {
        let mut stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let ask = Initialize { version: 0, align: 0, digests: 0, max: 0 };
        stream.write_all(&ask.encode(Kind::IcReq))?;
        let (mut answer, mut have) = ([0; INITIALIZE_LEN], 0);
        while have < answer.len() {
            pump();
            match stream.read(&mut answer[have..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => have += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Queue {
            stream,
            max_h2c_data: Initialize::decode(&answer).max,
            output: VecDeque::new(),
            sent: 0,
            head: [0; DATA_LEN],
            have: 0,
            skip: 0,
            commands: vec![(0, None); usize::from(ENTRIES)],
            free: (0..ENTRIES).rev().collect(),
            last: None,
        })
    }

    /// A command that is awaited.
    fn run(&mut self, (c, data): (Command, Data), pump: &mut dyn FnMut()) -> io::Result<u64> {
        let c = c.with_cid(0);
        let (c, body) = match &data {
            Data::Out(bytes) => (c.with_data_in_capsule(bytes.len() as u32), &bytes[..]),
            _ => (c.with_data_apart(0), &[][..]),
        };
        let pdu = Pdu::new(Kind::CapsuleCmd, &c.0, body.len(), false);
        self.stream.write_all(&[&pdu.head[..pdu.head_len], body].concat())?;
        let cid = self.free.pop().ok_or(ErrorKind::InvalidInput)?;
        assert_eq!(cid, 0, "nothing is in flight");
        let mut scratch = [0; 256];
        loop {
            pump();
            self.receive(&mut scratch, &mut |_| ())?;
            if let Some(completion) = self.last.take() {
                return Ok(completion.result);
            }
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn in_flight(&self) -> usize {
        usize::from(ENTRIES) - self.free.len()
    }

    /// Queues a read or a write.
    pub(crate) fn push(&mut self, access: Access, begun: Option<Instant>) {
        let cid = self.free.pop().expect("a free identifier");
        let bytes = access.blocks * BLOCK;
        self.commands[usize::from(cid)] = (bytes, begun);
        let op = if access.is_read { opcode::READ } else { opcode::WRITE };
        let c = Command::new(op).with_nsid(access.disk + 1).with_cdw_pair(10, access.lba);
        let c = c.with_cdw(12, access.blocks - 1).with_cid(cid);
        let in_capsule = c.opcode() == opcode::WRITE && bytes <= IN_CAPSULE_MAX;
        let pdu = if in_capsule {
            let c = c.with_data_in_capsule(bytes);
            Pdu::new(Kind::CapsuleCmd, &c.0, bytes as usize, false)
        } else {
            Pdu::new(Kind::CapsuleCmd, &c.with_data_apart(bytes).0, 0, false)
        };
        self.output.push_back(pdu);
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Sends what there is room for.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let (mut filled, mut skip) = (0, self.sent);
            for part in self.output.iter().flat_map(|p| [&p.head[..p.head_len], &DATA[..p.body]]) {
                let skipped = skip.min(part.len());
                skip -= skipped;
                if part.len() > skipped && filled < SLICES {
                    slices[filled] = IoSlice::new(&part[skipped..]);
                    filled += 1;
                }
                if filled == SLICES {
                    break;
                }
            }
            match self.stream.write_vectored(&slices[..filled]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
            while let Some(len) = self.output.front().map(|p| p.head_len + p.body)
                && self.sent >= len
            {
                self.sent -= len;
                self.output.pop_front();
            }
        }
        Ok(())
    }

    /// Reads what there is. Calls `done` with the beginning of each command that is complete.
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        done: &mut dyn FnMut(Option<Instant>),
    ) -> io::Result<()> {
        loop {
            let n = match self.stream.read(scratch) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            };
            self.take(&scratch[..n], done);
            if n < scratch.len() {
                return Ok(());
            }
        }
    }

    fn take(&mut self, mut bytes: &[u8], done: &mut dyn FnMut(Option<Instant>)) {
        while !bytes.is_empty() {
            let data = self.skip.min(bytes.len());
            (self.skip, bytes) = (self.skip - data, &bytes[data..]);
            let n = (DATA_LEN - self.have).min(bytes.len());
            if data > 0 || n == 0 {
                continue;
            }
            self.head[self.have..self.have + n].copy_from_slice(&bytes[..n]);
            (self.have, bytes) = (self.have + n, &bytes[n..]);
            if self.have == DATA_LEN {
                self.have = 0;
                self.header(done);
            }
        }
    }

    fn header(&mut self, done: &mut dyn FnMut(Option<Instant>)) {
        let common = Common::decode(self.head.first_chunk().expect("8 of 24 bytes"));
        let transfer = Transfer::decode(&self.head);
        match Kind::from_u8(common.kind) {
            Some(Kind::CapsuleResp) => {
                let entry: [u8; COMPLETION_LEN] =
                    self.head[COMMON_LEN..].try_into().expect("16 of 24 bytes");
                let completion = Completion::decode(&entry);
                assert_eq!(completion.status, 0, "{completion:x?}");
                self.free.push(completion.cid);
                self.last = Some(completion);
                done(self.commands[usize::from(completion.cid)].1);
            }
            Some(Kind::C2hData) => self.skip = common.plen as usize - DATA_LEN,
            Some(Kind::R2t) => {
                let mut t = transfer;
                let end = t.offset + t.len;
                assert!(end <= self.commands[usize::from(t.cid)].0, "{t:?}");
                while t.offset < end {
                    t.len = (end - t.offset).min(self.max_h2c_data);
                    let none = Common { kind: 0, flags: 0, hlen: 0, pdo: 0, plen: 0 };
                    let rest = &t.encode(none)[COMMON_LEN..];
                    let last = t.offset + t.len == end;
                    self.output.push_back(Pdu::new(Kind::H2cData, rest, t.len as usize, last));
                    t.offset += t.len;
                }
            }
            kind => panic!("the server sent {kind:?} {common:?}"),
        }
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
        let id = admin.run(connect(0, 32, ANY_CONTROLLER, (nqn, HOST)), pump)? as u16;
        let start = Command::property_set(property::CC, Configuration::START.encode());
        admin.run((start, Data::None), pump)?;
        admin.run(set_queues(queues), pump)?;
        let io = |qid| {
            let mut q = Queue::open(at, pump)?;
            q.run(connect(qid, ENTRIES, id, (nqn, HOST)), pump)?;
            Ok(q)
        };
        let queues = (1..=queues).map(io).collect::<io::Result<_>>()?;
        Ok(Host { _admin: admin, queues })
    }
}
