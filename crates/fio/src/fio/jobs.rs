//! Finds the job of a `thread_data` of fio, without a lock and without a thread-local variable.

use core::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The most jobs that fio can have (`REAL_MAX_JOBS`).
const ROOM: usize = 4096;

/// The table is full.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// Values by key. Each key is used by one thread, so only that thread changes the entry with the key. Keys are not 0.
pub(super) struct Jobs<T>([Entry<T>; ROOM]);

/// Aligned to a cache line, so that one instruction computes the place of an entry from a key.
#[repr(align(64))]
struct Entry<T> {
    /// 0: the entry is free.
    key: AtomicUsize,
    value: AtomicPtr<T>,
}

impl<T> Jobs<T> {
    pub(super) const fn new() -> Jobs<T> {
        Jobs(
            [const { Entry { key: AtomicUsize::new(0), value: AtomicPtr::new(null_mut()) } }; ROOM],
        )
    }

    /// The first entry of the search for a key. Keys are addresses of large structures, so their lowest bits are not
    /// used.
    #[inline]
    fn home(key: usize) -> usize {
        (key >> 6) % ROOM
    }

    /// The entries, in the order of the search for a key.
    fn probe(&self, key: usize) -> impl Iterator<Item = &Entry<T>> {
        let home = Self::home(key);
        self.0[home..].iter().chain(&self.0[..home])
    }

    /// The value of a key whose entry is the first of its search. The value is not null. `None`: only [`Jobs::get`]
    /// can tell whether there is one.
    #[inline(always)]
    pub(super) fn at_home(&self, key: usize) -> Option<*mut T> {
        let entry = &self.0[Self::home(key)];
        (entry.key.load(Ordering::Relaxed) == key).then(|| entry.value.load(Ordering::Relaxed))
    }

    /// The value of a key, or null.
    #[cold]
    #[inline(never)]
    pub(super) fn get(&self, key: usize) -> *mut T {
        self.search(key).map_or(null_mut(), |entry| entry.value.load(Ordering::Relaxed))
    }

    /// The entry of a key. A removed key leaves a free entry, so the search does not end at a free one.
    fn search(&self, key: usize) -> Option<&Entry<T>> {
        self.probe(key).find(|entry| entry.key.load(Ordering::Relaxed) == key)
    }

    /// Sets the value of a key, and returns the old value, or null. Neither the key nor the value is 0.
    pub(super) fn set(&self, key: usize, value: *mut T) -> Result<*mut T, Full> {
        assert!(key != 0 && !value.is_null());
        let free = |entry: &&Entry<T>| {
            entry.key.compare_exchange(0, key, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let entry = self.search(key).or_else(|| self.probe(key).find(free)).ok_or(Full)?;
        Ok(entry.value.swap(value, Ordering::Relaxed))
    }

    /// Removes a key, and returns its value, or null.
    pub(super) fn remove(&self, key: usize) -> *mut T {
        let Some(entry) = self.search(key) else { return null_mut() };
        let value = entry.value.swap(null_mut(), Ordering::Relaxed);
        // The next thread that takes the entry finds the value null.
        entry.key.store(0, Ordering::Release);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys whose search begins at the same entry as that of `key`.
    fn rivals(key: usize) -> impl Iterator<Item = usize> {
        let home = Jobs::<u32>::home(key);
        (1..).map(move |n| key + n).filter(move |k| Jobs::<u32>::home(*k) == home)
    }

    #[test]
    fn keys_of_one_home_are_told_apart() {
        static JOBS: Jobs<u32> = Jobs::new();
        let keys: Vec<_> = rivals(0x7000).take(3).collect();
        let mut values = [10, 11, 12, 13];
        let [a, b, c, d] = &mut values;
        let [a, b, c, d] = [&raw mut *a, &raw mut *b, &raw mut *c, &raw mut *d];
        for (key, value) in keys.iter().zip([a, b, c]) {
            assert!(JOBS.get(*key).is_null());
            assert_eq!(JOBS.set(*key, value), Ok(null_mut()));
        }
        assert_eq!(keys.iter().map(|k| JOBS.get(*k)).collect::<Vec<_>>(), [a, b, c]);
        assert_eq!(
            keys.iter().map(|k| JOBS.at_home(*k)).collect::<Vec<_>>(),
            [Some(a), None, None]
        );
        assert_eq!(JOBS.remove(keys[0]), a);
        assert!(JOBS.get(keys[0]).is_null() && JOBS.remove(keys[0]).is_null());
        assert_eq!((JOBS.get(keys[1]), JOBS.get(keys[2])), (b, c), "past a free entry");
        assert_eq!(JOBS.at_home(keys[0]), None);
        // The value is not set in the free entry before it: the key would then have two entries.
        assert_eq!(JOBS.set(keys[2], d), Ok(c));
        assert_eq!((JOBS.remove(keys[2]), JOBS.get(keys[2])), (d, null_mut()));
    }

    #[test]
    fn a_full_table_says_so() {
        let jobs = Box::new(Jobs::<u32>::new());
        let mut value = 7;
        for key in 1..=ROOM {
            assert_eq!(jobs.set(key * 64, &mut value), Ok(null_mut()));
        }
        assert_eq!(jobs.set(1, &mut value), Err(Full));
        assert!(jobs.get(1).is_null());
        jobs.remove(640);
        assert_eq!(jobs.set(1, &mut value), Ok(null_mut()));
        assert_eq!(jobs.get(1), &raw mut value);
    }

    #[test]
    fn threads_that_share_a_home_see_their_own_values() {
        let jobs = Box::new(Jobs::<usize>::new());
        let keys: Vec<_> = rivals(64).take(4).collect();
        std::thread::scope(|s| {
            for key in keys {
                let jobs = &jobs;
                s.spawn(move || {
                    let mut own = key;
                    for _ in 0..2000 {
                        assert_eq!(jobs.set(key, &mut own), Ok(null_mut()));
                        assert_eq!(jobs.get(key), &raw mut own);
                        assert_eq!(jobs.remove(key), &raw mut own);
                        assert!(jobs.get(key).is_null());
                    }
                });
            }
        });
    }
}
