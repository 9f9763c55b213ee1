//! The build that measured, and the failure of a run that found something wrong.

use crate::failure::Failure;
use crate::figures::thousands;
use crate::program;
use serde::Serialize;

/// The build and machine of a measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Build {
    pub(crate) zoneplug: &'static str,
    pub(crate) profile: &'static str,
    pub(crate) cores: usize,
}

impl Build {
    pub(crate) fn this() -> Build {
        Build {
            zoneplug: env!("CARGO_PKG_VERSION"),
            profile: program::PROFILE,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// The failure to report if BIOs failed or data was wrong. `plug`: whether the mode was `plug`, for the hint.
pub(crate) fn failure_of(refused: u64, wrong: u64, plug: bool) -> Option<Failure> {
    if wrong > 0 {
        Some(
            Failure::io(format!("{} BIOs were not read back as written", thousands(wrong)))
                .hint("the same command again; if it fails again it is a bug in zoneplug"),
        )
    } else if refused > 0 {
        let hint = if plug {
            "the statuses in the output say why"
        } else {
            "--mode plug, which orders the writes of each zone"
        };
        Some(Failure::io(format!("{} BIOs failed", thousands(refused))).hint(hint))
    } else {
        None
    }
}
