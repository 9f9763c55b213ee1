//! Controls: what it costs that two threads write to the same cache lines, whatever the program does there.

use crate::load::ZONE_SECTORS;
use crate::port::Port;
use crate::slices::Alone;
use crate::threads::{Progress, Work};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug_core::{Bios, Random};

/// Words that threads share, on a cache line each. Words belong together in groups, as the word of a plug and the write
/// pointer that an emulated disk keeps of the same zone do.
pub(crate) struct Words {
    words: Box<[Alone<AtomicU64>]>,
    group: usize,
}

impl Words {
    pub(crate) fn new(groups: usize, group: usize) -> Arc<Words> {
        let words = (0..groups * group).map(|_| Alone(AtomicU64::new(0))).collect();
        Arc::new(Words { words, group })
    }

    fn groups(&self) -> u64 {
        (self.words.len() / self.group) as u64
    }

    /// One compare-and-exchange that succeeds on each word of a group.
    #[inline]
    fn exchange(&self, group: u64) {
        let first = (group % self.groups()) as usize * self.group;
        for word in &self.words[first..first + self.group] {
            let mut was = word.0.load(Ordering::Relaxed);
            while let Err(now) =
                word.0.compare_exchange_weak(was, was + 1, Ordering::AcqRel, Ordering::Relaxed)
            {
                was = now;
            }
        }
    }
}

/// A thread that does nothing but exchanges, on groups that it draws.
pub(crate) struct Exchanges {
    words: Arc<Words>,
    random: Random,
    progress: Progress,
}

impl Exchanges {
    pub(crate) fn new(words: Arc<Words>, number: u64) -> Self {
        Exchanges { words, random: Random::new(number), progress: Progress::default() }
    }
}

impl Work for Exchanges {
    fn run(&mut self, n: u64) {
        for done in 1..=n {
            self.words.exchange(self.random.draw());
            if done.is_multiple_of(16) {
                self.progress.set(done);
            }
        }
        self.progress.set(n);
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }
}

/// A port that exchanges words of `words` for each run of BIOs of one zone, before it submits.
pub(crate) struct Exchanging<P> {
    pub(crate) port: P,
    pub(crate) words: Arc<Words>,
}

impl<P: Port> Port for Exchanging<P> {
    fn submit(&mut self, bios: &mut Bios) {
        let mut before = u64::MAX;
        for bio in bios.iter() {
            let zone = bio.sector.0 / u64::from(ZONE_SECTORS);
            if zone != before {
                self.words.exchange(zone);
            }
            before = zone;
        }
        self.port.submit(bios);
    }

    fn poll(&mut self, done: &mut Bios) {
        self.port.poll(done);
    }
}
