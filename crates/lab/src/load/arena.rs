//! Memory for the BIOs of a measurement.

use crate::failure::{Failure, Kind};
use std::sync::{Arc, Mutex};
use zoneplug_buf::{AlignedBuf, Parts};
use zoneplug_core::poison::lock;
use zoneplug_core::{Bytes, IoBuf};

/// Memory for I/O, used again by every measurement. It is never given back to the allocator, so addresses stay the
/// same.
#[derive(Debug, Default, Clone)]
pub(crate) struct Arena {
    /// The data of all writes.
    zeroes: &'static [u8],
    /// Buffers that are not in use.
    free: Arc<Mutex<Vec<IoBuf>>>,
}

/// The failure to get memory for `n` buffers of `len` bytes.
fn no_memory(n: u32, len: u32) -> Failure {
    let all = Bytes(u64::from(n) * u64::from(len));
    Failure::new(Kind::NotSupported, format!("there is no memory for {all} of buffers"))
        .hint("a smaller bs or iodepth, or more memory")
}

impl Arena {
    fn len(n: u32, sectors: u32) -> Result<u32, Failure> {
        let len = sectors.checked_mul(512);
        let all = len.and_then(|len| len.checked_mul(n)).filter(|all| *all <= 1 << 30);
        len.filter(|_| all.is_some()).ok_or_else(|| {
            Failure::usage("more than 1G of buffers").hint("a smaller bs or iodepth")
        })
    }

    /// Zeroes, for any number of writes of `sectors` at a time.
    pub(crate) fn zeroes(&mut self, sectors: u32) -> Result<&'static [u8], Failure> {
        let len = Self::len(1, sectors)?;
        if self.zeroes.len() < len as usize {
            self.zeroes = AlignedBuf::try_zeroed(len).ok_or_else(|| no_memory(1, len))?.leak();
        }
        Ok(&self.zeroes[..len as usize])
    }

    /// `n` buffers of `sectors` each.
    pub(crate) fn buffers(&mut self, n: u32, sectors: u32) -> Result<Vec<Buffer>, Failure> {
        let len = Self::len(n, sectors)?;
        let mut free = lock(&self.free);
        let mut take = || match free.iter().position(|b| b.len() == len) {
            Some(i) => Ok(free.swap_remove(i)),
            None => IoBuf::try_leaked(len).ok_or_else(|| no_memory(n, len)),
        };
        let buffer = |whole| Buffer { whole, cut: None, home: self.free.clone() };
        (0..n).map(|_| take().map(buffer)).collect()
    }
}

/// A buffer that one BIO at a time borrows.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// Empty while a BIO has the buffer or a part of it.
    pub(crate) whole: IoBuf,
    /// The rest of the buffer, while a BIO has a part.
    cut: Option<Parts>,
    home: Arc<Mutex<Vec<IoBuf>>>,
}

impl Buffer {
    /// Lends the first `len` bytes to a BIO.
    pub(crate) fn lend(&mut self, len: u32) -> IoBuf {
        let whole = std::mem::take(&mut self.whole);
        if whole.len() == len {
            return whole;
        }
        self.cut.insert(Parts::new(whole)).take_front(len)
    }

    /// Takes the memory of a completed BIO back.
    pub(crate) fn take_back(&mut self, buf: IoBuf) {
        self.whole = match self.cut.take() {
            None => buf,
            Some(mut parts) => match parts.put_back(buf) {
                Ok(()) => parts.join().unwrap_or_default(),
                Err(_) => IoBuf::empty(),
            },
        };
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let whole = std::mem::take(&mut self.whole);
        if !whole.is_empty() {
            lock(&self.home).push(whole);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_the_same_memory_again_and_have_a_limit() {
        let mut arena = Arena::default();
        let mut a = arena.buffers(2, 8).unwrap();
        let ranges: Vec<_> = a.iter().map(|b| b.whole.range()).collect();
        let part = a[1].lend(512);
        assert_eq!((part.len(), a[1].whole.len()), (512, 0));
        a[1].take_back(part);
        drop(a);
        let b = arena.buffers(2, 8).unwrap();
        assert!(b.iter().all(|b| ranges.contains(&b.whole.range())));
        assert!(
            !ranges.contains(&arena.buffers(1, 8).unwrap()[0].whole.range()),
            "they are in use"
        );
        assert_eq!(arena.zeroes(8).unwrap().as_ptr(), arena.zeroes(4).unwrap().as_ptr());
        assert!(arena.buffers(1 << 12, 1 << 12).is_err());
        assert!(arena.zeroes(1 << 22).is_err());
    }
}
