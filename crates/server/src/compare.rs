//! Compares a running server with the one that is to take over. Clients must find every property that they know a
//! disk by unchanged, or the failure names the difference.

use crate::error::{Difference, ServeError};
use crate::handover::process_id;
use rustix::process::Pid;
use std::net::SocketAddr;
use zoneplug_control::Failure;
use zoneplug_control::client::{StateOfDisk, StateShown};
use zoneplug_core::plain;
use zoneplug_host::{DiskMark, Specification};

/// A disk that the next server will serve.
pub struct WantedDisk {
    /// Its specification.
    pub spec: Specification,
    /// Identifies the disk, even if its path names another one later.
    pub mark: DiskMark,
    /// The number of its first device, if one is requested.
    pub id: Option<u32>,
    /// Whether another server could take it over from the next one.
    pub outlives: bool,
}

impl WantedDisk {
    /// The disk that a specification names now. `keeps`: whether its door keeps disks for the next server.
    pub fn new(spec: &Specification, id: Option<u32>, keeps: bool) -> WantedDisk {
        let outlives = keeps && !spec.is_volatile();
        WantedDisk { spec: spec.clone(), mark: DiskMark::of(spec), id, outlives }
    }
}

/// A disk to be served, by its specification and its mark.
#[derive(Clone, Copy)]
pub(crate) struct MarkedDisk<'a> {
    pub(crate) spec: &'a Specification,
    pub(crate) mark: DiskMark,
}

/// Whether a mark names a disk of another server: the same disks at the bottom, with the same layers.
pub(crate) fn is_of(disk: &StateOfDisk, mark: DiskMark) -> bool {
    let StateOfDisk { disks, layers, place, .. } = *disk;
    mark.is_same_disk(DiskMark { disks, layers, place, opened: 0 })
}

/// Compares the clients' knowledge of a running server, apart from its disks. The difference begins with their name
/// for it.
pub type CompareClients<'a> = dyn Fn(&StateShown) -> Result<(), Difference> + 'a;

/// A door of the next server, with its disks.
pub struct WantedDoor<'a> {
    /// The name of the door: its flag without the dashes.
    pub name: &'static str,
    /// The disks.
    pub disks: Vec<WantedDisk>,
    /// The addresses of the door, if it has any.
    pub addresses: Vec<String>,
    /// Compares the clients' knowledge, apart from the disks.
    pub clients: Box<CompareClients<'a>>,
}

impl WantedDoor<'_> {
    /// A door whose clients know only its disks.
    pub fn new(name: &'static str, disks: Vec<WantedDisk>) -> WantedDoor<'static> {
        WantedDoor { name, disks, addresses: Vec::new(), clients: Box::new(|_| Ok(())) }
    }

    /// Adds the door's addresses.
    pub fn at(self, addresses: &[SocketAddr]) -> Self {
        WantedDoor { addresses: addresses.iter().map(ToString::to_string).collect(), ..self }
    }
}

/// Whether a server has disks of `wanted`. Fails if it also has others, or if clients would find a difference.
pub(crate) fn compare(
    state: &StateShown,
    wanted: &[WantedDoor<'_>],
    pid: Pid,
) -> Result<bool, Failure> {
    let is_wanted = |d: &StateOfDisk| {
        let mut all = wanted.iter().flat_map(|door| &door.disks);
        all.any(|w| w.mark.disks == d.disks)
    };
    let served = &state.disks;
    if !served.iter().any(is_wanted) {
        return Ok(false);
    }
    // A disk with many zones is several block devices with consecutive numbers.
    let mut nth_part = 0;
    for (n, d) in served.iter().enumerate() {
        let before = n.checked_sub(1).and_then(|n| served.get(n));
        let same = before.is_some_and(|b| b.door() == d.door() && b.disks == d.disks);
        nth_part = if same { nth_part + 1 } else { 0 };
        one_disk(d, wanted, nth_part).map_err(|difference| {
            let (disk, spec) = (d.name.clone(), d.spec.clone());
            ServeError::DiskDiffers { process: process_id(pid), disk, spec, difference }
        })?;
    }
    for door in wanted {
        (door.clients)(state).map_err(|difference| ServeError::ClientsDiffer {
            process: Some(process_id(pid)),
            difference,
        })?;
    }
    Ok(true)
}

/// The number at the end of a device's name.
fn number_of(name: &str) -> Option<u32> {
    let digits = name.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |last| last + 1);
    name.get(digits..)?.parse().ok()
}

fn one_disk(d: &StateOfDisk, wanted: &[WantedDoor<'_>], nth_part: u32) -> Result<(), Difference> {
    let (spec, way) = (plain(&d.spec), plain(d.door()));
    let door = wanted.iter().find(|door| door.name == d.door());
    let all = door.map_or(&[][..], |door| &door.disks);
    let Some(w) = all.iter().find(|w| w.mark.disks == d.disks) else {
        let there = Specification::parse(&d.spec).ok();
        let paths: Vec<_> = there.iter().flat_map(|spec| spec.paths()).collect();
        if !paths.is_empty() && all.iter().any(|w| w.spec.paths().eq(paths.iter().copied())) {
            let hint = "the disk that it serves at that path again, or its new path";
            return Err(Difference::new("and another disk is at its path now", hint));
        }
        // A door of the network has an address in front of its disks.
        let at = d.address.as_ref().map_or_else(String::new, |at| format!("{} ", plain(at)));
        return Err(Difference::new(
            "which this one would not serve in that way",
            format!(
                "--{way} {at}{spec} too, or a [[disk]] of it in the file: a server hands over all or nothing"
            ),
        ));
    };
    if !d.outlives {
        let hint = "disks in files or drives, without --no-recovery; or end that server first";
        return Err(Difference::new("which ends with it", hint));
    }
    if !w.outlives {
        let hint = "without --no-recovery (no-recovery); or end that server first";
        return Err(Difference::new("and this one would not keep it for the next", hint));
    }
    if w.mark.layers != d.layers {
        return Err(Difference::new("with other layers", format!("the same layers: {spec}")));
    }
    if w.mark.place != d.place {
        let hint = format!("the file that it has, not a copy or another one at its path: {spec}");
        return Err(Difference::new("from another file", hint));
    }
    let listens = |at: &String| door.is_some_and(|door| door.addresses.contains(at));
    if let Some(address) = d.address.as_ref().filter(|a| !listens(a)) {
        let address = plain(address);
        return Err(Difference::new(
            format!("at {address}, where this one would not listen"),
            format!("--{way} {address} {spec}, or this address in the file"),
        ));
    }
    if let Some(id) = w.id.filter(|id| number_of(&d.name) != Some(id + nth_part)) {
        let hint = "without --id, or with the number that it has (id)";
        return Err(Difference::new(format!("not as number {id}"), hint));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const ADDRESS: &str = "127.0.0.1:4420";

    fn served(name: &str, spec: &str) -> StateOfDisk {
        let DiskMark { disks, layers, place, .. } = DiskMark::of(&spec.parse().unwrap());
        let address = name.starts_with("tcp").then(|| ADDRESS.to_owned());
        StateOfDisk {
            door: None,
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
        StateShown {
            state: 1,
            version: "0".to_owned(),
            disks: disks.to_vec(),
            passes_on: true,
            descriptors: 0,
            subsystem: None,
            known_initiators: Vec::new(),
            handed_over_to: None,
        }
    }

    fn disks(specs: &[&str]) -> Vec<WantedDisk> {
        specs.iter().map(|spec| WantedDisk::new(&spec.parse().unwrap(), None, true)).collect()
    }

    fn wanted(ublk: &[&str], over_network: &[&str]) -> [WantedDoor<'static>; 2] {
        let network = WantedDoor::new("nvme-tcp", disks(over_network));
        let addresses = vec![ADDRESS.to_owned()];
        [WantedDoor::new("ublk", disks(ublk)), WantedDoor { addresses, ..network }]
    }

    fn ask(served: &[StateOfDisk], wanted: &[WantedDoor<'_>]) -> Result<bool, String> {
        compare(&state(served), wanted, rustix::process::getpid()).map_err(|f| f.to_string())
    }

    /// U9: a server takes over all disks or none, each by the same door.
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
        forgetful[0].disks[1].outlives = false;
        assert!(ask(&running, &forgetful).unwrap_err().contains("would not keep it"));
    }

    /// U9: a difference of any disk, by either door, is refused, and the failure names the disk.
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
        assert_eq!(ask(&network[..1], &wanted(&[], &SPECS)), Ok(true), "further disks");
    }

    /// U15: numbers belong to disks, in whatever order the command line names the disks.
    #[test]
    fn u15_a_block_device_keeps_its_number() {
        let running = [served("ublkb0", "/dev/none-a"), served("ublkb1", "/dev/none-b")];
        let numbered = |ids: [u32; 2]| {
            let mut wanted = wanted(&["/dev/none-b", "/dev/none-a"], &[]);
            wanted[0].disks.iter_mut().zip(ids).for_each(|(d, id)| d.id = Some(id));
            wanted
        };
        assert_eq!(ask(&running, &numbered([1, 0])), Ok(true));
        let e = ask(&running, &numbered([0, 1])).unwrap_err();
        assert!(e.contains("not as number"), "{e}");
        // A disk of several devices has consecutive numbers.
        let mut whole = wanted(&["/dev/none-a"], &[]);
        whole[0].disks[0].id = Some(4);
        let parts = |names: &[&str]| -> Vec<_> {
            names.iter().map(|name| served(name, "/dev/none-a")).collect()
        };
        assert_eq!(ask(&parts(&["ublkb4", "ublkb5", "ublkb6", "ublkb7"]), &whole), Ok(true));
        for other in [["ublkb5", "ublkb6"], ["ublkb4", "ublkb6"]] {
            let e = ask(&parts(&other), &whole).unwrap_err();
            assert!(e.contains("not as number"), "{other:?}: {e}");
        }
    }
}
