//! The commands of a host, carried out by the engine on an emulated disk, against a model of a zoned namespace.

#![cfg(feature = "target")]
#![allow(clippy::unwrap_used)]

#[path = "common/request_queue.rs"]
mod request_queue;

use proptest::prelude::*;
use request_queue::RequestQueue;
use std::sync::Arc;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::ZoneNo;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_devices::emu::{EmuConfig, EmuKind};
use zoneplug_nvme::spec::zone::{
    PARTIAL_REPORT, SELECT_ALL, ZoneAction, ZoneDescriptor, ZoneReportHeader,
};
use zoneplug_nvme::spec::{Command, Sgl, SglKind, opcode, status};
use zoneplug_nvme::target::io::{CommandStep, Task};
use zoneplug_nvme::target::{Namespace, Namespaces, Nqn, SubsystemConfig, Target};

const BLOCK: u32 = 4096;
const ZONES: usize = 5;
/// Blocks of a zone, and how many of them can be written.
const SIZE: u64 = 16;
const CAPACITY: u64 = 12;

/// A disk with `conventional` more zones in front, and a host's way to it.
struct Machine {
    queue: RequestQueue,
    namespaces: Arc<Namespaces>,
    /// The zoned namespace.
    nsid: u32,
}

impl Machine {
    fn new(conventional: u32) -> Machine {
        let zones = ZONES as u64 + u64::from(conventional);
        let g = Geometry::new(zones, SIZE as u32 * 8, CAPACITY as u32 * 8).unwrap();
        let g = g.with_conventional((0..conventional).map(ZoneNo)).unwrap();
        let mut emu = EmuConfig::new(EmuKind::Mem, g);
        emu.limits = Limits { max_transfer_sectors: 32, ..Limits::default() };
        let (disk, queue) = RequestQueue::open(emu);
        let mut target = Target::new(vec![]);
        let nqn = Nqn::new("nqn.test").unwrap();
        target.add_subsystem(SubsystemConfig::new(nqn.clone())).unwrap();
        let namespaces = Namespace::of(0, [1; 16], &disk.geometry(), &disk.limits()).unwrap();
        let numbers = target.add_namespaces(&nqn, namespaces).unwrap();
        Machine {
            queue,
            namespaces: target.namespaces(&nqn).unwrap(),
            nsid: *numbers.last().unwrap(),
        }
    }

    /// Carries out a command whose data are `data`, or as many bytes as the host expects: status, result, data.
    fn run(&mut self, c: Command, data: &[u8], expected: u32) -> (u16, u64, Vec<u8>) {
        let length = expected.max(data.len() as u32);
        let sgl = Sgl { address: 0, length, kind: SglKind::Transport };
        let c = c.with_cid(9).with_sgl(sgl);
        let mut buffer = AlignedBuf::zeroed(data.len() as u32);
        buffer.write(0, data);
        let (mut task, mut step) = Task::begin(&c, &self.namespaces, Some(&buffer));
        if buffer.len() < task.buffer_bytes() {
            buffer = AlignedBuf::zeroed(task.buffer_bytes());
            // Bytes of an earlier command.
            buffer.write(0, &vec![0xee; buffer.len() as usize]);
        }
        loop {
            let request = match step {
                CommandStep::Answer(c, send) => {
                    assert_eq!(c.cid, 9);
                    return (c.status, c.result, buffer.to_vec()[..send as usize].to_vec());
                }
                CommandStep::Submit(request) => request,
            };
            let result = self.queue.run(request, &mut buffer);
            step = task.next(result, Some(&mut buffer));
        }
    }

    fn command(&self, opcode: u8, lba: u64) -> Command {
        Command::new(opcode).with_nsid(self.nsid).with_cdw_pair(10, lba)
    }

    fn write(&mut self, opcode: u8, lba: u64, blocks: u32, fill: u8) -> (u16, u64) {
        let c = self.command(opcode, lba).with_cdw(12, blocks - 1);
        let (status, result, sent) = self.run(c, &vec![fill; (blocks * BLOCK) as usize], 0);
        assert!(sent.is_empty());
        (status, result)
    }

    fn manage(&mut self, zone: u64, action: ZoneAction, all: bool) -> u16 {
        let cdw13 = action as u32 | if all { SELECT_ALL } else { 0 };
        self.run(
            self.command(opcode::ZONE_MANAGEMENT_SEND, zone * SIZE).with_cdw(13, cdw13),
            &[],
            0,
        )
        .0
    }

    /// State and write pointer of the zones of a report.
    fn report(&mut self, from: u64, cdw13: u32, zones: u32) -> (u64, Vec<(u64, u8, u64)>) {
        let bytes = 64 + zones * 64;
        let c = self.command(opcode::ZONE_MANAGEMENT_RECEIVE, from * SIZE);
        let (status, _, report) =
            self.run(c.with_cdw(12, bytes / 4 - 1).with_cdw(13, cdw13), &[], bytes);
        assert_eq!((status, report.len() as u32), (0, bytes));
        let zones = report[64..].as_chunks().0.iter().map(ZoneDescriptor::decode);
        let zones = zones.filter(|z| z.zt != 0).map(|z| {
            assert_eq!((z.zone_type(), z.zcap, z.zslba % SIZE), (2, CAPACITY, 0));
            (z.zslba / SIZE, z.state(), z.wp)
        });
        (ZoneReportHeader::read(&report).unwrap().nr_zones, zones.collect())
    }

    fn read(&mut self, zone: u64) -> Vec<u8> {
        let c = self.command(opcode::READ, zone * SIZE).with_cdw(12, SIZE as u32 - 1);
        let (status, _, data) = self.run(c, &[], SIZE as u32 * BLOCK);
        assert_eq!(status, 0);
        data.chunks(BLOCK as usize)
            .map(|b| {
                assert!(b.iter().all(|x| *x == b[0]), "a block is one write's");
                b[0]
            })
            .collect()
    }
}

const EMPTY: u8 = 1;
const IMPLICIT: u8 = 2;
const EXPLICIT: u8 = 3;
const CLOSED: u8 = 4;
const FULL: u8 = 14;

/// A zone according to the Zoned Namespace Command Set Specification, except where an emulated disk differs.
#[derive(Debug, Clone)]
struct Zone {
    state: u8,
    /// Blocks that are written.
    data: Vec<u8>,
}

impl Zone {
    fn write(&mut self, offset: u64, blocks: u32, fill: u8) -> u16 {
        let (at, end) = (self.data.len() as u64, offset + u64::from(blocks));
        let status = match () {
            () if end > SIZE => status::ZONE_BOUNDARY,
            () if self.state == FULL => 0x1b9,
            () if offset != at => 0x1bc,
            () if end > CAPACITY => status::ZONE_BOUNDARY,
            () => {
                self.data.resize(end as usize, fill);
                self.state = match self.state {
                    _ if end == CAPACITY => FULL,
                    EXPLICIT => EXPLICIT,
                    _ => IMPLICIT,
                };
                return 0;
            }
        };
        status | status::DNR
    }

    fn manage(&mut self, action: ZoneAction) -> u16 {
        match (action, self.state) {
            (ZoneAction::Reset, _) => (self.state, self.data) = (EMPTY, vec![]),
            (ZoneAction::Finish, _) => self.state = FULL,
            (ZoneAction::Open, s) if s != FULL => self.state = EXPLICIT,
            (ZoneAction::Close, CLOSED) => {}
            // The state is the disk's. An emulated one follows ZBC where nothing was written (O4); ZNS has the zone closed.
            (ZoneAction::Close, EXPLICIT) if self.data.is_empty() => self.state = EMPTY,
            (ZoneAction::Close, IMPLICIT | EXPLICIT) => self.state = CLOSED,
            _ => return status::ZONE_TRANSITION | status::DNR,
        }
        0
    }

    fn takes_part(&self, action: ZoneAction) -> bool {
        let states: &[u8] = match action {
            ZoneAction::Close => &[IMPLICIT, EXPLICIT],
            ZoneAction::Finish => &[IMPLICIT, EXPLICIT, CLOSED],
            ZoneAction::Open => &[CLOSED],
            _ => &[IMPLICIT, EXPLICIT, CLOSED, FULL],
        };
        states.contains(&self.state)
    }
}

#[derive(Debug, Clone)]
enum Do {
    Write { zone: u64, at: u64, blocks: u32 },
    Append { zone: u64, blocks: u32 },
    Manage { zone: u64, action: ZoneAction, all: bool },
    Report { from: u64, filter: u32, room: u32 },
}

fn anything() -> impl Strategy<Value = Do> {
    let zone = 0..ZONES as u64;
    let action = prop::sample::select(vec![
        ZoneAction::Close,
        ZoneAction::Finish,
        ZoneAction::Open,
        ZoneAction::Reset,
    ]);
    prop_oneof![
        // `at` 0: the write pointer.
        4 => (zone.clone(), prop_oneof![4 => Just(0u64), 1 => 1..SIZE], 1u32..9).prop_map(|(zone, at, blocks)| Do::Write { zone, at, blocks }),
        3 => (zone.clone(), 1u32..5).prop_map(|(zone, blocks)| Do::Append { zone, blocks }),
        3 => (zone.clone(), action, prop::bool::weighted(0.2)).prop_map(|(zone, action, all)| Do::Manage { zone, action, all }),
        2 => (zone, 0u32..6, 0u32..7).prop_map(|(from, filter, room)| Do::Report { from, filter, room }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// J2, J7, J8, Y3-Y7.
    #[test]
    fn a_namespace_is_what_the_specification_says(
        conventional in 0u32..3,
        what in prop::collection::vec(anything(), 1..40),
    ) {
        let mut m = Machine::new(conventional);
        let mut zones = vec![Zone { state: EMPTY, data: vec![] }; ZONES];
        for (i, what) in what.into_iter().enumerate() {
            let fill = i as u8 + 1;
            match what {
                Do::Write { zone, at, blocks } => {
                    let z = &mut zones[zone as usize];
                    let at = if at == 0 { (z.data.len() as u64).min(SIZE - 1) } else { at };
                    let (status, _) = m.write(opcode::WRITE, zone * SIZE + at, blocks, fill);
                    // Beyond the end of the last zone is beyond the namespace.
                    let over = zone * SIZE + at + u64::from(blocks) > ZONES as u64 * SIZE;
                    let want = if over { status::LBA_RANGE | status::DNR } else { z.write(at, blocks, fill) };
                    prop_assert_eq!(status, want);
                }
                Do::Append { zone, blocks } => {
                    let z = &mut zones[zone as usize];
                    let at = z.data.len() as u64;
                    let (status, landed) = m.write(opcode::ZONE_APPEND, zone * SIZE, blocks, fill);
                    prop_assert_eq!(status, z.write(at, blocks, fill));
                    prop_assert_eq!(landed, if status == 0 { zone * SIZE + at } else { 0 });
                }
                Do::Manage { zone, action, all: false } => {
                    let z = &mut zones[zone as usize];
                    prop_assert_eq!(m.manage(zone, action, false), z.manage(action), "{:?} {:?}", action, z);
                }
                Do::Manage { zone, action, all: true } => {
                    for z in zones.iter_mut().filter(|z| z.takes_part(action)) {
                        z.manage(action);
                    }
                    prop_assert_eq!(m.manage(zone, action, true), 0);
                }
                Do::Report { from, filter, room } => {
                    let state = [0, EMPTY, IMPLICIT, EXPLICIT, CLOSED, FULL][filter as usize];
                    let all = (from..).zip(&zones[from as usize..]);
                    let all = all.filter(|(_, z)| state == 0 || z.state == state);
                    let all: Vec<_> = all.map(|(i, z)| {
                        let wp = if z.state == FULL { u64::MAX } else { i * SIZE + z.data.len() as u64 };
                        (i, z.state, wp)
                    }).collect();
                    let part = &all[..all.len().min(room as usize)];
                    let (nr, got) = m.report(from, filter << 8, room);
                    prop_assert_eq!((nr, &got[..]), (all.len() as u64, part));
                    let (nr, got) = m.report(from, filter << 8 | PARTIAL_REPORT, room);
                    prop_assert_eq!((nr, &got[..]), (part.len() as u64, part));
                }
            }
        }
        for (i, z) in zones.iter().enumerate() {
            let mut want = z.data.clone();
            want.resize(SIZE as usize, 0);
            prop_assert_eq!(m.read(i as u64), want);
        }
    }
}
