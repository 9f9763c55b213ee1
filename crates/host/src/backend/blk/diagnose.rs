//! Finds out why a command failed. The kernel answers `EIO` to nearly everything that a zone may refuse, so the status
//! is found from the state of the zone. This is a pure function of the report of the zone.

use zoneplug_core::zone::{Condition, ZoneInfo, ZoneType};
use zoneplug_core::{Op, Sector, Status};

/// The result of comparing a failed command with the report of its zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    Is(Status),
    /// The zone would take the command, and nothing of it was written. The kernel had lost the write
    /// pointer after the error of another command; this report has given it back (E4).
    Again,
}

/// Why `op` of `len` sectors at `sector` failed with `status`. `z` is the zone as it is now.
pub(super) fn reason(op: Op, sector: Sector, len: u32, status: Status, z: &ZoneInfo) -> Reason {
    let is = Reason::Is;
    let writes = matches!(op, Op::Write | Op::WriteZeroes);
    match z.cond {
        Condition::Offline => return is(Status::ZoneOffline),
        Condition::ReadOnly if op != Op::Read => return is(Status::ZoneReadOnly),
        _ => {}
    }
    // Any other status names the reason itself.
    if status != Status::Io || z.zone_type == ZoneType::Conventional {
        return is(status);
    }
    match (op, z.cond) {
        (Op::ZoneOpen, Condition::Full) => is(Status::InvalidTransition),
        (Op::ZoneClose, Condition::Full | Condition::Empty) => is(Status::InvalidTransition),
        _ if !writes => is(Status::Io),
        (_, Condition::Full) => is(Status::ZoneFull),
        _ if z.wp == sector => Reason::Again,
        // If a part of the write is there, the transfer failed midway and the sector was right (E8). If all of it is
        // there, another program may have written it.
        _ if z.wp > sector && z.wp < sector.plus(u64::from(len)) => is(Status::Io),
        _ => is(Status::UnalignedWrite),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(cond: Condition, wp: u64) -> ZoneInfo {
        ZoneInfo {
            start: Sector(1000),
            len_sectors: 1000,
            capacity_sectors: 800,
            wp: Sector(wp),
            zone_type: ZoneType::SeqWriteRequired,
            cond,
        }
    }

    /// The state of the zone says why a write failed (E1, E8, E10).
    #[test]
    fn writes_that_failed() {
        let why = |status, z: &ZoneInfo| reason(Op::Write, Sector(1100), 50, status, z);
        let open = |wp| zone(Condition::ImpOpen, wp);
        assert_eq!(
            why(Status::Io, &open(1000)),
            Reason::Is(Status::UnalignedWrite),
            "reset behind us"
        );
        assert_eq!(
            why(Status::Io, &open(1200)),
            Reason::Is(Status::UnalignedWrite),
            "written by another"
        );
        assert_eq!(why(Status::Io, &open(1120)), Reason::Is(Status::Io), "torn");
        assert_eq!(
            why(Status::Io, &open(1150)),
            Reason::Is(Status::UnalignedWrite),
            "somebody was first"
        );
        assert_eq!(why(Status::Io, &open(1100)), Reason::Again);
        assert_eq!(why(Status::Io, &zone(Condition::Full, 2000)), Reason::Is(Status::ZoneFull));
        let dead = zone(Condition::ReadOnly, u64::MAX);
        assert_eq!(why(Status::Io, &dead), Reason::Is(Status::ZoneReadOnly));
        assert_eq!(
            why(Status::Medium, &zone(Condition::Offline, 0)),
            Reason::Is(Status::ZoneOffline)
        );
        // Errors of limits have statuses of their own (O3).
        for s in [Status::OpenLimit, Status::ActiveLimit, Status::Medium, Status::NoSpace] {
            assert_eq!(why(s, &open(1100)), Reason::Is(s));
        }
        let conventional =
            ZoneInfo { zone_type: ZoneType::Conventional, ..zone(Condition::NotWp, 0) };
        assert_eq!(why(Status::Io, &conventional), Reason::Is(Status::Io));
    }

    #[test]
    fn reads_and_management_that_failed() {
        let why = |op, z: &ZoneInfo| reason(op, Sector(1000), 1000, Status::Io, z);
        let empty = zone(Condition::Empty, 1000);
        let full = zone(Condition::Full, 2000);
        assert_eq!(why(Op::ZoneClose, &empty), Reason::Is(Status::InvalidTransition));
        assert_eq!(why(Op::ZoneClose, &full), Reason::Is(Status::InvalidTransition));
        assert_eq!(why(Op::ZoneOpen, &full), Reason::Is(Status::InvalidTransition));
        assert_eq!(why(Op::ZoneOpen, &empty), Reason::Is(Status::Io));
        assert_eq!(
            why(Op::ZoneReset, &zone(Condition::ReadOnly, 0)),
            Reason::Is(Status::ZoneReadOnly)
        );
        assert_eq!(why(Op::Read, &zone(Condition::ReadOnly, 0)), Reason::Is(Status::Io));
        assert_eq!(why(Op::Read, &zone(Condition::Offline, 0)), Reason::Is(Status::ZoneOffline));
    }
}
