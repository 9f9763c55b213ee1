//! A buffer in parts. Each part moves on its own, and the buffer is whole again when all bytes are back.

use crate::{IoBuf, IoRange};

/// A buffer that is handed out in parts, from the front.
///
/// ```
/// use zoneplug_buf::{IoBuf, Parts};
/// let whole = IoBuf::leaked(4096);
/// let range = whole.range();
/// let mut parts = Parts::new(whole);
/// let (a, b) = (parts.take_front(1024), parts.take_front(3072));
/// parts.put_back(b).unwrap();
/// let mut parts = parts.join().unwrap_err(); // 1024 bytes are missing
/// parts.put_back(a).unwrap();
/// assert_eq!(parts.join().unwrap().range(), range);
/// ```
#[derive(Debug)]
pub struct Parts {
    /// The buffer that is returned at the end, and not used before.
    whole: IoBuf,
    /// The bytes that were not handed out yet.
    rest: IoBuf,
    /// The bytes that are back, as pairs of start and end, in order. No two pairs are adjacent.
    back: Vec<(u32, u32)>,
}

impl Parts {
    /// Prepares to cut `whole` into parts. All of it can be taken.
    pub fn new(whole: IoBuf) -> Parts {
        // SAFETY: `whole` is not used until all of `rest` is back.
        let rest = unsafe { whole.alias() };
        Parts { whole, rest, back: Vec::new() }
    }

    /// Returns the identity of the whole buffer's memory.
    pub fn range(&self) -> IoRange {
        self.whole.range()
    }

    /// Takes the next `len` bytes.
    ///
    /// # Panics
    ///
    /// If fewer are left.
    pub fn take_front(&mut self, len: u32) -> IoBuf {
        self.rest.split_to(len)
    }

    /// Takes the last `len` of the bytes that are left.
    ///
    /// # Panics
    ///
    /// If fewer are left.
    pub fn take_back(&mut self, len: u32) -> IoBuf {
        self.rest.split_off(self.rest.len().checked_sub(len).expect("fewer bytes are left"))
    }

    /// Takes back a part, or a piece that was cut from one. The order does not matter. Returns the argument if it
    /// belongs to another buffer, or if its bytes are back already. The second case occurs only if shared memory was
    /// lent twice and the part belongs to the other loan.
    pub fn put_back(&mut self, part: IoBuf) -> Result<(), IoBuf> {
        let Some(start) = self.whole.range().offset_of(part.range()) else { return Err(part) };
        let end = start + part.len();
        if start == end {
            return Ok(());
        }
        // The first piece that does not end before `start`.
        let i = self.back.partition_point(|&(_, e)| e < start);
        let joins_before = self.back.get(i).is_some_and(|&(_, e)| e == start);
        let next = if joins_before { i + 1 } else { i };
        if self.back.get(next).is_some_and(|&(s, _)| s < end) {
            return Err(part);
        }
        let joins_after = self.back.get(next).is_some_and(|&(s, _)| s == end);
        match (joins_before, joins_after) {
            (true, true) => self.back[i].1 = self.back.remove(next).1,
            (true, false) => self.back[i].1 = end,
            (false, true) => self.back[next].0 = start,
            (false, false) => self.back.insert(i, (start, end)),
        }
        Ok(())
    }

    /// Returns the whole buffer if all taken parts are back. Otherwise returns the `Parts` for another try; no further
    /// part can be taken from them.
    pub fn join(mut self) -> Result<IoBuf, Parts> {
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty()
            && let Err(rest) = self.put_back(rest)
        {
            self.rest = rest;
            return Err(self);
        }
        let all = self.whole.len();
        match self.back[..] {
            [] if all == 0 => Ok(self.whole),
            [(0, end)] if end == all => Ok(self.whole),
            _ => Err(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(lens: &[u32]) -> (Parts, Vec<IoBuf>) {
        let mut p = Parts::new(IoBuf::leaked(lens.iter().sum()));
        let all = lens.iter().map(|&n| p.take_front(n)).collect();
        (p, all)
    }

    #[test]
    fn in_every_order_the_whole_is_back_with_the_last_part() {
        let lens = [1, 2, 3, 4];
        for order in 0..256usize {
            let order = [order & 3, order >> 2 & 3, order >> 4 & 3, order >> 6];
            if (0..4).any(|i| !order.contains(&i)) {
                continue;
            }
            let (mut p, all) = parts(&lens);
            let mut all: Vec<_> = all.into_iter().map(Some).collect();
            for (nr, i) in order.into_iter().enumerate() {
                p = p.join().expect_err("a part is missing");
                p.put_back(all[i].take().unwrap()).unwrap();
                assert!(nr == 3 || p.back.len() <= 2);
            }
            assert_eq!(p.join().unwrap().len(), 10, "{order:?}");
        }
    }

    #[test]
    fn a_cut_part_is_back_when_all_its_pieces_are() {
        let (mut p, mut all) = parts(&[8, 8]);
        let second = all[1].split_off(3);
        for part in all.into_iter().rev() {
            p.put_back(part).unwrap();
        }
        p = p.join().unwrap_err();
        p.put_back(second).unwrap();
        assert!(p.join().is_ok());
    }

    #[test]
    fn other_memory_is_not_taken() {
        let (mut p, all) = parts(&[8, 8]);
        let (_, others) = parts(&[8, 8]);
        for other in others {
            assert!(p.put_back(other).is_err());
        }
        for part in all {
            p.put_back(part).unwrap();
        }
        assert!(p.join().is_ok());
    }

    /// If the same memory is lent twice, a part of the other loan does not replace a missing one.
    #[test]
    fn no_byte_of_shared_memory_counts_twice() {
        static MEMORY: [u8; 16] = [0; 16];
        let mut a = Parts::new(IoBuf::from_static(&MEMORY));
        let mut b = Parts::new(IoBuf::from_static(&MEMORY));
        let first = [a.take_front(8), b.take_front(8)];
        let _missing = a.take_front(8);
        let [x, y] = first;
        a.put_back(x).unwrap();
        assert!(a.put_back(y).is_err());
        assert!(a.join().is_err());
    }

    #[test]
    fn bytes_that_were_never_taken_count_as_back() {
        assert_eq!(parts(&[]).0.join().unwrap().len(), 0);
        assert_eq!(Parts::new(IoBuf::leaked(9)).join().unwrap().len(), 9);
        let mut p = Parts::new(IoBuf::leaked(9));
        let back = p.take_back(4);
        assert_eq!(p.range().offset_of(back.range()), Some(5));
        p.put_back(back).unwrap();
        assert_eq!(p.join().unwrap().len(), 9);
    }
}
