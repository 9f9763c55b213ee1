//! The bytes of an initiator over iSCSI: any bytes and any PDUs, before a login and behind it, cut anywhere, while the disk is slow. The
//! session answers or ends, numbers what it sends without gaps, and gives back every queue of the disk.

use crate::input::Input;
use crate::iscsi_peer::{Fragments, Peer, word};
use zoneplug_scsi::iscsi::{HEADER_LEN, Header, NO_TAG, opcode};

/// Requests that a session knows, those with data twice.
const KNOWN: [u8; 10] = [
    opcode::NOP_OUT,
    opcode::COMMAND,
    opcode::COMMAND,
    opcode::TASK_MANAGEMENT,
    opcode::LOGIN,
    opcode::TEXT,
    opcode::DATA_OUT,
    opcode::DATA_OUT,
    opcode::LOGOUT,
    opcode::SNACK,
];

/// A login that each bit of a byte makes another one.
pub(crate) fn login_keys(bits: u8) -> String {
    let yes = |bit: u8| if bits & bit == 0 { "No" } else { "Yes" };
    let digest = |bit: u8| if bits & bit == 0 { "None" } else { "CRC32C" };
    format!(
        "HeaderDigest={}\0DataDigest={}\0ImmediateData={}\0InitialR2T={}\0FirstBurstLength={}\0MaxBurstLength={}\0",
        digest(1),
        digest(2),
        yes(4),
        yes(8),
        if bits & 16 == 0 { 65_536 } else { 5120 },
        if bits & 32 == 0 { 262_144 } else { 8192 },
    )
}

/// A request with any fields. Those that decide how far it gets are likely to be right.
fn request(s: &mut Input<'_>, peer: &Peer) -> (Header, Vec<u8>) {
    let kind = s.byte();
    let known = KNOWN[usize::from(kind & 0xf) % KNOWN.len()];
    let mut header = Header(s.bytes::<HEADER_LEN>());
    header.0[0] = if kind & 0x80 == 0 { known | kind & 0x40 } else { header.0[0] };
    // No additional header, and the length is that of the data.
    header.0[4..8].fill(0);
    let tags = s.byte();
    if tags & 1 == 0 {
        header = header.with_word(16, u32::from(tags >> 4));
    }
    if tags & 2 == 0 {
        header = header.with_word(24, peer.cmd_sn);
    }
    let len = match s.byte() {
        n if n < 0xc0 => usize::from(n) * 4,
        _ => usize::from(s.short() & 0x7fff),
    };
    match known {
        opcode::COMMAND if tags & 4 == 0 => header = header.with_word(20, len as u32),
        // Data that were asked for: the tag of the transfer, its offset and its end.
        opcode::DATA_OUT if tags & 4 == 0 => {
            let asked = peer.pdus.iter().rev().find(|p| p.header.opcode() == opcode::R2T);
            let asked = asked.map(|p| p.header);
            if let Some(r2t) = asked {
                header = header.with_word(16, r2t.task_tag()).with_word(20, r2t.word20());
                header = header.with_word(36, 0).with_word(40, word(&r2t, 40));
                if tags & 8 == 0 {
                    header = header.with_flags(0x80);
                    return (header, vec![tags; word(&r2t, 44) as usize]);
                }
            } else {
                header = header.with_word(20, NO_TAG);
            }
        }
        _ => {}
    }
    let fill = s.byte();
    (header, vec![fill; len])
}

/// A connection.
pub fn iscsi(data: &[u8]) {
    let mut s = Input::new(data);
    let (flags, seed) = (s.byte(), s.byte());
    let fragments = if seed == 0 { Fragments::whole() } else { Fragments::random(u64::from(seed)) };
    let mut peer = if flags & 0x80 == 0 {
        let memory = if flags & 0x40 == 0 { 16 << 20 } else { 64 << 10 };
        Peer::log_in_with(&login_keys(flags), memory, fragments)
    } else {
        Peer::stranger(fragments)
    };
    for _ in 0..64 {
        if s.is_empty() || peer.is_finished() {
            break;
        }
        match s.byte() & 0xf {
            0 => {
                let len = s.byte();
                let bytes: Vec<u8> = (0..len).map(|_| s.byte()).collect();
                peer.push_bytes(&bytes);
            }
            1 => peer.results(usize::from(s.byte() & 3)),
            2 => peer.holds_disk(s.byte() & 1 == 0),
            3 => peer.wait(u64::from(s.byte())),
            _ => {
                let (header, data) = request(&mut s, &peer);
                let counts = !header.is_immediate() && header.opcode() == opcode::COMMAND;
                peer.push(header, &data);
                if counts {
                    peer.cmd_sn = peer.cmd_sn.wrapping_add(1);
                }
            }
        }
        peer.exchange();
    }
    peer.end();
    peer.holds_disk(false);
    peer.drain();
}
