//! Whether there is memory for the zones of a large disk.
//!
//! Linux promises memory that it does not have, and ends a process that uses it. So a disk of very many zones is refused before its
//! plugs are made.

use zoneplug_core::Error;
use zoneplug_core::unit::Bytes;
use zoneplug_core::zone::Geometry;

/// Disks of fewer zones are not checked: theirs take 19 MB.
const MANY_ZONES: u32 = 200_000;

/// Fails if the zones of a disk take more memory than the machine, or the process's control group, has left. Passes where
/// neither is known.
pub fn check_zone_memory(g: &Geometry) -> Result<(), Error> {
    if g.nr_zones() <= MANY_ZONES {
        return Ok(());
    }
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let group = control_group(&read("/proc/self/cgroup")).unwrap_or_default();
    let of_group = |file| read(&format!("/sys/fs/cgroup{group}/{file}"));
    fits(g, available(&read("/proc/meminfo"), &of_group("memory.max"), &of_group("memory.current")))
}

fn fits(g: &Geometry, available: Option<u64>) -> Result<(), Error> {
    match available {
        Some(n) if n < g.memory().0 => Err(g.too_large(Some(Bytes(n)))),
        _ => Ok(()),
    }
}

/// The path of the process's control group, of version 2.
fn control_group(groups: &str) -> Option<String> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(path.trim_end_matches('/').to_owned())
}

/// Bytes that are left by these files: `MemAvailable` of the machine, and what the control group may have beyond what it has.
fn available(meminfo: &str, max: &str, current: &str) -> Option<u64> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let machine = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB"))
        .and_then(|kib| number(kib)?.checked_mul(1024));
    let group = number(max).map(|max| max.saturating_sub(number(current).unwrap_or(0)));
    machine.into_iter().chain(group).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       4020000 kB\nMemFree:  10 kB\nMemAvailable:    1000 kB\n";

    #[test]
    fn the_tighter_limit_counts() {
        assert_eq!(available(MEMINFO, "max\n", "5\n"), Some(1_024_000));
        assert_eq!(available(MEMINFO, "1000000\n", "900000\n"), Some(100_000));
        assert_eq!(available(MEMINFO, "2000000\n", "900000\n"), Some(1_024_000));
        assert_eq!(available("", "10\n", "20\n"), Some(0));
        assert_eq!(available("", "", ""), None);
        assert_eq!(
            control_group("1:name=x:/old\n0::/user.slice\n"),
            Some("/user.slice".to_owned())
        );
        assert_eq!(control_group("0::/\n"), Some(String::new()));
        assert_eq!(control_group("1:memory:/old\n"), None);
    }

    /// A refusal says what the zones take, what there is, and what to try.
    #[test]
    fn a_disk_that_does_not_fit_is_refused() {
        let g = Geometry::new(1_000_000, 8, 8).unwrap();
        fits(&g, None).unwrap();
        fits(&g, Some(96_000_000)).unwrap();
        let e = fits(&g, Some(50 << 20)).unwrap_err();
        assert_eq!(
            e.to_string(),
            "1000000 zones take 92M of memory, 96 bytes each, and 50M are available; \
             try: fewer zones, or more memory"
        );
        check_zone_memory(&Geometry::new(200_000, 8, 8).unwrap()).unwrap();
    }
}
