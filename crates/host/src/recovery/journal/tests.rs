//! Tests of the journal, and helpers for other tests that need one.

// clippy takes a list of one range for a mistake, but these lists may have more.
#![allow(clippy::single_range_in_vec_init)]

use super::*;
use std::sync::atomic::AtomicU32;

/// A directory for journals, removed with its test.
pub(crate) struct JournalDir(pub(crate) PathBuf);

impl JournalDir {
    pub(crate) fn new() -> JournalDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Relaxed);
        let name = format!("zoneplug-journal-{}-{n}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        JournalDir(dir)
    }

    pub(crate) fn record(&self) -> PathBuf {
        self.0.join("ublkb0.told")
    }
}

impl Drop for JournalDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A disk with zones of 1M and queues of one request, so rings have 16 entries.
pub(crate) fn about(zones: u32, queues: u16) -> About {
    About {
        dev_id: 0,
        instance: 77,
        boot: 1 << 100 | 3,
        identity: 5,
        geometry: Geometry::new(u64::from(zones), 0x800, 0x800).unwrap(),
        shown: 0..zones,
        queues,
        depth: 1,
        disks: DiskState { place: 8, opened: 9, paths: "/a b%/c".to_owned() },
    }
}

fn empty(place: &JournalDir) -> Journal {
    Journal::create(&place.record(), about(4, 2), 1, [0; 4].into_iter()).unwrap()
}

pub(crate) fn request(op: Op, sector: u64, len_sectors: u32) -> Change {
    Change { op, sector: Sector(sector), len_sectors }
}

/// The state of the zones: zone 1 has `written` sectors, the others are empty.
fn found(written: u32) -> [FoundZone; 4] {
    let of = |written| FoundZone { written, empty: written == 0 };
    [0, written, 0, 0].map(of)
}

/// The space of zone 1 that no client was told of.
fn unacked(journal: &Journal, written: u32) -> Vec<Range<u32>> {
    let mut all = journal.unacked(&found(written));
    assert!(all.len() <= 1 && all.iter().all(|z| z.0 == ZoneNo(1)), "{all:?}");
    all.pop().map_or_else(Vec::new, |z| z.1)
}

const RESET: Op = Op::ZoneReset;

#[test]
fn what_was_told_is_not_found_and_the_rest_is() {
    let place = JournalDir::new();
    let journal = empty(&place);
    assert_eq!(unacked(&journal, 0), []);
    assert_eq!(unacked(&journal, 32), [0..32]);
    journal.record(1, Sector(0x808), 8);
    journal.record(0, Sector(0x818), 4);
    assert_eq!(unacked(&journal, 32), [0..8, 16..24, 28..32]);
    journal.record(0, Sector(0x800), 8);
    assert_eq!(unacked(&journal, 28), [16..24]);
    assert_eq!(unacked(&journal, 12), [], "more was told than is written");
    journal.record(0, Sector(0x3000), 8);
    assert_eq!(unacked(&journal, 28), [16..24], "outside of the disk");
}

#[test]
fn the_next_server_finds_what_this_one_stored() {
    let place = JournalDir::new();
    let journal = empty(&place);
    journal.record(1, Sector(0x808), 8);
    journal.begin(&request(Op::Write, 0x1000, 8));
    // Forgotten instead of dropped, as after a kill.
    std::mem::forget(journal);
    let journal = Journal::open(&place.record(), about(4, 2), 1, 2, &[]).unwrap();
    assert_eq!(unacked(&journal, 24), [0..8, 16..24]);
    assert!(journal.only_appends(ZoneNo(1)) && !journal.only_appends(ZoneNo(2)));
    journal.record(1, Sector(0x800), 8);
    assert_eq!(unacked(&journal, 24), [16..24], "and goes on with it");
}

#[test]
fn what_falls_out_of_a_ring_hides_what_is_below_it() {
    let place = JournalDir::new();
    let journal = empty(&place);
    journal.record(1, Sector(0x800), 8);
    // The first 16 sectors are left out; 16 entries fit.
    let mut at = 16;
    for _ in 0..16 {
        journal.record(0, Sector(0x800 + at), 8);
        at += 8;
    }
    assert_eq!(unacked(&journal, at as u32 + 8), [8..16, 144..152]);
    journal.record(0, Sector(0x1000), 8);
    assert_eq!(unacked(&journal, at as u32 + 8), [144..152], "hidden up to 24");
    // Entries of an old generation hide nothing.
    journal.begin(&request(RESET, 0x800, 0));
    journal.end(&request(RESET, 0x800, 0), true);
    journal.record(0, Sector(0x1008), 8);
    assert_eq!(unacked(&journal, 152), [0..152]);
}

#[test]
fn a_reset_shows_its_zone_and_forgets_what_was_told() {
    let place = JournalDir::new();
    let journal = empty(&place);
    journal.record(0, Sector(0x800), 8);
    journal.begin(&request(RESET, 0x800, 0));
    assert_eq!(unacked(&journal, 8), [], "not before it is acknowledged");
    journal.end(&request(RESET, 0x800, 0), false);
    assert_eq!(unacked(&journal, 8), [], "nor if it failed");
    journal.begin(&request(RESET, 0x800, 0));
    journal.end(&request(RESET, 0x800, 0), true);
    assert_eq!(unacked(&journal, 8), [0..8]);
    journal.record(1, Sector(0x800), 8);
    let all = request(Op::ZoneResetAll, 0, 0);
    journal.begin(&all);
    journal.end(&all, true);
    assert_eq!(unacked(&journal, 16), [0..16]);
}

#[test]
fn what_is_told_beside_a_reset_hides_the_zone() {
    let place = JournalDir::new();
    let journal = empty(&place);
    let reset = request(RESET, 0x800, 0);
    journal.begin(&reset);
    journal.record(0, Sector(0x800), 8);
    journal.end(&reset, true);
    assert_eq!(unacked(&journal, 16), []);
    // The first of two resets shows the zone. An append that is acknowledged then may be gone with the second.
    journal.begin(&reset);
    journal.begin(&reset);
    journal.end(&reset, true);
    assert_eq!(unacked(&journal, 16), [0..16]);
    journal.record(0, Sector(0x800), 8);
    journal.end(&reset, true);
    assert_eq!(unacked(&journal, 16), []);
    journal.begin(&reset);
    journal.begin(&request(Op::Write, 0x800, 8));
    journal.end(&reset, true);
    assert_eq!(unacked(&journal, 16), []);
    journal.begin(&reset);
    journal.end(&reset, true);
    assert_eq!(unacked(&journal, 16), [0..16], "one by itself");
}

/// A long write hides the zones that it touches, and not the next one.
#[test]
fn a_write_of_several_zones_hides_these() {
    for (sector, len, hidden) in [
        (0, 0x800, [true, false, false, false]),
        (0, 0x801, [true, true, false, false]),
        (0x400, 0x400, [true, false, false, false]),
        (0x400, 0x1400, [true, true, true, false]),
        (0x1000, 0x1000, [false, false, true, true]),
    ] {
        let place = JournalDir::new();
        let journal = empty(&place);
        journal.begin(&request(Op::WriteZeroes, sector, len));
        let is = [0, 1, 2, 3].map(|z| !journal.only_appends(ZoneNo(z)));
        assert_eq!(is, hidden, "{len:#x} sectors from {sector:#x} on");
    }
}

#[test]
fn so_many_resets_that_they_are_not_counted_hide_the_zone() {
    let place = JournalDir::new();
    let journal = empty(&place);
    let reset = request(RESET, 0x800, 0);
    (0..=MAX_RESETS).for_each(|_| journal.begin(&reset));
    (0..=MAX_RESETS).for_each(|_| journal.end(&reset, true));
    assert_eq!(unacked(&journal, 16), []);
    assert_eq!(ZoneWord::of(journal.zones()[1].load(Relaxed)).resets, MAX_RESETS);
}

#[test]
fn anything_but_appends_hides_the_zone_until_its_reset() {
    let place = JournalDir::new();
    let journal = empty(&place);
    let reset = request(RESET, 0x800, 0);
    for op in [Op::Write, Op::WriteZeroes, Op::ZoneFinish] {
        assert_eq!(unacked(&journal, 16), [0..16]);
        assert!(journal.only_appends(ZoneNo(1)));
        journal.begin(&request(op, 0x800, 8));
        assert_eq!(unacked(&journal, 16), [], "operation {op:?}, from its beginning");
        assert!(!journal.only_appends(ZoneNo(1)));
        journal.begin(&reset);
        journal.end(&reset, true);
    }
    for op in [Op::Read, Op::Flush, Op::ZoneAppend, Op::ZoneOpen] {
        journal.begin(&request(op, 0x800, 8));
        journal.end(&request(op, 0x800, 8), true);
        assert_eq!(unacked(&journal, 16), [0..16], "operation {op:?}");
    }
    // One write crosses into the next zone, one ends past the disk.
    journal.begin(&request(Op::Write, 0x7f8, 16));
    assert!(!journal.only_appends(ZoneNo(0)) && !journal.only_appends(ZoneNo(1)));
    journal.begin(&request(Op::Write, 0x9_0000, 16));
}

#[test]
fn a_reset_that_nobody_saw_end_is_over_for_the_next_server() {
    let place = JournalDir::new();
    let journal = empty(&place);
    journal.record(0, Sector(0x800), 8);
    let reset = request(RESET, 0x800, 0);
    journal.begin(&reset);
    let journal = Journal::open(&place.record(), about(4, 2), 1, 2, &found(8)).unwrap();
    assert_eq!(unacked(&journal, 16), [], "it may come yet, or have been");
    journal.begin(&reset);
    let journal = Journal::open(&place.record(), about(4, 2), 2, 3, &found(0)).unwrap();
    assert_eq!(unacked(&journal, 16), [0..16], "it has been");
    journal.record(0, Sector(0x800), 8);
    assert_eq!(unacked(&journal, 16), [8..16], "and is none of these in flight");
}

fn refusal(place: &JournalDir, about: About, last: u64) -> String {
    Journal::open(&place.record(), about, last, 9, &[]).err().unwrap()
}

#[test]
fn a_record_of_something_else_is_not_believed() {
    let place = JournalDir::new();
    assert_eq!(refusal(&place, about(4, 2), 1), "there is none");
    drop(empty(&place));
    let a = || about(4, 2);
    let others = [
        (About { dev_id: 1, ..a() }, "it is of another device"),
        (About { instance: 78, ..a() }, "it is of another device"),
        (About { boot: 3, ..a() }, "it is of another boot"),
        (About { identity: 6, ..a() }, "it is of another disk"),
        (about(3, 2), "it is of a disk of another layout"),
        (about(64, 2), "it has another length"),
        (about(4, 1), "it has another length"),
        (About { depth: 2, ..a() }, "it has another length"),
        (
            About { geometry: Geometry::new(4, 0x1000, 0x1000).unwrap(), ..a() },
            "it is of a disk of another layout",
        ),
    ];
    for (about, why) in others {
        assert_eq!(refusal(&place, about.clone(), 1), why, "{about:?}");
    }
    assert_eq!(refusal(&place, a(), 2), "the last server did not keep it");
    assert!(Journal::open(&place.record(), a(), 1, 9, &[]).is_ok());
}

#[test]
fn a_server_that_died_before_it_served_does_not_count() {
    let place = JournalDir::new();
    drop(empty(&place));
    drop(Journal::open(&place.record(), about(4, 2), 1, 2, &[]).unwrap());
    // The device still has the stamp of 1, later that of 3.
    drop(Journal::open(&place.record(), about(4, 2), 1, 3, &[]).unwrap());
    drop(Journal::open(&place.record(), about(4, 2), 3, 4, &[]).unwrap());
    drop(Journal::open(&place.record(), about(4, 2), 3, 5, &[]).unwrap());
    assert_eq!(refusal(&place, about(4, 2), 1), "the last server did not keep it");
}

#[test]
fn a_damaged_file_or_one_of_others_is_not_believed() {
    use std::os::unix::fs::PermissionsExt;
    let place = JournalDir::new();
    let path = place.record();
    drop(empty(&place));
    let good = std::fs::read(&path).unwrap();
    for at in [0, 7, 8 * (KEEPER - 1)] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, bad).unwrap();
        assert!(refusal(&place, about(4, 2), 1).starts_with("it is "), "byte {at}");
    }
    std::fs::write(&path, &good[..good.len() - 8]).unwrap();
    assert_eq!(refusal(&place, about(4, 2), 1), "it has another length");
    std::fs::write(&path, &good).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o660)).unwrap();
    assert_eq!(refusal(&place, about(4, 2), 1), "it is a file that others can change");
    std::fs::rename(&path, place.0.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(place.0.join("elsewhere"), &path).unwrap();
    assert!(refusal(&place, about(4, 2), 1).starts_with("it cannot be read"));
    // A new journal replaces the link, and does not change the file it points to.
    drop(empty(&place));
    assert_eq!(std::fs::read(place.0.join("elsewhere")).unwrap(), good);
    let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert!(Journal::open(&path, about(4, 2), 1, 2, &[]).is_ok());
}

/// A write that was sent before a reset may be carried out after it, so the zone may have more than appends.
#[test]
fn what_is_in_flight_when_a_reset_is_sent_hides_its_zone_when_it_is_back() {
    for op in [Op::Write, Op::WriteZeroes, Op::ZoneFinish] {
        for fails in [false, true] {
            let place = JournalDir::new();
            let journal = empty(&place);
            let (other, reset) = (request(op, 0x800, 8), request(RESET, 0x800, 0));
            journal.begin(&other);
            journal.begin(&reset);
            journal.end(&reset, true);
            journal.end(&other, !fails);
            assert!(!journal.only_appends(ZoneNo(1)), "operation {op:?}");
            journal.begin(&reset);
            journal.end(&reset, true);
            assert!(journal.only_appends(ZoneNo(1)));
        }
    }
}

#[test]
fn zones_of_which_nothing_is_said_are_hidden() {
    let place = JournalDir::new();
    let journal = Journal::create(&place.record(), about(4, 2), 1, [0, 8].into_iter()).unwrap();
    assert_eq!([0, 1, 2, 3].map(|z| journal.only_appends(ZoneNo(z))), [true, true, false, false]);
}

#[test]
fn what_a_killed_server_was_making_is_swept() {
    let place = JournalDir::new();
    let left = ["ublkb0.77.new", "ublkb01.77.new", "ublkb0.told", "ublkb1.77.new", "ublkb0.77.old"];
    left.iter().for_each(|f| std::fs::write(place.0.join(f), []).unwrap());
    drop(empty(&place));
    assert_eq!(left.map(|f| place.0.join(f).exists()), [false, true, true, true, true]);
}

/// The next server finds the last one's note about its disks, if the last one kept the journal.
#[test]
fn what_was_served_is_noted() {
    let place = JournalDir::new();
    let path = place.record();
    let find = |last| noted(&path, 0, 77, 1 << 100 | 3, last);
    assert_eq!(find(1), None, "there is no record");
    drop(empty(&place));
    assert_eq!(find(1), Some(about(4, 2).disks));
    assert_eq!(find(2), None, "another server was the last one");
    assert_eq!(noted(&path, 1, 77, 1 << 100 | 3, 1), None, "another device");
    assert_eq!(noted(&path, 0, 78, 1 << 100 | 3, 1), None, "another object of the kernel");
    assert_eq!(noted(&path, 0, 77, 3, 1), None, "another boot");
    let long = "/x".repeat(4000);
    let next =
        About { disks: DiskState { place: 3, opened: 10, paths: long.clone() }, ..about(4, 2) };
    drop(Journal::open(&path, next, 1, 2, &[]).unwrap());
    let found = find(2).unwrap();
    assert_eq!((found.place, found.opened), (3, 10));
    assert!(found.paths.len() > 3000 && long.starts_with(&found.paths));
    // The server that wrote this note may have died before it left its stamp at the device.
    assert_eq!(find(1).map(|noted| noted.place), Some(3));
    assert_eq!(find(3), None);
}

/// A device may show some zones of a disk: a reset of all zones resets only these.
#[test]
fn a_reset_of_all_zones_is_of_those_that_are_shown() {
    let place = JournalDir::new();
    let part = About { shown: 1..3, ..about(4, 1) };
    let journal = Journal::create(&place.record(), part, 1, [0; 4].into_iter()).unwrap();
    for zone in 0..4 {
        journal.begin(&request(Op::Write, zone * 0x800, 8));
    }
    let all = request(Op::ZoneResetAll, 0, 0);
    journal.begin(&all);
    journal.end(&all, true);
    let shows = |zone| journal.only_appends(ZoneNo(zone));
    assert_eq!([0, 1, 2, 3].map(shows), [false, true, true, false]);
}

/// A journal is in memory, so it has no more than it needs: each queue adds its ring and nothing else.
#[test]
fn each_queue_adds_a_ring_to_the_length_of_a_journal() {
    let bytes = |queues| {
        let place = JournalDir::new();
        let journal = Journal::create(&place.record(), about(4, queues), 1, [0; 4].into_iter());
        journal.unwrap();
        std::fs::metadata(place.record()).unwrap().len()
    };
    let ring = (RING_HEADER + 16 * ENTRY) as u64 * 8;
    assert_eq!((bytes(2) - bytes(1), bytes(5) - bytes(2)), (ring, 3 * ring));
}
