//! What must hold of a durable disk, whatever happened to its file.

use super::client::{Client, Shown};
use crate::explained;
use std::sync::Arc;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Error, Op, Status, ZoneNo};
use zoneplug_host::file::testing::{CutStorage, Left};
use zoneplug_host::file::{Access, CheckReport};

/// Where the storage of a process is when that dies here.
fn copy(storage: &CutStorage) -> Arc<CutStorage> {
    storage.after_kill(storage.moments())
}

/// Where it is when the power is cut and nothing is left that was not synced.
fn cut(storage: &CutStorage) -> Arc<CutStorage> {
    storage.after_cut(storage.moments(), &mut || Left::Nothing)
}

/// What a disk shows to who only reads.
fn look(storage: &Arc<CutStorage>) -> Result<Vec<Shown>, Error> {
    let shown = Client::open(storage, Access::ReadOnly)?.look();
    assert_eq!(storage.moments(), 0, "a reader wrote");
    Ok(shown)
}

/// Zones of the lines of a check: of `zone 3 ...`, `zones 15 to 29 ...`.
fn named(report: &CheckReport) -> Vec<u32> {
    let mut zones = Vec::new();
    for line in &report.lines {
        let words: Vec<&str> = line.split([' ', ':']).collect();
        for w in words.windows(4) {
            match *w {
                ["zone", n, ..] => zones.extend(n.parse::<u32>()),
                ["zones", a, "to", b] => {
                    let range = (a.parse::<u32>(), b.parse::<u32>());
                    if let (Ok(a), Ok(b)) = range {
                        zones.extend(a..=b);
                    }
                }
                _ => {}
            }
        }
    }
    zones
}

/// `damaged`: the file was changed by something else than its disk; `whole`: its superblocks and length were not.
pub(super) fn examine(storage: &Arc<CutStorage>, damaged: bool, whole: bool, pick: u8) {
    let seen = look(storage);
    let checked = storage.check(false);
    assert_eq!(storage.moments(), 0, "a check without repair wrote");
    let (seen, report) = match (seen, checked) {
        (Ok(seen), Ok(report)) => (seen, report),
        (Err(e), Err(f)) => {
            assert!(!whole, "superblocks and length are whole: {e}");
            explained(&e);
            explained(&f);
            assert_eq!(e.to_string(), f.to_string(), "opening and checking disagree");
            let fixed = copy(storage);
            fixed.check(true).expect_err("what cannot be opened is beyond repair");
            assert_eq!(fixed.moments(), 0, "what is beyond repair was changed");
            let opened = storage.open(Access::ReadWrite).map(|_| ());
            opened.expect_err("open for writing although not for reading");
            assert_eq!(storage.moments(), 0, "what cannot be opened was changed");
            return;
        }
        (Ok(_), Err(e)) => panic!("it can be opened, not checked: {e}"),
        (Err(e), Ok(_)) => panic!("it can be checked, not opened: {e}"),
    };
    assert!(damaged || report.problems == 0, "problems without damage: {report}");
    rules(storage, &seen, damaged);
    repair(storage, &seen, &report);
    open(storage, &seen, pick);
}

/// What the standards say about a zone.
fn rules(storage: &Arc<CutStorage>, seen: &[Shown], damaged: bool) {
    let c = Client::open(storage, Access::ReadOnly).expect("as before");
    let (g, unit) = (c.geometry(), u64::from(c.limits().write_granularity_sectors));
    let mut active = 0;
    for (n, z) in (0..).zip(seen) {
        let (i, zone) = (z.info, ZoneNo(n));
        assert_eq!(i.start, g.zone_start(zone));
        assert_eq!(i.len_sectors, u64::from(g.zone_len_sectors(zone)));
        assert!(i.capacity_sectors <= i.len_sectors && i.capacity_sectors > 0);
        assert_eq!(g.is_conventional(zone), i.cond == Condition::NotWp, "zone {n}");
        let wp = i.wp.0.wrapping_sub(i.start.0);
        match i.cond {
            Condition::Empty => assert_eq!(wp, 0, "zone {n}"),
            Condition::Closed => {
                assert!(wp > 0 && wp < i.capacity_sectors, "zone {n}: write pointer at {wp}");
                assert_eq!(wp % unit, 0, "zone {n}: write pointer at {wp} inside a block");
            }
            Condition::Full => assert_eq!(wp, i.len_sectors, "zone {n}"),
            Condition::NotWp | Condition::ReadOnly | Condition::Offline => {
                assert_eq!(i.wp.0, u64::MAX, "zone {n}");
            }
            other => panic!("zone {n} is {other:?} after a restart"),
        }
        active += u32::from(i.cond.is_active());
        let offline = i.cond == Condition::Offline;
        assert!(z.data.0.is_ok() || offline && z.data.0 == Status::ZoneOffline, "zone {n}: {z:?}");
    }
    let max = c.limits().max_active_zones;
    assert!(damaged || max == 0 || active <= max, "{active} zones are active, at most {max}");
}

/// A repair mends all that a check finds, once, and changes nothing that it did not name.
fn repair(storage: &Arc<CutStorage>, seen: &[Shown], found: &CheckReport) {
    let fixed = copy(storage);
    let first = fixed.check(true).expect("a disk that can be checked");
    assert_eq!(first.problems, found.problems, "two checks disagree: {found} {first}");
    assert_eq!(first.repaired, first.problems, "not all was repaired: {first}");
    let again = cut(&fixed).check(false).expect("a repaired disk");
    assert_eq!(again.problems, 0, "a repaired disk has problems: {first} {again}");
    let second = copy(&fixed).check(true).expect("a repaired disk");
    assert_eq!((second.problems, second.repaired), (0, 0), "{second}");
    let names = named(&first);
    let now = look(&copy(&fixed)).expect("a repaired disk opens");
    assert_eq!(now.len(), seen.len());
    for (n, (was, is)) in (0..).zip(seen.iter().zip(&now)) {
        if !names.contains(&n) || was.info.cond == Condition::NotWp {
            assert_eq!(was, is, "zone {n} was changed, not named: {first}");
        } else {
            let fine = matches!(is.info.cond, Condition::Empty | Condition::NotWp);
            assert!(fine, "zone {n} was named and is {:?}: {first}", is.info.cond);
        }
    }
}

/// Who opens it for writing sees the same, and what it then writes is kept.
fn open(storage: &Arc<CutStorage>, seen: &[Shown], pick: u8) {
    let mine = copy(storage);
    let mut c = Client::open(&mine, Access::ReadWrite).expect("as for reading");
    assert!(c.look() == seen, "who writes sees something else");
    assert!(c.disk().identity().uuid.len() == 36 && c.disk().identity().label.len() <= 63);
    let opened = cut(&mine);
    assert!(look(&opened).expect("it was open") == seen, "opening it changed it");

    // A write and a flush survive the power, and what is not flushed survives the process.
    let zone = u32::from(pick) % c.nr_zones();
    let status = c.write(zone, 1, 0xa5, false);
    if status.is_ok() {
        let written = after_restart(&mut c);
        let killed = look(&copy(&mine)).expect("its process died");
        assert!(killed == written, "an acknowledged write is lost by a kill");
        assert_eq!(c.flush(), Status::Ok);
        let after = look(&cut(&mine)).expect("its power was cut");
        assert!(after == written, "a flushed write is lost by a power cut");
        others(seen, &written, zone);
    }
    // So do a finish and a reset that are acknowledged.
    for op in [Op::ZoneFinish, Op::ZoneReset] {
        let status = c.manage(op, zone);
        if status.is_ok() {
            let mut want = after_restart(&mut c);
            let cond = want[zone as usize].info.cond;
            let done = if op == Op::ZoneReset { Condition::Empty } else { Condition::Full };
            assert_eq!(cond, done, "{op:?} of zone {zone}");
            let mut after = look(&cut(&mine)).expect("its power was cut");
            assert!(after == want, "{op:?} of zone {zone} is lost by a power cut");
            others(seen, &after, zone);
            want.clear();
            after.clear();
        }
    }
    // Closed well, it is as it was.
    let last = after_restart(&mut c);
    drop(c);
    let closed = copy(&mine);
    assert!(look(&closed).expect("it was closed") == last, "closing it changed it");
}

/// What a disk shows, once its open zones are closed by a restart.
fn after_restart(c: &mut Client) -> Vec<Shown> {
    let mut shown = c.look();
    for z in &mut shown {
        if z.info.cond.is_open() {
            let empty = z.info.wp == z.info.start;
            z.info.cond = if empty { Condition::Empty } else { Condition::Closed };
        }
    }
    shown
}

/// All zones but one are as they were. Open zones of others may have been closed, which a restart hides.
fn others(was: &[Shown], is: &[Shown], but: u32) {
    for (n, (a, b)) in (0..).zip(was.iter().zip(is)) {
        assert!(n == but || a == b, "zone {n} changed with zone {but}: {a:?} {b:?}");
    }
}
