//! The way of an address down and up again: a sum, and what may take it.
//!
//! Called by the layer's queue for the lists that pass through it, and by the queues of a disk right above it, which then go around the
//! layer (`disk/around.rs`). Never looks at a device, and holds nothing.

use crate::bio::{Command, Commands, Op};
use crate::unit::Sector;

/// What translates an address.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// Our zone size less one, in sectors.
    pub mask: u64,
    /// The device's zone size, in sectors.
    pub size: u64,
    /// The device's zone size less ours, in sectors.
    pub minus_gap: i64,
    /// log2 of our zone size.
    pub shift: u32,
}

impl Way {
    /// That of no layer: no command can take it.
    pub const NONE: Way = Way { mask: 0, size: 0, minus_gap: 0, shift: 0 };

    /// From our address to the device's (N1), at most 0: the gaps of the zones before. Of a gap's address it leads to the end of
    /// the device's zone. It is the same for a whole zone, so the way back is a subtraction (N2), also of an append, which
    /// comes back with another sector of its zone.
    #[inline]
    pub fn down(&self, sector: Sector) -> i64 {
        (sector.0 >> self.shift) as i64 * self.minus_gap
    }

    /// This way, or one that no command can take.
    pub fn unless(&self, shut: bool) -> Way {
        Way { size: if shut { 0 } else { self.size }, ..*self }
    }

    /// The last sector of a range as an offset in the zone of its first one, if that is outside of the gap (N7): less than
    /// `size`. An empty range has none.
    #[inline]
    fn last_offset(&self, sector: Sector, len_sectors: u32) -> u64 {
        (sector.0 & self.mask) + u64::from(len_sectors.wrapping_sub(1))
    }
}

/// Operations on a range of data.
const RANGED: u16 = 1 << Op::Read as u16
    | 1 << Op::Write as u16
    | 1 << Op::ZoneAppend as u16
    | 1 << Op::WriteZeroes as u16
    | 1 << Op::Discard as u16;

#[inline]
fn is_ranged(op: Op) -> bool {
    RANGED >> op as u16 & 1 != 0
}

/// Translates a command in place that can pass as it is: a range of one zone, outside of its gap. False, and nothing is
/// changed, if it is none, or has been moved before: a number below 0 makes the offset larger than any zone.
#[inline(always)]
pub fn lower(way: &Way, c: &mut Command) -> bool {
    let last = way.last_offset(c.sector, c.len_sectors) | c.moved as u64;
    if last >= way.size || c.op > Op::Write && !is_ranged(c.op) {
        return false;
    }
    c.moved = way.down(c.sector);
    move_by(c, c.moved);
    true
}

/// Whether this is for all of the device, and passes; none does where no command can.
#[cold]
#[inline(never)]
pub fn has_no_address(way: &Way, op: Op) -> bool {
    way.size > 0 && matches!(op, Op::Flush | Op::ZoneResetAll)
}

#[inline]
pub fn move_by(c: &mut Command, way: i64) {
    c.sector.0 = c.sector.0.wrapping_add_signed(way);
}

/// All of a list, or none of it; what has no address passes. One that wraps in its buffer is rare (see `submit_many`), and has its own function so that the
/// other keeps everything in registers.
#[inline]
pub fn lower_all(way: &Way, commands: &mut Commands) -> bool {
    match commands.as_mut_slices() {
        (a, []) => lower_slice(way, a),
        (a, b) => lower_wrapped(way, a, b),
    }
}

#[cold]
#[inline(never)]
fn lower_wrapped(way: &Way, a: &mut [Box<Command>], b: &mut [Box<Command>]) -> bool {
    lower_slice(way, a) && (lower_slice(way, b) || undo(a, 0))
}

#[inline(always)]
fn lower_slice(way: &Way, commands: &mut [Box<Command>]) -> bool {
    let mut left = commands.iter_mut();
    while let Some(c) = left.next() {
        if !lower(way, c) && !has_no_address(way, c.op) {
            let untouched = left.len() + 1;
            return undo(commands, untouched);
        }
    }
    true
}

/// Of a slice, those before the last `untouched` were lowered. Returns false.
#[cold]
#[inline(never)]
fn undo(commands: &mut [Box<Command>], untouched: usize) -> bool {
    let lowered = commands.len() - untouched;
    commands.iter_mut().take(lowered).for_each(|c| raise(c));
    false
}

/// Undoes [`lower`], and nothing where it has done nothing. An append that is back names where it landed, inside its zone (N10).
#[inline]
pub fn raise(c: &mut Command) {
    c.sector.0 = c.sector.0.wrapping_sub(c.moved as u64);
    c.moved = 0;
}

#[inline(never)]
pub fn raise_all(commands: &mut Commands) {
    match commands.as_mut_slices() {
        (a, []) => raise_slice(a),
        (a, b) => raise_wrapped(a, b),
    }
}

#[cold]
#[inline(never)]
fn raise_wrapped(a: &mut [Box<Command>], b: &mut [Box<Command>]) {
    raise_slice(a);
    raise_slice(b);
}

/// By fours: else a third of the work is counting.
#[inline]
fn raise_slice(commands: &mut [Box<Command>]) {
    let (fours, rest) = commands.as_chunks_mut::<4>();
    for four in fours {
        four.iter_mut().for_each(|c| raise(c));
    }
    for c in rest {
        raise(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N1, N2, N7, R41: down and up are exact for the sizes and zones where a product, a sum or a comparison could be wrong, and
    /// what is not in one zone outside of its gap stays as it is. The other side is plain arithmetic in 128 bits.
    #[test]
    fn down_and_up_are_exact() {
        let sizes = [3u64, 5, 24, 0x1_0001, 96 << 11, 1077 << 11, (1 << 30) + 8, 0x7fff_ffff];
        for size in sizes {
            let po2 = size.next_power_of_two();
            let way = Way {
                mask: po2 - 1,
                size,
                minus_gap: size as i64 - po2 as i64,
                shift: po2.trailing_zeros(),
            };
            for zone in [0u64, 1, 2, 511, 512, 0xffff, 0x1_0000, 199_999, 0xffff_ffff] {
                let offsets = [0, 1, size / 2, size - 1, size, size + 1, po2 - 1];
                for offset in offsets.into_iter().filter(|o| *o < po2) {
                    for len in [0, 1, 2, size - offset.min(size), size, po2, u64::from(u32::MAX)] {
                        for op in Op::ALL {
                            let at = zone * po2 + offset;
                            let mut c = Command::without_data(op, Sector(at), len as u32);
                            let whole = len > 0 && offset + len <= size;
                            let ranged = matches!(
                                op,
                                Op::Read
                                    | Op::Write
                                    | Op::ZoneAppend
                                    | Op::WriteZeroes
                                    | Op::Discard
                            );
                            let what =
                                format!("{op:?} of {len} at {offset} of zone {zone} of {size}");
                            assert_eq!(lower(&way, &mut c), whole && ranged, "{what}");
                            let down = u128::from(zone) * u128::from(size) + u128::from(offset);
                            let down = if whole && ranged { down } else { u128::from(at) };
                            assert_eq!(u128::from(c.sector.0), down, "{what}");
                            // It may land elsewhere in its zone.
                            let landed = if c.moved != 0 { size - 1 - offset } else { 0 };
                            c.sector.0 += landed;
                            raise(&mut c);
                            assert_eq!((c.sector.0, c.moved), (at + landed, 0), "{what}");
                        }
                    }
                }
            }
        }
        assert!(!lower(&Way::NONE, &mut Command::without_data(Op::Read, Sector(0), 1)));
    }
}
