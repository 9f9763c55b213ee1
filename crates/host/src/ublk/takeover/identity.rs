//! The identity of a device, by which a new server recognises the device of a dead one. The driver keeps three words
//! for each device (`ublksrv_flags` and two reserved ones), which are derived from the served disks. This module
//! opens disks in files for reading, and changes nothing.
//!
//! | what | kept as | if it differs |
//! | --- | --- | --- |
//! | which disks | 64 bits of a hash of their UUIDs, or paths | it is another device |
//! | which layers, which keys, which order of disks | 32 bits of a hash (`spec/meaning.rs`) | refused: the file system would find other zones, or other data |
//! | where the disks are | 64 bits of a hash of the device and inode of each file, or of a drive's serial number | refused: a copy |
//! | how often they were opened for writing | a number of 32 bits | refused if it is less than the last server's: an older copy in the same file |
//!
//! The driver keeps the words of a device's first server. Later servers note place and count in their journal
//! (`recovery/journal.rs`). Earlier versions hashed the text of the specification instead of the effect of its layers; their
//! devices are recognised by the same text. They noted no key, so a device with a key is taken over only with
//! `--moved`.

use crate::recovery::bases::{Bases, DiskState, hash};
use crate::ublk::abi::{self, DevInfo};
use crate::ublk::{UblkError, WaitReason};
use std::ops::Range;
use zoneplug_core::Error;

/// The relation of a waiting device to the disk that a server is about to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ublk) enum Match {
    /// Another disk.
    Other,
    /// The device has the same disks with other layers.
    OtherLayers,
    /// The device had disks with the same UUIDs in other files, or other drives at the same paths.
    OtherPlace,
    /// The files are the same, but were opened less often than the last server knew.
    Older,
    /// The disks are the same; the version of zoneplug that made the device did not note their places.
    PlaceUnknown,
    /// Disks and layers are the same; the version of zoneplug that made the device did not note the key.
    KeyUnknown,
    Same,
}

/// The identity of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::ublk) struct DeviceIdentity {
    /// Hash of the disks in the upper half, of the layers in the lower. Never 0, which programs other than zoneplug
    /// leave in `ublksrv_flags`.
    pub(in crate::ublk) word: u64,
    /// More bits of the disks' hash.
    disks: u32,
    /// Both values as earlier versions computed them, from the text of the specification.
    before: (u64, u32),
    /// Whether the data depends on a key, which earlier versions did not note.
    keyed: bool,
    /// The words of the devices that show the other zones of these disks, if there are several.
    others: Vec<u64>,
    /// The number of disks in files. Only these count how often they were opened.
    pub(in crate::ublk) files: u64,
    /// The state of the disks that this server is about to serve.
    pub(in crate::ublk) now: DiskState,
}

impl Bases {
    /// The identity of the device that shows the zones `shown` of these disks. `parts`: the zones of each device that
    /// shows these disks.
    pub(in crate::ublk) fn identity(
        &self,
        shown: &Range<u32>,
        parts: &[Range<u32>],
    ) -> DeviceIdentity {
        let word = |(disks, layers): (u64, &str), part: &Range<u32>| {
            let layers = match parts {
                [] | [_] => hash(layers),
                _ => hash(&format!("zones {}..{} of {layers}", part.start, part.end)),
            };
            (fold(disks) << 32 | fold(layers)).max(1)
        };
        let (now, before) = ((self.name(), self.layers()), self.before());
        let others = parts.iter().filter(|part| *part != shown);
        DeviceIdentity {
            word: word(now, shown),
            others: others.flat_map(|part| [word(now, part), word(before, part)]).collect(),
            disks: (now.0 >> 32) as u32,
            before: (word(before, shown), (before.0 >> 32) as u32),
            keyed: self.keyed(),
            files: self.files(),
            now: self.disk_state(),
        }
    }
}

impl DeviceIdentity {
    /// The words that the driver keeps: disks and layers, the place, and the rest.
    pub(in crate::ublk) fn words(&self) -> (u64, [u64; 2]) {
        let opened = u32::try_from(self.now.opened).unwrap_or(u32::MAX);
        (self.word, [self.now.place, u64::from(self.disks) << 32 | u64::from(opened)])
    }

    /// Compares a device with this identity. `noted`: the note in the journal of the device's last server, if there is
    /// one. `own`: how often this process has opened the disks for writing.
    pub(in crate::ublk) fn compare(
        &self,
        info: &DevInfo,
        noted: Option<&DiskState>,
        own: u64,
    ) -> Match {
        let [place, rest] = info.more;
        let is_before = info.identity == self.before.0 && info.identity != self.word;
        let (word, disks) = if is_before { self.before } else { (self.word, self.disks) };
        if info.identity == 0 || info.identity >> 32 != word >> 32 {
            return Match::Other;
        }
        let unknown = place == 0 && rest == 0;
        if !unknown && (rest >> 32) as u32 != disks {
            return Match::Other;
        }
        let (place, opened) = noted.map_or((place, rest & 0xffff_ffff), |n| (n.place, n.opened));
        match () {
            () if self.others.contains(&info.identity) => Match::Other,
            () if info.identity != word => Match::OtherLayers,
            () if is_before && self.keyed => Match::KeyUnknown,
            () if unknown && noted.is_none() => Match::PlaceUnknown,
            () if place != self.now.place => Match::OtherPlace,
            () if self.now.opened.saturating_sub(own) < opened => Match::Older,
            () => Match::Same,
        }
    }
}

/// Fails if this program has the disk of the device but cannot serve the device. An earlier version made devices that
/// exchange requests in batches.
pub(in crate::ublk) fn can_serve(info: &DevInfo) -> Result<(), Error> {
    if info.flags & abi::F_BATCH_IO == 0 {
        return Ok(());
    }
    Err(UblkError::Batch { id: info.dev_id }.into())
}

/// The error for a waiting device that must not be taken over, because a mounted file system would find other data.
pub(in crate::ublk) fn refusal(
    is: Match,
    id: u32,
    identity: &DeviceIdentity,
    paths: Option<&str>,
) -> Error {
    let because = match is {
        Match::OtherPlace if identity.files > 0 => {
            WaitReason::Copy { original: paths.map(str::to_owned) }
        }
        Match::OtherPlace => WaitReason::OtherDrive,
        Match::Older => WaitReason::Older,
        Match::PlaceUnknown => WaitReason::PlaceUnknown,
        Match::KeyUnknown => WaitReason::KeyUnknown,
        _ => WaitReason::OtherLayers,
    };
    UblkError::Waits { id, paths: identity.now.paths.clone(), because }.into()
}

/// Folds a hash to 32 bits.
fn fold(hash: u64) -> u64 {
    (hash >> 32 ^ hash) & 0xffff_ffff
}

#[cfg(test)]
impl DeviceIdentity {
    /// The words that an earlier version left at a device of this disk: a hash of the text of the specification, and
    /// no key.
    pub(super) fn noted_before(&self) -> DevInfo {
        let rest = u64::from(self.before.1) << 32 | self.now.opened;
        DevInfo { identity: self.before.0, more: [self.now.place, rest], ..DevInfo::default() }
    }
}

#[cfg(test)]
mod tests {
    // clippy takes a list of one range for a mistake, but these lists may have more.
    #![allow(clippy::single_range_in_vec_init)]

    use super::*;
    use crate::HostedDisk;
    use crate::backend::file::CreateOptions;
    use std::path::Path;

    /// A directory for disks, removed with its test.
    struct Dir(std::path::PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let dir = format!("zoneplug-identity-{name}-{}", std::process::id());
            let dir = std::env::temp_dir().join(dir);
            std::fs::create_dir_all(&dir).unwrap();
            Dir(dir)
        }

        fn path(&self, name: &str) -> String {
            self.0.join(name).display().to_string()
        }

        fn create(&self, name: &str) -> String {
            let path = self.path(name);
            let opts = CreateOptions {
                zones: Some(4),
                zone_size: Some(1 << 20),
                ..CreateOptions::default()
            };
            crate::backend::file::create(Path::new(&path), &opts, true).unwrap();
            path
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn identity(spec: &str) -> DeviceIdentity {
        Bases::at_paths_of(&spec.parse().unwrap()).identity(&(0..4), &[0..4])
    }

    /// The device that a server of `spec` makes.
    fn device(spec: &str) -> DevInfo {
        let (identity, more) = identity(spec).words();
        DevInfo { identity, more, ..DevInfo::default() }
    }

    /// The relation of `device` to a server of `spec`.
    fn is(spec: &str, device: &DevInfo) -> Match {
        identity(spec).compare(device, None, 0)
    }

    /// Two disks differ, also if they were at the same path at different times. Attributes do not count, layers do.
    #[test]
    fn an_identity_is_of_a_disk_and_the_layers_on_it() {
        let dir = Dir::new("layers");
        let text = dir.create("a.zbd");
        let first = device(&text);
        let open = HostedDisk::open_spec(&text).unwrap();
        assert_eq!(is(&text, &first), Match::Same, "also while it is open");
        drop(open);
        assert_eq!(
            is(&format!("{text},qd1=1"), &first),
            Match::Same,
            "attributes are not part of it"
        );
        assert_eq!(is(&dir.path("./a.zbd"), &first), Match::Same);
        assert_eq!(is(&format!("po2@{text}"), &first), Match::OtherLayers);
        let joined = |other: &str| format!("linear@{text}%{other}");
        assert_eq!(is(&joined("/b"), &device(&joined("/c"))), Match::Other);
        assert_eq!(is("/dev/a", &first), Match::Other);
        dir.create("a.zbd");
        assert_eq!(is(&text, &first), Match::Other, "another disk in its place");
        assert_eq!(is("/dev/a", &device("/dev/b")), Match::Other);
        assert_eq!(is("/dev/a", &device("/dev/a")), Match::Same);
        assert_eq!(is("/dev/a", &DevInfo::default()), Match::Other, "another server's device");
        let disk = DevInfo { identity: first.identity, ..DevInfo::default() };
        assert_ne!(is(&text, &disk), Match::Same);
    }

    /// A copy has the UUID of its original, and must not take over its device.
    #[test]
    fn a_copy_is_not_the_disk_and_a_moved_disk_is() {
        let dir = Dir::new("copy");
        let (disk, copy, moved) =
            (dir.create("disk.zbd"), dir.path("old.zbd"), dir.path("new.zbd"));
        let before = dir.path("before.zbd");
        std::fs::copy(&disk, &before).unwrap();
        let served = HostedDisk::open_spec(&disk).unwrap();
        let device = device(&disk);
        drop(served);
        std::fs::copy(&disk, &copy).unwrap();
        assert_eq!(is(&copy, &device), Match::OtherPlace);
        assert_eq!(is(&format!("po2@{copy}"), &device), Match::OtherLayers);
        assert_eq!(is(&disk, &device), Match::Same);
        std::fs::rename(&disk, &moved).unwrap();
        assert_eq!(is(&moved, &device), Match::Same);
        std::fs::rename(&copy, &disk).unwrap();
        assert_eq!(is(&disk, &device), Match::OtherPlace, "a copy at the old path is not the disk");
        // An older copy is written over the file: the same file, opened less often.
        std::fs::copy(&before, &moved).unwrap();
        assert_eq!(is(&moved, &device), Match::Older);
        let open = HostedDisk::open_spec(&moved).unwrap();
        assert_eq!(
            identity(&moved).compare(&device, None, 1),
            Match::Older,
            "the older copy, once it is open"
        );
        drop(open);
    }

    /// The journal of a later server overrides the words of the first one.
    #[test]
    fn the_record_of_the_last_server_is_newer_than_the_drivers_words() {
        let dir = Dir::new("record");
        let disk = dir.create("disk.zbd");
        let first = device(&disk);
        drop(HostedDisk::open_spec(&disk).unwrap());
        let backup = dir.path("backup.zbd");
        std::fs::copy(&disk, &backup).unwrap();
        drop(HostedDisk::open_spec(&disk).unwrap());
        let noted = identity(&disk).now;
        std::fs::copy(&backup, &disk).unwrap();
        assert_eq!(is(&disk, &first), Match::Same, "as far as the driver knows");
        assert_eq!(identity(&disk).compare(&first, Some(&noted), 0), Match::Older);
        let elsewhere = DiskState { place: noted.place + 1, ..noted };
        assert_eq!(identity(&disk).compare(&first, Some(&elsewhere), 0), Match::OtherPlace);
    }

    /// The identities of the devices of one disk differ.
    #[test]
    fn devices_of_one_disk_are_told_apart() {
        let dir = Dir::new("parts");
        let disk = dir.create("disk.zbd");
        let all = [0..2, 2..4];
        let of = |i: usize| Bases::at_paths_of(&disk.parse().unwrap()).identity(&all[i], &all);
        let device = |i: usize| {
            let (identity, more) = of(i).words();
            DevInfo { identity, more, ..DevInfo::default() }
        };
        assert_eq!([0, 1].map(|i| of(0).compare(&device(i), None, 0)), [Match::Same, Match::Other]);
        assert_eq!([0, 1].map(|i| of(1).compare(&device(i), None, 0)), [Match::Other, Match::Same]);
        assert_eq!(is(&disk, &device(0)), Match::OtherLayers, "shown as one");
        let fewer = Bases::at_paths_of(&disk.parse().unwrap()).identity(&(0..1), &[0..1, 1..4]);
        assert_eq!(fewer.compare(&device(0), None, 0), Match::OtherLayers, "shown as other slices");
    }

    /// A device of an older version, which kept 64 bits only, is recognised but not taken over.
    #[test]
    fn a_device_of_an_older_version_is_known() {
        let dir = Dir::new("unknown");
        let disk = dir.create("disk.zbd");
        let old = DevInfo { identity: device(&disk).identity, ..DevInfo::default() };
        assert_eq!(is(&disk, &old), Match::PlaceUnknown);
        assert_eq!(is(&format!("po2@{disk}"), &old), Match::OtherLayers);
    }

    /// U9. The spelling of a layer, and a layer that changes no data, are not part of an identity.
    #[test]
    fn an_identity_is_of_what_layers_do_and_not_of_their_text() {
        let dir = Dir::new("spelling");
        let disk = dir.create("disk.zbd");
        let cut = device(&format!("linear,first=1,zones=3@{disk}"));
        for same in
            ["linear,zones=3,first=1@", "linear,first=1@", "delay,write=1ms@linear,first=1@"]
        {
            assert_eq!(is(&format!("{same}{disk}"), &cut), Match::Same, "{same}");
        }
        for other in
            ["linear,first=1,zones=2@", "linear,first=0,zones=3@", "po2@linear,first=1@", ""]
        {
            assert_eq!(is(&format!("{other}{disk}"), &cut), Match::OtherLayers, "{other}");
        }
        let late = device(&format!("delay,write=1ms,read=2ms@{disk}"));
        for same in ["delay,read=2ms,write=1000us@", "linear@", "linear,first=0@", ""] {
            assert_eq!(is(&format!("{same}{disk}"), &late), Match::Same, "{same}");
        }
    }

    /// U9. The order of the disks of a stripe decides where data is. Another order counts as other layers, not as
    /// another device.
    #[test]
    fn disks_that_change_places_are_other_layers() {
        let dir = Dir::new("order");
        let [a, b] = ["a.zbd", "b.zbd"].map(|name| dir.create(name));
        let served = device(&format!("stripe@{a}%{b}"));
        assert_eq!(is(&format!("stripe@{a}%{b}"), &served), Match::Same);
        assert_eq!(is(&format!("stripe@{b}%{a}"), &served), Match::OtherLayers);
        assert_eq!(is(&format!("linear@{a}%{b}"), &served), Match::OtherLayers);
    }

    /// U9. With another key in the same file, the same bytes would be other data.
    #[test]
    #[cfg(feature = "crypt")]
    fn another_key_at_the_same_path_is_another_layer() {
        let dir = Dir::new("key");
        let [a, b] = ["a.zbd", "b.zbd"].map(|name| dir.create(name));
        let (key, copy) = (dir.path("key"), dir.path("copy"));
        let old: Vec<u8> = (0..64).collect();
        std::fs::write(&key, &old).unwrap();
        std::fs::write(&copy, &old).unwrap();
        let spec = |disk: &str, key: &str| format!("crypt,key-file={key}@{disk}");
        let served = device(&spec(&a, &key));
        assert_eq!(is(&spec(&a, &key), &served), Match::Same);
        assert_eq!(is(&spec(&a, &copy), &served), Match::Same, "the same key in another file");
        for (nth, new) in [(0, 63), (63, 64)] {
            let mut changed = old.clone();
            changed[nth] = new;
            std::fs::write(&key, &changed).unwrap();
            assert_eq!(is(&spec(&a, &key), &served), Match::OtherLayers, "byte {nth}");
        }
        std::fs::write(&key, &old[..32]).unwrap();
        assert_eq!(is(&spec(&a, &key), &served), Match::OtherLayers, "AES-128");
        std::fs::remove_file(&key).unwrap();
        assert_eq!(is(&spec(&a, &key), &served), Match::OtherLayers, "no key");
        assert_eq!(is(&spec(&b, &copy), &served), Match::Other);
    }

    /// U9. An earlier version hashed the text of the specification, and noted no key.
    #[test]
    #[cfg(feature = "crypt")]
    fn a_device_of_an_earlier_version_is_known_by_the_text_of_its_specification() {
        let dir = Dir::new("before");
        let [a, b] = ["a.zbd", "b.zbd"].map(|name| dir.create(name));
        let key = dir.path("key");
        std::fs::write(&key, (0..64).collect::<Vec<u8>>()).unwrap();
        let old = |spec: &str| identity(spec).noted_before();
        let late = format!("delay,write=1ms@{a}");
        assert_eq!(is(&late, &old(&late)), Match::Same);
        let reversed = format!("stripe@{b}%{a}");
        assert_eq!(is(&reversed, &old(&reversed)), Match::Same);
        assert_ne!(is(&format!("stripe@{a}%{b}"), &old(&reversed)), Match::Same);
        let keyed = format!("po2@crypt,key-file={key}@{a}");
        assert_eq!(is(&keyed, &old(&keyed)), Match::KeyUnknown);
        assert_eq!(is(&a, &old(&keyed)), Match::OtherLayers);
        let e = refusal(Match::KeyUnknown, 3, &identity(&keyed), None).to_string();
        assert!(e.contains("/dev/ublkb3") && e.contains("which key"), "{e}");
    }

    /// U9. The identity that a server reports is that of its open disks, not of the files that are at their paths by now.
    #[test]
    #[cfg(feature = "crypt")]
    fn what_a_server_holds_is_not_what_its_paths_lead_to() {
        let dir = Dir::new("held");
        let [a, b] = ["a.zbd", "b.zbd"].map(|name| dir.create(name));
        let (link, key) = (dir.path("link.zbd"), dir.path("key"));
        std::os::unix::fs::symlink(&a, &link).unwrap();
        std::fs::write(&key, [vec![1; 32], vec![2; 32]].concat()).unwrap();
        let spec = format!("crypt,key-file={key}@{link}");
        let before = crate::DiskMark::of(&spec.parse().unwrap());
        let disk = HostedDisk::open_spec(&spec).unwrap();
        // The disk was opened for writing once more.
        let before = crate::DiskMark { opened: before.opened + 1, ..before };
        assert_eq!(crate::DiskMark::held(&disk, &spec.parse().unwrap()), before);
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&b, &link).unwrap();
        std::fs::write(&key, [vec![3; 32], vec![4; 32]].concat()).unwrap();
        assert_eq!(crate::DiskMark::held(&disk, &spec.parse().unwrap()), before);
        let now = crate::DiskMark::of(&spec.parse().unwrap());
        assert!(now.disks != before.disks && now.layers != before.layers);
        let held = Bases::held(&disk, &spec.parse().unwrap()).identity(&(0..4), &[0..4]);
        let (name, more) = held.words();
        let device = DevInfo { identity: name, more, ..DevInfo::default() };
        assert_eq!(is(&spec, &device), Match::Other, "the link now leads to another disk");
    }

    /// This program does not send the commands by which requests of such a device come, so it would wait for ever.
    #[test]
    fn a_device_of_an_earlier_version_with_batches_is_refused() {
        let info =
            DevInfo { dev_id: 3, flags: abi::F_ZONED | abi::F_BATCH_IO, ..DevInfo::default() };
        let e = can_serve(&info).unwrap_err();
        assert!(e.to_string().contains("/dev/ublkb3"), "{e}");
        assert!(e.what_to_try().is_some_and(|h| h.contains("--remove /dev/ublkb3")));
        assert!(can_serve(&DevInfo { flags: abi::F_ZONED, ..info }).is_ok());
    }
}
