//! The checks of a command that need no drive. A command that fails a check has changed nothing.

use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Command, Op, Status};

/// Whether `c` may be sent to a drive with this layout and these limits. The error is the status to fail it with.
pub(crate) fn check(g: &Geometry, l: &Limits, c: &Command) -> Result<(), Status> {
    if l.read_only && c.op.is_write() {
        return Err(Status::ReadOnlyDisk);
    }
    match c.op {
        Op::Read | Op::Write | Op::WriteZeroes | Op::ZoneAppend => data(g, l, c),
        Op::Flush | Op::ZoneResetAll => Ok(()),
        Op::Discard => {
            let (zone, _) =
                g.range(c.sector, c.len_sectors, l.logical_block_sectors - 1, u32::MAX)?;
            valid(g.is_conventional(zone) && l.discard)
        }
        Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish | Op::ZoneReset => {
            let zone = g.whole_zone(c.sector, c.len_sectors)?;
            valid(!g.is_conventional(zone))
        }
        Op::ReportZones => valid(g.contains(c.sector, 1)),
    }
}

fn data(g: &Geometry, l: &Limits, c: &Command) -> Result<(), Status> {
    let append = c.op == Op::ZoneAppend;
    let max = match c.op {
        Op::WriteZeroes => l.max_write_zeroes_sectors,
        Op::ZoneAppend if l.zone_append_max_sectors == 0 => return Err(Status::NotSupported),
        Op::ZoneAppend => l.zone_append_max_sectors,
        _ => l.max_transfer_sectors,
    };
    let (zone, offset) = g.range(c.sector, c.len_sectors, l.logical_block_sectors - 1, max)?;
    valid(c.bios.len() <= l.max_bios as usize && c.has_whole_bios(false))?;
    if c.op == Op::Read || g.is_conventional(zone) {
        return valid(!append);
    }
    valid(!append || offset == 0 && c.bios.len() == 1)?;
    valid((offset | c.len_sectors) & (l.write_granularity_sectors - 1) == 0)?;
    // The kernel would send this command and the drive would refuse it. The geometry is enough to refuse it here (W10).
    if u64::from(offset) + u64::from(c.len_sectors) > u64::from(g.capacity_of(zone)) {
        return Err(Status::PastCapacity);
    }
    Ok(())
}

fn valid(ok: bool) -> Result<(), Status> {
    if ok { Ok(()) } else { Err(Status::InvalidField) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::{Bio, IoBuf, Sector, ZoneNo};

    /// One conventional zone and three sequential ones, of 2048 sectors with a capacity of 1024; blocks of 4 KiB.
    #[test]
    fn commands_are_checked_without_a_drive() {
        use Op::*;
        let g = Geometry::new(4, 2048, 1024).unwrap().with_conventional([ZoneNo(0)]).unwrap();
        let l = Limits {
            logical_block_sectors: 8,
            write_granularity_sectors: 16,
            max_transfer_sectors: 256,
            max_write_zeroes_sectors: 512,
            zone_append_max_sectors: 128,
            max_bios: 4,
            discard: true,
            ..Limits::default()
        };
        let said = |l: &Limits, op: Op, sector, len| {
            let sector = Sector(sector);
            let c = match op {
                Read | Write | ZoneAppend => {
                    Command::of(Bio::with_buf(op, sector, len, IoBuf::leaked(len << 9)))
                }
                WriteZeroes => Command::of(Bio::new(op, sector, len)),
                _ => Command::without_data(op, sector, len),
            };
            check(&g, l, &c)
        };
        for (op, sector, len, wanted) in [
            (Read, 2048, 256, Ok(())),
            (Read, 2048, 264, Err(Status::InvalidField)),
            (Read, 2049, 8, Err(Status::InvalidField)),
            (Write, 2048, 16, Ok(())),
            // Half of the write granularity: refused in a sequential zone, allowed in a conventional one.
            (Write, 2048, 8, Err(Status::InvalidField)),
            (Write, 0, 8, Ok(())),
            (Write, 2048 + 1008, 32, Err(Status::PastCapacity)),
            (Write, 1008, 32, Ok(())),
            (WriteZeroes, 2048, 512, Ok(())),
            (ZoneAppend, 2048, 128, Ok(())),
            (ZoneAppend, 2048, 256, Err(Status::InvalidField)),
            (ZoneAppend, 2064, 16, Err(Status::InvalidField)),
            (ZoneAppend, 0, 16, Err(Status::InvalidField)),
            (Discard, 0, 1024, Ok(())),
            (Discard, 2048, 1024, Err(Status::InvalidField)),
            (ZoneReset, 2048, 2048, Ok(())),
            (ZoneReset, 2048, 1024, Err(Status::InvalidField)),
            (ZoneFinish, 0, 2048, Err(Status::InvalidField)),
            (ReportZones, 8191, 0, Ok(())),
            (ReportZones, 8192, 0, Err(Status::InvalidField)),
            (Flush, 0, 0, Ok(())),
            (ZoneResetAll, 0, 0, Ok(())),
        ] {
            assert_eq!(said(&l, op, sector, len), wanted, "{op:?} {sector} {len}");
        }
        let without = Limits { zone_append_max_sectors: 0, discard: false, ..l };
        assert_eq!(said(&without, ZoneAppend, 2048, 16), Err(Status::NotSupported));
        assert_eq!(said(&without, Discard, 0, 1024), Err(Status::InvalidField));
        let read_only = Limits { read_only: true, ..l };
        assert_eq!(said(&read_only, Write, 2048, 16), Err(Status::ReadOnlyDisk));
        assert_eq!(said(&read_only, ZoneReset, 2048, 2048), Err(Status::ReadOnlyDisk));
        assert_eq!(said(&read_only, Read, 2048, 16), Ok(()));
    }
}
