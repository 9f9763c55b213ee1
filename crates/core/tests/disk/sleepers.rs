//! A queue that sleeps is woken: by a device that announces completions and has no deadlines, and by other queues that
//! give back what it waits for. Each of these hung once. The same with threads: `model/turns.rs`.

use crate::common::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue, Mode, QueueConfig};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Bios, Commands, Device, Error, Nanos, Queue};
use zoneplug_devices::emu::EmuDisk;

/// A device whose commands end when that is said, and which then wakes the queues that were armed: as threads or a
/// kernel below would.
struct Tells {
    dev: Arc<EmuDisk>,
    line: Arc<Line>,
}

#[derive(Default)]
struct Line {
    done: AtomicBool,
    armed: Mutex<Vec<Waker>>,
}

impl Line {
    fn ring(&self) {
        self.done.store(true, SeqCst);
        let armed = std::mem::take(&mut *self.armed.lock().unwrap());
        armed.into_iter().for_each(Waker::wake);
    }
}

struct TellsQueue {
    queue: Box<dyn Queue>,
    line: Arc<Line>,
    waker: Waker,
    armed: bool,
    held: u32,
}

impl TellsQueue {
    /// Asks to be woken when a command ends, if the queue is armed and has one at the device.
    fn tell(&mut self) {
        if self.armed && self.held > 0 {
            self.armed = false;
            self.line.armed.lock().unwrap().push(self.waker.clone());
            if self.line.done.load(SeqCst) {
                self.line.ring();
            }
        }
    }
}

impl Device for Tells {
    fn geometry(&self) -> &Geometry {
        self.dev.geometry()
    }
    fn limits(&self) -> &Limits {
        self.dev.limits()
    }
    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        let (queue, line) = (self.dev.open_queue(depth, Waker::noop().clone())?, self.line.clone());
        Ok(Box::new(TellsQueue { queue, line, waker, armed: false, held: 0 }))
    }
}

impl Queue for TellsQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.held += commands.len() as u32;
        self.queue.submit(now, commands);
        self.tell();
    }
    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        if self.line.done.load(SeqCst) {
            let before = done.len();
            self.queue.poll(now, done);
            self.held -= (done.len() - before) as u32;
        }
    }
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
    fn arm(&mut self) {
        self.armed = true;
        self.tell();
    }
}

/// 4 zones of 64 sectors on a device that tells; its commands end from `ring` on.
fn telling() -> (Disk, Arc<Line>) {
    let mut emu = make(4, 64, 64).emu;
    emu.latency = Nanos(0);
    let line = Arc::new(Line::default());
    line.ring();
    let device = Tells { dev: EmuDisk::new(emu).unwrap(), line: line.clone() };
    let disk = open(Arc::new(device), DiskConfig::default());
    line.done.store(false, SeqCst);
    (disk, line)
}

#[derive(Default)]
struct Wakes(AtomicU32);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn queue(disk: &Disk, waker: &Waker, tags: u16) -> DiskQueue {
    disk.open_queue(QueueConfig { depth: 8, tags, waker: waker.clone() }).unwrap()
}

/// Arms, polls once more, and says whether its owner may sleep.
fn sleeps(queue: &mut DiskQueue, waker: &Waker, done: &mut Bios) -> bool {
    let armed = queue.arm(waker);
    queue.poll(Nanos(0), done);
    armed && done.is_empty() && queue.next_deadline().is_none()
}

/// R40: a write is parked behind one that a dropped queue left at the device. That queue's owner has gone, so
/// a queue that sleeps is woken when the device has finished the write.
#[test]
fn r40_a_completion_of_an_orphan_wakes_who_sleeps() {
    let (disk, line) = telling();
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut gone = queue(&disk, Waker::noop(), 2);
    let mut stays = queue(&disk, &waker, 2);
    gone.submit(Nanos(0), &mut Bios::from([write(0, 8)]));
    stays.submit(Nanos(0), &mut Bios::from([write(8, 8)]));
    drop(gone);
    let mut done = Bios::new();
    assert!(sleeps(&mut stays, &waker, &mut done), "nothing has ended");
    assert_eq!(wakes.0.load(SeqCst), 0);
    line.ring();
    assert!(wakes.0.load(SeqCst) > 0, "nobody else polls the orphan");
    // Its own write leaves through the orphan, or by itself.
    for _ in 0..4 {
        stays.poll(Nanos(0), &mut done);
    }
    assert_eq!(done.len(), 1);
    assert!(done[0].status.is_ok());
}

/// The same, where the queue is dropped while the other sleeps already, and where the device has finished before that
/// one arms.
#[test]
fn r40_a_sleeper_takes_over_an_orphan() {
    for late in [false, true] {
        let (disk, line) = telling();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut gone = queue(&disk, Waker::noop(), 2);
        let mut stays = queue(&disk, &waker, 2);
        gone.submit(Nanos(0), &mut Bios::from([write(0, 8)]));
        stays.submit(Nanos(0), &mut Bios::from([write(8, 8)]));
        let mut done = Bios::new();
        assert!(sleeps(&mut stays, &waker, &mut done));
        drop(gone);
        assert_eq!(wakes.0.swap(0, SeqCst), 1, "somebody has to poll the orphan");
        if late {
            line.ring();
        }
        if sleeps(&mut stays, &waker, &mut done) {
            line.ring();
            assert!(late || wakes.0.load(SeqCst) > 0);
        }
        for _ in 0..4 {
            stays.poll(Nanos(0), &mut done);
        }
        assert_eq!(done.len(), 1, "late: {late}");
    }
}

/// I8: what is called when the orphans' queues are armed may use the disk: no lock is held.
#[test]
fn i8_the_waker_of_an_orphan_may_use_the_disk() {
    struct Looks(Mutex<Option<DiskQueue>>, AtomicU32);
    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            if let Some(q) = &mut *self.0.lock().unwrap() {
                q.poll(Nanos(0), &mut Bios::new());
                let _ = q.next_deadline();
            }
            self.1.fetch_add(1, SeqCst);
        }
    }
    let (disk, line) = telling();
    let other = queue(&disk, Waker::noop(), 2);
    let looks = Arc::new(Looks(Mutex::new(Some(other)), AtomicU32::new(0)));
    let waker = Waker::from(looks.clone());
    let mut gone = queue(&disk, Waker::noop(), 2);
    let mut stays = queue(&disk, &waker, 2);
    gone.submit(Nanos(0), &mut Bios::from([write(0, 8)]));
    stays.submit(Nanos(0), &mut Bios::from([write(8, 8)]));
    drop(gone);
    // Done by the time that it is armed: it is called from there.
    line.ring();
    let _ = stays.arm(&waker);
    assert!(looks.1.load(SeqCst) > 0);
    let mut done = Bios::new();
    for _ in 0..4 {
        stays.poll(Nanos(0), &mut done);
    }
    assert_eq!(done.len(), 1);
    let other = looks.0.lock().unwrap().take();
    drop(other);
}

/// C1: a queue's tag comes back from another, which sent its write. It is woken when the tag is back, not only when its
/// BIO is: what it has in line waits for the tag.
#[test]
fn c1_a_tag_that_another_gives_back_wakes_its_queue() {
    /// Woken while the other is in the middle of its poll: collects, arms again and sleeps on.
    struct Sleeper(Mutex<Option<DiskQueue>>, Mutex<Bios>, AtomicU32);
    impl Sleeper {
        fn turn(self: &Arc<Self>) {
            let waker = Waker::from(self.clone());
            let (mut queue, mut done) = (self.0.lock().unwrap(), self.1.lock().unwrap());
            let Some(queue) = &mut *queue else { return };
            while !queue.arm(&waker) {
                queue.poll(Nanos(0), &mut done);
            }
            queue.poll(Nanos(0), &mut done);
        }
    }
    impl Wake for Sleeper {
        fn wake(self: Arc<Self>) {
            self.2.fetch_add(1, SeqCst);
            self.turn();
        }
    }
    let mut emu = make(4, 64, 64).emu;
    emu.latency = Nanos(0);
    let config = DiskConfig { mode: Mode::Lock, ..DiskConfig::default() };
    let disk = open(EmuDisk::new(emu).unwrap(), config);
    let mut other = disk.open_polled_queue(8, 2).unwrap();
    let mut own = disk.open_polled_queue(8, 1).unwrap();
    // The second write waits for the zone's lock with the only tag of its queue, and a read waits for that.
    other.submit(Nanos(0), &mut Bios::from([write(0, 8)]));
    own.submit(Nanos(0), &mut Bios::from([write(8, 8), read(64, 8)]));
    let sleeper = Arc::new(Sleeper(Mutex::new(Some(own)), Mutex::default(), AtomicU32::new(0)));
    sleeper.turn();
    let mut done = Bios::new();
    for _ in 0..3 {
        other.poll(Nanos(0), &mut done);
    }
    assert_eq!(done.len(), 1);
    assert_eq!(sleeper.2.load(SeqCst), 2, "for its BIO, and for its tag");
    let queue = sleeper.0.lock().unwrap().take().unwrap();
    let mut queue = queue;
    queue.poll(Nanos(0), &mut sleeper.1.lock().unwrap());
    assert_eq!(sleeper.1.lock().unwrap().len(), 2, "the read has gone with that tag");
}
