//! The numbers of block devices: the N of `/dev/ublkbN`.

use super::BlockDisk;
use crate::once::FileOrder;
use zoneplug_control::Failure;
use zoneplug_core::Error;
use zoneplug_host::ublk::{MAX_ID, UblkError};

/// Assigns device numbers: the requested one to the first disk, and consecutive ones to the others.
#[derive(Debug, Clone, Copy)]
pub struct Numbers(pub Option<u32>);

impl Numbers {
    /// The number of the first device of `disk`, if one is requested.
    pub fn first(self, disk: &BlockDisk) -> Option<u32> {
        if disk.own_id { disk.device.id } else { self.0 }
    }

    /// Notes that `disk` has `devices` devices.
    pub fn take(&mut self, disk: &BlockDisk, devices: u32) {
        if !disk.own_id {
            self.0 = self.0.map(|n| n.saturating_add(devices));
        }
    }
}

/// The devices of a disk: its specification, the first number, and how many there are.
pub(super) type Numbered<'a> = (&'a str, u32, usize);

/// Refuses device numbers that two disks would share, and those above Linux's limit.
pub(super) fn check<'a>(
    all: impl Iterator<Item = Numbered<'a>>,
    order: &FileOrder<'_>,
) -> Result<(), Failure> {
    let mut ranges = Vec::new();
    for (spec, first, devices) in all {
        let first = u64::from(first);
        let last = first + devices as u64 - 1;
        if last > u64::from(MAX_ID) {
            let error = UblkError::NumberTooHigh { disk: spec.to_owned(), number: last };
            return Err(Failure::from(Error::from(error)).of_disk(spec));
        }
        ranges.push((first, last, spec));
    }
    ranges.sort_by_key(|(first, ..)| *first);
    for pair in ranges.windows(2) {
        let [(_, last, a), (first, _, b)] = pair else { continue };
        if first <= last {
            let (a, b) = if order.get(a) <= order.get(b) { (a, b) } else { (b, a) };
            let (disk, other) = ((*a).to_owned(), (*b).to_owned());
            let error = UblkError::NumberTwice { number: *first, disk, other };
            return Err(Failure::from(Error::from(error)).of_disk(b));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::DeviceOptions;
    use super::*;

    fn refusal(all: &[Numbered<'_>]) -> Option<String> {
        check(all.iter().copied(), &FileOrder::new()).err().map(|f| f.to_string())
    }

    fn disk(id: Option<u32>, own_id: bool) -> BlockDisk {
        let device = DeviceOptions { id, ..DeviceOptions::default() };
        BlockDisk { spec: "mem,zones=4".parse().unwrap(), device, own_id }
    }

    /// The number that is asked for is that of the first device, and the next disks go on from there. A disk with a number of
    /// its own has that, and takes none of the others.
    #[test]
    fn numbers_go_on_from_the_first() {
        let mut numbers = Numbers(Some(4));
        let (plain, own) = (disk(Some(4), false), disk(Some(9), true));
        assert_eq!((numbers.first(&plain), numbers.first(&own)), (Some(4), Some(9)));
        numbers.take(&plain, 2);
        numbers.take(&own, 3);
        assert_eq!((numbers.first(&plain), numbers.first(&own)), (Some(6), Some(9)));
        let mut free = Numbers(None);
        free.take(&plain, 2);
        assert_eq!((free.first(&plain), free.first(&disk(None, true))), (None, None));
    }

    /// The highest number of Linux can be used, also by the last device of a disk.
    #[test]
    fn numbers_up_to_the_highest_of_linux_are_taken() {
        assert_eq!(refusal(&[("a", MAX_ID, 1), ("b", MAX_ID - 3, 3)]), None);
        let text = refusal(&[("a", MAX_ID, 2)]).unwrap();
        assert!(text.contains(&format!("/dev/ublkb{}", MAX_ID + 1)), "{text}");
    }

    /// Disks may have adjacent numbers, and not the same one.
    #[test]
    fn numbers_of_two_disks_are_apart() {
        assert_eq!(refusal(&[("a", 4, 2), ("b", 6, 1), ("c", 0, 4)]), None);
        let text = refusal(&[("a", 4, 3), ("b", 6, 1)]).unwrap();
        assert!(text.contains("/dev/ublkb6 would be of a and of b"), "{text}");
        let text = refusal(&[("a", 4, 1), ("b", 4, 1)]).unwrap();
        assert!(text.contains("/dev/ublkb4 would be of a and of b"), "{text}");
    }
}
