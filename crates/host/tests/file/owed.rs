//! Errors for clients that have outlived a server process whose acknowledged writes were lost.

use crate::one_command::run;
use std::sync::Arc;
use zoneplug_core::{Bio, Command, IoBuf, Op, Sector, Status};
use zoneplug_host::file::testing::{CutStorage, Left};
use zoneplug_host::file::{Access, CreateOptions, FileDisk, Storage};

fn made() -> Arc<CutStorage> {
    let options =
        CreateOptions { zones: Some(4), zone_size: Some(64 << 10), ..CreateOptions::default() };
    CutStorage::create(&options).unwrap()
}

fn open(storage: &Arc<CutStorage>) -> Arc<FileDisk> {
    storage.open(Access::ReadWrite).unwrap()
}

/// The storage that the next process finds when this one is killed.
fn killed(storage: &CutStorage) -> Arc<CutStorage> {
    storage.after_kill(storage.moments())
}

fn flush(disk: &FileDisk) -> Status {
    run(disk, Command::without_data(Op::Flush, Sector(0), 0)).status
}

fn write(disk: &FileDisk) {
    let buf = IoBuf::leaked(4096);
    let c = run(disk, Command::of(Bio::with_buf(Op::Write, Sector(0), 8, buf)));
    assert_eq!(c.status, Status::Ok);
}

/// A disk whose acknowledged write was lost, and whose process was killed. The kernel has reported the error to one
/// opening already; the next one succeeds.
fn lost() -> Arc<CutStorage> {
    let storage = made();
    let disk = open(&storage);
    write(&disk);
    storage.fail_writing_back(0);
    let after = killed(&storage);
    drop(disk);
    assert!(after.open(Access::ReadWrite).is_err(), "the kernel reports it once");
    after
}

/// U11. [`FileDisk::owes`] marks the client as told, so a second question of the same client has no debt.
#[test]
fn u11_each_client_is_told_once_of_a_loss() {
    let after = lost();
    let disk = open(&after);
    assert_eq!([7, 7, 8, 7, 8].map(|client| disk.owes(client)), [true, false, true, false, false]);
    assert_eq!(flush(&disk), Status::Ok);
}

/// U11. A kill before the client asks does not clear the debt. That a client was told is written with its next flush, or
/// at an orderly end.
#[test]
fn u11_a_debt_outlives_servers_until_it_is_told() {
    let mut after = lost();
    for _ in 0..2 {
        let disk = open(&after);
        let next = killed(&after);
        drop(disk);
        after = next;
    }
    let disk = open(&after);
    // A second question does not undo that the answer to the first is to be written.
    assert!(disk.owes(7) && !disk.owes(7));
    let untold = killed(&after);
    assert_eq!(flush(&disk), Status::Ok);
    let told = killed(&after);
    drop(disk);
    assert!(open(&untold).owes(7), "its answer may not have been sent");
    let disk = open(&told);
    assert!(!disk.owes(7) && disk.owes(8));
    drop(disk);
    let disk = open(&told);
    assert!(!disk.owes(7) && !disk.owes(8) && disk.owes(9));
}

/// U11. An orderly end whose last sync fails, as at a takeover. A further loss is told to those, too, that know of the
/// first.
#[test]
fn u11_an_end_that_fails_leaves_a_debt() {
    let storage = made();
    for _ in 0..2 {
        let disk = open(&storage);
        write(&disk);
        storage.fail_some_syncs(0, 1, 0);
        drop(disk);
        let disk = open(&storage);
        assert!(disk.owes(7) && !disk.owes(7));
        assert_eq!(flush(&disk), Status::Ok);
    }
}

/// U11. Data that the page cache has forgotten leaves a hole, and no error.
#[test]
fn u11_a_hole_below_a_note_is_a_loss() {
    let storage = made();
    let disk = open(&storage);
    write(&disk);
    let after = killed(&storage);
    drop(disk);
    after.punch(after.places().data, 4096).unwrap();
    let disk = open(&after);
    assert!(!disk.notices().is_empty() && disk.owes(7) && !disk.owes(7));
}

/// The pages of a write. A sync loses some of them.
const PAGES: u32 = 8;

fn write_bytes(disk: &FileDisk, byte: u8) {
    let mut buf = IoBuf::leaked(PAGES * 4096);
    buf.copy_from(0, &[byte; PAGES as usize * 4096]);
    let c = run(disk, Command::of(Bio::with_buf(Op::Write, Sector(0), PAGES * 8, buf)));
    assert_eq!(c.status, Status::Ok);
}

/// The file of this disk has ones where its first zone begins, and the disk shows none of them. Twos are written there, a sync
/// loses them, and the process is killed before it has marked that. Where the page cache drops some of them, no ones are shown.
fn lost_over_old_data(storage: &Arc<CutStorage>) {
    let disk = open(storage);
    storage.begin();
    write_bytes(&disk, 2);
    storage.fail_some_syncs(0, 1, 0);
    assert_ne!(flush(&disk), Status::Ok);
    let moment = storage.first_failure().unwrap() + 1;
    drop(disk);
    let mut found = [0; 2];
    for seed in 1..=64 {
        let after = storage.after_kill(moment);
        after.evict(seed);
        let disk = open(&after);
        let buf = IoBuf::leaked(PAGES * 4096);
        let c = run(&disk, Command::of(Bio::with_buf(Op::Read, Sector(0), PAGES * 8, buf)));
        assert_eq!(c.status, Status::Ok);
        let mut data = vec![0; PAGES as usize * 4096];
        c.bios[0].data().copy_to(0, &mut data);
        let there = data.iter().take_while(|byte| **byte == 2).count();
        assert!(
            data[there..].iter().all(|byte| *byte == 0),
            "seed {seed}: {there} bytes are there"
        );
        // The note, too, may be in a page that was dropped.
        found[usize::from(disk.owes(7))] += 1;
    }
    assert!(found[1] > 0, "no loss is found");
}

/// U11. A power cut has left data past a write pointer.
#[test]
fn u11_data_past_a_write_pointer_do_not_hide_a_loss() {
    let storage = made();
    let disk = open(&storage);
    write_bytes(&disk, 1);
    lost_over_old_data(&storage.after_cut(storage.moments(), &mut || Left::All));
    drop(disk);
}

/// U11. A zone was reset, also on a disk that keeps its space.
#[test]
fn u11_data_of_a_zone_that_was_reset_do_not_hide_a_loss() {
    for preallocate in [false, true] {
        let options = CreateOptions {
            zones: Some(4),
            zone_size: Some(64 << 10),
            preallocate,
            ..CreateOptions::default()
        };
        let storage = CutStorage::create(&options).unwrap();
        let disk = open(&storage);
        write_bytes(&disk, 1);
        assert_eq!(flush(&disk), Status::Ok);
        let reset = run(&disk, Command::without_data(Op::ZoneReset, Sector(0), 128));
        assert_eq!(reset.status, Status::Ok);
        drop(disk);
        lost_over_old_data(&storage);
    }
}

/// U11. A power cut ends the clients too, so nothing is owed to them; and a killed server alone loses nothing.
#[test]
fn u11_nothing_is_owed_without_a_loss_or_after_another_boot() {
    let storage = made();
    let disk = open(&storage);
    write(&disk);
    let after = killed(&storage);
    drop(disk);
    assert!(!open(&after).owes(7), "the note of the write counts");
    let cut = after.after_cut(after.moments(), &mut || Left::Nothing);
    assert!(!open(&cut).owes(7), "the write was never flushed");
    let after = lost();
    drop(open(&after));
    let cut = after.after_cut(after.moments(), &mut || Left::All);
    assert!(!open(&cut).owes(7), "the loss was in the boot before");
}
