//! The connections of a worker: their keys, which of them have work at a disk, and which are strangers, whose peers have not been
//! admitted yet.

use super::listeners::ConnectionCount;
use std::collections::VecDeque;

/// The worker of a connection is in the bits of its key from this one on. No key has the highest bit.
const WORKER_SHIFT: u32 = 56;
/// The bits of a generation. In a key they stand above the index, which has 32 bits, and below the worker.
const GENERATION_MASK: u32 = (1 << 24) - 1;

/// The number of the worker that has the connection of a key.
pub(crate) fn worker_of(key: u64) -> usize {
    (key >> WORKER_SHIFT) as usize
}

/// The index of the entry of a key.
fn index(key: u64) -> usize {
    key as u32 as usize
}

/// An entry for a connection. The key of a connection has the generation of its entry, so that mail for an earlier
/// connection does not reach it.
#[derive(Debug)]
struct Entry<C> {
    generation: u32,
    connection: Option<C>,
    /// The entry is in [`ConnectionTable::busy`].
    is_busy: bool,
}

/// The connections of a worker.
#[derive(Debug)]
pub(crate) struct ConnectionTable<C> {
    /// The number of the worker, below 128.
    worker: usize,
    all: Vec<Entry<C>>,
    free: Vec<usize>,
    /// Keys of connections whose peers were strangers at the last check, in order of arrival.
    strangers: VecDeque<u64>,
    /// Indexes of entries whose connections have work at a disk.
    busy: Vec<usize>,
}

impl<C> ConnectionTable<C> {
    pub(crate) fn new(worker: usize) -> ConnectionTable<C> {
        let (all, free, strangers, busy) = (Vec::new(), Vec::new(), VecDeque::new(), Vec::new());
        ConnectionTable { worker, all, free, strangers, busy }
    }

    /// Adds a connection, which `make` makes for its key. Returns whether it is the only one now.
    pub(crate) fn add<E>(&mut self, make: impl FnOnce(u64) -> Result<C, E>) -> Result<bool, E> {
        let n = self.free.pop().unwrap_or_else(|| {
            self.all.push(Entry { generation: 0, connection: None, is_busy: false });
            self.all.len() - 1
        });
        let key = self.key(n);
        let connection = make(key).inspect_err(|_| self.free.push(n))?;
        self.all[n].connection = Some(connection);
        self.strangers.push_back(key);
        Ok(self.all.len() - self.free.len() == 1)
    }

    /// Removes the connection of a key. The key means nothing from now on.
    pub(crate) fn remove(&mut self, key: u64) -> Option<C> {
        self.get(key)?;
        let entry = &mut self.all[index(key)];
        entry.generation = entry.generation.wrapping_add(1) & GENERATION_MASK;
        self.free.push(index(key));
        entry.connection.take()
    }

    /// The number of entries, with a connection or without.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is a connection.
    pub(crate) fn has_any(&self) -> bool {
        self.all.len() > self.free.len()
    }

    /// The connections.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut C> {
        self.all.iter_mut().filter_map(|entry| entry.connection.as_mut())
    }

    /// The key of the connection in an entry.
    #[inline]
    pub(crate) fn key(&self, n: usize) -> u64 {
        let generation = u64::from(self.all[n].generation);
        (self.worker as u64) << WORKER_SHIFT | generation << 32 | n as u64
    }

    /// The connection of a key, unless it has ended.
    pub(crate) fn get(&self, key: u64) -> Option<&C> {
        let entry = self.all.get(index(key))?;
        entry
            .connection
            .as_ref()
            .filter(|_| entry.generation == (key >> 32) as u32 & GENERATION_MASK)
    }

    /// The connection of a key, unless it has ended.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut C> {
        let entry = self.all.get_mut(index(key))?;
        let generation = entry.generation;
        entry.connection.as_mut().filter(|_| generation == (key >> 32) as u32 & GENERATION_MASK)
    }

    /// The key of the `i`th busy entry. Its connection may have ended, or be another one by now.
    #[inline]
    pub(crate) fn busy(&self, i: usize) -> Option<u64> {
        self.busy.get(i).map(|n| self.key(*n))
    }

    /// Calls `f` with each busy connection.
    #[inline]
    pub(crate) fn for_each_busy(&mut self, mut f: impl FnMut(&mut C)) {
        for n in &self.busy {
            self.all[*n].connection.iter_mut().for_each(&mut f);
        }
    }

    /// Lists the entry of a key as busy, if it is not listed and its connection has work.
    #[inline]
    pub(crate) fn mark_busy(&mut self, key: u64, has_work: impl FnOnce(&mut C) -> bool) {
        let entry = &mut self.all[index(key)];
        if !entry.is_busy && entry.connection.as_mut().is_some_and(has_work) {
            entry.is_busy = true;
            self.busy.push(index(key));
        }
    }

    /// Removes the `i`th of the busy entries from their list. The last one takes its place.
    pub(crate) fn unmark_busy(&mut self, i: usize) {
        let n = self.busy.swap_remove(i);
        self.all[n].is_busy = false;
    }

    /// Removes the `i`th of the busy entries from their list if its connection has no work or has ended. Returns whether
    /// it was removed.
    #[inline]
    pub(crate) fn unmark_busy_unless(
        &mut self,
        i: usize,
        has_work: impl FnOnce(&mut C) -> bool,
    ) -> bool {
        let has_work = self.all[self.busy[i]].connection.as_mut().is_some_and(has_work);
        if !has_work {
            self.unmark_busy(i);
        }
        !has_work
    }

    /// The key of the stranger that has waited longest, while strangers crowd the table ([`ConnectionCount::is_crowded_by`]). Each
    /// call returns another one.
    pub(crate) fn next_crowding(&mut self, count: &ConnectionCount, workers: usize) -> Option<u64> {
        let is_crowded = count.is_crowded_by(self.strangers.len(), workers);
        if is_crowded { self.strangers.pop_front() } else { None }
    }

    /// Forgets strangers that have been admitted or have ended.
    pub(crate) fn retain_strangers(&mut self, is_stranger: impl Fn(&mut C) -> bool) {
        let mut strangers = std::mem::take(&mut self.strangers);
        strangers.retain(|key| self.get_mut(*key).is_some_and(&is_stranger));
        self.strangers = strangers;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn table(worker: usize) -> ConnectionTable<char> {
        let mut table = ConnectionTable::new(worker);
        for c in ['a', 'b', 'c'] {
            assert_eq!(table.add(|_| Ok::<_, ()>(c)), Ok(c == 'a'));
        }
        table
    }

    #[test]
    fn a_key_means_one_connection_of_one_worker() {
        let mut table = table(63);
        let key = table.key(1);
        assert_eq!((worker_of(key), table.get(key), key >> 63), (63, Some(&'b'), 0));
        assert_ne!(key, self::table(62).key(1));
        assert_eq!((table.remove(key), table.remove(key)), (Some('b'), None));
        // The next one has the entry, and another key. One that cannot be made takes no entry.
        assert_eq!(table.add(|_| Err('x')), Err('x'));
        let mut with = 0;
        let make = |key| {
            with = key;
            Ok::<_, ()>('d')
        };
        table.add(make).unwrap();
        assert_eq!((table.len(), with as u32, table.get(with)), (3, 1, Some(&'d')));
        assert!(table.get(key).is_none() && table.get_mut(key).is_none());
        for n in 0..3 {
            table.remove(table.key(n));
        }
        assert!(!table.has_any() && table.iter_mut().count() == 0);
    }

    #[test]
    fn the_generation_of_an_entry_begins_anew_and_leaves_the_worker_alone() {
        let mut table = table(5);
        table.all[0].generation = GENERATION_MASK;
        let last = table.key(0);
        assert_eq!((table.get(last), worker_of(last)), (Some(&'a'), 5));
        table.remove(last);
        assert_eq!(
            (table.key(0) >> 32 & u64::from(GENERATION_MASK), worker_of(table.key(0))),
            (0, 5)
        );
    }

    #[test]
    fn a_busy_entry_is_listed_once() {
        let mut table = table(0);
        let keys = [table.key(0), table.key(2)];
        for key in [keys[0], keys[1], keys[0]] {
            table.mark_busy(key, |_| true);
        }
        table.mark_busy(table.key(1), |_| false);
        let busy = |table: &ConnectionTable<char>| [0, 1, 2].map(|i| table.busy(i).map(index));
        assert_eq!(busy(&table), [Some(0), Some(2), None]);
        let mut all = String::new();
        table.for_each_busy(|c| all.push(*c));
        assert_eq!(all, "ac");
        assert!(!table.unmark_busy_unless(0, |_| true));
        // One whose connection has ended, and the connection that follows it there.
        table.remove(keys[0]);
        table.add(|_| Ok::<_, ()>('d')).unwrap();
        table.mark_busy(table.key(0), |_| true);
        assert_eq!(busy(&table)[2], None);
        assert!(table.unmark_busy_unless(0, |_| false));
        assert_eq!(busy(&table), [Some(2), None, None]);
        table.mark_busy(table.key(0), |_| true);
        assert_eq!(busy(&table)[1], Some(0));
    }

    #[test]
    fn strangers_go_in_the_order_of_their_arrival_while_they_crowd_the_table() {
        let count = Arc::new(ConnectionCount::new(8));
        let mut table = table(0);
        table.retain_strangers(|c| *c != 'b');
        assert_eq!(table.next_crowding(&count, 1), None);
        let _open: Vec<_> = (0..7).map(|_| count.enter().unwrap()).collect();
        assert_eq!(table.next_crowding(&count, 1), Some(table.key(0)));
        // One of eight may stay.
        assert_eq!(table.next_crowding(&count, 1), None);
        assert_eq!(table.strangers, [table.key(2)]);
    }
}
