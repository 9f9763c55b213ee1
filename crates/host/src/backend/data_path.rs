//! How data moves between memory and a file or a drive.

use std::fmt;

/// How the data of a disk moves between memory and its file or drive.
///
/// ```
/// use zoneplug_host::DataPath;
/// assert_eq!(DataPath { by: "ring", direct: true }.to_string(), "io_uring, direct");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataPath {
    /// `ring` (io_uring), `threads`, or `copy`: the caller copies it, as on tmpfs.
    pub by: &'static str,
    /// Past the page cache.
    pub direct: bool,
}

impl DataPath {
    /// The data path of drives.
    #[cfg(feature = "drives")]
    pub(crate) const DRIVE: DataPath = DataPath { by: "ring", direct: true };
}

impl fmt::Display for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.by, self.direct) {
            ("copy", _) => "copied in submit",
            ("ring", true) => "io_uring, direct",
            ("ring", false) => "io_uring, buffered",
            (_, true) => "threads, direct",
            (_, false) => "threads, buffered",
        })
    }
}
