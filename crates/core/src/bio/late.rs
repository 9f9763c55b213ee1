//! The ticket of a BIO that came back before the device was done with its memory.

use std::num::NonZeroU32;

/// A ticket of a BIO that came back while a device may still use its memory.
/// [`Disk::is_late`](crate::disk::Disk::is_late) says whether it still may.
///
/// ```
/// use zoneplug_core::{Bio, Op, Sector};
/// let bio = Bio::new(Op::Read, Sector(0), 8);
/// assert_eq!(bio.late(), None, "its memory is its owner's");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Late(NonZeroU32);

impl Late {
    /// Returns the ticket in the field `late` of a BIO.
    pub(crate) fn of(field: u32) -> Option<Late> {
        NonZeroU32::new(field).map(Late)
    }

    /// Returns the number of the ticket in the field `late` of a BIO.
    pub(crate) fn number(self) -> u32 {
        self.0.get()
    }
}
