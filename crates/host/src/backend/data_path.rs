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

    /// A data path in words. `by` and `direct` may be what another server says of its own.
    ///
    /// ```
    /// assert_eq!(zoneplug_host::DataPath::words("threads", false), "threads, buffered");
    /// ```
    pub fn words(by: &str, direct: bool) -> String {
        let by = match by {
            "copy" => return "copied in submit".to_owned(),
            "ring" => "io_uring",
            other => other,
        };
        format!("{by}, {}", if direct { "direct" } else { "buffered" })
    }
}

impl fmt::Display for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&DataPath::words(self.by, self.direct))
    }
}
