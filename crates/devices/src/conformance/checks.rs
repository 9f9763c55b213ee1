//! The list of checks, and the checks of the rules of zones. Each check finds every sequential zone empty, and need
//! not clean up.

use super::queues::{
    an_armed_queue_wakes_or_has_a_deadline, an_idle_queue_has_nothing,
    deadlines_lead_to_completion, every_command_comes_back_once, the_depth_is_respected_in_order,
    two_queues_get_their_own,
};
use super::{Check, Ctx, FULL, INVALID, NOT_AT_WP, PAST, TRANSITION, stamp};
use zoneplug_core::bio::{Bio, Command, Flags, Op, Status};
use zoneplug_core::unit::{SECTOR_SIZE, Sector};
use zoneplug_core::zone::{Condition, ZoneType};

use Condition::{Closed, Empty, ExpOpen, Full, ImpOpen};
const OK: &[Status] = &[Status::Ok];

macro_rules! list {
    ($($name:ident),* $(,)?) => {
        pub(super) const ALL: &[(&str, Check)] = &[$((stringify!($name), $name)),*];
    };
}

list![
    the_layout_is_one,
    a_report_describes_every_zone,
    a_report_starts_at_the_zone_of_its_sector,
    what_is_written_is_read_back,
    a_merged_command_moves_all_its_buffers,
    a_write_that_is_not_at_the_write_pointer_changes_nothing,
    a_write_past_the_capacity_changes_nothing,
    a_filled_zone_is_full,
    conditions_follow_the_rules,
    reset_all_empties_every_sequential_zone,
    management_takes_exactly_one_zone,
    open_zones_are_limited,
    active_zones_are_limited,
    reads_past_the_write_pointer_are_zeroes,
    reads_do_not_leak_over_the_end_of_a_zone,
    zeroes_are_written_in_order,
    a_native_append_says_where_it_landed,
    conventional_zones_are_written_anywhere,
    the_last_zone_has_its_own_capacity,
    a_command_that_is_wrong_is_refused,
    errors_leave_the_queue_usable,
    flush_and_forced_writes_complete,
    the_depth_is_respected_in_order,
    every_command_comes_back_once,
    two_queues_get_their_own,
    an_idle_queue_has_nothing,
    deadlines_lead_to_completion,
    an_armed_queue_wakes_or_has_a_deadline,
];

/// V2, V3. The reported zones agree with the geometry.
fn the_layout_is_one(x: &mut Ctx) {
    let g = *x.geometry();
    let zones = x.report(Sector(0), u32::MAX);
    assert_eq!(zones.len(), g.nr_zones() as usize);
    let mut at = Sector(0);
    for z in &zones {
        assert_eq!(z.start, at, "no gap and no overlap");
        let conv = z.zone_type == ZoneType::Conventional;
        assert_eq!(conv, z.cond == Condition::NotWp);
        assert!(z.len_sectors > 0 && z.len_sectors <= u64::from(g.zone_sectors()));
        assert!(z.capacity_sectors > 0 && z.capacity_sectors <= z.len_sectors);
        assert!(z.cond != Condition::Active, "M12");
        at = at.plus(z.len_sectors);
    }
    assert_eq!(at, g.capacity());
    assert!(zones.iter().any(|z| z.zone_type == ZoneType::SeqWriteRequired));
    let l = x.limits();
    assert!(l.logical_block_sectors.is_power_of_two());
    assert!(l.write_granularity_sectors.is_multiple_of(l.logical_block_sectors));
    assert!(l.max_active_zones == 0 || l.max_open_zones <= l.max_active_zones, "O1");
}

fn a_report_describes_every_zone(x: &mut Ctx) {
    let g = *x.geometry();
    for (i, z) in x.report(Sector(0), u32::MAX).iter().enumerate() {
        let no = zoneplug_core::ZoneNo(i as u32);
        assert_eq!(z.start, g.zone_start(no));
        assert_eq!(z.len_sectors, u64::from(g.zone_len_sectors(no)));
        assert_eq!(z.capacity_sectors, u64::from(g.capacity_of(no)));
        assert_eq!(z.zone_type, g.zone_type(no));
        match z.zone_type {
            ZoneType::Conventional => assert_eq!(z.wp, Sector(u64::MAX)),
            ZoneType::SeqWriteRequired => assert_eq!((z.cond, z.wp), (Empty, z.start)),
        }
    }
}

fn a_report_starts_at_the_zone_of_its_sector(x: &mut Ctx) {
    let all = x.report(Sector(0), u32::MAX);
    let size = u64::from(x.geometry().zone_sectors());
    let mid = (all.len() / 2) as u64;
    for sector in [mid * size, mid * size + size.min(all[mid as usize].len_sectors) - 1] {
        assert_eq!(x.report(Sector(sector), u32::MAX), all[mid as usize..]);
        assert_eq!(x.report(Sector(sector), 1), all[mid as usize..=mid as usize]);
    }
    assert_eq!(x.report(Sector(0), 0), []);
    let end = x.geometry().capacity();
    let mut c = Command::without_data(Op::ReportZones, end, 0);
    c.report_max = 1;
    x.expect(c, INVALID);
}

fn what_is_written_is_read_back(x: &mut Ctx) {
    let (zone, start, cap) = x.zone();
    let (u, n) = (x.unit(), x.longest().min(cap / 2 / x.unit() * x.unit()).max(x.unit()));
    x.write(start, u, 1, OK);
    x.assert_zone(zone, if u == cap { &[Full] } else { &[ImpOpen] }, u);
    if cap >= u + n {
        let at = start.plus(u64::from(u));
        x.write(at, n, 2, OK);
        x.verify(at, n, Some((2, 0)));
        x.verify(at.plus(u64::from(n - u)), u, Some((2, n - u)));
    }
    x.verify(start, u, Some((1, 0)));
}

fn a_merged_command_moves_all_its_buffers(x: &mut Ctx) {
    let (zone, start, cap) = x.zone();
    let (u, max_bios) = (x.unit(), x.limits().max_bios);
    let n = (x.longest().min(cap) / u).min(5);
    if n < 2 || (max_bios != 0 && max_bios < n) {
        return;
    }
    let build = |x: &mut Ctx, lens: &[u32]| {
        let mut c = x.data_out(Op::Write, start, n * u, 7);
        let mut mem = c.bios[0].take_buf();
        c.bios.clear();
        let mut at = 0;
        for len in lens {
            let buf = mem.split_to(len * SECTOR_SIZE);
            c.bios.push(Bio::with_buf(Op::Write, start.plus(u64::from(at)), *len, buf));
            at += len;
        }
        c
    };
    if x.keeps_data {
        let short = build(x, &vec![u; n as usize - 1]);
        x.expect(short, INVALID);
        let mut gap = build(x, &vec![u; n as usize]);
        gap.bios[1].sector = gap.bios[1].sector.plus(u64::from(u));
        x.expect(gap, INVALID);
        x.assert_zone(zone, &[Empty], 0);
    }
    let good = build(x, &vec![u; n as usize]);
    let back = x.expect(good, OK);
    assert_eq!(back.bios.len(), n as usize, "the BIOs come back with their command");
    x.verify(start, n * u, Some((7, 0)));
}

fn a_write_that_is_not_at_the_write_pointer_changes_nothing(x: &mut Ctx) {
    let (zone, start, cap) = x.zone();
    let u = x.unit();
    if cap < 4 * u {
        return;
    }
    x.write(start.plus(u64::from(u)), u, 3, NOT_AT_WP);
    x.assert_zone(zone, &[Empty], 0);
    x.write(start, 2 * u, 4, OK);
    for wrong in [0, u, 3 * u] {
        x.write(start.plus(u64::from(wrong)), u, 5, NOT_AT_WP);
        x.assert_zone(zone, &[ImpOpen], 2 * u);
    }
    x.verify(start, 2 * u, Some((4, 0)));
    x.verify(start.plus(u64::from(2 * u)), 2 * u, None);
    x.write(start.plus(u64::from(2 * u)), u, 6, OK);
}

/// W10. A write past the capacity fails and changes nothing.
fn a_write_past_the_capacity_changes_nothing(x: &mut Ctx) {
    let (zone, start, cap) = x.zone();
    let u = x.unit();
    x.fill(zone, 0);
    x.manage(Op::ZoneReset, zone, OK);
    let mut at = 0;
    while at + u < cap {
        let n = x.longest().min(cap - u - at);
        x.write(start.plus(u64::from(at)), n, 1, OK);
        at += n;
    }
    if x.longest() >= 2 * u && at > 0 {
        x.write(start.plus(u64::from(at)), 2 * u, 2, PAST);
        x.assert_zone(zone, &[ImpOpen], at);
    }
    x.write(start.plus(u64::from(at)), u, 3, OK);
    x.assert_zone(zone, &[Full], cap);
}

/// O6. A zone whose capacity is written is full.
fn a_filled_zone_is_full(x: &mut Ctx) {
    let (zone, start, cap) = x.zone();
    x.fill(zone, 0);
    x.assert_zone(zone, &[Full], cap);
    let u = x.unit();
    x.write(start, u, 1, &[FULL, NOT_AT_WP].concat());
    if cap < x.geometry().zone_len_sectors(zone) {
        x.write(start.plus(u64::from(cap)), u, 1, &[FULL, PAST].concat());
    }
    x.assert_zone(zone, &[Full], cap);
    x.manage(Op::ZoneReset, zone, OK);
    x.assert_zone(zone, &[Empty], 0);
    x.write(start, u, 1, OK);
}

/// O4. Closing a zone that was never written leaves it empty (ZBC) or closed (ZNS).
fn conditions_follow_the_rules(x: &mut Ctx) {
    let (zone, start, cap) = x.zone();
    let u = x.unit();
    if cap < 2 * u {
        return;
    }
    x.manage(Op::ZoneReset, zone, OK);
    x.close_in_vain(zone);
    x.assert_zone(zone, &[Empty], 0);
    x.manage(Op::ZoneOpen, zone, OK);
    x.manage(Op::ZoneOpen, zone, OK);
    x.assert_zone(zone, &[ExpOpen], 0);
    x.manage(Op::ZoneClose, zone, OK);
    x.assert_zone(zone, &[Empty, Closed], 0);
    x.write(start, u, 1, OK);
    x.assert_zone(zone, &[ImpOpen], u);
    x.manage(Op::ZoneClose, zone, OK);
    x.manage(Op::ZoneClose, zone, OK);
    x.assert_zone(zone, &[Closed], u);
    x.manage(Op::ZoneOpen, zone, OK);
    x.assert_zone(zone, &[ExpOpen], u);
    x.manage(Op::ZoneFinish, zone, OK);
    x.manage(Op::ZoneFinish, zone, OK);
    x.assert_zone(zone, &[Full], cap);
    let nothing: &[Status] = if x.drive { OK } else { &[] };
    x.manage(Op::ZoneOpen, zone, &[TRANSITION, nothing].concat());
    x.close_in_vain(zone);
    x.assert_zone(zone, &[Full], cap);
    x.manage(Op::ZoneReset, zone, OK);
    x.manage(Op::ZoneFinish, zone, OK);
    x.assert_zone(zone, &[Full], cap);
    x.manage(Op::ZoneReset, zone, OK);
    x.assert_zone(zone, &[Empty], 0);
}

fn reset_all_empties_every_sequential_zone(x: &mut Ctx) {
    let zones = x.sequential();
    let u = x.unit();
    for (i, &z) in zones.iter().enumerate().take(4) {
        let start = x.geometry().zone_start(z);
        match i {
            0 => x.manage(Op::ZoneFinish, z, OK),
            1 => x.write(start, u, 1, OK),
            2 => x.manage(Op::ZoneOpen, z, &[Status::Ok, Status::OpenLimit, Status::ActiveLimit]),
            _ => Status::Ok,
        };
    }
    x.expect(Command::without_data(Op::ZoneResetAll, Sector(0), 0), OK);
    assert_eq!(x.count(Empty), zones.len());
}

fn management_takes_exactly_one_zone(x: &mut Ctx) {
    let (zone, start, _) = x.zone();
    let len = x.geometry().zone_len_sectors(zone);
    let u = x.unit();
    x.write(start, u, 1, OK);
    let before = x.info(zone);
    for op in [Op::ZoneOpen, Op::ZoneClose, Op::ZoneFinish, Op::ZoneReset] {
        if len > u {
            x.expect(Command::without_data(op, start.plus(u64::from(u)), len), INVALID);
            x.expect(Command::without_data(op, start, len - u), INVALID);
        }
        let end = x.geometry().capacity();
        x.expect(Command::without_data(op, end, len), INVALID);
        if let Some(c) = x.conventional() {
            x.manage(op, c, INVALID);
        }
        assert_eq!(x.info(zone), before, "{op:?} that was refused changed {zone}");
    }
}

/// O3, O4, O5, R33. The device enforces its limits of open and active zones.
fn open_zones_are_limited(x: &mut Ctx) {
    let (max, active) = (x.limits().max_open_zones as usize, x.limits().max_active_zones as usize);
    let zones = x.sequential();
    let u = x.unit();
    let start = |x: &Ctx, i: usize| x.geometry().zone_start(zones[i]);
    if max == 0 || zones.len() <= max || zones.iter().any(|&z| x.geometry().capacity_of(z) < 4 * u)
    {
        return;
    }
    for i in 0..max {
        let at = start(x, i);
        x.write(at, u, 1, OK);
    }
    assert_eq!(x.count(ImpOpen), max);
    let at = start(x, max);
    if active == max {
        x.write(at, u, 1, &[Status::ActiveLimit]);
        x.assert_zone(zones[max], &[Empty], 0);
        assert_eq!(x.count(ImpOpen), max);
    } else {
        x.write(at, u, 1, OK);
        assert_eq!((x.count(ImpOpen), x.count(Closed)), (max, 1));
    }
    // A closed zone may be opened at any limit, because it is active already.
    x.manage(Op::ZoneClose, zones[max - 1], OK);
    let at = start(x, max - 1).plus(u64::from(u));
    x.write(at, u, 1, OK);
    x.assert_zone(zones[max - 1], &[ImpOpen], 2 * u);

    x.expect(Command::without_data(Op::ZoneResetAll, Sector(0), 0), OK);
    for &z in &zones[..max] {
        x.manage(Op::ZoneOpen, z, OK);
    }
    let limit = if active == max { Status::ActiveLimit } else { Status::OpenLimit };
    let at = start(x, max);
    x.write(at, u, 1, &[limit]);
    x.manage(Op::ZoneOpen, zones[max], &[limit]);
    // Drives differ in whether a zone that is being finished is open for a moment.
    let nothing: &[Status] = if x.drive { OK } else { &[] };
    if x.manage(Op::ZoneFinish, zones[max], &[&[limit], nothing].concat()).is_ok() {
        x.manage(Op::ZoneReset, zones[max], OK);
    }
    x.assert_zone(zones[max], &[Empty], 0);
    assert_eq!(x.count(ExpOpen), max, "an explicitly open zone is never closed for another");
    x.manage(Op::ZoneReset, zones[0], OK);
    x.write(at, u, 1, OK);
    // An explicit open may close a zone that is open implicitly; that zone stays active.
    if active == max {
        x.manage(Op::ZoneOpen, zones[0], &[Status::ActiveLimit]);
    } else {
        x.manage(Op::ZoneOpen, zones[0], OK);
        x.assert_zone(zones[max], &[Closed], u);
    }
}

fn active_zones_are_limited(x: &mut Ctx) {
    let max = x.limits().max_active_zones as usize;
    let zones = x.sequential();
    let u = x.unit();
    if max == 0 || zones.len() <= max || zones.iter().any(|&z| x.geometry().capacity_of(z) < 4 * u)
    {
        return;
    }
    for &z in &zones[..max] {
        let at = x.geometry().zone_start(z);
        x.write(at, u, 1, OK);
        x.manage(Op::ZoneClose, z, OK);
    }
    let at = x.geometry().zone_start(zones[max]);
    x.write(at, u, 1, &[Status::ActiveLimit]);
    x.manage(Op::ZoneOpen, zones[max], &[Status::ActiveLimit]);
    x.assert_zone(zones[max], &[Empty], 0);
    let first = x.geometry().zone_start(zones[0]).plus(u64::from(u));
    x.write(first, u, 1, OK);
    x.manage(Op::ZoneFinish, zones[0], OK);
    x.write(at, u, 1, OK);
}

/// O7. Data from before a reset do not show.
fn reads_past_the_write_pointer_are_zeroes(x: &mut Ctx) {
    let (zone, start, cap) = x.zone();
    let (u, len) = (x.unit(), x.geometry().zone_len_sectors(zone));
    if cap < 4 * u || x.longest() < 4 * u {
        return;
    }
    x.verify(start, 4 * u, None);
    x.fill(zone, 0);
    x.manage(Op::ZoneReset, zone, OK);
    x.verify(start, 4 * u, None);
    x.write(start, 2 * u, 9, OK);
    x.verify(start.plus(u64::from(2 * u)), 2 * u, None);
    x.verify(start, 2 * u, Some((9, 0)));
    let end = start.plus(u64::from(len - u));
    x.verify(end, u, None);
    x.manage(Op::ZoneFinish, zone, OK);
    x.verify(start, 2 * u, Some((9, 0)));
    x.verify(start.plus(u64::from(2 * u)), 2 * u, None);
    x.verify(end, u, None);
}

/// N6. A read across the end of a zone is refused, or returns the right data.
fn reads_do_not_leak_over_the_end_of_a_zone(x: &mut Ctx) {
    let zones = x.sequential();
    let u = x.unit();
    let Some(w) = zones.windows(2).find(|w| w[0].0 + 1 == w[1].0) else { return };
    if x.longest() < 2 * u {
        return;
    }
    let next = x.geometry().zone_start(w[1]);
    x.write(next, u, 11, OK);
    let c = x.data_in(Sector(next.0 - u64::from(u)), 2 * u);
    let c = x.expect(c, &[Status::Ok, Status::Boundary, Status::InvalidField]);
    if c.status.is_ok() && x.keeps_data {
        let mut got = vec![1; (2 * u * SECTOR_SIZE) as usize];
        c.bios[0].data().copy_to(0, &mut got);
        let (end, begin) = got.split_at((u * SECTOR_SIZE) as usize);
        assert!(end.iter().all(|&b| b == 0), "the end of an empty zone is not zeroes");
        assert_eq!(begin[..8], stamp(11, 0)[..8], "not the start of the next zone");
    }
    x.verify(next, u, Some((11, 0)));
}

fn zeroes_are_written_in_order(x: &mut Ctx) {
    let (zone, start, cap) = x.zone();
    let u = x.unit();
    let zeroes = |at: u32| Command::without_data(Op::WriteZeroes, start.plus(u64::from(at)), u);
    let max = x.limits().max_write_zeroes_sectors;
    if max == 0 {
        x.expect(zeroes(0), &[Status::NotSupported]);
        return;
    }
    if max < u || cap < 4 * u {
        return;
    }
    x.fill(zone, 0);
    x.manage(Op::ZoneReset, zone, OK);
    x.write(start, u, 5, OK);
    x.expect(zeroes(0), NOT_AT_WP);
    x.assert_zone(zone, &[ImpOpen], u);
    x.expect(zeroes(u), OK);
    x.assert_zone(zone, &[ImpOpen], 2 * u);
    x.write(start.plus(u64::from(2 * u)), u, 6, OK);
    x.verify(start.plus(u64::from(u)), u, None);
    x.verify(start.plus(u64::from(2 * u)), u, Some((6, 0)));
}

/// A1, A4, A9. A native append reports the sector where its data landed.
fn a_native_append_says_where_it_landed(x: &mut Ctx) {
    let (zone, start, cap) = x.zone();
    let u = x.unit();
    let max = x.limits().zone_append_max_sectors;
    if max == 0 {
        let c = x.data_out(Op::ZoneAppend, start, u, 0);
        x.expect(c, &[Status::NotSupported]);
        x.assert_zone(zone, &[Empty], 0);
        return;
    }
    let n = max.min(x.longest()).min(cap / 4) / u * u;
    if n == 0 {
        return;
    }
    let mut at = 0;
    while at < cap {
        let len = n.min(cap - at);
        if len < n {
            let c = x.data_out(Op::ZoneAppend, start, n, 0);
            x.expect(c, PAST);
            x.assert_zone(zone, &[ImpOpen], at);
        }
        let c = x.data_out(Op::ZoneAppend, start, len, u64::from(at));
        let c = x.expect(c, OK);
        assert_eq!(c.sector, start.plus(u64::from(at)));
        x.verify(c.sector, len, Some((u64::from(at), 0)));
        at += len;
    }
    x.assert_zone(zone, &[Full], cap);
    let c = x.data_out(Op::ZoneAppend, start, u, 0);
    x.expect(c, FULL);
    x.manage(Op::ZoneReset, zone, OK);
    let c = x.data_out(Op::ZoneAppend, start.plus(u64::from(u)), u, 0);
    x.expect(c, INVALID);
    if max < x.longest() {
        let c = x.data_out(Op::ZoneAppend, start, max + u, 0);
        x.expect(c, INVALID);
    }
    if let Some(conv) = x.conventional() {
        let c = x.data_out(Op::ZoneAppend, x.geometry().zone_start(conv), u, 0);
        x.expect(c, INVALID);
    }
    x.assert_zone(zone, &[Empty], 0);
}

fn conventional_zones_are_written_anywhere(x: &mut Ctx) {
    let Some(zone) = x.conventional() else { return };
    let (start, len) = (x.geometry().zone_start(zone), x.geometry().capacity_of(zone));
    let u = x.limits().logical_block_sectors;
    if len < 4 * u {
        return;
    }
    let at = |i: u32| start.plus(u64::from(i * u));
    let last = len / u - 1;
    for i in [2, 0, last, 2, 1] {
        x.write(at(i), u, u64::from(i), OK);
    }
    for i in [0, 1, 2, last] {
        x.verify(at(i), u, Some((u64::from(i), 0)));
    }
    if x.limits().discard {
        x.expect(Command::without_data(Op::Discard, at(1), u), OK);
        x.verify(at(0), u, Some((0, 0)));
        let (z, s, _) = x.zone();
        let n = x.unit();
        x.write(s, n, 3, OK);
        x.expect(Command::without_data(Op::Discard, s, n), INVALID);
        x.assert_zone(z, &[ImpOpen, Full], n);
        x.verify(s, n, Some((3, 0)));
    }
    if x.limits().max_write_zeroes_sectors >= u {
        x.expect(Command::without_data(Op::WriteZeroes, at(2), u), OK);
        x.verify(at(2), u, None);
    }
    assert_eq!(x.info(zone).0, Condition::NotWp);
}

/// W18. The last zone may have a smaller capacity.
fn the_last_zone_has_its_own_capacity(x: &mut Ctx) {
    let Some(&zone) = x.sequential().last() else { return };
    if zone.0 + 1 != x.geometry().nr_zones() {
        return;
    }
    let (start, cap) = (x.geometry().zone_start(zone), x.geometry().capacity_of(zone));
    let u = x.unit();
    x.fill(zone, 0);
    x.assert_zone(zone, &[Full], cap);
    x.write(start.plus(u64::from(cap - u)), u, 1, &[FULL, NOT_AT_WP].concat());
    x.manage(Op::ZoneReset, zone, OK);
    x.assert_zone(zone, &[Empty], 0);
    let end = x.geometry().capacity();
    x.verify(Sector(end.0 - u64::from(u)), u, None);
    x.write(end, u, 1, INVALID);
}

fn a_command_that_is_wrong_is_refused(x: &mut Ctx) {
    let (zone, start, _) = x.zone();
    let (l, end) = (x.limits().clone(), x.geometry().capacity());
    let (u, b) = (x.unit(), l.logical_block_sectors);
    for op in [Op::Read, Op::Write] {
        let mut wrong =
            vec![(start, 0), (end, b), (Sector(u64::MAX - 7), b), (Sector(u64::MAX), 1)];
        if b > 1 {
            wrong.extend([(start.plus(1), b), (start, 1)]);
        }
        if op == Op::Write && u > b {
            wrong.extend([(start, b)]);
        }
        let max = l.max_transfer_sectors;
        if max != 0 && max + b <= super::MAX_BYTES / SECTOR_SIZE {
            wrong.push((start, max / b * b + b));
        }
        for (sector, len) in wrong {
            let c = x.data_out(op, sector, len, 0);
            x.expect(c, INVALID);
        }
        // The buffer is shorter than the command.
        let mut c = x.data_out(op, start, u, 0);
        let short = c.bios[0].take_buf().split_to(u * SECTOR_SIZE / 2);
        c.bios[0].set_buf(short);
        if x.keeps_data {
            x.expect(c, INVALID);
        } else {
            // A disk that does not look at buffers need not notice.
            x.expect(c, &[INVALID, OK].concat());
            x.manage(Op::ZoneReset, zone, OK);
        }
    }
    x.assert_zone(zone, &[Empty], 0);
}

fn errors_leave_the_queue_usable(x: &mut Ctx) {
    let (zone, start, cap) = x.zone();
    let u = x.unit();
    let n = (cap / u).min(8);
    for i in 0..n {
        let at = start.plus(u64::from(i * u));
        if i + 1 < n {
            x.write(at.plus(u64::from(u)), u, 1, NOT_AT_WP);
        }
        x.assert_zone(zone, if i == 0 { &[Empty] } else { &[ImpOpen] }, i * u);
        x.write(at, u, u64::from(i), OK);
        x.verify(at, u, Some((u64::from(i), 0)));
    }
}

fn flush_and_forced_writes_complete(x: &mut Ctx) {
    let (_, start, cap) = x.zone();
    let u = x.unit();
    x.expect(Command::without_data(Op::Flush, Sector(0), 0), OK);
    let mut c = x.data_out(Op::Write, start, u, 1);
    // A device without FUA never gets that flag.
    c.flags =
        if x.device.limits().fua { Flags::FUA.with(Flags::PREFLUSH) } else { Flags::PREFLUSH };
    x.expect(c, OK);
    x.verify(start, u, Some((1, 0)));
    x.expect(Command::without_data(Op::Flush, Sector(0), 0), OK);
    if cap > u {
        x.write(start.plus(u64::from(u)), u, 2, OK);
    }
}
