//! Hosts whose connections end at random points of both streams of bytes, and that send again what has no answer, against
//! queues of a disk that takes its time. Each command is carried out once (L2, L4, L10): nothing that was answered is lost or
//! there twice, and nothing that was lost is refused.

#![allow(clippy::unwrap_used)]

mod medium;
#[path = "../common/target_side.rs"]
mod target_side;

use medium::{Client, Medium, OneDisk};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use target_side::{namespaces, output};
use zoneplug_buf::Buffers;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Nanos, Random};
use zoneplug_nvme::initiator::{self, Data, Initiator, Options};
use zoneplug_nvme::io_queue::{ClosingQueue, IoContext, IoQueue};
use zoneplug_nvme::spec::{Command, FUA, opcode, status};
use zoneplug_nvme::target::{HostId, Namespaces, Nqn, QueueId};
use zoneplug_nvme::tcp::{Config, Connection, ConnectionEvent, Queue};
use zoneplug_recovery::DiskRecovery;

/// Sectors of a zone, which are blocks.
const ZONE: u32 = 64;
const BLOCK: u32 = 512;
/// The first are written, the others appended to.
const ZONES: u32 = 4;
const WRITTEN: u32 = 2;
const ENTRIES: u32 = 8;
const QUEUES: usize = 2;
/// A status: Zone Is Full.
const ZONE_IS_FULL: u16 = 0x1b9;

fn geometry() -> Geometry {
    Geometry::new(u64::from(ZONES), ZONE, ZONE).unwrap()
}

/// What a host wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Write {
        at: u32,
        len: u32,
        fill: u8,
        zeroes: bool,
    },
    /// `since`: [`Known::resets`] when it was first sent. `None` if one was on its way then.
    Append {
        zone: u32,
        len: u32,
        fill: u8,
        since: Option<u32>,
    },
    Reset {
        zone: u32,
    },
}

impl Work {
    fn zone(self) -> u32 {
        match self {
            Work::Write { at, .. } => at / ZONE,
            Work::Append { zone, .. } | Work::Reset { zone } => zone,
        }
    }

    fn command(self, fua: bool) -> (Command, Data) {
        let data = |len: u32, fill| vec![fill; (len * BLOCK) as usize];
        let (c, data) = match self {
            Work::Write { at, len, zeroes: true, .. } => {
                let c = Command::new(opcode::WRITE_ZEROES).with_nsid(1);
                (c.with_cdw_pair(10, u64::from(at)).with_cdw(12, len - 1), Data::None)
            }
            Work::Write { at, len, fill, .. } => {
                initiator::write(1, u64::from(at), data(len, fill), BLOCK)
            }
            Work::Append { zone, len, fill, .. } => {
                initiator::zone_append(1, u64::from(zone * ZONE), data(len, fill), BLOCK)
            }
            Work::Reset { zone } => return initiator::reset_zone(1, u64::from(zone * ZONE)),
        };
        (c.with_cdw(12, c.cdw(12) | if fua { FUA } else { 0 }), data)
    }
}

/// Both ends of a queue, and what is between them.
struct Link {
    host: usize,
    initiator: Initiator,
    connection: Connection,
    io: IoQueue<Client>,
    up: Vec<u8>,
    down: Vec<u8>,
    /// Bytes that the host has processed.
    processed: u64,
    in_flight: BTreeMap<u16, Work>,
}

/// Links that hosts use. Behind them are those that a host has left, and that the target still believes in.
const LINKS: usize = 2 * QUEUES;

/// What the hosts know of a zone.
#[derive(Debug, Default)]
struct Known {
    /// What was acknowledged, sector by sector.
    data: BTreeMap<u32, u8>,
    /// What they have asked for, in sectors, and how much work that is.
    asked: u32,
    work: u32,
    /// Resets that are on their way, and how many times one was sent or answered.
    resetting: u32,
    resets: u32,
    /// Whether the zone may hold data of appends that were on their way beside a reset, and that no host expects.
    has_others: bool,
}

impl Known {
    /// An append was on its way beside a reset: it may be there, once or twice, or not.
    fn is_beside_a_reset(&self, since: Option<u32>) -> bool {
        since != Some(self.resets)
    }
}

struct World {
    random: Random,
    medium: Rc<RefCell<Medium>>,
    recovery: DiskRecovery,
    replayed: RefCell<u64>,
    namespaces: Arc<Namespaces>,
    buffers: Buffers,
    now: Nanos,
    links: Vec<Link>,
    closing: Vec<ClosingQueue<Client>>,
    /// By link: what is to be sent again.
    again: Vec<Vec<Work>>,
    known: Vec<Known>,
    appends: bool,
    /// Any host may reset a zone while others append to it.
    shared: bool,
    /// Each link is a controller of its own.
    paths: bool,
    queues: u16,
    options: Options,
    ended: u64,
}

macro_rules! context {
    ($world:ident) => {
        IoContext {
            disks: OneDisk {
                medium: &$world.medium,
                recovery: &$world.recovery,
                replayed: &$world.replayed,
            },
            buffers: &mut $world.buffers,
            now: $world.now,
        }
    };
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let of_medium = Random::new(random.draw());
        let appends = random.one_in(2);
        let paths = random.one_in(2);
        let shared = appends && random.one_in(2);
        let in_capsule = random.pick(&[0, 8192]);
        let medium = Medium::new(of_medium, ZONES, random.one_in(2));
        let mut world = World {
            random,
            medium: Rc::new(RefCell::new(medium)),
            recovery: DiskRecovery::new(geometry()),
            replayed: RefCell::new(0),
            namespaces: namespaces(&geometry()),
            buffers: Buffers::new(1 << 20),
            now: Nanos(0),
            links: Vec::new(),
            closing: Vec::new(),
            again: vec![Vec::new(); LINKS],
            known: (0..ZONES).map(|_| Known::default()).collect(),
            appends,
            shared,
            paths,
            queues: 0,
            options: Options { in_capsule, ..Options::default() },
            ended: 0,
        };
        for n in 0..LINKS {
            let link = world.link(n / QUEUES);
            world.links.push(link);
        }
        world
    }

    fn link(&mut self, host: usize) -> Link {
        let mut connection = Connection::new(Config::default(), self.now);
        connection.set_queue(Queue { entries: ENTRIES, sq_flow_control: true });
        self.queues += 1;
        let controller = if self.paths { self.queues } else { host as u16 };
        let queue = QueueId { controller, qid: self.queues };
        let nqn = Nqn::new(&format!("nqn.host{host}")).unwrap();
        let key = HostId { nqn, id: [7; 16] }.key();
        let mut io = IoQueue::new(queue, key, ENTRIES);
        io.show(self.namespaces.clone(), &context!(self).disks);
        Link {
            host,
            initiator: Initiator::new(self.options),
            connection,
            io,
            up: Vec::new(),
            down: Vec::new(),
            processed: 0,
            in_flight: BTreeMap::new(),
        }
    }

    /// New work for a host, if its zone has room for it.
    fn work(&mut self, host: usize) -> Option<Work> {
        let zone = match self.appends && self.random.one_in(2) {
            true => WRITTEN + self.random.below(ZONES - WRITTEN),
            // Each host writes to a zone of its own.
            false => host as u32 % WRITTEN,
        };
        let shared = self.shared && zone >= WRITTEN;
        let known = &mut self.known[zone as usize];
        let len = self.random.range(1, 8);
        let fill = self.random.below(2) as u8;
        let left = self.links[LINKS..].iter().any(|l| l.host == host);
        let work = if known.asked + len > ZONE || self.random.one_in(if shared { 12 } else { 40 }) {
            // A write of a link that it has left could come after the reset.
            if (known.work > 0 && (!shared || self.random.one_in(2))) || left {
                return None;
            }
            known.has_others |= known.work > 0;
            (known.resetting, known.resets) = (known.resetting + 1, known.resets + 1);
            Work::Reset { zone }
        } else if zone >= WRITTEN {
            let since = (known.resetting == 0).then_some(known.resets);
            known.has_others |= since.is_none();
            Work::Append { zone, len: len.div_ceil(4), fill, since }
        } else if known.work > 0 {
            // As Linux does it: one write of a zone at a time.
            return None;
        } else {
            let zeroes = self.random.one_in(4);
            let fill = if zeroes { 0 } else { fill };
            Work::Write { at: zone * ZONE + known.asked, len, fill, zeroes }
        };
        match work {
            Work::Reset { .. } if shared => {}
            // Nothing goes beside it.
            Work::Reset { .. } => known.asked = ZONE,
            Work::Write { len, .. } | Work::Append { len, .. } => known.asked += len,
        }
        known.work += 1;
        Some(work)
    }

    fn send(&mut self, n: usize, quiet: bool) {
        let host = self.links[n].host;
        if self.links[n].in_flight.len() as u32 + 1 >= ENTRIES {
            return;
        }
        let old = &mut self.again[n];
        let work = match old.len() as u32 {
            0 => None,
            len => Some(old.swap_remove(self.random.below(len) as usize)),
        };
        let work = work.or_else(|| if quiet { None } else { self.work(host) });
        if let Some(work) = work {
            let (command, data) = work.command(self.random.one_in(5));
            let link = &mut self.links[n];
            let cid = link.initiator.send(command, data);
            link.in_flight.insert(cid, work);
        }
    }

    /// Some bytes go from the host to the target, or all.
    fn up(&mut self, n: usize) {
        let link = &mut self.links[n];
        link.up.extend(link.initiator.take_output());
        let mut left = self.random.below(link.up.len() as u32 + 1) as usize;
        if self.random.one_in(2) {
            left = link.up.len();
        }
        while left > 0 {
            let link = &mut self.links[n];
            let bytes = link.connection.receive(&link.up, left, &mut self.buffers, self.now);
            link.up.drain(..bytes);
            left -= bytes;
            self.run(n);
            if bytes == 0 {
                return;
            }
        }
    }

    /// The target has a turn.
    fn run(&mut self, n: usize) {
        let link = &mut self.links[n];
        while let Some(event) = link.connection.next_event(&mut self.buffers) {
            match event {
                ConnectionEvent::Command(c) => {
                    link.io.begin(c, &mut link.connection, &mut context!(self));
                }
                ConnectionEvent::Ended(e) => panic!("{e:?}"),
            }
        }
        link.io.asked(&link.connection, &context!(self));
        link.io.run(&mut link.connection, &mut context!(self));
        link.down.extend(output(&mut link.connection, &mut self.buffers, self.now));
    }

    /// Some bytes go from the target to the host, or all.
    fn down(&mut self, n: usize) {
        let link = &mut self.links[n];
        let mut bytes = self.random.below(link.down.len() as u32 + 1) as usize;
        if self.random.one_in(2) {
            bytes = link.down.len();
        }
        link.initiator.received(&link.down[..bytes]).unwrap();
        link.down.drain(..bytes);
        link.processed += bytes as u64;
        while let Some(done) = self.links[n].initiator.done() {
            let c = done.completion;
            let work = self.links[n].in_flight.remove(&c.cid).unwrap();
            // Appends beside a reset may have filled the zone.
            let full = [ZONE_IS_FULL, status::ZONE_BOUNDARY].contains(&(c.status & 0x7ff));
            let is_full = self.shared && matches!(work, Work::Append { .. }) && full;
            assert!(c.status == 0 || is_full, "{work:?} was refused: {:x}", c.status);
            self.done(work, (!is_full).then_some(c.result as u32));
        }
    }

    /// The host has an answer.
    fn done(&mut self, work: Work, place: Option<u32>) {
        self.ended += 1;
        let zone = work.zone() as usize;
        let (known, medium) = (&mut self.known[zone], self.medium.borrow());
        let is = &medium.zones[zone].data;
        known.work -= 1;
        match work {
            Work::Reset { .. } => {
                (known.resetting, known.resets) = (known.resetting - 1, known.resets + 1);
                (known.asked, known.data) = (0, BTreeMap::new());
                known.has_others &= known.work > 0 || !is.is_empty();
                assert!(is.is_empty() || known.has_others);
            }
            Work::Append { since, .. } if known.is_beside_a_reset(since) || place.is_none() => {}
            Work::Write { at, len, fill, .. } | Work::Append { zone: at, len, fill, .. } => {
                let is_append = matches!(work, Work::Append { .. });
                let at = if is_append { place.unwrap() } else { at };
                assert_eq!(at / ZONE, zone as u32);
                for i in at % ZONE..at % ZONE + len {
                    assert_eq!(is.get(i as usize), Some(&fill), "{work:?} is not at {at}");
                    let twice = known.data.insert(i, fill);
                    assert!(twice.is_none(), "{work:?} has got a place of another, {at}");
                }
            }
        }
        if known.work == 0 && !known.has_others {
            assert_eq!(known.data.len(), is.len(), "zone {zone}: {work:?} is there twice");
        }
    }

    /// The host makes another connection, and sends again what has no answer.
    fn leave(&mut self, n: usize) -> Link {
        let host = self.links[n].host;
        let new = self.link(host);
        let mut link = std::mem::replace(&mut self.links[n], new);
        for work in std::mem::take(&mut link.in_flight).into_values() {
            let by = host * QUEUES + self.random.below(QUEUES as u32) as usize;
            self.again[by].push(work);
        }
        link
    }

    /// The target hears that a connection has ended.
    fn end(&mut self, link: Link) {
        let sent = link.connection.bytes_sent();
        assert_eq!(link.processed + link.down.len() as u64, sent);
        // An append is told from a new one with the same data by what the host's TCP has acknowledged. For writes that does not
        // matter: it may be less or more than what the host has processed.
        let acknowledged = match self.appends {
            true => link.processed,
            false => u64::from(self.random.below(sent as u32 + 1)),
        };
        self.closing.extend(link.io.end(acknowledged, drop, &mut context!(self)));
    }

    /// The host has left the link, and the target does not know it. What is under way to either end is lost.
    fn fall_silent(&mut self, n: usize) {
        let mut link = self.leave(n);
        link.up.clear();
        // Its writes may fail in part from now on: their answers reach no host.
        link.io.busy_clients().for_each(|c| c.closing = true);
        self.links.push(link);
    }

    fn drain(&mut self) {
        for queue in &mut self.closing {
            queue.run(drop, &mut context!(self));
        }
        self.closing.retain(|q| !q.is_empty());
    }

    fn step(&mut self, quiet: bool) {
        self.now = self.now.plus(Nanos(1_000_000));
        self.medium.borrow_mut().end_late();
        let n = self.random.below(self.links.len() as u32) as usize;
        match self.random.below(if quiet { 10 } else { 11 }) {
            5..7 => self.run(n),
            9 => self.drain(),
            _ if n >= LINKS => {
                if self.random.one_in(8) {
                    let link = self.links.swap_remove(n);
                    self.end(link);
                }
            }
            0..3 => self.send(n, quiet),
            3..5 => self.up(n),
            7..9 => self.down(n),
            _ if !self.random.one_in(8) => {}
            // An append that is sent again before the target knows of the loss is carried out twice.
            _ if self.paths && !self.appends && self.random.one_in(2) => self.fall_silent(n),
            // One queue, or all of a host as Linux does.
            _ => {
                let all = match self.random.one_in(3) {
                    true => n..n + 1,
                    false => n / QUEUES * QUEUES..(n / QUEUES + 1) * QUEUES,
                };
                for n in all {
                    let link = self.leave(n);
                    self.end(link);
                }
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.again.iter().all(Vec::is_empty) && self.known.iter().all(|k| k.work == 0)
    }
}

/// Runs a world. Returns how many commands have ended, how many were found on the disk, and how many writes were given up and
/// have landed.
fn run(seed: u64) -> [u64; 3] {
    let mut world = World::new(seed);
    for _ in 0..1500 {
        world.step(false);
    }
    for _ in 0..20_000 {
        if world.is_idle() {
            break;
        }
        world.step(true);
    }
    assert!(world.is_idle(), "a command is never answered");
    [world.ended, *world.replayed.borrow(), world.medium.borrow().landed_late]
}

/// L2, L4, L10, L14.
#[test]
fn l4_commands_that_are_sent_again_are_carried_out_once() {
    let seeds: u64 = std::env::var("SEEDS").map_or(400, |n| n.parse().unwrap());
    let first: u64 = std::env::var("SEED").map_or(0, |n| n.parse().unwrap());
    let mut all = [0; 3];
    for seed in first..first + seeds {
        let world = std::panic::catch_unwind(|| run(seed));
        let world = world.unwrap_or_else(|_| panic!("in the world of seed {seed}"));
        all.iter_mut().zip(world).for_each(|(sum, n)| *sum += n);
    }
    let [ended, replayed, late] = all;
    println!("{ended} commands, {replayed} found on the disk, {late} landed late");
    assert!(replayed > 5 * seeds && late > seeds / 10, "{all:?}");
}
