//! Whether udev watches a block device: then each close of a writer has the device read through the page cache, which takes the order
//! from direct writes of io_uring (docs/ublk.md). Reads what udev keeps in `/run/udev`; changes nothing, and needs no udev.

use std::path::Path;
use std::time::{Duration, Instant};

/// How long udev may take over a new device, and how often that is looked for.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// Where udev keeps what it knows.
pub(super) const RUN: &str = "/run/udev";

/// Whether the udev whose state is in `run` watches the block device with the number `dev`, which is new: waits until udev has
/// seen it.
pub(super) fn watches(run: &Path, dev: (u32, u32)) -> bool {
    if !run.join("control").exists() {
        return false;
    }
    let id = format!("b{}:{}", dev.0, dev.1);
    let end = Instant::now() + PATIENCE;
    // `queue` is there while events wait.
    let busy = || !run.join("data").join(&id).exists() || run.join("queue").exists();
    while busy() && Instant::now() < end {
        std::thread::sleep(LOOK);
    }
    is_watched(&run.join("watch"), &id)
}

/// A link for each watch, named by its number, to what is watched; newer versions have one back as well.
fn is_watched(watch: &Path, id: &str) -> bool {
    let links = std::fs::read_dir(watch).into_iter().flatten().flatten();
    links.filter_map(|e| std::fs::read_link(e.path()).ok()).any(|to| to == Path::new(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// As udev 252 and 262 leave it.
    #[test]
    fn a_watch_is_a_link_to_the_device() {
        let run = std::env::temp_dir().join(format!("zoneplug-udev-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&run);
        for dir in ["data", "watch"] {
            std::fs::create_dir_all(run.join(dir)).unwrap();
        }
        symlink("b259:0", run.join("watch/2")).unwrap();
        assert!(!watches(&run, (259, 0)), "left over: no udev runs");
        std::fs::write(run.join("control"), "").unwrap();
        for n in [0, 1] {
            std::fs::write(run.join(format!("data/b259:{n}")), "I:1\n").unwrap();
        }
        assert!(watches(&run, (259, 0)));
        assert!(!watches(&run, (259, 1)));
        symlink("2", run.join("watch/b259:0")).unwrap();
        assert!(watches(&run, (259, 0)));
        std::fs::remove_dir_all(&run).unwrap();
    }
}
