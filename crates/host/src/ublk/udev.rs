//! Detects that udev watches a block device. If so, each close by a writer makes udev read the device through the page
//! cache. While the page cache has pages of the device, Linux may reorder direct io_uring writes (docs/ublk.md). This
//! module reads udev's state in `/run/udev`, changes nothing, and does not need udev.

use std::path::Path;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The directory of udev's state.
pub(super) const RUN: &str = "/run/udev";

/// Whether the udev whose state is in `run` watches the new block device `dev`. Waits until udev has processed the
/// device, until `end` at the latest.
pub(super) fn watches(run: &Path, dev: (u32, u32), end: Instant) -> bool {
    if !run.join("control").exists() {
        return false;
    }
    let id = format!("b{}:{}", dev.0, dev.1);
    // The file `queue` exists while events wait.
    let busy = || !run.join("data").join(&id).exists() || run.join("queue").exists();
    while busy() && Instant::now() < end {
        std::thread::sleep(POLL_INTERVAL);
    }
    is_watched(&run.join("watch"), &id)
}

/// A watch is a link from its number to the watched device. Newer versions of udev also have a link back.
fn is_watched(watch: &Path, id: &str) -> bool {
    let links = std::fs::read_dir(watch).into_iter().flatten().flatten();
    links.filter_map(|e| std::fs::read_link(e.path()).ok()).any(|to| to == Path::new(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// The files of udev 252 and 262.
    #[test]
    fn a_watch_is_a_link_to_the_device() {
        let run = std::env::temp_dir().join(format!("zoneplug-udev-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&run);
        for dir in ["data", "watch"] {
            std::fs::create_dir_all(run.join(dir)).unwrap();
        }
        symlink("b259:0", run.join("watch/2")).unwrap();
        let later = Instant::now() + Duration::from_secs(60);
        let watches = |dev| watches(&run, dev, later);
        assert!(!watches((259, 0)), "left over: no udev runs");
        std::fs::write(run.join("control"), "").unwrap();
        for n in [0, 1] {
            std::fs::write(run.join(format!("data/b259:{n}")), "I:1\n").unwrap();
        }
        assert!(watches((259, 0)));
        assert!(!watches((259, 1)));
        symlink("2", run.join("watch/b259:0")).unwrap();
        assert!(watches((259, 0)));
        // If udev does not process a device, the wait ends at `end`.
        let start = Instant::now();
        assert!(!super::watches(&run, (259, 7), start + Duration::from_millis(50)));
        assert!(!super::watches(&run, (259, 8), start + Duration::from_millis(50)));
        assert!(start.elapsed() < Duration::from_secs(30));
        std::fs::remove_dir_all(&run).unwrap();
    }
}
