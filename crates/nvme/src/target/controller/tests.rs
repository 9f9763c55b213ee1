//! Admin commands.

use crate::spec::fabrics::{
    ANY_CONTROLLER, Capabilities, Configuration, DISCOVERY_NQN, VERSION, csts, fctype, property,
};
use crate::spec::identify::{
    IdentifyController, IdentifyControllerNvm, IdentifyControllerZoned, IdentifyNamespace,
    IdentifyNamespaceIndependent, IdentifyNamespaceZoned, NamespaceId, cns, csi,
    decode_namespace_ids, decode_namespace_list,
};
use crate::spec::log::{
    EffectsLog, EnduranceGroupLog, HealthLog, RETAIN_EVENT, RotationalMediaLog, SupportedLogs, lid,
};
use crate::spec::{Command, admin, feature, status, text};
use crate::target::testing::*;
use crate::target::{Activity, Namespace, QueueId, TargetEvent};
use zoneplug_core::zone::{Geometry, Limits};

const DNR: u16 = status::DNR;

#[test]
fn a_controller_starts_and_stops() {
    let mut t = target();
    let id = Hello::new(NQN, ANY_CONTROLLER, 0).send(&mut t).unwrap().queue.controller;
    let get = |t: &mut _, p, bytes| ok(t, id, Command::property_get(p, bytes)).0;
    let cap = Capabilities::decode(get(&mut t, property::CAP, 8));
    assert_eq!((cap.mqes, cap.css), (1023, 0x41));
    assert_eq!(get(&mut t, property::VS, 4), u64::from(VERSION));
    assert_eq!(get(&mut t, property::CSTS, 4), 0);
    let queues = get_feature(feature::QUEUES);
    assert_eq!(fails(&mut t, id, queues), status::SEQUENCE | DNR, "not ready");

    enable(&mut t, id, Configuration::START);
    assert_eq!(get(&mut t, property::CSTS, 4), u64::from(csts::READY));
    assert_eq!(get(&mut t, property::CC, 4), u64::from(Configuration::START.encode()));
    io_queue(&mut t, id);
    // A reset ends the I/O queues but not the controller.
    enable(&mut t, id, Configuration { enable: false, ..Configuration::START });
    assert_eq!(t.take_events(), [TargetEvent::CloseIo(id)]);
    t.drained(QueueId { controller: id, qid: 1 });
    assert_eq!(get(&mut t, property::CSTS, 4), 0);
    enable(&mut t, id, Configuration::START);
    // The host must request queues again.
    assert_eq!(Hello::new(NQN, id, 1).send(&mut t).unwrap_err().result, 42);
    io_queue(&mut t, id);
    enable(&mut t, id, Configuration { shn: 1, ..Configuration::START });
    let shut = u64::from(csts::READY | csts::SHUTDOWN_COMPLETE);
    assert_eq!(get(&mut t, property::CSTS, 4), shut);
}

/// L8. A reset or a shutdown is complete when the commands of all I/O queues have ended, also those of queues whose
/// connections had ended before.
#[test]
fn l8_a_reset_is_done_when_the_commands_in_flight_have_ended() {
    let reset = Configuration { enable: false, ..Configuration::START };
    let shutdown = Configuration { shn: 1, ..Configuration::START };
    let occurring = csts::READY | csts::SHUTDOWN_OCCURRING;
    let complete = csts::READY | csts::SHUTDOWN_COMPLETE;
    for (cc, closed, until, then) in [
        (reset, false, csts::READY, 0),
        (reset, true, csts::READY, 0),
        (shutdown, true, occurring, complete),
    ] {
        let mut t = target();
        let id = connect(&mut t);
        let state = |t: &mut _| ok(t, id, Command::property_get(property::CSTS, 4)).0 as u32;
        let queue = |qid| QueueId { controller: id, qid };
        io_queue(&mut t, id);
        Hello::new(NQN, id, 2).send(&mut t).unwrap();
        if closed {
            t.draining(queue(1));
            t.draining(queue(2));
        }
        enable(&mut t, id, cc);
        assert_eq!(state(&mut t), until);
        if cc == reset {
            assert_eq!(fails(&mut t, id, get_feature(feature::QUEUES)), status::SEQUENCE | DNR);
            let start = Command::property_set(property::CC, Configuration::START.encode());
            assert_eq!(fails(&mut t, id, start), status::SEQUENCE | DNR, "not before RDY is 0");
            assert_eq!(
                Hello::new(NQN, id, 1).send(&mut t).unwrap_err().status,
                status::CONNECT_PARAMETERS | DNR
            );
        }
        t.drained(queue(2));
        assert_eq!(state(&mut t), until, "one is left");
        t.drained(queue(1));
        assert_eq!(state(&mut t), then);
    }
    // A connected queue does not delay a shutdown.
    let mut t = target();
    let id = connect(&mut t);
    io_queue(&mut t, id);
    enable(&mut t, id, shutdown);
    assert_eq!(ok(&mut t, id, Command::property_get(property::CSTS, 4)).0, u64::from(complete));
}

#[test]
fn what_a_controller_cannot_do_is_a_fatal_error() {
    let wrong = [
        Configuration { css: 7, ..Configuration::START },
        Configuration { css: 1, ..Configuration::START },
        Configuration { mps: 1, ..Configuration::START },
        Configuration { ams: 1, ..Configuration::START },
        Configuration { iosqes: 5, ..Configuration::START },
        Configuration { iocqes: 5, ..Configuration::START },
    ];
    for cc in wrong {
        let mut t = target();
        let id = connect(&mut t);
        enable(&mut t, id, Configuration::default());
        enable(&mut t, id, cc);
        let state = ok(&mut t, id, Command::property_get(property::CSTS, 4)).0;
        assert_eq!(state, u64::from(csts::FATAL), "{cc:?}");
        assert_eq!(fails(&mut t, id, get_feature(feature::QUEUES)), status::SEQUENCE | DNR);
    }
}

/// With the NVM Command Set alone there are no zoned namespaces.
#[test]
fn a_host_that_knows_no_zones_sees_none() {
    let mut t = target();
    t.add_namespaces(&nqn(NQN), mixed(1)).unwrap();
    let id = connect(&mut t);
    enable(&mut t, id, Configuration::default());
    enable(&mut t, id, Configuration { css: 0, ..Configuration::START });
    let list = ok(&mut t, id, identify(cns::ACTIVE_NAMESPACES, 0, 0)).1;
    assert_eq!(decode_namespace_list(&list), [2]);
    assert_eq!(ok(&mut t, id, identify(cns::NAMESPACE, 0, 1)).1, [0; 4096]);
    let io = io_queue(&mut t, id);
    assert_eq!(io.namespaces.unwrap().iter().count(), 1);
}

/// Y1, J3. The Identify structures describe the disk.
#[test]
fn identify_says_what_the_disk_is() {
    let mut t = target();
    t.add_namespaces(&nqn(NQN), mixed(1)).unwrap();
    let id = connect(&mut t);
    let get = |t: &mut _, cns, csi, nsid| ok(t, id, identify(cns, csi, nsid)).1;
    let c = IdentifyController::read(&get(&mut t, cns::CONTROLLER, 0, 0)).unwrap();
    assert_eq!((c.subnqn, c.cntlid, c.cntrltype, c.cmic), (text(NQN, 0), id, 1, 0));
    assert_eq!((c.mn, c.ver), (text("zoneplug", b' '), VERSION));
    assert_eq!((c.mdts, c.sqes, c.cqes, c.ioccsz, c.kas, c.aerl), (8, 0x66, 0x44, 516, 10, 3));
    // Dataset management for the conventional namespace, write zeroes, a cache that is flushed by namespace.
    assert_eq!((c.oncs, c.vwc, c.oaes), (4 | 8, 5, 0x100));
    let list = |t: &mut _, cns, csi, nsid| decode_namespace_list(&get(t, cns, csi, nsid));
    assert_eq!(list(&mut t, cns::ACTIVE_NAMESPACES, 0, 0), [1, 2, 3]);
    assert_eq!(list(&mut t, cns::ACTIVE_NAMESPACES, 0, 1), [2, 3]);
    assert_eq!(list(&mut t, cns::COMMAND_SET_ACTIVE_NAMESPACES, csi::ZONED, 0), [1, 3]);
    assert_eq!(list(&mut t, cns::COMMAND_SET_ACTIVE_NAMESPACES, csi::NVM, 0), [2]);

    let n = IdentifyNamespace::read(&get(&mut t, cns::NAMESPACE, 0, 1)).unwrap();
    assert_eq!((n.nsze, n.ncap, n.lbaf[n.format()].lbads), (256, 192, 12));
    let z = get(&mut t, cns::COMMAND_SET_NAMESPACE, csi::ZONED, 1);
    let z = IdentifyNamespaceZoned::read(&z).unwrap();
    assert_eq!((z.lbafe[n.format()].zsze, z.zoc, z.ozcs), (32, 0, 1));
    let limits = get(&mut t, cns::COMMAND_SET_CONTROLLER, csi::ZONED, 0);
    // The shortest append of all: 64 sectors.
    assert_eq!(IdentifyControllerZoned::read(&limits).unwrap().zasl, 3);
    let limits = get(&mut t, cns::COMMAND_SET_CONTROLLER, csi::NVM, 0);
    assert_eq!(IdentifyControllerNvm::read(&limits), Some(IdentifyControllerNvm::default()));
    let ids = get(&mut t, cns::NAMESPACE_DESCRIPTORS, 0, 1);
    assert_eq!(decode_namespace_ids(&ids), [NamespaceId::Uuid([0; 16]), NamespaceId::Csi(2)]);
    let any = get(&mut t, cns::INDEPENDENT_NAMESPACE, 0, 1);
    assert_eq!(IdentifyNamespaceIndependent::read(&any).unwrap().nstat, 1);
    for of in [id, u16::MAX] {
        let c = identify(cns::COMMAND_SETS, 0, 0);
        let sets = ok(&mut t, id, c.with_cdw(10, 0x1c | u32::from(of) << 16)).1;
        assert_eq!(sets[..16], [5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    // A namespace that does not exist gives zeroes.
    for cns in [cns::NAMESPACE, cns::COMMAND_SET_NAMESPACE, cns::INDEPENDENT_NAMESPACE] {
        assert_eq!(get(&mut t, cns, 0, 9), [0; 4096]);
    }
    assert_eq!(get(&mut t, cns::COMMAND_SET_NAMESPACE, csi::NVM, 2), [0; 4096]);
}

#[test]
fn a_discovery_controller_has_the_well_known_name() {
    let mut t = target();
    let id = discover(&mut t);
    let c = IdentifyController::read(&ok(&mut t, id, identify(cns::CONTROLLER, 0, 0)).1).unwrap();
    assert_eq!((c.subnqn, c.cntrltype, c.oaes), (text(DISCOVERY_NQN, 0), 2, 1 << 31));
    assert_eq!((c.mn, c.cntlid), (text("zoneplug", b' '), id));
    let pages = SupportedLogs::read(&ok(&mut t, id, log_page(lid::SUPPORTED, 1024, 0)).1).unwrap();
    assert_eq!(pages.pages.iter().filter(|p| **p != 0).count(), 2);
    for c in [
        identify(cns::ACTIVE_NAMESPACES, 0, 0),
        get_feature(feature::QUEUES),
        log_page(lid::EFFECTS, 4096, 0),
        without_data(Command::new(admin::ABORT)),
    ] {
        assert_ne!(fails(&mut t, id, c) & DNR, 0);
    }
}

/// Y1: a rotational disk is marked in the three places that Linux reads: the namespace, its endurance group, and the
/// group's log page.
#[test]
fn a_disk_that_turns_says_so() {
    let mut t = target();
    let g = Geometry::new(8, 256, 192).unwrap();
    let l = Limits { rotational: true, write_cache: true, ..Limits::default() };
    let l = Limits { zone_append_max_sectors: 64, ..l };
    t.add_namespaces(&nqn(NQN), Namespace::of(9, [9; 16], &g, &l).unwrap()).unwrap();
    let id = connect(&mut t);
    let independent = |t: &mut _, nsid| {
        let data = ok(t, id, identify(cns::INDEPENDENT_NAMESPACE, 0, nsid)).1;
        IdentifyNamespaceIndependent::read(&data).unwrap()
    };
    let (still, turns) = (independent(&mut t, 1), independent(&mut t, 2));
    assert_eq!((still.nsfeat & 1 << 4, turns.nsfeat & 1 << 4), (0, 1 << 4));
    assert_eq!((still.endgid, turns.endgid), (1, 2));
    let n = ok(&mut t, id, identify(cns::NAMESPACE, 0, 2)).1;
    assert_eq!(IdentifyNamespace::read(&n).unwrap().endgid, 2);
    let c = IdentifyController::read(&ok(&mut t, id, identify(cns::CONTROLLER, 0, 0)).1).unwrap();
    assert_eq!((c.ctratt, c.endgidmax), (1 | 1 << 4, 2));
    let list = |t: &mut _, first| {
        let c = identify(cns::ENDURANCE_GROUPS, 0, 0).with_cdw(11, first);
        ok(t, id, c).1[..6].to_vec()
    };
    assert_eq!(list(&mut t, 0), [2, 0, 1, 0, 2, 0]);
    assert_eq!(list(&mut t, 2), [1, 0, 2, 0, 0, 0]);
    assert_eq!(list(&mut t, 3), [0; 6]);
    let log =
        |t: &mut _, page, group: u32| ok(t, id, log_page(page, 512, 0).with_cdw(11, group << 16)).1;
    for (group, turns) in [(1, 0), (2, 1)] {
        let page = log(&mut t, lid::ENDURANCE_GROUP, group);
        assert_eq!(EnduranceGroupLog::read(&page).unwrap().egfeat, turns);
    }
    let page = RotationalMediaLog::read(&log(&mut t, lid::ROTATIONAL_MEDIA, 2)).unwrap();
    assert_eq!((page.endgid, page.actuators, page.speed), (2, 1, 0));
    assert_eq!(ok(&mut t, id, get_feature(feature::SPINUP_CONTROL)).0, 0);
    ok(&mut t, id, set_feature(feature::SPINUP_CONTROL, 0));
}

/// Y2. The effects log of the zoned command set lists append.
#[test]
fn the_effects_log_has_append_for_zoned_namespaces() {
    let mut t = target();
    let id = connect(&mut t);
    let mut effects = |set: u32| {
        let c = log_page(lid::EFFECTS, 4096, 0).with_cdw(14, set << 24);
        EffectsLog::read(&ok(&mut t, id, c).1).unwrap()
    };
    let (nvm, zoned) = (effects(0), effects(2));
    assert_eq!(
        (nvm.iocs[0x7d], zoned.iocs[0x7d], zoned.iocs[0x79], zoned.iocs[0x7a]),
        (0, 3, 3, 1)
    );
    assert_eq!((nvm.iocs[1], zoned.iocs[1], zoned.acs[0x06], zoned.acs[0x01]), (3, 3, 1, 0));
}

#[test]
fn log_pages_come_in_parts() {
    let mut t = target();
    let id = connect(&mut t);
    let whole = ok(&mut t, id, log_page(lid::SUPPORTED, 1024, 0)).1;
    let part = ok(&mut t, id, log_page(lid::SUPPORTED, 512, 4)).1;
    assert_eq!(part, whole[4..516]);
    // Bytes past the end are zeroes.
    let over = ok(&mut t, id, log_page(lid::SUPPORTED, 2048, 1020)).1;
    assert_eq!((&over[..4], &over[4..]), (&whole[1020..], &[0; 2044][..]));
    assert_eq!(fails(&mut t, id, log_page(lid::SUPPORTED, 4, 1028)), status::INVALID_FIELD | DNR);
    assert_eq!(fails(&mut t, id, log_page(lid::SUPPORTED, 4, 2)), status::INVALID_FIELD | DNR);
    let health = ok(&mut t, id, log_page(lid::HEALTH, 512, 0).with_nsid(u32::MAX)).1;
    assert_eq!(HealthLog::read(&health).unwrap().available_spare, 100);
    let activity = Activity { reads: 3, read_bytes: 512_000, writes: 2, written_bytes: 512_001 };
    t.set_activity(id, activity);
    let h = ok(&mut t, id, log_page(lid::HEALTH, 512, 0)).1;
    let h = HealthLog::read(&h).unwrap();
    assert_eq!((h.data_units_read, h.data_units_written), (1, 2));
    assert_eq!((h.host_reads, h.host_writes), (3, 2));
    // Every page that is listed can be read, and no other.
    for (page, there) in SupportedLogs::read(&whole).unwrap().pages.iter().enumerate() {
        let c =
            log_page(page as u8, 64, 0).with_nsid(u32::from(page == 0xbf)).with_cdw(11, 2 << 16);
        let (completion, _) = ask(&mut t, id, c);
        assert_eq!(completion.status == 0, *there != 0, "{page:#x}");
    }
}

/// J5. An event is announced again only after its log page was read.
#[test]
fn an_event_is_announced_again_after_its_log_was_read() {
    let mut t = target();
    let id = connect(&mut t);
    let changed = log_page(lid::CHANGED_NAMESPACES, 4096, 0);
    request_event(&mut t, id, 1);
    t.add_namespaces(&nqn(NQN), zoned(1)).unwrap();
    assert_eq!(completions(&mut t), [], "it is not enabled");
    ok(&mut t, id, set_feature(feature::ASYNC_EVENTS, 1 << 8));
    assert_eq!(completions(&mut t), [(id, 1, 0x4_0002)]);
    for cid in 2..6 {
        request_event(&mut t, id, cid);
    }
    let more = without_data(Command::new(admin::ASYNC_EVENT_REQUEST));
    assert_eq!(fails(&mut t, id, more), status::EVENT_LIMIT | DNR);
    ok(&mut t, id, Command(changed.0).with_cdw(10, changed.cdw(10) | RETAIN_EVENT));
    t.add_namespaces(&nqn(NQN), zoned(2)).unwrap();
    assert_eq!(completions(&mut t), [], "the event was retained");
    assert_eq!(decode_namespace_list(&ok(&mut t, id, Command(changed.0)).1), [2, 3]);
    t.add_namespaces(&nqn(NQN), zoned(3)).unwrap();
    assert_eq!(completions(&mut t), [(id, 2, 0x4_0002)]);
    // A reset aborts the requests; otherwise the transport would keep them for ever.
    enable(&mut t, id, Configuration::default());
    let aborted: Vec<_> = t
        .take_events()
        .into_iter()
        .map(|e| match e {
            TargetEvent::Complete(id, c) => (id, c.cid, c.status),
            e => panic!("{e:?}"),
        })
        .collect();
    assert_eq!(aborted, [3, 4, 5].map(|cid| (id, cid, status::ABORTED | DNR)));
    // The reset forgets which events the host had enabled, and which it had not read.
    enable(&mut t, id, Configuration::START);
    assert_eq!(ok(&mut t, id, get_feature(feature::ASYNC_EVENTS)).0, 0);
    ok(&mut t, id, set_feature(feature::ASYNC_EVENTS, 1 << 8));
    request_event(&mut t, id, 7);
    assert_eq!(completions(&mut t), []);
    t.add_namespaces(&nqn(NQN), zoned(4)).unwrap();
    assert_eq!(completions(&mut t), [(id, 7, 0x4_0002)]);
    assert_eq!(decode_namespace_list(&ok(&mut t, id, changed).1), [5]);
}

#[test]
fn features_have_values() {
    let mut t = target();
    let id = connect(&mut t);
    let get = |t: &mut _, f| ok(t, id, get_feature(f)).0;
    assert_eq!(get(&mut t, feature::QUEUES), 3 | 3 << 16);
    assert_eq!(ok(&mut t, id, set_feature(feature::QUEUES, 1 | 7 << 16)).0, 1 | 1 << 16);
    assert_eq!(get(&mut t, feature::QUEUES), 1 | 1 << 16);
    assert_eq!(ok(&mut t, id, set_feature(feature::QUEUES, 9 | 9 << 16)).0, 3 | 3 << 16);
    assert_eq!(get(&mut t, feature::WRITE_CACHE), 1);
    assert_eq!(get(&mut t, feature::TEMPERATURE_THRESHOLD), 343);
    let cold = get_feature(feature::TEMPERATURE_THRESHOLD).with_cdw(11, 1 << 20);
    assert_eq!(ok(&mut t, id, cold).0, 0);
    for f in super::features::FEATURES.into_iter().filter(|f| *f != feature::HOST_IDENTIFIER) {
        get(&mut t, f);
    }
    let c = with_data(get_feature(feature::HOST_IDENTIFIER), 16).with_cdw(11, 1);
    assert_eq!(ok(&mut t, id, c).1, [9; 16]);
    ok(&mut t, id, set_feature(feature::COMMAND_SET_PROFILE, 0));
    assert_eq!(ok(&mut t, id, without_data(Command::new(admin::ABORT))).0, 1, "not aborted");
}

/// Each wrong field and the status that it gets.
#[test]
fn an_admin_command_that_is_wrong_says_what_is() {
    let mut t = target();
    let id = connect(&mut t);
    let set = |f: u8, v: u32| set_feature(f, v);
    let flags = |c: Command, flags: u8| {
        let mut c = c;
        c.0[1] = flags;
        c
    };
    let id_ctrl = identify(cns::CONTROLLER, 0, 0);
    let auth = Command::fabrics(fctype::AUTHENTICATION_SEND);
    let table = [
        (Command::new(0x81), status::INVALID_FIELD),
        (without_data(Command::new(0x81)), status::INVALID_OPCODE),
        (without_data(Command::new(0x00)), status::INVALID_OPCODE),
        (flags(id_ctrl, 0x41), status::INVALID_FIELD),
        (flags(id_ctrl, 0x00), status::INVALID_FIELD),
        (flags(id_ctrl, 0xc0), status::INVALID_FIELD),
        (with_data(id_ctrl, 4095), status::SGL_LENGTH),
        (with_data(id_ctrl, 8192), status::SGL_LENGTH),
        (identify(0x99, 0, 0), status::INVALID_FIELD),
        (identify(cns::NAMESPACE, 0, 0), status::INVALID_NAMESPACE),
        (identify(cns::NAMESPACE, 0, u32::MAX), status::INVALID_NAMESPACE),
        (identify(cns::ACTIVE_NAMESPACES, 0, u32::MAX), status::INVALID_NAMESPACE),
        (identify(cns::ACTIVE_NAMESPACES, 0, u32::MAX - 1), status::INVALID_NAMESPACE),
        (identify(cns::NAMESPACE_DESCRIPTORS, 0, 9), status::INVALID_NAMESPACE),
        (identify(cns::COMMAND_SET_NAMESPACE, 1, 1), status::INVALID_FIELD),
        (identify(cns::COMMAND_SET_CONTROLLER, 1, 0), status::INVALID_FIELD),
        (identify(cns::COMMAND_SET_ACTIVE_NAMESPACES, 1, 0), status::INVALID_FIELD),
        (identify(cns::COMMAND_SETS, 0, 0).with_cdw(10, 0x63_001c), status::INVALID_FIELD),
        (log_page(0x77, 512, 0), status::INVALID_LOG),
        (log_page(lid::DISCOVERY, 1024, 0), status::INVALID_LOG),
        (log_page(lid::ANA, 1024, 0), status::INVALID_LOG),
        (with_data(log_page(lid::ERROR, 64, 0), 60), status::SGL_LENGTH),
        (log_page(lid::ERROR, (1 << 20) + 4, 0), status::INVALID_FIELD),
        (log_page(lid::ERROR, 64, u64::MAX - 3), status::INVALID_FIELD),
        (log_page(lid::ERROR, 64, 0).with_cdw(14, 1 << 23), status::INVALID_FIELD),
        (log_page(lid::EFFECTS, 64, 0).with_cdw(14, 1 << 24), status::COMMAND_SET_NOT_SUPPORTED),
        (log_page(lid::HEALTH, 512, 0).with_nsid(1), status::INVALID_FIELD),
        (log_page(lid::ENDURANCE_GROUP, 512, 0), status::INVALID_FIELD),
        (log_page(lid::ENDURANCE_GROUP, 512, 0).with_cdw(11, 3 << 16), status::INVALID_FIELD),
        (log_page(lid::ROTATIONAL_MEDIA, 512, 0).with_cdw(11, 1 << 16), status::INVALID_FIELD),
        (log_page(lid::CHANGED_ZONES, 4096, 0).with_nsid(9), status::INVALID_NAMESPACE),
        (get_feature(0x77), status::INVALID_FIELD),
        (get_feature(feature::QUEUES).with_cdw(10, 0x107), status::INVALID_FIELD),
        (with_data(get_feature(feature::QUEUES), 4), status::SGL_LENGTH),
        (with_data(get_feature(feature::HOST_IDENTIFIER), 16), status::INVALID_FIELD),
        (get_feature(feature::HOST_IDENTIFIER).with_cdw(11, 1), status::SGL_LENGTH),
        (set(0x77, 0), status::INVALID_FIELD),
        (set(feature::QUEUES, 0xffff), status::INVALID_FIELD),
        (set(feature::QUEUES, 0xffff_0000), status::INVALID_FIELD),
        (set(feature::QUEUES, 0).with_cdw(10, 1 << 31 | 7), status::NOT_SAVEABLE),
        (set(feature::ASYNC_EVENTS, 1 << 31), status::INVALID_FIELD),
        (set(feature::HOST_IDENTIFIER, 0), status::SEQUENCE),
        (set(feature::KEEP_ALIVE_TIMER, 0), status::KEEP_ALIVE_INVALID),
        (set(feature::COMMAND_SET_PROFILE, 1), status::COMMAND_SET_REJECTED),
        (set(feature::WRITE_CACHE, 0), status::NOT_CHANGEABLE),
        (set(feature::POWER_MANAGEMENT, 1), status::NOT_CHANGEABLE),
        (set(feature::SPINUP_CONTROL, 1), status::NOT_CHANGEABLE),
        (with_data(Command::new(admin::KEEP_ALIVE), 4), status::SGL_LENGTH),
        (Command::property_get(property::CAP, 4), status::INVALID_FIELD),
        (Command::property_get(property::CC, 8), status::INVALID_FIELD),
        (Command::property_get(0x20, 4), status::INVALID_FIELD),
        (Command::property_set(property::CSTS, 0), status::INVALID_FIELD),
        (Command::property_set(property::CC, 0).with_cdw(10, 1), status::INVALID_FIELD),
        (auth, status::INVALID_OPCODE),
        (Command::fabrics(fctype::DISCONNECT), status::QUEUE_TYPE),
    ];
    for (i, (c, status)) in table.into_iter().enumerate() {
        assert_eq!(fails(&mut t, id, c), status | DNR, "{i}: {c:?}");
    }
    // An event request is checked, too.
    let event = with_data(Command::new(admin::ASYNC_EVENT_REQUEST), 4);
    assert_eq!(fails(&mut t, id, event), status::SGL_LENGTH | DNR);
    // A conventional namespace does not take zoned commands.
    t.add_namespaces(&nqn(NQN), mixed(1)).unwrap();
    let c = identify(cns::COMMAND_SET_NAMESPACE, csi::ZONED, 2);
    assert_eq!(fails(&mut t, id, c), status::COMMAND_SET | DNR);
    let c = log_page(lid::CHANGED_ZONES, 4096, 0).with_nsid(2);
    assert_eq!(fails(&mut t, id, c), status::INVALID_NAMESPACE | DNR);
    io_queue(&mut t, id);
    assert_eq!(fails(&mut t, id, set(feature::QUEUES, 0)), status::SEQUENCE | DNR);
}
