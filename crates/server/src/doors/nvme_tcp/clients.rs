//! Checks before a takeover: hosts of the running server must find the same subsystem at the next one.

use crate::error::Difference;
use std::collections::BTreeMap;
use zoneplug_control::client::{HostShown, StateOfSubsystem, StateShown};
use zoneplug_core::plain;

/// The subsystem that the next server would show to hosts.
pub(super) struct Offered<'a> {
    pub(super) nqn: &'a str,
    pub(super) addresses: Vec<String>,
    /// Whether the host of this NQN may connect; the second argument is true for a host with a key.
    pub(super) admits: &'a dyn Fn(&str, bool) -> bool,
    /// See [`StateOfSubsystem::key_checks`].
    pub(super) key_checks: BTreeMap<String, String>,
}

/// Compares the subsystem of a running server, if it has one, with that of the next one.
pub(super) fn compare(state: &StateShown, offered: &Offered<'_>) -> Result<(), Difference> {
    let Some(subsystem) = &state.subsystem else { return Ok(()) };
    let named =
        |d: Difference| Difference { what: format!("{}, {}", plain(&subsystem.nqn), d.what), ..d };
    compare_subsystem(subsystem, offered).map_err(named)
}

/// Compares the names, the addresses, and which hosts may connect with which keys.
fn compare_subsystem(s: &StateOfSubsystem, offered: &Offered<'_>) -> Result<(), Difference> {
    if s.nqn != offered.nqn {
        let what = format!("and this one would have the name {}", plain(offered.nqn));
        return Err(Difference::new(what, format!("--nqn {}", plain(&s.nqn))));
    }
    if let Some(path) = s.paths.iter().find(|p| !offered.addresses.contains(&p.address)) {
        let address = plain(&path.address);
        return Err(Difference::new(
            format!("also at {address}, where this one would not listen"),
            format!("{address} too, behind the disks"),
        ));
    }
    let locked_out = |h: &&HostShown| !(offered.admits)(&h.nqn, h.authenticated);
    if let Some(host) = s.hosts.iter().find(locked_out) {
        let nqn = plain(&host.nqn);
        let (how, hint) = match host.authenticated {
            true => ("with a key", format!("--dhchap-key {nqn}=FILE; or disconnect that host")),
            false => ("without a key", format!("--allow-host {nqn}; or disconnect that host")),
        };
        let what = format!("and {nqn}, which is connected {how}, could not connect so any more");
        return Err(Difference::new(what, hint));
    }
    let other_key = |h: &&HostShown| {
        let checks = (s.key_checks.get(&h.nqn), offered.key_checks.get(&h.nqn));
        h.authenticated && matches!(checks, (Some(was), Some(is)) if was != is)
    };
    if let Some(host) = s.hosts.iter().find(other_key) {
        let what = format!(
            "and {}, which is connected with a key, would find another key or group",
            plain(&host.nqn)
        );
        let hint = "--dhchap-key, --dhchap-ctrl-key and --dhchap-dhgroup as that server has them; or disconnect that host";
        return Err(Difference::new(what, hint));
    }
    Ok(())
}

/// Fails if the next server, which shows `shown`, would drop or change a namespace of `s`, or the limit of appends. New
/// namespaces are allowed.
pub(super) fn compare_namespaces(
    s: &StateOfSubsystem,
    shown: &zoneplug_host::nvme_tcp::ShownSubsystem,
) -> Result<(), Difference> {
    for was in &s.namespaces {
        let name = format!("namespace {} ({})", was.nsid, plain(&was.disk));
        let Some(is) = shown.namespaces.iter().find(|n| n.nsid == was.nsid) else {
            return Err(Difference::new(
                format!("{name} would be gone"),
                "the same disks, each as it was",
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
            let hint = "the disk as it was";
            return Err(Difference::new(format!("{name} would have {difference}"), hint));
        }
    }
    if shown.append_limit != s.append_limit {
        let what = "hosts have read another limit of appends than would hold with these disks";
        let hint = "the disk that is new in a server of its own, or with another --nqn";
        return Err(Difference::new(what, hint));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::nvme_tcp::shown;
    use zoneplug_control::client::PathShown;

    const NQN: &str = "nqn.2026-11.dev.zoneplug:test";
    const ADDRESS: &str = "127.0.0.1:4420";

    fn subsystem() -> StateOfSubsystem {
        StateOfSubsystem {
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
        }
    }

    fn offered<'a>() -> Offered<'a> {
        let key_checks = BTreeMap::new();
        Offered { nqn: NQN, addresses: vec![ADDRESS.to_owned()], admits: &|_, _| true, key_checks }
    }

    /// U15: a namespace with another shape or other limits than hosts have read is refused.
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
        let known = vec![shown::namespace(&is, "tcp4420n2".to_owned())];
        let was = StateOfSubsystem { namespaces: known, ..subsystem() };
        let ask = |change: fn(&mut ShownNamespace)| {
            let mut changed = is.clone();
            change(&mut changed);
            let shown =
                ShownSubsystem { namespaces: vec![changed], append_limit: 8, uuids: Vec::new() };
            compare_namespaces(&was, &shown).map_err(|d| d.what)
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

    /// U15: another name, other addresses, or refused hosts make the comparison fail.
    #[test]
    fn u15_hosts_find_the_subsystem_that_they_know() {
        let known = subsystem();
        let ask = |known: &StateOfSubsystem, offered: &Offered<'_>| {
            compare_subsystem(known, offered).map_err(|d| format!("{}; try: {}", d.what, d.hint))
        };
        assert_eq!(ask(&known, &offered()), Ok(()));
        let elsewhere = Offered { addresses: Vec::new(), ..offered() };
        assert!(ask(&known, &elsewhere).unwrap_err().contains("would not listen"));
        let renamed = Offered { nqn: "nqn.2026-11.dev.zoneplug:other", ..offered() };
        let e = ask(&known, &renamed).unwrap_err();
        assert!(e.contains("would have the name") && e.contains(NQN), "{e}");
        let mut second = known.clone();
        let path = PathShown { address: "127.0.0.2:4420".to_owned(), ana_state: String::new() };
        second.paths.push(path);
        let e = ask(&second, &offered()).unwrap_err();
        assert!(e.contains("also at 127.0.0.2:4420"), "{e}");
        let host =
            |nqn: &str, authenticated| HostShown { nqn: nqn.to_owned(), queues: 1, authenticated };
        let hosts = vec![host("nqn.a", false), host("nqn.b", true)];
        let mut connected = StateOfSubsystem { hosts, ..known };
        type Admits<'a> = &'a dyn Fn(&str, bool) -> bool;
        for (admits, refused) in [
            (&(|_: &str, _: bool| true) as Admits<'_>, None),
            (
                &|nqn: &str, key: bool| key && nqn == "nqn.b",
                Some("nqn.a, which is connected without"),
            ),
            (&|_: &str, key: bool| !key, Some("nqn.b, which is connected with a key")),
        ] {
            let got = ask(&connected, &Offered { admits, ..offered() });
            match refused {
                None => assert_eq!(got, Ok(())),
                Some(text) => assert!(got.clone().unwrap_err().contains(text), "{got:?}"),
            }
        }
        let check = |text: &str| BTreeMap::from([("nqn.b".to_owned(), text.to_owned())]);
        connected.key_checks = check("1");
        for (is, same) in [("1", true), ("2", false)] {
            let got = ask(&connected, &Offered { key_checks: check(is), ..offered() });
            assert_eq!(got.is_ok(), same, "{got:?}");
        }
    }
}
