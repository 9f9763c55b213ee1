//! A replay on a disk in real time. Owns the clock. The caller prepares the zones: as the trace had
//! them, or empty for [`Map::Log`].

use super::run::{Outcome, ReplayPlan};
use super::{Map, Replay, Row, Trace};
use crate::time::trace::Fit;
use crate::time::{Clock, Pace, RealRun};
use crate::virtual_disk::Way;
use crate::workers::Workers;
use std::fmt;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use zoneplug_core::{Device, Error, Nanos};
use zoneplug_host::Specification;

/// A disk in real time.
pub struct RealDisk {
    /// Its specification.
    pub spec: Specification,
    /// The device that it names.
    pub device: Arc<dyn Device>,
    /// The most commands at the device.
    pub tags: u16,
    /// When the disk was opened. A model's times continue from here, so what the caller did before
    /// a replay is not in its future.
    pub opened: Instant,
}

impl fmt::Debug for RealDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealDisk").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl<'a> Replay<'a> {
    /// Surveys the trace for disks in real time, and notes which of their zones it changes. If the
    /// workers are asked to end meanwhile, the survey covers a part.
    ///
    /// ```
    /// use std::io::Read;
    /// use zoneplug_core::disk::DiskConfig;
    /// use zoneplug_models::replay::{Map, RealDisk, Replay, Speed, Trace};
    /// use zoneplug_models::Workers;
    /// use zoneplug_models::time::trace::Events;
    /// let text = "fio version 2 iolog\nf write 0 65536\nf write 65536 65536\nf read 0 4096\n";
    /// let open = || Ok(vec![Box::new(text.as_bytes()) as Box<dyn Read>]);
    /// let trace = Trace::new(&open, Events::Queued, None);
    /// let spec = zoneplug_host::Specification::parse("mem,zones=4,zone-size=1M").unwrap();
    /// let (device, opened) = (spec.open().unwrap().device, std::time::Instant::now());
    /// let disks = [RealDisk { spec, device, tags: 32, opened }];
    /// let workers = Workers::all(&|| false);
    /// let replay = Replay::in_real_time(&trace, &disks, &workers).unwrap();
    /// let pace = replay.pace(Speed::Asap, None);
    /// let way = DiskConfig::default().into();
    /// let row = replay.row_in_real_time(0, &disks[0], &way, Map::Auto, pace, &workers).unwrap();
    /// assert_eq!((row.writes.operations, row.reads.bytes), (2, 4096));
    /// ```
    pub fn in_real_time(
        trace: &'a Trace<'a>,
        disks: &[RealDisk],
        workers: &Workers<'_>,
    ) -> Result<Replay<'a>, Error> {
        let fit = |d: &RealDisk| Fit::with_changes(d.device.geometry(), d.device.limits());
        Self::fitting(trace, &[], &|| disks.iter().map(fit).collect(), workers)
    }

    /// Replays the trace on the disk with this number, opened in this way, on the calling thread.
    pub fn row_in_real_time(
        &self,
        number: usize,
        disk: &RealDisk,
        way: &Way,
        map: Map,
        pace: Pace,
        workers: &Workers<'_>,
    ) -> Result<Row, Error> {
        let map = self.map_of(number, map);
        let limits = disk.device.limits();
        let plan = ReplayPlan { fit: &self.fits[number], limits, map, pace };
        let run =
            RealRun { device: disk.device.clone(), config: way.config.clone(), tags: disk.tags };
        let mut clock = Wall::new(disk.opened, workers);
        let (outcome, _) =
            Outcome::of(&self.ordered, &plan, workers, |client| run.go(&mut [client], &mut clock))?;
        Ok(outcome.row(&disk.spec, way.name(limits.rotational), map, None))
    }
}

/// The wall clock.
struct Wall<'a> {
    start: Instant,
    waker: Waker,
    workers: &'a Workers<'a>,
}

/// Wakes a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<'a> Wall<'a> {
    /// A clock for a run on this thread.
    fn new(start: Instant, workers: &'a Workers<'a>) -> Wall<'a> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        Wall { start, waker, workers }
    }
}

impl Clock for Wall<'_> {
    fn now(&mut self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn pause(&mut self, until: Nanos) {
        /// A parked thread wakes up about this late. The rest of a pause is spent spinning, so that
        /// operations are sent on time.
        const EARLY: u64 = 100_000;
        match until.0.saturating_sub(self.now().0 + EARLY) {
            // Yielding on a busy machine takes milliseconds and would delay the next operation.
            0 => std::hint::spin_loop(),
            left => std::thread::park_timeout(Duration::from_nanos(left)),
        }
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn is_asked(&mut self) -> bool {
        self.workers.is_asked()
    }
}
