//! Devices written in safe Rust that do with BIOs and memory whatever they like: keep, drop, exchange, cut and
//! forge them. Their clients may see errors, wait in vain, and lose memory; no device ever writes into memory
//! that its client has again. The scripts that run tests under valgrind and with the address sanitizer run
//! these.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::vec_box)]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use zoneplug_buf::{AlignedBuf, IoBuf, Lent};
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{
    Bio, Bios, Command, Commands, Device, Error, Nanos, Op, Queue, Sector, Status,
};
use zoneplug_devices::emu::{EmuConfig, EmuDisk};
use zoneplug_devices::stack::FaultDisk;
use zoneplug_host::{AsyncDisk, BlockingDisk, HostedDisk};

/// What a device does with the commands that it gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crime {
    /// Keeps the BIO, and gives back another one with its token.
    KeepsTheBio,
    /// Keeps the memory.
    KeepsTheMemory,
    /// Keeps the first sector of the memory.
    KeepsAPart,
    /// Drops the BIO.
    DropsTheBio,
    /// Exchanges the BIOs of two commands.
    SwapsBios,
    /// Exchanges the memory of two BIOs.
    SwapsMemory,
    /// Exchanges the tokens of two BIOs.
    SwapsTokens,
    /// Exchanges what two commands are.
    SwapsCommands,
    /// Gives back a second command with a BIO of its own making, and the token of the first one.
    AnswersTwice,
    /// Adds a BIO with the token of the other.
    AddsABio,
    /// Adds a BIO with memory of its own.
    AddsMemory,
}

const ALL: [Crime; 11] = [
    Crime::KeepsTheBio,
    Crime::KeepsTheMemory,
    Crime::KeepsAPart,
    Crime::DropsTheBio,
    Crime::SwapsBios,
    Crime::SwapsMemory,
    Crime::SwapsTokens,
    Crime::SwapsCommands,
    Crime::AnswersTwice,
    Crime::AddsABio,
    Crime::AddsMemory,
];

impl Crime {
    /// Whether it takes two commands.
    fn needs_two(self) -> bool {
        matches!(
            self,
            Crime::SwapsBios | Crime::SwapsMemory | Crime::SwapsTokens | Crime::SwapsCommands
        )
    }
}

/// What a device has kept.
#[derive(Default)]
struct Loot {
    bios: Vec<Box<Bio>>,
    memory: Vec<IoBuf>,
}

impl Loot {
    /// Overwrites all of it.
    fn use_it(&mut self) {
        let memory = self.bios.iter_mut().map(|bio| bio.data_mut()).chain(&mut self.memory);
        for buf in memory.filter(|buf| !buf.is_shared()) {
            buf.copy_from(0, &vec![0xee; buf.len() as usize]);
        }
    }
}

struct Hostile {
    inner: Arc<dyn Device>,
    crime: Crime,
    /// Nothing is kept beside its queues then.
    trusted: bool,
    loot: Arc<Mutex<Loot>>,
}

impl Device for Hostile {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }
    fn never_panics(&self) -> bool {
        self.trusted
    }
    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        let inner = self.inner.open_queue(depth, waker)?;
        let (crime, loot) = (self.crime, self.loot.clone());
        Ok(Box::new(HostileQueue { inner, crime, loot, held: Commands::new() }))
    }
}

struct HostileQueue {
    inner: Box<dyn Queue>,
    crime: Crime,
    loot: Arc<Mutex<Loot>>,
    /// Until there are two of them.
    held: Commands,
}

fn loot(l: &Mutex<Loot>) -> MutexGuard<'_, Loot> {
    l.lock().unwrap()
}

fn forged(like: &Bio) -> Box<Bio> {
    let mut bio = Bio::new(like.op, like.sector, like.len_sectors);
    bio.set_token(like.token());
    bio
}

impl HostileQueue {
    fn commit(&mut self, mut c: Box<Command>, done: &mut Commands) {
        let mut loot = loot(&self.loot);
        match self.crime {
            Crime::KeepsTheBio => {
                let other = forged(&c.bios[0]);
                loot.bios.push(std::mem::replace(&mut c.bios[0], other));
            }
            Crime::KeepsTheMemory => loot.memory.push(c.bios[0].take_buf()),
            Crime::KeepsAPart => loot.memory.push(c.bios[0].data_mut().split_to(512)),
            Crime::DropsTheBio => c.bios.clear(),
            Crime::AnswersTwice => {
                let mut again = Command::of(forged(&c.bios[0]));
                again.status = Status::Ok;
                done.push_back(again);
                loot.memory.push(c.bios[0].take_buf());
            }
            Crime::AddsABio => {
                let other = forged(&c.bios[0]);
                c.bios.insert(0, other);
            }
            Crime::AddsMemory => {
                let mut other = forged(&c.bios[0]);
                other.set_buf(IoBuf::leaked(4096));
                c.bios.push(other);
            }
            _ => unreachable!("these take two"),
        }
        done.push_back(c);
    }

    fn commit_two(&mut self, mut a: Box<Command>, mut b: Box<Command>, done: &mut Commands) {
        match self.crime {
            Crime::SwapsBios => std::mem::swap(&mut a.bios[0], &mut b.bios[0]),
            Crime::SwapsMemory => {
                std::mem::swap(a.bios[0].data_mut(), b.bios[0].data_mut());
            }
            Crime::SwapsTokens => {
                let (x, y) = (a.bios[0].token(), b.bios[0].token());
                a.bios[0].set_token(y);
                b.bios[0].set_token(x);
            }
            Crime::SwapsCommands => std::mem::swap(&mut *a, &mut *b),
            _ => unreachable!("these take one"),
        }
        done.extend([a, b]);
    }
}

impl Queue for HostileQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.inner.submit(now, commands);
    }
    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let mut back = Commands::new();
        self.inner.poll(now, &mut back);
        for c in back {
            if !c.op.has_data() || c.bios.is_empty() {
                done.push_back(c);
            } else if !self.crime.needs_two() {
                self.commit(c, done);
            } else {
                self.held.push_back(c);
                if self.held.len() == 2 {
                    let (a, b) = (self.held.pop_front().unwrap(), self.held.pop_front().unwrap());
                    self.commit_two(a, b, done);
                }
            }
        }
    }
    fn next_deadline(&self) -> Option<Nanos> {
        self.inner.next_deadline()
    }
    fn arm(&mut self) {
        self.inner.arm();
    }
}

fn emu() -> Arc<EmuDisk> {
    let config: EmuConfig = "mem,zones=4,zone-size=1M".parse().unwrap();
    EmuDisk::new(config).unwrap()
}

fn open(
    inner: Arc<dyn Device>,
    crime: Crime,
    trusted: bool,
    config: DiskConfig,
) -> (HostedDisk, Arc<Mutex<Loot>>) {
    let loot = Arc::new(Mutex::new(Loot::default()));
    let device = Hostile { inner, crime, trusted, loot: loot.clone() };
    (HostedDisk::open(Arc::new(device), config).unwrap(), loot)
}

/// Runs `f` for each crime, with a watch between the disk and its device and without.
fn for_all(mut f: impl FnMut(Crime, HostedDisk, &Mutex<Loot>)) {
    for crime in ALL {
        for trusted in [false, true] {
            let (disk, loot) = open(emu(), crime, trusted, DiskConfig::default());
            f(crime, disk, &loot);
        }
    }
}

/// Memory that the allocator hands out now is not what a device has kept.
fn nobody_writes_here(crime: Crime, kept: &Mutex<Loot>) {
    let mut bufs: Vec<_> = (0..64).map(|_| AlignedBuf::zeroed(4096)).collect();
    bufs.iter_mut().for_each(|b| b.write(0, &[0x11; 4096]));
    loot(kept).use_it();
    for b in &bufs {
        assert!(b.to_vec().iter().all(|&x| x == 0x11), "{crime:?}: memory in use was overwritten");
    }
}

fn stamped() -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(4096);
    buf.write(0, &[0x22; 4096]);
    buf
}

/// A client of the blocking adapter, whose operations may fail or take too long.
#[test]
fn the_blocking_adapter_frees_nothing_that_a_device_has() {
    for_all(|crime, disk, kept| {
        {
            let mut io = BlockingDisk::new(&disk).unwrap();
            io.set_timeout(Some(Duration::from_millis(20)));
            for round in 0..4 {
                let at = Sector(round * 8);
                match io.write(at, stamped()) {
                    Ok(buf) => assert!(buf.to_vec().iter().all(|&x| x == 0x22), "{crime:?}"),
                    Err(e) => assert_ne!(e.status, Status::Ok),
                }
                drop(io.read(at, 8));
                nobody_writes_here(crime, kept);
            }
        }
        nobody_writes_here(crime, kept);
        let taken = matches!(
            crime,
            Crime::KeepsTheBio | Crime::KeepsTheMemory | Crime::KeepsAPart | Crime::AnswersTwice
        );
        let end = Instant::now() + Duration::from_secs(20);
        while taken && disk.withheld().buffers == 0 {
            assert!(Instant::now() < end, "{crime:?}: nothing is withheld");
            std::thread::yield_now();
        }
        drop(disk);
        nobody_writes_here(crime, kept);
    });
}

/// Polls a list of futures for a while; what is not ready then is dropped.
fn poll_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut ready = Vec::new();
    let end = Instant::now() + Duration::from_millis(20);
    while !futures.is_empty() && Instant::now() < end {
        let mut cx = Context::from_waker(Waker::noop());
        futures.retain_mut(|f| match pin!(f).poll(&mut cx) {
            Poll::Ready(out) => {
                ready.push(out);
                false
            }
            Poll::Pending => true,
        });
    }
    ready
}

/// Several operations at a time of the adapter with futures.
#[test]
fn the_adapter_with_futures_frees_nothing_that_a_device_has() {
    for_all(|crime, disk, kept| {
        let io = AsyncDisk::new(&disk, 8).unwrap();
        for round in 0..3 {
            // In zones of their own, so that no command waits for another.
            let at = |zone: u64| Sector(zone * 2048 + round * 8);
            let writes = (0..4).map(|zone| io.write(at(zone), stamped())).collect();
            for buf in poll_all(writes).into_iter().flatten() {
                assert!(buf.to_vec().iter().all(|&x| x == 0x22), "{crime:?}: other memory");
            }
            drop(poll_all((0..4).map(|zone| io.read(at(zone), 8)).collect()));
            nobody_writes_here(crime, kept);
        }
        drop(io);
        nobody_writes_here(crime, kept);
        drop(disk);
        nobody_writes_here(crime, kept);
    });
}

/// A client of its own making: it has its memory again when what it lent is back, whatever the tokens say.
#[test]
fn a_client_that_compares_frees_nothing_that_a_device_has() {
    for_all(|crime, disk, kept| {
        let mut client = disk.open_client(8, 8).unwrap();
        let mut lent: Vec<Option<Lent>> = Vec::new();
        let mut list = Bios::new();
        for zone in 0..4 {
            let (loan, buf) = stamped().lend();
            // The last one is split.
            let (op, len) = if zone == 3 { (Op::Read, 8) } else { (Op::Write, 8) };
            let mut bio = Bio::with_buf(op, Sector(zone * 2048), len, buf);
            bio.set_token(lent.len() as u64);
            lent.push(Some(loan));
            list.push_back(bio);
        }
        client.submit(&mut list);
        let mut done = Bios::new();
        client.wait(&mut done, 4, Some(Duration::from_millis(20)));
        let mut back = 0;
        for mut bio in done {
            let Some(loan) = lent.get_mut(bio.token() as usize) else { continue };
            match loan.take().map(|loan| loan.take_back(bio.take_buf())) {
                Some(Ok(buf)) => (drop(buf), back += 1).1,
                Some(Err((it, _))) => *loan = Some(it),
                None => {}
            }
        }
        nobody_writes_here(crime, kept);
        let all = matches!(crime, Crime::SwapsBios | Crime::SwapsCommands | Crime::AddsMemory);
        assert!(!all || back == 4, "{crime:?}: nothing is lost: {back}");
        drop((client, disk));
        nobody_writes_here(crime, kept);
    });
}

/// Parts of a BIO: its client has its memory again when all of them are back, and not before.
#[test]
fn a_split_bio_comes_back_whole_or_without_memory() {
    for_all(|crime, disk, kept| {
        let mut io = BlockingDisk::new(&disk).unwrap();
        io.set_timeout(Some(Duration::from_millis(20)));
        // Over the ends of two zones.
        match io.read(Sector(2040), 2064) {
            Ok(buf) => {
                nobody_writes_here(crime, kept);
                assert_eq!(buf.len(), 2064 * 512, "{crime:?}");
            }
            Err(e) => assert_ne!(e.status, Status::Ok),
        }
        drop((io, disk));
        nobody_writes_here(crime, kept);
    });
}

/// A command that was given up comes back after all: its memory is free if it came with it, and stays withheld if not.
#[test]
fn memory_that_comes_back_late_is_compared_too() {
    for (crime, comes) in [(Crime::AddsMemory, true), (Crime::KeepsTheMemory, false)] {
        let config = DiskConfig { timeout: Some(Nanos(5_000_000)), ..DiskConfig::default() };
        let slow = FaultDisk::new(emu(), &"write/delay=60ms".parse().unwrap()).unwrap();
        let (disk, kept) = open(slow, crime, false, config);
        let mut io = BlockingDisk::new(&disk).unwrap();
        let e = io.write(Sector(0), stamped()).unwrap_err();
        assert_eq!((e.status, disk.withheld().buffers), (Status::Timeout, 1));
        nobody_writes_here(crime, &kept);
        let end = Instant::now() + Duration::from_secs(20);
        let back = || loot(&kept).memory.len() + usize::from(disk.withheld().buffers == 0) > 0;
        while !back() {
            assert!(Instant::now() < end, "{crime:?}: the command does not come back");
            std::thread::sleep(Duration::from_millis(1));
        }
        // The reactor has looked by then.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(disk.withheld().buffers == 0, comes, "{crime:?}");
        // A command that came back with other memory than it had is late for ever.
        assert_eq!(disk.disk().counters().late, 1, "{crime:?}");
        nobody_writes_here(crime, &kept);
    }
}

/// Reports zones that are on no disk, once it is open.
struct Wild(Arc<EmuDisk>, Arc<AtomicBool>);

struct WildQueue(Box<dyn Queue>, Arc<AtomicBool>);

impl Device for Wild {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }
    fn limits(&self) -> &Limits {
        self.0.limits()
    }
    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        Ok(Box::new(WildQueue(self.0.open_queue(depth, waker)?, self.1.clone())))
    }
}

impl Queue for WildQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.0.submit(now, commands);
    }
    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let first = done.len();
        self.0.poll(now, done);
        if self.1.load(Ordering::SeqCst) {
            for z in done.range_mut(first..).flat_map(|c| &mut c.report) {
                (z.start, z.len_sectors) = (Sector(u64::MAX - 1), u64::MAX);
            }
        }
    }
    fn next_deadline(&self) -> Option<Nanos> {
        self.0.next_deadline()
    }
    fn arm(&mut self) {
        self.0.arm();
    }
}

/// A client gets the zones as the device reports them, also where their addresses overflow.
#[test]
fn a_wild_report_reaches_the_client() {
    let wild = Arc::new(AtomicBool::new(false));
    let device = Wild(emu(), wild.clone());
    let disk = HostedDisk::open(Arc::new(device), DiskConfig::default()).unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    wild.store(true, Ordering::SeqCst);
    let starts: Vec<_> = io.report(Sector(0), 4).unwrap().iter().map(|z| z.start.0).collect();
    assert_eq!(starts, [u64::MAX - 1; 4]);
}
