//! The stamp of a subsystem: the hosts' knowledge of its disks, for a server that is started after this one has ended
//! or died. It is a file beside the journals, valid for one boot. A running server passes the same data on itself
//! (predecessors.rs).
//!
//! Hosts that have lost their server keep connecting, and resend requests in flight to the numbers that they know
//! before they read identifiers. So no other disk gets a number while a host may hold it.
//!
//! | the disk is | it |
//! | --- | --- |
//! | in the stamp, by its identity | keeps numbers and identifiers |
//! | in the stamp, with other layers or keys, a copy, or older | is refused |
//! | another one at the path of one in the stamp | is refused |
//! | in memory, in the stamp by its specification | keeps its numbers, and gets another identifier: its data are gone |
//! | not in the stamp | gets numbers behind all in the stamp |
//!
//! After an orderly end, a disk that a host has used stays in the stamp for as long as hosts may keep connecting.
//! Disks that no host has used are removed.

use super::{clients, shown};
use crate::compare::{MarkedDisk, is_of};
use crate::error::{Difference, ServeError};
use crate::served::PassedDisk;
use nix::time::{ClockId, clock_gettime};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::{Duration, Instant};
use zoneplug_control::Failure;
use zoneplug_control::client::{StateOfDisk, StateOfNamespace, StateOfSubsystem};
use zoneplug_core::plain;
use zoneplug_host::nvme_tcp::{Disk, KnownDisk, ShownSubsystem};
use zoneplug_host::{BootNote, DiskMark, STATE_VERSION, Specification};

/// How long hosts may keep connecting after an orderly end, in seconds. By default Linux makes as many attempts as
/// there are delays in ten minutes (`ctrl_loss_tmo`), and an unanswered attempt takes three seconds. So Linux gives up
/// after 40 minutes with the shortest delay, and after 13 with the usual one.
const HELD_S: u64 = 45 * 60;

/// A disk as hosts know it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StampedDisk {
    disk: StateOfDisk,
    opened: u64,
    /// The paths of its files at that time.
    paths: String,
    namespaces: Vec<StateOfNamespace>,
    /// The end of its server, in seconds since the boot. `None`: the server still runs or was killed.
    ended_s: Option<u64>,
}

/// The content of the file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Record {
    state: u64,
    nqn: String,
    append_limit: u8,
    disks: Vec<StampedDisk>,
}

/// The stamp of a subsystem, kept from the start of a server to its end.
#[derive(Debug, Default)]
pub(super) struct Stamp {
    note: Option<BootNote>,
    nqn: String,
    /// The disks of earlier servers that hosts may know.
    held: Vec<StampedDisk>,
    append_limit: u8,
    /// The disks of this server.
    served: Vec<StampedDisk>,
    /// The reason why hosts may find changes after a restart, if there is one.
    unknown: Option<String>,
    /// A file that is locked while this server has the name of the subsystem.
    claim: Option<Claim>,
}

/// Seconds since the boot.
fn now_s() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |t| t.tv_sec().unsigned_abs())
}

impl StampedDisk {
    /// The entry of a disk that is served from now on.
    fn new(
        spec: &Specification,
        mark: DiskMark,
        uuid: Option<&[u8; 16]>,
        namespaces: Vec<StateOfNamespace>,
    ) -> StampedDisk {
        let DiskMark { disks, layers, place, opened } = mark;
        let disk = StateOfDisk {
            name: String::new(),
            spec: spec.to_string(),
            door: None,
            disks,
            layers,
            place,
            outlives: !spec.is_volatile(),
            address: None,
            uuid: uuid.map(StateOfDisk::uuid_text),
            enabled: true,
            set: BTreeMap::new(),
        };
        StampedDisk { disk, opened, paths: DiskMark::paths(spec), namespaces, ended_s: None }
    }

    fn nsids(&self) -> Vec<u32> {
        self.namespaces.iter().map(|n| n.nsid).collect()
    }

    /// Whether this is the same disk with the same layers and keys, at its place or `moved`, and not an older copy.
    fn is(&self, mark: DiskMark, moved: bool) -> bool {
        let place = if moved { self.disk.place } else { mark.place };
        is_of(&self.disk, DiskMark { place, ..mark }) && mark.opened >= self.opened
    }

    /// The beginning of a failure's text: `hosts know namespace 1 as disk.zbd`.
    fn shown(&self) -> String {
        let nsid = self.namespaces.first().map_or(0, |n| n.nsid);
        format!("hosts know namespace {nsid} as {}", plain(&self.disk.spec))
    }
}

/// The name of a subsystem that this server has. Its file is removed at the end, while it is still locked.
#[derive(Debug)]
struct Claim {
    path: OsString,
    _locked: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether a path still names an open file.
fn is_at(file: &File, path: &OsStr) -> bool {
    let id = |m: std::fs::Metadata| (m.dev(), m.ino());
    let (here, open) = (std::fs::symlink_metadata(path), file.metadata());
    here.map(id).ok().is_some_and(|here| open.map(id).is_ok_and(|open| open == here))
}

/// The file that a server locks while it has the name of a subsystem.
fn lock_of(note: &BootNote) -> OsString {
    let mut path = note.path().as_os_str().to_owned();
    path.push(".lock");
    path
}

impl Stamp {
    /// Reads the stamp of a subsystem's last server. `forget`: assume that hosts know none of its disks.
    pub(super) fn read(nqn: &str, note: Option<BootNote>, forget: bool) -> Stamp {
        let mut stamp = Stamp { note, nqn: nqn.to_owned(), ..Stamp::default() };
        let Some(note) = stamp.note.as_ref().filter(|_| !forget) else { return stamp };
        let record = note.read().map_err(|e| e.to_string()).and_then(|text| match text {
            Some(text) => serde_json::from_str::<Record>(&text).map_err(|e| e.to_string()),
            None => Ok(Record { state: STATE_VERSION, ..Record::default() }),
        });
        match record {
            Ok(record) if record.state == STATE_VERSION => {
                if record.nqn == stamp.nqn {
                    stamp.take(record, now_s());
                }
            }
            Ok(_) => stamp.unknown = Some("the last server was of another version".to_owned()),
            Err(e) => stamp.unknown = Some(format!("{}: {e}", note.path().display())),
        }
        stamp
    }

    /// Claims the name of the subsystem: two servers with one name would reuse numbers that hosts have from the other
    /// one. `most`: how long to wait for another server that has the name.
    pub(super) fn claim(&mut self, most: Duration) -> Result<(), Failure> {
        let Some(note) = self.note.as_ref().filter(|_| self.claim.is_none()) else { return Ok(()) };
        let path = lock_of(note);
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let options = options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let end = Instant::now() + most;
        loop {
            // If there is no place for the lock, there is none for the stamp either, which is reported.
            let Ok(file) = options.open(&path) else { return Ok(()) };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if Instant::now() >= end => return Err(self.is_claimed()),
                Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(5)),
                _ if is_at(&file, &path) => {
                    self.claim = Some(Claim { path, _locked: file });
                    return Ok(());
                }
                // Another server has removed the file after this one had opened it.
                _ => {}
            }
        }
    }

    /// Fails if another server has the name of the subsystem. Does not claim it.
    pub(super) fn check_claim(&self) -> Result<(), Failure> {
        let Some(file) = self.note.as_ref().and_then(|note| File::open(lock_of(note)).ok()) else {
            return Ok(());
        };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => Err(self.is_claimed()),
            _ => Ok(()),
        }
    }

    fn is_claimed(&self) -> Failure {
        ServeError::NameTaken { name: self.nqn.clone(), option: "nqn" }.into()
    }

    fn take(&mut self, record: Record, now_s: u64) {
        let is_held = |d: &StampedDisk| d.ended_s.is_none_or(|end| now_s < end + HELD_S);
        self.held = record.disks.into_iter().filter(is_held).collect();
        // A killed server may have served until now.
        self.held.iter_mut().for_each(|d| d.ended_s = d.ended_s.or(Some(now_s)));
        self.append_limit = if self.held.is_empty() { 0 } else { record.append_limit };
    }

    /// Whether hosts know no disk from an earlier server.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The highest number under which hosts may know a disk.
    pub(super) fn last_nsid(&self) -> u32 {
        self.held.iter().flat_map(StampedDisk::nsids).max().unwrap_or(0)
    }

    /// The hosts' knowledge of a disk that is to be served.
    pub(super) fn known(
        &self,
        spec: &Specification,
        mark: DiskMark,
        moved: bool,
    ) -> Option<KnownDisk> {
        let volatile = spec.is_volatile();
        // An earlier server may have written the keys in another order, or sizes in other units.
        let is_written = |text: &str| {
            Specification::parse(text).is_ok_and(|was| was.canonical() == spec.canonical())
        };
        let is = |d: &&StampedDisk| match (volatile, d.disk.outlives) {
            (true, false) => is_written(&d.disk.spec),
            (false, true) => d.is(mark, moved),
            _ => false,
        };
        let found = self.held.iter().find(is)?;
        if volatile {
            return Some(KnownDisk::lost(found.nsids()));
        }
        Some(KnownDisk { nsids: found.nsids(), uuid: found.disk.uuid()?, enabled: true })
    }

    /// Checks that hosts would find the disks that they know. `disks`: the disks to serve that no running server has.
    /// `all`: all disks to serve.
    pub(super) fn compare(
        &self,
        disks: &[MarkedDisk<'_>],
        all: &[DiskMark],
        moved: bool,
    ) -> Result<(), Failure> {
        for MarkedDisk { spec, mark } in disks.iter().filter(|d| !d.spec.is_volatile()) {
            let mut same =
                self.held.iter().filter(|d| d.disk.disks == mark.disks && d.disk.outlives);
            let Some(first) = same.next() else {
                self.no_other_at_its_path(spec, all)?;
                continue;
            };
            if first.is(*mark, moved) || same.any(|d| d.is(*mark, moved)) {
                continue;
            }
            let (known, named) = (first.shown(), plain(spec));
            let (what, hint) = if first.disk.layers != mark.layers {
                (
                    format!("{named} has other layers, or another key"),
                    format!("the same layers and keys: {}", plain(&first.disk.spec)),
                )
            } else if first.disk.place != mark.place && !moved {
                let hint = "the disk itself; --moved if it was moved there, and is no copy";
                let what = match mark.opened {
                    0 => "another drive by now",
                    _ => "a copy of that disk, in another file",
                };
                (format!("{named} is {what}"), hint.to_owned())
            } else {
                let hint = "the disk as its last server left it";
                (format!("{named} is older: a backup was copied over it"), hint.to_owned())
            };
            return Err(self.refused(format!("{known}, and {what}"), &hint));
        }
        Ok(())
    }

    /// Refuses a disk that hosts do not know if it replaces one that they know at its path.
    fn no_other_at_its_path(&self, spec: &Specification, all: &[DiskMark]) -> Result<(), Failure> {
        let paths = DiskMark::paths(spec);
        let is_gone = |d: &&StampedDisk| {
            let stays = all.iter().any(|mark| mark.disks == d.disk.disks);
            d.disk.outlives && d.paths == paths && !stays
        };
        match self.held.iter().find(is_gone) {
            None => Ok(()),
            Some(d) => {
                let what = format!("{}, and another disk is at its path now", d.shown());
                Err(self.refused(what, "the disk that was there"))
            }
        }
    }

    /// Checks that the known namespaces with these numbers look the same in `shown`, the subsystem that would be
    /// served.
    pub(super) fn compare_shown(
        &self,
        shown: &ShownSubsystem,
        nsids: &[u32],
    ) -> Result<(), Failure> {
        let all = self.held.iter().flat_map(|d| &d.namespaces).filter(|n| nsids.contains(&n.nsid));
        let subsystem = StateOfSubsystem {
            nqn: self.nqn.clone(),
            paths: Vec::new(),
            // A higher limit is harmless: hosts send appends up to the limit that they have read.
            append_limit: self.append_limit.max(shown.append_limit),
            namespaces: all.cloned().collect(),
            hosts: Vec::new(),
            key_checks: BTreeMap::new(),
            known_hosts: Vec::new(),
        };
        clients::compare_namespaces(&subsystem, shown).map_err(|d| self.refused(d.what, &d.hint))
    }

    fn refused(&self, what: String, hint: &str) -> Failure {
        let path = self.note.as_ref().map_or_else(String::new, |n| n.path().display().to_string());
        let path = plain(&path);
        let hint = format!("{hint}; --forget-hosts, or rm {path}, if no host has it any more");
        ServeError::ClientsDiffer { process: None, difference: Difference { what, hint } }.into()
    }

    /// Writes the hosts' knowledge of the disks, before the first host can connect.
    pub(super) fn write(&mut self, disks: &[Disk], passed: &[PassedDisk], shown: &ShownSubsystem) {
        let of = |(n, (d, passed)): (usize, (&Disk, &PassedDisk))| {
            let namespaces = shown.namespaces.iter().filter(|shown| shown.disk == n);
            let namespaces = namespaces.map(|n| shown::namespace(n, d.spec.to_string())).collect();
            StampedDisk::new(&d.spec, passed.mark, shown.uuids.get(n), namespaces)
        };
        self.served = disks.iter().zip(passed).enumerate().map(of).collect();
        self.append_limit = self.append_limit.max(shown.append_limit);
        self.put(self.served.clone());
    }

    /// Replaces the file by one with these disks, and those of earlier servers that are not served now.
    fn put(&mut self, mut disks: Vec<StampedDisk>) {
        let Some(note) = &self.note else { return };
        let gone = self.held.iter().filter(|d| !self.served.iter().any(|s| s.nsids() == d.nsids()));
        disks.extend(gone.cloned());
        if disks.is_empty() {
            return note.remove();
        }
        let (nqn, append_limit) = (self.nqn.clone(), self.append_limit);
        let record = Record { state: STATE_VERSION, nqn, append_limit, disks };
        let written = serde_json::to_string(&record).map_err(|e| e.to_string());
        let written = written.and_then(|text| note.write(&text).map_err(|e| e.to_string()));
        if let Err(e) = written {
            // Otherwise the next server would take the last server's stamp for this one's.
            note.remove();
            self.unknown = Some(format!("{}: {e}", note.path().display()));
        }
    }

    /// The reason why hosts may find changes after a restart, if there is one.
    pub(super) fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }

    /// Writes an orderly end. `used`: whether hosts have used each disk since it is served.
    pub(super) fn end(&mut self, used: &[bool]) {
        let now_s = now_s();
        let before = |d: &StampedDisk| self.held.iter().find(|h| h.nsids() == d.nsids());
        let ended = |(d, used): (&StampedDisk, &bool)| {
            let ended_s = if *used { Some(now_s) } else { before(d)?.ended_s };
            Some(StampedDisk { ended_s, ..d.clone() })
        };
        let disks = self.served.iter().zip(used).filter_map(ended).collect();
        self.put(disks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: &str) -> Specification {
        spec.parse().unwrap()
    }

    fn disk(spec: &str, nsids: &[u32], ended_s: Option<u64>) -> StampedDisk {
        let namespace = |nsid: &u32| StateOfNamespace {
            nsid: *nsid,
            disk: spec.to_owned(),
            block_bytes: 512,
            blocks: 8,
            zone_blocks: Some(4),
            digest: 0,
        };
        let namespaces = nsids.iter().map(namespace).collect();
        let uuid = Some(&[nsids[0] as u8; 16]);
        StampedDisk {
            ended_s,
            ..StampedDisk::new(&read(spec), DiskMark::of(&read(spec)), uuid, namespaces)
        }
    }

    fn stamp(disks: Vec<StampedDisk>, now_s: u64) -> Stamp {
        let mut stamp = Stamp::default();
        let record = Record { state: STATE_VERSION, nqn: String::new(), append_limit: 3, disks };
        stamp.take(record, now_s);
        stamp
    }

    fn known(stamp: &Stamp, spec: &str) -> Option<Vec<u32>> {
        stamp.known(&read(spec), DiskMark::of(&read(spec)), false).map(|known| known.nsids)
    }

    /// A server that waits for the name gets it when the last one ends, and no lock is left behind.
    #[test]
    fn a_name_is_of_one_server_and_its_lock_ends_with_it() {
        let dir = std::env::temp_dir().join(format!("zoneplug-claim-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let stamp = || Stamp { note: Some(BootNote::at(&dir, "a.hosts")), ..Stamp::default() };
        let (mut first, mut second) = (stamp(), stamp());
        first.claim(Duration::ZERO).unwrap();
        assert!(second.claim(Duration::ZERO).is_err() && second.check_claim().is_err());
        let next = std::thread::spawn(move || {
            second.claim(Duration::from_secs(60)).unwrap();
            second
        });
        std::thread::sleep(Duration::from_millis(20));
        drop(first);
        let second = next.join().unwrap();
        assert!(stamp().check_claim().is_err());
        drop(second);
        assert!(stamp().check_claim().is_ok());
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// L13: the disks in a stamp of another version may mean something else, so they are unknown, with the reason. The same
    /// content of this version is known, and that of another subsystem is none of this server's.
    #[test]
    fn l13_a_stamp_of_another_version_is_unknown() {
        let dir = std::env::temp_dir().join(format!("zoneplug-version-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let note = || BootNote::at(&dir, "a.hosts");
        for (state, nqn, known, is_unknown) in [
            (STATE_VERSION, "nqn.a", true, false),
            (STATE_VERSION, "nqn.b", false, false),
            (STATE_VERSION + 1, "nqn.a", false, true),
        ] {
            let disks = vec![disk("/dev/none-a", &[1], None)];
            let record = Record { state, nqn: nqn.to_owned(), append_limit: 3, disks };
            note().write(&serde_json::to_string(&record).unwrap()).unwrap();
            let stamp = Stamp::read("nqn.a", Some(note()), false);
            assert_eq!(self::known(&stamp, "/dev/none-a").is_some(), known, "{state} {nqn}");
            assert_eq!(stamp.unknown.is_some(), is_unknown, "{state} {nqn}: {:?}", stamp.unknown);
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// L13: a number is held for a limited time after an orderly end, and without a limit after a death.
    #[test]
    fn l13_a_number_is_held_while_hosts_may_connect() {
        let all = || {
            let of = |(spec, nsids, ended_s)| disk(spec, nsids, ended_s);
            let disks: [(_, &[u32], _); 3] = [
                ("/dev/none-a", &[1, 2], Some(1000)),
                ("/dev/none-b", &[7], Some(1500)),
                ("mem,zones=8", &[4], None),
            ];
            disks.map(of).to_vec()
        };
        for (now_s, a, b) in [
            (1000, true, true),
            (1000 + HELD_S - 1, true, true),
            (1000 + HELD_S, false, true),
            (1500 + HELD_S, false, false),
            (1_000_000, false, false),
        ] {
            let stamp = stamp(all(), now_s);
            assert_eq!(known(&stamp, "/dev/none-a"), a.then(|| vec![1, 2]), "{now_s}");
            assert_eq!(known(&stamp, "/dev/none-b,qd1=1"), b.then(|| vec![7]), "{now_s}");
            assert_eq!(known(&stamp, "mem,zones=8"), Some(vec![4]), "{now_s}");
            assert_eq!(
                known(&stamp, "mem,zones=08"),
                Some(vec![4]),
                "{now_s}: in another spelling"
            );
            assert_eq!(known(&stamp, "mem,zones=9"), None, "{now_s}");
            assert_eq!(stamp.last_nsid(), if b { 7 } else { 4 }, "{now_s}");
            assert_eq!(stamp.held.iter().map(|d| d.ended_s).next_back(), Some(Some(now_s)));
        }
        assert_eq!(stamp(vec![disk("/dev/none-a", &[1], Some(0))], HELD_S).append_limit, 0);
    }

    /// L13: hosts send appends up to the limit that they have read.
    #[test]
    fn l13_hosts_find_no_shorter_limit_of_appends() {
        let stamp = stamp(vec![disk("/dev/none-a", &[1], None)], 0);
        let shows = |append_limit| {
            let shown = ShownSubsystem { namespaces: Vec::new(), append_limit, uuids: Vec::new() };
            stamp.compare_shown(&shown, &[]).map_err(|f| f.to_string())
        };
        assert_eq!((shows(3), shows(4)), (Ok(()), Ok(())));
        let text = shows(2).unwrap_err();
        assert!(text.contains("append"), "{text}");
    }

    /// L13: if the stamp has two disks with one UUID, a served disk must match one of them.
    #[test]
    fn l13_what_hosts_would_find_changed_is_refused() {
        type Change = fn(&mut StampedDisk);
        let changes: [(Change, &str); 3] = [
            (|d| d.disk.layers ^= 1, "other layers"),
            (|d| d.disk.place ^= 1, "is another drive"),
            (|d| d.opened += 1, "is older"),
        ];
        let (spec, other) = ("/dev/none-a", "/dev/none-b");
        let ask = |stamp: &Stamp, spec: &str, moved| {
            let (spec, mark) = (&read(spec), DiskMark::of(&read(spec)));
            stamp.compare(&[MarkedDisk { spec, mark }], &[mark], moved).map_err(|f| f.to_string())
        };
        for (change, what) in changes {
            let mut changed = disk(spec, &[2], None);
            change(&mut changed);
            let alone = stamp(vec![disk(other, &[1], None), changed.clone()], 0);
            let text = ask(&alone, spec, false).unwrap_err();
            assert!(text.contains(what) && text.contains("namespace 2"), "{text}");
            assert!(text.contains("--forget-hosts"), "{text}");
            assert_eq!(ask(&alone, other, false), Ok(()));
            assert_eq!(
                ask(&alone, spec, true).is_ok(),
                what == "is another drive",
                "{what}, moved"
            );
            let both = stamp(vec![changed, disk(spec, &[3], None)], 0);
            assert_eq!(ask(&both, spec, false), Ok(()), "{what}: it is the other one");
            assert_eq!(known(&both, spec), Some(vec![3]));
        }
        // The disk that was at the path is served from elsewhere, or not at all.
        let mut gone = disk(spec, &[1], None);
        gone.paths = DiskMark::paths(&read(other));
        let stamp = stamp(vec![gone], 0);
        let text = ask(&stamp, other, false).unwrap_err();
        assert!(text.contains("another disk is at its path"), "{text}");
        let marks = [spec, other].map(|spec| DiskMark::of(&read(spec)));
        let other = MarkedDisk { spec: &read(other), mark: marks[1] };
        assert!(stamp.compare(&[other], &marks, false).is_ok());
    }
}
