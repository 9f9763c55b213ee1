//! Checks that there is memory for the zones of a large disk.
//!
//! Linux grants memory that it does not have, and kills a process that uses it. So a disk with too many zones is
//! refused before its plugs are made.

use zoneplug_core::Error;
use zoneplug_core::unit::Bytes;
use zoneplug_core::zone::Geometry;

/// Disks with fewer zones are not checked: their zones take 19 MB at most.
const MANY_ZONES: u32 = 200_000;

/// Fails if the zones of a disk take more memory than the machine, or the process's control group, has left. Passes
/// if neither is known.
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

/// The bytes that are available according to these files: `MemAvailable` of the machine, and the limit of the control
/// group less its current use.
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

    /// A refusal names the memory that the zones take, the memory that is available, and what to try.
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
