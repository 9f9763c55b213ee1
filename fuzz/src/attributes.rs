//! The table of attributes: any name, any value. What is taken is shown, can be set again, and leaves a disk that works; what is
//! not is explained and has changed nothing.

use crate::explained;
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue};
use zoneplug_core::{Bio, Bios, IoBuf, Nanos, Op, Sector};
use zoneplug_devices::emu::EmuDisk;

/// What is changed: a disk, and how much was written to it.
struct World {
    disk: Disk,
    queue: DiskQueue,
    now: Nanos,
}

const DISKS: [&str; 4] = [
    "null,zones=8,zone-size=64K",
    "null,zones=8,zone-size=64K,max-open=2,max-active=3,append=native",
    "null,zones=8,zone-size=64K,conv=2,rotational=1",
    "null,zones=8,zone-size=64K,latency=10us,reorder=3",
];

impl World {
    fn new(which: u8) -> World {
        let config = DISKS[usize::from(which) % DISKS.len()].parse().expect("a device");
        let device = EmuDisk::new(config).expect("a device");
        let disk = Disk::open(device, DiskConfig::default(), &mut |next| next.unwrap_or(Nanos(0)))
            .expect("a disk");
        let queue = disk.open_polled_queue(16, 4).expect("a queue");
        World { disk, queue, now: Nanos(0) }
    }

    fn texts(&self) -> Vec<(&'static str, String)> {
        self.disk.attributes().into_iter().map(|a| (a.name, a.value)).collect()
    }

    fn step(&mut self, done: &mut Bios) {
        let next = self.queue.next_deadline().unwrap_or(Nanos(0));
        self.now = Nanos(self.now.0.max(next.0) + 1);
        self.queue.poll(self.now, done);
    }

    fn change(&mut self, name: &str, value: &str) -> bool {
        let mut change = match self.disk.change_attribute(name, value) {
            Ok(change) => change,
            Err(e) => {
                explained(&e);
                return false;
            }
        };
        for _ in 0..100 {
            if change.poll() {
                return true;
            }
            self.step(&mut Bios::new());
        }
        panic!("{name}={value} never takes effect");
    }

    /// A write to each of some zones, an append and a read: all come back.
    fn work(&mut self) {
        let reset = Bio::new(Op::ZoneResetAll, Sector(0), 0);
        let bio = |op, sector| Bio::with_buf(op, Sector(sector), 8, IoBuf::from_static(&BLOCK));
        let mut list = Bios::from([reset]);
        self.all(&mut list);
        list.extend([
            bio(Op::Write, 384),
            bio(Op::Write, 392),
            bio(Op::Write, 512),
            // In a zone of its own: a native append keeps no order with writes.
            bio(Op::ZoneAppend, 640),
            bio(Op::Read, 384),
        ]);
        self.all(&mut list);
    }

    fn all(&mut self, list: &mut Bios) {
        let (n, mut done) = (list.len(), Bios::new());
        for _ in 0..10_000 {
            self.queue.submit(self.now, list);
            self.step(&mut done);
            if done.len() == n {
                assert!(done.iter().all(|b| b.status.is_ok()), "{done:?} of {:?}", self.texts());
                return;
            }
        }
        panic!("{} of {n} BIOs come back: {:?}", done.len(), self.texts());
    }
}

/// What every BIO moves: the disks keep no data.
static BLOCK: [u8; 4096] = [0; 4096];

/// Lines of `name=value`, the first byte says of which disk.
pub fn attributes(data: &[u8]) {
    let Some((which, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let mut world = World::new(*which);
    for line in text.lines().take(16) {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        let before = world.texts();
        if !world.change(name, value) {
            assert_eq!(world.texts(), before, "{line} was refused");
            continue;
        }
        let shown = world.disk.attribute(name).expect("what was set is there");
        assert!(world.change(name, &shown), "{line} is shown as {shown}");
        assert_eq!(world.disk.attribute(name), Some(shown), "{line}");
        world.work();
    }
}
