//! An initiator that does as little as one can: it writes what does not change, and looks at nothing that it reads.

use crate::case::{Access, BLOCK};
use crate::pipe::{Packet, Pipe};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Instant;
use zoneplug_scsi::iscsi::{HEADER_LEN, Header, opcode};

/// Most commands of a session.
const COMMANDS: u32 = 128;
/// FirstBurstLength and MaxRecvDataSegmentLength of Linux, which the target agrees to.
const BURST: u32 = 256 << 10;
/// Flags of a command.
const FINAL: u8 = 0x80;
const READ: u8 = 0x40;
const WRITE: u8 = 0x20;

/// A session and its commands.
pub(crate) struct Queue {
    pub(crate) pipe: Pipe<HEADER_LEN>,
    commands: Commands,
    cmd_sn: u32,
}

/// The commands of a session, as far as answers concern them.
struct Commands {
    /// By tag: when the command began.
    begun: Vec<Option<Instant>>,
    free: Vec<u32>,
    exp_stat_sn: u32,
    /// The status of the login.
    login: Option<[u8; 2]>,
}

fn word(h: &Header, at: usize) -> u32 {
    u32::from_be_bytes(h.0[at..at + 4].try_into().expect("4 bytes"))
}

impl Queue {
    /// Connects a socket, and logs in. `pump` has the server run.
    fn open(at: SocketAddr, target: &str, isid: u8, pump: &mut dyn FnMut()) -> io::Result<Queue> {
        let mut pipe = Pipe::connect(at)?;
        let keys = format!(
            "InitiatorName=iqn.2026-11.dev.zoneplug:load{isid}\0TargetName={target}\0InitialR2T=No\0\
             MaxRecvDataSegmentLength={BURST}\0FirstBurstLength={BURST}\0"
        );
        // The last step of the login: T, from LoginOperationalNegotiation to FullFeaturePhase.
        let mut h = Header::new(opcode::LOGIN | 0x40).with_flags(0x87).with_word(24, 1);
        h.0[13] = isid;
        h.0[5..8].copy_from_slice(&(keys.len() as u32).to_be_bytes()[1..]);
        let padded = [keys.as_bytes(), &[0; 3]].concat();
        pipe.stream.write_all(&[&h.0[..], &padded[..keys.len().next_multiple_of(4)]].concat())?;
        let (begun, free) = (vec![None; COMMANDS as usize], (0..COMMANDS).rev().collect());
        let commands = Commands { begun, free, exp_stat_sn: 0, login: None };
        let mut queue = Queue { pipe, commands, cmd_sn: 1 };
        let mut scratch = [0; 4096];
        while queue.commands.login.is_none() {
            pump();
            queue.receive(&mut scratch, &mut |_| ())?;
        }
        assert_eq!(queue.commands.login, Some([0, 0]), "the login failed");
        Ok(queue)
    }

    pub(crate) fn in_flight(&self) -> usize {
        COMMANDS as usize - self.commands.free.len()
    }

    /// Queues a read or a write.
    pub(crate) fn push(&mut self, access: Access, begun: Option<Instant>) {
        let tag = self.commands.free.pop().expect("a free tag");
        self.commands.begun[tag as usize] = begun;
        let bytes = access.blocks * BLOCK;
        let (way, op) = if access.is_read { (READ, 0x88) } else { (WRITE, 0x8a) };
        let body = if access.is_read { 0 } else { bytes.min(BURST) };
        let mut h = Header::new(opcode::COMMAND)
            .with_flags(FINAL | way)
            .with_word(16, tag)
            .with_word(20, bytes)
            .with_word(24, self.cmd_sn)
            .with_word(28, self.commands.exp_stat_sn);
        h.0[9] = access.disk as u8;
        h.0[32] = op;
        h.0[34..42].copy_from_slice(&access.lba.to_be_bytes());
        h.0[42..46].copy_from_slice(&access.blocks.to_be_bytes());
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        self.pipe.output.push_back(packet(h, body));
    }

    /// Reads what there is. Calls `done` with the beginning of each command that is complete.
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        done: &mut dyn FnMut(Option<Instant>),
    ) -> io::Result<()> {
        let Queue { pipe, commands, .. } = self;
        pipe.receive(scratch, &mut |head, output| commands.header(Header(*head), output, done))
    }
}

fn packet(mut head: Header, body: u32) -> Packet {
    head.0[5..8].copy_from_slice(&body.to_be_bytes()[1..]);
    Packet::new(&[&head.0], body as usize)
}

impl Commands {
    /// Takes a header. Returns how many bytes of data follow.
    fn header(
        &mut self,
        h: Header,
        output: &mut VecDeque<Packet>,
        done: &mut dyn FnMut(Option<Instant>),
    ) -> usize {
        let data = h.data_len().next_multiple_of(4);
        // Data without a status carry no StatSN.
        let ends = match h.opcode() {
            opcode::RESPONSE => Some(h.0[3]),
            opcode::DATA_IN if h.flags() & 1 != 0 => Some(h.0[3]),
            opcode::DATA_IN | opcode::R2T => None,
            opcode::LOGIN_RESPONSE => {
                self.login = Some([h.0[36], h.0[37]]);
                self.exp_stat_sn = word(&h, 24).wrapping_add(1);
                return data;
            }
            other => panic!("the target sent {other:#x}"),
        };
        if let Some(status) = ends {
            assert_eq!(status, 0, "{h:?}");
            self.exp_stat_sn = word(&h, 24).wrapping_add(1);
            self.free.push(h.task_tag());
            done(self.begun[h.task_tag() as usize]);
        } else if h.opcode() == opcode::R2T {
            let (mut at, end) = (word(&h, 40), word(&h, 40) + word(&h, 44));
            for data_sn in 0.. {
                let len = (end - at).min(BURST);
                let last = at + len == end;
                let out = Header::new(opcode::DATA_OUT)
                    .with_flags(if last { FINAL } else { 0 })
                    .with_word(16, h.task_tag())
                    .with_word(20, h.word20())
                    .with_word(28, self.exp_stat_sn)
                    .with_word(36, data_sn)
                    .with_word(40, at);
                output.push_back(packet(out, len));
                at += len;
                if last {
                    break;
                }
            }
        }
        data
    }
}

/// The sessions of an initiator each.
pub(crate) struct Host {
    pub(crate) queues: Vec<Queue>,
}

impl Host {
    /// Connects `queues` sessions. `pump` has the server run.
    pub(crate) fn connect(
        at: SocketAddr,
        target: &str,
        queues: u16,
        mut pump: impl FnMut(),
    ) -> io::Result<Host> {
        let open = |n| Queue::open(at, target, n as u8, &mut pump);
        Ok(Host { queues: (1..=queues).map(open).collect::<io::Result<_>>()? })
    }
}
