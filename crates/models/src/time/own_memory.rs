//! Memory for BIOs of a real disk, which transfers data: shared zeroes for all writes, and separate
//! memory for each read, aligned for `O_DIRECT`. Owns the free memory, and the reads that wait
//! because too much is lent.

use super::io::MAX_BYTES;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use zoneplug_buf::{AlignedBuf, Lent};
use zoneplug_core::{Bio, Bios, IoBuf, Op};

/// Most bytes of memory for reads, lent or kept for later reads. A trace may send 32,768 reads of
/// 16 MiB at once; those that do not fit wait, as they would wait for memory in any program.
const MOST: u64 = 256 << 20;

/// The data of all writes. Only read.
fn zeroes() -> &'static [u8] {
    static ZEROES: OnceLock<&'static [u8]> = OnceLock::new();
    ZEROES.get_or_init(|| AlignedBuf::zeroed(MAX_BYTES).leak())
}

/// Rounds a length up to one of few buffer sizes, so that buffers can be reused.
fn whole(bytes: u32) -> u32 {
    bytes.next_power_of_two().max(4096)
}

fn bytes(bio: &Bio) -> u32 {
    bio.len_sectors << 9
}

/// Lends memory to BIOs for a disk that transfers data, and takes it back.
///
/// ```
/// use zoneplug_core::{Bio, Bios, Op, Sector};
/// use zoneplug_models::time::OwnMemory;
/// let mut memory = OwnMemory::new();
/// // The token of a BIO is a number that no other outstanding one has.
/// let mut out = Bios::from([Bio::new(Op::Read, Sector(0), 8)]);
/// let mut ready = Bios::new();
/// memory.equip(&mut out, &mut ready);
/// let mut bio = ready.pop_front().unwrap();
/// assert_eq!(bio.data().len(), 4096);
/// memory.take_back(&mut bio);
/// assert!(bio.data().is_empty());
/// ```
#[derive(Debug, Default)]
pub struct OwnMemory {
    /// Free buffers by length.
    free: BTreeMap<u32, Vec<AlignedBuf>>,
    kept: u64,
    lent: u64,
    /// Lent buffers by the slot of the BIO, which is its token.
    loans: Vec<Option<Lent>>,
    waiting: Bios,
}

impl OwnMemory {
    /// Allocates the zeroes now, so that no write waits for them.
    pub fn new() -> OwnMemory {
        zeroes();
        OwnMemory::default()
    }

    /// Moves BIOs from `out` to `ready`, with memory. Reads that find none wait, in order.
    pub fn equip(&mut self, out: &mut Bios, ready: &mut Bios) {
        while let Some(mut bio) = self.waiting.pop_front() {
            if !self.lend(&mut bio) {
                self.waiting.push_front(bio);
                break;
            }
            ready.push_back(bio);
        }
        while let Some(mut bio) = out.pop_front() {
            if bio.op == Op::Read {
                if !self.waiting.is_empty() || !self.lend(&mut bio) {
                    self.waiting.push_back(bio);
                    continue;
                }
            } else if bio.op.has_data() {
                bio.set_buf(IoBuf::from_static(&zeroes()[..bytes(&bio) as usize]));
            }
            ready.push_back(bio);
        }
    }

    fn lend(&mut self, bio: &mut Bio) -> bool {
        let len = whole(bytes(bio));
        let each = u64::from(len);
        if self.lent + each > MOST {
            return false;
        }
        let memory = match self.free.get_mut(&len).and_then(Vec::pop) {
            Some(memory) => {
                self.kept -= each;
                memory
            }
            None => {
                if self.lent + self.kept + each > MOST {
                    (self.free, self.kept) = (BTreeMap::new(), 0);
                }
                AlignedBuf::zeroed(len)
            }
        };
        let (lent, buf) = memory.lend_part(0, bytes(bio));
        bio.set_buf(buf);
        self.lent += each;
        let slot = bio.token() as usize;
        if slot >= self.loans.len() {
            self.loans.resize_with(slot + 1, || None);
        }
        self.loans[slot] = Some(lent);
        true
    }

    /// Takes back the memory of a completed BIO. Memory that the device may still use is not
    /// reused.
    pub fn take_back(&mut self, bio: &mut Bio) {
        let Some(lent) = self.loans.get_mut(bio.token() as usize).and_then(Option::take) else {
            return;
        };
        let len = lent.len();
        self.lent -= u64::from(len);
        if let Ok(memory) = lent.take_back(bio.take_buf())
            && self.lent + self.kept + u64::from(len) <= MOST
        {
            self.kept += u64::from(len);
            self.free.entry(len).or_default().push(memory);
        }
    }

    /// Drops the reads that wait.
    pub(super) fn drop_waiting(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::Sector;

    fn read(slot: u64, sectors: u32) -> Box<Bio> {
        let mut bio = Bio::new(Op::Read, Sector(0), sectors);
        bio.set_token(slot);
        bio
    }

    /// Each read has its own writable memory, writes share zeroes, both are aligned; returned
    /// memory is lent again.
    #[test]
    fn a_read_has_memory_of_its_own_and_gives_it_back() {
        let (mut memory, mut out, mut ready) = (OwnMemory::new(), Bios::new(), Bios::new());
        let write = || {
            let mut bio = Bio::new(Op::Write, Sector(0), 8);
            bio.set_token(9);
            bio
        };
        out.extend([read(0, 3), read(1, 3), write(), write()]);
        memory.equip(&mut out, &mut ready);
        let all: Vec<_> = std::iter::from_fn(|| ready.pop_front()).collect();
        let at = |i: usize| all[i].data().range();
        assert!(at(0) != at(1) && at(2) == at(3) && all[0].data().len() == 3 << 9);
        assert!(!all[0].data().is_shared() && all[2].data().is_shared());
        let place = at(0);
        for mut bio in all {
            memory.take_back(&mut bio);
        }
        assert_eq!((memory.lent, memory.kept), (0, 2 * 4096));
        out.extend([read(7, 3), read(8, 3)]);
        memory.equip(&mut out, &mut ready);
        let again = std::iter::from_fn(|| ready.pop_front()).any(|b| b.data().range() == place);
        assert!(again && memory.kept == 0);
    }

    /// Reads beyond the limit wait for earlier ones and keep their order. Other BIOs pass them.
    #[test]
    fn reads_wait_for_memory_in_their_order() {
        let (mut memory, mut out, mut ready) = (OwnMemory::new(), Bios::new(), Bios::new());
        let big = MAX_BYTES >> 9;
        for slot in 0..20 {
            out.push_back(read(slot, if slot == 19 { 1 } else { big }));
        }
        out.push_back(Bio::new(Op::Flush, Sector(0), 0));
        memory.equip(&mut out, &mut ready);
        assert_eq!((ready.len(), memory.waiting.len()), (17, 4));
        let mut order = Vec::new();
        while let Some(mut bio) = ready.pop_front() {
            order.push(bio.token());
            memory.take_back(&mut bio);
            memory.equip(&mut out, &mut ready);
            assert!(memory.lent + memory.kept <= MOST);
        }
        order.retain(|t| *t > 0);
        assert_eq!(order, (1..20).collect::<Vec<_>>());
    }
}
