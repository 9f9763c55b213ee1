//! Answers that need no disk.

use super::answer::{Answer, AnswerData};
use super::{MAX_UNMAP_RANGES, Unit};
use crate::command::{ReportedOperations, ScsiCommand, parse};
use crate::spec::bytes::be16;
use crate::spec::inquiry::{
    BlockLimits, Designator, NO_DEVICE, NOT_ROTATING, StandardInquiry, encode_characteristics,
    encode_page, encode_provisioning, encode_zoned_characteristics, page,
};
use crate::spec::mode::{ModeState, PageControl};
use crate::spec::operation::{
    Abilities, OPERATIONS, OperationInfo, encode_command_descriptor, encode_one_command,
};
use crate::spec::sense::{INVALID_FIELD, NO_SAVING, NO_UNIT, NONE, SenseData};
use zoneplug_core::{FNV_START, fnv1a};

/// Returns success with at most `allocation` bytes of `data`.
fn data(mut data: Vec<u8>, allocation: u32) -> Answer {
    data.truncate(allocation as usize);
    Answer::good(AnswerData::Bytes(data))
}

/// Answers a command that needs no disk.
pub(super) fn answer(unit: &Unit, command: &ScsiCommand) -> Result<Answer, SenseData> {
    Ok(match *command {
        ScsiCommand::RequestSense { descriptors, allocation } => {
            request_sense(NONE.into(), descriptors, allocation)
        }
        ScsiCommand::Inquiry { page: None, allocation } => {
            let c = &unit.config;
            let standard = StandardInquiry {
                device: unit.device_type(),
                vendor: &c.vendor,
                product: &c.product,
                revision: &c.revision,
            };
            data(standard.encode().to_vec(), allocation)
        }
        ScsiCommand::Inquiry { page: Some(page), allocation } => {
            let body = vital_data(unit, page).ok_or(SenseData::field(2, None))?;
            data(encode_page(unit.device_type(), page, &body), allocation)
        }
        ScsiCommand::ModeSense { form, control, page, subpage, allocation } => {
            if control == PageControl::Saved {
                return Err(NO_SAVING.into());
            }
            if !matches!(subpage, 0 | 0xff) {
                return Err(SenseData::field(3, None));
            }
            let state = ModeState {
                write_cache: unit.limits.write_cache,
                write_protected: unit.limits.read_only,
                blocks: unit.blocks,
                block_len: unit.block_len(),
            };
            let pages = state.pages(page, control).ok_or(SenseData::field(2, Some(5)))?;
            data(state.encode(form, &pages), allocation)
        }
        ScsiCommand::StartStopUnit { condition: 1.., .. } => {
            return Err(SenseData::field(4, Some(7)));
        }
        ScsiCommand::ReadCapacity10 => data(unit.capacity().encode10().to_vec(), u32::MAX),
        ScsiCommand::ReadCapacity16 { allocation } => {
            data(unit.capacity().encode16().to_vec(), allocation)
        }
        ScsiCommand::LogSense { page, subpage, parameter, allocation } => {
            if page != 0 {
                return Err(SenseData::field(2, Some(5)));
            }
            if parameter != 0 {
                return Err(SenseData::field(5, None));
            }
            // The one page is the list of pages.
            match subpage {
                0 => data(vec![0, 0, 0, 1, 0], allocation),
                0xff => data(vec![0x40, 0xff, 0, 4, 0, 0, 0, 0xff], allocation),
                _ => return Err(SenseData::field(3, None)),
            }
        }
        ScsiCommand::ReportOperations { which, timeouts, allocation } => {
            data(operations(unit.abilities(), which, timeouts)?, allocation)
        }
        ScsiCommand::ReportTaskManagement { extended, allocation } => {
            // ABORT TASK, ABORT TASK SET and LOGICAL UNIT RESET.
            let functions = vec![0x80 | 0x40 | 0x08, 0, 0, if extended { 12 } else { 0 }];
            let tail = if extended { 12 } else { 0 };
            data([functions, vec![0; tail]].concat(), allocation)
        }
        ScsiCommand::TestUnitReady | ScsiCommand::StartStopUnit { .. } => {
            Answer::good(AnswerData::None)
        }
        // All others are answered elsewhere, or are commands that no unit has.
        _ => return Err(INVALID_FIELD.into()),
    })
}

/// Returns sense data as the data of REQUEST SENSE.
pub(super) fn request_sense(sense: SenseData, descriptors: bool, allocation: u32) -> Answer {
    let b = if descriptors { sense.encode_descriptors() } else { sense.encode_fixed().to_vec() };
    data(b, allocation)
}

/// Returns the body of a page of vital product data.
fn vital_data(unit: &Unit, number: u8) -> Option<Vec<u8>> {
    let c = &unit.config;
    let abilities = unit.abilities();
    Some(match number {
        page::SUPPORTED => {
            let mut pages = vec![
                page::SUPPORTED,
                page::SERIAL,
                page::IDENTIFICATION,
                page::BLOCK_LIMITS,
                page::CHARACTERISTICS,
                page::PROVISIONING,
            ];
            pages.extend(abilities.zoned.then_some(page::ZONED_CHARACTERISTICS));
            pages
        }
        page::SERIAL => unit.serial().into_bytes(),
        page::IDENTIFICATION => {
            let mut b = Vec::new();
            Designator::Vendor(&c.vendor, &unit.serial()).encode_to(&mut b);
            Designator::Naa(fnv1a(FNV_START, c.uuid)).encode_to(&mut b);
            Designator::Uuid(c.uuid).encode_to(&mut b);
            b
        }
        page::BLOCK_LIMITS => {
            let granularity = unit.limits.write_granularity_sectors >> unit.shift;
            let limits = BlockLimits {
                granularity: u16::try_from(granularity).unwrap_or(0),
                max_transfer: unit.max_transfer() / unit.block_len(),
                max_unmap: if abilities.unmap { u32::MAX >> unit.shift } else { 0 },
                max_unmap_ranges: if abilities.unmap { MAX_UNMAP_RANGES } else { 0 },
                max_write_same: u64::from(unit.max_zeroes()),
            };
            limits.encode().to_vec()
        }
        page::CHARACTERISTICS => {
            // 0: the rate is not reported.
            let unknown = if unit.limits.rotational { 0 } else { NOT_ROTATING };
            encode_characteristics(c.rotation_rate.unwrap_or(unknown)).to_vec()
        }
        page::PROVISIONING => encode_provisioning(abilities.unmap).to_vec(),
        page::ZONED_CHARACTERISTICS if abilities.zoned => {
            encode_zoned_characteristics(c.unrestricted_reads, unit.max_open()).to_vec()
        }
        _ => return None,
    })
}

/// Returns the data of REPORT SUPPORTED OPERATION CODES.
fn operations(
    abilities: Abilities,
    which: ReportedOperations,
    timeouts: bool,
) -> Result<Vec<u8>, SenseData> {
    let mut all = OPERATIONS.iter().filter(|i| i.is_in(abilities));
    let mut of = |opcode: u8| all.by_ref().filter(move |i| i.opcode == opcode).collect::<Vec<_>>();
    let with_action = |rows: &[&'static OperationInfo], action: u16| {
        rows.iter().copied().find(|i| i.action.is_some_and(|a| u16::from(a) == action))
    };
    let found = match which {
        ReportedOperations::All => {
            let list: Vec<u8> = all.flat_map(|i| encode_command_descriptor(i, timeouts)).collect();
            return Ok([&(list.len() as u32).to_be_bytes()[..], &list].concat());
        }
        ReportedOperations::Opcode(opcode) => {
            let rows = of(opcode);
            if rows.iter().any(|i| i.action.is_some()) {
                return Err(SenseData::field(2, Some(2)));
            }
            rows.first().copied()
        }
        ReportedOperations::Action(opcode, action) => {
            let rows = of(opcode);
            if rows.iter().any(|i| i.action.is_none()) {
                return Err(SenseData::field(2, Some(2)));
            }
            with_action(&rows, action)
        }
        ReportedOperations::Either(opcode, action) => {
            let rows = of(opcode);
            let plain = rows.iter().copied().find(|i| i.action.is_none() && action == 0);
            plain.or_else(|| with_action(&rows, action))
        }
    };
    Ok(encode_one_command(found, timeouts))
}

/// Returns the data of REPORT LUNS for units with these numbers, below 16384, or the refusal of the command.
pub fn report_luns(select: u8, allocation: u32, luns: &[u16]) -> Answer {
    if allocation < 16 {
        return Answer::failed(SenseData::field(6, None));
    }
    let luns = match select {
        0 | 2 => luns,
        // Well known units: there is none.
        1 => &[],
        _ => return Answer::failed(SenseData::field(2, None)),
    };
    let mut b = ((luns.len() * 8) as u32).to_be_bytes().to_vec();
    b.extend([0; 4]);
    for lun in luns {
        b.extend(encode_lun(*lun));
    }
    data(b, allocation)
}

/// Returns a LUN of one level: by the peripheral method up to 255, by the flat space method above.
pub(crate) fn encode_lun(lun: u16) -> [u8; 8] {
    let method = if lun < 256 { lun } else { 0x4000 | lun };
    let [high, low] = method.to_be_bytes();
    [high, low, 0, 0, 0, 0, 0, 0]
}

/// Reads a LUN of one level. `None`: no unit has such a number.
pub fn decode_lun(b: [u8; 8]) -> Option<u16> {
    let (first, rest) = (be16(&b, 0), &b[2..]);
    let flat = first >> 14 == 1;
    let peripheral = first < 256;
    (rest.iter().all(|b| *b == 0) && (flat || peripheral)).then_some(first & 0x3fff)
}

/// Answers a command for a LUN that has no unit.
pub fn answer_without_unit(cdb: &[u8], luns: &[u16]) -> Answer {
    match parse(cdb, Abilities::default()).map(|(command, _)| command) {
        Ok(ScsiCommand::ReportLuns { select, allocation }) => report_luns(select, allocation, luns),
        Ok(ScsiCommand::RequestSense { descriptors, allocation }) => {
            request_sense(NO_UNIT.into(), descriptors, allocation)
        }
        Ok(ScsiCommand::Inquiry { page: None, allocation }) => {
            let none = StandardInquiry { device: NO_DEVICE, vendor: "", product: "", revision: "" };
            data(none.encode().to_vec(), allocation)
        }
        Ok(_) => Answer::failed(NO_UNIT),
        Err(sense) => Answer::failed(sense),
    }
}
