//! The load generators.

use crate::NOW;
use crate::cases::{Case, Work, Zones};
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::disk::{Disk, DiskQueue};
use zoneplug_core::{
    Bio, BioPool, Bios, Command, Commands, Device, Flags, IoBuf, Op, Queue, Sector,
};
use zoneplug_devices::emu::{EmuDisk, EmuKind};

/// One client that keeps `depth` BIOs in flight.
pub(crate) struct Client {
    queue: DiskQueue,
    pool: BioPool,
    list: Bios,
    done: Bios,
    work: Work,
    depth: usize,
    block: u32,
    sectors: u64,
    zone_sectors: u64,
    /// How many zones are written at random.
    zones: u64,
    /// Where the next sequential BIO goes.
    at: u64,
    /// BIOs since the last reset.
    sent: u64,
    /// The write pointers of zones that are written at random.
    wps: Vec<u64>,
    rng: u64,
    errors: u64,
}

impl Client {
    pub(crate) fn new(disk: &Disk, c: &Case) -> Client {
        let g = disk.geometry();
        let nr_zones = u64::from(g.nr_zones());
        let zones = if c.zones == Zones::Many { nr_zones } else { nr_zones.min(64) };
        let zone_sectors = u64::from(g.zone_sectors());
        // Each BIO has memory of its own, and keeps it.
        let mut pool = BioPool::new(0);
        for _ in 0..c.depth {
            let buf = IoBuf::leaked(c.block << 9);
            pool.put(Bio::with_buf(Op::Write, Sector(0), c.block, buf));
        }
        Client {
            queue: disk.open_polled_queue(c.depth as u32, c.depth as u16).expect("a queue opens"),
            pool,
            list: Bios::with_capacity(c.depth),
            done: Bios::with_capacity(c.depth),
            work: c.work,
            depth: c.depth,
            block: c.block,
            sectors: g.capacity().0,
            zone_sectors,
            zones,
            at: 0,
            sent: 0,
            wps: (0..zones).map(|z| z * zone_sectors).collect(),
            rng: 0x2545_f491_4f6c_dd1d,
            errors: 0,
        }
    }

    #[inline]
    fn random(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng
    }

    #[inline]
    fn next(&mut self) -> Box<Bio> {
        let mut bio = self.pool.get();
        let n = u64::from(self.block);
        match self.work {
            Work::Seq => {
                if self.at == self.sectors {
                    self.at = 0;
                }
                bio.renew(Op::Write, Sector(self.at), self.block);
                self.at += n;
            }
            Work::Append => {
                let zone = self.at & !(self.zone_sectors - 1);
                bio.renew(Op::ZoneAppend, Sector(zone), self.block);
                self.at += n;
            }
            Work::Random => {
                let z = (self.random() % self.zones) as usize;
                bio.renew(Op::Write, Sector(self.wps[z]), self.block);
                self.wps[z] += n;
            }
            Work::Read => {
                let block = self.random() % (self.sectors / n);
                bio.renew(Op::Read, Sector(block * n), self.block);
            }
        }
        bio
    }

    /// Sends `n` BIOs, and waits for them.
    pub(crate) fn run(&mut self, n: u64) {
        let mut left = n;
        let mut in_flight = 0;
        while left > 0 || in_flight > 0 {
            while in_flight < self.depth && left > 0 {
                let bio = self.next();
                self.list.push_back(bio);
                in_flight += 1;
                left -= 1;
            }
            self.queue.submit(NOW, &mut self.list);
            self.queue.poll(NOW, &mut self.done);
            in_flight -= self.done.len();
            while let Some(bio) = self.done.pop_front() {
                self.errors += u64::from(!bio.status.is_ok());
                self.pool.put(bio);
            }
        }
        self.sent += n;
        assert_eq!(self.errors, 0, "every BIO succeeds");
    }

    /// Resets all zones if `n` more BIOs do not fit.
    pub(crate) fn make_room(&mut self, n: u64) {
        let block = u64::from(self.block);
        let room = match self.work {
            Work::Seq | Work::Append => (self.sectors - self.at) / block,
            // The fullest of the zones has not much more than the mean.
            Work::Random => {
                (self.zones * (self.zone_sectors / block) / 2).saturating_sub(self.sent)
            }
            Work::Read => return,
        };
        if room < n {
            self.reset();
        }
    }

    /// Writes all memory of a disk that keeps data, so that its pages are there, and to nearly every zone that is
    /// written at random, so that it is open.
    pub(crate) fn prepare(&mut self, c: &Case) {
        if c.kind == EmuKind::Mem {
            self.run(self.sectors / u64::from(self.block));
            self.reset();
        }
        if self.work == Work::Random {
            self.run(5 * self.zones);
        }
    }

    fn reset(&mut self) {
        self.list.push_back(Bio::new(Op::ZoneResetAll, Sector(0), 0));
        self.queue.submit(NOW, &mut self.list);
        while self.done.is_empty() {
            self.queue.poll(NOW, &mut self.done);
        }
        assert!(self.done.pop_front().is_some_and(|b| b.status.is_ok()));
        (self.at, self.sent) = (0, 0);
        for (zone, wp) in (0..).zip(&mut self.wps) {
            *wp = zone * self.zone_sectors;
        }
    }
}

/// Writes to the bare device in order, without the engine.
pub(crate) struct Raw {
    queue: Box<dyn Queue>,
    pool: Vec<Box<Command>>,
    list: Commands,
    done: Commands,
    depth: usize,
    at: u64,
}

impl Raw {
    pub(crate) fn new(device: &Arc<EmuDisk>, depth: usize) -> Raw {
        let bio = || Bio::with_buf(Op::Write, Sector(0), 8, IoBuf::leaked(4096));
        Raw {
            queue: device.clone().open_queue(depth as u16, Waker::noop().clone()).expect("opens"),
            pool: (0..depth).map(|_| Command::of(bio())).collect(),
            list: Commands::new(),
            done: Commands::new(),
            depth,
            at: 0,
        }
    }

    pub(crate) fn run(&mut self, n: u64) {
        let mut left = n;
        while left > 0 {
            for _ in 0..self.depth.min(left as usize) {
                let mut c = self.pool.pop().expect("one for each tag");
                c.set(Op::Write, Sector(self.at), 8, Flags::NONE);
                self.at += 8;
                left -= 1;
                self.list.push_back(c);
            }
            self.queue.submit(NOW, &mut self.list);
            self.queue.poll(NOW, &mut self.done);
            while let Some(c) = self.done.pop_front() {
                assert!(c.status.is_ok());
                self.pool.push(c);
            }
        }
    }
}
