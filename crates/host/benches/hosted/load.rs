//! The load generator.

use crate::port::Port;
use crate::threads::{Progress, Work};
use zoneplug_core::{Bio, BioPool, Bios, IoBuf, Op, Random, Sector};

/// 16 GiB.
pub(crate) const ZONE_SECTORS: u32 = 16 << 21;
/// BIOs that fill half a zone. The fullest of zones that are chosen at random has not much more than the mean.
const HALF: u64 = ZONE_SECTORS as u64 / 8 / 2;

/// Which zones a client appends to: each time to one that it draws from `nr` zones.
#[derive(Clone, Copy)]
pub(crate) struct Zones {
    /// The first of them. When they are full, the following ones are used.
    pub(crate) first: u64,
    pub(crate) nr: u64,
    /// How many clients use them at the same time, each in an order of its own.
    pub(crate) clients: u64,
}

impl Zones {
    /// `nr` zones from `first` on, for one client.
    pub(crate) const fn own(first: u64, nr: u64) -> Zones {
        Zones { first, nr, clients: 1 }
    }

    /// The first `nr` zones, for two clients.
    pub(crate) const fn shared(nr: u64) -> Zones {
        Zones { first: 0, nr, clients: 2 }
    }

    /// The first zone of a client that has sent `sent` BIOs. Clients of the same zones send as many, so all come to the
    /// same zones.
    fn first_after(&self, sent: u64) -> u64 {
        self.first + self.clients * sent / (HALF * self.nr) * self.nr
    }
}

/// A client that appends, keeping `depth` BIOs in flight. Loads of two threads share no cache line.
#[repr(align(128))]
pub(crate) struct Load<P> {
    port: P,
    pool: BioPool,
    list: Bios,
    done: Bios,
    depth: usize,
    zones: Zones,
    /// The first of the zones that this run uses.
    first: u64,
    sent: u64,
    random: Random,
    errors: u64,
    progress: Progress,
}

/// What every append moves.
static BLOCK: [u8; 4096] = [0; 4096];

impl<P: Port> Load<P> {
    /// Clients that have different `number`s choose zones in different orders.
    pub(crate) fn new(port: P, depth: usize, zones: Zones, number: u64) -> Self {
        Load {
            port,
            pool: BioPool::new(depth),
            list: Bios::with_capacity(depth),
            done: Bios::with_capacity(depth),
            depth,
            zones,
            first: 0,
            sent: 0,
            errors: 0,
            random: Random::new(number),
            progress: Progress::default(),
        }
    }

    #[inline]
    fn next(&mut self) -> Box<Bio> {
        let mut bio = self.pool.get();
        let zone = match self.zones.nr {
            1 => self.first,
            nr => self.first + self.random.draw() % nr,
        };
        bio.set(
            Op::ZoneAppend,
            Sector(zone * u64::from(ZONE_SECTORS)),
            8,
            IoBuf::from_static(&BLOCK),
        );
        bio
    }
}

impl<P: Port> Work for Load<P> {
    /// Sends `n` BIOs, and waits for them.
    fn run(&mut self, n: u64) {
        self.first = self.zones.first_after(self.sent);
        let (mut left, mut in_flight) = (n, 0);
        while left > 0 || in_flight > 0 {
            while in_flight < self.depth && left > 0 {
                let bio = self.next();
                self.list.push_back(bio);
                in_flight += 1;
                left -= 1;
            }
            self.port.submit(&mut self.list);
            self.port.poll(&mut self.done);
            in_flight -= self.done.len();
            while let Some(bio) = self.done.pop_front() {
                self.errors += u64::from(!bio.status.is_ok());
                self.pool.put(bio);
            }
            self.progress.set(n - left - in_flight as u64);
        }
        self.sent += n;
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn check(&self) {
        assert_eq!(self.errors, 0, "every BIO succeeds");
    }
}
