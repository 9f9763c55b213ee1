//! Power cuts for your own storage code: does it keep what it promised?
//!
//! A closure, the *work*, runs the code on a disk in memory, and says what has become durable as soon as the code says
//! so. The harness records what the disk was told, and then cuts the power: it makes the disks that a cut at some
//! moment could have left, and gives each of them to a second closure, the *check*, together with what was promised by
//! that moment. The first promise that is broken is reported, made as small as it gets, with the way to repeat it.
//!
//! ```
//! use zoneplug::crash::Crash;
//! use zoneplug::zone_log::{LogOptions, ZoneLog};
//!
//! let report = Crash::new("mem,zones=4,zone-size=64K")
//!     .every()
//!     .run(
//!         |work| {
//!             let log = ZoneLog::open(work.disk(), LogOptions::new())?;
//!             for n in 0..5u8 {
//!                 let at = log.append(&[n; 3000])?;
//!                 log.sync()?;
//!                 work.promise((at, n));
//!             }
//!             Ok::<_, Box<dyn std::error::Error>>(())
//!         },
//!         |disk, promised| {
//!             let log = ZoneLog::open(disk, LogOptions::new()).map_err(|e| e.to_string())?;
//!             for (at, n) in promised {
//!                 let found = log.read(*at).map_err(|e| e.to_string())?;
//!                 if found != [*n; 3000] {
//!                     return Err(format!("{at} is another"));
//!                 }
//!             }
//!             Ok(())
//!         },
//!     )
//!     .unwrap();
//! assert!(report.cuts > 50);
//! ```
//!
//! # What a cut leaves
//!
//! * Of each sequential zone some first part of what was written, and at least what a flush or FUA covers. The last
//!   record in it may be torn, at any block.
//! * Of each block of a conventional zone that was written since the last flush: the old or a new content.
//! * What was in flight was carried out, in part, or not at all.
//! * Resets and finishes are durable when they are acknowledged. Zones that were open are closed.
//!
//! The work itself never sees an error: it runs to its end once for each seed, and every cut is made from the record of
//! that run. With one thread a run depends on its seed only. With several, all cuts of a run are of the order in which
//! they happened to go, and a repetition may go in another.
//!
//! | file | state |
//! | --- | --- |
//! | `record.rs` | what the work tells the disk |
//! | `image.rs` | what a cut leaves of it |
//! | `search.rs` | which cuts, and which is the smallest that fails |
//! | `report.rs` | what is told of it |

mod image;
mod record;
mod report;
mod search;

pub use report::{CrashFailure, CrashReport};
pub use zoneplug_core::Random;

use record::Recorder;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use zoneplug_host::HostedDisk;

/// Power cuts to be made. Without more: 1000 cuts of the runs of ten seeds.
#[derive(Debug, Clone)]
pub struct Crash {
    disk: String,
    seeds: Range<u64>,
    cuts: u64,
    every: bool,
    cut_check: bool,
}

/// The environment variable that repeats one cut: what [`CrashFailure`] says to set it to.
pub const REPEAT: &str = "ZONEPLUG_CRASH";

impl Crash {
    /// Cuts of a disk in memory: `disk` is a specification of the kind `mem`, such as `mem,zones=8,zone-size=256K`.
    /// Small disks are quick, and meet full zones.
    pub fn new(disk: &str) -> Crash {
        Crash { disk: disk.to_owned(), seeds: 1..11, cuts: 1000, every: false, cut_check: false }
    }

    /// The work runs once for each of these seeds, which it gets by [`Work::seed`].
    #[must_use]
    pub fn seeds(mut self, seeds: Range<u64>) -> Crash {
        self.seeds = seeds;
        self
    }

    /// So many cuts, the same number of each run: at every moment of it if there are enough, else at random ones.
    #[must_use]
    pub fn cuts(mut self, cuts: u64) -> Crash {
        self.cuts = cuts;
        self
    }

    /// Cuts at every moment of every run, each in four ways: all that no flush covers is lost, nothing is, and two by
    /// chance. The number of cuts depends on the work then.
    #[must_use]
    pub fn every(mut self) -> Crash {
        self.every = true;
        self
    }

    /// The power is cut once more while the check works on the disk (recovers, as a rule), and what is left must pass
    /// the check too. For checks that remove nothing that was promised.
    #[must_use]
    pub fn cut_check(mut self) -> Crash {
        self.cut_check = true;
        self
    }

    /// Runs the work, cuts, checks. Both closures work on a [`HostedDisk`]; errors and panics of the check are
    /// failures.
    ///
    /// `promised` is what the work had promised by the moment of the cut, in that order. A cut between the end of a
    /// flush and the promise for it has the data and not yet the promise.
    ///
    /// With the environment variable [`REPEAT`] set only the cut that it names is made.
    ///
    /// # Errors
    ///
    /// [`CrashFailure`]: the check failed, the work failed before any cut, or the specification is wrong.
    pub fn run<P, E, F>(
        &self,
        work: impl Fn(&Work<P>) -> Result<(), E>,
        check: impl Fn(&HostedDisk, &[P]) -> Result<(), F>,
    ) -> Result<CrashReport, CrashFailure>
    where
        P: Clone,
        E: fmt::Display,
        F: fmt::Display,
    {
        search::run(self, &work, &check)
    }
}

/// What the work is given.
#[derive(Debug)]
pub struct Work<P> {
    disk: HostedDisk,
    seed: u64,
    recorder: Recorder,
    /// With the number of events before each.
    promises: Mutex<Vec<(usize, P)>>,
}

impl<P> Work<P> {
    /// The disk: empty, as the specification describes it.
    pub fn disk(&self) -> &HostedDisk {
        &self.disk
    }

    /// The seed of this run: what random work draws from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Promises that from now on a power cut changes nothing about `promise`: to be called when the code says that
    /// something is durable, from whichever thread. The check gets all promises that were made before the cut.
    ///
    /// A promise can be anything that the check has to know, such as that a record is about to be deleted and may be
    /// missing from now on.
    pub fn promise(&self, promise: P) {
        let mut promises = zoneplug_core::poison::lock(&self.promises);
        promises.push((self.recorder.now(), promise));
    }
}
