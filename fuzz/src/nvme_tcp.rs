//! What a host sends over TCP: any bytes, cut anywhere. The connection answers, or ends with a reason; what it holds stays within its
//! bounds, and how the stream is cut changes neither the commands that come up nor what is sent.

use std::io::IoSlice;
use zoneplug_buf::Buffers;
use zoneplug_core::Nanos;
use zoneplug_nvme::spec::Completion;
use zoneplug_nvme::tcp::pdu::{INITIALIZE_LEN, Initialize, Kind};
use zoneplug_nvme::tcp::{Config, Connection, ConnectionEvent, Queue};

const NOW: Nanos = Nanos(0);
/// Small, so that short inputs reach the bounds.
const ENTRIES: u32 = 8;
const MAX_DATA: u32 = 64 << 10;

/// What the connection handed up and sent, and whether it has ended.
#[derive(Debug, PartialEq)]
struct Seen {
    commands: Vec<([u8; 64], Vec<u8>)>,
    sent: Vec<u8>,
    ended: bool,
}

struct Target {
    connection: Connection,
    buffers: Buffers,
    seen: Seen,
}

impl Target {
    fn receive(&mut self, mut bytes: &[u8], cut: usize) {
        while !bytes.is_empty() {
            let n = self.connection.receive(bytes, cut, &mut self.buffers, NOW);
            assert!(n > 0, "bytes are always taken");
            bytes = &bytes[n..];
            while self.turn() {}
        }
    }

    /// Answers each command at once, so that the order of what is sent does not depend on cuts. False: nothing happened.
    fn turn(&mut self) -> bool {
        let Some(event) = self.connection.next_event(&mut self.buffers) else { return false };
        match event {
            ConnectionEvent::Ended(_) => self.seen.ended = true,
            ConnectionEvent::Command(c) => {
                assert!(c.len <= MAX_DATA && c.data.as_ref().is_none_or(|d| d.len() >= c.len));
                assert!(self.connection.in_flight() <= ENTRIES as usize);
                let data = c.data.as_ref().map(|d| d.as_slice()[..c.len as usize].to_vec());
                self.seen.commands.push((c.command.0, data.unwrap_or_default()));
                let send = match c.data {
                    Some(data) => {
                        self.buffers.put(data);
                        None
                    }
                    None if c.len > 0 => {
                        let mut data = self.buffers.take(c.len);
                        data.as_mut_slice().fill(0x5a);
                        Some((data, c.len))
                    }
                    None => None,
                };
                let completion = Completion::default();
                self.connection.answer(c.slot, completion, send, &mut self.buffers, NOW);
            }
        }
        self.send();
        true
    }

    fn send(&mut self) {
        while self.connection.has_output() {
            let mut slices = [IoSlice::new(&[]); 3];
            let filled = self.connection.output(&mut slices);
            let before = self.seen.sent.len();
            for s in &slices[..filled] {
                self.seen.sent.extend_from_slice(s);
            }
            self.connection.sent(self.seen.sent.len() - before, &mut self.buffers, NOW);
        }
    }
}

fn run(bytes: &[u8], initialize: Option<u8>, cut: usize) -> Seen {
    let config = Config {
        max_data: MAX_DATA,
        max_h2c_data: 4096,
        max_bytes: u64::from(MAX_DATA),
        ..Config::default()
    };
    let mut connection = Connection::new(config, NOW);
    connection
        .set_queue(Queue { entries: ENTRIES, sq_flow_control: bytes.len().is_multiple_of(2) });
    let seen = Seen { commands: Vec::new(), sent: Vec::new(), ended: false };
    let mut t = Target { connection, buffers: Buffers::new(1 << 20), seen };
    if let Some(digests) = initialize {
        let ask = Initialize { version: 0, align: digests >> 2, digests: digests & 3, max: 0 };
        let ask: [u8; INITIALIZE_LEN] = ask.encode(Kind::IcReq);
        t.receive(&ask, usize::MAX);
    }
    t.receive(bytes, cut);
    t.send();
    t.seen
}

/// A stream of PDUs.
pub fn nvme_tcp(data: &[u8]) {
    let [flags, cut, stream @ ..] = data else { return };
    let initialize = (flags & 0x80 == 0).then_some(flags & 0x7f);
    let whole = run(stream, initialize, usize::MAX);
    let cut = run(stream, initialize, usize::from(*cut) + 1);
    assert!(whole == cut, "the cuts of the stream show");
}
