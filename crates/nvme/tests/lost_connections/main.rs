//! Queues whose connections end, on a disk that ends a command when the test says so: one order of events at a time, where
//! the test `resends` draws them.

#![allow(clippy::unwrap_used)]

#[path = "../common/target_side.rs"]
mod target_side;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use target_side::{namespaces, output};
use zoneplug_buf::{AlignedBuf, Buffers, Lent};
use zoneplug_core::zone::{Condition, Geometry, ZoneInfo, ZoneType};
use zoneplug_core::{Bio, Bios, Flags, Nanos, Op, Status};
use zoneplug_nvme::initiator::{self, Data, Initiator, Options};
use zoneplug_nvme::io_queue::{ClosingQueue, DiskClient, Disks, IoContext, IoQueue};
use zoneplug_nvme::spec::{Command, FUA, ZoneAction, opcode};
use zoneplug_nvme::target::{HostId, Namespaces, Nqn, QueueId};
use zoneplug_nvme::tcp::{Config, Connection, ConnectionEvent, Queue};
use zoneplug_recovery::DiskRecovery;

/// Sectors of a zone, which are blocks.
const ZONE: u32 = 64;
const ZONES: u32 = 4;
const BLOCK: u32 = 512;
const ENTRIES: u32 = 8;

fn geometry() -> Geometry {
    Geometry::new(u64::from(ZONES), ZONE, ZONE).unwrap()
}

/// A command that the disk has seen.
type Seen = (Op, u64, u32, bool);

/// A disk. It carries a command out when it is polled, unless its operation stalls.
#[derive(Debug, Default)]
struct Medium {
    /// What each sector of each zone was filled with.
    zones: Vec<Vec<u8>>,
    /// Each command in the order in which it came: operation, sector, length, FUA.
    seen: Vec<Seen>,
    /// These are not carried out yet.
    stalled: Vec<Op>,
    /// Writes that come before their place wait until they are refused, unless they must not wait.
    holds: bool,
    /// How the next flush ends.
    flush: Option<Status>,
}

impl Medium {
    fn carry_out(&mut self, bio: &mut Bio) -> Status {
        let (zone, offset) = geometry().zone_of(bio.sector);
        let (start, wp) = (geometry().zone_start(zone), self.zones[zone.0 as usize].len());
        let data = &mut self.zones[zone.0 as usize];
        match bio.op {
            Op::Flush => return self.flush.take().unwrap_or(Status::Ok),
            Op::Read => {
                for i in 0..bio.len_sectors {
                    let fill = data.get((offset + i) as usize).copied().unwrap_or(0);
                    bio.data_mut().copy_from(i * BLOCK, &[fill; BLOCK as usize]);
                }
            }
            Op::ReportZones => {
                let cond = if wp == 0 { Condition::Empty } else { Condition::ImpOpen };
                let len = u64::from(ZONE);
                let info = ZoneInfo {
                    start,
                    len_sectors: len,
                    capacity_sectors: len,
                    wp: start.plus(wp as u64),
                    zone_type: ZoneType::SeqWriteRequired,
                    cond,
                };
                bio.data_mut().copy_from(0, &info.encode());
                bio.result = 1;
            }
            Op::ZoneReset => data.clear(),
            Op::ZoneResetAll => self.zones.iter_mut().for_each(Vec::clear),
            Op::Write | Op::WriteZeroes if wp != offset as usize => {
                return Status::NotAtWritePointer;
            }
            Op::Write | Op::ZoneAppend => {
                for i in 0..bio.len_sectors {
                    let mut sector = [0; BLOCK as usize];
                    bio.data().copy_to(i * BLOCK, &mut sector);
                    data.push(sector[0]);
                }
                if bio.op == Op::ZoneAppend {
                    bio.sector = start.plus(wp as u64);
                }
            }
            op => panic!("{op:?}"),
        }
        Status::Ok
    }

    /// Whether a write comes before its place.
    fn is_early(&self, bio: &Bio) -> bool {
        let (zone, offset) = geometry().zone_of(bio.sector);
        let may_wait = bio.op == Op::Write && !bio.flags.contains(Flags::NOWAIT);
        may_wait && (offset as usize) > self.zones[zone.0 as usize].len()
    }
}

/// A client of the disk, with two tags.
struct Client {
    medium: Rc<RefCell<Medium>>,
    #[allow(clippy::vec_box)] // BIOs stay in their boxes
    waiting: Vec<Box<Bio>>,
    /// What the disk has.
    #[allow(clippy::vec_box)] // the same
    taken: Vec<Box<Bio>>,
    /// What is to be given back as refused.
    refused: Bios,
}

const TAGS: usize = 2;

impl DiskClient for Client {
    fn submit(&mut self, bios: &mut Bios) -> usize {
        let n = bios.len();
        while let Some(bio) = bios.pop_front() {
            self.waiting.push(bio);
        }
        n
    }

    fn poll(&mut self, done: &mut Bios) {
        while let Some(bio) = self.refused.pop_front() {
            done.push_back(bio);
        }
        let mut medium = self.medium.borrow_mut();
        while self.taken.len() < TAGS && !self.waiting.is_empty() {
            let bio = self.waiting.remove(0);
            let fua = bio.flags.contains(Flags::FUA);
            medium.seen.push((bio.op, bio.sector.0, bio.len_sectors, fua));
            self.taken.push(bio);
        }
        for mut bio in std::mem::take(&mut self.taken) {
            if medium.stalled.contains(&bio.op) || medium.holds && medium.is_early(&bio) {
                self.taken.push(bio);
            } else {
                bio.status = medium.carry_out(&mut bio);
                done.push_back(bio);
            }
        }
    }

    fn outstanding(&self) -> u32 {
        (self.waiting.len() + self.taken.len() + self.refused.len()) as u32
    }

    fn reclaim(&mut self, bio: &mut Bio, lent: Lent) -> Option<AlignedBuf> {
        lent.take_back(bio.take_buf()).ok()
    }

    fn refuse_held(&mut self) {
        let medium = self.medium.borrow();
        for mut bio in std::mem::take(&mut self.taken) {
            if medium.holds && medium.is_early(&bio) {
                bio.status = Status::NotAtWritePointer;
                self.refused.push_back(bio);
            } else {
                self.taken.push(bio);
            }
        }
    }

    fn keep_lent(&mut self, _: impl Iterator<Item = Lent>) {}
}

struct OneDisk<'a> {
    medium: &'a Rc<RefCell<Medium>>,
    recovery: &'a DiskRecovery,
}

impl Disks for OneDisk<'_> {
    type Client = Client;

    fn open(&self, _: u32, _: u32) -> Option<Client> {
        let (medium, refused) = (self.medium.clone(), Bios::with_capacity(TAGS));
        Some(Client { medium, waiting: Vec::new(), taken: Vec::new(), refused })
    }

    fn fills_buffers(&self, _: u32) -> bool {
        true
    }

    fn geometry(&self, _: u32) -> Geometry {
        geometry()
    }

    fn recovery(&self, _: u32) -> &DiskRecovery {
        self.recovery
    }

    fn count(&self, _: u32, _: Op, _: u32, _: bool) {}

    fn count_replayed(&self, _: u32) {}
}

/// What a test has of the target's side, beside the links.
struct World {
    medium: Rc<RefCell<Medium>>,
    recovery: DiskRecovery,
    namespaces: Arc<Namespaces>,
    buffers: Buffers,
    queues: u16,
}

macro_rules! context {
    ($world:ident) => {
        IoContext {
            disks: OneDisk { medium: &$world.medium, recovery: &$world.recovery },
            buffers: &mut $world.buffers,
            now: Nanos(0),
        }
    };
}

mod late_data;
mod memory;
mod server_end;

/// Both ends of a queue. Bytes reach the other end at once, but answers only if the host listens.
struct Link {
    initiator: Initiator,
    connection: Connection,
    io: IoQueue<Client>,
    /// Bytes for the host that are on the way, if they stay there.
    on_the_way: Option<Vec<u8>>,
}

impl World {
    fn new() -> World {
        let zones = vec![Vec::new(); ZONES as usize];
        World {
            medium: Rc::new(RefCell::new(Medium { zones, ..Medium::default() })),
            recovery: DiskRecovery::new(geometry()),
            namespaces: namespaces(&geometry()),
            buffers: Buffers::new(1 << 20),
            queues: 0,
        }
    }

    /// A connection of a host, which is a controller of its own.
    fn connect(&mut self, host: &str) -> Link {
        let mut connection = Connection::new(Config::default(), Nanos(0));
        connection.set_queue(Queue { entries: ENTRIES, sq_flow_control: true });
        self.queues += 1;
        let queue = QueueId { controller: self.queues, qid: 1 };
        let key = HostId { nqn: Nqn::new(host).unwrap(), id: [7; 16] }.key();
        let mut io = IoQueue::new(queue, key, ENTRIES);
        io.show(self.namespaces.clone(), &context!(self).disks);
        Link { initiator: Initiator::new(Options::default()), connection, io, on_the_way: None }
    }

    /// Sends commands, and lets the target do what it can. Takes no answers.
    fn send(&mut self, link: &mut Link, commands: impl IntoIterator<Item = (Command, Data)>) {
        for (command, data) in commands {
            link.initiator.send(command, data);
        }
        self.run(link);
    }

    /// The target has some turns.
    fn run(&mut self, link: &mut Link) {
        for _ in 0..8 {
            let mut up = link.initiator.take_output();
            while !up.is_empty() {
                let n = link.connection.receive(&up, up.len(), &mut self.buffers, Nanos(0));
                up.drain(..n);
                while let Some(event) = link.connection.next_event(&mut self.buffers) {
                    match event {
                        ConnectionEvent::Command(c) => {
                            link.io.begin(c, &mut link.connection, &mut context!(self));
                        }
                        ConnectionEvent::Ended(e) => panic!("{e:?}"),
                    }
                }
            }
            link.io.asked(&link.connection, &context!(self));
            link.io.run(&mut link.connection, &mut context!(self));
            self.down(link);
        }
    }

    fn down(&mut self, link: &mut Link) {
        let bytes = output(&mut link.connection, &mut self.buffers, Nanos(0));
        match &mut link.on_the_way {
            Some(late) => late.extend(&bytes),
            None => link.initiator.received(&bytes).unwrap(),
        }
    }

    /// The connection ends. The host's TCP has acknowledged none of the answers.
    fn lose(&mut self, link: Link) -> Option<ClosingQueue<Client>> {
        link.io.end(0, drop, &mut context!(self))
    }

    /// Turns of a queue without a connection.
    fn drain(&mut self, closing: &mut ClosingQueue<Client>) {
        for _ in 0..8 {
            closing.run(drop, &mut context!(self));
        }
    }

    /// What the disk has seen since the last call.
    fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.medium.borrow_mut().seen)
    }

    fn stall(&self, ops: &[Op]) {
        self.medium.borrow_mut().stalled = ops.to_vec();
    }
}

/// The answers that came since the last call: the status without the bit for retries, and the result, by command.
fn answers(link: &mut Link) -> Vec<(u16, u64)> {
    let mut all = Vec::new();
    while let Some(done) = link.initiator.done() {
        all.push((done.completion.cid, done.completion.status & 0x7ff, done.completion.result));
    }
    all.sort_unstable();
    all.into_iter().map(|(_, status, result)| (status, result)).collect()
}

fn data(blocks: u32, fill: u8) -> Vec<u8> {
    vec![fill; (blocks * BLOCK) as usize]
}

fn append(zone: u32, blocks: u32, fill: u8) -> (Command, Data) {
    initiator::zone_append(1, u64::from(zone * ZONE), data(blocks, fill), BLOCK)
}

fn write(at: u64, blocks: u32, fill: u8) -> (Command, Data) {
    initiator::write(1, at, data(blocks, fill), BLOCK)
}

fn with_fua((c, data): (Command, Data)) -> (Command, Data) {
    (c.with_cdw(12, c.cdw(12) | FUA), data)
}

fn reset_all() -> (Command, Data) {
    /// Select All.
    const ALL: u32 = 1 << 8;
    let c = Command::new(opcode::ZONE_MANAGEMENT_SEND).with_nsid(1);
    (c.with_cdw(13, ZoneAction::Reset as u32 | ALL), Data::None)
}

const START: u64 = ZONE as u64;

/// W16. The disk gets the FUA of each kind of write, and of no command that has none.
#[test]
fn w16_fua_reaches_the_disk_with_its_command() {
    let mut w = World::new();
    let mut link = w.connect("nqn.a");
    for (command, op, sector) in
        [(append(1, 4, 1), Op::ZoneAppend, START), (write(0, 4, 1), Op::Write, 0)]
    {
        w.send(&mut link, [with_fua(command)]);
        assert_eq!(w.seen(), [(op, sector, 4, true)]);
        assert_eq!(answers(&mut link).len(), 1);
    }
    w.send(&mut link, [append(1, 4, 1), write(4, 4, 1)]);
    assert!(w.seen().iter().all(|(.., fua)| !fua));
    let zeroes = Command::new(opcode::WRITE_ZEROES).with_nsid(1).with_cdw_pair(10, 8);
    w.stall(&[Op::WriteZeroes]);
    w.send(&mut link, [with_fua((zeroes.with_cdw(12, 1), Data::None))]);
    assert_eq!(w.seen(), [(Op::WriteZeroes, 8, 2, true)]);
}

/// L2, L4. A command with FUA that is found on the disk when its host sends it again is answered after a flush, and one
/// without FUA at once.
#[test]
fn l4_fua_of_what_is_found_is_a_flush() {
    for fua in [false, true] {
        let mark = |c| if fua { with_fua(c) } else { c };
        let flush: &[Seen] = if fua { &[(Op::Flush, 0, 0, false)] } else { &[] };
        for (first, command, found) in [
            (append(1, 4, 1), append(1, 4, 1), vec![(Op::Read, START, 4, false)]),
            (
                write(START, 4, 1),
                write(START, 4, 1),
                vec![
                    (Op::Write, START, 4, fua),
                    (Op::ReportZones, START, 0, false),
                    (Op::Read, START, 4, false),
                ],
            ),
            // Only its beginning is there.
            (
                write(START, 4, 1),
                write(START, 6, 1),
                vec![
                    (Op::Write, START, 6, fua),
                    (Op::ReportZones, START, 0, false),
                    (Op::Read, START, 4, false),
                    (Op::Write, START + 4, 2, fua),
                ],
            ),
        ] {
            let mut w = World::new();
            let mut link = w.connect("nqn.a");
            w.send(&mut link, [mark(first)]);
            assert!(w.lose(link).is_none());
            w.seen();
            let mut link = w.connect("nqn.a");
            w.send(&mut link, [mark(command)]);
            assert_eq!(w.seen(), [&found, flush].concat());
            assert_eq!(answers(&mut link)[0].0, 0);
        }
    }
}

/// L4. An append that is found and cannot be made durable fails. Its host may send it again, and it has its place still
/// after another connection was lost.
#[test]
fn l4_fua_that_fails_is_an_error_and_keeps_the_place() {
    let mut w = World::new();
    let mut link = w.connect("nqn.a");
    w.send(&mut link, [with_fua(append(1, 4, 1))]);
    assert!(w.lose(link).is_none());
    let mut link = w.connect("nqn.a");
    w.stall(&[Op::Flush]);
    w.send(&mut link, [with_fua(append(1, 4, 1))]);
    assert_eq!(answers(&mut link), [], "it is not durable yet");
    let mut closing = w.lose(link).expect("the flush is with the disk");
    w.stall(&[]);
    w.drain(&mut closing);
    assert!(closing.is_empty());
    let mut link = w.connect("nqn.a");
    w.medium.borrow_mut().flush = Some(Status::Io);
    w.send(&mut link, [with_fua(append(1, 4, 1))]);
    assert_ne!(answers(&mut link)[0].0, 0);
    assert_eq!(w.medium.borrow().zones[1].len(), 4, "it is there once");
}

/// L5. A reset that outlives its connection ends after it, and so does what was noted beside it: the places of these
/// appends may be another's from then on.
#[test]
fn l5_a_reset_that_ends_after_its_connection_forgets_the_appends_beside_it() {
    for reset in [initiator::reset_zone(1, START), reset_all()] {
        let mut w = World::new();
        let mut other = w.connect("nqn.other");
        w.send(&mut other, [append(1, 4, 9), append(2, 4, 9)]);
        let mut resets = w.connect("nqn.resets");
        w.stall(&[Op::ZoneReset, Op::ZoneResetAll]);
        w.send(&mut resets, [reset]);
        let mut closing = w.lose(resets).expect("the reset is with the disk");
        // An append lands before the reset, and its answer is lost.
        let mut appends = w.connect("nqn.appends");
        w.send(&mut appends, [append(1, 4, 1)]);
        assert_eq!(answers(&mut appends), [(0, START + 4)]);
        assert!(w.lose(appends).is_none());
        w.stall(&[]);
        w.drain(&mut closing);
        assert!(closing.is_empty() && w.medium.borrow().zones[1].is_empty());
        // Others have its place now, with the same data.
        w.send(&mut other, [append(1, 4, 9), append(1, 4, 1)]);
        answers(&mut other);
        let mut appends = w.connect("nqn.appends");
        w.send(&mut appends, [append(1, 4, 1)]);
        assert_eq!(answers(&mut appends), [(0, START + 8)], "a place of its own");
    }
}

/// L10. Two paths of a host, each with a refused write of the same sectors, ask each other. A write that waits for the
/// other queue is no write in flight: both are answered.
#[test]
fn l10_two_queues_do_not_wait_for_each_other() {
    let mut w = World::new();
    let (mut first, mut second) = (w.connect("nqn.a"), w.connect("nqn.a"));
    w.send(&mut first, [append(1, 8, 1)]);
    w.send(&mut second, [append(2, 8, 1)]);
    answers(&mut first);
    answers(&mut second);
    // Both are refused before either queue looks at what it is asked.
    w.stall(&[Op::Write]);
    w.send(&mut first, [write(START, 4, 2)]);
    w.send(&mut second, [write(START, 4, 2)]);
    w.stall(&[]);
    for _ in 0..4 {
        w.run(&mut first);
        w.run(&mut second);
    }
    assert_eq!(answers(&mut first).len() + answers(&mut second).len(), 2);
    assert!(!first.io.waits() && !second.io.waits());
}

/// A queue whose question was answered has something to do, and says so to its owner.
#[test]
fn an_answer_is_progress() {
    let mut w = World::new();
    let (mut asks, mut answers_it) = (w.connect("nqn.a"), w.connect("nqn.a"));
    w.send(&mut answers_it, [append(2, 8, 1)]);
    w.send(&mut asks, [write(START + 4, 4, 2)]);
    assert!(asks.io.waits(), "the other queue is asked");
    assert!(!asks.io.run(&mut asks.connection, &mut context!(w)), "and has not answered");
    // First whether it has had the write, then whether it has one before it.
    for _ in 0..2 {
        w.run(&mut answers_it);
        assert!(asks.io.run(&mut asks.connection, &mut context!(w)));
        w.run(&mut asks);
    }
    assert_ne!(answers(&mut asks)[0].0, 0);
}

/// A write that was refused waits for data on the way of writes before it, and of no other: not of one at the same place.
#[test]
fn a_refused_write_waits_for_the_data_of_writes_before_it() {
    for (awaited, waits) in [(START, true), (START + 8, false), (START + 12, false)] {
        let mut w = World::new();
        let mut link = w.connect("nqn.a");
        link.initiator = Initiator::new(Options { in_capsule: 0, ..Options::default() });
        w.send(&mut link, [append(2, 1, 1)]);
        answers(&mut link);
        // The host is not asked for the data yet.
        link.on_the_way = Some(Vec::new());
        let zeroes = Command::new(opcode::WRITE_ZEROES).with_nsid(1).with_cdw(12, 1);
        let zeroes = zeroes.with_cdw_pair(10, START + 8);
        w.send(&mut link, [write(awaited, 4, 1), (zeroes, Data::None)]);
        let late = link.on_the_way.take().unwrap();
        link.initiator.received(&late).unwrap();
        assert_eq!(answers(&mut link).is_empty(), waits, "data at {awaited}");
        w.run(&mut link);
        assert_eq!(link.initiator.in_flight(), 0);
    }
}

/// L1, H10. Writes that an order window holds are refused once their connection has gone: nothing can fill the gap before
/// them, and new connections of their host wait for them. A write that got its tag only now is no other.
#[test]
fn l1_held_writes_of_a_lost_connection_are_not_waited_for() {
    let mut w = World::new();
    w.medium.borrow_mut().holds = true;
    let mut link = w.connect("nqn.a");
    // The first of the zone never comes. The last one waits for a tag.
    w.send(&mut link, [write(START + 4, 4, 1), write(START + 8, 4, 1), write(START + 12, 4, 1)]);
    assert_eq!(answers(&mut link), []);
    assert_eq!(w.seen().len(), TAGS);
    let mut closing = w.lose(link).expect("two writes are held");
    let mut link = w.connect("nqn.a");
    w.send(&mut link, [write(START, 4, 1)]);
    assert_eq!(w.seen(), [], "the new connection waits for the old one");
    w.drain(&mut closing);
    assert!(closing.is_empty(), "a held write is left");
    w.run(&mut link);
    assert_eq!(answers(&mut link), [(0, 0)]);
}
