//! A disk whose I/O waits while a client copies it: `zoneplug snapshot` of a served disk.
//!
//! The pause belongs to the connection of the client. It ends when the client says so, when the connection ends, or when
//! its time is over, whatever comes first.

use crate::failure::{Failure, Kind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zoneplug_core::Error;
use zoneplug_host::{BlockingDisk, Frozen, HostedDisk};

/// The longest time that a client may ask for.
pub const LONGEST: Duration = Duration::from_secs(60);

/// Nothing is in flight on a disk, and BIOs that come wait, until this is dropped.
pub struct Pause {
    _frozen: Frozen,
    /// Counted by the server, which leaves no disk during a pause.
    _counted: Arc<()>,
    since: Instant,
    most: Duration,
}

impl Pause {
    /// Makes durable what was acknowledged, then stops the disk, for at most so long.
    pub fn begin(disk: &HostedDisk, most: Duration, counted: Arc<()>) -> Result<Pause, Failure> {
        if most > LONGEST {
            return Err(Failure::usage(format!("a pause is no longer than {LONGEST:?}"))
                .hint("a shorter one"));
        }
        // Before the pause, so that it is short.
        BlockingDisk::new(disk)?.flush().map_err(|e| {
            Failure::io(format!("the disk cannot be flushed: {e}")).hint("zoneplug status")
        })?;
        let since = Instant::now();
        let frozen = disk.freeze().map_err(|e: Error| Failure::from(e))?;
        Ok(Pause { _frozen: frozen, _counted: counted, since, most })
    }

    /// What is left of its time.
    pub fn left(&self) -> Duration {
        self.most.saturating_sub(self.since.elapsed())
    }

    /// Ends it. Returns how long it was.
    pub fn end(self) -> Duration {
        self.since.elapsed()
    }
}

/// The failure to end a pause that there is not.
pub(crate) fn no_pause() -> Failure {
    Failure::new(Kind::Usage, "this connection has no pause, or its time is over")
        .hint(r#"{"cmd":"pause","disk":"ublkb0","most_ms":1000} begins one"#)
}
