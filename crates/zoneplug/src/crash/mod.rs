//! Power-cut tests for your own storage code: checks that it keeps its promises.
//!
//! A closure, the *work*, runs the code on a disk in memory, and declares data durable as soon as
//! the code says so. The harness records the commands to the disk and then cuts the power: it
//! builds the disks that a cut at some moment could have left, and passes each to a second closure,
//! the *check*, together with the promises made by that moment. The first broken promise is
//! reported with the smallest cut found that breaks it, and with the way to repeat it.
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
//! * Each sequential zone keeps a prefix of its written data, at least what a flush or FUA covers.
//!   The last record in it may be torn, at any block.
//! * Each block of a conventional zone written since the last flush holds the old or a new content.
//! * Commands in flight were carried out, in part, or not at all.
//! * Resets and finishes are durable when they are acknowledged. Open zones are closed.
//!
//! The work itself never sees an error: it runs to its end once for each seed, and every cut is
//! made from the record of that run. With one thread a run depends on its seed only. With several,
//! all cuts of a run follow the order in which its commands happened to run, which may differ in a
//! repetition.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `record.rs` | the commands of the work |
//! | `image.rs` | the disk that a cut leaves |
//! | `power.rs` | single cuts, when a test wants them |
//! | `search.rs` | the choice of cuts, and the search for the smallest that fails |
//! | `report.rs` | reports and failures |

mod image;
mod power;
mod record;
mod report;
mod search;

pub use power::Power;
pub use report::{CrashFailure, CrashReport};
pub use zoneplug_core::Random;

use record::Recorder;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use zoneplug_host::HostedDisk;

/// A test of power cuts. Default: 1000 cuts of the runs of ten seeds.
#[derive(Debug, Clone)]
pub struct Crash {
    disk: String,
    seeds: Range<u64>,
    cuts: u64,
    every: bool,
    cut_check: bool,
}

/// The environment variable that repeats one cut; [`CrashFailure`] shows its value.
pub const REPEAT: &str = "ZONEPLUG_CRASH";

impl Crash {
    /// Tests cuts of a disk in memory: `disk` is a specification of the kind `mem`, such as
    /// `mem,zones=8,zone-size=256K`. Small disks are quick, and their zones become full.
    pub fn new(disk: &str) -> Crash {
        Crash { disk: disk.to_owned(), seeds: 1..11, cuts: 1000, every: false, cut_check: false }
    }

    /// Runs the work once for each of these seeds; [`Work::seed`] returns it.
    #[must_use]
    pub fn seeds(mut self, seeds: Range<u64>) -> Crash {
        self.seeds = seeds;
        self
    }

    /// Makes this many cuts in total, evenly divided among the runs: at every moment of a run if
    /// they suffice, otherwise at random moments.
    #[must_use]
    pub fn cuts(mut self, cuts: u64) -> Crash {
        self.cuts = cuts;
        self
    }

    /// Cuts at every moment of every run, each in four ways: all data that no flush covers are
    /// lost, no data are lost, and two random ways. The number of cuts then depends on the work.
    #[must_use]
    pub fn every(mut self) -> Crash {
        self.every = true;
        self
    }

    /// Cuts the power once more while the check works on the disk (usually recovery); the remaining
    /// disk must pass the check too. For checks that remove nothing that was promised.
    #[must_use]
    pub fn cut_check(mut self) -> Crash {
        self.cut_check = true;
        self
    }

    /// Runs the work, makes the cuts and checks. Both closures work on a [`HostedDisk`]; errors and
    /// panics of the check are failures.
    ///
    /// `promised` holds the promises made before the cut, in order. A cut between the end of a
    /// flush and its promise leaves the data, but not yet the promise.
    ///
    /// If the environment variable [`REPEAT`] is set, makes only the cut that it names.
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

/// The argument of the work. Clones are the same work; promises that are made after the work has returned do not count.
#[derive(Debug)]
pub struct Work<P> {
    disk: HostedDisk,
    seed: u64,
    recorder: Recorder,
    /// Promises with the number of events before each.
    promises: Arc<Mutex<Vec<(usize, P)>>>,
}

impl<P> Clone for Work<P> {
    fn clone(&self) -> Work<P> {
        let Work { disk, seed, recorder, promises } = self;
        let (disk, recorder, promises) = (disk.clone(), recorder.clone(), promises.clone());
        Work { disk, seed: *seed, recorder, promises }
    }
}

impl<P> Work<P> {
    /// The disk: empty, as the specification describes it.
    pub fn disk(&self) -> &HostedDisk {
        &self.disk
    }

    /// The seed of this run, for random work.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Declares that from now on no power cut may undo `promise`. To be called, from any thread,
    /// when the code says that data are durable. The check receives all promises that were made
    /// before the cut.
    ///
    /// A promise can be any fact that the check needs, such as that a record is about to be deleted
    /// and may be missing from now on.
    pub fn promise(&self, promise: P) {
        let mut promises = zoneplug_core::poison::lock(&self.promises);
        promises.push((self.recorder.now(), promise));
    }
}
