//! The ticket of a BIO that came back before the device was done with it.

use std::num::NonZeroU32;

/// Why the memory of a BIO is still in use though the BIO is back: ask [`Disk::is_late`](crate::disk::Disk::is_late).
///
/// ```
/// use zoneplug_core::{Bio, Op, Sector};
/// let bio = Bio::new(Op::Read, Sector(0), 8);
/// assert_eq!(bio.late(), None, "its memory is its owner's");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Late(NonZeroU32);

impl Late {
    /// The ticket in a BIO's field.
    pub(crate) fn of(field: u32) -> Option<Late> {
        NonZeroU32::new(field).map(Late)
    }

    /// What the BIO's field says.
    pub(crate) fn number(self) -> u32 {
        self.0.get()
    }
}
