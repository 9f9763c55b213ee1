//! The letters by which Linux denotes an operation: the field RWBS of blktrace and of trace
//! events, such as `WS` and `FWFS`.

use zoneplug_core::Op;

/// An operation and its flags.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpWithFlags {
    /// The operation. `None` for the letter `N`: a command that bypasses the block layer.
    pub(super) op: Option<Op>,
    pub(super) preflush: bool,
    pub(super) fua: bool,
}

impl OpWithFlags {
    /// Parses the letters. An `F` before the operation means a preflush, an `F` after it FUA.
    /// Returns `None` if the letters name no operation.
    pub(super) fn of(rwbs: &[u8]) -> Option<OpWithFlags> {
        let (preflush, rest) = match rwbs {
            [b'F', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let (op, rest) = match rest {
            [b'Z', b'R', b'A', rest @ ..] => (Some(Op::ZoneResetAll), rest),
            [b'Z', b'A', rest @ ..] => (Some(Op::ZoneAppend), rest),
            [b'Z', b'R', rest @ ..] => (Some(Op::ZoneReset), rest),
            [b'Z', b'O', rest @ ..] => (Some(Op::ZoneOpen), rest),
            [b'Z', b'C', rest @ ..] => (Some(Op::ZoneClose), rest),
            [b'Z', b'F', rest @ ..] => (Some(Op::ZoneFinish), rest),
            [b'D', b'E', rest @ ..] | [b'D', rest @ ..] => (Some(Op::Discard), rest),
            [b'W', b'Z', rest @ ..] => (Some(Op::WriteZeroes), rest),
            [b'W', rest @ ..] => (Some(Op::Write), rest),
            [b'R', rest @ ..] => (Some(Op::Read), rest),
            [b'F', rest @ ..] if preflush => (Some(Op::Flush), rest),
            [b'N', rest @ ..] => (None, rest),
            rest if preflush => (Some(Op::Flush), rest),
            _ => return None,
        };
        let known = rest.iter().all(|b| matches!(b, b'F' | b'A' | b'S' | b'M' | b'B' | b'U'));
        known.then(|| OpWithFlags { op, preflush, fua: rest.contains(&b'F') })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row: letters, operation, preflush, FUA.
    #[test]
    fn the_letters_of_an_operation() {
        for (letters, op, preflush, fua) in [
            ("W", Some(Op::Write), false, false),
            ("WS", Some(Op::Write), false, false),
            ("FWFS", Some(Op::Write), true, true),
            ("WFSM", Some(Op::Write), false, true),
            ("RA", Some(Op::Read), false, false),
            ("RSM", Some(Op::Read), false, false),
            ("D", Some(Op::Discard), false, false),
            ("DE", Some(Op::Discard), false, false),
            ("FF", Some(Op::Flush), true, false),
            ("F", Some(Op::Flush), true, false),
            ("FN", None, true, false),
            ("N", None, false, false),
            ("ZA", Some(Op::ZoneAppend), false, false),
            ("ZAF", Some(Op::ZoneAppend), false, true),
            ("ZR", Some(Op::ZoneReset), false, false),
            ("ZRA", Some(Op::ZoneResetAll), false, false),
            ("ZRS", Some(Op::ZoneReset), false, false),
            ("ZFS", Some(Op::ZoneFinish), false, false),
        ] {
            let k = OpWithFlags::of(letters.as_bytes()).expect(letters);
            assert_eq!((k.op, k.preflush, k.fua), (op, preflush, fua), "{letters}");
        }
        for letters in ["", "X", "WQ", "Z", "ZX", "w"] {
            assert!(OpWithFlags::of(letters.as_bytes()).is_none(), "{letters}");
        }
    }
}
