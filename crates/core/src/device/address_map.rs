//! The map from the sectors of a device to those of the device below it.

use crate::bio::{Command, Commands, Op};
use crate::unit::Sector;

/// The address map of a device with zones of a power of two over a device whose zones are shorter.
///
/// Both devices have the same zones in the same order. Zone `n` starts at `n` times the power of two on the device,
/// and at `n` times the shorter size below. The sectors between the end of the shorter zone and the next power of two
/// are a *gap*: they do not exist below.
///
/// A translation takes one shift, one mask and one multiplication. All sectors of a zone get the same displacement.
/// The command keeps it, and the way back subtracts it. So a native append, which comes back with another sector of
/// its zone, is mapped back correctly too.
///
/// ```
/// use zoneplug_core::{Command, Op, Sector, device::AddressMap};
/// let map = AddressMap::new(32, 24).unwrap();
/// let mut c = Command::without_data(Op::Read, Sector(2 * 32 + 5), 8);
/// assert!(map.lower(&mut c));
/// assert_eq!(c.sector, Sector(2 * 24 + 5));
/// AddressMap::raise(&mut c);
/// assert_eq!(c.sector, Sector(2 * 32 + 5));
/// // The last sector of this one is in the gap.
/// assert!(!map.lower(&mut Command::without_data(Op::Read, Sector(17), 8)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressMap {
    /// The device's zone size less one, in sectors.
    mask: u64,
    /// The zone size below, in sectors. 0: the map translates no command.
    size: u64,
    /// The zone size below less the device's, in sectors: at most 0.
    minus_gap: i64,
    /// log2 of the device's zone size.
    shift: u32,
}

/// The displacement that another map has given to a command: see [`AddressMap::lower_again`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the command can be given back only with it"]
pub struct Displacement(i64);

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

impl AddressMap {
    /// A map that translates no command.
    pub(super) const NONE: AddressMap = AddressMap { mask: 0, size: 0, minus_gap: 0, shift: 0 };

    /// The map of a device with zones of `above` sectors over one with zones of `below` sectors. `None` unless
    /// `above` is a power of two and `below` is 1 to `above`.
    pub fn new(above: u32, below: u32) -> Option<AddressMap> {
        let possible = above.is_power_of_two() && (1..=above).contains(&below);
        possible.then(|| AddressMap {
            mask: u64::from(above) - 1,
            size: u64::from(below),
            minus_gap: i64::from(below) - i64::from(above),
            shift: above.trailing_zeros(),
        })
    }

    /// Returns whether every sector has the same number on both devices.
    pub fn is_identity(&self) -> bool {
        self.minus_gap == 0
    }

    /// The sector below. For a sector of a gap the result is past the end of the zone below.
    #[inline]
    pub fn below(&self, sector: Sector) -> Sector {
        Sector(sector.0.wrapping_add_signed(self.displacement(sector)))
    }

    /// Returns the displacement of a sector on the way down: minus the gaps of all zones before it.
    #[inline]
    fn displacement(&self, sector: Sector) -> i64 {
        (sector.0 >> self.shift) as i64 * self.minus_gap
    }

    /// Returns the last sector of a range, as an offset in the zone of the first one. The offset is less than `size`
    /// if the range is in one zone and outside of its gap. For an empty range it is larger than any zone.
    #[inline]
    fn last_offset(&self, sector: Sector, len_sectors: u32) -> u64 {
        (sector.0 & self.mask) + u64::from(len_sectors.wrapping_sub(1))
    }

    /// Translates a command in place if its data range is in one zone and outside of its gap. Otherwise changes
    /// nothing and returns false. Also returns false if another map has moved the command already.
    #[inline(always)]
    pub fn lower(&self, c: &mut Command) -> bool {
        // A command that another map has moved has a negative displacement. As a `u64` that is larger than any zone.
        let last = self.last_offset(c.sector, c.len_sectors) | c.moved as u64;
        if last >= self.size || c.op > Op::Write && !is_ranged(c.op) {
            return false;
        }
        c.moved = self.displacement(c.sector);
        c.sector.0 = c.sector.0.wrapping_add_signed(c.moved);
        true
    }

    /// Undoes [`AddressMap::lower`]. Does nothing to a command that no map has moved.
    #[inline]
    pub fn raise(c: &mut Command) {
        c.sector.0 = c.sector.0.wrapping_sub(c.moved as u64);
        c.moved = 0;
    }

    /// Like [`AddressMap::lower`], for a command that the map of a device further up may have moved. Returns the
    /// displacement of that map. The caller keeps it for [`AddressMap::raise_again`].
    pub fn lower_again(&self, c: &mut Command) -> Option<Displacement> {
        let before = std::mem::take(&mut c.moved);
        if self.lower(c) {
            return Some(Displacement(before));
        }
        c.moved = before;
        None
    }

    /// Undoes [`AddressMap::lower_again`].
    pub fn raise_again(c: &mut Command, before: Displacement) {
        Self::raise(c);
        c.moved = before.0;
    }

    /// Returns whether an operation concerns the whole device, and so passes without translation.
    #[cold]
    #[inline(never)]
    pub fn passes(&self, op: Op) -> bool {
        self.size > 0 && matches!(op, Op::Flush | Op::ZoneResetAll)
    }

    /// Translates all commands of a list that have a range of data, as [`AddressMap::lower`] does. If a command can
    /// neither be translated nor [pass](AddressMap::passes) unchanged, changes nothing and returns false.
    #[inline]
    pub fn lower_all(&self, commands: &mut Commands) -> bool {
        match commands.as_mut_slices() {
            (a, []) => self.lower_slice(a),
            (a, b) => self.lower_wrapped(a, b),
        }
    }

    /// Lists that wrap around in their buffer are rare. A separate function leaves all registers to the usual case.
    #[cold]
    #[inline(never)]
    fn lower_wrapped(&self, a: &mut [Box<Command>], b: &mut [Box<Command>]) -> bool {
        self.lower_slice(a) && (self.lower_slice(b) || undo(a, 0))
    }

    #[inline(always)]
    fn lower_slice(&self, commands: &mut [Box<Command>]) -> bool {
        let mut left = commands.iter_mut();
        while let Some(c) = left.next() {
            if !self.lower(c) && !self.passes(c.op) {
                let untouched = left.len() + 1;
                return undo(commands, untouched);
            }
        }
        true
    }

    /// Like [`AddressMap::raise`], for a list.
    #[inline(never)]
    pub fn raise_all(commands: &mut Commands) {
        match commands.as_mut_slices() {
            (a, []) => raise_slice(a),
            (a, b) => raise_wrapped(a, b),
        }
    }
}

/// Raises the commands of a slice except the last `untouched` ones, which were not lowered. Returns false.
#[cold]
#[inline(never)]
fn undo(commands: &mut [Box<Command>], untouched: usize) -> bool {
    let lowered = commands.len() - untouched;
    commands.iter_mut().take(lowered).for_each(|c| AddressMap::raise(c));
    false
}

#[cold]
#[inline(never)]
fn raise_wrapped(a: &mut [Box<Command>], b: &mut [Box<Command>]) {
    raise_slice(a);
    raise_slice(b);
}

/// Raises the commands of a slice. It takes four at a time: with single steps, the loop counter would be a third of
/// the work.
#[inline]
fn raise_slice(commands: &mut [Box<Command>]) {
    let (fours, rest) = commands.as_chunks_mut::<4>();
    for four in fours {
        four.iter_mut().for_each(|c| AddressMap::raise(c));
    }
    for c in rest {
        AddressMap::raise(c);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Down and up are exact for sizes and zones where a product, a sum or a comparison could be wrong. A range that
    /// is not in one zone outside of its gap stays as it is. The expected values come from plain arithmetic in 128
    /// bits (N1, N2, N7, R41).
    #[test]
    fn down_and_up_are_exact() {
        let sizes = [3u64, 5, 24, 0x1_0001, 96 << 11, 1077 << 11, (1 << 30) + 8, 0x7fff_ffff];
        for size in sizes {
            let po2 = size.next_power_of_two();
            let map = AddressMap::new(po2 as u32, size as u32).unwrap();
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
                            assert_eq!(map.lower(&mut c), whole && ranged, "{what}");
                            let down = u128::from(zone) * u128::from(size) + u128::from(offset);
                            assert_eq!(u128::from(map.below(Sector(at)).0), down, "{what}");
                            let down = if whole && ranged { down } else { u128::from(at) };
                            assert_eq!(u128::from(c.sector.0), down, "{what}");
                            // An append may land elsewhere in its zone.
                            let landed = if c.moved != 0 { size - 1 - offset } else { 0 };
                            c.sector.0 += landed;
                            AddressMap::raise(&mut c);
                            assert_eq!((c.sector.0, c.moved), (at + landed, 0), "{what}");
                        }
                    }
                }
            }
        }
        let mut read = Command::without_data(Op::Read, Sector(0), 1);
        assert!(!AddressMap::NONE.lower(&mut read));
    }

    #[test]
    fn a_map_is_of_shorter_zones_in_a_power_of_two() {
        for (above, below) in [(24, 24), (0, 0), (32, 0), (32, 33)] {
            assert_eq!(AddressMap::new(above, below), None, "{above} {below}");
        }
        assert!(AddressMap::new(32, 32).unwrap().is_identity());
        assert!(!AddressMap::new(1 << 31, 1).unwrap().is_identity());
    }
}
