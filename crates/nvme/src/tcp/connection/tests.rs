//! A connection over a wire that splits the stream anywhere, and with peers that break the protocol. Codes such as K1
//! are requirements of docs/requirements.md.

mod bounds;

use super::*;
use crate::initiator::{Data, Done, Initiator, Options, read, write};
use crate::spec::opcode;
use crate::tcp::pdu::{Common, Initialize, Kind, Transfer, fatal, field, flag};
use crate::tcp::{Digest, IN_CAPSULE_MAX};
use proptest::prelude::*;

const NOW: Nanos = Nanos(1_000);
pub(super) const BLOCK: u32 = 512;

/// A controller with its own memory: a read returns the blocks that were written.
pub(super) struct Controller {
    pub(super) connection: Connection,
    pub(super) buffers: Buffers,
    memory: Vec<u8>,
    /// Commands that are answered in the next turn, so that several are in flight.
    pub(super) taken: VecDeque<Received>,
    ended: Option<Ended>,
    largest: u64,
}

impl Controller {
    pub(super) fn new(config: Config, queue: Queue) -> Controller {
        let mut connection = Connection::new(config, NOW);
        connection.set_queue(queue);
        let (buffers, memory) = (Buffers::new(1 << 20), vec![0; 1 << 20]);
        Controller { connection, buffers, memory, taken: VecDeque::new(), ended: None, largest: 0 }
    }

    /// Receives `bytes`, at most `cut` at a time.
    pub(super) fn receive(&mut self, mut bytes: &[u8], cut: usize) {
        while !bytes.is_empty() {
            let n = self.connection.receive(bytes, cut, &mut self.buffers, NOW);
            assert!(n > 0, "a connection always takes bytes");
            bytes = &bytes[n..];
            self.events();
        }
    }

    pub(super) fn events(&mut self) {
        while let Some(event) = self.connection.next_event(&mut self.buffers) {
            match event {
                ConnectionEvent::Command(c) => self.taken.push_back(c),
                ConnectionEvent::Ended(e) => self.ended = Some(e),
            }
        }
        self.largest = self.largest.max(self.connection.bytes);
    }

    pub(super) fn answer(&mut self) {
        while let Some(c) = self.taken.pop_front() {
            let at = c.command.cdw_pair(10) as usize * BLOCK as usize;
            let range = at..at + c.len as usize;
            let mut send = None;
            match c.command.opcode() {
                opcode::WRITE => {
                    let data = c.data.expect("a write has data");
                    self.memory[range].copy_from_slice(&data.as_slice()[..c.len as usize]);
                    self.buffers.put(data);
                }
                opcode::READ => {
                    let mut data = self.buffers.take(c.len);
                    data.write(0, &self.memory[range]);
                    send = Some((data, c.len));
                }
                _ => assert!(c.data.is_none()),
            }
            let completion = Completion::default();
            self.connection.answer(c.slot, completion, send, &mut self.buffers, NOW);
            self.events();
        }
    }

    /// Sends everything, at most `cut` bytes at a time.
    pub(super) fn send(&mut self, cut: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while self.connection.has_output() {
            let mut slices = [IoSlice::new(&[]); 5];
            let filled = self.connection.output(&mut slices);
            let bytes: Vec<u8> =
                slices[..filled].iter().flat_map(|s| s.iter().copied()).take(cut).collect();
            self.connection.sent(bytes.len(), &mut self.buffers, NOW);
            all.extend(bytes);
        }
        self.events();
        all
    }
}

pub(super) fn queue(sq_flow_control: bool) -> Queue {
    Queue { entries: 128, sq_flow_control }
}

/// Runs the host against the controller until nothing moves. Returns what the controller sent.
pub(super) fn exchange(host: &mut Initiator, target: &mut Controller, cuts: [usize; 2]) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let out = host.take_output();
        target.receive(&out, cuts[0]);
        target.answer();
        let back = target.send(cuts[1]);
        if out.is_empty() && back.is_empty() {
            return all;
        }
        for part in back.chunks(cuts[1]) {
            host.received(part).unwrap();
        }
        all.extend(back);
    }
}

fn all_done(host: &mut Initiator) -> Vec<Done> {
    let mut all: Vec<_> = std::iter::from_fn(|| host.done()).collect();
    all.sort_by_key(|d| d.completion.cid);
    all
}

pub(super) fn pattern(len: u32, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 7) as u8 ^ seed).collect()
}

/// Writes of all sizes, in capsules and fetched, and their reads. Returns the bytes that the controller sent, and the
/// most bytes of data that it held.
fn workload(options: Options, config: Config, flow: bool, cuts: [usize; 2]) -> (Vec<u8>, u64) {
    let mut target = Controller::new(config, queue(flow));
    let mut host = Initiator::new(options);
    let sizes = [512, 4096, 8192, 8704, 20_480, 65_536, 512];
    let mut at = 0;
    let mut bytes = Vec::new();
    let mut written = Vec::new();
    for (i, size) in sizes.into_iter().enumerate() {
        let data = pattern(size, i as u8);
        let (c, d) = write(1, at, data.clone(), BLOCK);
        host.send(c, d);
        written.push((at, data));
        at += u64::from(size / BLOCK);
    }
    bytes.extend(exchange(&mut host, &mut target, cuts));
    assert!(all_done(&mut host).iter().all(|d| d.completion.status == 0));
    for (at, data) in &written {
        let (c, d) = read(1, *at, data.len() as u32 / BLOCK, BLOCK);
        host.send(c, d);
    }
    host.send(Command::new(opcode::FLUSH), Data::None);
    bytes.extend(exchange(&mut host, &mut target, cuts));
    let done = all_done(&mut host);
    assert_eq!(done.len(), sizes.len() + 1);
    for (d, (_, data)) in done.iter().zip(&written) {
        assert!(d.completion.status == 0 && d.data == *data);
    }
    assert_eq!((host.in_flight(), target.connection.in_flight()), (0, 0));
    assert_eq!(target.connection.bytes, 0);
    assert!(target.connection.next_deadline().is_none());
    (bytes, target.largest)
}

pub(super) fn digests(header: bool, data: bool) -> Digests {
    Digests { header, data }
}

/// K1. The stream arrives in pieces of any length, or all at once.
#[test]
fn every_cut_of_the_stream_gives_the_same() {
    for (header, data, align, flow) in [
        (false, false, 0, true),
        (true, false, 1, false),
        (false, true, 31, true),
        (true, true, 6, false),
    ] {
        let options = Options { digests: digests(header, data), align, in_capsule: 8192 };
        let whole = workload(options, Config::default(), flow, [usize::MAX; 2]).0;
        for cuts in [[1, 1], [7, 3], [72, 24], [100, 4096], [5000, 17], [16 << 10, 1]] {
            let cut = workload(options, Config::default(), flow, cuts).0;
            assert!(cut == whole, "{options:?} {cuts:?}");
        }
    }
}

/// Successful reads have a response capsule only with SQ flow control, for which the host needs the head of its queue.
#[test]
fn a_read_needs_no_response_without_flow_control() {
    let (with, _) = workload(Options::default(), Config::default(), true, [usize::MAX; 2]);
    let (without, _) = workload(Options::default(), Config::default(), false, [usize::MAX; 2]);
    assert_eq!(with.len() - without.len(), 7 * 24);
}

/// K3. Commands beyond the memory limit wait, in their order.
#[test]
fn commands_wait_for_memory_in_their_order() {
    let config = Config { max_bytes: 70_000, ..Config::default() };
    let (bytes, largest) = workload(Options::default(), config, true, [usize::MAX; 2]);
    let (all, more) = workload(Options::default(), Config::default(), true, [usize::MAX; 2]);
    assert!(largest <= 70_000 && more > 70_000, "{largest} {more}");
    assert_eq!(bytes.len(), all.len());
    // A command larger than the limit is let through alone.
    let config = Config { max_bytes: 4096, ..Config::default() };
    assert_eq!(workload(Options::default(), config, true, [usize::MAX; 2]).1, 65_536);
}

#[test]
fn long_data_come_in_several_pdus() {
    let config = Config { max_h2c_data: 4096, ..Config::default() };
    workload(
        Options { digests: digests(false, true), ..Options::default() },
        config,
        true,
        [99, 99],
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_bytes_never_panic(
        noise in proptest::collection::vec((0usize..4000, any::<u8>()), 0..6),
        cut in 1usize..5000,
        header in any::<bool>(),
        data in any::<bool>(),
    ) {
        let options = Options { digests: digests(header, data), ..Options::default() };
        let mut host = Initiator::new(options);
        let mut target = Controller::new(Config::default(), queue(true));
        exchange(&mut host, &mut target, [usize::MAX; 2]);
        for i in 0..4 {
            let (c, d) = write(1, i * 64, pattern(if i % 2 == 0 { 512 } else { 9216 }, 1), BLOCK);
            host.send(c, d);
        }
        let mut bytes = host.take_output();
        let len = bytes.len();
        for (at, value) in noise {
            bytes[at % len] = value;
        }
        target.receive(&bytes, cut);
        // Commands that remain may address nonsense by now.
        target.taken.clear();
        target.send(usize::MAX);
    }
}

/// A connection that is initialized and has a write of 12 KiB whose data it has requested with tag 0.
fn fetching(digests: Digests) -> Controller {
    let mut target =
        Controller::new(Config { max_h2c_data: 8192, ..Config::default() }, queue(true));
    let mut host = Initiator::new(Options { digests, ..Options::default() });
    exchange(&mut host, &mut target, [usize::MAX; 2]);
    let (c, d) = write(1, 0, pattern(12_288, 3), BLOCK);
    host.send(c.with_cid(0), d);
    target.receive(&host.take_output(), usize::MAX);
    let r2t = target.send(usize::MAX);
    let t = Transfer::decode(r2t[..24].try_into().unwrap());
    assert_eq!((t.cid, t.tag, t.offset, t.len), (0, 0, 0, 12_288));
    target
}

/// An H2CData PDU.
fn h2c(tag: u16, cid: u16, offset: u32, len: u32, last: bool) -> (Common, Transfer, Vec<u8>) {
    let flags = if last { flag::LAST } else { 0 };
    let common = Common { kind: 6, flags, hlen: 24, pdo: 24, plen: 24 + len };
    (common, Transfer { cid, tag, offset, len }, vec![7; len as usize])
}

fn bytes_of((common, transfer, data): (Common, Transfer, Vec<u8>)) -> Vec<u8> {
    [&transfer.encode(common)[..], &data].concat()
}

/// Each piece of data counts as progress on a slow link.
#[test]
fn a_host_that_sends_data_in_pieces_is_waited_for() {
    let mut target = fetching(Digests::default());
    let just_in_time = Nanos(Config::default().patience.0 - 1);
    let mut now = NOW;
    for (n, last) in [(0, false), (1, false), (2, true)] {
        now = now.plus(just_in_time);
        target.connection.expire(now);
        target.events();
        assert!(target.ended.is_none() && target.taken.is_empty(), "piece {n}: {:?}", target.ended);
        let mut bytes = &bytes_of(h2c(0, 0, n * 4096, 4096, last))[..];
        while !bytes.is_empty() {
            let took = target.connection.receive(bytes, usize::MAX, &mut target.buffers, now);
            bytes = &bytes[took..];
            target.events();
        }
    }
    assert_eq!(target.taken.len(), 1);
    let mut target = fetching(Digests::default());
    target.connection.expire(NOW.plus(Config::default().patience));
    target.events();
    assert!(target.ended.is_some(), "one that sends nothing");
}

/// A command capsule with `data` bytes of data.
fn capsule(command: Command, data: u32) -> (Common, Vec<u8>) {
    let pdo = if data > 0 { 72 } else { 0 };
    let common = Common { kind: 4, flags: 0, hlen: 72, pdo, plen: 72 + data };
    (common, [&command.0[..], &vec![9; data as usize]].concat())
}

/// Returns the error that the peer gets if it sends `bytes`; the error must not depend on how the stream is cut.
fn error_for(new: impl Fn() -> Controller, bytes: &[u8]) -> Option<(u16, u32)> {
    let error = |cut| {
        let mut target = new();
        target.receive(bytes, cut);
        let sent = target.send(usize::MAX);
        match target.ended {
            Some(Ended::Wrong(e)) => {
                let term = sent.windows(8).position(|w| w[..4] == [3, 0, 24, 0]).unwrap();
                assert_eq!(FatalError::decode(sent[term..term + 24].try_into().unwrap()), e);
                let plen = u32::from_le_bytes(sent[term + 4..term + 8].try_into().unwrap());
                assert_eq!(plen as usize, sent.len() - term);
                Some((e.status, e.info, sent))
            }
            None => None,
            other => panic!("{other:?}"),
        }
    };
    let whole = error(usize::MAX);
    assert_eq!(error(1), whole);
    whole.map(|(status, info, _)| (status, info))
}

fn ready() -> Controller {
    let mut target = Controller::new(Config::default(), queue(true));
    exchange(&mut Initiator::new(Options::default()), &mut target, [usize::MAX; 2]);
    target
}

/// K1, K4. Each wrong field ends the connection with its own error.
#[test]
fn k4_wrong_data_pdus_are_told_apart() {
    let good = || h2c(0, 0, 0, 8192, false);
    assert_eq!(error_for(|| fetching(Digests::default()), &bytes_of(good())), None);
    type Change = fn(&mut (Common, Transfer, Vec<u8>));
    type Row = (&'static str, Change, Option<(u16, u32)>);
    let header = |f| Some((fatal::HEADER_FIELD, f));
    let table: [Row; 15] = [
        ("tag of no command", |p| p.1.tag = 1, header(field::TTAG)),
        ("tag far out", |p| p.1.tag = 0xffff, header(field::TTAG)),
        ("another command", |p| p.1.cid = 1, header(field::CCCID)),
        ("length of the data", |p| p.1.len = 8188, header(field::DATAL)),
        ("no data", |p| (p.0.plen, p.1.len) = (24, 0), header(field::PLEN)),
        ("behind the end", |p| p.1.offset = 8192, Some((fatal::OUT_OF_RANGE, 0))),
        ("offset that wraps", |p| p.1.offset = u32::MAX, Some((fatal::OUT_OF_RANGE, 0))),
        ("out of order", |p| p.1.offset = 4096, Some((fatal::SEQUENCE, 0))),
        ("not the last", |p| p.0.flags = flag::LAST, header(field::FLAGS)),
        ("a digest", |p| p.0.flags = flag::DATA_DIGEST, header(field::FLAGS)),
        ("header digest", |p| p.0.flags = flag::HEADER_DIGEST, header(field::FLAGS)),
        ("data in the header", |p| p.0.pdo = 20, header(field::PDO)),
        ("data not aligned", |p| p.0.pdo = 26, header(field::PDO)),
        ("header length", |p| p.0.hlen = 28, header(field::HLEN)),
        ("too long", |p| p.0.plen = 24 + 8196, Some((fatal::LIMIT, 0))),
    ];
    for (what, change, expected) in table {
        let mut pdu = good();
        change(&mut pdu);
        assert_eq!(error_for(|| fetching(Digests::default()), &bytes_of(pdu)), expected, "{what}");
    }
    // The last part without its flag, and data after the last part.
    let first = bytes_of(good());
    let second = |last| [first.clone(), bytes_of(h2c(0, 0, 8192, 4096, last))].concat();
    assert_eq!(error_for(|| fetching(Digests::default()), &second(false)), header(field::FLAGS));
    let more = [second(true), bytes_of(h2c(0, 0, 0, 4096, false))].concat();
    assert_eq!(error_for(|| fetching(Digests::default()), &more), header(field::TTAG));
}

/// K1. Each wrong field of a header ends the connection with its own error.
#[test]
fn k1_wrong_headers_are_told_apart() {
    let flush = Command::new(opcode::FLUSH).with_data_apart(0);
    let bytes = |(common, rest): (Common, Vec<u8>)| [&common.encode()[..], &rest].concat();
    let changed = |data, change: &dyn Fn(&mut Common)| {
        let mut c = capsule(flush, data);
        change(&mut c.0);
        error_for(ready, &bytes(c))
    };
    let header = |f| Some((fatal::HEADER_FIELD, f));
    assert_eq!(changed(0, &|_| ()), None);
    for kind in [1, 3, 5, 7, 8, 9, 10, 255] {
        assert_eq!(changed(0, &|c| c.kind = kind), header(field::KIND), "{kind}");
    }
    assert_eq!(changed(0, &|c| c.kind = 0), Some((fatal::SEQUENCE, 0)), "a second ICReq");
    assert_eq!(changed(0, &|c| c.hlen = 24), header(field::HLEN));
    assert_eq!(changed(0, &|c| c.plen = 71), header(field::PLEN));
    assert_eq!(changed(0, &|c| c.plen = 0), header(field::PLEN));
    assert_eq!(changed(64, &|c| c.pdo = 0), header(field::PDO));
    assert_eq!(changed(64, &|c| c.pdo = 255), header(field::PDO));
    assert_eq!(changed(64, &|c| c.pdo = 136), header(field::PLEN));
    let max = IN_CAPSULE_MAX;
    assert_eq!(changed(0, &|c| (c.pdo, c.plen) = (72, 72 + max + 4)), header(field::PLEN));
    assert_eq!(changed(0, &|c| (c.pdo, c.plen) = (72, u32::MAX)), header(field::PLEN));
    let new = || Controller::new(Config::default(), queue(true));
    let ask = Initialize { version: 0, align: 0, digests: 0, max: 0 };
    let asked = |ask: Initialize, at: usize, value: u8| {
        let mut b = ask.encode(Kind::IcReq);
        b[at] = value;
        error_for(new, &b)
    };
    assert_eq!(asked(ask, 12, 9), None);
    assert_eq!(asked(ask, 8, 1), Some((fatal::PARAMETER, field::PFV)));
    assert_eq!(asked(ask, 10, 32), header(field::HPDA));
    assert_eq!(asked(ask, 11, 4), header(field::DGST));
    assert_eq!(asked(ask, 2, 24), header(field::HLEN));
    assert_eq!(asked(ask, 4, 129), header(field::PLEN));
    assert_eq!(asked(ask, 4, 127), header(field::PLEN));
    assert_eq!(
        error_for(new, &bytes(capsule(flush, 0))),
        Some((fatal::SEQUENCE, 0)),
        "before ICReq"
    );
    assert_eq!(error_for(new, &bytes_of(h2c(0, 0, 0, 4, true))), Some((fatal::SEQUENCE, 0)));
}

/// A header with a wrong digest is not interpreted. Data with a wrong digest fail their command, which may be sent
/// again.
#[test]
fn k5_digests_are_checked() {
    let both = digests(true, true);
    let pdu = |header: bool, data: bool| {
        let (mut common, transfer, bytes) = h2c(0, 0, 0, 8192, false);
        (common.flags, common.pdo, common.plen) = (3, 28, 28 + 8192 + 4);
        let head = transfer.encode(common);
        let mut digests = [Digest::of(&head).bytes(), Digest::of(&bytes).bytes()];
        digests[0][1] ^= u8::from(header);
        digests[1][3] ^= u8::from(data);
        [&head[..], &digests[0], &bytes, &digests[1]].concat()
    };
    let rest = || {
        let (mut common, transfer, bytes) = h2c(0, 0, 8192, 4096, true);
        (common.flags, common.pdo, common.plen) = (7, 28, 28 + 4096 + 4);
        let head = transfer.encode(common);
        [&head[..], &Digest::of(&head).bytes(), &bytes, &Digest::of(&bytes).bytes()].concat()
    };
    let head = h2c(0, 0, 0, 8192, false);
    let head = head.1.encode(Common { flags: 3, pdo: 28, plen: 28 + 8192 + 4, ..head.0 });
    let mut came = Digest::of(&head).bytes();
    came[1] ^= 1;
    let expected = Some((fatal::HEADER_DIGEST, u32::from_le_bytes(came)));
    assert_eq!(error_for(|| fetching(both), &pdu(true, false)), expected);
    for (spoilt, cut) in [(false, usize::MAX), (false, 1), (true, usize::MAX), (true, 1)] {
        let mut target = fetching(both);
        target.receive(&pdu(false, spoilt), cut);
        target.receive(&rest(), cut);
        assert_eq!((target.ended, target.taken.len()), (None, usize::from(!spoilt)));
        let sent = target.send(usize::MAX);
        let statuses: Vec<u16> = sent
            .chunks(28)
            .map(|c| Completion::decode(c[8..24].try_into().unwrap()).status)
            .collect();
        assert_eq!(statuses, if spoilt { vec![0x22] } else { vec![] });
    }
}

/// K2. The command fails, no memory is taken, and the following bytes are understood, also behind a digest of the data.
#[test]
fn k2_a_command_with_a_wrong_data_pointer_fails_alone() {
    let write = Command::new(opcode::WRITE).with_cid(5);
    for digest in [false, true] {
        let options = Options { digests: digests(false, digest), ..Options::default() };
        let mut target = Controller::new(Config::default(), queue(true));
        exchange(&mut Initiator::new(options), &mut target, [usize::MAX; 2]);
        let bytes = |command, data| {
            let (mut common, mut rest) = capsule(command, data);
            if digest && data > 0 {
                common.flags = flag::DATA_DIGEST;
                common.plen += 4;
                rest.extend(Digest::of(&rest[64..]).bytes());
            }
            [&common.encode()[..], &rest].concat()
        };
        for (command, data, status) in [
            (write.with_data_apart(u32::MAX), 0, 0x4002),
            (write.with_data_apart(4096), 64, 0x400f),
            (write.with_data_in_capsule(4096), 64, 0x400f),
        ] {
            target.receive(&bytes(command, data), 50);
            let sent = target.send(usize::MAX);
            let completion = Completion::decode(sent[8..24].try_into().unwrap());
            assert_eq!((completion.cid, completion.status), (5, status), "digest: {digest}");
            assert!(target.taken.is_empty() && target.ended.is_none());
            assert_eq!((target.connection.in_flight(), target.connection.bytes), (0, 0));
        }
        target.receive(&bytes(write.with_data_in_capsule(64), 64), 50);
        assert_eq!((target.taken.len(), target.ended), (1, None), "digest: {digest}");
    }
}

/// K2. An unknown peer gets memory for Connect only.
#[test]
fn k2_before_connect_there_is_memory_for_connect_only() {
    let mut target = Controller::new(Config::default(), queue(true));
    target.connection = Connection::new(Config::default(), NOW);
    let write = Command::new(opcode::WRITE);
    for (len, status) in [(1025, Some(0x4002)), (1 << 20, Some(0x4002)), (1024, None)] {
        target.connection = Connection::new(Config::default(), NOW);
        target.receive(&Initiator::new(Options::default()).take_output(), usize::MAX);
        target.send(usize::MAX);
        let (common, rest) = capsule(write.with_data_apart(len), 0);
        target.receive(&[&common.encode()[..], &rest].concat(), usize::MAX);
        let bytes = if status.is_some() { 0 } else { 1024 };
        assert_eq!(target.connection.bytes, bytes);
        let sent = target.send(usize::MAX);
        let answered = (sent[0] == Kind::CapsuleResp as u8)
            .then(|| Completion::decode(sent[8..24].try_into().unwrap()).status);
        assert_eq!(answered, status, "{len}");
    }
}

#[test]
fn a_peer_that_terminates_is_listened_to_no_longer() {
    let mut target = ready();
    let error = FatalError { status: fatal::SEQUENCE, info: 0 };
    target.receive(&error.encode(Kind::H2cTerm, &[1; 24]), 5);
    assert_eq!(target.ended, Some(Ended::Terminated(error)));
    target.receive(&[0xff; 5000], 999);
    assert!(!target.connection.has_output() && target.taken.is_empty());
}
