//! Notes of one kind, by zone and client. A command is compared only with notes of its own zone and client, and expired
//! notes are found without scanning the rest.
//!
//! The number of notes is limited. When the limit is reached, the client with the most notes loses its oldest.

use crate::client_key::ClientKey;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zoneplug_core::{Nanos, ZoneNo};

/// The position of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotePlace {
    pub(crate) zone: ZoneNo,
    pub(crate) client: ClientKey,
    /// The serial number of the note.
    pub(crate) number: u64,
}

#[derive(Debug, Clone, Copy)]
struct Note<T> {
    number: u64,
    /// Commands that are being compared with this note.
    compared: u32,
    /// The note has expired. It is removed when the last comparison ends.
    is_over: bool,
    what: T,
}

/// The notes of a client.
#[derive(Debug, Default)]
struct OfClient {
    /// The zone of each of the client's notes, by note number.
    zones: BTreeMap<u64, ZoneNo>,
    /// The notes up to this number have an end.
    ending: u64,
}

/// Notes of one kind.
#[derive(Debug)]
pub(crate) struct Notes<T> {
    most: usize,
    len: usize,
    /// The notes of a zone and client, in the order of their numbers.
    all: BTreeMap<(ZoneNo, ClientKey), VecDeque<Note<T>>>,
    clients: BTreeMap<ClientKey, OfClient>,
    /// The number of notes of each client, ordered.
    sizes: BTreeSet<(usize, ClientKey)>,
    /// By time and client: the notes up to this number expire then.
    ends: BTreeMap<(Nanos, ClientKey), u64>,
    /// Counts the notes that were looked at.
    #[cfg(test)]
    pub(crate) looked: std::cell::Cell<u64>,
}

impl<T: Copy> Notes<T> {
    /// Makes an empty collection with room for `most` notes.
    pub(crate) fn new(most: usize) -> Notes<T> {
        Notes {
            most,
            len: 0,
            all: BTreeMap::new(),
            clients: BTreeMap::new(),
            sizes: BTreeSet::new(),
            ends: BTreeMap::new(),
            #[cfg(test)]
            looked: std::cell::Cell::new(0),
        }
    }

    /// Returns whether there are no notes.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns all notes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = T> {
        self.all.values().flatten().map(|note| note.what)
    }

    /// Adds a note. Its number must be above all others.
    pub(crate) fn add(&mut self, place: NotePlace, what: T) {
        if self.len == self.most
            && let Some((_, client)) = self.sizes.last().copied()
            && let Some((number, zone)) = self.clients[&client].zones.first_key_value()
        {
            self.remove(NotePlace { zone: *zone, client, number: *number });
        }
        let NotePlace { zone, client, number } = place;
        let note = Note { number, compared: 0, is_over: false, what };
        self.all.entry((zone, client)).or_default().push_back(note);
        self.len += 1;
        self.change_client(client, |of| {
            of.zones.insert(number, zone);
        });
    }

    /// Returns the last note of a client in a zone that `is` accepts, among those with a number below `below`.
    pub(crate) fn last(
        &self,
        zone: ZoneNo,
        client: ClientKey,
        below: u64,
        is: impl Fn(&T) -> bool,
    ) -> Option<(NotePlace, T)> {
        let notes = self.all.get(&(zone, client))?;
        let end = notes.partition_point(|n| n.number < below);
        let note = notes.range(..end).rev().find(|n| {
            #[cfg(test)]
            self.looked.set(self.looked.get() + 1);
            is(&n.what)
        })?;
        Some((NotePlace { zone, client, number: note.number }, note.what))
    }

    /// Marks the start of a comparison with a note. Until it ends, the note does not expire.
    pub(crate) fn begin_comparison(&mut self, place: NotePlace) {
        if let Some(note) = self.find(place) {
            note.compared += 1;
        }
    }

    /// Marks the end of a comparison with a note.
    pub(crate) fn end_comparison(&mut self, place: NotePlace) {
        let Some(note) = self.find(place) else { return };
        note.compared -= 1;
        if note.is_over && note.compared == 0 {
            self.remove(place);
        }
    }

    /// Sets the end of all notes of a client that is back, except those that already have one.
    pub(crate) fn end_at(&mut self, client: ClientKey, until: Nanos) {
        let Some(of) = self.clients.get_mut(&client) else { return };
        if let Some((last, _)) = of.zones.last_key_value().filter(|(last, _)| **last > of.ending) {
            of.ending = *last;
            self.ends.insert((until, client), *last);
        }
    }

    /// Forgets the notes that have expired.
    pub(crate) fn expire(&mut self, now: Nanos) {
        while let Some(first) = self.ends.first_entry().filter(|e| e.key().0 <= now) {
            let ((_, client), last) = first.remove_entry();
            let Some(of) = self.clients.get(&client) else { continue };
            let old: Vec<_> = of.zones.range(..=last).map(|(n, zone)| (*n, *zone)).collect();
            for (number, zone) in old {
                let place = NotePlace { zone, client, number };
                match self.find(place).filter(|note| note.compared > 0) {
                    Some(note) => note.is_over = true,
                    None => {
                        self.remove(place);
                    }
                }
            }
        }
    }

    /// Forgets a note. Returns false if there is none.
    pub(crate) fn remove(&mut self, NotePlace { zone, client, number }: NotePlace) -> bool {
        let Entry::Occupied(mut notes) = self.all.entry((zone, client)) else { return false };
        let Ok(n) = notes.get().binary_search_by_key(&number, |n| n.number) else { return false };
        notes.get_mut().remove(n);
        if notes.get().is_empty() {
            notes.remove();
        }
        self.len -= 1;
        self.change_client(client, |of| {
            of.zones.remove(&number);
        });
        true
    }

    /// Forgets the notes of a zone.
    pub(crate) fn forget_zone(&mut self, zone: ZoneNo) {
        let of_zone = (zone, ClientKey(0))..=(zone, ClientKey(u64::MAX));
        let keys: Vec<_> = self.all.range(of_zone).map(|(key, _)| *key).collect();
        for key in keys {
            let notes = self.all.remove(&key).unwrap_or_default();
            self.len -= notes.len();
            self.change_client(key.1, |of| {
                for note in notes {
                    of.zones.remove(&note.number);
                }
            });
        }
    }

    /// Forgets all notes.
    pub(crate) fn clear(&mut self) {
        *self = Notes::new(self.most);
    }

    fn find(&mut self, NotePlace { zone, client, number }: NotePlace) -> Option<&mut Note<T>> {
        let notes = self.all.get_mut(&(zone, client))?;
        let n = notes.binary_search_by_key(&number, |n| n.number).ok()?;
        notes.get_mut(n)
    }

    /// Changes the number of notes of a client and updates the order of clients.
    fn change_client(&mut self, client: ClientKey, change: impl FnOnce(&mut OfClient)) {
        let of = self.clients.entry(client).or_default();
        let before = of.zones.len();
        change(of);
        let after = of.zones.len();
        self.sizes.remove(&(before, client));
        if after == 0 {
            self.clients.remove(&client);
        } else {
            self.sizes.insert((after, client));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: usize = 12;

    /// One step of a history. Numbers are taken modulo the number of existing things.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Add { zone: u32, client: u64 },
        Begin(usize),
        End(usize),
        Remove(usize),
        Back { client: u64 },
        Pass(u64),
        Reset { zone: u32 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let (zone, client) = (0..3u32, 0..3u64);
        prop_oneof![
            12 => (zone.clone(), client.clone()).prop_map(|(zone, client)| Step::Add { zone, client }),
            4 => any::<usize>().prop_map(Step::Begin),
            4 => any::<usize>().prop_map(Step::End),
            2 => any::<usize>().prop_map(Step::Remove),
            3 => client.prop_map(|client| Step::Back { client }),
            3 => (0..15u64).prop_map(Step::Pass),
            1 => zone.prop_map(|zone| Step::Reset { zone }),
        ]
    }

    /// A note of the model, which is a plain list.
    #[derive(Debug, Clone, Copy)]
    struct Plain {
        place: NotePlace,
        until: Option<u64>,
        compared: u32,
    }

    fn run(steps: &[Step]) {
        let (mut notes, mut plain, mut now) = (Notes::new(MOST), Vec::<Plain>::new(), 0);
        for (i, step) in steps.iter().enumerate() {
            let pick = |n: usize, all: &[Plain]| (!all.is_empty()).then(|| n % all.len());
            match *step {
                Step::Add { zone, client } => {
                    let (zone, client) = (ZoneNo(zone), ClientKey(client));
                    if plain.len() == MOST {
                        let has = |h: u64| plain.iter().filter(|p| p.place.client.0 == h).count();
                        let most = (0..3).max_by_key(|h| (has(*h), *h)).unwrap();
                        let oldest = plain.iter().position(|p| p.place.client.0 == most);
                        plain.remove(oldest.unwrap());
                    }
                    let place = NotePlace { zone, client, number: i as u64 + 1 };
                    plain.push(Plain { place, until: None, compared: 0 });
                    notes.add(place, place.number);
                }
                Step::Begin(n) => {
                    let Some(n) = pick(n, &plain) else { continue };
                    plain[n].compared += 1;
                    notes.begin_comparison(plain[n].place);
                }
                Step::End(n) => {
                    let compared: Vec<_> =
                        (0..plain.len()).filter(|n| plain[*n].compared > 0).collect();
                    let Some(n) = (!compared.is_empty()).then(|| compared[n % compared.len()])
                    else {
                        continue;
                    };
                    plain[n].compared -= 1;
                    notes.end_comparison(plain[n].place);
                }
                Step::Remove(n) => {
                    let Some(n) = pick(n, &plain) else { continue };
                    let place = plain.remove(n).place;
                    assert!(notes.remove(place) && !notes.remove(place));
                }
                Step::Back { client } => {
                    let until = now + 20;
                    plain.iter_mut().filter(|p| p.place.client.0 == client).for_each(|p| {
                        p.until.get_or_insert(until);
                    });
                    notes.end_at(ClientKey(client), Nanos(until));
                }
                Step::Pass(time) => now += time,
                Step::Reset { zone } => {
                    plain.retain(|p| p.place.zone.0 != zone);
                    notes.forget_zone(ZoneNo(zone));
                }
            }
            plain.retain(|p| p.compared > 0 || p.until.is_none_or(|until| now < until));
            notes.expire(Nanos(now));
            assert_eq!(notes.is_empty(), plain.is_empty());
            for (zone, client) in (0..9).map(|n| (ZoneNo(n / 3), ClientKey(u64::from(n % 3)))) {
                let of = |p: &&Plain| (p.place.zone, p.place.client) == (zone, client);
                let (mut is, mut below) = (Vec::new(), u64::MAX);
                while let Some((place, what)) = notes.last(zone, client, below, |_| true) {
                    assert_eq!(place.number, what);
                    is.push(place);
                    below = place.number;
                }
                let should: Vec<_> = plain.iter().rev().filter(of).map(|p| p.place).collect();
                assert_eq!(is, should, "{step:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// L2, L4, L5. The notes behave like a list that is searched as a whole.
        #[test]
        fn l4_notes_by_zone_and_client_are_those_of_a_list(
            steps in proptest::collection::vec(step(), 1..200),
        ) {
            run(&steps);
        }
    }
}
