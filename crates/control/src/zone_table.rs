//! The zones of a served disk, for the control socket.

use crate::client::zones::{MOST_CELLS, WriterShown, ZoneShown, ZonesShown};
use zoneplug_core::disk::Disk;
use zoneplug_core::zone::Condition;

/// The zones from `first` on. Locks one zone at a time, and sends no request to the device.
pub fn zone_table(disk: &Disk, first: u32, count: Option<u32>, cells: Option<u32>) -> ZonesShown {
    let all = disk.geometry().nr_zones();
    let first = first.min(all);
    let count = count.unwrap_or(u32::MAX).min(all - first);
    let mut table = ZonesShown::new(first, count, cells.unwrap_or(MOST_CELLS));
    disk.zone_states(first..first + count, |z| {
        let full = z.condition == Some(Condition::Full);
        table.push(ZoneShown {
            condition: z.condition,
            written_sectors: u64::from(if full { z.capacity } else { z.write_pointer }),
            capacity_sectors: u64::from(z.capacity),
            waiting: z.waiting,
            in_flight: z.in_flight,
        });
    });
    table.scheduled = disk.scheduled();
    table.writers = disk
        .writers()
        .iter()
        .map(|w| WriterShown {
            spindle: w.spindle,
            turn: w.turn.map(|z| z.0),
            listed: w.listed.len() as u32,
            turns: w.counters.turns,
            cut_off: w.counters.cut_off,
            longest_wait_ns: w.counters.longest_wait.0,
        })
        .collect();
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::Sector;
    use zoneplug_host::{BlockingDisk, HostedDisk};

    #[test]
    fn a_disk_in_use_shows_its_write_pointers() {
        let disk = HostedDisk::open_spec("mem,zones=8,zone-size=1M,conv=1").unwrap();
        let mut io = BlockingDisk::new(&disk).unwrap();
        io.write(Sector(0x1000), zoneplug_buf::AlignedBuf::zeroed(8192)).unwrap();
        let table = zone_table(disk.disk(), 0, None, None);
        assert_eq!((&*table.conditions, table.zones, table.per_cell), ("neaeeeee", 8, 1));
        assert_eq!(table.written_sectors, [0, 0, 16, 0, 0, 0, 0, 0]);
        assert_eq!(table.capacity_sectors[..2], [0, 2048]);
        // There are no zones past the end; a part is shown in two cells.
        assert_eq!(zone_table(disk.disk(), 8, Some(4), None).zones, 0);
        let part = zone_table(disk.disk(), 2, Some(4), Some(2));
        assert_eq!((&*part.conditions, part.zones, part.per_cell), ("ae", 4, 2));
        assert_eq!(part.written_sectors, [16, 0]);
    }
}
