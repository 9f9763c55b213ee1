//! Whether a server may take over from a running one. Whatever clients know a disk by is the same afterwards, or this says
//! what differs.

use crate::failure::{Failure, Kind};
use crate::server_client::{HostShown, StateOfDisk, StateOfSubsystem, StateShown};
use rustix::process::Pid;
use std::collections::BTreeMap;
use zoneplug_core::plain;
use zoneplug_host::{DiskMark, paths_of};

/// A disk that the next server is to serve.
pub(super) struct WantedDisk {
    pub(super) spec: String,
    pub(super) mark: DiskMark,
    /// As a block device: the number of the first one, if one is wished for.
    pub(super) id: Option<u32>,
    /// Whether another server could take it over again.
    pub(super) outlives: bool,
}

/// Whether a host may connect, with a key or without one.
pub(super) type Admits<'a> = dyn Fn(&str, bool) -> bool + 'a;

/// The disks and addresses that the next server is to serve.
#[derive(Default)]
pub(super) struct Wanted<'a> {
    pub(super) ublk: Vec<WantedDisk>,
    pub(super) over_network: Vec<WantedDisk>,
    /// Where those are served, and by which name.
    pub(super) addresses: Vec<String>,
    pub(super) nqn: &'a str,
    pub(super) admits: Option<&'a Admits<'a>>,
    /// As [`StateOfSubsystem::key_checks`].
    pub(super) key_checks: BTreeMap<String, String>,
}

impl Wanted<'_> {
    /// All specifications.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        self.ublk.iter().chain(&self.over_network).map(|d| &*d.spec)
    }
}

pub(super) fn refused(what: String, hint: String) -> Failure {
    Failure::new(Kind::Device, what).hint(hint)
}

/// Whether a server has disks of `wanted`, and no others. The failure says what clients would find changed.
pub(super) fn compare(state: &StateShown, wanted: &Wanted<'_>, pid: Pid) -> Result<bool, Failure> {
    let is_of = |all: &[WantedDisk], d: &StateOfDisk| all.iter().any(|w| w.mark.disks == d.disks);
    let served = &state.disks;
    if !served.iter().any(|d| is_of(&wanted.ublk, d) || is_of(&wanted.over_network, d)) {
        return Ok(false);
    }
    // A disk with many zones is several block devices, with numbers from the first one on.
    let mut nth_part = 0;
    for (n, d) in served.iter().enumerate() {
        let before = n.checked_sub(1).and_then(|n| served.get(n));
        let same = before.is_some_and(|b| b.address.is_none() && b.disks == d.disks);
        nth_part = if same { nth_part + 1 } else { 0 };
        one_disk(d, wanted, nth_part).map_err(|(what, hint)| {
            let (name, spec) = (plain(&d.name), plain(&d.spec));
            refused(format!("process {pid} serves {name} from {spec}, {what}"), hint)
        })?;
    }
    if let Some(subsystem) = &state.subsystem {
        of_hosts(subsystem, wanted).map_err(|(what, hint)| {
            refused(format!("process {pid} serves {}, {what}", plain(&subsystem.nqn)), hint)
        })?;
    }
    Ok(true)
}

type Difference = (String, String);

fn one_disk(d: &StateOfDisk, wanted: &Wanted<'_>, nth_part: u32) -> Result<(), Difference> {
    let spec = plain(&d.spec);
    let over_network = d.address.is_some();
    let (all, way) = match over_network {
        true => (&wanted.over_network, "--nvme-tcp"),
        false => (&wanted.ublk, "--ublk"),
    };
    let Some(w) = all.iter().find(|w| w.mark.disks == d.disks) else {
        let is_there = |w: &&WantedDisk| paths_of(&w.spec).eq(paths_of(&d.spec));
        if paths_of(&d.spec).next().is_some() && all.iter().any(|w| is_there(&w)) {
            let hint = "the disk that it serves at that path again, or its new path";
            return Err(("and another disk is at its path now".to_owned(), hint.to_owned()));
        }
        return Err((
            "which this one would not serve in that way".to_owned(),
            format!("{way} {spec} too: a server hands over all or nothing"),
        ));
    };
    if !d.outlives {
        let hint = "disks in files or drives, without --no-recovery; or end that server first";
        return Err(("which ends with it".to_owned(), hint.to_owned()));
    }
    if !w.outlives {
        let hint = "without --no-recovery (no-recovery); or end that server first";
        return Err(("and this one would not keep it for the next".to_owned(), hint.to_owned()));
    }
    if w.mark.layers != d.layers {
        return Err(("with other layers".to_owned(), format!("the same layers: {spec}")));
    }
    if w.mark.place != d.place {
        let hint = format!("the file that it has, not a copy or another one at its path: {spec}");
        return Err(("from another file".to_owned(), hint));
    }
    if let Some(address) = d.address.as_ref().filter(|a| !wanted.addresses.contains(a)) {
        let address = plain(address);
        return Err((
            format!("at {address}, where this one would not listen"),
            format!("--nvme-tcp {address} {spec}"),
        ));
    }
    if let Some(id) = w.id.filter(|id| d.name != format!("ublkb{}", id + nth_part)) {
        let hint = "without --id, or with the number that it has (id)";
        return Err((format!("not as number {id}"), hint.to_owned()));
    }
    Ok(())
}

/// Compares the name, the addresses and who may connect.
fn of_hosts(s: &StateOfSubsystem, wanted: &Wanted<'_>) -> Result<(), Difference> {
    if s.nqn != wanted.nqn {
        let what = format!("and this one would have the name {}", plain(wanted.nqn));
        return Err((what, format!("--nqn {}", plain(&s.nqn))));
    }
    if let Some(path) = s.paths.iter().find(|p| !wanted.addresses.contains(&p.address)) {
        let address = plain(&path.address);
        return Err((
            format!("also at {address}, where this one would not listen"),
            format!("{address} too, behind the disks"),
        ));
    }
    let locked_out =
        |h: &&HostShown| wanted.admits.is_some_and(|admits| !admits(&h.nqn, h.authenticated));
    if let Some(host) = s.hosts.iter().find(locked_out) {
        let nqn = plain(&host.nqn);
        let (how, hint) = match host.authenticated {
            true => ("with a key", format!("--dhchap-key {nqn}=FILE; or disconnect that host")),
            false => ("without a key", format!("--allow-host {nqn}; or disconnect that host")),
        };
        let what = format!("and {nqn}, which is connected {how}, could not connect so any more");
        return Err((what, hint));
    }
    let other_key = |h: &&HostShown| {
        let checks = (s.key_checks.get(&h.nqn), wanted.key_checks.get(&h.nqn));
        h.authenticated && matches!(checks, (Some(was), Some(is)) if was != is)
    };
    if let Some(host) = s.hosts.iter().find(other_key) {
        let what = format!(
            "and {}, which is connected with a key, would find another key or group",
            plain(&host.nqn)
        );
        let hint = "--dhchap-key, --dhchap-ctrl-key and --dhchap-dhgroup as that server has them; or disconnect that host";
        return Err((what, hint.to_owned()));
    }
    Ok(())
}

/// Refuses other namespaces than those that hosts know. `shown`: how the next server would show the disks.
pub(super) fn namespaces(
    s: &StateOfSubsystem,
    shown: &zoneplug_host::nvme_tcp::ShownSubsystem,
) -> Result<(), Difference> {
    for was in &s.namespaces {
        let name = format!("namespace {} ({})", was.nsid, plain(&was.disk));
        let Some(is) = shown.namespaces.iter().find(|n| n.nsid == was.nsid) else {
            return Err((
                format!("{name} would be gone"),
                "the same disks, each as it was".to_owned(),
            ));
        };
        let zones = |blocks: Option<u64>| {
            blocks.map_or_else(|| "no zones".to_owned(), |n| format!("zones of {n} blocks"))
        };
        let difference = if is.block_bytes != was.block_bytes {
            Some(format!("blocks of {} bytes, not {}", is.block_bytes, was.block_bytes))
        } else if is.blocks != was.blocks {
            Some(format!("{} blocks, not {}", is.blocks, was.blocks))
        } else if is.zone_blocks != was.zone_blocks {
            Some(format!("{}, not {}", zones(is.zone_blocks), zones(was.zone_blocks)))
        } else if is.digest != was.digest {
            Some("other limits".to_owned())
        } else {
            None
        };
        if let Some(difference) = difference {
            let hint = "the disk as it was".to_owned();
            return Err((format!("{name} would have {difference}"), hint));
        }
    }
    if shown.append_limit != s.append_limit {
        let what = "hosts have read another limit of appends than would hold with these disks";
        let hint = "the disk that is new in a server of its own, or with another --nqn";
        return Err((what.to_owned(), hint.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_client::{PathShown, StateOfNamespace};

    const NQN: &str = "nqn.2026-11.dev.zoneplug:test";
    const ADDRESS: &str = "127.0.0.1:4420";

    fn served(name: &str, spec: &str) -> StateOfDisk {
        let DiskMark { disks, layers, place, .. } = DiskMark::of(spec);
        let address = name.starts_with("tcp").then(|| ADDRESS.to_owned());
        StateOfDisk {
            name: name.to_owned(),
            spec: spec.to_owned(),
            disks,
            layers,
            place,
            outlives: true,
            address,
            uuid: None,
            enabled: true,
            set: BTreeMap::new(),
        }
    }

    fn state(disks: &[StateOfDisk]) -> StateShown {
        let network = disks.iter().any(|d| d.address.is_some());
        let subsystem = StateOfSubsystem {
            nqn: NQN.to_owned(),
            paths: vec![PathShown {
                address: ADDRESS.to_owned(),
                ana_state: "optimized".to_owned(),
            }],
            append_limit: 8,
            namespaces: Vec::new(),
            hosts: Vec::new(),
            key_checks: BTreeMap::new(),
            known_hosts: Vec::new(),
        };
        StateShown {
            state: 1,
            version: "0".to_owned(),
            disks: disks.to_vec(),
            passes_on: true,
            descriptors: 0,
            subsystem: network.then_some(subsystem),
        }
    }

    fn disks(specs: &[&str]) -> Vec<WantedDisk> {
        let of = |spec: &&str| WantedDisk {
            spec: (*spec).to_owned(),
            mark: DiskMark::of(spec),
            id: None,
            outlives: true,
        };
        specs.iter().map(of).collect()
    }

    fn wanted<'a>(ublk: &[&str], over_network: &[&str]) -> Wanted<'a> {
        Wanted {
            ublk: disks(ublk),
            over_network: disks(over_network),
            addresses: vec![ADDRESS.to_owned()],
            nqn: NQN,
            admits: None,
            key_checks: BTreeMap::new(),
        }
    }

    fn ask(served: &[StateOfDisk], wanted: &Wanted<'_>) -> Result<bool, String> {
        compare(&state(served), wanted, rustix::process::getpid()).map_err(|f| f.to_string())
    }

    /// U9.
    #[test]
    fn u9_all_or_nothing_in_the_way_in_which_it_was_served() {
        let [a, b] = ["/dev/none-a", "/dev/none-b,qd1=1"];
        let running = [served("ublkb0", a), served("ublkb1", "/dev/none-b")];
        assert_eq!(ask(&running, &wanted(&[a, b], &[])), Ok(true), "attributes may differ");
        assert_eq!(ask(&running, &wanted(&["/dev/none-c"], &[])), Ok(false));
        let e = ask(&running, &wanted(&[a], &[])).unwrap_err();
        assert!(e.contains("ublkb1") && e.contains("would not serve"), "{e}");
        let e = ask(&running, &wanted(&[a], &[b])).unwrap_err();
        assert!(e.contains("in that way"), "{e}");
        let e = ask(&running, &wanted(&["po2@/dev/none-a", b], &[])).unwrap_err();
        assert!(e.contains("other layers"), "{e}");
        let mut in_memory = running.clone();
        in_memory[1].outlives = false;
        assert!(ask(&in_memory, &wanted(&[a, b], &[])).unwrap_err().contains("ends with it"));
        let mut copied = running.clone();
        copied[0].place ^= 1;
        assert!(ask(&copied, &wanted(&[a, b], &[])).unwrap_err().contains("another file"));
        let mut forgetful = wanted(&[a, b], &[]);
        forgetful.ublk[1].outlives = false;
        assert!(ask(&running, &forgetful).unwrap_err().contains("would not keep it"));
    }

    /// U15. Hosts have read the shape and the limits of a namespace.
    #[test]
    fn u15_a_namespace_that_would_look_different_is_refused() {
        use zoneplug_host::nvme_tcp::{ShownNamespace, ShownSubsystem};
        let is = ShownNamespace {
            nsid: 2,
            disk: 0,
            uuid: [0; 16],
            block_bytes: 4096,
            blocks: 64,
            zone_blocks: Some(8),
            digest: 5,
        };
        let mut was = state(&[served("tcp4420n2", "/dev/none-a")]).subsystem.unwrap();
        was.namespaces = vec![StateOfNamespace::of(&is, "tcp4420n2".to_owned())];
        let ask = |change: fn(&mut ShownNamespace)| {
            let mut changed = is.clone();
            change(&mut changed);
            let shown =
                ShownSubsystem { namespaces: vec![changed], append_limit: 8, uuids: Vec::new() };
            namespaces(&was, &shown).map_err(|(what, _)| what)
        };
        assert_eq!(ask(|_| ()), Ok(()));
        type Change = fn(&mut ShownNamespace);
        let changes: [(Change, &str); 5] = [
            (|n| n.nsid = 3, "would be gone"),
            (|n| n.block_bytes = 512, "blocks of 512 bytes, not 4096"),
            (|n| n.blocks = 65, "65 blocks, not 64"),
            (|n| n.zone_blocks = None, "no zones, not zones of 8 blocks"),
            (|n| n.digest = 6, "other limits"),
        ];
        for (change, what) in changes {
            let text = ask(change).expect_err(what);
            assert!(text.contains("namespace 2") && text.contains(what), "{text}");
        }
    }

    /// U9. What differs of one disk is refused at whichever place the disk is, in either way, and the failure names it.
    #[test]
    fn u9_what_differs_of_any_disk_is_refused() {
        const SPECS: [&str; 3] = ["/dev/none-a", "/dev/none-b", "/dev/none-c"];
        type Change = fn(&mut StateOfDisk);
        let changes: [(Change, &str); 4] = [
            (|d| d.place ^= 1, "from another file"),
            (|d| d.layers ^= 1, "with other layers"),
            (|d| d.outlives = false, "which ends with it"),
            (|d| d.disks ^= 1, "another disk is at its path now"),
        ];
        for kind in ["ublkb", "tcp4420n"] {
            let wanted = match kind {
                "ublkb" => wanted(&SPECS, &[]),
                _ => wanted(&[], &SPECS),
            };
            let running: Vec<_> =
                (1..).zip(SPECS).map(|(n, spec)| served(&format!("{kind}{n}"), spec)).collect();
            assert_eq!(ask(&running, &wanted), Ok(true));
            for (nth, spec) in SPECS.into_iter().enumerate() {
                for (change, what) in changes {
                    let mut changed = running.clone();
                    change(&mut changed[nth]);
                    let text = ask(&changed, &wanted).expect_err(what);
                    assert!(text.contains(spec) && text.contains(what), "{spec}, {what}: {text}");
                }
            }
        }
        let mut network = [served("tcp4420n1", SPECS[0]), served("tcp4420n2", SPECS[1])];
        network[1].address = Some("127.0.0.1:4421".to_owned());
        let text = ask(&network, &wanted(&[], &SPECS[..2])).unwrap_err();
        assert!(text.contains(SPECS[1]) && text.contains("would not listen"), "{text}");
    }

    /// U15. Numbers belong to disks, in whatever order they are named.
    #[test]
    fn u15_a_block_device_keeps_its_number() {
        let running = [served("ublkb0", "/dev/none-a"), served("ublkb1", "/dev/none-b")];
        let numbered = |ids: [u32; 2]| {
            let mut wanted = wanted(&["/dev/none-b", "/dev/none-a"], &[]);
            wanted.ublk.iter_mut().zip(ids).for_each(|(d, id)| d.id = Some(id));
            wanted
        };
        assert_eq!(ask(&running, &numbered([1, 0])), Ok(true));
        let e = ask(&running, &numbered([0, 1])).unwrap_err();
        assert!(e.contains("not as number"), "{e}");
        // A disk of two devices.
        let parts = [served("ublkb4", "/dev/none-a"), served("ublkb5", "/dev/none-a")];
        let mut both = wanted(&["/dev/none-a"], &[]);
        both.ublk[0].id = Some(4);
        assert_eq!(ask(&parts, &both), Ok(true));
    }

    /// U15. The name, the addresses, and who may connect.
    #[test]
    fn u15_hosts_find_the_subsystem_that_they_know() {
        let a = "/dev/none-a";
        let network = [served("tcp4420n1", a)];
        assert_eq!(ask(&network, &wanted(&[], &[a, "/dev/none-b"])), Ok(true), "one more disk");
        let elsewhere = Wanted { addresses: Vec::new(), ..wanted(&[], &[a]) };
        assert!(ask(&network, &elsewhere).unwrap_err().contains("would not listen"));
        let renamed = Wanted { nqn: "nqn.2026-11.dev.zoneplug:other", ..wanted(&[], &[a]) };
        let e = ask(&network, &renamed).unwrap_err();
        assert!(e.contains("would have the name") && e.contains(NQN), "{e}");
        let mut state = state(&network);
        let subsystem = state.subsystem.as_mut().unwrap();
        let path = PathShown { address: "127.0.0.2:4420".to_owned(), ana_state: String::new() };
        subsystem.paths.push(path);
        let ask = |state: &StateShown, wanted: &Wanted<'_>| {
            compare(state, wanted, rustix::process::getpid()).map_err(|f| f.to_string())
        };
        let e = ask(&state, &wanted(&[], &[a])).unwrap_err();
        assert!(e.contains("also at 127.0.0.2:4420"), "{e}");
        let subsystem = state.subsystem.as_mut().unwrap();
        subsystem.paths.pop();
        let host =
            |nqn: &str, authenticated| HostShown { nqn: nqn.to_owned(), queues: 1, authenticated };
        subsystem.hosts = vec![host("nqn.a", false), host("nqn.b", true)];
        for (admits, refused) in [
            (&(|_: &str, _: bool| true) as &Admits<'_>, None),
            (
                &|nqn: &str, key: bool| key && nqn == "nqn.b",
                Some("nqn.a, which is connected without"),
            ),
            (&|_: &str, key: bool| !key, Some("nqn.b, which is connected with a key")),
        ] {
            let got = ask(&state, &Wanted { admits: Some(admits), ..wanted(&[], &[a]) });
            match refused {
                None => assert_eq!(got, Ok(true)),
                Some(text) => assert!(got.clone().unwrap_err().contains(text), "{got:?}"),
            }
        }
        let check = |text: &str| BTreeMap::from([("nqn.b".to_owned(), text.to_owned())]);
        state.subsystem.as_mut().unwrap().key_checks = check("1");
        for (is, same) in [("1", true), ("2", false)] {
            let got = ask(&state, &Wanted { key_checks: check(is), ..wanted(&[], &[a]) });
            assert_eq!(got.is_ok(), same, "{got:?}");
        }
    }
}
