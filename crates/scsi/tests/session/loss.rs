//! Writes whose answers were lost, and that the initiator sends again.

use crate::cdb::{read_cdb, write_cdb};
use crate::common::{Fragments, Peer, word};
use crate::{BLOCK, pattern};
use zoneplug_scsi::iscsi::{Header, opcode};

const KEYS: &str = "InitialR2T=No\0";
/// UNALIGNED WRITE COMMAND: the write is not at the write pointer.
const UNALIGNED: Option<(u8, u8, u8)> = Some((5, 0x21, 4));

fn login() -> Peer {
    Peer::log_in(KEYS, Fragments::whole())
}

/// Writes blocks, and returns the status and the sense.
fn write(peer: &mut Peer, lba: u64, data: &[u8]) -> (u8, Option<(u8, u8, u8)>) {
    let tag = peer.write(&write_cdb(lba, (data.len() / BLOCK) as u32), data);
    let answer = peer.answer(tag);
    (answer.status, answer.sense)
}

fn read(peer: &mut Peer, lba: u64, blocks: usize) -> Vec<u8> {
    let tag = peer.read(&read_cdb(lba, blocks as u32), (blocks * BLOCK) as u32);
    peer.answer(tag).data
}

/// S13. A write that was at the disk when the connection ended, and one whose answer was not acknowledged, succeed when they are
/// sent again. What follows them is written. Other data are refused.
#[test]
fn s13_a_write_whose_answer_was_lost_is_recognised() {
    for in_flight in [true, false] {
        let mut peer = login();
        peer.holds_disk(in_flight);
        peer.write(&write_cdb(16, 2), &pattern(2, 1));
        peer.exchange();
        let mut next = peer.lose(KEYS);
        assert_eq!(write(&mut next, 16, &pattern(2, 9)), (2, UNALIGNED), "other data");
        let longer = [pattern(2, 1), pattern(3, 2)].concat();
        assert_eq!(write(&mut next, 16, &pattern(2, 1)), (0, None));
        assert_eq!(write(&mut next, 17, &longer[BLOCK..]), (0, None), "the rest is written");
        assert_eq!(next.replayed(), 2);
        assert!(read(&mut next, 16, 5) == longer);
        assert_eq!(write(&mut next, 21, &pattern(1, 3)), (0, None));
    }
}

/// S13. An answer that the initiator has acknowledged is not lost. Nor is a write that no loss precedes.
#[test]
fn s13_an_acknowledged_write_is_refused_as_ever() {
    let mut peer = login();
    assert_eq!(write(&mut peer, 16, &pattern(1, 1)), (0, None));
    assert_eq!(write(&mut peer, 16, &pattern(1, 1)), (2, UNALIGNED), "no loss");
    // The next command acknowledges all answers.
    read(&mut peer, 16, 1);
    let mut next = peer.lose(KEYS);
    assert_eq!(write(&mut next, 16, &pattern(1, 1)), (2, UNALIGNED));
    assert_eq!(next.replayed(), 0);
}

/// S13. A command that expects the number of an answer has not had it: the answer is lost with the connection.
#[test]
fn s13_an_answer_that_is_still_expected_is_not_acknowledged() {
    let mut peer = login();
    peer.write(&write_cdb(16, 2), &pattern(2, 1));
    let answer = peer.take(opcode::RESPONSE).unwrap().header;
    let number = word(&answer, 24);
    let test_unit_ready = Header::new(opcode::COMMAND).with_flags(0x80).with_word(16, 1000);
    peer.push(test_unit_ready.with_word(24, peer.cmd_sn).with_word(28, number), &[]);
    assert_eq!(peer.answer(1000).status, 0);
    let mut next = peer.lose(KEYS);
    assert_eq!(write(&mut next, 16, &pattern(2, 1)), (0, None));
    assert_eq!(next.replayed(), 1);
}

/// S13. Later than 20 s after the initiator is back, and after a reset of the zone, a write is a new one.
#[test]
fn s13_what_is_lost_is_looked_for_until_a_reset_and_for_a_time() {
    let mut peer = login();
    peer.write(&write_cdb(16, 2), &pattern(2, 1));
    let mut next = peer.lose(KEYS);
    // The time begins with the first command that a disk gets.
    next.wait(100);
    read(&mut next, 0, 1);
    next.wait(19);
    assert_eq!(write(&mut next, 16, &pattern(2, 1)), (0, None));
    next.wait(2);
    assert_eq!(write(&mut next, 16, &pattern(2, 1)), (2, UNALIGNED));
    let mut last = next.lose(KEYS);
    let mut reset = [0; 16];
    (reset[0], reset[1], reset[9]) = (0x94, 4, 16);
    let tag = last.command(0x80, &reset, 0, &[]);
    assert_eq!(last.answer(tag).status, 0);
    assert_eq!(write(&mut last, 16, &pattern(2, 1)), (0, None));
    assert_eq!(write(&mut last, 16, &pattern(2, 1)), (2, UNALIGNED));
    assert_eq!(last.replayed(), 1);
}

/// S13. A write that fills its zone is recognised too. With other data it is refused as a write to a full zone.
#[test]
fn s13_a_write_to_a_full_zone_is_recognised() {
    let mut peer = login();
    peer.write(&write_cdb(16, 16), &pattern(16, 1));
    let mut next = peer.lose(KEYS);
    assert_eq!(write(&mut next, 16, &pattern(16, 2)), (2, Some((5, 0x24, 0))), "other data");
    assert_eq!(write(&mut next, 16, &pattern(16, 1)), (0, None));
    assert_eq!(next.replayed(), 1);
}

/// S6, S13. An initiator that has aborted a write does not know whether it was carried out, and may send it again in the
/// same session.
#[test]
fn s13_a_write_that_was_aborted_is_recognised() {
    for function in [1, 2, 5, 6] {
        let mut peer = login();
        peer.holds_disk(true);
        let tag = peer.write(&write_cdb(16, 2), &pattern(2, 1));
        peer.exchange();
        peer.send_manage(function, tag);
        peer.exchange();
        assert!(peer.pdus.is_empty(), "the disk has the write");
        peer.holds_disk(false);
        peer.exchange();
        peer.pdus.clear();
        assert_eq!(write(&mut peer, 16, &pattern(2, 2)), (2, UNALIGNED), "other data");
        assert_eq!(write(&mut peer, 16, &pattern(2, 1)), (0, None), "function {function}");
        assert_eq!(peer.replayed(), 1);
        peer.wait(21);
        assert_eq!(write(&mut peer, 16, &pattern(2, 1)), (2, UNALIGNED), "too late");
    }
}

/// S13. WRITE SAME is recognised by what is on the disk: zeroes, with their block of data and without, and another block.
#[test]
fn s13_a_block_that_is_repeated_is_recognised() {
    let mut peer = login();
    let mut cdb = write_cdb(16, 3);
    cdb[0] = 0x93;
    let block = pattern(1, 7);
    peer.command(0xa0, &cdb, BLOCK as u32, &block);
    peer.exchange();
    let mut next = peer.lose(KEYS);
    let tag = next.command(0xa0, &cdb, BLOCK as u32, &pattern(1, 8));
    assert_eq!(next.answer(tag).sense, UNALIGNED, "another block");
    let tag = next.command(0xa0, &cdb, BLOCK as u32, &block);
    assert_eq!((next.answer(tag).status, next.replayed()), (0, 1));
    assert!(read(&mut next, 16, 3) == block.repeat(3));
    for without_data in [0, 1] {
        let mut peer = login();
        let mut cdb = write_cdb(16, 3);
        (cdb[0], cdb[1]) = (0x93, without_data);
        let data = if without_data == 1 { vec![] } else { vec![0; BLOCK] };
        let flags = if data.is_empty() { 0x80 } else { 0xa0 };
        peer.command(flags, &cdb, data.len() as u32, &data);
        peer.exchange();
        let mut next = peer.lose(KEYS);
        let tag = next.command(flags, &cdb, data.len() as u32, &data);
        assert_eq!((next.answer(tag).status, next.replayed()), (0, 1));
        assert!(read(&mut next, 16, 3) == vec![0; 3 * BLOCK]);
    }
}

/// S13. The session ends while a write that was sent again is compared with the disk: its next sending is recognised.
#[test]
fn s13_a_write_is_lost_again_while_it_is_compared() {
    let mut peer = login();
    peer.write(&write_cdb(16, 2), &pattern(2, 1));
    // The disk gives so many results: the refusal, the report of the zone, the data.
    for results in 0..4 {
        peer = peer.lose(KEYS);
        peer.holds_disk(true);
        peer.write(&write_cdb(16, 2), &pattern(2, 1));
        peer.results(results);
        assert_eq!(peer.pdus.is_empty(), results < 3, "after {results} results");
    }
    peer = peer.lose(KEYS);
    assert_eq!(write(&mut peer, 16, &pattern(2, 1)), (0, None));
    assert!(read(&mut peer, 16, 2) == pattern(2, 1));
}
