//! An initiator and a session, byte by byte in pieces of any length, with the engine on an emulated disk.

#![allow(clippy::unwrap_used)]

mod cdb;
mod common;
mod loss;

use cdb::{read_cdb, write_cdb};
use common::{Fragments, Peer, WAIT_FOR_TARGET, word};
use proptest::prelude::*;
use zoneplug_scsi::iscsi::{Header, NO_TAG, SessionConfig, opcode};

pub(crate) const BLOCK: usize = 4096;

pub(crate) fn pattern(blocks: usize, seed: u8) -> Vec<u8> {
    (0..blocks * BLOCK).map(|i| (i / 7) as u8 ^ seed).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// S3. Whatever is agreed on, and however the bytes are cut, what is written is read.
    #[test]
    fn s3_what_is_written_is_read(
        seed in any::<u64>(),
        digests in any::<bool>(),
        immediate in any::<bool>(),
        r2t in any::<bool>(),
        first in 1u32..40,
        burst in 1u32..80,
        piece in 1u32..30,
        blocks in prop::collection::vec(1usize..12, 1..6),
    ) {
        let yes = |b: bool| if b { "Yes" } else { "No" };
        let keys = format!(
            "HeaderDigest={d}\0DataDigest={d}\0ImmediateData={}\0InitialR2T={}\0FirstBurstLength={}\0MaxBurstLength={}\0MaxRecvDataSegmentLength={}\0",
            yes(immediate), yes(r2t), first * 512, burst * 512, piece * 512,
            d = if digests { "CRC32C" } else { "None" },
        );
        let mut peer = Peer::log_in(&keys, Fragments::random(seed));
        let mut lba = 16;
        let all: Vec<Vec<u8>> = blocks.iter().enumerate().map(|(i, n)| pattern(*n, i as u8)).collect();
        for data in &all {
            let n = (data.len() / BLOCK) as u32;
            // A write ends at the end of its zone.
            if lba % 16 + u64::from(n) > 16 {
                lba = lba.next_multiple_of(16);
            }
            let tag = peer.write(&write_cdb(lba, n), data);
            let answer = peer.answer(tag);
            prop_assert_eq!((answer.status, answer.residual), (0, 0));
            let tag = peer.read(&read_cdb(lba, n), data.len() as u32);
            let answer = peer.answer(tag);
            prop_assert_eq!(answer.status, 0);
            prop_assert!(answer.data == *data, "other data at {lba}");
            lba += u64::from(n);
        }
    }

    /// S3. Writes that come together keep their data, as expected or not: of one length, then of others, with reads and pings between.
    #[test]
    fn s3_writes_that_come_together_keep_their_data(
        seed in prop::option::weighted(0.8, any::<u64>()),
        digests in any::<bool>(),
        blocks in prop::collection::vec(prop_oneof![8 => Just(1), 2 => Just(0), 2 => 2usize..6], 1..100),
    ) {
        let digest = if digests { "CRC32C" } else { "None" };
        let keys = format!("HeaderDigest={digest}\0DataDigest={digest}\0InitialR2T=No\0");
        let mut peer = Peer::log_in(&keys, seed.map_or(Fragments::whole(), Fragments::random));
        let (mut lba, mut sent, mut refused, mut written) = (16, vec![], vec![], vec![]);
        let mut pings = 0;
        for (i, n) in blocks.into_iter().enumerate() {
            if n == 0 && i % 2 == 0 {
                // A ping with as many data as a write has.
                let ping = Header::new(opcode::NOP_OUT | 0x40).with_flags(0x80);
                let ping = ping.with_word(16, 1 << 31 | i as u32).with_word(20, NO_TAG);
                peer.push(ping.with_word(24, peer.cmd_sn), &pattern(1, i as u8));
                pings += 1;
                continue;
            }
            if n == 0 {
                sent.push(peer.read(&read_cdb(16, 1), BLOCK as u32));
                continue;
            }
            if lba % 16 + n > 16 {
                lba = lba.next_multiple_of(16);
            }
            if lba + n > 128 {
                break;
            }
            let data = pattern(n, i as u8);
            // Data of 4093 bytes and a pad are not those of a block, and the command is refused.
            let short = i % 13 == 12;
            let bytes = if short { &data[3..] } else { &data[..] };
            let tag = peer.command(0xa0, &write_cdb(lba as u64, n as u32), bytes.len() as u32, bytes);
            if short {
                refused.push(tag);
                continue;
            }
            sent.push(tag);
            written.push((lba, data));
            lba += n;
        }
        for tag in sent {
            prop_assert_eq!(peer.answer(tag).status, 0);
        }
        for tag in refused {
            prop_assert_eq!(peer.answer(tag).sense, Some((5, 0x0e, 3)), "fewer data than blocks");
        }
        for (lba, data) in written {
            let tag = peer.read(&read_cdb(lba as u64, (data.len() / BLOCK) as u32), data.len() as u32);
            prop_assert!(peer.answer(tag).data == data, "other data at {lba}");
        }
        peer.exchange();
        let pongs = peer.pdus.iter().filter(|p| p.header.opcode() == opcode::NOP_IN);
        prop_assert_eq!(pongs.filter(|p| p.data.len() == BLOCK).count(), pings);
    }

    /// S3. Any bytes after a login are answered or end the connection.
    #[test]
    fn s3_hostile_bytes_end_the_connection_at_most(seed in any::<u64>(), headers in prop::collection::vec((any::<[u8; 48]>(), 0u8..9), 1..12)) {
        let mut peer = Peer::log_in("InitialR2T=No\0", Fragments::random(seed));
        for (mut bytes, kind) in headers {
            // Known requests with plausible lengths and numbers, and anything else in them.
            bytes[0] = bytes[0] & 0x40 | [0, 1, 2, 4, 5, 6, 0x10, 1, 5][usize::from(kind)];
            (bytes[4], bytes[5], bytes[6], bytes[7]) = (0, 0, 0, bytes[7] & 0xfc);
            let mut header = Header(bytes);
            if kind % 2 == 1 {
                header = header.with_word(24, peer.cmd_sn).with_word(20, u32::from(bytes[7]) * 4);
            }
            peer.push(header, &vec![7; usize::from(bytes[7])]);
            peer.exchange();
        }
    }
}

/// S3. VERIFY compares its data with the disk, and WRITE SAME writes its block to each of a range.
#[test]
fn s3_data_of_a_command_are_compared_and_repeated() {
    for keys in ["ImmediateData=Yes\0InitialR2T=No\0", "ImmediateData=No\0InitialR2T=Yes\0"] {
        let mut peer = Peer::log_in(keys, Fragments::random(11));
        let (data, block) = (pattern(3, 1), pattern(1, 2));
        let mut same = write_cdb(19, 4);
        same[0] = 0x93;
        for (cdb, data) in [(write_cdb(16, 3), &data), (same, &block)] {
            let tag = peer.write(&cdb, data);
            assert_eq!(peer.answer(tag).status, 0);
        }
        let tag = peer.read(&read_cdb(16, 7), 7 * BLOCK as u32);
        assert!(peer.answer(tag).data == [data.clone(), block.repeat(4)].concat());
        let mut verify = write_cdb(16, 3);
        (verify[0], verify[1]) = (0x8f, 2);
        let mut other = data.clone();
        *other.last_mut().unwrap() ^= 1;
        for (data, sense) in [(&data, None), (&other, Some((0x0e, 0x1d, 0)))] {
            let tag = peer.write(&verify, data);
            assert_eq!(peer.answer(tag).sense, sense);
        }
    }
}

/// S8. A command whose data need a longer buffer than they came in counts for that one alone: a session with room for one
/// such command carries out any number, one after the other.
#[test]
fn s8_a_command_with_a_longer_buffer_counts_once() {
    let keys = "ImmediateData=Yes\0InitialR2T=No\0";
    let mut peer = Peer::log_in_with(keys, 1 << 20, Fragments::random(11));
    let (data, mut verify) = (pattern(3, 1), write_cdb(16, 3));
    let tag = peer.write(&verify, &data);
    assert_eq!(peer.answer(tag).status, 0);
    (verify[0], verify[1]) = (0x8f, 2);
    for n in 0..200 {
        let tag = peer.write(&verify, &data);
        assert_eq!(peer.answer(tag).status, 0, "the {n}th");
    }
}

/// S1. CLOSE, FINISH and OPEN ZONE for all zones change the zones that the standard says: FINISH ZONE also fills those that
/// are closed, and none of them an empty one.
#[test]
fn s1_an_action_for_all_zones_changes_open_and_closed_ones() {
    const EMPTY: u8 = 1;
    const IMPLICIT: u8 = 2;
    const EXPLICIT: u8 = 3;
    const CLOSED: u8 = 4;
    const FULL: u8 = 14;
    let manage = |peer: &mut Peer, action: u8, lba: u64, all: u8| {
        let mut cdb = write_cdb(lba, 0);
        (cdb[0], cdb[1], cdb[14]) = (0x94, action, all);
        let tag = peer.command(0x80, &cdb, 0, &[]);
        assert_eq!(peer.answer(tag).status, 0);
    };
    let conditions = |peer: &mut Peer| {
        let mut report = read_cdb(16, 4096);
        report[0] = 0x95;
        let tag = peer.read(&report, 4096);
        peer.answer(tag).data[64..].chunks(64).take(3).map(|zone| zone[1] >> 4).collect::<Vec<_>>()
    };
    for (action, conditions_after) in
        [(1, [CLOSED, CLOSED, EMPTY]), (2, [FULL, FULL, EMPTY]), (3, [EXPLICIT, IMPLICIT, EMPTY])]
    {
        let mut peer = Peer::log_in("InitialR2T=No\0", Fragments::whole());
        for lba in [16, 32] {
            let tag = peer.write(&write_cdb(lba, 1), &pattern(1, 1));
            assert_eq!(peer.answer(tag).status, 0);
        }
        manage(&mut peer, 1, 16, 0);
        assert_eq!(conditions(&mut peer), [CLOSED, IMPLICIT, EMPTY]);
        manage(&mut peer, action, 0, 1);
        assert_eq!(conditions(&mut peer), conditions_after, "action {action}");
    }
}

/// S1. READ FULL STATUS names the initiator port of each registration: `sg_persist --read-full-status` shows it.
#[test]
fn s1_the_full_status_of_reservations_names_initiators() {
    let mut peer = Peer::log_in("ImmediateData=Yes\0", Fragments::whole());
    let mut register = [0; 16];
    (register[0], register[8]) = (0x5f, 24);
    let mut list = [0; 24];
    list[15] = 7;
    let tag = peer.write(&register, &list);
    assert_eq!(peer.answer(tag).status, 0);
    let mut status = [0; 16];
    (status[0], status[1], status[7]) = (0x5e, 3, 1);
    let tag = peer.read(&status, 256);
    let answer = peer.answer(tag);
    let name = b"iqn.2026-11.test:peer,i,0x400000010203\0\0";
    assert_eq!((answer.data[15], answer.data[31], answer.data[32]), (7, 44, 0x45));
    assert_eq!(&answer.data[36..], name);
}

/// S2. A write with immediate data does not overtake one whose data are still asked for.
#[test]
fn s2_immediate_data_do_not_overtake_a_command_that_waits_for_its_data() {
    let mut peer = Peer::log_in("ImmediateData=Yes\0InitialR2T=Yes\0", Fragments::whole());
    let (first, second) = (pattern(4, 1), pattern(2, 2));
    let slow = peer.command(0x20 | 0x80, &write_cdb(16, 4), first.len() as u32, &[]);
    let fast = peer.command(0x20 | 0x80, &write_cdb(20, 2), second.len() as u32, &second);
    peer.exchange();
    let r2t = peer.take(opcode::R2T).unwrap();
    assert_eq!((r2t.header.task_tag(), peer.pdus.len()), (slow, 0), "the second write waits");
    peer.data(slow, r2t.header.word20(), 0, &first, true);
    assert_eq!(peer.answer(slow).status, 0);
    assert_eq!(peer.answer(fast).status, 0);
    // A command for another unit does not wait.
    let slow = peer.command(0x20 | 0x80, &write_cdb(22, 1), BLOCK as u32, &[]);
    let other = peer.command_at(1, 0x80, &[0; 16], 0, &[]);
    peer.exchange();
    assert!(peer.pdus.iter().any(|p| p.header.task_tag() == other));
    let r2t = peer.take(opcode::R2T).unwrap();
    peer.data(slow, r2t.header.word20(), 0, &first[..BLOCK], true);
    assert_eq!(peer.answer(slow).status, 0);
}

/// S4. R2TSN counts within a command, and begins with 0 in the next.
#[test]
fn s4_the_numbers_of_r2t_begin_with_each_command() {
    let mut peer =
        Peer::log_in("InitialR2T=Yes\0ImmediateData=No\0MaxBurstLength=4096\0", Fragments::whole());
    for lba in [16, 19] {
        let data = pattern(3, 3);
        let tag = peer.command(0xa0, &write_cdb(lba, 3), data.len() as u32, &[]);
        for n in 0..3u32 {
            peer.exchange();
            let r2t = peer.take(opcode::R2T).unwrap().header;
            let word = |at: usize| word(&r2t, at);
            assert_eq!((word(36), word(40), word(44)), (n, n * 4096, 4096));
            let from = n as usize * BLOCK;
            peer.data(tag, r2t.word20(), n * 4096, &data[from..from + BLOCK], true);
        }
        assert_eq!(peer.answer(tag).status, 0);
    }
}

/// S4. The data of each sequence are numbered from 0. A number that does not follow means that data are missing, and ends the
/// connection: nothing is written.
#[test]
fn s4_data_with_a_wrong_number_end_the_connection() {
    let keys = "InitialR2T=Yes\0ImmediateData=No\0MaxBurstLength=8192\0";
    let data = pattern(2, 1);
    for numbers in [[0, 0], [0, 2], [1, 0], [27, 28], [u32::MAX, 0]] {
        let mut peer = Peer::log_in(keys, Fragments::whole());
        let tag = peer.command(0xa0, &write_cdb(16, 2), data.len() as u32, &[]);
        peer.exchange();
        let transfer = peer.take(opcode::R2T).unwrap().header.word20();
        peer.data_out((tag, transfer, numbers[0]), 0, &data[..BLOCK], false);
        peer.data_out((tag, transfer, numbers[1]), BLOCK as u32, &data[BLOCK..], true);
        peer.exchange();
        assert!(peer.is_finished() && peer.pdus.is_empty(), "{numbers:?}");
    }
    // They begin with 0 for each R2T.
    let mut peer = Peer::log_in(keys, Fragments::whole());
    let data = pattern(5, 1);
    let tag = peer.write(&write_cdb(16, 5), &data);
    assert_eq!(peer.answer(tag).status, 0);
}

/// S5. Residuals: what the initiator expects, and what the command moves, in both directions.
#[test]
fn s5_residuals_say_what_was_not_moved() {
    let mut peer = Peer::log_in("InitialR2T=No\0", Fragments::whole());
    let tag = peer.read(&[0x12, 0, 0, 0, 96, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 255);
    let a = peer.answer(tag);
    assert_eq!((a.data.len(), a.flags & 6, a.residual), (96, 2, 159), "fewer than expected");
    let tag = peer.read(&read_cdb(0, 2), BLOCK as u32);
    let a = peer.answer(tag);
    assert_eq!((a.data.len(), a.flags & 6, a.residual), (BLOCK, 4, BLOCK as u32), "more");
    let data = pattern(2, 5);
    let tag = peer.write(&write_cdb(16, 1), &data);
    let a = peer.answer(tag);
    assert_eq!((a.status, a.flags & 6, a.residual), (0, 2, BLOCK as u32), "too many data");
    let tag = peer.write(&write_cdb(17, 2), &data[..BLOCK]);
    let a = peer.answer(tag);
    assert_eq!((a.status, a.sense), (2, Some((5, 0x0e, 3))), "too few data: nothing is written");
    assert_eq!((a.flags & 6, a.residual), (4, BLOCK as u32), "what is missing");
    let tag = peer.read(&read_cdb(u64::from(u32::MAX), 1), BLOCK as u32);
    let a = peer.answer(tag);
    assert_eq!((a.status, a.flags & 6, a.residual), (2, 2, BLOCK as u32));
    assert_eq!(a.sense, Some((5, 0x21, 0)));
}

/// S6. ABORT TASK: a command that waits for data is gone, one at a disk is awaited, another is not there.
#[test]
fn s6_task_management_ends_commands() {
    let mut peer = Peer::log_in("InitialR2T=Yes\0ImmediateData=No\0", Fragments::whole());
    let data = pattern(1, 1);
    let waits = peer.command(0xa0, &write_cdb(16, 1), BLOCK as u32, &[]);
    let behind = peer.command(0xa0, &write_cdb(17, 1), BLOCK as u32, &[]);
    peer.exchange();
    let (one, two) = (peer.take(opcode::R2T).unwrap(), peer.take(opcode::R2T).unwrap());
    assert_eq!(peer.manage(1, waits), 0);
    assert_eq!(peer.manage(1, waits), 1, "the task is not there any more");
    // The data that the initiator has sent before it got the answer are ignored.
    peer.data(waits, one.header.word20(), 0, &data, true);
    peer.data(behind, two.header.word20(), 0, &data, true);
    assert_eq!(peer.answer(behind).sense, Some((5, 0x21, 4)), "the write before it is gone");
    assert_eq!(peer.manage(8, 0), 4);
    assert_eq!(peer.manage(3, 0), 5);
    // LUN RESET waits for the commands at the disk; none of them is answered.
    peer.holds_disk(true);
    let held = peer.read(&read_cdb(0, 1), BLOCK as u32);
    peer.exchange();
    let tag = peer.send_manage(5, 0);
    peer.exchange();
    assert!(peer.pdus.is_empty(), "the disk has the command");
    // So many may wait, and no more.
    for _ in 0..64 {
        peer.send_manage(5, 0);
    }
    peer.exchange();
    assert_eq!(peer.take(opcode::REJECT).unwrap().header.0[2], 6, "too many");
    assert!(peer.pdus.is_empty());
    peer.holds_disk(false);
    peer.exchange();
    assert_eq!(peer.take(opcode::TASK_MANAGEMENT_RESPONSE).unwrap().header.task_tag(), tag);
    while peer.take(opcode::TASK_MANAGEMENT_RESPONSE).is_some() {}
    assert!(peer.pdus.iter().all(|p| p.header.task_tag() != held));
    let tag = peer.read(&read_cdb(0, 1), BLOCK as u32);
    assert_eq!(peer.answer(tag).status, 0);
}

/// S7. An initiator that logs in again ends its session. The commands of the new one wait for those of the old one.
#[test]
fn s7_a_new_session_waits_for_the_commands_of_the_old_one() {
    let mut peer = Peer::log_in("InitialR2T=No\0", Fragments::whole());
    peer.holds_disk(true);
    peer.write(&write_cdb(16, 1), &pattern(1, 1));
    peer.exchange();
    let mut next = peer.again("InitialR2T=No\0");
    let tag = next.write(&write_cdb(17, 1), &pattern(1, 2));
    next.exchange();
    assert!(next.pdus.is_empty(), "the old write is at the disk");
    assert_eq!(peer.events(), [format!("close {}", peer.key)]);
    peer.end();
    next.exchange();
    assert!(next.pdus.is_empty());
    peer.holds_disk(false);
    peer.drain();
    assert_eq!(next.events(), [format!("run {}", next.key)]);
    // Nothing is owed to a new session: its first command is carried out.
    assert_eq!(next.answer(tag).status, 0);
}

/// S10. Discovery shows the target and where it is, in parts if the initiator takes short texts only.
#[test]
fn s10_discovery_shows_the_target() {
    let mut peer = Peer::discover(Fragments::random(7));
    let text = peer.text(b"SendTargets=All\0");
    assert_eq!(
        text,
        "TargetName=iqn.2026-11.dev.zoneplug:test\0TargetAddress=192.0.2.1:3260,1\0TargetAddress=[2001:db8::1]:3260,1\0"
    );
    assert_eq!(peer.text(b"SendTargets=iqn.2026-11.dev.zoneplug:other\0"), "");
    assert_eq!(peer.text(b"X-unknown=1\0"), "X-unknown=NotUnderstood\0");
    let tag = peer.command(0x80, &[0; 16], 0, &[]);
    peer.exchange();
    assert!(peer.take(opcode::REJECT).is_some(), "no commands in discovery: {tag}");
}

/// S9. A NOP comes back with its data. A silent initiator is asked for a sign of life, and is gone if it gives none.
#[test]
fn s9_signs_of_life() {
    let mut peer = Peer::log_in("InitialR2T=No\0", Fragments::random(3));
    let mut nop = Header::new(opcode::NOP_OUT | 0x40)
        .with_flags(0x80)
        .with_word(16, 99)
        .with_word(20, NO_TAG);
    nop = nop.with_word(24, peer.cmd_sn);
    peer.push(nop, b"ping");
    peer.exchange();
    let pong = peer.take(opcode::NOP_IN).unwrap();
    assert_eq!((pong.header.task_tag(), &pong.data[..]), (99, &b"ping"[..]));
    assert!(peer.expire(WAIT_FOR_TARGET));
    peer.exchange();
    let ping = peer.take(opcode::NOP_IN).unwrap();
    assert_eq!(ping.header.task_tag(), NO_TAG);
    assert!(!peer.expire(2 * WAIT_FOR_TARGET), "no sign of life");
    let mut pong = Header::new(opcode::NOP_OUT | 0x40).with_flags(0x80).with_word(16, NO_TAG);
    pong = pong.with_word(20, ping.header.word20()).with_word(24, peer.cmd_sn);
    peer.push(pong, b"");
    peer.exchange();
    assert!(peer.expire(2 * WAIT_FOR_TARGET), "there it is");
}

/// S11. Logout is answered, and the connection closes. The end of a server answers what has begun.
#[test]
fn s11_logout_and_the_end_of_a_server() {
    let mut peer = Peer::log_in("InitialR2T=No\0", Fragments::whole());
    peer.holds_disk(true);
    let begun = peer.read(&read_cdb(0, 1), BLOCK as u32);
    peer.exchange();
    peer.stop();
    assert!(!peer.is_answered());
    peer.holds_disk(false);
    assert_eq!(peer.answer(begun).status, 0);
    assert!(peer.is_answered());
    let mut peer = Peer::log_in("InitialR2T=No\0", Fragments::whole());
    peer.push(
        Header::new(opcode::LOGOUT | 0x40)
            .with_flags(0x80)
            .with_word(16, 5)
            .with_word(24, peer.cmd_sn),
        b"",
    );
    peer.exchange();
    assert_eq!(peer.take(opcode::LOGOUT_RESPONSE).unwrap().header.task_tag(), 5);
    assert!(peer.is_finished());
}

/// S4. A command with a number outside of the window is ignored, and one whose number is in use by another is rejected.
#[test]
fn s4_numbers_and_tags_of_commands_are_checked() {
    let mut peer = Peer::log_in("InitialR2T=Yes\0ImmediateData=No\0", Fragments::whole());
    let waits = peer.command(0xa0, &write_cdb(16, 1), BLOCK as u32, &[]);
    peer.next_tag = waits;
    peer.command(0x80, &[0; 16], 0, &[]);
    peer.exchange();
    assert_eq!(peer.take(opcode::REJECT).unwrap().header.0[2], 7, "task in progress");
    peer.take(opcode::R2T).unwrap();
    let right = peer.cmd_sn;
    for wrong in [right.wrapping_sub(1), right + 500] {
        peer.cmd_sn = wrong;
        peer.command(0x80, &[0; 16], 0, &[]);
        peer.exchange();
        assert!(peer.pdus.is_empty() && !peer.is_finished(), "{wrong}");
    }
    peer.cmd_sn = right + 1;
    peer.command(0x80, &[0; 16], 0, &[]);
    peer.exchange();
    assert!(peer.is_finished(), "a number is missing, and cannot come any more");
}

/// S4. A rejected command keeps no place in the window, and one for immediate delivery gives none back: however many are
/// rejected, the next command is carried out.
#[test]
fn s4_a_rejected_command_keeps_no_place_in_the_window() {
    let mut peer = Peer::log_in("InitialR2T=Yes\0ImmediateData=No\0", Fragments::whole());
    let commands = u32::from(SessionConfig::default().commands);
    let waits = peer.command(0xa0, &write_cdb(16, 1), BLOCK as u32, &[]);
    for n in 0..commands {
        let again = Header::new(opcode::COMMAND | if n % 2 == 0 { 0 } else { 0x40 });
        let again = again.with_flags(0x80).with_word(16, waits).with_word(24, peer.cmd_sn);
        peer.push(again, &[]);
        peer.exchange();
        peer.cmd_sn = peer.cmd_sn.wrapping_add(1 - n % 2);
        let h = peer.take(opcode::REJECT).unwrap().header;
        let places = word(&h, 32).wrapping_sub(word(&h, 28)).wrapping_add(1);
        assert_eq!(places, commands - 1, "all but that of the write, after {} rejected", n + 1);
    }
    let next = peer.command_at(1, 0x80, &[0; 16], 0, &[]);
    assert_eq!(peer.answer(next).status, 0);
}

/// S8. Memory is bounded: a command beyond it is told that the task set is full.
#[test]
fn s8_memory_of_commands_is_bounded() {
    let keys = "InitialR2T=Yes\0ImmediateData=No\0";
    let mut peer = Peer::log_in_with(keys, 3 * BLOCK as u32, Fragments::whole());
    let tags =
        [16, 17, 18, 19].map(|lba| peer.command(0xa0, &write_cdb(lba, 1), BLOCK as u32, &[]));
    peer.exchange();
    for (n, tag) in tags.into_iter().enumerate() {
        if n < 3 {
            let r2t = peer.take(opcode::R2T).unwrap();
            peer.data(tag, r2t.header.word20(), 0, &pattern(1, 0), true);
            assert_eq!(peer.answer(tag).status, 0);
        } else {
            assert_eq!(peer.answer(tag).status, 0x28);
        }
    }
    // More data than a command may have are not asked for.
    let tag = peer.command(0xa0, &write_cdb(19, 9), 64 << 20, &[]);
    assert_eq!(peer.answer(tag).sense, Some((5, 0x24, 0)));
}
