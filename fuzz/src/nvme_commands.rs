//! What a host asks of a target: any commands, with any fields, for a disk whose device refuses every violation of the zone rules. Each
//! command is answered once. What succeeds has done what it says, what fails has changed nothing, and no command has the
//! layer send what the device refuses.

use crate::input::Input;
use crate::zones::{Layout, Zones};
use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use zoneplug_buf::{AlignedBuf, Buffers, Lent};
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Bio, Bios, Nanos, Op, ZoneNo};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_nvme::initiator::{self, Data, Initiator, Options};
use zoneplug_nvme::io_queue::{DiskClient, Disks, IoContext, IoQueue};
use zoneplug_nvme::spec::fabrics::{ANY_CONTROLLER, Configuration, property};
use zoneplug_nvme::spec::{Command, Completion, opcode};
use zoneplug_nvme::target::{Connected, Namespace, Nqn, Reply, SubsystemConfig, Target};
use zoneplug_nvme::tcp::pdu::Digests;
use zoneplug_nvme::tcp::{Config, Connection, ConnectionEvent, Queue};
use zoneplug_recovery::DiskRecovery;

const NAME: &str = "nqn.fuzz";
const HOST: &str = "nqn.host";
/// Sectors of a block, blocks of a zone, and how many of them can be written.
const BLOCK: u32 = 2;
const SIZE: u32 = 20;
const CAPACITY: u32 = 17;
/// Conventional zones, and the others.
const CONVENTIONAL: u32 = 1;
const ZONES: u32 = 3;
const BLOCK_BYTES: usize = (BLOCK as usize) << 9;
const MAX_DATA: u32 = 64 << 10;

/// The disk, in virtual time.
struct Served {
    disk: Disk,
    recovery: DiskRecovery,
    now: Cell<Nanos>,
    queue: RefCell<Option<DiskQueue>>,
}

struct Client<'a> {
    served: &'a Served,
    outstanding: u32,
}

impl Client<'_> {
    fn with<T>(&self, f: impl FnOnce(&mut DiskQueue) -> T) -> T {
        f(self.served.queue.borrow_mut().as_mut().expect("a queue"))
    }
}

impl DiskClient for Client<'_> {
    fn submit(&mut self, bios: &mut Bios) -> usize {
        let n = self.with(|q| q.submit(self.served.now.get(), bios));
        self.outstanding += n as u32;
        n
    }

    fn poll(&mut self, done: &mut Bios) {
        let (before, now) = (done.len(), self.served.now.get());
        let next = self.with(|q| {
            q.poll(now, done);
            q.next_deadline()
        });
        self.outstanding -= (done.len() - before) as u32;
        self.served.now.set(next.unwrap_or(now).max(now));
    }

    fn outstanding(&self) -> u32 {
        self.outstanding
    }

    fn reclaim(&mut self, bio: &mut Bio, lent: Lent) -> Option<AlignedBuf> {
        Some(lent.take_back(bio.take_buf()).expect("its memory"))
    }

    fn refuse_held(&mut self) {
        self.with(DiskQueue::refuse_held);
    }

    fn keep_lent(&mut self, lent: impl Iterator<Item = Lent>) {
        assert_eq!(lent.count(), 0, "everything has ended");
    }
}

impl<'a> Disks for &'a Served {
    type Client = Client<'a>;

    fn open(&self, disk: u32, entries: u32) -> Option<Client<'a>> {
        assert_eq!(disk, 0);
        *self.queue.borrow_mut() = Some(self.disk.open_polled_queue(entries, 4).expect("a queue"));
        Some(Client { served: self, outstanding: 0 })
    }

    fn fills_buffers(&self, _: u32) -> bool {
        false
    }

    fn geometry(&self, _: u32) -> Geometry {
        self.disk.geometry()
    }

    fn recovery(&self, _: u32) -> &DiskRecovery {
        &self.recovery
    }

    fn count(&self, _: u32, _: Op, _: u32, _: bool) {}

    fn count_replayed(&self, _: u32) {
        panic!("nothing was lost");
    }
}

struct Machine<'a> {
    served: &'a Served,
    host: Initiator,
    tcp: Connection,
    io: IoQueue<Client<'a>>,
    buffers: Buffers,
}

impl Machine<'_> {
    /// Carries out a command. Returns its answer and data.
    fn run(&mut self, command: Command, data: Data) -> (Completion, Vec<u8>) {
        self.host.send(command, data);
        for _ in 0..10_000 {
            let out = self.host.take_output();
            let mut at = 0;
            while at < out.len() {
                let now = self.served.now.get();
                at += self.tcp.receive(&out[at..], 5000, &mut self.buffers, now);
                self.turn();
            }
            self.turn();
            while self.tcp.has_output() {
                let mut slices = [IoSlice::new(&[]); 4];
                let filled = self.tcp.output(&mut slices);
                let bytes: Vec<u8> =
                    slices[..filled].iter().flat_map(|s| s.iter().copied()).collect();
                self.tcp.sent(bytes.len(), &mut self.buffers, self.served.now.get());
                self.host.received(&bytes).expect("the target keeps to the protocol");
            }
            if let Some(done) = self.host.done() {
                assert_eq!(self.host.in_flight(), 0, "one answer for one command");
                return (done.completion, done.data);
            }
        }
        panic!("no answer to {command:?}");
    }

    fn turn(&mut self) {
        let now = self.served.now.get();
        let Machine { served, tcp, io, buffers, .. } = self;
        while let Some(event) = tcp.next_event(buffers) {
            match event {
                ConnectionEvent::Command(c) => {
                    let mut ctx = IoContext { disks: *served, buffers: &mut *buffers, now };
                    io.begin(c, tcp, &mut ctx);
                }
                ConnectionEvent::Ended(why) => panic!("the connection ends: {why:?}"),
            }
        }
        let mut ctx = IoContext { disks: *served, buffers, now };
        io.run(tcp, &mut ctx);
    }
}

fn disk(flags: u8) -> (Arc<EmuDisk>, Served) {
    let g = Geometry::new(u64::from(CONVENTIONAL + ZONES), SIZE * BLOCK, CAPACITY * BLOCK);
    let g = g.and_then(|g| g.with_conventional((0..CONVENTIONAL).map(ZoneNo))).expect("a layout");
    let mut emu = EmuConfig::new(EmuKind::Mem, g);
    emu.limits = Limits {
        logical_block_sectors: BLOCK,
        write_granularity_sectors: BLOCK,
        max_transfer_sectors: 16,
        max_write_zeroes_sectors: if flags & 1 == 0 { 0 } else { 12 },
        max_active_zones: if flags & 2 == 0 { 0 } else { 2 },
        ..Limits::default()
    };
    emu.paranoid = true;
    let emu = EmuDisk::new(emu).expect("a device");
    let window = Nanos(if flags & 4 == 0 { 0 } else { 1000 });
    let config = DiskConfig { order_window: window, ..DiskConfig::default() };
    let disk = Disk::open(emu.clone(), config, &mut |due| due.unwrap_or(Nanos(0)));
    let disk = disk.expect("a disk");
    let recovery = DiskRecovery::new(disk.geometry());
    let (now, queue) = (Cell::new(Nanos(0)), RefCell::default());
    (emu, Served { disk, recovery, now, queue })
}

/// A target with that disk, a controller of it, and what its first I/O queue is.
fn target(served: &Served) -> (Target, u16, Connected) {
    let mut target = Target::new(vec![]);
    let nqn = Nqn::new(NAME).expect("a name");
    let subsystem = SubsystemConfig { max_data: MAX_DATA, ..SubsystemConfig::new(nqn.clone()) };
    target.add_subsystem(subsystem).expect("a subsystem");
    let all = Namespace::of(0, [7; 16], &served.disk.geometry(), &served.disk.limits());
    target.add_namespaces(&nqn, all.expect("namespaces")).expect("a place");
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 4420));
    let connect = |target: &mut Target, qid, cntlid| {
        let (command, data) = initiator::connect(qid, 32, cntlid, NAME, HOST);
        let Data::Out(data) = data else { panic!("Connect has data") };
        let command = command.with_data_apart(data.len() as u32);
        target.connect(&command, &data, local, Nanos(0)).expect("it may connect")
    };
    let id = connect(&mut target, 0, ANY_CONTROLLER).queue.controller;
    let enable = Command::property_set(property::CC, Configuration::START.encode());
    target.admin(id, &enable.with_data_apart(0), Nanos(0));
    let (queues, _) = initiator::set_queues(1);
    target.admin(id, &queues.with_data_apart(0), Nanos(0));
    let io = connect(&mut target, 1, id);
    (target, id, io)
}

/// Any command. Fields that decide how far it gets are likely to be right.
fn command(s: &mut Input<'_>) -> Command {
    let kind = s.byte();
    let code = match kind & 0xf {
        0..=3 => opcode::WRITE,
        4..=5 => opcode::ZONE_APPEND,
        6..=7 => opcode::READ,
        8 => opcode::WRITE_ZEROES,
        9..=10 => opcode::ZONE_MANAGEMENT_SEND,
        11..=12 => opcode::ZONE_MANAGEMENT_RECEIVE,
        13 => opcode::DATASET_MANAGEMENT,
        14 => opcode::FLUSH,
        _ => s.byte(),
    };
    let nsid = match kind >> 4 {
        0 => s.number() as u32,
        1..=3 => 1,
        _ => 2,
    };
    let place = s.byte();
    let lba = match place & 7 {
        0 => s.number(),
        1..=2 => u64::from(place >> 3),
        3..=4 => u64::from(u32::from(place >> 3) % ZONES * SIZE),
        _ => u64::from(u32::from(place >> 3) % ZONES * SIZE + u32::from(s.byte()) % SIZE),
    };
    let length = s.byte();
    let c = Command::new(code).with_nsid(nsid).with_cdw_pair(10, lba);
    let c = match length & 7 {
        0 => c.with_cdw(12, s.number() as u32),
        _ => c.with_cdw(12, u32::from(length >> 3)),
    };
    match code {
        opcode::ZONE_MANAGEMENT_SEND => {
            let action = s.byte();
            let all = u32::from(action & 0x80) << 1;
            c.with_cdw(12, 0).with_cdw(13, u32::from(action & 7) | all)
        }
        opcode::ZONE_MANAGEMENT_RECEIVE => {
            let dwords = 16 * (u32::from(length) + 1) - 1;
            let c = if length & 7 == 0 { c } else { c.with_cdw(12, dwords) };
            c.with_cdw(13, u32::from(s.short() & 0x1ff) << 8)
        }
        opcode::DATASET_MANAGEMENT => c.with_cdw(10, lba as u32 & 3).with_cdw(11, 4),
        _ => c,
    }
}

/// The data of a command: as long as it says, or of another length.
fn data_of(c: &Command, fill: u8, s: &mut Input<'_>) -> Data {
    let blocks = (c.cdw(12) & 0xffff) + 1;
    let bytes = match c.opcode() {
        opcode::ZONE_MANAGEMENT_RECEIVE => u64::from(c.cdw(12)) * 4 + 4,
        opcode::DATASET_MANAGEMENT => 16 * (u64::from(c.cdw(10) & 0xff) + 1),
        opcode::READ | opcode::WRITE | opcode::ZONE_APPEND => {
            u64::from(blocks) * BLOCK_BYTES as u64
        }
        _ => 0,
    };
    let other = s.byte();
    let bytes = if other < 0xf0 { bytes } else { u64::from(s.short()) * 4 };
    let bytes = bytes.min(u64::from(MAX_DATA) + 4096) as u32;
    match c.opcode() & 3 {
        1 if c.opcode() == opcode::DATASET_MANAGEMENT => {
            let ranges = (0..bytes).map(|i| if i % 16 < 4 { 0 } else { s.byte() & 3 });
            Data::Out(ranges.collect())
        }
        1 if bytes > 0 => Data::Out(vec![fill; bytes as usize]),
        2 if bytes > 0 => Data::In(bytes),
        _ => Data::None,
    }
}

/// Applies a command that has succeeded to what is known.
fn apply(zones: &mut Zones, c: &Command, done: &Completion, fill: u8) {
    let base = base(c);
    let blocks = (c.cdw(12) & 0xffff) + 1;
    match c.opcode() {
        opcode::WRITE | opcode::WRITE_ZEROES | opcode::ZONE_APPEND => {
            let append = c.opcode() == opcode::ZONE_APPEND;
            let asked = c.cdw_pair(10) as u32;
            let at = if append { done.result as u32 } else { asked };
            assert!(!append || at / SIZE == asked / SIZE, "in its zone: {c:?}");
            let fill = if c.opcode() == opcode::WRITE_ZEROES { 0 } else { fill };
            zones.write(base + at, blocks, fill);
        }
        opcode::ZONE_MANAGEMENT_SEND => {
            let all = c.cdw(13) & 0x100 != 0;
            // A command for all zones may name any block.
            let one = (!all).then(|| (base + c.cdw_pair(10) as u32) / SIZE);
            for z in zones.sequential() {
                // Finishing all zones leaves those that are empty or full.
                let part = one.map_or(c.cdw(13) & 7 != 2 || !zones.is_empty(z), |one| z == one);
                match c.cdw(13) & 7 {
                    4 if part => zones.reset(z),
                    2 if part => zones.finish(z),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// The first block of the namespace of a command.
fn base(c: &Command) -> u32 {
    if c.nsid() == 1 { 0 } else { CONVENTIONAL * SIZE }
}

/// Notes what a host deallocates.
fn deallocate(zones: &mut Zones, c: &Command, ranges: &[u8]) {
    if (c.opcode(), c.nsid()) != (opcode::DATASET_MANAGEMENT, 1) {
        return;
    }
    for range in ranges.chunks_exact(16) {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        let (blocks, start) = (number(&range[4..8]), number(&range[8..]));
        let all = u64::from(CONVENTIONAL * SIZE);
        for block in start.min(all)..start.saturating_add(blocks).min(all) {
            zones.deallocate(block as u32);
        }
    }
}

/// The device has refused nothing that the layer could have known.
fn check_refusals(emu: &Arc<EmuDisk>, limited: bool) {
    for (status, n) in emu.stats().failures() {
        use zoneplug_core::Status as S;
        let known = matches!(status, S::InvalidTransition)
            || limited && matches!(status, S::OpenLimit | S::ActiveLimit);
        assert!(known, "{n} commands that the device refuses: {status}");
    }
}

/// Commands of a host.
pub fn nvme_commands(data: &[u8]) {
    let mut s = Input::new(data);
    let flags = s.byte();
    let (emu, served) = disk(flags);
    let (mut target, id, connected) = target(&served);
    let digests = Digests { header: flags & 8 != 0, data: flags & 16 != 0 };
    let in_capsule = [0, 512, 4096, 8192][usize::from(flags >> 5) & 3];
    let options = Options { digests, align: flags >> 7, in_capsule };
    let mut tcp = Connection::new(Config { max_data: MAX_DATA, ..Config::default() }, Nanos(0));
    tcp.set_queue(Queue { entries: 32, sq_flow_control: connected.sq_flow_control });
    let namespaces = connected.namespaces.expect("an I/O queue");
    let mut io = IoQueue::new(connected.queue, connected.host.key(), 32);
    io.show(namespaces, &&served);
    let (host, buffers) = (Initiator::new(options), Buffers::new(1 << 20));
    let mut m = Machine { served: &served, host, tcp, io, buffers };
    let layout = Layout { block_sectors: BLOCK, size: SIZE, capacity: CAPACITY };
    let mut zones = Zones::new(layout, CONVENTIONAL, ZONES);
    let (mut opened, mut fill) = (false, 0);
    for _ in 0..64 {
        if s.is_empty() {
            break;
        }
        if s.byte() & 7 == 0 {
            let mut c = Command::new(s.byte()).with_nsid(s.number() as u32 & 3);
            for n in 10..16 {
                c = c.with_cdw(n, s.number() as u32);
            }
            let bytes = s.short() & 0x1ffc;
            let c = c.with_data_apart(u32::from(bytes));
            if c.opcode() != opcode::FABRICS
                && let Reply::Now(_, data) = target.admin(id, &c, Nanos(0))
            {
                assert!(data.is_empty() || data.len() == usize::from(bytes), "{c:?}");
            }
            continue;
        }
        fill = (fill + 1) % 251 + 1;
        let c = command(&mut s);
        let data = data_of(&c, fill, &mut s);
        if let Data::Out(ranges) = &data {
            deallocate(&mut zones, &c, ranges);
        }
        let (done, read) = m.run(c, data);
        if done.status != 0 {
            assert!(read.is_empty(), "data of a command that failed: {c:?}");
            continue;
        }
        opened |= c.opcode() == opcode::ZONE_MANAGEMENT_SEND && c.cdw(13) & 7 == 3;
        if c.opcode() == opcode::READ {
            for (n, block) in (base(&c) + c.cdw_pair(10) as u32..).zip(read.chunks(BLOCK_BYTES)) {
                zones.check_block(n, block);
            }
        }
        apply(&mut zones, &c, &done, fill);
    }
    zones.check(&emu, opened);
    check_refusals(&emu, flags & 2 != 0);
}
