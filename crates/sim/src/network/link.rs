//! One direction of a connection. Bytes arrive in order, in pieces that the network cuts, each after its own delay.

use std::collections::VecDeque;
use zoneplug_core::{Nanos, Random};

/// A piece of the stream, and its time of arrival.
#[derive(Debug)]
struct Piece {
    arrives: Nanos,
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Link {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that were taken.
    taken: usize,
    /// Bytes on the way, and their limit.
    bytes: usize,
    capacity: usize,
    /// Most delay of a piece, in nanoseconds.
    delay: u32,
    /// Bytes that were taken, ever.
    taken_ever: u64,
    /// The time before which nothing arrives.
    not_before: Nanos,
    /// Whether the link takes no more bytes.
    ended: bool,
}

impl Link {
    pub(super) fn new(capacity: usize, delay: u32) -> Link {
        Link {
            pieces: VecDeque::new(),
            taken: 0,
            bytes: 0,
            capacity,
            delay,
            taken_ever: 0,
            not_before: Nanos(0),
            ended: false,
        }
    }

    /// Returns how many bytes can be sent. A link that has ended loses all bytes, so it always has room.
    pub(super) fn room(&self) -> usize {
        let bytes = if self.ended { 0 } else { self.bytes };
        self.capacity - bytes.min(self.capacity)
    }

    /// Sends bytes. They are lost if the link has ended.
    pub(super) fn send(&mut self, rng: &mut Random, now: Nanos, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.ended {
            let n = match rng.below(6) {
                0 => rng.range(1, 9) as usize,
                1 => rng.range(1, 200) as usize,
                _ => rng.range(1, 8192) as usize,
            };
            let (piece, rest) = bytes.split_at(n.min(bytes.len()));
            let delay = if rng.one_in(3) { 0 } else { rng.below(self.delay) };
            self.not_before = self.not_before.max(now.plus(Nanos(u64::from(delay))));
            self.bytes += piece.len();
            self.pieces.push_back(Piece { arrives: self.not_before, bytes: piece.to_vec() });
            bytes = rest;
        }
    }

    /// Takes up to `into.len()` bytes that have arrived.
    pub(super) fn take(&mut self, now: Nanos, into: &mut [u8]) -> usize {
        let mut n = 0;
        while n < into.len()
            && let Some(piece) = self.pieces.front().filter(|p| p.arrives <= now)
        {
            let from = &piece.bytes[self.taken..];
            let m = from.len().min(into.len() - n);
            into[n..n + m].copy_from_slice(&from[..m]);
            n += m;
            self.taken += m;
            if self.taken == piece.bytes.len() {
                self.pieces.pop_front();
                self.taken = 0;
            }
        }
        self.bytes -= n;
        self.taken_ever += n as u64;
        n
    }

    /// Returns how many bytes have arrived and were not taken.
    pub(super) fn arrived(&self, now: Nanos) -> usize {
        let there = self.pieces.iter().take_while(|p| p.arrives <= now);
        there.map(|p| p.bytes.len()).sum::<usize>() - self.taken_now(now)
    }

    /// Returns how many bytes have ever arrived.
    pub(super) fn arrived_ever(&self, now: Nanos) -> u64 {
        self.taken_ever + self.arrived(now) as u64
    }

    fn taken_now(&self, now: Nanos) -> usize {
        self.pieces.front().map_or(0, |p| if p.arrives <= now { self.taken } else { 0 })
    }

    /// Returns the arrival time of the next piece.
    pub(super) fn next_arrival(&self) -> Option<Nanos> {
        self.pieces.front().map(|p| p.arrives)
    }

    /// Ends the link: it takes no more bytes, and those on the way arrive.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Returns whether the other side has ended the link, and all bytes have arrived and were taken.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.pieces.is_empty()
    }

    /// Cuts the link: only some of the bytes on the way arrive, and the last piece of them perhaps in part.
    pub(super) fn cut(&mut self, rng: &mut Random) {
        self.ended = true;
        let keep = rng.below(self.pieces.len() as u32 + 1) as usize;
        self.pieces.truncate(keep);
        if keep == 0 {
            // The piece of which a part was taken is gone.
            self.taken = 0;
        }
        if let Some(last) = self.pieces.back_mut() {
            let least = if keep == 1 { self.taken + 1 } else { 1 };
            let n = rng.range(least as u32, last.bytes.len() as u32) as usize;
            last.bytes.truncate(n);
        }
        self.bytes = self.pieces.iter().map(|p| p.bytes.len()).sum::<usize>() - self.taken;
    }

    /// Delays all arrivals until `until`.
    pub(super) fn stall(&mut self, until: Nanos) {
        self.not_before = self.not_before.max(until);
        self.pieces.iter_mut().for_each(|p| p.arrives = p.arrives.max(until));
    }

    /// Changes a byte that is on the way. Returns false if there is none.
    pub(super) fn corrupt(&mut self, rng: &mut Random) -> bool {
        let first = self.taken;
        let Some(i) = (0..self.pieces.len()).rev().find(|_| rng.one_in(2)) else { return false };
        let bytes = &mut self.pieces[i].bytes;
        let least = if i == 0 { first } else { 0 };
        let at = rng.range(least as u32, bytes.len() as u32 - 1) as usize;
        bytes[at] ^= 1 << rng.below(8);
        true
    }
}
