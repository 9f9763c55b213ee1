//! The writes in a disk's write cache. Each zone has a run of writes in the order of their arrival, and the runs are
//! in the order of their zones. `smr.rs` decides when a write goes to the medium.
//!
//! Zones in ascending order are cylinders in ascending order. So the search for the nearest run starts at the head
//! and goes outwards both ways. It ends where the seek alone takes longer than the best run found. Entries are in a
//! table and used again: nothing is allocated once the table is as large as the cache needs.

use super::platter::{Platter, PlatterPlace};

const NONE: u32 = u32::MAX;

/// One write in the cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) zone: u32,
    pub(super) offset: u32,
    pub(super) sectors: u32,
    /// Its number in the order of arrival.
    pub(super) seq: u64,
    /// The index in [`Runs::entries`] of the next write of its run, or of the next free entry. [`NONE`]: it is the
    /// last.
    next: u32,
}

/// The writes of one zone.
#[derive(Debug)]
struct Run {
    zone: u32,
    /// First sector of the first write, as an offset in the zone, and its place.
    offset: u32,
    place: PlatterPlace,
    /// The number of the first write in the order of arrival.
    seq: u64,
    /// The indexes in [`Runs::entries`] of the first and the last write. [`Entry::next`] leads from one to the other.
    first: u32,
    last: u32,
}

impl Run {
    /// Returns how long the head seeks to the first write.
    fn seek_ns(&self, platter: &Platter, head: &Head) -> u32 {
        let here = self.zone == head.zone && self.offset == head.offset;
        if here { 0 } else { platter.seek_ns(head.cylinder, self.place.cylinder) }
    }

    /// Returns how long the head takes to the first write, starting `phase_ns` into a turn.
    fn reach_ns(&self, platter: &Platter, head: &Head, phase_ns: u32) -> u32 {
        let seek = self.seek_ns(platter, head);
        seek + platter.wait_ns(self.place.angle_ns, phase_ns + seek)
    }
}

/// The position of the head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) zone: u32,
    pub(super) offset: u32,
    pub(super) cylinder: f64,
}

/// All runs.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// The runs, in the order of their zones.
    runs: Vec<Run>,
    /// The writes of all runs, and free entries.
    entries: Vec<Entry>,
    /// The index of the first free entry. [`NONE`]: no entry is free.
    free: u32,
}

impl Runs {
    pub(super) fn new() -> Runs {
        Runs { free: NONE, ..Runs::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the number of runs.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Returns the index of a zone's run, or the index at which to insert it.
    fn search(&self, zone: u32) -> Result<usize, usize> {
        self.runs.binary_search_by(|r| r.zone.cmp(&zone))
    }

    /// Adds a write that arrives.
    pub(super) fn push(
        &mut self,
        platter: &Platter,
        zone: u32,
        offset: u32,
        sectors: u32,
        seq: u64,
    ) {
        let entry = Entry { zone, offset, sectors, seq, next: NONE };
        let new = match self.free {
            NONE => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
            i => {
                self.free = self.entries[i as usize].next;
                self.entries[i as usize] = entry;
                i
            }
        };
        match self.search(zone) {
            Ok(i) => {
                let last = std::mem::replace(&mut self.runs[i].last, new);
                self.entries[last as usize].next = new;
            }
            Err(i) => {
                let place = platter.place(zone, offset);
                self.runs.insert(i, Run { zone, offset, place, seq, first: new, last: new });
            }
        }
    }

    /// Takes the first write of run `i`, and returns it with its place.
    pub(super) fn pop(&mut self, platter: &Platter, i: usize) -> (Entry, PlatterPlace) {
        let run = &mut self.runs[i];
        let (first, place) = (run.first, run.place);
        let entry = self.entries[first as usize];
        if entry.next == NONE {
            self.runs.remove(i);
        } else {
            let next = self.entries[entry.next as usize];
            run.first = entry.next;
            run.offset = next.offset;
            run.seq = next.seq;
            run.place = platter.place(next.zone, next.offset);
        }
        self.entries[first as usize].next = self.free;
        self.free = first;
        (entry, place)
    }

    /// Returns whether the write with this number of arrival is still here.
    pub(super) fn contains(&self, seq: u64) -> bool {
        self.runs.iter().any(|r| {
            let mut i = r.first;
            while i != NONE {
                let e = &self.entries[i as usize];
                if e.seq == seq {
                    return true;
                }
                i = e.next;
            }
            false
        })
    }

    /// Returns the run that continues where the head is.
    pub(super) fn at(&self, head: &Head) -> Option<usize> {
        self.search(head.zone).ok().filter(|&i| self.runs[i].offset == head.offset)
    }

    /// Returns the run that the head reaches first, starting `phase_ns` into a turn, among the `most` runs whose
    /// first writes arrived first.
    pub(super) fn nearest_of_oldest(
        &self,
        platter: &Platter,
        head: &Head,
        phase_ns: u32,
        most: u32,
    ) -> Option<usize> {
        let runs = || self.runs.iter().enumerate();
        if most == 1 {
            return runs().min_by_key(|(_, r)| r.seq).map(|(i, _)| i);
        }
        let older = |seq| self.runs.iter().filter(|r| r.seq < seq).count() < most as usize;
        let mut best = None;
        for (i, run) in runs().filter(|(_, r)| older(r.seq)) {
            let ns = run.reach_ns(platter, head, phase_ns);
            if best.is_none_or(|(b, _)| ns < b) {
                best = Some((ns, i));
            }
        }
        best.map(|(_, i)| i)
    }

    /// Returns whether another run's first write arrived before that of run `i`.
    pub(super) fn has_older_than(&self, i: usize) -> bool {
        let seq = self.runs[i].seq;
        self.runs.iter().any(|r| r.seq < seq)
    }

    /// Returns the run that the head reaches first, starting `phase_ns` into a turn. Leaves out the run of zone
    /// `except`.
    pub(super) fn nearest(
        &self,
        platter: &Platter,
        head: &Head,
        phase_ns: u32,
        except: Option<u32>,
    ) -> Option<usize> {
        let mut best: Option<(u32, usize)> = None;
        // Returns whether a run further away could be reached sooner.
        let mut look = |i: usize| {
            let run = &self.runs[i];
            let seek = run.seek_ns(platter, head);
            if best.is_some_and(|(ns, _)| seek >= ns) {
                return false;
            }
            let ns = seek + platter.wait_ns(run.place.angle_ns, phase_ns + seek);
            if Some(run.zone) != except && best.is_none_or(|(b, _)| ns < b) {
                best = Some((ns, i));
            }
            true
        };
        let middle = self.search(head.zone).unwrap_or_else(|i| i);
        let mut up = middle..self.runs.len();
        let mut down = (0..middle).rev();
        let (mut more_up, mut more_down) = (true, true);
        while more_up || more_down {
            more_up = more_up && up.next().is_some_and(&mut look);
            more_down = more_down && down.next().is_some_and(&mut look);
        }
        best.map(|(_, i)| i)
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::{Model, Profile};
    use super::*;
    use proptest::prelude::*;
    use zoneplug_core::Random;

    fn platter() -> Platter {
        let profile = Profile::builtin("smr30").unwrap();
        let Model::Smr(p) = &profile.model else { panic!("a disk") };
        Platter::new(&profile, p)
    }

    proptest! {
        /// The search that ends early finds the same run as a search of all runs.
        #[test]
        fn the_nearest_run_is_the_nearest_of_all(seed: u64, n in 1usize..200, near: bool) {
            let (p, mut rng) = (platter(), Random::new(seed));
            let mut runs = Runs::new();
            let zones = if near { 300 } else { 111_759 };
            for seq in 0..n as u64 {
                runs.push(&p, rng.below(zones), rng.below(524_288), 8, seq);
            }
            let (zone, offset) = (rng.below(zones), rng.below(524_288));
            let head = Head { zone, offset, cylinder: p.place(zone, offset).cylinder };
            let phase = rng.below(p.turn_ns());
            let except = rng.one_in(2).then(|| runs.runs[runs.len() / 2].zone);
            let cost = |r: &Run| {
                let here = r.zone == head.zone && r.offset == head.offset;
                let seek = if here { 0 } else { p.seek_ns(head.cylinder, r.place.cylinder) };
                seek + p.wait_ns(r.place.angle_ns, phase + seek)
            };
            let naive = runs.runs.iter().filter(|r| Some(r.zone) != except).map(cost).min();
            let found = runs.nearest(&p, &head, phase, except).map(|i| cost(&runs.runs[i]));
            prop_assert_eq!(found, naive);
        }

        /// A window of one gives the order of arrival, and a wide one the nearest run. In between, the chosen run is
        /// among the oldest of the window, and no other of those is nearer.
        #[test]
        fn a_window_takes_the_nearest_of_the_oldest(seed: u64, n in 1u32..40, most in 1u32..50) {
            let (p, mut rng) = (platter(), Random::new(seed));
            let mut runs = Runs::new();
            for seq in 0..u64::from(n) {
                runs.push(&p, rng.below(111_759), 0, 8, seq);
            }
            let zone = rng.below(111_759);
            let head = Head { zone, offset: 8, cylinder: p.place(zone, 8).cylinder };
            let phase = rng.below(p.turn_ns());
            let found = runs.nearest_of_oldest(&p, &head, phase, most).unwrap();
            let mut oldest: Vec<&Run> = runs.runs.iter().collect();
            oldest.sort_by_key(|r| r.seq);
            oldest.truncate(most as usize);
            let reach = |r: &Run| r.reach_ns(&p, &head, phase);
            let nearest = oldest.iter().map(|r| reach(r)).min().unwrap();
            prop_assert_eq!(reach(&runs.runs[found]), nearest);
            prop_assert!(oldest.iter().any(|r| r.seq == runs.runs[found].seq));
            if most >= n {
                let all = runs.nearest(&p, &head, phase, None).unwrap();
                prop_assert_eq!(reach(&runs.runs[all]), nearest);
            }
        }

        /// Each zone is first in, first out; no write is lost; and places are those of the first write.
        #[test]
        fn a_zone_is_first_in_first_out(seed: u64, steps in 1u64..300) {
            let (p, mut rng) = (platter(), Random::new(seed));
            let mut runs = Runs::new();
            let mut model: Vec<(u32, u32, u64)> = Vec::new();
            for seq in 0..steps {
                if rng.one_in(3) && !runs.is_empty() {
                    let i = rng.below(runs.len() as u32) as usize;
                    let (e, place) = runs.pop(&p, i);
                    let first = model.iter().position(|m| m.0 == e.zone).unwrap();
                    prop_assert_eq!(model.remove(first), (e.zone, e.offset, e.seq));
                    prop_assert_eq!(place, p.place(e.zone, e.offset));
                    prop_assert!(!runs.contains(e.seq));
                } else {
                    let (zone, offset) = (rng.below(12), rng.below(524_288));
                    runs.push(&p, zone, offset, 8, seq);
                    model.push((zone, offset, seq));
                    prop_assert!(runs.contains(seq));
                }
                prop_assert!(model.iter().all(|m| runs.contains(m.2)));
                let head = Head { zone: rng.below(12), offset: 0, cylinder: 0.5 };
                let oldest = runs.nearest_of_oldest(&p, &head, 0, 1);
                prop_assert_eq!(oldest.map(|i| runs.runs[i].seq), model.iter().map(|m| m.2).min());
                if let Some(i) = oldest {
                    prop_assert!(!runs.has_older_than(i));
                }
            }
        }
    }
}
