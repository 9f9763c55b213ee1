//! What a commit changes, and what it must not: resets, finishes and flushes that succeed, fail or meet a kill.

use crate::open::{Open, options};
use zoneplug_core::zone::Condition;
use zoneplug_core::{Command, Commands, Nanos, Op, Random, Sector, Status, ZoneNo};
use zoneplug_host::file::Storage;
use zoneplug_host::file::testing::{CutStorage, Left};
use zoneplug_host::file::{Access, CreateOptions};

const EMPTY: (Condition, u64, [u8; 4]) = (Condition::Empty, 0, [0; 4]);

#[test]
fn a_write_after_a_reset_of_all_zones_survives_a_kill() {
    let mut d = Open::made();
    assert_eq!(d.write(2, 0, 1), Status::Ok);
    assert_eq!(d.manage(Op::ZoneOpen, 4), Status::Ok);
    assert_eq!(d.manage(Op::ZoneResetAll, 0), Status::Ok);
    // One that had data, one that was never touched, one that was opened.
    for zone in [2, 3, 4, 19] {
        assert_eq!(d.zone(zone), EMPTY, "zone {zone}");
        assert_eq!(d.write(zone, 0, 7), Status::Ok);
    }
    let mut after = d.killed();
    for zone in [2, 3, 4, 19] {
        assert_eq!(after.zone(zone), (Condition::Closed, 1, [7, 0, 0, 0]), "zone {zone}");
    }
    // Again, and a flush: the table and the notes go on from the same generation.
    assert_eq!(after.manage(Op::ZoneResetAll, 0), Status::Ok);
    assert_eq!(after.manage(Op::ZoneResetAll, 0), Status::Ok);
    assert_eq!((after.write(3, 0, 8), after.flush()), (Status::Ok, Status::Ok));
    assert_eq!(after.write(3, 1, 9), Status::Ok);
    assert_eq!(after.cut().zone(3), (Condition::Closed, 1, [8, 0, 0, 0]));
    assert_eq!(after.killed().zone(3), (Condition::Closed, 2, [8, 9, 0, 0]));
    assert_eq!(after.killed().zone(2), EMPTY);
}

#[test]
fn a_write_after_a_reset_of_an_opened_zone_survives_a_kill() {
    let mut d = Open::made();
    assert_eq!(d.manage(Op::ZoneOpen, 5), Status::Ok);
    assert_eq!(d.manage(Op::ZoneReset, 5), Status::Ok);
    assert_eq!(d.manage(Op::ZoneReset, 6), Status::Ok);
    assert_eq!((d.write(5, 0, 1), d.write(6, 0, 2)), (Status::Ok, Status::Ok));
    let mut after = d.killed();
    assert_eq!(after.zone(5), (Condition::Closed, 1, [1, 0, 0, 0]));
    assert_eq!(after.zone(6), (Condition::Closed, 1, [2, 0, 0, 0]));
}

/// The file system makes each hole a transaction, and a disk may have 200,000 zones.
#[test]
fn a_reset_of_all_zones_makes_one_hole_of_zones_in_a_row() {
    let mut d = Open::made();
    let written = [0, 1, 2, 3, 5, 6, 19];
    for zone in written {
        assert_eq!(d.write(zone, 0, 7), Status::Ok);
    }
    assert_eq!(d.flush(), Status::Ok);
    d.storage.begin();
    assert_eq!(d.manage(Op::ZoneResetAll, 0), Status::Ok);
    // Two sectors of the table, their sync, and three holes.
    assert_eq!(d.storage.moments(), 6);
    let places = d.storage.places();
    assert_eq!(d.storage.next_data(places.data), Some(places.supers[1]));
    for zone in written {
        assert_eq!(d.zone(zone), EMPTY, "zone {zone}");
    }
}

/// A writer of a version before the holes counted left holes for the zeroes that it wrote.
#[test]
fn zeroes_that_an_older_version_wrote_are_no_end_of_a_zone() {
    let mut d = Open::made();
    assert_eq!(
        (d.write(2, 0, 1), d.write(2, 1, 0), d.write(2, 2, 3)),
        (Status::Ok, Status::Ok, Status::Ok)
    );
    let old = d.left();
    let p = old.places();
    old.punch(p.data + 2 * p.stride + 4096, 4096).unwrap();
    // It knew bytes 8 to 39 of a session.
    old.damage(p.session + 40, &[0; 472]);
    old.seal(p.session);
    let mut now = Open::new(old);
    assert_eq!(now.zone(2), (Condition::Closed, 3, [1, 0, 3, 0]));
    assert_eq!(now.flush(), Status::Ok);
    assert_eq!(now.cut().zone(2), (Condition::Closed, 3, [1, 0, 3, 0]));
}

/// Flushed data is there after a reset, finish or reset of all zones that could not be made durable.
#[test]
fn a_commit_that_fails_changes_no_data() {
    for op in [Op::ZoneReset, Op::ZoneResetAll, Op::ZoneFinish] {
        let mut d = Open::made();
        for block in 0..3 {
            assert_eq!(d.write(2, block, block as u8 + 1), Status::Ok);
        }
        assert_eq!(d.flush(), Status::Ok);
        d.storage.fail_syncs(true);
        assert_eq!(d.manage(op, 2), Status::Io, "{op:?}");
        let (_, blocks, data) = d.zone(2);
        assert_eq!((blocks, data), (3, [1, 2, 3, 0]), "{op:?}");
        d.storage.fail_syncs(false);
        assert_eq!(d.manage(op, 2), Status::Io, "{op:?}: what is durable is unknown");
        assert_eq!(d.zone(2).2, [1, 2, 3, 0], "{op:?}");
        // The power cut took the record of the reset with it, so all of the data must still be there.
        assert_eq!(d.cut().zone(2), (Condition::Closed, 3, [1, 2, 3, 0]), "{op:?}");
    }
}

/// A finish first makes data durable, as a flush does, and only then its zone full. So a zone that is full after a power
/// cut has its data, whenever the power failed and whatever else the cut left.
#[test]
fn a_finish_makes_data_durable_first() {
    let mut d = Open::made();
    d.storage.begin();
    for block in 0..3 {
        assert_eq!(d.write(2, block, block as u8 + 1), Status::Ok);
    }
    assert_eq!(d.write(17, 0, 9), Status::Ok);
    assert_eq!(d.manage(Op::ZoneFinish, 2), Status::Ok);
    let (mut full, mut closed, mut random) = (0, 0, Random::new(1));
    for moment in 0..=d.storage.moments() {
        for _ in 0..32 {
            let mut pick = || random.pick(&[Left::Nothing, Left::All]);
            let mut after = Open::new(d.storage.after_cut(moment, &mut pick));
            let (condition, _, data) = after.zone(2);
            if condition == Condition::Full {
                assert_eq!(data, [1, 2, 3, 0], "after {moment} events");
                full += 1;
            } else {
                closed += 1;
            }
        }
    }
    assert!(full >= 32 && closed >= 32, "{full} full, {closed} not");
    let mut after = d.cut();
    assert_eq!((after.zone(2).0, after.zone(17).2), (Condition::Full, [9, 0, 0, 0]));
}

/// Appends and a flush that fails, in every way that pages can be lost, for every sync of the flush. The next process
/// shows only what is on the medium, in whatever order memory is short, and what it flushes stays.
#[test]
fn what_a_failed_sync_lost_is_never_shown() {
    let mut lost = 0;
    for seed in 0..40 {
        for (after, times) in [(0, 1), (1, 1), (0, 3), (0, 99), (1, 99)] {
            for early in [false, true] {
                let mut d = Open::made();
                assert_eq!((d.write(2, 0, 1), d.flush()), (Status::Ok, Status::Ok));
                assert_eq!((d.write(2, 1, 2), d.write(17, 0, 3)), (Status::Ok, Status::Ok));
                d.storage.fail_some_syncs(after, times, seed);
                assert_eq!(d.flush(), Status::Io);
                assert_eq!(d.write(2, 2, 9), Status::Io);
                // Reads go on.
                assert_eq!(d.zone(2).2, [1, 2, 0, 0]);
                let what = format!("seed {seed}, {times} syncs after {after}, evicted {early}");
                let next = d.left();
                if early && times < 99 {
                    next.evict(0);
                }
                assert!(next.check(false).unwrap().problems > 0, "{what}");
                let mut now = Open::new(next);
                assert!(
                    now.disk.notices()[0].contains("could not make its writes durable"),
                    "{what}"
                );
                let shown = [now.zone(2), now.zone(17)];
                lost += u32::from(shown[0].1 == 1);
                assert!(shown[0].1 >= 1 && shown[0].2[0] == 1, "{what}: {shown:?}");
                assert_eq!(now.flush(), Status::Ok);
                now.storage.evict(0);
                assert_eq!([now.zone(2), now.zone(17)], shown, "{what}: evicted");
                assert_eq!([now.cut().zone(2), now.cut().zone(17)], shown, "{what}: a power cut");
                // It is as good as new.
                let at = shown[0].1 as u32;
                assert_eq!((now.write(2, at, 7), now.flush()), (Status::Ok, Status::Ok));
                assert_eq!(now.cut().zone(2).1, u64::from(at) + 1, "{what}");
                assert_eq!(now.left().check(false).unwrap().problems, 0, "{what}");
            }
        }
    }
    assert!(lost > 0, "no seed lost anything");
}

/// The process is killed in the sync that fails, so that no client got the error; or the kernel failed before any sync.
#[test]
fn what_nobody_was_told_is_lost_is_never_shown() {
    for seed in 0..40 {
        for silent in [false, true] {
            for early in [false, true] {
                let mut d = Open::made();
                assert_eq!((d.write(2, 0, 1), d.flush()), (Status::Ok, Status::Ok));
                assert_eq!((d.write(2, 1, 2), d.write(17, 0, 3)), (Status::Ok, Status::Ok));
                if silent {
                    d.storage.fail_writing_back(seed);
                } else {
                    d.storage.fail_some_syncs(0, 1, seed);
                    assert_eq!(d.flush(), Status::Io);
                }
                let what = format!("seed {seed}, silent {silent}, evicted {early}");
                let moment = d.storage.first_failure().unwrap() + 1;
                let next = d.storage.after_kill(moment);
                if early {
                    next.evict(0);
                }
                if silent {
                    // The first sync fails, and after that the content of the page cache proves nothing.
                    let e = next.open(Access::ReadWrite).unwrap_err();
                    assert!(e.to_string().contains("cannot make durable"), "{what}: {e}");
                }
                let mut now = Open::new(next);
                let shown = [now.zone(2), now.zone(17)];
                if !silent && !early {
                    // Memory still has it.
                    assert_eq!(shown[0], (Condition::Closed, 2, [1, 2, 0, 0]), "{what}");
                    assert_eq!(shown[1], (Condition::Closed, 1, [3, 0, 0, 0]), "{what}");
                }
                for (zone, was) in [(2, [1, 2, 0, 0]), (17, [3, 0, 0, 0])] {
                    let (_, blocks, data) = now.zone(zone);
                    let blocks = blocks as usize;
                    assert_eq!(data[..blocks], was[..blocks], "{what}: zone {zone}");
                }
                assert_eq!(now.flush(), Status::Ok);
                now.storage.evict(0);
                assert_eq!([now.zone(2), now.zone(17)], shown, "{what}: evicted");
                assert_eq!([now.cut().zone(2), now.cut().zone(17)], shown, "{what}: a power cut");
            }
        }
    }
}

/// The sync that fails would have been the first of its session, and memory forgets the session, not the table: what is
/// read then must not pass for the disk that the last session closed.
#[test]
fn a_session_is_durable_before_anything_of_it() {
    for seed in 0..40 {
        let mut d = Open::made();
        for block in 0..3 {
            assert_eq!(d.write(2, block, block as u8 + 1), Status::Ok);
        }
        let storage = d.storage.clone();
        drop(d);
        storage.make_durable();
        let mut d = Open::new(storage);
        d.storage.fail_some_syncs(0, 1, 0);
        assert_eq!(d.manage(Op::ZoneReset, 2), Status::Io);
        let killed = d.storage.after_kill(d.storage.first_failure().unwrap() + 1);
        killed.evict(seed);
        let mut now = Open::new(killed);
        let shown = now.zone(2);
        assert_eq!(now.write(2, shown.1 as u32, 9), Status::Ok, "seed {seed}");
        let mut cut = Open::new(now.storage.after_cut(now.storage.moments(), &mut || Left::All));
        assert_eq!(cut.zone(2), shown, "seed {seed}");
    }
}

/// A reset's sync fails and loses everything, and its process is killed in it. The reset is seen in memory, so nothing
/// of the zone is written again by the next opening before it hears from the medium that there was none.
#[test]
fn data_that_a_lost_reset_hid_is_written_again() {
    for seed in 0..40 {
        let mut d = Open::made();
        assert_eq!((d.write(2, 0, 1), d.flush()), (Status::Ok, Status::Ok));
        assert_eq!((d.write(2, 1, 2), d.write(2, 2, 3)), (Status::Ok, Status::Ok));
        d.storage.fail_some_syncs(0, 1, seed);
        assert_eq!(d.manage(Op::ZoneReset, 2), Status::Io);
        let next = d.storage.after_kill(d.storage.first_failure().unwrap() + 1);
        let mut now = Open::new(next);
        let shown = now.zone(2);
        let whole = (Condition::Closed, 3, [1, 2, 3, 0]);
        assert!(shown == whole || shown == EMPTY, "seed {seed}: {shown:?}");
        assert_eq!(now.flush(), Status::Ok);
        now.storage.evict(0);
        assert_eq!(now.zone(2), shown, "seed {seed}: evicted");
        assert_eq!(now.cut().zone(2), shown, "seed {seed}: a power cut");
    }
}

/// The data of conventional zones are in no table, and their notes say only that they were written. If the process of the
/// disk dies with its failed sync, the next one writes all of their pages again, before it believes the notes.
#[test]
fn conventional_zones_of_a_process_that_died_are_written_again() {
    for seed in 0..40 {
        let storage = CutStorage::create(&CreateOptions { conv: 2, ..options() }).unwrap();
        let mut d = Open::new(storage);
        assert_eq!((d.write(0, 0, 1), d.flush()), (Status::Ok, Status::Ok));
        assert_eq!((d.write(0, 1, 2), d.write(0, 0, 4)), (Status::Ok, Status::Ok));
        assert_eq!((d.write(1, 3, 3), d.write(2, 0, 5)), (Status::Ok, Status::Ok));
        d.storage.fail_some_syncs(0, 1, seed);
        assert_eq!(d.flush(), Status::Io);
        let mut now = Open::new(d.storage.after_kill(d.storage.first_failure().unwrap() + 1));
        let data = |d: &mut Open| [0, 1, 2].map(|zone| d.zone(zone).2);
        let whole = [[4, 2, 0, 0], [0, 0, 0, 3], [5, 0, 0, 0]];
        assert_eq!(data(&mut now), whole, "seed {seed}: memory still has it");
        assert_eq!(now.flush(), Status::Ok);
        now.storage.evict(0);
        assert_eq!(data(&mut now), whole, "seed {seed}: evicted");
        assert_eq!(data(&mut now.cut()), whole, "seed {seed}: a power cut");
    }
}

/// A sync of another thread fails, and loses the data of a conventional zone's write that is in flight; the process is
/// killed before it has marked its session. What the next process shows stays, whether the write's zone was flushed
/// while the write was in flight, or before it, or never.
#[test]
fn a_write_in_flight_in_a_conventional_zone_stays_as_it_is_shown() {
    for (flushed_before, flushed_in_flight) in
        [(false, false), (true, false), (false, true), (true, true)]
    {
        let storage = CutStorage::create(&CreateOptions { conv: 2, ..options() }).unwrap();
        let mut d = Open::new(storage);
        assert_eq!(d.write(0, 0, 1), Status::Ok);
        if flushed_before {
            assert_eq!(d.flush(), Status::Ok);
        }
        let flush = |wanted: Status| {
            let mut other = d.another_queue();
            move || assert_eq!(other.flush(), wanted)
        };
        let (mut good, mut failing) = (flush(Status::Ok), flush(Status::Io));
        let storage = d.storage.clone();
        let before = move || {
            if flushed_in_flight {
                good();
            }
        };
        let after = move || {
            storage.fail_some_syncs(0, 1, 0);
            failing();
        };
        d.storage.around_write(d.storage.places().data + 4096, before, after);
        assert_eq!(d.write(0, 1, 2), Status::Io);
        let case = format!("flushed before {flushed_before}, in flight {flushed_in_flight}");
        let mut now = Open::new(d.storage.after_kill(d.storage.first_failure().unwrap() + 1));
        let whole = [1, 2, 0, 0];
        assert_eq!(now.zone(0).2, whole, "{case}: memory still has it");
        assert_eq!(now.flush(), Status::Ok);
        now.storage.evict(0);
        assert_eq!(now.zone(0).2, whole, "{case}: evicted");
        assert_eq!(now.cut().zone(0).2, whole, "{case}: a power cut");
    }
}

/// A write of a conventional zone that fails may have changed a part of its data. A snapshot sees that by the count.
#[test]
fn a_write_of_a_conventional_zone_that_fails_counts() {
    let mut d = Open::new(CutStorage::create(&CreateOptions { conv: 2, ..options() }).unwrap());
    assert_eq!(d.write(0, 0, 1), Status::Ok);
    let before = d.disk.write_count(ZoneNo(0));
    d.storage.limit_room(Some(0));
    assert_eq!(d.write(0, 0, 2), Status::NoSpace);
    let after = d.disk.write_count(ZoneNo(0));
    assert!(after > before, "{before}, {after}");
    assert_eq!(d.killed().disk.write_count(ZoneNo(0)), after, "another process sees it");
}

/// A flush begins while another one has the same write in hand, and has not written the table. What a flush answers is
/// durable, so it ends no earlier than the other.
#[test]
fn a_flush_beside_another_waits_until_its_data_are_durable() {
    let mut d = Open::with_threads();
    assert_eq!(d.write(2, 0, 7), Status::Ok);
    let (mut queue, mut done) = (d.another_queue().queue, Commands::new());
    let (begun, beside) = std::sync::mpsc::channel();
    let begin = move || {
        let flush = Command::without_data(Op::Flush, Sector(0), 0);
        queue.submit(Nanos(0), &mut Commands::from([flush]));
        queue.poll(Nanos(0), &mut done);
        begun.send((queue, done)).unwrap();
    };
    // A commit writes the older copy of the table: here the second one.
    d.storage.around_write(d.storage.places().tables[1], begin, || ());
    assert_eq!(d.flush(), Status::Ok);
    let (mut queue, mut done) = beside.try_recv().expect("the flush has written the table");
    assert!(done.is_empty(), "the write was not durable yet: {done:?}");
    while done.is_empty() {
        queue.poll(Nanos(0), &mut done);
    }
    assert_eq!(done[0].status, Status::Ok);
}

/// A thread panics in a commit. What it took to make durable is in no table, so the end of the disk must not say that
/// it is.
#[test]
fn a_panic_in_a_commit_closes_no_session() {
    let mut d = Open::with_threads();
    let storage = d.storage.clone();
    assert_eq!(d.write(2, 0, 7), Status::Ok);
    storage.panic_in_sync();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| d.flush())).unwrap_err();
    drop(d);
    let mut now = Open::new(storage.after_kill(storage.moments()));
    assert_eq!(now.zone(2), (Condition::Closed, 1, [7, 0, 0, 0]));
}

/// Space that is kept has old data, which is no hole: here only the error tells what was lost.
#[test]
fn old_data_is_not_shown_for_what_was_lost() {
    for early in [false, true] {
        let o = CreateOptions { preallocate: true, ..options() };
        let mut d = Open::new(CutStorage::create(&o).unwrap());
        assert_eq!((d.write(2, 0, 1), d.write(2, 1, 2)), (Status::Ok, Status::Ok));
        assert_eq!(d.manage(Op::ZoneReset, 2), Status::Ok);
        assert_eq!(
            (d.write(2, 0, 3), d.flush(), d.write(2, 1, 4)),
            (Status::Ok, Status::Ok, Status::Ok)
        );
        d.storage.fail_writing_back(0);
        let next = d.left();
        if early {
            next.evict(0);
        }
        next.open(Access::ReadWrite).unwrap_err();
        let mut now = Open::new(next);
        assert_eq!(now.zone(2), (Condition::Closed, 1, [3, 0, 0, 0]), "evicted {early}");
        now.storage.evict(0);
        assert_eq!(now.zone(2), (Condition::Closed, 1, [3, 0, 0, 0]), "evicted {early}");
    }
}

/// A repair gives no space back that the table on the medium still needs.
#[test]
fn a_repair_makes_durable_what_it_builds_on() {
    let mut d = Open::made();
    for block in 0..3 {
        assert_eq!(d.write(2, block, block as u8 + 1), Status::Ok);
    }
    assert_eq!(d.flush(), Status::Ok);
    let begin = d.storage.moments();
    assert_eq!(d.manage(Op::ZoneReset, 2), Status::Ok);
    // Killed at each moment of the reset, repaired, and the power is cut at each moment of the repair: holes are in the
    // journal of the file system before anything else is on the medium.
    for moment in begin..=d.storage.moments() {
        let killed = d.storage.after_kill(moment);
        killed.check(true).unwrap();
        for cut in 0..=killed.moments() {
            let kept = killed.after_cut(cut, &mut || Left::Nothing);
            let holes = killed.after_cut_with_holes(cut);
            for (after, what) in [(kept, "nothing"), (holes, "holes")] {
                let shown = Open::new(after).zone(2);
                let whole = (Condition::Closed, 3, [1, 2, 3, 0]);
                assert!(
                    shown == whole || shown == EMPTY,
                    "{moment}, {cut}, {what} left: {shown:?}"
                );
            }
        }
    }
}

/// A repair of a table sector leaves one of its copies whole at each moment.
#[test]
fn a_power_cut_in_a_repair_leaves_a_copy_of_the_table() {
    for damaged in [0, 1] {
        let mut d = Open::made();
        assert_eq!((d.write(2, 0, 1), d.flush()), (Status::Ok, Status::Ok));
        let disk = d.left();
        disk.make_durable();
        disk.damage(disk.places().tables[damaged], &[1; 512]);
        assert_eq!(disk.check(false).unwrap().problems, 1);
        // The zone as the other copy has it. The older copy has the zone before its first write.
        let all = Open::new(disk.after_cut(disk.moments(), &mut || Left::All)).zone(2);
        assert!(all == EMPTY || all == (Condition::Closed, 1, [1, 0, 0, 0]), "{all:?}");
        assert_eq!(disk.check(true).unwrap().repaired, 1);
        for moment in 0..=disk.moments() {
            for left in [Left::Nothing, Left::Torn, Left::All] {
                let cut = disk.after_cut(moment, &mut || left);
                let shown = Open::new(cut).zone(2);
                assert_eq!(shown, all, "{damaged}, {moment}, {left:?}");
            }
        }
    }
}

/// The sync of a new UUID is the first that hears that writing back failed, and the last that does. Where the file system
/// tells no holes, nothing else shows the loss.
#[test]
fn a_new_uuid_keeps_what_was_lost_from_being_shown() {
    for (seed, tells_holes) in (0..40).flat_map(|seed| [(seed, true), (seed, false)]) {
        let mut d = Open::made();
        if !tells_holes {
            d.storage.without_holes();
        }
        assert_eq!(
            (d.write(2, 0, 1), d.flush(), d.write(2, 1, 8)),
            (Status::Ok, Status::Ok, Status::Ok)
        );
        // The power cut leaves the second block on the medium, past the write pointer.
        let mut d = Open::new(d.storage.after_cut(d.storage.moments(), &mut || Left::All));
        assert_eq!(d.zone(2), (Condition::Closed, 1, [1, 0, 0, 0]));
        assert_eq!(d.write(2, 1, 2), Status::Ok);
        d.storage.fail_writing_back(seed);
        let copy = d.left();
        copy.new_uuid().unwrap_err();
        copy.evict(0);
        assert!(copy.check(false).unwrap().problems > 0, "seed {seed}");
        let mut now = Open::new(copy);
        let shown = now.zone(2);
        assert!(
            shown == (Condition::Closed, 1, [1, 0, 0, 0]) || shown.2 == [1, 2, 0, 0],
            "seed {seed}: {shown:?}"
        );
    }
}

/// A copy with a UUID of its own has all that the original has, and a power cut in the middle costs nothing.
#[test]
fn a_new_uuid_keeps_everything_else() {
    for damaged in [None, Some(0), Some(1)] {
        let mut d = Open::made();
        assert_eq!(
            (d.write(2, 0, 1), d.flush(), d.write(2, 1, 2)),
            (Status::Ok, Status::Ok, Status::Ok)
        );
        let old = d.disk.identity();
        let copy = d.left();
        copy.make_durable();
        if let Some(i) = damaged {
            copy.damage(copy.places().supers[i] + 200, b"x");
        }
        let new = copy.new_uuid().unwrap();
        assert_ne!(new.uuid, old.uuid);
        assert_eq!((&new.label, new.created, new.opened), (&old.label, old.created, old.opened));
        for moment in 0..=copy.moments() {
            for left in [Left::Nothing, Left::Torn, Left::All] {
                let cut = copy.after_cut(moment, &mut || left);
                let is = cut.open(Access::ReadOnly).unwrap().identity().uuid;
                assert!(is == old.uuid || is == new.uuid, "{damaged:?}, {moment}, {left:?}: {is}");
                cut.check(true).unwrap();
                assert_eq!(
                    cut.check(false).unwrap().problems,
                    0,
                    "{damaged:?}, {moment}, {left:?}"
                );
                let shown = Open::new(cut).zone(2);
                assert_eq!(shown, (Condition::Closed, 1, [1, 0, 0, 0]), "{damaged:?}, {moment}");
            }
        }
        // The notes of a process that died count in the copy too.
        let mut now = Open::new(copy);
        assert_eq!((now.zone(2).1, now.disk.identity().uuid), (2, new.uuid));
    }
}
