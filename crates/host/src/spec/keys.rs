//! The names that a specification may use: every kind of device and every layer, with the keys of each. The parser
//! takes names and bounds from here, and `zoneplug help spec` prints these tables.

use zoneplug_core::disk::{ATTRIBUTES, TAGS};
use zoneplug_core::form::DefaultValue::{self, Is, Means, Required};
use zoneplug_core::form::{Form, Key};
use zoneplug_devices::emu;
use zoneplug_devices::emu::timing::{PROFILE_KEYS, SMR_KEYS, ZNS_KEYS};

/// A kind of device, or a layer.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// The name in a specification; `FILE` and `DRIVE` stand for paths.
    pub name: &'static str,
    /// A description in one sentence.
    pub about: &'static str,
    /// An example of a specification.
    pub example: &'static str,
    /// The keys of this kind, in several tables.
    keys: &'static [&'static [Key]],
    /// Whether the name stands for the path of a file or a drive.
    path: bool,
}

impl Kind {
    /// Whether the name stands for a path: that of a disk in a file, or of a drive.
    pub fn is_path(&self) -> bool {
        self.path
    }

    /// The keys of this kind. A device also takes those of the disk, [`disk_keys`]. If a key of a profile has the
    /// name of an attribute of the disk, the attribute hides it: `queue-depth` is the attribute, and `tags` the
    /// number that a drive takes.
    pub fn keys(&self) -> impl Iterator<Item = &'static Key> {
        let hidden = |k: &&Key| !ATTRIBUTES.iter().any(|a| a.is_key() && a.key.is(k.name));
        self.keys.iter().flat_map(|table| table.iter()).filter(hidden)
    }
}

const fn key(name: &'static str, form: Form, default: DefaultValue, about: &'static str) -> Key {
    Key { name, aliases: &[], form, default, about }
}

const fn kind(
    name: &'static str,
    about: &'static str,
    example: &'static str,
    keys: &'static [&'static [Key]],
) -> Kind {
    Kind { name, about, example, keys, path: false }
}

const MAX: u64 = u32::MAX as u64;
const ZONES: Form = Form::Number { min: 0, max: MAX, unit: "zones" };
const TIME: Form = Form::Time { min: 0, max: u64::MAX };

/// Faults of a device or a layer.
pub(crate) const FAULT: Key = key(
    "fault",
    Form::Text("faults, see FAULTS"),
    Means("none"),
    "Makes commands fail, come late or get lost, or cuts the power.",
);

pub(crate) const READ_ONLY: Key = key(
    "read-only",
    Form::Flag,
    Means("0; 1 for commands that only look"),
    "Opens it for reading.",
);
pub(crate) const IO: Key = key(
    "io",
    Form::Choice(&["auto", "ring", "threads"]),
    Is("auto"),
    "What does the I/O: io_uring, threads, or io_uring where the system has it.",
);
pub(crate) const DIRECT: Key =
    key("direct", Form::Flag, Is("1"), "Goes around the page cache where the file system can.");
pub(crate) const DRIVE_DIRECT: Key =
    key("direct", Form::Flag, Is("1"), "Only 1: the page cache would write in another order.");
pub(crate) const FORCE: Key =
    key("force", Form::Flag, Is("0"), "Opens a drive although it holds a file system.");
pub(crate) const DATA: Key = key("data", Form::Flag, Is("0"), "Keeps what is written, in memory.");
pub(crate) const ORDERED: Key = key(
    "ordered",
    Form::Flag,
    Is("0"),
    "Declares that the drive keeps the order of writes, as all modelled drives do.",
);
pub(crate) const PROFILE: Key =
    key("profile", Form::Text("a path"), Required, "The file of a profile (docs/models.md).");
pub(crate) const FIRST: Key = key("first", ZONES, Is("0"), "The first zone that is shown.");
pub(crate) const CUT_ZONES: Key =
    key("zones", ZONES, Means("all from first on"), "How many zones are shown.");
pub(crate) const KEY_FILE: Key =
    key("key-file", Form::Text("a path"), Required, "A file of 64 bytes: the two keys of XTS.");
pub(crate) const TRACE_FILE: Key =
    key("file", Form::Text("a path"), Required, "The file that is made.");
/// The keys of delays, by operation.
pub(crate) const DELAYS: [Key; 6] = [
    key("read", TIME, Is("0"), "How much later reads complete."),
    key("write", TIME, Is("0"), "How much later writes complete."),
    key("append", TIME, Is("0"), "How much later zone appends complete."),
    key("flush", TIME, Is("0"), "How much later flushes complete."),
    key("reset", TIME, Is("0"), "How much later zone resets complete."),
    key("any", TIME, Is("0"), "How much later every command completes."),
];

/// Every kind of device.
///
/// ```
/// let mem = zoneplug_host::KINDS.iter().find(|k| k.name == "mem").unwrap();
/// assert!(mem.keys().any(|k| k.name == "zone-size"));
/// ```
pub static KINDS: [Kind; 9] = [
    kind(
        "mem",
        "An emulated disk with its data in memory.",
        "mem,zones=64,zone-size=64M",
        &[&emu::KEYS],
    ),
    kind(
        "null",
        "An emulated disk that keeps no data; a read leaves its buffer as it is.",
        "null,zones=512,max-open=14",
        &[&emu::KEYS],
    ),
    Kind {
        path: true,
        ..kind(
            "FILE",
            "A disk in a file, made by zoneplug create: any path with a / or .zbd at its end.",
            "disk.zbd,timeout=30s",
            &[&[READ_ONLY, IO, DIRECT]],
        )
    },
    Kind {
        path: true,
        ..kind(
            "DRIVE",
            "A zoned drive: a block device, or the generic device of an NVMe namespace.",
            "/dev/sda,force=1",
            &[&[READ_ONLY, FORCE, DRIVE_DIRECT]],
        )
    },
    kind("sim-smr30", "A modelled SMR disk of 30 TB.", "sim-smr30,qd1=1,policy=clook", SMR),
    kind("sim-smr20", "A modelled SMR disk of 20 TB.", "sim-smr20,cache=128M", SMR),
    kind("sim-smr14", "A modelled SMR disk of 14 TB.", "sim-smr14,scheduler=mq-deadline", SMR),
    kind(
        "sim-zns1",
        "A modelled ZNS SSD.",
        "sim-zns1,tags=64",
        &[&[DATA, ORDERED], &PROFILE_KEYS, &ZNS_KEYS],
    ),
    kind(
        "sim",
        "A modelled drive with a profile of your own.",
        "sim,profile=my.profile",
        &[&[PROFILE, DATA, ORDERED], &PROFILE_KEYS, &SMR_KEYS, &ZNS_KEYS],
    ),
];

/// The keys of a modelled SMR disk.
const SMR: &[&[Key]] = &[&[DATA, ORDERED], &PROFILE_KEYS, &SMR_KEYS];

/// Every layer.
///
/// ```
/// assert!(zoneplug_host::LAYERS.iter().any(|l| l.name == "po2"));
/// ```
pub static LAYERS: [Kind; 6] = [
    kind(
        "po2",
        "Zones whose size is a power of two, over zones of any size.",
        "po2@mem,zone-size=96M",
        &[&[FAULT]],
    ),
    kind(
        "linear",
        "Devices end to end, or some zones of one device.",
        "linear,first=8,zones=16@mem",
        &[&[FIRST, CUT_ZONES, FAULT]],
    ),
    kind(
        "stripe",
        "Devices that take turns zone by zone.",
        "stripe@mem%mem%mem,qd1=1",
        &[&[FAULT]],
    ),
    kind(
        "crypt",
        "AES-XTS by sector, as dm-crypt's aes-xts-plain64.",
        "crypt,key-file=key@disk.zbd",
        &[&[KEY_FILE, FAULT]],
    ),
    kind(
        "delay",
        "The same device; commands in flight together are late together.",
        "delay,write=2ms,flush=10ms@mem",
        &[&DELAYS, &[FAULT]],
    ),
    kind(
        "trace",
        "The same device; the file gets a trace of all commands as blkparse prints it.",
        "trace,file=out.txt@mem",
        &[&[TRACE_FILE, FAULT]],
    ),
];

/// The keys of the disk itself. They are written at the end of a specification, with any device.
pub fn disk_keys() -> impl Iterator<Item = &'static Key> {
    static OWN: [Key; 2] = [TAGS, FAULT];
    OWN.iter().chain(ATTRIBUTES.iter().filter(|a| a.is_key()).map(|a| &a.key))
}

/// The names of the kinds of device that are not paths.
pub(crate) fn kind_names() -> Vec<&'static str> {
    KINDS.iter().filter(|k| !k.path).map(|k| k.name).collect()
}

/// The names of the layers.
pub(crate) fn layer_names() -> Vec<&'static str> {
    LAYERS.iter().map(|l| l.name).collect()
}

/// Whether a kind of device has this name.
pub(crate) fn is_kind(name: &str) -> bool {
    KINDS.iter().any(|k| !k.path && k.name == name)
}

/// Whether a layer has this name.
pub(crate) fn is_layer(name: &str) -> bool {
    LAYERS.iter().any(|l| l.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_devices::emu::timing::Profile;

    #[test]
    fn every_profile_is_a_kind() {
        for name in Profile::builtin_names() {
            assert!(is_kind(&format!("sim-{name}")), "{name}");
        }
        let modelled = KINDS.iter().filter(|k| k.name.starts_with("sim-"));
        assert_eq!(modelled.count(), Profile::builtin_names().len());
    }
}
