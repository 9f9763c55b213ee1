//! The commands of an initiator to a unit: any commands, with any fields, for a disk whose device refuses every violation of the zone
//! rules. Each command is answered once. What succeeds has done what it says, and what fails has changed nothing.

use crate::input::Input;
use crate::iscsi::login_keys;
use crate::iscsi_peer::hardware::{ZONE_BLOCKS, ZONES};
use crate::iscsi_peer::{Answer, Fragments, Peer};
use crate::zones::{Layout, Zones};
use zoneplug_scsi::command::{BlockRange, ScsiCommand, parse};
use zoneplug_scsi::spec::operation::Abilities;
use zoneplug_scsi::spec::zone::ZoneAction;

const BLOCK_BYTES: usize = 4096;
const GOOD: u8 = 0;
const CONVENTIONAL: u32 = 1;
/// Bytes of the longest list of parameters that is sent.
const LIST: u32 = 64;

/// Any command. Fields that decide how far it gets are likely to be right.
fn cdb(s: &mut Input<'_>) -> [u8; 16] {
    let kind = s.byte();
    let mut c = [0; 16];
    c[0] = match kind & 0xf {
        0..=2 => 0x8a,
        3 => [0x2a, 0xaa][usize::from(kind >> 4 & 1)],
        4..=5 => [0x88, 0x28, 0xa8][usize::from(kind >> 4) % 3],
        6 => [0x93, 0x41][usize::from(kind >> 4 & 1)],
        7..=9 => 0x94,
        10..=11 => 0x95,
        12 => [0x8f, 0x2f][usize::from(kind >> 4 & 1)],
        13 => [0x91, 0x35, 0x42][usize::from(kind >> 4) % 3],
        _ => return s.bytes(),
    };
    let place = s.byte();
    let zone = u32::from(place >> 3) % ZONES;
    let lba = match place & 7 {
        0 => s.number(),
        1..=3 => u64::from(zone * ZONE_BLOCKS),
        _ => u64::from(zone * ZONE_BLOCKS + u32::from(s.byte()) % ZONE_BLOCKS),
    };
    let length = s.byte();
    let blocks = if length & 7 == 0 { s.number() as u32 } else { u32::from(length >> 3) };
    match c[0] >> 5 {
        1 | 2 => {
            c[2..6].copy_from_slice(&(lba as u32).to_be_bytes());
            c[7..9].copy_from_slice(&(blocks as u16).to_be_bytes());
        }
        5 => {
            c[2..6].copy_from_slice(&(lba as u32).to_be_bytes());
            c[6..10].copy_from_slice(&blocks.to_be_bytes());
        }
        _ => {
            c[2..10].copy_from_slice(&lba.to_be_bytes());
            c[10..14].copy_from_slice(&blocks.to_be_bytes());
        }
    }
    match c[0] {
        0x94 => {
            let action = s.byte();
            c[1] = if action & 0x40 == 0 { action & 3 } else { action & 0x1f } + 1;
            // A number of zones, and all of them.
            c[10..14].fill(0);
            c[13] = if action & 0x30 == 0 { length & 3 } else { 0 };
            c[14] = action >> 7;
        }
        0x95 => {
            c[1] = 0;
            c[10..14].copy_from_slice(&u32::from(s.short()).to_be_bytes());
            c[14] = s.byte();
        }
        _ => c[1] = if length & 0xc0 == 0xc0 { s.byte() } else { 0 },
    }
    c
}

/// How many bytes a command sends or wants.
fn expected(command: Option<ScsiCommand>) -> (bool, u32) {
    let of = |range: BlockRange| range.blocks.min(20) * BLOCK_BYTES as u32;
    match command {
        Some(ScsiCommand::Read { range, .. }) => (false, of(range)),
        Some(ScsiCommand::Write { range, .. } | ScsiCommand::Verify { range, compare: true }) => {
            (true, of(range))
        }
        Some(ScsiCommand::WriteSame { without_data: false, .. }) => (true, BLOCK_BYTES as u32),
        Some(ScsiCommand::Unmap { list_len } | ScsiCommand::ReserveOut { list_len, .. }) => {
            (true, list_len.min(LIST))
        }
        _ => (false, 4096),
    }
}

/// The list of an UNMAP, whose lengths are mostly right. What it names may be zero from now on.
fn ranges(bytes: u32, zones: &mut Zones, s: &mut Input<'_>) -> Vec<u8> {
    let mut list = vec![0; bytes as usize];
    let wrong = u16::from(s.byte() & 0xf == 0);
    for (at, length) in [(0, 2), (2, 8)] {
        if let Some(field) = list.get_mut(at..at + 2) {
            let length = (bytes as u16).saturating_sub(length);
            field.copy_from_slice(&(length + wrong).to_be_bytes());
        }
    }
    for range in list.get_mut(8..).unwrap_or_default().chunks_exact_mut(16) {
        let (lba, blocks) = (s.byte() % (2 * ZONE_BLOCKS as u8), s.byte() & 7);
        (range[7], range[11]) = (lba, blocks);
        for block in u32::from(lba)..u32::from(lba + blocks).min(CONVENTIONAL * ZONE_BLOCKS) {
            zones.deallocate(block);
        }
    }
    list
}

/// Applies a command that has succeeded to what is known.
fn apply(zones: &mut Zones, command: ScsiCommand, sent: u32, fill: u8) {
    match command {
        // No block is no error, wherever.
        ScsiCommand::Write { range, .. } if range.blocks == 0 => {}
        ScsiCommand::Write { range, .. } => {
            assert!(sent >= range.blocks * BLOCK_BYTES as u32, "not all data came: {command:?}");
            zones.write(range.lba as u32, range.blocks, fill);
        }
        ScsiCommand::WriteSame { range, without_data } => {
            zones.write(range.lba as u32, range.blocks, if without_data { 0 } else { fill });
        }
        ScsiCommand::ManageZones { action, lba, count, all } => {
            let first = lba as u32 / ZONE_BLOCKS;
            let some = first..first + u32::from(count).max(1);
            for z in zones.sequential() {
                // Finishing all zones leaves those that are empty or full.
                let part = if all {
                    action != ZoneAction::Finish || !zones.is_empty(z)
                } else {
                    some.contains(&z)
                };
                match action {
                    ZoneAction::Reset if part => zones.reset(z),
                    ZoneAction::Finish if part => zones.finish(z),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// Commands of an initiator.
pub fn scsi_commands(data: &[u8]) {
    let mut s = Input::new(data);
    let (flags, seed) = (s.byte(), s.byte());
    let fragments =
        if seed < 0x80 { Fragments::whole() } else { Fragments::random(u64::from(seed)) };
    let mut peer = Peer::log_in(&login_keys(flags), fragments);
    let layout = Layout { block_sectors: 8, size: ZONE_BLOCKS, capacity: ZONE_BLOCKS };
    let mut zones = Zones::new(layout, CONVENTIONAL, ZONES - CONVENTIONAL);
    let abilities = Abilities { zoned: true, unmap: true, zeroes: true, reservations: true };
    let (mut opened, mut fill) = (false, 0);
    for _ in 0..64 {
        if s.is_empty() {
            break;
        }
        fill = (fill + 1) % 251 + 1;
        let cdb = cdb(&mut s);
        let command = parse(&cdb, abilities).ok().map(|(command, _)| command);
        let (mut sends, mut bytes) = expected(command);
        match s.byte() {
            0xf8.. => bytes = u32::from(s.short()),
            0xf0.. => sends = !sends,
            _ => {}
        }
        let tag = if sends {
            let data = match command {
                Some(ScsiCommand::Unmap { .. }) => ranges(bytes, &mut zones, &mut s),
                Some(ScsiCommand::ReserveOut { .. }) => (0..bytes).map(|_| s.byte()).collect(),
                _ => vec![fill; bytes as usize],
            };
            peer.write(&cdb, &data)
        } else {
            peer.read(&cdb, bytes)
        };
        let Answer { status, data, .. } = peer.answer(tag);
        assert!(data.len() <= bytes as usize, "more data than asked for: {command:?}");
        let Some(command) = command.filter(|_| status == GOOD) else { continue };
        match command {
            ScsiCommand::Read { range, .. } => {
                for (n, block) in (range.lba as u32..).zip(data.chunks_exact(BLOCK_BYTES)) {
                    zones.check_block(n, block);
                }
            }
            ScsiCommand::ManageZones { action: ZoneAction::Open, .. } => opened = true,
            _ => {}
        }
        apply(&mut zones, command, if sends { bytes } else { 0 }, fill);
    }
    zones.check(peer.device(), opened);
}
