//! From the status of a disk's request to sense data. The table of `Status` in `zoneplug_core` has the sense of each;
//! this file has the operations for which SCSI says something else.

use crate::spec::sense::{READ_BOUNDARY, UNRECOVERED_READ};
use zoneplug_core::{Op, Sense, Status};

/// Returns the sense of a request that has ended with this status. `None`: it has succeeded.
pub(super) fn sense(op: Op, status: Status) -> Option<Sense> {
    Some(match (op, status) {
        (_, Status::Ok) => return None,
        // ZBC: to open a full zone, or to close a zone that is empty or full, changes nothing and succeeds.
        (Op::ZoneOpen | Op::ZoneClose, Status::InvalidTransition) => return None,
        // The table has the sense of a failed write.
        (Op::Read, Status::Medium) => UNRECOVERED_READ,
        (Op::Read, Status::Boundary) => READ_BOUNDARY,
        (_, status) => status.sense(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failure is never answered with success, and a success never with a failure.
    #[test]
    fn each_status_has_its_sense() {
        for op in Op::ALL {
            for status in Status::all() {
                let unchanged = matches!(op, Op::ZoneOpen | Op::ZoneClose)
                    && status == Status::InvalidTransition;
                assert_eq!(
                    sense(op, status).is_none(),
                    status.is_ok() || unchanged,
                    "{op:?} {status:?}"
                );
            }
        }
        let key = |op, status| sense(op, status).map(|s| (s.key, s.code, s.qualifier));
        assert_eq!(key(Op::Write, Status::NotAtWritePointer), Some((5, 0x21, 4)));
        assert_eq!(key(Op::Write, Status::ZoneFull), Some((5, 0x24, 0)));
        assert_eq!(key(Op::Write, Status::OpenLimit), Some((7, 0x55, 0x0e)));
        assert_eq!(key(Op::Read, Status::Medium), Some((3, 0x11, 0)));
    }
}
