//! The data paths of a disk, for `zoneplug info` and `status`.

use serde::{Deserialize, Serialize};
use zoneplug_core::plain;
use zoneplug_host::{DataPath, Level};

/// The data path of a file or a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoShown {
    /// The specification of the file or drive.
    pub device: String,
    /// `ring`, `threads` or `copy`.
    pub by: String,
    /// Whether I/O bypasses the page cache.
    pub direct: bool,
}

impl IoShown {
    /// Returns the data path of each file or drive in a stack.
    pub fn of(stack: &[Level]) -> Vec<IoShown> {
        let of = |level: &Level| {
            let path = level.data_path?;
            let (by, direct) = (path.by.to_owned(), path.direct);
            Some(IoShown { device: level.text.clone(), by, direct })
        };
        stack.iter().filter_map(of).collect()
    }

    /// Describes the path in words, such as `io_uring, direct`.
    pub fn shown(&self) -> String {
        plain(&DataPath::words(&self.by, self.direct)).into_owned()
    }
}
