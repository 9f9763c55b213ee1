//! Holds back the I/O of a disk while a client copies it: `zoneplug snapshot` of a served disk.
//!
//! The pause belongs to the client's connection. It ends when the client says so, when the connection ends, or when
//! its time is over, whichever comes first.

use crate::error::ControlError;
use crate::failure::Failure;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zoneplug_core::Error;
use zoneplug_host::{BlockingDisk, Frozen, HostedDisk};

/// The longest time that a client may request.
pub const LONGEST: Duration = Duration::from_secs(60);

/// No I/O is in flight on the disk, and new BIOs wait, until this is dropped.
pub struct Pause {
    _frozen: Frozen,
    /// A reference that the server counts, because it leaves no disk during a pause.
    _counted: Arc<()>,
    since: Instant,
    most: Duration,
}

impl Pause {
    /// Makes acknowledged data durable, then stops the disk for at most `most`.
    pub fn begin(disk: &HostedDisk, most: Duration, counted: Arc<()>) -> Result<Pause, Failure> {
        if most > LONGEST {
            return Err(ControlError::PauseTooLong { longest: LONGEST }.into());
        }
        // Flushed before the pause, so that the pause is short.
        BlockingDisk::new(disk)?
            .flush()
            .map_err(|e| ControlError::NotFlushed { because: e.to_string() })?;
        let since = Instant::now();
        let frozen = disk.freeze().map_err(|e: Error| Failure::from(e))?;
        Ok(Pause { _frozen: frozen, _counted: counted, since, most })
    }

    /// The remaining time.
    pub fn left(&self) -> Duration {
        self.most.saturating_sub(self.since.elapsed())
    }

    /// Ends the pause. Returns its length.
    pub fn end(self) -> Duration {
        self.since.elapsed()
    }
}
