//! Held writes of zones whose write pointer becomes unknown, and known again.

use super::common::*;
use super::rules::{rest, windowed};
use zoneplug_core::disk::ZoneRecovery;
use zoneplug_core::{Nanos, Op, Status, ZoneNo};

/// What has come back, by token, after polls until nothing more is due at the device.
fn back_now(r: &mut Rig) -> Vec<(u64, Status)> {
    rest(r);
    (0..r.queues.len()).for_each(|q| r.poll(q));
    let mut all: Vec<_> = r.done.drain(..).map(|b| (b.token(), b.status)).collect();
    all.sort_unstable_by_key(|a| a.0);
    all
}

/// H8: a native append makes the zone stale when it is sent, and again when it has ended.
#[test]
fn h8_a_native_append_ends_what_is_held() {
    let mut r = windowed(|m| m.emu.limits.zone_append_max_sectors = 8);
    r.submit(1, [token(write(16, 8), 7)]);
    r.submit(0, [token(append(0, 8, 500), 1)]);
    r.poll(1);
    let sent: Vec<_> = r.done.drain(..).map(|b| (b.token(), b.status)).collect();
    assert_eq!(sent, [(7, Status::StaleWritePointer)]);
    // A report does not make the zone known while the append is in flight (E6). A reset does; the end of the append makes
    // it stale again.
    r.submit(1, [token(report(0, 1), 2)]);
    r.now = Nanos(100);
    r.poll(1);
    r.submit(1, [token(write(32, 8), 8)]);
    r.submit(1, [token(op(Op::ZoneReset, 0, 64), 3)]);
    r.poll(1);
    r.now = Nanos(200);
    r.poll(1);
    r.submit(1, [token(write(32, 8), 9)]);
    assert_eq!(r.disk.counters().window.writes, 1);
    r.poll(0);
    r.poll(1);
    let mut ended: Vec<_> = r.done.drain(..).map(|b| (b.token(), b.status)).collect();
    ended.sort_unstable_by_key(|e| e.0);
    let (ok, stale) = (Status::Ok, Status::StaleWritePointer);
    assert_eq!(ended, [(1, ok), (2, ok), (3, ok), (8, stale), (9, stale)]);
}

/// H8: a reset with an unknown outcome.
#[test]
fn h8_a_reset_in_doubt_ends_what_is_held() {
    let mut r = windowed(|_| {});
    r.submit(1, [token(write(16, 8), 7)]);
    r.fail(Op::ZoneReset, Status::Timeout);
    r.submit(0, [token(op(Op::ZoneReset, 0, 64), 1)]);
    assert_eq!(back_now(&mut r), [(1, Status::Timeout), (7, Status::StaleWritePointer)]);
}

/// H3, H8: a report of the layer, or one of a client before it, finds the write pointer at the start of a held write.
#[test]
fn h8_a_recovery_may_fill_the_gap() {
    for by_client in [false, true] {
        let mut r = windowed(|m| m.config.zone_recovery = Some(ZoneRecovery::Auto));
        r.submit(1, [token(write(16, 8), 7)]);
        r.fail(Op::Write, Status::Io);
        r.submit(0, [token(write(0, 8), 1)]);
        if !by_client {
            r.dev.set_write_pointer(ZoneNo(0), 16);
        }
        // The write fails, and the layer's report goes to the device.
        r.now = Nanos(100);
        r.poll(0);
        assert_eq!(r.done.len(), 1);
        if by_client {
            r.dev.set_write_pointer(ZoneNo(0), 16);
            r.submit(1, [token(report(0, 1), 2)]);
            r.now = Nanos(200);
            r.poll(1);
            assert_eq!(r.wp(0), 24, "the held write is admitted at once");
        }
        let mut ended = back_now(&mut r);
        ended.retain(|e| e.0 != 2);
        assert_eq!(ended, [(1, Status::Io), (7, Status::Ok)], "by the client: {by_client}");
        assert_eq!(r.wp(0), 24);
    }
}

/// H8: with several writes of a zone in flight.
#[test]
fn h8_a_zone_that_takes_no_writes_holds_none_at_depth() {
    for (fails, held) in
        [(Status::ZoneReadOnly, Status::ZoneReadOnly), (Status::Timeout, Status::StaleWritePointer)]
    {
        let mut r = windowed(|m| {
            m.emu.limits.keeps_write_order = true;
            m.config.zone_write_depth = 4;
        });
        r.submit(1, [token(write(16, 8), 7)]);
        r.fail(Op::Write, fails);
        r.submit(0, [token(write(0, 8), 1)]);
        assert_eq!(back_now(&mut r), [(1, fails), (7, held)]);
    }
}
