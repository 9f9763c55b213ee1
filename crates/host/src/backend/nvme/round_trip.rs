//! Tests that this back end reads zoneplug's own NVMe target correctly: identify structures and reports of zones.

use super::command::Blocks;
use super::identify::NamespaceIdentity;
use std::net::SocketAddr;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{Condition, Geometry, Limits, ZoneInfo, ZoneType};
use zoneplug_core::{Nanos, Sector, Status};
use zoneplug_nvme::initiator::{self, Data};
use zoneplug_nvme::spec::fabrics::{ANY_CONTROLLER, Configuration, ConnectData, property};
use zoneplug_nvme::spec::identify::{
    IDENTIFY_LEN, IdentifyController, IdentifyControllerNvm, IdentifyControllerZoned,
    IdentifyNamespace, IdentifyNamespaceZoned, cns, csi,
};
use zoneplug_nvme::spec::{Command, Sgl, SglKind, admin, opcode};
use zoneplug_nvme::target::io::{CommandStep, IoResult, Task};
use zoneplug_nvme::target::{Namespace, Nqn, Reply, SubsystemConfig, Target};

const NOW: Nanos = Nanos(0);

fn with_data(c: Command, bytes: usize) -> Command {
    c.with_sgl(Sgl { address: 0, length: bytes as u32, kind: SglKind::Transport })
}

/// A target with one disk, and its controller.
fn target(g: &Geometry, l: &Limits) -> (Target, Nqn, u16) {
    let nqn = Nqn::new("nqn.test").unwrap();
    let mut t = Target::new(vec![]);
    t.add_subsystem(SubsystemConfig::new(nqn.clone())).unwrap();
    t.add_namespaces(&nqn, Namespace::of(0, [1; 16], g, l).unwrap()).unwrap();
    let (connect, Data::Out(data)) =
        initiator::connect(0, 32, ANY_CONTROLLER, nqn.as_str(), "nqn.host")
    else {
        panic!("Connect brings data")
    };
    let local: SocketAddr = "127.0.0.1:4420".parse().unwrap();
    let connect = with_data(connect, ConnectData::LEN);
    let id = t.connect(&connect, &data, local, NOW).unwrap().queue.controller;
    t.admin(id, &Command::property_set(property::CC, Configuration::START.encode()), NOW);
    (t, nqn, id)
}

fn identity(g: &Geometry, l: &Limits) -> NamespaceIdentity {
    let (mut t, _, id) = target(g, l);
    let mut identify = |cns: u8, csi: u8| {
        let c = with_data(Command::new(admin::IDENTIFY), IDENTIFY_LEN).with_nsid(1);
        let c = c.with_cdw(10, u32::from(cns)).with_cdw(11, u32::from(csi) << 24);
        match t.admin(id, &c, NOW) {
            Reply::Now(_, data) => data,
            Reply::Later => panic!("an answer"),
        }
    };
    NamespaceIdentity::of(
        1,
        &IdentifyController::read(&identify(cns::CONTROLLER, 0)).unwrap(),
        &IdentifyNamespace::read(&identify(cns::NAMESPACE, 0)).unwrap(),
        &IdentifyNamespaceZoned::read(&identify(cns::COMMAND_SET_NAMESPACE, csi::ZONED)).unwrap(),
        IdentifyControllerNvm::read(&identify(cns::COMMAND_SET_CONTROLLER, csi::NVM)).as_ref(),
        IdentifyControllerZoned::read(&identify(cns::COMMAND_SET_CONTROLLER, csi::ZONED)).as_ref(),
    )
    .unwrap()
}

/// Y1, J3: the back end reads a disk's geometry and limits from the target's identify structures.
#[test]
fn a_target_says_what_its_disk_is() {
    let g = Geometry::new(64, 24576 * 8, 20000 * 8).unwrap();
    let l = Limits {
        max_open_zones: 14,
        max_active_zones: 28,
        zone_append_max_sectors: 256,
        ..Limits::default()
    };
    let id = identity(&g, &l);
    assert_eq!((id.lba_shift, id.zone_blocks, id.blocks), (12, 24576, 64 * 24576));
    assert_eq!((id.max_open, id.max_active, id.metadata), (14, 28, 0));
    assert_eq!((id.max_append, id.max_transfer), (128 << 10, 1 << 20));
    assert!(id.max_zeroes.is_some() && !id.read_only);
    let bare = Limits {
        logical_block_sectors: 1,
        write_granularity_sectors: 1,
        max_write_zeroes_sectors: 0,
        read_only: true,
        ..Limits::default()
    };
    let id = identity(&g, &bare);
    assert_eq!((id.lba_shift, id.zone_blocks, id.max_zeroes), (9, 24576 * 8, None));
    assert_eq!((id.max_open, id.max_active, id.max_append), (0, 0, 1 << 20));
    assert!(id.read_only);
}

/// Y3, Y7, J7: the back end reads the zones of a disk, in every condition, from the target's report.
#[test]
fn a_target_reports_the_zones_of_its_disk() {
    let g = Geometry::new(7, 256, 192).unwrap();
    let (t, nqn, _) = target(&g, &Limits::default());
    use Condition::{Closed, Empty, ExpOpen, Full, ImpOpen, Offline, ReadOnly};
    let zones = [Empty, ImpOpen, ExpOpen, Closed, ReadOnly, Full, Offline].into_iter().zip(0u64..);
    let zones: Vec<ZoneInfo> = zones
        .map(|(cond, i)| ZoneInfo {
            start: Sector(i * 256),
            len_sectors: 256,
            capacity_sectors: 192,
            wp: Sector(match cond {
                Empty => i * 256,
                Full => i * 256 + 256,
                ReadOnly | Offline => u64::MAX,
                _ => i * 256 + 8 * i,
            }),
            zone_type: ZoneType::SeqWriteRequired,
            cond,
        })
        .collect();
    // The bytes that this back end asks for in a report of all zones.
    let blocks = Blocks { nsid: 1, shift: 3 };
    let bytes = super::command::report_bytes(7);
    let ask = blocks.report(Sector(0), bytes);
    assert_eq!(ask.opcode, opcode::ZONE_MANAGEMENT_RECEIVE);
    let mut c = with_data(Command::new(ask.opcode).with_nsid(ask.nsid), bytes as usize);
    for (i, cdw) in ask.cdw.into_iter().enumerate() {
        c = c.with_cdw(10 + i, cdw);
    }
    let (mut task, step) = Task::begin(&c, &t.namespaces(&nqn).unwrap(), None);
    let CommandStep::Submit(request) = step else { panic!("{step:?}") };
    let mut buffer = AlignedBuf::zeroed(task.buffer_bytes());
    for (i, z) in zones.iter().enumerate() {
        buffer.write(request.memory.0 + 64 * i as u32, &z.encode());
    }
    let done = IoResult { status: Status::Ok, sector: Sector(0), zones: 7 };
    let CommandStep::Answer(completion, sent) = task.next(done, Some(&mut buffer)) else {
        panic!()
    };
    assert_eq!((completion.status, sent), (0, bytes));
    assert_eq!(blocks.zones(&buffer.to_vec()[..sent as usize], Sector(0), 256), Some(zones));
}
