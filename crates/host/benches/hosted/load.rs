//! The load generator, and the thread that it runs on.

use crate::cpus;
use crate::port::Port;
use crate::slices::Alone;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;
use zoneplug_core::{Bio, BioPool, Bios, IoBuf, Op, Sector};
use zoneplug_host::Client;

/// 16 GiB.
pub(crate) const ZONE_SECTORS: u32 = 16 << 21;
/// BIOs that fill half a zone. The fullest of zones that are chosen at random has not much more than the mean.
const HALF: u64 = ZONE_SECTORS as u64 / 8 / 2;

/// Which zones a client appends to.
#[derive(Clone, Copy)]
pub(crate) enum Zones {
    /// The `n`th, and the following ones when it is full.
    From(u64),
    /// As many as this, which both clients use at the same time, each in an order of its own; the following ones when
    /// they are full.
    Shared(u64),
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
    rng: u64,
    errors: u64,
    /// How many BIOs of this run are done. Another thread looks at it when its own run ends.
    progress: Arc<Alone<AtomicU64>>,
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
            rng: (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            progress: Arc::new(Alone(AtomicU64::new(0))),
        }
    }

    #[inline]
    fn next(&mut self) -> Box<Bio> {
        let mut bio = self.pool.get();
        let zone = match self.zones {
            Zones::From(_) | Zones::Shared(1) => self.first,
            Zones::Shared(n) => {
                self.rng ^= self.rng << 13;
                self.rng ^= self.rng >> 7;
                self.rng ^= self.rng << 17;
                self.first + self.rng % n
            }
        };
        bio.set(
            Op::ZoneAppend,
            Sector(zone * u64::from(ZONE_SECTORS)),
            8,
            IoBuf::from_static(&BLOCK),
        );
        bio
    }

    /// Sends `n` BIOs, and waits for them.
    pub(crate) fn run(&mut self, n: u64) {
        self.first = match self.zones {
            Zones::From(first) => first + self.sent / HALF,
            // Two clients send as many, so both come to the same zones.
            Zones::Shared(zones) => 2 * self.sent / (HALF * zones) * zones,
        };
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
            self.progress.0.store(n - left - in_flight as u64, Ordering::Relaxed);
        }
        self.sent += n;
    }

    /// Panics if a BIO failed. A thread that panicked by itself would leave the other one waiting for it.
    pub(crate) fn check(&self) {
        assert_eq!(self.errors, 0, "every BIO succeeds");
    }
}

/// What a slice of one or two threads came to.
pub(crate) struct Together {
    /// ns per BIO of all threads together.
    pub(crate) ns: f64,
    /// The part of its work that the slowest thread had done when the first thread ended.
    pub(crate) share: f64,
}

/// Runs each load on a thread and a processor of its own. Each thread sends `ahead` BIOs; then all begin at the same time,
/// and each sends `n`.
pub(crate) fn together(loads: &mut [Load<Client>], cpus: &[usize], ahead: u64, n: u64) -> Together {
    let threads = loads.len();
    let ready = AtomicUsize::new(0);
    let progress: Vec<_> = loads.iter().map(|load| load.progress.clone()).collect();
    let ends: Vec<(Instant, Instant, u64)> = std::thread::scope(|s| {
        let (ready, progress) = (&ready, &progress);
        let spawned: Vec<_> = loads
            .iter_mut()
            .zip(cpus)
            .map(|(load, &cpu)| {
                s.spawn(move || {
                    cpus::pin(cpu);
                    load.run(ahead);
                    load.progress.0.store(0, Ordering::Relaxed);
                    ready.fetch_add(1, Ordering::SeqCst);
                    while ready.load(Ordering::SeqCst) < threads {
                        std::hint::spin_loop();
                    }
                    let start = Instant::now();
                    load.run(n);
                    let slowest = progress.iter().map(|p| p.0.load(Ordering::Relaxed)).min();
                    (start, Instant::now(), slowest.expect("a thread"))
                })
            })
            .collect();
        spawned.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    loads.iter().for_each(Load::check);
    let start = ends.iter().map(|e| e.0).min().expect("a thread");
    let (_, end, slowest) = *ends.iter().min_by_key(|e| e.1).expect("a thread");
    // What a thread does alone, after the first one has ended, is left out.
    let done = if threads == 1 { n } else { n + slowest };
    Together { ns: (end - start).as_nanos() as f64 / done as f64, share: slowest as f64 / n as f64 }
}
