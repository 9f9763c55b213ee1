//! Checks that there is memory for the zones of large disks.
//!
//! Linux grants memory that it does not have, and kills a process that uses it. Where the process has a limit, an
//! allocation fails, and Rust ends the process. So a disk with too many zones is refused before the device below it,
//! and its plugs, are made.

use zoneplug_core::Error;
use zoneplug_core::unit::Bytes;
use zoneplug_core::zone::ZoneMemory;

/// Disks with fewer zones are not checked: theirs take 3 MB at most.
const MANY_ZONES: u64 = 10_000;

/// Bytes of each zone that a program keeps of its own: a list of them, or a part of a report.
const PROGRAM: u64 = 24;

/// The addresses that glibc reserves for what threads allocate: 64 MiB for each of the first two that do. It does
/// without where they are short, so a small disk needs only some of them.
const ARENAS: u64 = 128 << 20;

/// Fails if zones take more memory than there is now, as [`MemoryLimits::check`] does.
pub fn check_zone_memory(needed: ZoneMemory) -> Result<(), Error> {
    // Few zones need no limits to be read.
    if needed.zones <= MANY_ZONES { Ok(()) } else { MemoryLimits::now().check(needed) }
}

/// The memory that limits leave: those of the machine, of the process's control group, and the process's own
/// (`ulimit -v`, `ulimit -d`).
#[derive(Debug)]
pub struct MemoryLimits {
    machine: Option<u64>,
    group: Option<u64>,
    /// `/proc/self/limits` and `/proc/self/status`.
    process: [String; 2],
}

impl MemoryLimits {
    /// Reads what is left now. What is unknown limits nothing.
    pub fn now() -> MemoryLimits {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let group = control_group(&read("/proc/self/cgroup")).unwrap_or_default();
        let of_group = |file| read(&format!("/sys/fs/cgroup{group}/{file}"));
        MemoryLimits {
            machine: machine(&read("/proc/meminfo")),
            group: left(&of_group("memory.max"), &of_group("memory.current")),
            process: [read("/proc/self/limits"), read("/proc/self/status")],
        }
    }

    /// Fails if zones take more memory than the lowest limit left.
    ///
    /// ```
    /// use zoneplug_core::zone::Geometry;
    /// use zoneplug_host::MemoryLimits;
    /// let (one, limits) = (Geometry::new(100_000, 8, 8).unwrap().memory(), MemoryLimits::now());
    /// assert!(limits.check(one).is_ok() && limits.check(one.of_disks(10_000_000)).is_err());
    /// ```
    pub fn check(&self, needed: ZoneMemory) -> Result<(), Error> {
        if needed.zones <= MANY_ZONES {
            return Ok(());
        }
        let needed = needed.and_each(PROGRAM);
        let [limits, status] = &self.process;
        let process = process(limits, status, ARENAS.min(needed.total().0 * 4));
        let limits = [
            (self.machine, None),
            (
                self.group,
                Some("fewer zones, or a higher limit of the control group (MemoryMax= in a unit)"),
            ),
            (
                process,
                Some("fewer zones, or a higher limit of this process (ulimit -v, ulimit -d)"),
            ),
        ];
        fits(needed, limits.into_iter().filter_map(|(left, hint)| Some((left?, hint))).min())
    }
}

/// `available`: what the lowest limit leaves, and what else than [`ZoneMemory::too_much`] says to try.
fn fits(needed: ZoneMemory, available: Option<(u64, Option<&str>)>) -> Result<(), Error> {
    match available {
        Some((n, hint)) if n < needed.total().0 => {
            Err(hint.into_iter().fold(needed.too_much(Some(Bytes(n))), Error::hint))
        }
        _ => Ok(()),
    }
}

/// The path of the process's control group, of version 2.
fn control_group(groups: &str) -> Option<String> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(path.trim_end_matches('/').to_owned())
}

/// The number of KiB in a line such as `MemAvailable:  1000 kB`, in bytes.
fn kib(text: &str, title: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(title))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The bytes that are available according to `/proc/meminfo`.
fn machine(meminfo: &str) -> Option<u64> {
    kib(meminfo, "MemAvailable:")
}

/// A limit less its current use. `None`: there is no limit.
fn left(max: &str, current: &str) -> Option<u64> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    number(max).map(|max| max.saturating_sub(number(current).unwrap_or(0)))
}

/// The address space, and the memory for data, that `/proc/self/limits` leaves to a process with this
/// `/proc/self/status`. `arenas` of the address space do not count.
fn process(limits: &str, status: &str, arenas: u64) -> Option<u64> {
    // The soft limit is the first word behind the title.
    let soft = |title: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(title))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let below = |title: &str, used: &str, other: u64| {
        Some(soft(title)?.saturating_sub(kib(status, used).unwrap_or(0)).saturating_sub(other))
    };
    let addresses = below("Max address space", "VmSize:", arenas);
    let both = [addresses, below("Max data size", "VmData:", 0)];
    both.into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::zone::Geometry;

    const MEMINFO: &str = "MemTotal:       4020000 kB\nMemFree:  10 kB\nMemAvailable:    1000 kB\n";

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
        Max data size             unlimited            unlimited            bytes     \n\
        Max address space         200000000            unlimited            bytes     \n";

    #[test]
    fn what_is_left_is_read() {
        assert_eq!(machine(MEMINFO), Some(1_024_000));
        assert_eq!(machine(""), None);
        assert_eq!(left("max\n", "5\n"), None);
        assert_eq!(left("1000000\n", "900000\n"), Some(100_000));
        assert_eq!(left("10\n", "20\n"), Some(0));
        assert_eq!(left("", ""), None);
        assert_eq!(
            process(LIMITS, "VmSize:\t     100 kB\nVmData: 1 kB\n", ARENAS),
            Some(200_000_000 - 102_400 - ARENAS)
        );
        let of_data = LIMITS.replace("unlimited            unlimited", "2048 4096");
        assert_eq!(process(&of_data, "VmSize: 1 kB\nVmData: 1 kB\n", 0), Some(1024));
        assert_eq!(process("", "", 0), None);
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
        let needed = Geometry::new(1_000_000, 8, 8).unwrap().memory();
        fits(needed, None).unwrap();
        fits(needed, Some((96_000_000, None))).unwrap();
        let refused = |hint| fits(needed, Some((50 << 20, hint))).unwrap_err();
        assert_eq!(
            refused(None).to_string(),
            "1000000 zones take 92M of memory, 96 bytes each, and 50M are available; \
             try: fewer zones, or more memory"
        );
        assert_eq!(refused(Some("a higher limit")).what_to_try(), Some("a higher limit"));
        check_zone_memory(Geometry::new(10_000, 8, 8).unwrap().memory()).unwrap();
    }
}
