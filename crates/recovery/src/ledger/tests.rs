//! The ledger without a disk.

use super::*;
use crate::last_server::{MAX_CLIENTS, RESTART, SPACES};

const A: ClientKey = ClientKey(1);
const B: ClientKey = ClientKey(2);
const NOW: Nanos = Nanos(7);
const LATE: Nanos = Nanos(7 + WINDOW.0);

/// A ledger of zones of 0x800 sectors.
fn ledger() -> ResendLedger {
    ResendLedger::new(Geometry::new(4, 0x800, 0x800).unwrap())
}

fn landed(at: u64, hash: Option<u64>) -> Landed {
    Landed { at: Sector(at), len_sectors: 8, hash }
}

/// The data of an append of one block.
fn data(hash: u64) -> AppendData {
    AppendData { hash, blocks: vec![hash] }
}

fn append(
    l: &mut ResendLedger,
    client: ClientKey,
    zone: u32,
    hash: u64,
    now: Nanos,
) -> Option<u64> {
    let data = data(hash);
    let search = &mut AppendSearch::nowhere();
    let (id, found) = l.claim_append(client, ZoneNo(zone), 8, &data, search, now)?;
    l.confirm(id).then_some(found.at.0)
}

fn write(l: &mut ResendLedger, client: ClientKey, at: u64, now: Nanos) -> bool {
    l.claim_write(client, Sector(at), false, now).is_some_and(|id| l.confirm(id))
}

/// L2, L3. A resent write is recognised by its client, its range and its time.
#[test]
fn l2_a_write_is_recognised_by_its_client_its_range_and_its_time() {
    let mut l = ledger();
    assert!(!write(&mut l, A, 0x808, NOW), "nothing is lost");
    l.lose_write(A, Sector(0x808), 16);
    assert!(!write(&mut l, B, 0x808, NOW), "another client");
    for (at, is) in [(0x800, false), (0x808, true), (0x810, true), (0x818, false)] {
        assert_eq!(write(&mut l, A, at, NOW), is, "{at:x}");
    }
    assert!(write(&mut l, A, 0x808, LATE), "it is not back yet");
    l.is_back(B, NOW);
    assert!(write(&mut l, A, 0x808, LATE));
    l.is_back(A, NOW);
    l.is_back(A, LATE);
    assert!(!write(&mut l, A, 0x808, LATE), "a queue that connects later does not begin it anew");
    assert!(l.is_empty());
}

/// L4. Equal appends get each place once, the last place first.
#[test]
fn l4_an_append_gets_a_place_once_and_the_last_first() {
    let mut l = ledger();
    l.lose_append(A, landed(0x800, Some(5)));
    l.lose_append(A, landed(0x808, Some(5)));
    l.lose_append(A, landed(0x810, Some(6)));
    assert_eq!(append(&mut l, B, 1, 5, NOW), None, "another client");
    assert_eq!(append(&mut l, A, 2, 5, NOW), None, "another zone");
    assert_eq!(append(&mut l, A, 1, 7, NOW), None, "other data");
    assert_eq!(append(&mut l, A, 1, 5, NOW), Some(0x808));
    assert_eq!(append(&mut l, A, 1, 5, NOW), Some(0x800));
    assert_eq!(append(&mut l, A, 1, 5, NOW), None);
    l.is_back(A, NOW);
    assert_eq!(append(&mut l, A, 1, 6, LATE), None, "too late");
}

/// L4. Also if another append is compared at the same time.
#[test]
fn l4_an_append_finds_its_place_while_others_are_compared_with_it() {
    let mut l = ledger();
    for at in [0x800, 0x808] {
        l.lose_append(A, landed(at, None));
    }
    let data = data(5);
    let claim = |l: &mut ResendLedger, search: &mut AppendSearch| {
        l.claim_append(A, ZoneNo(1), 8, &data, search, NOW)
    };
    let (first, found) = claim(&mut l, &mut AppendSearch::nowhere()).unwrap();
    let (other, same) = claim(&mut l, &mut AppendSearch::nowhere()).unwrap();
    assert_eq!((found.at.0, same.at.0), (0x808, 0x808), "it may be either");
    l.is_back(A, NOW);
    l.is_back(A, LATE);
    assert!(l.confirm(other), "what is being compared does not become too old");
    assert!(!l.confirm(first), "one place for two");
    l.lose_append(A, landed(0x800, None));
    let mut search = AppendSearch::nowhere();
    let (next, _) = claim(&mut l, &mut search).unwrap();
    l.reject(next);
    assert!(claim(&mut l, &mut search).is_none(), "each place once");
}

/// L5. Also while the data are being compared.
#[test]
fn l5_a_reset_forgets_its_zone_and_no_other() {
    for all in [false, true] {
        let mut l = ledger();
        l.set_written_at_start(vec![0, 64, 64, 0], NOW);
        l.is_back(B, NOW);
        for zone in [1, 2] {
            l.lose_write(A, Sector(zone * 0x800), 8);
            l.lose_append(A, landed(zone * 0x800 + 8, Some(5)));
            l.lose_append(A, landed(zone * 0x800 + 16, Some(5)));
        }
        let compared = l.claim_write(A, Sector(0x800), false, NOW).unwrap();
        let search = &mut AppendSearch::nowhere();
        let taken = l.claim_append(A, ZoneNo(1), 8, &data(5), search, NOW).unwrap().0;
        if all {
            l.forget_all();
        } else {
            l.forget_zone(Sector(0x800));
        }
        assert!(!l.confirm(compared));
        l.reject(taken);
        assert_eq!(append(&mut l, A, 1, 5, NOW), None);
        assert!(!write(&mut l, A, 0x800, NOW) && !write(&mut l, B, 0x800, NOW));
        assert_eq!(append(&mut l, A, 2, 5, NOW), (!all).then_some(0x1010));
        assert_eq!([write(&mut l, A, 0x1000, NOW), write(&mut l, B, 0x1000, NOW)], [!all; 2]);
        assert_eq!(l.is_empty(), all);
    }
}

/// L7. Each client has its own time limit, from its first command on.
#[test]
fn l7_after_a_restart_what_was_written_at_the_start_may_be_sent_again() {
    let mut l = ledger();
    l.set_written_at_start(vec![0, 64, 0, 0], NOW);
    assert!(!write(&mut l, A, 0x800, NOW), "it is not connected");
    l.is_back(A, NOW);
    for (at, is) in [(0, false), (0x800, true), (0x83f, true), (0x840, false), (0x1000, false)] {
        assert_eq!(write(&mut l, A, at, NOW), is, "{at:x}");
    }
    // A second queue of the client does not restart the limit.
    l.is_back(A, Nanos(NOW.0 + WINDOW.0 / 2));
    l.is_back(B, LATE);
    assert!(!write(&mut l, A, 0x800, LATE) && write(&mut l, B, 0x800, LATE));
    l.is_back(ClientKey(3), NOW.plus(RESTART));
    assert!(l.is_empty(), "a client that takes so long is a new one");
    l.set_written_at_start(vec![0; 4], NOW);
    assert!(l.is_empty(), "nothing was written");
}

/// L9. Space of the last server is for every client, and each block of it for one append.
#[test]
fn l9_appends_are_found_in_space_that_no_client_was_told_of() {
    let ledger = || {
        let mut l = ledger();
        l.set_written_at_start(vec![0, 64, 0, 0], NOW);
        let mut space = Space::new(8);
        space.add(8, vec![5, 6, 7, 6]);
        l.set_spaces([(1, space)].into(), 8);
        l
    };
    let find = |l: &mut ResendLedger, client, zone, blocks: &[u64], now| {
        let data = AppendData { hash: 0, blocks: blocks.to_vec() };
        let (len_sectors, search) = (8 * blocks.len() as u32, &mut AppendSearch::nowhere());
        let found = l.claim_append(client, ZoneNo(zone), len_sectors, &data, search, now);
        found.map(|(id, landed)| (id, landed.at.0))
    };
    let mut l = ledger();
    assert_eq!(find(&mut l, A, 1, &[5], NOW), None, "it is not connected");
    l.is_back(A, NOW);
    l.is_back(B, NOW);
    assert_eq!(find(&mut l, A, 2, &[5], NOW), None, "another zone");
    assert_eq!(find(&mut l, A, 1, &[5, 7], NOW), None);
    assert_eq!(find(&mut l, A, 1, &[5], LATE), None, "too late");
    let (id, at) = find(&mut l, A, 1, &[6, 7], NOW).unwrap();
    assert_eq!(at, 0x810);
    let (other, _) = find(&mut l, B, 1, &[7], NOW).expect("it may be this one's");
    l.reject(other);
    l.reject(id);
    let (id, at) = find(&mut l, B, 1, &[6, 7], NOW).unwrap();
    let (other, _) = find(&mut l, A, 1, &[7], NOW).unwrap();
    assert!(at == 0x810 && l.confirm(id));
    assert!(!l.confirm(other), "one block for two");
    for _ in 0..2 {
        let (id, at) = find(&mut l, B, 1, &[6], NOW).unwrap();
        assert_eq!(at, 0x820);
        // The place has other data with that hash. The next block may be the right one.
        l.reject(id);
    }
    assert!(l.has_appends());
    let (id, _) = find(&mut l, A, 1, &[5], NOW).unwrap();
    l.forget_zone(Sector(0x800));
    l.reject(id);
    assert!(!l.has_appends());
    // After a minute, appends are no longer hashed.
    let mut l = ledger();
    l.is_back(A, NOW);
    // The minute is that of the first client.
    l.is_back(B, Nanos(NOW.0 + SPACES.0 / 2));
    assert!(l.has_appends());
    l.is_back(ClientKey(3), NOW.plus(SPACES));
    assert!(!l.has_appends());
}

/// L1. A new connection waits for all old ones of its client.
#[test]
fn l1_a_client_waits_for_all_of_its_old_connections() {
    let mut l = ledger();
    l.begin_drain(A);
    l.begin_drain(A);
    l.end_drain(A);
    assert!(l.is_draining(A) && !l.is_draining(B));
    l.end_drain(A);
    assert!(!l.is_draining(A));
}

/// L2, L4. A client that loses many answers does not push out the notes of another.
#[test]
fn l4_notes_are_bounded_and_the_client_with_most_loses_its_oldest() {
    let mut l = ledger();
    l.lose_write(B, Sector(0x1000), 8);
    l.lose_append(B, landed(0x1008, Some(5)));
    for i in 0..MAX_NOTES as u64 + 3 {
        let at = if i < 4 { 0x800 + 8 * i } else { 0x900 };
        l.lose_write(A, Sector(at), 8);
        l.lose_append(A, landed(at, Some(i)));
    }
    for (i, is) in [(0, false), (3, false), (4, true)] {
        let at = if i < 4 { 0x800 + 8 * i } else { 0x900 };
        assert_eq!(write(&mut l, A, at, NOW), is, "{i}");
        assert_eq!(append(&mut l, A, 1, i, NOW).is_some(), is, "{i}");
    }
    assert!(write(&mut l, B, 0x1000, NOW) && append(&mut l, B, 2, 5, NOW).is_some());
    for client in 0..2 * MAX_CLIENTS as u64 {
        l.set_written_at_start(vec![8; 4], NOW);
        l.is_back(ClientKey(client), NOW);
    }
    assert_eq!(l.last_server.back.len(), MAX_CLIENTS);
}

/// A command looks only at notes of its own client and zone, and a returning client at none.
#[test]
fn notes_of_other_zones_and_clients_cost_nothing() {
    let mut l = ledger();
    for i in 0..MAX_NOTES as u64 - 3 {
        let (client, zone) = if i % 2 == 0 { (A, 1) } else { (B, 2) };
        l.lose_write(client, Sector(zone * 0x800), 8);
        l.lose_append(client, landed(zone * 0x800, Some(i)));
    }
    for i in 0..3 {
        l.lose_write(A, Sector(0x1000 + 8 * i), 8);
        l.lose_append(A, landed(0x1000 + 8 * i, Some(i)));
    }
    l.is_back(A, NOW);
    l.is_back(B, NOW);
    assert!(!write(&mut l, A, 0x1700, NOW) && append(&mut l, A, 2, 7, NOW).is_none());
    assert_eq!((l.writes.looked.get(), l.appends.looked.get()), (3, 3));
}
