//! The conformance suite of the device seam: the duties of every [`Device`]. Tests of any crate run it on their
//! devices; programs do not.
//!
//! The suite uses only the seam of the device that it is given, and takes time from [`Queue::next_deadline`]. A check
//! that fails panics with its name. The suite accepts both the statuses of a drive and those of a layer, because a
//! layer is a device too.
//!
//! ```
//! use zoneplug_devices::conformance::{Target, run};
//! use zoneplug_devices::emu::{EmuConfig, EmuDisk};
//! let config: EmuConfig = "mem,zones=8,zone-size=64K,zone-capacity=48K,conv=1".parse().unwrap();
//! run(&mut Target::new(&mut || EmuDisk::new(config.clone()).unwrap(), true));
//! ```

mod checks;
mod queues;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Wake, Waker};
use zoneplug_buf::{AlignedBuf, IoBuf, Lent};
use zoneplug_core::bio::{Bio, Command, Commands, Op, Status};
use zoneplug_core::device::{Device, Queue};
use zoneplug_core::unit::{Nanos, SECTOR_SHIFT, SECTOR_SIZE, Sector, ZoneNo};
use zoneplug_core::zone::{Condition, Geometry, Limits, ZoneInfo};

/// The devices to check.
pub struct Target<'a> {
    make: &'a mut dyn FnMut() -> Arc<dyn Device>,
    keeps_data: bool,
    drive: bool,
}

impl<'a> Target<'a> {
    /// Checks the devices that `make` returns. It may return a new one for each check, or the same one again, because
    /// all zones are reset before each check. `keeps_data`: whether a read returns the written data.
    pub fn new(make: &'a mut dyn FnMut() -> Arc<dyn Device>, keeps_data: bool) -> Target<'a> {
        Target { make, keeps_data, drive: false }
    }

    /// Marks the device as a drive, or another program's emulation of one. The suite then accepts every behaviour
    /// where the standards leave a choice, or where known drives differ in a way that no client relies on.
    #[must_use]
    pub fn of_a_drive(mut self) -> Target<'a> {
        self.drive = true;
        self
    }
}

/// One check. It panics if the device fails it.
pub type Check = fn(&mut Ctx);

/// Returns every check and its name.
pub fn checks() -> &'static [(&'static str, Check)] {
    checks::ALL
}

/// Runs every check.
pub fn run(target: &mut Target<'_>) {
    for &(name, check) in checks() {
        run_one(target, name, check);
    }
}

/// Runs one check of [`checks`].
pub fn run_one(target: &mut Target<'_>, name: &'static str, check: Check) {
    let mut ctx = Ctx::new((target.make)(), name, target);
    let result = catch_unwind(AssertUnwindSafe(|| {
        ctx.expect(Command::without_data(Op::ZoneResetAll, Sector(0), 0), &[Status::Ok]);
        check(&mut ctx);
    }));
    assert!(result.is_ok(), "the device does not conform: {name}");
}

/// Maximum number of bytes of a write of the checks.
const MAX_BYTES: u32 = 256 << 10;
/// A device counts as hung after this many polls in a row that bring no command, or after this many submissions of one
/// list.
const PATIENCE: u64 = 20_000_000;

// Statuses of a drive and of a layer for the same refusal.
const NOT_AT_WP: &[Status] = &[Status::UnalignedWrite, Status::NotAtWritePointer];
const PAST: &[Status] = &[Status::Boundary, Status::PastCapacity];
const FULL: &[Status] = &[Status::ZoneFull, Status::PastCapacity];
const TRANSITION: &[Status] = &[Status::InvalidTransition];
const INVALID: &[Status] = &[
    Status::InvalidField,
    Status::Boundary,
    Status::OutOfRange,
    Status::Unaligned,
    Status::BadBuffer,
    Status::NotZoneStart,
    Status::ConventionalZone,
    Status::AppendTooLarge,
];

/// Counts wake-ups.
#[derive(Debug, Default)]
struct Bell(AtomicU64);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A device under check, with one queue and the time.
pub struct Ctx {
    device: Arc<dyn Device>,
    queue: Box<dyn Queue>,
    bell: Arc<Bell>,
    now: Nanos,
    name: &'static str,
    /// Memory that commands have, or have had. Memory that a check drops with its command is leaked.
    lent: Vec<Lent>,
    free: Vec<AlignedBuf>,
    keeps_data: bool,
    /// See [`Target::of_a_drive`].
    drive: bool,
}

impl Ctx {
    fn new(device: Arc<dyn Device>, name: &'static str, target: &Target<'_>) -> Ctx {
        let bell = Arc::new(Bell::default());
        let queue = device.open_queue(16, Waker::from(Arc::clone(&bell))).expect("a queue opens");
        let (keeps_data, drive) = (target.keeps_data, target.drive);
        let (lent, free) = (Vec::new(), Vec::new());
        Ctx { device, queue, bell, now: Nanos(1), name, lent, free, keeps_data, drive }
    }

    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn limits(&self) -> &Limits {
        self.device.limits()
    }

    fn sequential(&self) -> Vec<ZoneNo> {
        let g = self.geometry();
        (0..g.nr_zones()).map(ZoneNo).filter(|&z| !g.is_conventional(z)).collect()
    }

    fn conventional(&self) -> Option<ZoneNo> {
        let g = self.geometry();
        (0..g.nr_zones()).map(ZoneNo).find(|&z| g.is_conventional(z))
    }

    /// Returns the first sequential zone, its start and its capacity in sectors.
    fn zone(&self) -> (ZoneNo, Sector, u32) {
        let g = self.geometry();
        let z = self.sequential()[0];
        (z, g.zone_start(z), g.capacity_of(z))
    }

    /// Returns the write granularity in sectors.
    fn unit(&self) -> u32 {
        self.limits().write_granularity_sectors
    }

    /// Returns the longest write of the checks, in sectors: the device's limit, and [`MAX_BYTES`].
    fn longest(&self) -> u32 {
        let max = self.limits().transfer_sectors().min(MAX_BYTES >> SECTOR_SHIFT);
        max / self.unit() * self.unit()
    }

    /// Submits one command and waits until it is back.
    fn run(&mut self, c: Box<Command>) -> Box<Command> {
        let mut list = Commands::from([c]);
        self.submit_all(&mut list);
        let mut done = self.wait(1);
        done.pop_front().expect("one came back")
    }

    /// Submits a list that fits into the queue.
    fn submit_all(&mut self, list: &mut Commands) {
        let mut tries = 0;
        while !list.is_empty() {
            self.queue.submit(self.now, list);
            tries += 1;
            assert!(tries < PATIENCE, "{}: an idle queue stays busy", self.name);
        }
    }

    /// Waits for exactly `n` commands.
    fn wait(&mut self, n: usize) -> Commands {
        let mut done = Commands::new();
        while done.len() < n {
            done.append(&mut self.wait_some());
        }
        assert_eq!(done.len(), n, "{}: more commands than were sent", self.name);
        done
    }

    /// Waits for at least one command.
    fn wait_some(&mut self) -> Commands {
        let mut done = Commands::new();
        for _ in 0..PATIENCE {
            self.queue.poll(self.now, &mut done);
            if !done.is_empty() {
                return done;
            }
            match self.queue.next_deadline() {
                Some(at) => self.now = self.now.max(at),
                None => std::thread::yield_now(),
            }
        }
        panic!("{}: a command does not come back", self.name);
    }

    /// Runs a command that must end with one of `allowed`.
    #[track_caller]
    fn expect(&mut self, c: Box<Command>, allowed: &[Status]) -> Box<Command> {
        let (op, sector, len) = (c.op, c.sector, c.len_sectors);
        let c = self.run(c);
        let status = c.status;
        assert!(
            allowed.contains(&status),
            "{}: {op:?} of {len} sectors at {sector} gave {status:?} instead of {allowed:?}",
            self.name
        );
        c
    }

    /// Takes memory of `sectors`, with undefined content.
    fn memory(&mut self, sectors: u32) -> IoBuf {
        let len = sectors * SECTOR_SIZE;
        let free = self.free.iter().position(|b| b.len() == len);
        let (lent, buf) = match free {
            Some(i) => self.free.swap_remove(i).lend(),
            None => AlignedBuf::zeroed(len).lend(),
        };
        self.lent.push(lent);
        buf
    }

    /// Takes a command that is no longer needed, to use its memory again.
    fn retire(&mut self, mut c: Command) {
        for bio in &mut c.bios {
            let buf = bio.take_buf();
            let lent = self.lent.iter().position(|l| l.range() == buf.range());
            let i =
                lent.unwrap_or_else(|| panic!("{}: a BIO is back without its memory", self.name));
            self.free.extend(self.lent.swap_remove(i).take_back(buf).ok());
        }
    }

    /// Makes a write or append of `len` sectors, with data [`stamp`]ed with `seed`.
    fn data_out(&mut self, op: Op, sector: Sector, len: u32, seed: u64) -> Box<Command> {
        let mut buf = self.memory(len);
        for i in 0..len {
            buf.copy_from(i * SECTOR_SIZE, &stamp(seed, i));
        }
        Command::of(Bio::with_buf(op, sector, len, buf))
    }

    #[track_caller]
    fn write(&mut self, sector: Sector, len: u32, seed: u64, allowed: &[Status]) -> Status {
        let c = self.data_out(Op::Write, sector, len, seed);
        let c = self.expect(c, allowed);
        let status = c.status;
        self.retire(*c);
        status
    }

    /// Makes a read into memory that is full of ones.
    fn data_in(&mut self, sector: Sector, len: u32) -> Box<Command> {
        let mut buf = self.memory(len);
        for i in 0..len {
            buf.copy_from(i * SECTOR_SIZE, &[0xff; SECTOR_SIZE as usize]);
        }
        Command::of(Bio::with_buf(Op::Read, sector, len, buf))
    }

    /// Reads `len` sectors and compares them. `data`: the seed of the data that they must be, and the first sector of
    /// that data; `None`: they must be unwritten, so zeroes.
    #[track_caller]
    fn verify(&mut self, sector: Sector, len: u32, data: Option<(u64, u32)>) {
        let c = self.data_in(sector, len);
        let c = self.expect(c, &[Status::Ok]);
        if !self.keeps_data {
            return self.retire(*c);
        }
        let mut got = [0; SECTOR_SIZE as usize];
        for i in 0..len {
            c.bios[0].data().copy_to(i * SECTOR_SIZE, &mut got);
            // ZBC lets the drive choose what a read of unwritten sectors returns, except that it must not be old
            // data.
            if self.drive && data.is_none() && got.iter().all(|&b| b == got[0]) {
                continue;
            }
            let want = match data {
                Some((seed, skip)) => stamp(seed, skip + i),
                None => [0; SECTOR_SIZE as usize],
            };
            assert!(got == want, "{}: wrong data {i} sectors after {sector}: {data:?}", self.name);
        }
        self.retire(*c);
    }

    /// Runs a management command for one zone.
    #[track_caller]
    fn manage(&mut self, op: Op, zone: ZoneNo, allowed: &[Status]) -> Status {
        let g = self.geometry();
        let (start, len) = (g.zone_start(zone), g.zone_len_sectors(zone));
        self.expect(Command::without_data(op, start, len), allowed).status
    }

    /// Closes a zone that is empty or full. The device must fail this; a ZBC drive may also do nothing and succeed.
    #[track_caller]
    fn close_in_vain(&mut self, zone: ZoneNo) {
        let nothing: &[Status] = if self.drive { &[Status::Ok] } else { &[] };
        self.manage(Op::ZoneClose, zone, &[TRANSITION, nothing].concat());
    }

    fn report(&mut self, sector: Sector, max: u32) -> Vec<ZoneInfo> {
        let mut c = Command::without_data(Op::ReportZones, sector, 0);
        c.report_max = max;
        self.expect(c, &[Status::Ok]).report
    }

    /// Returns the condition of one zone, and its write pointer as an offset in sectors.
    fn info(&mut self, zone: ZoneNo) -> (Condition, u64) {
        let start = self.geometry().zone_start(zone);
        let r = self.report(start, 1);
        assert_eq!(r.len(), 1, "{}: one zone", self.name);
        (r[0].cond, r[0].wp.0.wrapping_sub(start.0))
    }

    /// Asserts the condition, and the write pointer as an offset in sectors. The write pointer of a full zone must be
    /// at the end of the zone, whatever `wp` is.
    #[track_caller]
    fn assert_zone(&mut self, zone: ZoneNo, conds: &[Condition], wp: u32) {
        let (cond, at) = self.info(zone);
        let len = self.geometry().zone_len_sectors(zone);
        let wp = if cond == Condition::Full { len } else { wp };
        assert!(
            conds.contains(&cond) && at == u64::from(wp),
            "{}: {zone} is {cond} at {at}, not {conds:?} at {wp}",
            self.name
        );
    }

    /// Counts the zones in one condition.
    fn count(&mut self, cond: Condition) -> usize {
        self.report(Sector(0), u32::MAX).iter().filter(|z| z.cond == cond).count()
    }

    /// Writes a zone from offset `from` to its capacity, in sectors.
    fn fill(&mut self, zone: ZoneNo, from: u32) {
        let g = self.geometry();
        let (start, cap) = (g.zone_start(zone), g.capacity_of(zone));
        let mut at = from;
        while at < cap {
            let n = self.longest().min(cap - at);
            self.write(start.plus(u64::from(at)), n, u64::from(at), &[Status::Ok]);
            at += n;
        }
    }
}

/// Returns the content of sector `i` of a write with this seed.
fn stamp(seed: u64, i: u32) -> [u8; SECTOR_SIZE as usize] {
    let mut s = [0x5a; SECTOR_SIZE as usize];
    s[..8].copy_from_slice(&(seed + 1).to_le_bytes());
    s[8..12].copy_from_slice(&i.to_le_bytes());
    s[508..].copy_from_slice(&i.to_be_bytes());
    s
}
