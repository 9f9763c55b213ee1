//! `mq-deadline`: sends requests in the order of sectors, in batches. A request that has waited too long goes first.
//!
//! The rules are those of Linux's scheduler of that name. In each priority class reads and writes wait in two orders:
//! by sector, and by arrival. A batch goes upward from where the last request of its direction ended, and has at most
//! `fifo_batch` requests. A new batch begins with the oldest request if that has expired. It prefers reads, unless
//! writes have been passed over `writes_starved` times. A class is served when the classes above it have nothing to
//! send, or when its oldest request has aged.
//!
//! There are two differences: there are no front merges, and a class above does not hold up those below while it has
//! only requests that may not be sent yet.

use super::table::{CLASSES, Dir, Fifo, Request, Table};
use crate::unit::{Nanos, Sector};

/// The scheduler's attributes, with Linux's names and values.
///
/// ```
/// use zoneplug_core::{Nanos, sched::DeadlineConfig};
/// let c = DeadlineConfig::default();
/// assert_eq!((c.read_expire, c.writes_starved), (Nanos(500_000_000), 2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadlineConfig {
    /// The time after which a waiting read goes first.
    pub read_expire: Nanos,
    /// The time after which a waiting write goes first.
    pub write_expire: Nanos,
    /// Most requests of a batch.
    pub fifo_batch: u32,
    /// Batches of reads that may pass waiting writes.
    pub writes_starved: u32,
    /// The time that a class waits for those above it.
    pub prio_aging_expire: Nanos,
}

impl Default for DeadlineConfig {
    fn default() -> Self {
        DeadlineConfig {
            read_expire: Nanos(500_000_000),
            write_expire: Nanos(5_000_000_000),
            fifo_batch: 16,
            writes_starved: 2,
            prio_aging_expire: Nanos(10_000_000_000),
        }
    }
}

/// The requests of one priority class.
#[derive(Debug, Default)]
struct Class {
    /// Requests by direction, in the order of sectors.
    sorted: [Vec<(Sector, u32)>; 2],
    fifo: [Fifo; 2],
    /// The sector at which the last request of each direction ended.
    at: [Sector; 2],
    /// Direction and length of the current batch.
    batch: (usize, u32),
    starved: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Deadline {
    pub(crate) config: DeadlineConfig,
    classes: [Class; CLASSES],
}

const READ: usize = Dir::Read as usize;
const WRITE: usize = Dir::Write as usize;

impl Class {
    fn place(&self, dir: usize, r: &Request, i: u32) -> Result<usize, usize> {
        self.sorted[dir].binary_search(&(r.sector, i))
    }

    /// Returns the next request upward, from where the last one ended, that may be sent.
    fn upward(&self, t: &Table, dir: usize, may: &dyn Fn(&Request) -> bool) -> Option<u32> {
        let list = &self.sorted[dir];
        let first = list.partition_point(|e| e.0 < self.at[dir]);
        list[first..].iter().map(|e| e.1).find(|&i| may(t.get(i)))
    }

    fn begin_batch(&mut self, dir: usize) {
        self.batch = (dir, 1);
        if dir == WRITE {
            self.starved = 0;
        }
    }

    /// Returns the oldest request that may be sent.
    fn oldest(&self, t: &Table, dir: usize, may: &dyn Fn(&Request) -> bool) -> Option<u32> {
        t.iter(&self.fifo[dir]).find(|&i| may(t.get(i)))
    }
}

impl Deadline {
    fn expire(&self, dir: usize) -> Nanos {
        if dir == READ { self.config.read_expire } else { self.config.write_expire }
    }

    /// Makes room for `n` waiting requests in each list.
    pub(crate) fn reserve(&mut self, n: usize) {
        for list in self.classes.iter_mut().flat_map(|c| &mut c.sorted) {
            list.reserve(n.saturating_sub(list.len()));
        }
    }

    pub(crate) fn insert(&mut self, t: &mut Table, i: u32) {
        let r = *t.get(i);
        let class = &mut self.classes[usize::from(r.class)];
        let dir = r.dir as usize;
        let at = class.place(dir, &r, i).unwrap_or_else(|at| at);
        class.sorted[dir].insert(at, (r.sector, i));
        t.append(&mut class.fifo[dir], i);
    }

    /// Returns the write of this class that ends where `sector` is.
    pub(crate) fn ends_at(&self, t: &Table, class: u8, sector: Sector) -> Option<u32> {
        let list = &self.classes[usize::from(class)].sorted[WRITE];
        let after = list.partition_point(|e| e.0 < sector);
        let i = list[..after].last()?.1;
        (t.get(i).end() == sector).then_some(i)
    }

    /// Removes request `i`, which is about to be sent.
    pub(crate) fn remove(&mut self, t: &mut Table, i: u32) {
        let r = *t.get(i);
        let class = &mut self.classes[usize::from(r.class)];
        let dir = r.dir as usize;
        if let Ok(at) = class.place(dir, &r, i) {
            class.sorted[dir].remove(at);
        }
        t.remove(&mut class.fifo[dir], i);
        class.at[dir] = r.end();
    }

    /// Returns the first write to arrive of those that `is` accepts.
    pub(crate) fn first_of(&self, t: &Table, is: impl Fn(&Request) -> bool) -> Option<u32> {
        self.classes.iter().find_map(|c| t.iter(&c.fifo[WRITE]).find(|&i| is(t.get(i))))
    }

    /// Chooses the next request of those that may be sent.
    pub(crate) fn next(
        &mut self,
        t: &Table,
        now: Nanos,
        may: &dyn Fn(&Request) -> bool,
    ) -> Option<u32> {
        let aging = self.config.prio_aging_expire.0;
        for c in 1..CLASSES {
            let aged = (READ..=WRITE).any(|dir| {
                let oldest = t.iter(&self.classes[c].fifo[dir]).next();
                oldest.is_some_and(|i| now.0.saturating_sub(t.get(i).since.0) >= aging)
            });
            if aged && let Some(i) = self.next_of(c, t, now, may) {
                return Some(i);
            }
        }
        (0..CLASSES).find_map(|c| self.next_of(c, t, now, may))
    }

    fn next_of(
        &mut self,
        c: usize,
        t: &Table,
        now: Nanos,
        may: &dyn Fn(&Request) -> bool,
    ) -> Option<u32> {
        let class = &self.classes[c];
        let (dir, length) = class.batch;
        if length > 0
            && length < self.config.fifo_batch
            && let Some(i) = class.upward(t, dir, may)
        {
            self.classes[c].batch.1 += 1;
            return Some(i);
        }
        let oldest = [class.oldest(t, READ, may), class.oldest(t, WRITE, may)];
        let dir = match oldest {
            [None, None] => return None,
            [Some(_), None] => READ,
            [None, Some(_)] => WRITE,
            [Some(_), Some(_)] if class.starved >= self.config.writes_starved => WRITE,
            [Some(_), Some(_)] => {
                self.classes[c].starved += 1;
                READ
            }
        };
        let oldest = oldest[dir]?;
        let late = now.0.saturating_sub(t.get(oldest).since.0) >= self.expire(dir).0;
        let next = if late { None } else { self.classes[c].upward(t, dir, may) };
        self.classes[c].begin_batch(dir);
        Some(next.unwrap_or(oldest))
    }

    /// Does what follows from the choice of a request that is the only one.
    pub(crate) fn sent_at_once(&mut self, r: &Request) {
        let (class, dir) = (&mut self.classes[usize::from(r.class)], r.dir as usize);
        let (batch_of, length) = class.batch;
        let goes_on = length > 0 && length < self.config.fifo_batch;
        if goes_on && batch_of == dir && r.sector >= class.at[dir] {
            class.batch.1 += 1;
        } else {
            class.begin_batch(dir);
        }
        class.at[dir] = r.end();
    }
}
