//! The answers of single commands, and their requests to the disk.

use super::*;

#[test]
fn an_initiator_learns_what_the_unit_is() {
    let mut m = Machine::new(true);
    let inquiry = m.run(&[0x12, 0, 0, 0, 96, 0], &[]).unwrap();
    assert_eq!((inquiry.len(), inquiry[0], &inquiry[8..16]), (96, 0x14, &b"ZONEPLUG"[..]));
    assert_eq!(m.run(&[0x12, 0, 0, 0, 5, 0], &[]).unwrap().len(), 5, "allocation length");
    let pages = m.run(&[0x12, 1, 0, 0, 255, 0], &[]).unwrap();
    assert_eq!(pages[4..], [0, 0x80, 0x83, 0xb0, 0xb1, 0xb2, 0xb6]);
    for page in &pages[4..] {
        let b = m.run(&[0x12, 1, *page, 4, 0, 0], &[]).unwrap();
        assert_eq!((b[0], b[1], usize::from(b[3])), (0x14, *page, b.len() - 4));
    }
    assert_eq!(m.run(&[0x12, 1, 0xc0, 0, 255, 0], &[]), Err((5, 0x24, 0)));
    let zoned = m.run(&[0x12, 1, 0xb6, 0, 255, 0], &[]).unwrap();
    assert_eq!((zoned[4], zoned[19]), (1, MAX_OPEN as u8));
    let capacity = m.run(&long(0x9e, 0x10, 0, 32), &[]).unwrap();
    assert_eq!((capacity[7], capacity[10], capacity[12]), (BLOCKS as u8 - 1, 0x10, 0x10));
    let luns = m.run(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], &[]).unwrap();
    assert_eq!(luns[..8], [0, 0, 0, 16, 0, 0, 0, 0]);
    assert_eq!(luns[16..18], [0x41, 0x2c], "LUN 300 in flat space");
    assert_eq!(m.run(&[0x1a, 0, 0xc8, 0, 255, 0], &[]), Err((5, 0x39, 0)), "saved pages");
    assert_eq!(m.run(&[0x15, 0x10, 0, 0, 24, 0], &[0; 24]), Err((5, 0x20, 0)), "MODE SELECT");
}

/// A unit of sequential zones with these limits.
fn unit_of(limits: &Limits) -> LogicalUnit {
    let g = Geometry::new(ZONES, SIZE as u32 * 8, SIZE as u32 * 8).unwrap();
    let unit = Unit::zoned(config(true), &g, limits).unwrap();
    let mut lu = LogicalUnit::new(Arc::new(unit));
    lu.enter(NEXUS, Arc::default());
    lu
}

/// The first step of a command that brings so many blocks.
fn first_step(lu: &mut LogicalUnit, cdb: &[u8], blocks: u32) -> TaskStep {
    let data = AlignedBuf::zeroed(blocks * BLOCK);
    let (data_len, expected) = (data.len(), 1 << 20);
    let arrived = Arrived { nexus: NEXUS, cdb, data: Some(&data), data_len, expected, luns: &[0] };
    lu.begin(arrived).1
}

/// S1. The sense data of a block that is none, or where no write may begin, name that block.
#[test]
fn s1_errors_name_their_block() {
    let limits = Limits {
        logical_block_sectors: 8,
        write_granularity_sectors: 16,
        max_transfer_sectors: 64,
        ..Limits::default()
    };
    let mut lu = unit_of(&limits);
    let behind = ZONES * SIZE;
    for (cdb, code, block) in [
        (long(0x88, 0, behind, 1), (0x21, 0), behind),
        (long(0x88, 0, behind - 1, 2), (0x21, 0), behind - 1),
        (long(0x8a, 0, 1, 1), (0x21, 4), 1),
        (long(0x95, 0, behind, 64), (0x21, 0), behind),
        (long(0x94, 3, behind, 0), (0x21, 0), behind),
    ] {
        let TaskStep::Answer(answer) = first_step(&mut lu, &cdb, 2) else {
            panic!("{cdb:x?} is carried out")
        };
        let sense = answer.sense.unwrap();
        assert_eq!((sense.sense.code, sense.sense.qualifier), code, "{cdb:x?}");
        assert_eq!(sense.information, Some(block), "{cdb:x?}");
    }
}

/// S1: the longest transfer and the longest WRITE SAME that a unit reports are the longest that it takes.
#[test]
fn s1_a_unit_takes_what_its_limits_say_and_no_more() {
    let mut limits = Limits { max_transfer_sectors: 24, ..Limits::default() };
    (limits.max_write_zeroes_sectors, limits.logical_block_sectors) = (40, 8);
    let mut lu = unit_of(&limits);
    let mut begin = |cdb: &[u8], blocks: u32| first_step(&mut lu, cdb, blocks);
    let TaskStep::Answer(answer) = begin(&[0x12, 1, 0xb0, 0, 64, 0], 0) else { panic!("it waits") };
    let AnswerData::Bytes(page) = answer.data else { panic!("{answer:?}") };
    let transfer = u32::from_be_bytes(page[8..12].try_into().unwrap());
    let same = u64::from_be_bytes(page[36..44].try_into().unwrap());
    assert_eq!((transfer, same), (3, 5), "in blocks");
    let taken = |step: TaskStep| match step {
        TaskStep::Submit(_) => Ok(()),
        TaskStep::Answer(a) => {
            Err(a.sense.map(|s| (s.sense.key, s.sense.code, s.sense.qualifier)).unwrap())
        }
    };
    for (opcode, most, brings) in [(0x8a, transfer, true), (0x93, same as u32, false)] {
        for (blocks, result) in [(most, Ok(())), (most + 1, Err((5, 0x24, 0)))] {
            let step = begin(&long(opcode, 0, 0, blocks), if brings { blocks } else { 1 });
            assert_eq!(taken(step), result, "{opcode:#x} of {blocks}");
        }
    }
}

/// Each command of the list is known on its own, and a command without service actions is refused one.
#[test]
fn the_report_of_commands_agrees_with_itself() {
    let mut m = Machine::new(true);
    let ask = |m: &mut Machine, option: u8, opcode: u8, action: u8| {
        m.run(&[0xa3, 0x0c, option, opcode, 0, action, 0, 0, 4, 0, 0, 0], &[])
    };
    let all = ask(&mut m, 0, 0, 0).unwrap();
    assert_eq!(all.len() % 8, 4);
    for d in all[4..].chunks(8) {
        let servactv = d[5] & 1 == 1;
        let (right, wrong) = if servactv { (2, 1) } else { (1, 2) };
        let one = ask(&mut m, right, d[0], d[3]).unwrap();
        assert_eq!((one[1], one[3], one[4]), (3, d[7], d[0]));
        assert_eq!(ask(&mut m, wrong, d[0], d[3]), Err((5, 0x24, 0)));
        assert_eq!(ask(&mut m, 3, d[0], d[3]).unwrap(), one);
    }
    assert_eq!(ask(&mut m, 1, 0x15, 0).unwrap(), [0, 1, 0, 0]);
    assert_eq!(ask(&mut m, 2, 0x94, 9).unwrap(), [0, 1, 0, 0]);
}

#[test]
fn attentions_come_once_and_not_before_inquiry() {
    let mut m = Machine::new(true);
    m.lu.notify(CAPACITY_CHANGED, None);
    assert!(m.run(&[0x12, 0, 0, 0, 96, 0], &[]).is_ok());
    let sense = m.run(&[3, 0, 0, 0, 18, 0], &[]).unwrap();
    assert_eq!((sense[2], sense[12], sense[13]), (6, 0x2a, 9));
    let sense = m.run(&[3, 1, 0, 0, 18, 0], &[]).unwrap();
    assert_eq!(sense, [0x72, 0, 0, 0, 0, 0, 0, 0], "reported already");
    m.lu.notify(CAPACITY_CHANGED, Some(NEXUS));
    assert_eq!(m.run(&[0; 6], &[]), Ok(vec![]));
}

#[test]
fn conventional_blocks_are_unmapped_and_others_not() {
    let mut m = Machine::new(true);
    assert_eq!(m.run(&long(0x8a, 0, 2, 2), &bytes(&[5, 5])), Ok(vec![]));
    let list = |lba: u64| {
        let mut b = vec![0, 22, 0, 16, 0, 0, 0, 0];
        b.extend(lba.to_be_bytes());
        b.extend(2u32.to_be_bytes());
        b.extend([0; 4]);
        b
    };
    let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    assert_eq!(m.run(&unmap, &list(2)), Ok(vec![]));
    assert_eq!(m.run(&unmap, &list(SIZE)), Err((5, 0x26, 0)), "a sequential zone");
    assert_eq!(m.run(&unmap, &list(BLOCKS)), Err((5, 0x21, 0)));
    assert_eq!(m.run(&unmap, &list(2)[..16]), Err((5, 0x0e, 3)), "less than it says");
    assert_eq!(m.run(&long(0x8a, 0, 2, 2), &bytes(&[5])), Err((5, 0x0e, 3)), "half of its data");
    assert_eq!(m.run(&long(0x8f, 2, 2, 2), &bytes(&[5])), Err((5, 0x0e, 3)), "half of its data");
    assert_eq!(m.run(&long(0x8f, 4, 2, 2), &bytes(&[5])), Err((5, 0x24, 0)), "BYTCHK of one block");
    assert_eq!(m.run(&long(0x93, 0, 2, 0), &bytes(&[0])), Err((5, 0x24, 0)), "WSNZ");
}

/// S1: an initiator that stops a unit or synchronises its cache takes what was acknowledged before for durable, and so what it
/// has written with FUA.
#[test]
fn s1_a_command_that_promises_durability_asks_the_disk_for_it() {
    let mut m = Machine::new(true);
    let mut asked = |cdb: &[u8]| {
        let mut buffer = AlignedBuf::zeroed(BLOCK);
        buffer.write(0, &bytes(&[5]));
        let arrived = Arrived {
            nexus: NEXUS,
            cdb,
            data: Some(&buffer),
            data_len: BLOCK,
            expected: BLOCK,
            luns: &[0],
        };
        match m.lu.begin(arrived).1 {
            TaskStep::Submit(request) => Some((request.op, request.flags.contains(Flags::FUA))),
            TaskStep::Answer(answer) => {
                assert_eq!(answer.status, ScsiStatus::Good, "{cdb:x?}");
                None
            }
        }
    };
    let flush = Some((Op::Flush, false));
    assert_eq!(asked(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0]), flush, "SYNCHRONIZE CACHE(10)");
    assert_eq!(asked(&long(0x91, 0, 0, 0)), flush, "SYNCHRONIZE CACHE(16)");
    assert_eq!(asked(&[0x1b, 0, 0, 0, 0, 0]), flush, "START STOP UNIT, stop");
    assert_eq!(asked(&[0x1b, 0, 0, 0, 1, 0]), None, "START STOP UNIT, start");
    for (fua, second) in [(false, 0), (true, 8)] {
        let write = Some((Op::Write, fua));
        assert_eq!(asked(&[0x2a, second, 0, 0, 0, 0, 0, 0, 1, 0]), write, "WRITE(10)");
        assert_eq!(asked(&[0xaa, second, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]), write, "WRITE(12)");
        assert_eq!(asked(&long(0x8a, second, 0, 1)), write, "WRITE(16)");
    }
}

/// A unit without zones is a plain disk: device type 0, and no command for zones.
#[test]
fn a_unit_without_zones_is_a_plain_disk() {
    let sectors = zoneplug_core::Sector(64);
    let unit = Unit::conventional(config(true), sectors, &Limits::default()).unwrap();
    let mut lu = LogicalUnit::new(Arc::new(unit));
    let mut begin = |cdb: &[u8]| {
        let c = Arrived { nexus: NEXUS, cdb, data: None, data_len: 0, expected: 255, luns: &[0] };
        lu.begin(c).1
    };
    let TaskStep::Answer(a) = begin(&[0x12, 0, 0, 0, 255, 0]) else { panic!("no answer") };
    let AnswerData::Bytes(b) = a.data else { panic!("no data") };
    assert_eq!(b[0], 0);
    let TaskStep::Answer(a) = begin(&long(0x95, 0, 0, 64)) else { panic!("no answer") };
    assert_eq!(a.sense.unwrap().sense.code, 0x20);
    assert!(matches!(begin(&long(0x88, 0, 0, 8)), TaskStep::Submit(r) if r.len_sectors == 64));
}

#[test]
fn a_number_without_a_unit_is_answered() {
    let a = answer_without_unit(&[0x12, 0, 0, 0, 96, 0], &[0]);
    assert!(matches!(a.data, AnswerData::Bytes(b) if b[0] == 0x7f && b.len() == 96));
    let a = answer_without_unit(&[0; 6], &[0]);
    assert_eq!(a.sense.map(|s| s.sense.code), Some(0x25));
    let a = answer_without_unit(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], &[0]);
    assert!(matches!(a.data, AnswerData::Bytes(b) if b[3] == 8));
    assert_eq!(decode_lun([0x41, 0x2c, 0, 0, 0, 0, 0, 0]), Some(300));
    assert_eq!(decode_lun([0, 3, 0, 0, 0, 0, 0, 0]), Some(3));
    assert_eq!(decode_lun([0x80, 3, 0, 0, 0, 0, 0, 0]), None);
    assert_eq!(decode_lun([0, 3, 0, 1, 0, 0, 0, 0]), None, "two levels");
}

/// One initiator reserves the unit, the other sees a conflict until the reservation is cleared.
#[test]
fn a_reservation_keeps_others_out() {
    let unit = Unit::conventional(config(true), zoneplug_core::Sector(64), &Limits::default());
    let mut lu = LogicalUnit::new(Arc::new(unit.unwrap()));
    let mut begin = |nexus: u64, cdb: &[u8], list: &[u8]| {
        let mut buffer = AlignedBuf::zeroed(list.len() as u32);
        buffer.write(0, list);
        let (nexus, data_len) = (Nexus(nexus), list.len() as u32);
        let c = Arrived { nexus, cdb, data: Some(&buffer), data_len, expected: 255, luns: &[0] };
        match lu.begin(c).1 {
            TaskStep::Submit(_) => (ScsiStatus::Good, None),
            TaskStep::Answer(a) => (a.status, a.sense.map(|s| s.sense.code)),
        }
    };
    let list = |key: u8, new: u8| {
        let mut list = [0; 24];
        (list[7], list[15]) = (key, new);
        list
    };
    let out = |action: u8, kind: u8| [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    let read = long(0x88, 0, 0, 8);
    let good = (ScsiStatus::Good, None);
    assert_eq!(begin(1, &out(0, 0), &list(0, 9)), good);
    assert_eq!(begin(1, &out(1, 3), &list(9, 0)), good);
    assert_eq!(begin(2, &read, &[]), (ScsiStatus::ReservationConflict, None));
    assert_eq!(begin(2, &[0; 6], &[]), good);
    assert_eq!(begin(1, &read, &[]), good);
    assert_eq!(begin(2, &out(3, 0), &list(9, 0)), (ScsiStatus::ReservationConflict, None));
    assert_eq!(begin(1, &out(3, 0), &list(9, 0)[..8]), (ScsiStatus::CheckCondition, Some(0x24)));
    assert_eq!(begin(1, &out(3, 0), &list(9, 0)), good);
    assert_eq!(begin(2, &read, &[]), good);
}
