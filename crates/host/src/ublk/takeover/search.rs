//! The search for the device that a dead server has left.
//!
//! Right after a server has died, Linux still calls its device live: the driver notices the death when the last
//! thread of the process has closed `/dev/ublkcN`. This module waits for that before it compares the device with the
//! new server, so that a copy of the disk, or other layers, are refused with the same error as a moment later.

use super::identity::{DeviceIdentity, Match, can_serve, refusal};
use super::journal_file;
use crate::ublk::abi::{self, DevInfo};
use crate::ublk::control::{self, Control};
use crate::ublk::{DEVICE_LIMIT, POLL_INTERVAL, UblkError, UblkOptions};
use std::time::{Duration, Instant};
use zoneplug_core::Error;

/// The parts of the system that the search uses.
pub(in crate::ublk) trait Devices {
    /// The numbers of all ublk devices.
    fn numbers(&self) -> Vec<u32>;

    /// The device with this number, if there is one.
    fn info(&self, id: u32) -> Result<Option<DevInfo>, Error>;

    /// Whether a process has ended, or is about to.
    fn has_ended(&self, pid: i32) -> bool;

    /// The time since an arbitrary start.
    fn now(&self) -> Duration;

    /// Sleeps for a moment.
    fn wait(&self);
}

/// The devices of this machine.
pub(in crate::ublk) struct Machine<'a> {
    control: &'a Control,
    start: Instant,
}

impl Machine<'_> {
    pub(in crate::ublk) fn new(control: &Control) -> Machine<'_> {
        Machine { control, start: Instant::now() }
    }
}

impl Devices for Machine<'_> {
    fn numbers(&self) -> Vec<u32> {
        control::device_numbers()
    }

    fn info(&self, id: u32) -> Result<Option<DevInfo>, Error> {
        self.control.info(id)
    }

    fn has_ended(&self, pid: i32) -> bool {
        // Without a number, the process is in a container that this one cannot see into.
        if pid <= 0 {
            return false;
        }
        match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => ends(&stat),
            Err(_) => true,
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wait(&self) {
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Whether a process ends, from its `/proc/PID/stat`: it is a zombie, it exits (`PF_EXITING`), or a SIGKILL is
/// pending.
fn ends(stat: &str) -> bool {
    const PF_EXITING: u64 = 4;
    const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);
    // The name of the program is in parentheses, and may have any characters.
    let Some((_, fields)) = stat.rsplit_once(") ") else { return false };
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // Fields are counted as in proc_pid_stat(5), where the state is field 3.
    let number = |field: usize| fields.get(field - 3).and_then(|n| n.parse::<u64>().ok());
    let has = |field: usize, bit: u64| number(field).is_some_and(|n| n & bit != 0);
    matches!(fields.first(), Some(&("Z" | "X"))) || has(9, PF_EXITING) || has(31, SIGKILL)
}

/// The next step for a device of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchStep {
    /// Leave the device as it is.
    Leave,
    /// Check again in a moment.
    Wait,
    TakeOver,
    /// The device waits for its server, and this server must not take it over.
    Refuse,
    /// Another process serves the device.
    Served,
    /// The device's server has ended, and the driver does not notice it.
    Unnoticed,
}

/// Times of the search.
#[derive(Debug, Clone, Copy)]
pub(in crate::ublk) struct Patience {
    /// How long to wait for a device that has a server.
    pub(in crate::ublk) served: Duration,
    /// How long the driver may take to notice that a server has ended.
    pub(in crate::ublk) noticed: Duration,
}

impl Patience {
    pub(in crate::ublk) fn new(served: Duration) -> Patience {
        Patience { served, noticed: DEVICE_LIMIT }
    }
}

/// The step for a device in `state`, `waited` after the start of the search. `ended`: its server has ended.
/// `recovery`: this server takes devices over.
fn step(
    state: u16,
    ended: bool,
    is: Match,
    recovery: bool,
    waited: Duration,
    patience: Patience,
) -> SearchStep {
    let same = is == Match::Same;
    match state {
        _ if is == Match::Other => SearchStep::Leave,
        abi::S_DEV_QUIESCED if same && recovery => SearchStep::TakeOver,
        abi::S_DEV_QUIESCED => SearchStep::Refuse,
        abi::S_DEV_LIVE if ended && waited < patience.noticed => SearchStep::Wait,
        abi::S_DEV_LIVE if ended => SearchStep::Unnoticed,
        abi::S_DEV_LIVE if same && waited < patience.served => SearchStep::Wait,
        abi::S_DEV_LIVE if same && !patience.served.is_zero() => SearchStep::Served,
        _ => SearchStep::Leave,
    }
}

/// The device that a dead server of `identity` has left, if there is one. `own`: how often this process has opened
/// the disk's files.
pub(in crate::ublk) fn abandoned(
    devices: &impl Devices,
    identity: &DeviceIdentity,
    own: u64,
    options: &UblkOptions,
    patience: Patience,
) -> Result<Option<DevInfo>, Error> {
    let start = devices.now();
    let mut against = None;
    for id in devices.numbers() {
        while let Some(info) = devices.info(id)? {
            if info.flags & abi::F_USER_RECOVERY == 0 {
                break;
            }
            let noted = journal_file::noted_by_last(options.records.as_deref(), id);
            let is = match identity.compare(&info, noted.as_ref(), own) {
                Match::OtherPlace | Match::PlaceUnknown | Match::KeyUnknown if options.moved => {
                    Match::Same
                }
                is => is,
            };
            if is == Match::Same && options.recovery {
                can_serve(&info)?;
            }
            let ended = is != Match::Other && devices.has_ended(info.pid);
            let waited = devices.now() - start;
            match step(info.state, ended, is, options.recovery, waited, patience) {
                SearchStep::Leave => break,
                SearchStep::Wait => devices.wait(),
                SearchStep::TakeOver if options.id.is_none_or(|wish| wish == id) => {
                    return Ok(Some(info));
                }
                SearchStep::TakeOver => {
                    return Err(UblkError::OtherNumber { id }.into());
                }
                SearchStep::Refuse => {
                    let paths = noted.map(|n| n.paths).filter(|p| !p.is_empty());
                    against.get_or_insert(refusal(is, id, identity, paths.as_deref()));
                    break;
                }
                SearchStep::Served => {
                    return Err(UblkError::Served { id, process: info.pid }.into());
                }
                SearchStep::Unnoticed => {
                    return Err(UblkError::Ending { id, process: info.pid }.into());
                }
            }
        }
    }
    against.map_or(Ok(None), Err)
}

/// The device with this number. If its server has ended, waits until the driver has noticed that.
pub(in crate::ublk) fn once_noticed(
    devices: &impl Devices,
    id: u32,
    patience: Patience,
) -> Result<Option<DevInfo>, Error> {
    let start = devices.now();
    loop {
        match devices.info(id)? {
            Some(info)
                if info.state == abi::S_DEV_LIVE
                    && info.pid > 0
                    && devices.has_ended(info.pid)
                    && devices.now() - start < patience.noticed =>
            {
                devices.wait();
            }
            info => return Ok(info),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::bases::Bases;
    use crate::ublk::WaitReason;
    use std::cell::Cell;

    const SERVER: i32 = 77;
    const SECOND: Duration = Duration::from_secs(1);

    /// A driver that notices the death of a server after a number of queries.
    struct Fake {
        device: DevInfo,
        has_ended: bool,
        notices_after: u32,
        waits: Cell<u32>,
    }

    impl Devices for Fake {
        fn numbers(&self) -> Vec<u32> {
            vec![self.device.dev_id]
        }

        fn info(&self, _: u32) -> Result<Option<DevInfo>, Error> {
            let noticed = self.has_ended && self.waits.get() >= self.notices_after;
            let state = if noticed { abi::S_DEV_QUIESCED } else { abi::S_DEV_LIVE };
            Ok(Some(DevInfo { state, ..self.device }))
        }

        fn has_ended(&self, pid: i32) -> bool {
            pid != SERVER || self.has_ended
        }

        fn now(&self) -> Duration {
            POLL_INTERVAL * self.waits.get()
        }

        fn wait(&self) {
            self.waits.set(self.waits.get() + 1);
        }
    }

    fn identity(spec: &str) -> DeviceIdentity {
        Bases::at_paths_of(&spec.parse().unwrap()).identity(&(0..4), std::slice::from_ref(&(0..4)))
    }

    /// The outcome for a server of `spec` if the device is of `/dev/none-a`, and the number of waits. `looks`: after
    /// so many queries the driver notices the death; `None`: the server lives.
    fn search(spec: &str, moved: bool, looks: Option<u32>, served: Duration) -> (String, u32) {
        let (name, more) = identity("/dev/none-a").words();
        let device = DevInfo {
            dev_id: 4,
            flags: abi::F_USER_RECOVERY,
            pid: SERVER,
            identity: name,
            // The first word has the place.
            more: if moved { [more[0] ^ 1, more[1]] } else { more },
            ..DevInfo::default()
        };
        let fake = Fake {
            device,
            has_ended: looks.is_some(),
            notices_after: looks.unwrap_or(0),
            waits: Cell::new(0),
        };
        let patience = Patience { served, noticed: 2 * SECOND };
        let found = abandoned(&fake, &identity(spec), 0, &UblkOptions::default(), patience);
        let text = match found {
            Ok(Some(info)) => format!("takes over {}", info.dev_id),
            Ok(None) => "a new device".to_owned(),
            Err(e) => e.to_string(),
        };
        (text, fake.waits.get())
    }

    /// An earlier version noted no key. Its device is refused with the hint `--moved`, and is taken over with
    /// `--moved`.
    #[test]
    #[cfg(feature = "crypt")]
    fn a_device_whose_key_is_unsaid_is_taken_with_moved() {
        let spec = "crypt,key-file=/none@/dev/none-a";
        let mine = identity(spec);
        let device = DevInfo { dev_id: 4, flags: abi::F_USER_RECOVERY, ..mine.noted_before() };
        let fake = Fake { device, has_ended: true, notices_after: 0, waits: Cell::new(0) };
        let search = |moved| {
            let options = UblkOptions { moved, ..UblkOptions::default() };
            let patience = Patience { served: Duration::ZERO, noticed: SECOND };
            abandoned(&fake, &mine, 0, &options, patience).map(|found| found.map(|d| d.dev_id))
        };
        let refused = search(false).unwrap_err();
        let is_key =
            |e: &UblkError| matches!(e, UblkError::Waits { because: WaitReason::KeyUnknown, .. });
        assert!(refused.detail().is_some_and(is_key), "{refused:?}");
        assert!(refused.what_to_try().is_some_and(|h| h.contains("'moved'")), "{refused:?}");
        assert_eq!(search(true).unwrap(), Some(4));
    }

    /// U12: the search waits until the driver has noticed the death, also if the disk is not the same; it is refused
    /// after that.
    #[test]
    fn u12_a_device_is_live_for_a_moment_after_the_death_of_its_server() {
        let layers = "po2@/dev/none-a";
        for served in [Duration::ZERO, SECOND] {
            for looks in [0, 3, 60] {
                let looks = Some(looks);
                let (text, waited) = search("/dev/none-a", false, looks, served);
                assert_eq!((&*text, Some(waited)), ("takes over 4", looks), "{served:?}");
                let (text, waited) = search(layers, false, looks, served);
                assert!(text.contains("waits for its server"), "{text}");
                assert_eq!(Some(waited), looks);
                let (text, waited) = search("/dev/none-a", true, looks, served);
                assert!(text.contains("now leads to another drive"), "{text}");
                assert_eq!(Some(waited), looks);
            }
            let others = search("/dev/none-b", false, Some(60), served);
            assert_eq!(others, ("a new device".to_owned(), 0), "no disk of its own");
            // The driver never notices: there is no new device, and the wait ends.
            for (spec, moved) in [("/dev/none-a", false), ("/dev/none-a", true), (layers, false)] {
                let (text, waited) = search(spec, moved, Some(u32::MAX), served);
                assert!(text.contains("waits for the end of its server, process 77"), "{text}");
                assert!(
                    POLL_INTERVAL * waited >= 2 * SECOND && POLL_INTERVAL * waited < 3 * SECOND,
                    "{waited}"
                );
            }
        }
    }

    /// A device of a living server is left alone: the disk's lock decides.
    #[test]
    fn the_device_of_a_living_server_is_left_to_it() {
        let (text, waited) = search("/dev/none-a", false, None, SECOND);
        assert!(text.contains("process 77 serves it"), "{text}");
        assert_eq!(POLL_INTERVAL * waited, SECOND);
        for (spec, moved, served) in [
            ("/dev/none-a", false, Duration::ZERO),
            ("/dev/none-a", true, SECOND),
            ("po2@/dev/none-a", false, SECOND),
        ] {
            assert_eq!(search(spec, moved, None, served), ("a new device".to_owned(), 0));
        }
    }

    /// The state of a device is returned once the driver has noticed the death of its server; at once if the server
    /// lives.
    #[test]
    fn a_device_is_looked_at_once_its_servers_death_is_noticed() {
        for (has_ended, waits, state) in
            [(true, 5, abi::S_DEV_QUIESCED), (false, 0, abi::S_DEV_LIVE)]
        {
            let device = DevInfo { pid: SERVER, ..DevInfo::default() };
            let fake = Fake { device, has_ended, notices_after: 5, waits: Cell::new(0) };
            let patience = Patience { served: Duration::ZERO, noticed: SECOND };
            let info = once_noticed(&fake, 0, patience).unwrap().unwrap();
            assert_eq!((info.state, fake.waits.get()), (state, waits));
        }
    }

    #[test]
    fn a_process_that_ends_is_known_by_its_stat() {
        let stat = |state: &str, flags: u64, pending: u64| {
            let rest: String = (10..31).map(|n| format!("{n} ")).collect();
            format!("77 (a) Z (b) {state} 1 77 77 0 -1 {flags} {rest}{pending} 0 0 0\n")
        };
        assert!(!ends(&stat("S", 0x40_0100, 0)));
        assert!(!ends(&stat("S", 0x40_0100, 1 << 14)), "SIGTERM waits for it");
        assert!(ends(&stat("Z", 0, 0)));
        assert!(ends(&stat("D", 0x40_0104, 0)));
        assert!(ends(&stat("R", 0x40_0100, 1 << 8)));
        assert!(!ends(""));
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert!(!ends(&own), "{own}");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        child.kill().unwrap();
        let of = |id: u32| std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        assert!(ends(&of(child.id())), "killed, and not waited for");
        child.wait().unwrap();
    }
}
