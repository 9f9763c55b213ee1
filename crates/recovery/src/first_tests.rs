//! Tests of a client that outlives its server: only its first commands of each zone may be old ones.

use crate::client_key::ClientKey;
use crate::disk::{DiskRecovery, FirstCommands};
use crate::resend::{Outcome, ResendStep, Search, SentCommand, StepIo};
use crate::space::{Space, block_hashes};
use std::collections::BTreeMap;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{IoResult, Nanos, Op, Sector, Status};

const ZONES: u32 = 5;
const ZONE: u64 = 0x800;
const BLOCK: u32 = 8;
const NOW: Nanos = Nanos(0);

fn data(fill: u8) -> AlignedBuf {
    AlignedBuf::from_slice(&[fill; 4096])
}

/// A ledger of zones with 16 sectors. `spaces`: they are space that the client was not told of, with blocks of 1 and 2.
fn recovery(spaces: bool) -> DiskRecovery {
    let hashes = [1, 2].map(|fill| block_hashes(&data(fill), BLOCK, BLOCK)).concat();
    let mut all = BTreeMap::new();
    for zone in (0..ZONES).filter(|_| spaces) {
        all.entry(zone).or_insert_with(|| Space::new(BLOCK)).add(0, hashes.clone());
    }
    let written = vec![if spaces { 0 } else { 16 }; ZONES as usize];
    let first = FirstCommands { written, spaces: all, block_sectors: BLOCK, appends: 4 };
    DiskRecovery::of_first_commands(
        Geometry::new(ZONES.into(), ZONE as u32, ZONE as u32).unwrap(),
        first,
    )
}

fn sent(sector: u64, fua: bool) -> SentCommand {
    SentCommand { client: ClientKey::new(0), sector: Sector(sector), len_sectors: BLOCK, fua }
}

/// Sends a command of a block. The data that are compared are equal. Returns the last step and what was asked before.
fn send(recovery: &DiskRecovery, op: Op, sent: SentCommand, fill: u8) -> (ResendStep, Vec<StepIo>) {
    let (data, mut asked) = (data(fill), Vec::new());
    let is_before = recovery.is_before_first(op, sent.sector);
    let begun = is_before.then(|| recovery.begin(op, sent, Some(&data), NOW)).flatten();
    let Some(mut search) = begun else { return (ResendStep::CarryOut, asked) };
    while let ResendStep::Ask(io) = search.step {
        asked.push(io);
        let found = (io.op == Op::Read).then_some(&data);
        let result = IoResult { status: Status::Ok, sector: io.sector, zones: 0 };
        let outcome = io.outcome(result, found, Some(&data));
        search = recovery.next(search.resend, outcome, NOW);
    }
    (search.step, asked)
}

/// U6. For each command: the zones of which it ends the comparison, both of writes and of appends. If a zone is forgotten too
/// late, a new append is answered with old data; if it is forgotten without need, data are written twice.
#[test]
fn u6_what_changes_zones_ends_the_comparison_of_these_and_of_no_other() {
    let (every, none) = (0..ZONES, 0..0);
    for (op, zone, changed) in [
        (Op::ZoneResetAll, 0, every),
        (Op::ZoneReset, 0, 0..1),
        (Op::ZoneReset, 3, 3..4),
        (Op::ZoneReset, 4, 4..5),
        (Op::ZoneFinish, 2, 2..3),
        (Op::Write, 1, 1..2),
        (Op::WriteZeroes, 1, 1..2),
        (Op::Discard, 1, 1..2),
        (Op::ZoneOpen, 1, none.clone()),
        (Op::ZoneClose, 1, none.clone()),
        (Op::Flush, 0, none.clone()),
        (Op::Read, 0, none.clone()),
        (Op::ReportZones, 0, none),
    ] {
        let start = |zone: u32| u64::from(zone) * ZONE;
        for z in 0..ZONES {
            for (spaces, again, at) in
                [(false, Op::Write, start(z) + 8), (true, Op::ZoneAppend, start(z))]
            {
                let recovery = recovery(spaces);
                // The command is behind what is written, so it is no old one itself.
                assert_eq!(
                    send(&recovery, op, sent(start(zone) + 16, false), 9).0,
                    ResendStep::CarryOut
                );
                let (step, _) = send(&recovery, again, sent(at, false), 2);
                let is_found = step == ResendStep::Done(Sector(start(z) + 8));
                assert_eq!(is_found, !changed.contains(&z), "{op:?} of {zone}: {again:?} of {z}");
            }
        }
    }
}

/// U6. Of the writes of a zone only the first is compared, and none behind an append.
#[test]
fn u6_the_first_write_of_a_zone_is_compared() {
    let recovery = recovery(false);
    let write = |at, fua| send(&recovery, Op::Write, sent(at, fua), 1);
    let compared = |at| StepIo::compare(Sector(at), BLOCK, 0);
    assert_eq!(write(8, false), (ResendStep::Done(Sector(8)), vec![compared(8)]));
    assert_eq!(write(8, false), (ResendStep::CarryOut, vec![]));
    let (step, asked) = write(ZONE, true);
    assert_eq!((step, asked.len()), (ResendStep::Done(Sector(ZONE)), 2));
    assert_eq!((asked[0], asked[1].op), (compared(ZONE), Op::Flush));
    assert_eq!(send(&recovery, Op::ZoneAppend, sent(2 * ZONE, false), 1).0, ResendStep::CarryOut);
    assert_eq!(write(2 * ZONE + 8, false).0, ResendStep::CarryOut);
    assert!(!recovery.is_before_first(Op::Write, Sector(0)));
    assert!(recovery.is_before_first(Op::Write, Sector(4 * ZONE)));
}

/// U6. Of a write that is on the disk in part, the rest is written. A write whose data differ, or cannot be read, is carried out:
/// the disk refuses it.
#[test]
fn u6_the_rest_of_a_write_is_written() {
    for (outcome, last) in [
        (Outcome::Compared(true), ResendStep::WriteRest(4)),
        (Outcome::Compared(false), ResendStep::CarryOut),
        (Outcome::Ended(Status::Medium), ResendStep::CarryOut),
    ] {
        let recovery = recovery(false);
        let begun = recovery.begin(Op::Write, sent(12, false), Some(&data(1)), NOW);
        let Search { resend, step } = begun.unwrap();
        assert_eq!(step, ResendStep::Ask(StepIo::compare(Sector(12), 4, 0)));
        assert_eq!(recovery.next(resend, outcome, NOW).step, last);
    }
}

/// U6. A reset that comes while an append is compared takes its space.
#[test]
fn u6_a_reset_ends_the_comparisons_of_its_zone() {
    for (op, at, last) in [
        (Op::ZoneReset, 0, ResendStep::CarryOut),
        (Op::ZoneResetAll, 0, ResendStep::CarryOut),
        (Op::ZoneReset, ZONE, ResendStep::Done(Sector(8))),
    ] {
        let recovery = recovery(true);
        let begun = recovery.begin(Op::ZoneAppend, sent(0, false), Some(&data(2)), NOW);
        let Search { resend, .. } = begun.unwrap();
        assert!(recovery.begin(op, sent(at, false), None, NOW).is_none());
        let next = recovery.next(resend, Outcome::Compared(true), NOW);
        assert_eq!(next.step, last, "{op:?}");
    }
}

/// U6. After as many appends as can have been in flight, none is looked for.
#[test]
fn u6_so_many_appends_are_looked_for_as_can_have_been_in_flight() {
    let recovery = recovery(true);
    let mut append = |fill| send(&recovery, Op::ZoneAppend, sent(ZONE, false), fill).0;
    let steps = [3, 2, 2, 3, 1].map(&mut append);
    let found = ResendStep::Done(Sector(ZONE + 8));
    let new = ResendStep::CarryOut;
    assert_eq!(steps, [new, found, new, new, new]);
    assert!(!recovery.is_before_first(Op::ZoneAppend, Sector(ZONE)));
}
