//! A disk as a protocol uses it. Threads and hosted disks implement this in a server, virtual time in a simulation.

use super::{Bio, Bios, Op};
use crate::unit::Sector;
use zoneplug_buf::{AlignedBuf, Lent};

/// A client of a disk, as the commands of a protocol use it. Only one queue uses it.
pub trait DiskClient {
    /// Returns the token of a BIO that is about to be submitted. The low 16 bits must be the slot; the owner may use
    /// the rest, for example to measure how long BIOs take.
    #[inline(always)]
    fn token(&mut self, slot: u16, _op: Op) -> u64 {
        u64::from(slot)
    }

    /// Called when a BIO with this token is back. `sector` is where it began or, for an append, where it landed.
    #[inline(always)]
    fn ended(&mut self, _token: u64, _op: Op, _sector: Sector) {}

    /// Takes as many BIOs from the front of `bios` as there is room for. Returns how many.
    fn submit(&mut self, bios: &mut Bios) -> usize;

    /// Does pending work and appends BIOs that have ended to `done`.
    fn poll(&mut self, done: &mut Bios);

    /// Returns the number of BIOs that were taken and not given back.
    fn outstanding(&self) -> u32;

    /// Takes back the buffer that was lent to a BIO that is back. Returns `None` if the BIO came back without the
    /// buffer; the client then keeps the loan until the memory is back.
    fn reclaim(&mut self, bio: &mut Bio, lent: Lent) -> Option<AlignedBuf>;

    /// Refuses this client's writes that an order window holds. They come back with the next poll.
    fn refuse_held(&mut self);

    /// Keeps lent memory until it is back, even after the client has gone.
    fn keep_lent(&mut self, lent: impl Iterator<Item = Lent>);
}
