//! The memory of one command as the kernel takes it: the client's own memory where possible, otherwise a copy. Owns the
//! copy, which a slot keeps for later commands.
//!
//! The kernel splits a transfer that it cannot hand to the drive in one piece. A kernel without zone write plugging may
//! then reorder the pieces. So a transfer that the kernel would split goes through a copy that it need not split.

use super::sysfs::QueueAttributes;
use crate::backend::ring::Segments;
use zoneplug_buf::{AlignedBuf, Segment};
use zoneplug_core::Command;

/// Bytes of a page. A system with larger pages needs fewer of them for the same memory, so the limits hold there too.
const PAGE: usize = 4096;
/// Most pages of one piece of I/O in the kernel (`BIO_MAX_VECS`).
const MOST_PAGES: usize = 256;

/// The memory that the kernel hands to a drive in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Addresses have these bits clear.
    pub(crate) address_mask: usize,
    /// Lengths of pieces have these bits clear.
    pub(crate) length_mask: usize,
    /// Where one piece follows another, the end of the first and the address of the second have these bits clear.
    pub(crate) boundary_mask: usize,
    /// The largest number of pages.
    pub(crate) pages: usize,
}

/// The rules of a queue whose logical block has so many bytes.
pub(crate) fn memory_rules(q: &QueueAttributes, block: usize) -> Rules {
    let pages = if q.max_segments == 0 { MOST_PAGES } else { q.max_segments as usize };
    Rules {
        // Older kernels have no `dma_alignment` and need whole blocks.
        address_mask: q.dma_alignment.map_or(block - 1, |m| m as usize),
        length_mask: block - 1,
        boundary_mask: q.virt_boundary_mask as usize,
        pages: pages.min(MOST_PAGES),
    }
}

impl Rules {
    /// The longest transfer in sectors that is possible for any memory, with a copy if necessary.
    pub(crate) fn longest_sectors(&self) -> u32 {
        ((self.pages * PAGE) >> 9) as u32
    }

    fn allow(&self, s: &Segments) -> bool {
        let list = s.as_slice();
        let mut pages = 0;
        for (i, s) in list.iter().enumerate() {
            let (at, last) = (s.ptr as usize, i + 1 == list.len());
            if at & self.address_mask != 0 || s.len & self.length_mask != 0 {
                return false;
            }
            if (i > 0 && at & self.boundary_mask != 0)
                || (!last && (at + s.len) & self.boundary_mask != 0)
            {
                return false;
            }
            pages += (at % PAGE + s.len).div_ceil(PAGE);
        }
        pages <= self.pages
    }
}

/// The memory of a command at the drive.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    segments: Segments,
    copy: Option<AlignedBuf>,
    /// Whether `segments` is the copy.
    copied: bool,
}

impl Memory {
    /// Collects `len` bytes of the memory of `c` from byte `from` on. `out`: the data goes to the drive.
    pub(crate) fn gather(&mut self, c: &Command, from: u32, len: u32, rules: &Rules, out: bool) {
        self.segments.clear();
        for p in parts(c, from, len) {
            self.segments.push(c.bios[p.bio].data(), p.skip, p.len);
        }
        self.copied = !rules.allow(&self.segments);
        if !self.copied {
            return;
        }
        let copy = self.room(len);
        if out {
            let mut chunk = [0; PAGE];
            for p in parts(c, from, len) {
                for o in (0..p.len).step_by(PAGE) {
                    let n = (p.len - o).min(PAGE as u32);
                    c.bios[p.bio].data().copy_to(p.skip + o, &mut chunk[..n as usize]);
                    copy.write(p.at + o, &chunk[..n as usize]);
                }
            }
        }
        self.use_copy(len);
    }

    /// Uses a copy of `len` zeroes.
    pub(crate) fn zeroes(&mut self, len: u32) {
        let copy = self.room(len);
        for o in (0..len).step_by(PAGE) {
            copy.write(o, &[0; PAGE][..(len - o).min(PAGE as u32) as usize]);
        }
        self.use_copy(len);
    }

    /// Uses a buffer of `len` bytes that is not the client's, for a report.
    pub(crate) fn own(&mut self, len: u32) {
        self.room(len);
        self.use_copy(len);
    }

    /// The bytes that have arrived in the buffer of [`Memory::own`].
    pub(crate) fn bytes(&self, len: u32) -> Vec<u8> {
        let mut v = vec![0; len as usize];
        if let Some(copy) = &self.copy {
            copy.read(0, &mut v);
        }
        v
    }

    /// Copies read data into the client's memory, if a copy was used.
    pub(crate) fn scatter(&self, c: &mut Command, from: u32, len: u32) {
        let Some(copy) = self.copy.as_ref().filter(|_| self.copied) else { return };
        let mut chunk = [0; PAGE];
        for p in parts(c, from, len).collect::<Vec<_>>() {
            for o in (0..p.len).step_by(PAGE) {
                let n = (p.len - o).min(PAGE as u32);
                copy.read(p.at + o, &mut chunk[..n as usize]);
                c.bios[p.bio].data_mut().copy_from(p.skip + o, &chunk[..n as usize]);
            }
        }
    }

    /// The list for the kernel. It stays where it is until the next call of a method that takes `&mut self`.
    pub(crate) fn segments(&self) -> &Segments {
        &self.segments
    }

    fn room(&mut self, len: u32) -> &mut AlignedBuf {
        if self.copy.as_ref().is_none_or(|b| b.len() < len) {
            self.copy = Some(AlignedBuf::zeroed(len.next_multiple_of(PAGE as u32)));
        }
        self.copy.as_mut().expect("it has just been made")
    }

    fn use_copy(&mut self, len: u32) {
        self.segments.clear();
        if let Some(copy) = &mut self.copy {
            // The buffer belongs to this slot. It is neither freed nor replaced before the command is back, because the
            // slot takes its next command only then.
            self.segments.push_piece(Segment { ptr: copy.as_mut_ptr(), len: len as usize });
        }
        self.copied = true;
    }
}

/// A piece of the memory of a command.
struct Part {
    bio: usize,
    /// Bytes of the BIO before it.
    skip: u32,
    len: u32,
    /// Bytes of the requested range before it.
    at: u32,
}

/// The pieces of the memory of `c` between bytes `from` and `from + len`.
fn parts(c: &Command, from: u32, len: u32) -> impl Iterator<Item = Part> + '_ {
    let (mut skip, mut at) = (from, 0);
    c.bios.iter().enumerate().filter_map(move |(bio, b)| {
        let bytes = b.len_sectors << 9;
        if skip >= bytes {
            skip -= bytes;
            return None;
        }
        let n = (bytes - skip).min(len - at);
        let part = Part { bio, skip, len: n, at };
        (skip, at) = (0, at + n);
        (n > 0).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_buf::IoBuf;
    use zoneplug_core::{Bio, Op, Sector};

    const RULES: Rules =
        Rules { address_mask: 511, length_mask: 511, boundary_mask: 4095, pages: 4 };

    /// A command of BIOs of so many sectors each, `gap` bytes apart in memory that begins `shift` bytes after a page.
    fn command(lens: &[u32], shift: u32, gap: u32) -> Box<Command> {
        let total: u32 = lens.iter().map(|l| (l << 9) + gap).sum();
        let mut mem = IoBuf::leaked(total + shift);
        let _before = mem.split_to(shift);
        let mut c = Command::of(Bio::new(Op::Write, Sector(0), 1));
        c.bios.clear();
        let mut sector = Sector(0);
        for &len in lens {
            let mut buf = mem.split_to(len << 9);
            for at in (0..len << 9).step_by(256) {
                buf.copy_from(at, &[(sector.0 * 2) as u8 + (at / 256) as u8; 256]);
            }
            c.bios.push(Bio::with_buf(Op::Write, sector, len, buf));
            let _gap = mem.split_to(gap);
            sector = sector.plus(u64::from(len));
        }
        c.len_sectors = lens.iter().sum();
        c
    }

    fn gathered(lens: &[u32], shift: u32, gap: u32) -> bool {
        let mut c = command(lens, shift, gap);
        let len = c.len_sectors << 9;
        let mut m = Memory::default();
        m.gather(&c, 0, len, &RULES, true);
        let direct = !m.copied;
        // The list has the data of the BIOs, copied or not.
        let mut want = Vec::new();
        for bio in &c.bios {
            let mut v = vec![0; bio.data().len() as usize];
            bio.data().copy_to(0, &mut v);
            want.extend(v);
        }
        if !direct {
            assert_eq!(m.bytes(len), want);
            assert_eq!(m.segments().as_slice().len(), 1);
        }
        // Read data comes back the same way.
        m.gather(&c, 0, len, &RULES, false);
        if m.copied {
            m.copy.as_mut().unwrap().write(0, &vec![7; len as usize]);
            m.scatter(&mut c, 0, len);
            let mut v = vec![0; 512];
            c.bios.last().unwrap().data().copy_to(0, &mut v);
            assert!(v.iter().all(|&b| b == 7));
        }
        direct
    }

    /// W5, R21: a transfer that the kernel would split goes through a copy.
    #[test]
    fn what_the_kernel_would_cut_goes_through_a_copy() {
        assert!(gathered(&[8, 8], 0, 0), "neighbours in memory are one piece");
        assert!(gathered(&[8, 8], 0, 4096), "whole pages may be apart");
        assert!(gathered(&[24], 512, 0), "12 KiB that begin inside a page are four pages");
        assert!(!gathered(&[8, 8], 512, 512), "a gap inside of a page");
        assert!(!gathered(&[32], 512, 0), "five pages");
        assert!(!gathered(&[8], 100, 0), "an address that DMA cannot take");
        assert!(!gathered(&[1, 1, 1], 0, 512), "pieces of a page");
    }

    #[test]
    fn a_part_of_a_command_is_what_it_says() {
        let mut c = command(&[2, 2, 2], 0, 512);
        for (i, bio) in c.bios.iter_mut().enumerate() {
            bio.data_mut().copy_from(0, &[i as u8 + 1; 1024]);
        }
        let mut m = Memory::default();
        m.gather(&c, 512, 2048, &Rules { boundary_mask: 511, ..RULES }, true);
        let lens: Vec<_> = m.segments().as_slice().iter().map(|s| s.len).collect();
        assert_eq!(lens, [512, 1024, 512]);
        m.gather(&c, 512, 2048, &RULES, true);
        assert_eq!(m.bytes(2048), [vec![1; 512], vec![2; 1024], vec![3; 512]].concat());
        m.zeroes(1000);
        assert!(m.bytes(1000).iter().all(|&b| b == 0));
    }

    #[test]
    fn rules_of_a_queue() {
        let q = QueueAttributes { max_segments: 129, dma_alignment: Some(3), ..Default::default() };
        let r = memory_rules(&q, 4096);
        assert_eq!((r.address_mask, r.length_mask, r.pages), (3, 4095, 129));
        let q = QueueAttributes { max_segments: 2048, ..Default::default() };
        let r = memory_rules(&q, 512);
        assert_eq!((r.address_mask, r.pages, r.longest_sectors()), (511, 256, 2048));
    }
}
