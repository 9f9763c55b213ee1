//! Commands of an initiator, carried out by the engine on an emulated disk, against a model of a host-managed disk.

#![allow(clippy::unwrap_used)]

mod answers;
#[path = "../../../nvme/tests/common/request_queue.rs"]
mod request_queue;

use proptest::prelude::*;
use request_queue::RequestQueue;
use std::sync::Arc;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Flags, Op, ZoneNo};
use zoneplug_devices::emu::{EmuConfig, EmuKind};
use zoneplug_scsi::spec::ScsiStatus;
use zoneplug_scsi::spec::sense::CAPACITY_CHANGED;
use zoneplug_scsi::unit::{
    AnswerData, Arrived, LogicalUnit, Nexus, TaskStep, Unit, UnitConfig, answer_without_unit,
    decode_lun,
};

const BLOCK: u32 = 4096;
const ZONES: u64 = 6;
const CONVENTIONAL: u64 = 1;
const SIZE: u64 = 16;
/// Blocks of the last zone.
const LAST: u64 = 8;
const BLOCKS: u64 = (ZONES - 1) * SIZE + LAST;
const MAX_OPEN: usize = 2;

/// Key, code and qualifier.
type Sense = (u8, u8, u8);

/// A disk and an initiator's way to it.
struct Machine {
    queue: RequestQueue,
    lu: LogicalUnit,
}

const NEXUS: Nexus = Nexus(7);

fn config(unrestricted_reads: bool) -> UnitConfig {
    UnitConfig {
        disk: 0,
        uuid: [0x5a; 16],
        vendor: "ZONEPLUG".into(),
        product: "disk".into(),
        revision: "1".into(),
        rotation_rate: Some(7200),
        unrestricted_reads,
    }
}

impl Machine {
    fn new(unrestricted_reads: bool) -> Machine {
        let g = Geometry::new(ZONES, SIZE as u32 * 8, SIZE as u32 * 8).unwrap();
        let g = g.with_last_zone(LAST as u32 * 8, LAST as u32 * 8).unwrap();
        let g = g.with_conventional((0..CONVENTIONAL as u32).map(ZoneNo)).unwrap();
        let mut emu = EmuConfig::new(EmuKind::Mem, g);
        emu.limits = Limits { max_open_zones: MAX_OPEN as u32, ..Limits::default() };
        let (disk, queue) = RequestQueue::open(emu);
        let unit =
            Unit::zoned(config(unrestricted_reads), &disk.geometry(), &disk.limits()).unwrap();
        let mut lu = LogicalUnit::new(Arc::new(unit));
        lu.enter(NEXUS, Arc::default());
        let mut machine = Machine { queue, lu };
        assert_eq!(machine.run(&[0; 6], &[]), Ok(vec![]));
        machine
    }

    /// Carries out a command that brings `data`. Returns what the initiator gets, or the sense.
    fn run(&mut self, cdb: &[u8], data: &[u8]) -> Result<Vec<u8>, Sense> {
        let mut buffer = AlignedBuf::zeroed(data.len() as u32);
        buffer.write(0, data);
        let unit = self.lu.unit().clone();
        let (mut task, mut step) = self.lu.begin(Arrived {
            nexus: NEXUS,
            cdb,
            data: Some(&buffer),
            data_len: data.len() as u32,
            expected: 1 << 20,
            luns: &[0, 300],
        });
        if buffer.len() < task.buffer_bytes() {
            buffer = AlignedBuf::zeroed(task.buffer_bytes());
            // Bytes of an earlier command.
            buffer.write(0, &vec![0xee; buffer.len() as usize]);
            buffer.write(0, data);
        }
        task.prepare(&mut buffer);
        loop {
            let request = match step {
                TaskStep::Submit(request) => request,
                TaskStep::Answer(a) => {
                    return match (a.status, a.sense, a.data) {
                        (ScsiStatus::Good, None, AnswerData::None) => Ok(vec![]),
                        (ScsiStatus::Good, None, AnswerData::Bytes(b)) => Ok(b),
                        (ScsiStatus::Good, None, AnswerData::Buffer(n)) => {
                            Ok(buffer.to_vec()[..n as usize].to_vec())
                        }
                        (ScsiStatus::CheckCondition, Some(s), AnswerData::None) => {
                            Err((s.sense.key, s.sense.code, s.sense.qualifier))
                        }
                        other => panic!("{other:?}"),
                    };
                }
            };
            let result = self.queue.run(request, &mut buffer);
            step = task.next(&unit, result, Some(&mut buffer));
        }
    }

    fn report(&mut self, lba: u64, options: u8, allocation: u32) -> Result<Vec<u8>, Sense> {
        let mut cdb = long(0x95, 0, lba, allocation);
        cdb[14] = options;
        self.run(&cdb, &[])
    }
}

/// A command of 16 bytes with an address and a length.
fn long(opcode: u8, second: u8, lba: u64, length: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (opcode, second);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&length.to_be_bytes());
    cdb
}

/// A zone of the model. Conditions have the numbers of ZBC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Zone {
    condition: u8,
    /// Blocks from the start.
    wp: u64,
}

/// ZBC-2 in a naive way.
struct Model {
    zones: Vec<Zone>,
    /// Implicitly open zones, in the order in which they were opened.
    opened: Vec<usize>,
    data: Vec<u8>,
    unrestricted: bool,
}

const FULL: u8 = 14;

impl Model {
    fn new(unrestricted: bool) -> Model {
        let condition = |z| u8::from(z >= CONVENTIONAL);
        let zones = (0..ZONES).map(|z| Zone { condition: condition(z), wp: 0 }).collect();
        Model { zones, opened: vec![], data: vec![0; BLOCKS as usize], unrestricted }
    }

    fn len(z: usize) -> u64 {
        if z as u64 == ZONES - 1 { LAST } else { SIZE }
    }

    fn close(&mut self, z: usize) {
        if matches!(self.zones[z].condition, 2 | 3) {
            self.opened.retain(|o| *o != z);
            self.zones[z].condition = if self.zones[z].wp > 0 { 4 } else { 1 };
        }
    }

    fn open(&mut self, z: usize, explicit: bool) -> Result<(), Sense> {
        let open = |m: &Model| m.zones.iter().filter(|z| matches!(z.condition, 2 | 3)).count();
        if !matches!(self.zones[z].condition, 2 | 3) && open(self) == MAX_OPEN {
            let victim = *self.opened.first().ok_or((7, 0x55, 0x0e))?;
            self.close(victim);
        }
        if explicit {
            self.opened.retain(|o| *o != z);
            self.zones[z].condition = 3;
        } else if !matches!(self.zones[z].condition, 2 | 3) {
            self.opened.push(z);
            self.zones[z].condition = 2;
        }
        Ok(())
    }

    fn set_full(&mut self, z: usize) {
        self.opened.retain(|o| *o != z);
        self.zones[z] = Zone { condition: FULL, wp: Model::len(z) };
    }

    fn write(&mut self, lba: u64, blocks: u64, fill: u8) -> Result<(), Sense> {
        if lba + blocks > BLOCKS {
            return Err((5, 0x21, 0));
        }
        if blocks == 0 {
            return Ok(());
        }
        let (z, last) = ((lba / SIZE) as usize, (lba + blocks - 1) / SIZE);
        if z as u64 != last {
            return Err((5, 0x21, 5));
        }
        if z as u64 >= CONVENTIONAL {
            if self.zones[z].condition == FULL {
                return Err((5, 0x24, 0));
            }
            if lba % SIZE != self.zones[z].wp {
                return Err((5, 0x21, 4));
            }
            self.open(z, false)?;
            self.zones[z].wp += blocks;
            if self.zones[z].wp == Model::len(z) {
                self.set_full(z);
            }
        }
        self.data[lba as usize..(lba + blocks) as usize].fill(fill);
        Ok(())
    }

    fn read(&self, lba: u64, blocks: u64) -> Result<Vec<u8>, Sense> {
        if lba + blocks > BLOCKS {
            return Err((5, 0x21, 0));
        }
        if blocks == 0 {
            return Ok(vec![]);
        }
        let (z, last) = (lba / SIZE, (lba + blocks - 1) / SIZE);
        let crosses = z != last && (!self.unrestricted || z < CONVENTIONAL);
        if crosses {
            return Err((5, 0x21, 7));
        }
        let restricted = !self.unrestricted && z >= CONVENTIONAL;
        if restricted && lba % SIZE + blocks > self.zones[z as usize].wp {
            return Err((5, 0x21, 6));
        }
        Ok(self.data[lba as usize..(lba + blocks) as usize].to_vec())
    }

    fn manage(&mut self, action: u8, lba: u64, count: u64, all: bool) -> Result<(), Sense> {
        let sequential = CONVENTIONAL as usize..ZONES as usize;
        let zones: Vec<usize> = if all {
            let of = |wanted: &[u8]| -> Vec<usize> {
                sequential.clone().filter(|z| wanted.contains(&self.zones[*z].condition)).collect()
            };
            match action {
                1 => of(&[2, 3]),
                2 => [of(&[2, 3]), of(&[4])].concat(),
                3 if of(&[3, 4]).len() > MAX_OPEN => return Err((7, 0x55, 0x0e)),
                3 => of(&[4]),
                _ => sequential.collect(),
            }
        } else {
            if lba >= BLOCKS {
                return Err((5, 0x21, 0));
            }
            let first = lba / SIZE;
            if !lba.is_multiple_of(SIZE) || first + count > ZONES || first < CONVENTIONAL {
                return Err((5, 0x24, 0));
            }
            (first as usize..(first + count) as usize).collect()
        };
        for z in zones {
            match (action, self.zones[z].condition) {
                (1, _) => self.close(z),
                (2 | 3, FULL) => {}
                (2, _) => {
                    self.open(z, false)?;
                    self.set_full(z);
                }
                (3, _) => self.open(z, true)?,
                _ => {
                    self.opened.retain(|o| *o != z);
                    self.zones[z] = Zone { condition: 1, wp: 0 };
                    let start = z * SIZE as usize;
                    self.data[start..start + Model::len(z) as usize].fill(0);
                }
            }
        }
        Ok(())
    }

    fn report(&self, lba: u64, options: u8, allocation: usize) -> Result<Vec<u8>, Sense> {
        if lba >= BLOCKS {
            return Err((5, 0x21, 0));
        }
        let (partial, option) = (options & 0x80 != 0, options & 0x3f);
        let wanted = |z: &usize| match option {
            0 | 0x3e => true,
            1..=4 => self.zones[*z].condition == option,
            5 => self.zones[*z].condition == FULL,
            0x3f => self.zones[*z].condition == 0,
            _ => false,
        };
        let zones: Vec<usize> = ((lba / SIZE) as usize..ZONES as usize).filter(wanted).collect();
        let fit = zones.len().min(allocation.saturating_sub(64) / 64);
        let listed = if partial { fit } else { zones.len() };
        let mut b = ((listed * 64) as u32).to_be_bytes().to_vec();
        b.extend([0; 4]);
        b.extend((BLOCKS - 1).to_be_bytes());
        b.resize(64, 0);
        for z in zones {
            let Zone { condition, wp } = self.zones[z];
            let start = z as u64 * SIZE;
            let wp = if matches!(condition, 0 | FULL) { u64::MAX } else { start + wp };
            b.extend([if (z as u64) < CONVENTIONAL { 1 } else { 2 }, condition << 4]);
            b.extend([0; 6]);
            [Model::len(z), start, wp].iter().for_each(|n| b.extend(n.to_be_bytes()));
            b.extend([0; 32]);
        }
        b.truncate(allocation);
        Ok(b)
    }
}

#[derive(Debug, Clone)]
enum Do {
    /// At the write pointer of a zone, or so many blocks behind it; with a command of 10, 12 or 16 bytes.
    Write(usize, u64, u64, u8),
    WriteAt(u64, u64),
    Zeroes(usize, u64),
    Read(u64, u64),
    Verify(u64, u64),
    /// With data, of which so many blocks are not those of the disk.
    Compare(u64, u64, u8),
    /// WRITE SAME of a block with these bytes.
    Same(usize, u64, u8),
    Manage(u8, u64, u64, bool),
    Report(u64, u8, usize),
    Flush,
}

fn step() -> impl Strategy<Value = Do> {
    let options = prop::sample::select(vec![0, 1, 2, 3, 4, 5, 6, 7, 0x10, 0x11, 0x3e, 0x3f]);
    let lba = prop_oneof![4 => (0..ZONES).prop_map(|z| z * SIZE), 1 => 0..BLOCKS + 4];
    prop_oneof![
        6 => (0..ZONES as usize, prop_oneof![5 => Just(0u64), 1 => 0u64..3], 0u64..9, 1u8..250)
            .prop_map(|(z, behind, n, fill)| Do::Write(z, behind, n, fill)),
        1 => (0..BLOCKS + 4, 1u64..20).prop_map(|(lba, n)| Do::WriteAt(lba, n)),
        1 => (0..ZONES as usize, 1u64..9).prop_map(|(z, n)| Do::Zeroes(z, n)),
        2 => (0..BLOCKS + 4, 0u64..20).prop_map(|(lba, n)| Do::Read(lba, n)),
        1 => (0..BLOCKS + 4, 0u64..20).prop_map(|(lba, n)| Do::Verify(lba, n)),
        1 => (0..BLOCKS + 4, 0u64..20, 0u8..2).prop_map(|(lba, n, wrong)| Do::Compare(lba, n, wrong)),
        1 => (0..ZONES as usize, 1u64..9, 0u8..9).prop_map(|(z, n, fill)| Do::Same(z, n, fill)),
        4 => (1u8..5, lba, prop_oneof![5 => Just(1u64), 1 => 1u64..4], prop::bool::weighted(0.2))
            .prop_map(|(action, lba, n, all)| Do::Manage(action, lba, n, all)),
        3 => (0..BLOCKS + 4, options, any::<bool>(), 0usize..600)
            .prop_map(|(lba, option, partial, n)| Do::Report(lba, option | u8::from(partial) << 7, n)),
        1 => Just(Do::Flush),
    ]
}

fn bytes(blocks: &[u8]) -> Vec<u8> {
    blocks.iter().flat_map(|b| std::iter::repeat_n(*b, BLOCK as usize)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every answer is that of ZBC-2: data, zones, and the sense of each refusal.
    #[test]
    fn commands_do_what_the_standard_says(unrestricted in any::<bool>(), steps in prop::collection::vec(step(), 1..60)) {
        let (mut machine, mut model) = (Machine::new(unrestricted), Model::new(unrestricted));
        for (i, step) in steps.into_iter().enumerate() {
            match step.clone() {
                Do::Write(z, behind, n, fill) => {
                    let lba = z as u64 * SIZE + model.zones[z].wp + behind;
                    let data = bytes(&vec![fill; n as usize]);
                    let [_, _, _, _, _, _, l0, l1, l2, l3] = *long(0, 0, lba, 0).first_chunk().unwrap();
                    let n0 = n as u8;
                    let got = match i % 3 {
                        0 => machine.run(&[0x2a, 8, l0, l1, l2, l3, 0, 0, n0, 0], &data),
                        1 => machine.run(&[0xaa, 0, l0, l1, l2, l3, 0, 0, 0, n0, 0, 0], &data),
                        _ => machine.run(&long(0x8a, 0, lba, n as u32), &data),
                    };
                    prop_assert_eq!(got, model.write(lba, n, fill).map(|()| vec![]), "{:?}", step);
                }
                Do::WriteAt(lba, n) => {
                    let got = machine.run(&long(0x8a, 0, lba, n as u32), &bytes(&vec![9; n as usize]));
                    prop_assert_eq!(got, model.write(lba, n, 9).map(|()| vec![]), "{:?}", step);
                }
                Do::Zeroes(z, n) => {
                    let lba = z as u64 * SIZE + model.zones[z].wp;
                    let got = machine.run(&long(0x93, 1, lba, n as u32), &[]);
                    prop_assert_eq!(got, model.write(lba, n, 0).map(|()| vec![]), "{:?}", step);
                }
                Do::Read(lba, n) => {
                    let got = machine.run(&long(0x88, 0, lba, n as u32), &[]);
                    let want = model.read(lba, n).map(|b| bytes(&b));
                    prop_assert!(got == want, "{step:?}: {:?}", got.map(|b| b.len()));
                }
                Do::Verify(lba, n) => {
                    let got = machine.run(&long(0x8f, 0, lba, n as u32), &[]);
                    prop_assert_eq!(got, model.read(lba, n).map(|_| vec![]), "{:?}", step);
                }
                Do::Compare(lba, n, wrong) => {
                    let there = model.read(lba, n);
                    let mut data = there.clone().unwrap_or(vec![3; n as usize]);
                    let differs = wrong > 0 && !data.is_empty();
                    if differs {
                        *data.last_mut().unwrap() ^= 1;
                    }
                    let got = machine.run(&long(0x8f, 2, lba, n as u32), &bytes(&data));
                    let want = match there {
                        Ok(_) if differs => Err((0x0e, 0x1d, 0)),
                        there => there.map(|_| vec![]),
                    };
                    prop_assert_eq!(got, want, "{:?}", step);
                }
                Do::Same(z, n, fill) => {
                    let lba = z as u64 * SIZE + model.zones[z].wp;
                    let got = machine.run(&long(0x93, 0, lba, n as u32), &bytes(&[fill]));
                    prop_assert_eq!(got, model.write(lba, n, fill).map(|()| vec![]), "{:?}", step);
                }
                Do::Manage(action, lba, n, all) => {
                    let mut cdb = long(0x94, action, lba, 0);
                    (cdb[13], cdb[14]) = (n as u8, u8::from(all));
                    let got = machine.run(&cdb, &[]);
                    prop_assert_eq!(got, model.manage(action, lba, n, all).map(|()| vec![]), "{:?}", step);
                }
                Do::Report(lba, options, n) => {
                    let got = machine.report(lba, options, n as u32);
                    prop_assert_eq!(got, model.report(lba, options, n), "{:?}", step);
                }
                Do::Flush => prop_assert_eq!(machine.run(&long(0x91, 0, 0, 0), &[]), Ok(vec![])),
            }
        }
        prop_assert_eq!(machine.report(0, 0, 4096), model.report(0, 0, 4096));
    }
}
